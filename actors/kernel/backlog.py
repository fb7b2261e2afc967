"""Backlog: the pure queue inside a mailbox, and the rule for when it is full.

Invariants
----------
B1  Items leave in the order in which they came, but for those put back at the front.
B2  `offer` never makes the backlog longer than its capacity. (`put_back` and `force` may: they hold what was already
    accepted once, and notices whose number is bounded elsewhere.)
B3  Whatever is not accepted is named in the answer: nothing disappears.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, Literal, TypeVar

import attrs

from callboard.log.errors import join_problems
from callboard.log.limits import MAILBOX_CAPACITY_DEFAULT

T = TypeVar("T")

WhenFull = Literal["wait", "drop_oldest", "drop_newest", "fail"]

WHEN_FULL: Final[dict[str, str]] = {
    "wait": "`tell` and `ask` wait for room (cancellable; `tell_nowait` raises MailboxFull).",
    "drop_oldest": "The message that waits longest gives way; it is counted and goes to the dead letters.",
    "drop_newest": "The new message is dropped, counted and goes to the dead letters.",
    "fail": "`tell` and `ask` raise MailboxFull.",
}
"""What a full mailbox does; the table in the guide is made from this."""


@attrs.frozen
class MailboxSpec:
    """How many messages wait at most, and what happens to one more. See `WHEN_FULL`."""

    capacity: int = MAILBOX_CAPACITY_DEFAULT
    when_full: WhenFull = "wait"

    def __attrs_post_init__(self) -> None:
        problems = mailbox_problems(self)
        if problems:
            raise join_problems("Mailbox", problems)


def mailbox_problems(spec: MailboxSpec) -> list[str]:
    """All that is wrong with `spec`."""
    problems = []
    if isinstance(spec.capacity, bool) or not isinstance(spec.capacity, int) or spec.capacity < 1:
        problems.append(f"capacity must be a whole number from 1, not {spec.capacity!r}")
    if spec.when_full not in WHEN_FULL:
        problems.append(f"when_full must be one of {', '.join(WHEN_FULL)}, not {spec.when_full!r}")
    return problems


@attrs.frozen
class Overflow(Generic[T]):
    """An offer met a full backlog: what the policy says, and the item it concerns.

    With "drop_oldest" the item is the one that gave way, and the offered one was accepted.
    """

    policy: WhenFull
    item: T


class Backlog(Generic[T]):
    """Items waiting, at most `capacity` of them."""

    __slots__ = ("capacity", "items", "when_full")

    def __init__(self, spec: MailboxSpec) -> None:
        self.items: deque[T] = deque()
        self.capacity = spec.capacity
        self.when_full: WhenFull = spec.when_full

    def __len__(self) -> int:
        return len(self.items)

    def offer(self, item: T) -> Overflow[T] | None:
        """Append `item`; None when there was room, else what the policy makes of it."""
        items = self.items
        if len(items) < self.capacity:
            items.append(item)
            return None
        if self.when_full == "drop_oldest":
            oldest = items.popleft()
            items.append(item)
            return Overflow("drop_oldest", oldest)
        return Overflow(self.when_full, item)

    def force(self, item: T) -> None:
        """Append a notice that must not be lost, room or not."""
        self.items.append(item)

    def put_back(self, item: T) -> None:
        """Return an item that was taken: it is next again."""
        self.items.appendleft(item)

    def drain(self) -> list[T]:
        """Take all."""
        taken = list(self.items)
        self.items.clear()
        return taken
