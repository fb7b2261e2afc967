"""Says to the forwarder that acks have published, or how many entries are left: one notice at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.kernel import Peer
from callboard.actors.partition import commands as c

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorSystem
    from callboard.actors.partition import effects as e
    from callboard.actors.partition.spec import PartitionSpec


class OutboxNotices:
    """One partition's peer of the forwarder: it reports how many entries its outbox has."""

    def __init__(self, system: ActorSystem, spec: PartitionSpec) -> None:
        self._system = system
        self._spec = spec
        self._peer: Peer[None, c.PublishesWait] | None = None
        self._entries = 0
        self._has_new = False
        """Entries have come since the forwarder took the last notice."""

    def moved(self, effect: e.OutboxMoved) -> None:
        """The outbox has gained or lost entries. A forwarder that is not started yet asks when it is."""
        forwarder = self._system.find(self._spec.forwarder)
        if forwarder is None:
            return
        self._entries, self._has_new = effect.entries, self._has_new or effect.has_new
        if self._peer is None:
            self._peer = Peer(forwarder, self)
        self._peer.mark(None)

    def compose(self, _: None) -> c.PublishesWait:
        """What there is to say now."""
        has_new, self._has_new = self._has_new, False
        return c.PublishesWait(self._spec.topic_id, self._spec.index, self._entries, has_new)

    def hear(self, message: object) -> None:
        """Never called: a forwarder that begins asks each partition that has an outbox."""
