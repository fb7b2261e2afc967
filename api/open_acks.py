"""Open acks: those acks with publishes of one runtime that are on their way, for the forwarder.

An ack is *open* from before its payloads are stored in an outbox until the partition was asked to name them. The
forwarder settles what no ack has named. Before it does, it says so (`SweepBegins`), and hears from where on open acks
may have stored something (`OpenAcks`). When one ends without naming its payloads, or while a sweep waits for it, it
hears that too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from callboard.actors.forwarding.commands import OpenAcks, OutboxUnserved, SweepBegins
from callboard.actors.kernel import Began, Peer

if TYPE_CHECKING:
    from callboard.actors.forwarding.commands import ForwarderCommand
    from callboard.actors.kernel import ActorRef

Place = tuple[str, int]
"""An outbox: the id of its topic, and the index of its partition."""


@attrs.define(eq=False)
class AckOnItsWay:
    """An ack with publishes that is open. Its payloads are at `start` or behind."""

    place: Place
    start: int


@attrs.define(eq=False)
class _OutboxNews:
    """What there is to say of one outbox."""

    open: dict[AckOnItsWay, None] = attrs.Factory(dict)
    end: int = 0
    """Where the outbox ended when it was swept last."""
    is_waited_for: bool = False
    """The forwarder has heard that acks are open."""
    has_ended: bool = False
    is_unnamed: bool = False
    refused: int = 0


class OutboxClient:
    """One runtime's peer of the forwarder: it reports which acks with publishes are open."""

    def __init__(self, forwarder: ActorRef[ForwarderCommand]) -> None:
        self._news: dict[Place, _OutboxNews] = {}
        """Of outboxes that the forwarder serves, and of those with open acks."""
        self._peer: Peer[Place, ForwarderCommand] = Peer(forwarder, self)
        self._peer.open()

    def begin(self, place: Place) -> AckOnItsWay:
        """An ack begins to store its payloads."""
        news = self._news.setdefault(place, _OutboxNews())
        ack = AckOnItsWay(place, news.end)
        news.open[ack] = None
        return ack

    def end(self, ack: AckOnItsWay, *, is_named: bool, is_refused: bool = False) -> None:
        """The source was asked to name the payloads, or never will be; the outbox `is_refused` them, being full."""
        news = self._news[ack.place]
        del news.open[ack]
        news.is_unnamed = news.is_unnamed or not is_named
        news.refused += is_refused
        if not is_named or news.is_waited_for:
            news.has_ended = True
            self._peer.mark(ack.place)

    # -- to the forwarder, and from it

    def compose(self, place: Place) -> OpenAcks:
        """What there is to say of an outbox."""
        news = self._news.get(place) or _OutboxNews()
        start = min([ack.start for ack in news.open], default=None)
        said = OpenAcks(self._peer.number, *place, start, news.has_ended, news.is_unnamed, news.refused)
        news.is_waited_for = start is not None
        news.has_ended, news.is_unnamed, news.refused = False, False, 0
        return said

    def hear(self, message: object) -> None:
        """The forwarder sweeps, serves an outbox no longer, or has begun: what it had heard before it does not know."""
        match message:
            case SweepBegins(topic_id, partition, end):
                news = self._news.setdefault((topic_id, partition), _OutboxNews())
                news.end = max(news.end, end)
                if news.open:
                    self._peer.mark((topic_id, partition))
            case OutboxUnserved(topic_id, partition):
                gone = self._news.get((topic_id, partition))
                if gone is not None and not gone.open:
                    del self._news[topic_id, partition]
            case Began():
                for place in self._news:
                    self._peer.mark(place)
