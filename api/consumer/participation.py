"""Participation: what one consumer knows of its group, and says to the group's coordinator.

It is a peer of the coordinator's actor (`callboard.actors.kernel.peer`): its number goes with `Join`, and by it the
coordinator tells the consumer of its partitions, generation, settings and topics. All of that coalesces, and wakes the
consumer, which takes it before it fetches.

A consumer that leaves without waiting (it was cancelled, or its body raised) departs, and is done: the coordinator
takes that before what waits in its mailbox, and its next incarnation does when it crashes before.

Invariants
----------
PN1  What a consumer knows is what the coordinator has said last; settings have versions, since answers are taken later.
PN2  Who departs is said to have departed until an incarnation of the coordinator has taken it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from callboard.actors.groups.commands import (
    Acted,
    Assigned,
    Departed,
    Fenced,
    HandedOver,
    Joined,
    SettingsAltered,
    ShowActivity,
    TakenAway,
    TopicsRead,
)
from callboard.actors.kernel import Began, Failed, Peer, Terminated
from callboard.actors.settings import GroupSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from callboard.actors.groups.commands import Activity, Place
    from callboard.actors.kernel import ActorRef


class ConsumerNews(enum.Enum):
    """What a consumer has news of, for the coordinator."""

    DEPARTED = enum.auto()
    ACTIVITY = enum.auto()


class Participation:
    """One consumer's peer of its group's coordinator: what it has heard last, and what it reports."""

    def __init__(
        self,
        ref: ActorRef[object],
        consumer: int,
        wake: Callable[[], object] = lambda: None,
        activity: Callable[[], Activity | None] = lambda: None,
    ) -> None:
        self._consumer = consumer
        self._wake = wake
        self._activity = activity
        """Tells the consumer's activity; None while it is alive for certain."""
        self._has_departed = False
        self._ended: dict[Place, None] = {}
        self.settings = GroupSettings()
        self._version = 0
        """Of the settings."""
        self.generation = 1
        """The consumer's generation now; what it leased as an earlier one is not its own any more."""
        self.assigned: frozenset[Place] | None = None
        """The partitions that it may read; None in a shared group: all."""
        self.handed_over: frozenset[Place] = frozenset()
        """Those of them that it has by now."""
        self.topic_ids: tuple[str, ...] | None = None
        """Of a group of a pattern: what it reads."""
        self.is_stopped = False
        """The coordinator has ended: the group is gone, or the runtime closes."""
        self._peer: Peer[ConsumerNews, Departed | Acted] = Peer(ref, self)
        self.number = self._peer.number

    def open(self) -> None:
        """Hear of the group from now on."""
        self._peer.open()

    def joined(self, answer: Joined) -> None:
        """The coordinator has answered."""
        self._alter(answer.settings, answer.version)
        self.topic_ids = answer.topic_ids

    def _alter(self, settings: GroupSettings, version: int) -> None:
        """The group has these settings, unless it has later ones: an answer may be taken after what was said later."""
        if version >= self._version:
            self.settings, self._version = settings, version

    def depart(self) -> None:
        """The consumer has gone. Never waits, never fails; departing twice is departing once."""
        self._has_departed = True
        self._peer.mark(ConsumerNews.DEPARTED)

    def close(self) -> None:
        """The consumer has left, and the coordinator knows."""
        self._peer.close()

    def take_ended(self) -> list[Place]:
        """The partitions whose leases have ended since the last time."""
        ended, self._ended = list(self._ended), {}
        return ended

    # -- to the coordinator, and from it

    def compose(self, news: ConsumerNews) -> Departed | Acted:
        """What there is to say."""
        if news is ConsumerNews.ACTIVITY:
            return Acted(self._consumer, self._activity())
        self._peer.close()
        return Departed(self._consumer)

    def hear(self, message: object) -> None:
        """The coordinator says this."""
        match message:
            case Assigned(places, handed_over):
                self.handed_over = handed_over
                if places == self.assigned:
                    return
                self.assigned = places
            case HandedOver(place):
                self.handed_over |= {place}
                return
            case TakenAway(place):
                self._ended[place] = None
            case Fenced(generation):
                self.generation = max(self.generation, generation)
            case SettingsAltered(settings, version):
                self._alter(settings, version)
            case TopicsRead(topic_ids):
                self.topic_ids = topic_ids
            case ShowActivity():
                self._peer.mark(ConsumerNews.ACTIVITY)
                return
            case Began():
                if self._has_departed:
                    self._peer.mark(ConsumerNews.DEPARTED)
                return
            case Failed():
                return
            case Terminated():
                self.is_stopped = True
        self._wake()
