"""Peer: one party of a standing exchange with an actor, in notices that neither side ever waits for.

A peer *marks* what it has news of. At most one notice of each mark is on its way: the mailbox keeps a place for it
whatever else is there, and the message is composed when the actor takes it, so the newest counts. The actor sends
notices back to the peer's number (`notify`); they wake the peer's task directly, as an answer wakes its asker.

News of which each item counts, such as settlements, is gathered until the actor takes it (`Gathering`), as much at a
time as it handles in a step.

A cell knows its open peers. Each incarnation of the actor begins by saying so: what a peer has said to an earlier one,
and wants known, it says again. When the actor has failed for good, its peers hear `Failed`, and when it has ended,
`Terminated`. A peer that opens later hears so at once.

Invariants
----------
PE1  A mark is in its peer once, and the mailbox counts all marks of all its peers.
PE2  Notices are data. What is composed at the actor's side, or heard at the peer's, shares nothing with its sender.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from callboard.actors.kernel.party import Began, Party
from callboard.actors.kernel.ref import ActorRef
from callboard.log.limits import STEP_ITEMS

K = TypeVar("K")
M = TypeVar("M")
T = TypeVar("T")


class Peer(Generic[K, M]):
    """One side of an exchange of notices with an actor: it marks news, and its party hears what the actor says."""

    __slots__ = ("_cell", "marks", "number", "party")

    def __init__(self, ref: ActorRef[Any], party: Party[K, M]) -> None:
        self._cell = ref._cell
        self.party = party
        self.marks: dict[K, None] = {}
        """What it has news of and the actor has not taken yet."""
        self.number = self._cell.number_peer()
        """By which the actor names it."""

    def open(self) -> None:
        """Hear what the actor says from now on."""
        self._cell.open_peer(self)

    def close(self) -> None:
        """Hear nothing more. What is marked still comes."""
        self._cell.peers.pop(self.number, None)

    def mark(self, mark: K) -> None:
        """There is news of it for the actor. Never waits, never fails; marking twice is marking once."""
        if mark not in self.marks:
            self.marks[mark] = None
            self._cell.mailbox.notice(self)

    def hear(self, message: object) -> None:
        """The actor says this."""
        wire = self._cell.wire
        self.party.hear(message if wire is None else wire.copy(message))

    def take(self) -> M:
        """Compose what is marked first: for the mailbox."""
        mark = next(iter(self.marks))
        if len(self.marks) == 1:
            self.marks = {}  # which takes less memory than one that was emptied
        else:
            del self.marks[mark]
        return self.party.compose(mark)


class Gathering(Generic[T, M]):
    """News of which each item counts: gathered for an actor until it takes them, `STEP_ITEMS` at most in one notice.

    An actor that restarts, or is revived after it has failed, takes them then. They go when it has ended for good.
    """

    __slots__ = ("_items", "_message", "_peer")

    def __init__(self, ref: ActorRef[M], message: Callable[[tuple[T, ...]], M]) -> None:
        self._message = message
        self._items: list[T] = []
        self._peer: Peer[None, M] = Peer(ref, self)

    def add(self, item: T) -> None:
        """Have the actor take it. Never waits, never fails."""
        self._items.append(item)
        if len(self._items) == 1:
            self._peer.open()
        self._peer.mark(None)

    def compose(self, _: None) -> M:
        """What was gathered first; the next notice has the rest."""
        items, self._items = self._items[:STEP_ITEMS], self._items[STEP_ITEMS:]
        if self._items:
            self._peer.mark(None)
        else:
            self._peer.close()
        return self._message(tuple(items))

    def hear(self, message: object) -> None:
        """The actor says this: what it gathered stays unless the actor has ended."""
        if isinstance(message, Began):
            self._peer.mark(None)  # a mailbox that refused has forgotten the mark
        elif self._peer._cell.closed:
            self._items.clear()


def notify(ref: ActorRef[Any], number: int, message: object) -> bool:
    """Have the peer of that number of an actor hear a message, for that actor; False when there is none any more."""
    peer = ref._cell.peers.get(number)
    if peer is None:
        return False
    peer.hear(message)
    return True


def notify_all(ref: ActorRef[Any], message: object) -> None:
    """Have all open peers of an actor hear a message, for that actor."""
    for number in tuple(ref._cell.peers):
        notify(ref, number, message)


def watch_marks(ref: ActorRef[Any], marked: Callable[[Any], object] | None) -> None:
    """Have an actor hear of each mark of its peers that waits, or comes: for waiting in `started`, when it takes none.

    None ends that.
    """
    ref._cell.mailbox.watch_marks(marked)
