"""Groups that the delivery journal of a partition has lost: they are opened anew, before anything else is done.

The catalog knows which groups read a topic. What they have not settled is not dropped, and reaches them, whether or
not they have a consumer. Those that begin at the beginning are open in every core from its start on (`opening_rules`);
here are those that begin at the end, at an offset or at an instant.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.actors.partition.carried import Carried
    from callboard.actors.partition.commands import OpenGroup
    from callboard.actors.partition.core import PartitionCore
    from callboard.log.partition.partition_log import PartitionLog
    from callboard.log.seams.clock import Clock


async def open_lost(
    core: PartitionCore, carried: Carried, log: PartitionLog, clock: Clock, numbering: int
) -> None:
    """Open the durable groups that read the partition, and of which its journal does not tell. Raises `StorageError`.

    The core may be given nothing meanwhile.
    """
    for message in carried.lost_readers(core.states.groups):
        start = await _start(message, core, log, clock)
        core.group_openings.open_group(message, None, clock.monotonic(), start, numbering=numbering)


async def _start(message: OpenGroup, core: PartitionCore, log: PartitionLog, clock: Clock) -> int | None:
    """The offset at which the group begins; None: where its settings say.

    One that began at the end has begun when it was made. What has come since may have been settled, or not.
    """
    if isinstance(message.start, datetime):
        return await log.offset_at(round(message.start.timestamp() * 1e6))
    if message.start != "end" or not core.states.lost_sequences:
        return None
    is_known = 0 < message.birth <= clock.wall_us()
    return await log.offset_at(message.birth) if is_known else core.start_offset
