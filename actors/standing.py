"""What the catalog says to an actor that works for all topics: in notices, and anew to each incarnation.

A *standing* notice tells of something that is there: a group with a topic for dead letters, an outbox. It
is said once to each incarnation of the actor, until it is withdrawn. Others are said once, and a new incarnation does
without them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from callboard.actors.kernel import Began, Peer

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef

M = TypeVar("M")


class StandingNotices(Generic[M]):
    """The standing notices for one actor. It sends nothing before `begin`, which the start of the actor calls."""

    def __init__(self) -> None:
        self._standing: dict[Hashable, M] = {}
        self._said: dict[Hashable, M] = {}
        """What is on its way and does not stand."""
        self._peer: Peer[Hashable, M] | None = None

    def begin(self, ref: ActorRef[Any]) -> None:
        """The actor is started: it hears all that stands."""
        self._peer = Peer(ref, self)
        self._peer.open()
        self._say_all()

    def stand(self, key: Hashable, notice: M) -> None:
        """Say it now, and to each incarnation to come; in place of what stood under this key."""
        self._standing[key] = notice
        self._mark(key)

    def withdraw(self, key: Hashable) -> None:
        """It does not stand any more. What is on its way comes."""
        notice = self._standing.pop(key, None)
        if notice is not None and self._peer is not None and key in self._peer.marks:
            self._said[key] = notice

    def say(self, notice: M) -> None:
        """Say it now, to the incarnation that runs."""
        if self._peer is not None:
            self._said[notice] = notice
            self._mark(notice)

    def _mark(self, key: Hashable) -> None:
        if self._peer is not None:
            self._peer.mark(key)

    # -- to the actor, and from it

    def compose(self, key: Hashable) -> M:
        """The actor takes it."""
        said = self._said.pop(key, None)
        return self._standing[key] if said is None or key in self._standing else said

    def hear(self, message: object) -> None:
        """An incarnation has begun."""
        if isinstance(message, Began):
            self._say_all()

    def _say_all(self) -> None:
        for key in self._standing:
            self._mark(key)
