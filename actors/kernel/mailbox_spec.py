"""MailboxSpec: how many messages may wait in a mailbox, and what a full one does."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from callboard.log.errors import join_problems
from callboard.log.limits import MAILBOX_CAPACITY_DEFAULT, MAILBOX_CAPACITY_MAX
from callboard.log.plain import make_plain, shown

WhenFull = Literal["wait", "drop_oldest", "drop_newest", "fail"]

WHEN_FULL: Final[dict[str, str]] = {
    "wait": "`tell` and `ask` wait for room (cancellable; `tell_nowait` raises MailboxFull).",
    "drop_oldest": "Of those that fill it the one that waits longest is dropped, counted and goes to the dead letters.",
    "drop_newest": "The new message is dropped, counted and goes to the dead letters.",
    "fail": "`tell` and `ask` raise MailboxFull.",
}
"""What a full mailbox does. The table in the guide is generated from this."""


@attrs.frozen
class MailboxSpec:
    """How many messages may wait, and what happens to the next one. See `WHEN_FULL`.

    Notices, and what a crash or a smaller capacity has put in front, do not count and are not dropped.
    """

    capacity: int = MAILBOX_CAPACITY_DEFAULT
    when_full: WhenFull = "wait"

    def __attrs_post_init__(self) -> None:
        make_plain(self, "capacity", "when_full")
        problems = []
        if type(self.capacity) is not int or not 1 <= self.capacity <= MAILBOX_CAPACITY_MAX:
            most = f"a whole number from 1 to {MAILBOX_CAPACITY_MAX:,}"
            problems.append(f"capacity must be {most}, not {shown(self.capacity)}")
        if type(self.when_full) is not str or self.when_full not in WHEN_FULL:
            problems.append(f"when_full must be one of {', '.join(WHEN_FULL)}, not {shown(self.when_full)}")
        if problems:
            raise join_problems("Mailbox", problems)
