"""Batch: the waiting messages of a mailbox, passed to the actor together.

A batch takes messages from the mailbox while it is iterated. So a message that was not yielded is still the next one in
the mailbox, whatever happens to the actor.

Invariants
----------
A1  An item is in the mailbox or was yielded, never both, never neither.
A2  `current` is the item being handled: it counts as the cause of a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from callboard.actors.kernel.mailbox import Mailbox
from callboard.actors.kernel.reply import Envelope, Reply

M = TypeVar("M")


class Batch(Generic[M]):
    """The messages that waited when the batch was made, at most `Limits.receive_batch`. Iterate it once."""

    __slots__ = ("_left", "_mailbox", "current", "replies", "taken")

    def __init__(self, mailbox: Mailbox[M], limit: int) -> None:
        self._mailbox = mailbox
        self._left = min(limit, len(mailbox))
        self.current: Envelope[M] | None = None
        """The item that was yielded last, None before the first and after the last."""
        self.replies: list[Reply] = []
        """The replies of the questions yielded so far."""
        self.taken = 0
        """How many items were yielded."""

    def __len__(self) -> int:
        """Items yielded and still to be yielded."""
        return self.taken + min(self._left, len(self._mailbox))

    def __iter__(self) -> Iterator[Envelope[M]]:
        take, questions = self._mailbox.take, self.replies
        while self._left > 0:
            item = take()
            if item is None:
                break
            self._left -= 1
            self.taken += 1
            self.current = item
            if item[1] is not None:
                questions.append(item[1])
            yield item
        self.current = None

    def halt(self) -> None:
        """End the iteration after the current item: a stop overtakes waiting messages."""
        self._left = 0

    def unanswered(self) -> list[Reply]:
        """The replies of this batch that are still open."""
        return [reply for reply in self.replies if not reply.done]
