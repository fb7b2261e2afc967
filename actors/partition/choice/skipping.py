"""Reading on past expired records, in a task of its own: what `expiry` wants read, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.actors.partition.choice.addressing import addressed_to, may_be_addressed
from callboard.actors.partition.choice.expiry import believed_expiries
from callboard.actors.partition.choice.record_window import window_records
from callboard.log.limits import STEP_ITEMS
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.clock import Clock

if TYPE_CHECKING:
    from callboard.actors.partition.core import PartitionCore
    from callboard.log.segments.reading import Reading

RECORDS: Final = 2 * STEP_ITEMS
"""Records that are read at a time: every second one may have expired."""


@attrs.frozen
class Skipping:
    """What the reading needs of its partition."""

    core: PartitionCore
    log: PartitionLog
    clock: Clock
    perform: Callable[[], None]
    """Carry out what the core wants done."""
    from_disk: Callable[..., Coroutine[Any, Any, bool]]
    """Hand on what is read; False when the disk refuses."""

    async def run(self, group_id: int) -> None:
        """Read what was given back, then what the group has not seen yet, as long as it has expired."""
        core, log, clock = self.core, self.log, self.clock
        while (span := core.expiry.unseen(group_id, clock.monotonic())) is not None:
            start, stop = span

            def taken(found: Reading, start: int = start) -> None:
                end = max(found.next_offset, start + (not found.batches))
                batches = believed_expiries(found.batches, core.stamps, clock.wall_us())
                records = window_records(start, end, batches, ("expiry_us",))
                theirs = addressed_to(found.batches, group_id)[1] if may_be_addressed(found.batches) else ()
                core.expiry.unseen_read(group_id, records, clock.monotonic(), clock.wall_us(), theirs)

            reading = log.read(start, max_records=min(stop - start, RECORDS))
            if not await self.from_disk(reading, taken, lambda _: None):
                break
            self.perform()
        core.expiry.skipped(group_id, clock.monotonic())
        self.perform()
