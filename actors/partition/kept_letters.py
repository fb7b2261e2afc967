"""Dead letters that partitions keep of a group: their number, and what is reported when they come, or go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.actors import notices
from callboard.actors.kernel import Peer
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.log.errors import CallboardError, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callboard.actors.kernel import Context
    from callboard.actors.partition.calls import PartitionCalls
    from callboard.actors.partition.port import PartitionPort
    from callboard.actors.partition.spec import PartitionSpec

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


class DeadLetterNotices:
    """Says that dead letters wait: to the router, once until it asks; and as an event when they came about."""

    def __init__(self, context: Context[Any], spec: PartitionSpec) -> None:
        self._context = context
        self._spec = spec
        self._peer: Peer[int, c.DeadLettersWait] | None = None
        self._said: set[int] = set()
        """The groups of which it was said, and the router has not asked yet."""

    def asked(self, group_id: int) -> None:
        """Those of the group are asked for. What comes about from now on is said again."""
        self._said.discard(group_id)

    def compose(self, group_id: int) -> c.DeadLettersWait:
        """What there is to say of the group."""
        return c.DeadLettersWait(self._spec.topic_id, self._spec.index, group_id)

    def hear(self, message: object) -> None:
        """Never called: the catalog tells a router that begins which partitions to ask."""

    def has_dead(self, effect: e.HasDead) -> None:
        """Some have come about, or a core begins with some."""
        group_id, died, reason = effect
        router = None if self._spec.router is None else self._spec.router.ref
        if router is not None and group_id not in self._said:
            self._said.add(group_id)
            if self._peer is None:
                self._peer = Peer(router, self)
            self._peer.mark(group_id)
        if died:
            self._context.emit(notices.DeadLettered(self._context.path, group_id, died, reason))

    def dropped_dead(self, effect: e.DroppedDead) -> None:
        """Some are gone with their group."""
        self._context.emit(notices.DeadLettersDropped(self._context.path, *effect))
