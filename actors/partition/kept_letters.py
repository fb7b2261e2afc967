"""Dead letters that partitions keep of a group: what is reported when they come, or go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors import notices
from callboard.actors.kernel import Peer
from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e

if TYPE_CHECKING:
    from callboard.actors.kernel import Context
    from callboard.actors.partition.spec import PartitionSpec


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
        router = self._context.system.find(self._spec.router)
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
