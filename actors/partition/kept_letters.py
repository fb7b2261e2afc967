"""Dead letters that partitions keep of a group: how many there are, and what is told when they come, or go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.actors import notices
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.log.errors import CallboardError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from callboard.actors.kernel import Context
    from callboard.actors.partition.calls import PartitionCalls
    from callboard.actors.partition.port import PartitionPort

FAILED: Final = frozenset({"failed"})
"""One that is stuck answers all the same: it needs no disk to count."""


async def kept_letters(
    calls: PartitionCalls, ports: Iterable[PartitionPort], group_id: int, found: dict[str, int]
) -> None:
    """Note in `found`, by the label of each partition that keeps dead letters of the group, how many.

    One that has failed is passed: if the group is deleted, it tells what it drops when it forgets the group.
    """

    async def count_at(port: PartitionPort) -> None:
        try:
            count = await calls.ask(port, c.CountDead(group_id), unless=FAILED)
        except InternalError:
            raise
        except CallboardError:
            return  # it has failed, or its topic is deleted
        if count:
            found[port.label] = count

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(count_at, port)


def tells_dead(context: Context[Any], port: PartitionPort) -> dict[type, Callable[[Any], None]]:
    """What performs a core's effects that concern dead letters."""

    def has_dead(effect: e.HasDead) -> None:
        group_id, died, reason = effect
        port.flag_dead(group_id)
        if died:
            context.emit(notices.DeadLettered(context.path, group_id, died, reason))

    def dropped_dead(effect: e.DroppedDead) -> None:
        context.emit(notices.DeadLettersDropped(context.path, *effect))

    return {e.HasDead: has_dead, e.DroppedDead: dropped_dead}
