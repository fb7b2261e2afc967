"""Batch: what waits in a mailbox, passed to the actor together.

Invariants
----------
MB7  An item is in the mailbox or was yielded by a batch, never both, never neither: a message that was not yielded is
     still the next one, whatever happens to the actor.
MB8  `Batch.current` is the item being handled: it counts as the cause of a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import trio

from callboard.actors.kernel.mailbox import Mailbox
from callboard.actors.kernel.reply import Envelope, Reply
from callboard.log.plain import refuse_copy

M = TypeVar("M")


class Batch(Generic[M]):
    """The messages that waited when the batch was made, at most `limit`. Iterate it once: that takes them."""

    __slots__ = ("_end", "_mailbox", "current", "replies", "taken")

    __reduce_ex__ = refuse_copy

    def __init__(self, mailbox: Mailbox[M], limit: int) -> None:
        self._mailbox = mailbox
        self._end = min(limit, mailbox.accepted)
        self.current: Envelope[M] | None = None
        """The item that was yielded last, None before the first and after the last."""
        self.replies: list[Reply] = []
        """The replies of the questions yielded so far."""
        self.taken = 0
        """How many items were yielded."""

    def __len__(self) -> int:
        """Items yielded and still to be yielded."""
        return min(self._end, self.taken + len(self._mailbox))

    def __iter__(self) -> Iterator[Envelope[M]]:
        mailbox, front = self._mailbox, self._mailbox.front
        while self.taken < self._end:
            if mailbox.trap is not None:
                mailbox.trap()
            if front:
                item = front.popleft()
            elif mailbox.notices:
                item = mailbox.take_notice()
            elif mailbox._left:
                item = mailbox._left.pop(0)
            else:
                try:
                    item = mailbox._receive.receive_nowait()
                except trio.WouldBlock:
                    break
                mailbox._coming -= 1
                if mailbox._forced:
                    mailbox._move_notices()
            self.taken += 1
            self.current = item
            if item[1] is not None:
                self.replies.append(item[1])
            yield item
        self.current = None

    def halt(self) -> None:
        """End the iteration after the current item: a stop overtakes waiting messages."""
        self._end = self.taken
