"""Budget: bytes that several tasks of one owner may have taken together. Its owner alone writes it.

A client's credit for a partition is one.

Invariants
----------
B1  No more than the limit is taken; but a single piece of any size fits when nothing else is taken.
B2  When there is no room, tasks wait, and get it in the order in which they asked.
B3  A task that is cancelled has taken nothing, also in the moment in which it gets room.
"""

from __future__ import annotations

from collections import deque

import attrs
import trio

from callboard.log.limits import PENDING_BYTES_MAX


@attrs.define(eq=False)
class _Turn:
    """A task that waits for room."""

    size_bytes: int
    is_admitted: bool = False
    over: trio.Event = attrs.field(factory=trio.Event)


class Budget:
    """A number of bytes that the tasks of one owner take and return; they wait in FIFO order when it is exhausted."""

    __slots__ = ("_limit", "_queue", "waiting_bytes")

    def __init__(self, limit_bytes: int = PENDING_BYTES_MAX) -> None:
        self._limit = limit_bytes
        self.waiting_bytes = 0
        self._queue: deque[_Turn] = deque()

    def has_room(self, size_bytes: int) -> bool:
        """Whether the bytes fit now, with no task before them (B1, B2)."""
        return not self._queue and self._fits(size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return not self.waiting_bytes or self.waiting_bytes + size_bytes <= self._limit

    def take_nowait(self, size_bytes: int) -> bool:
        """Take the bytes if there is room for them."""
        if self._queue or (self.waiting_bytes and self.waiting_bytes + size_bytes > self._limit):
            return False
        self.waiting_bytes += size_bytes
        return True

    async def take(self, size_bytes: int) -> bool:
        """Take the bytes, waiting for room. Cancelled: nothing was taken (B3). Wait while holding none of this budget.

        False: nothing was taken, since it was interrupted.
        """
        if self.take_nowait(size_bytes):
            return True
        turn = _Turn(size_bytes)
        self._queue.append(turn)
        try:
            await turn.over.wait()
        except BaseException:
            if turn.is_admitted:  # in the moment of the cancellation
                self.give_back(size_bytes)
            elif not turn.over.is_set():
                self._queue.remove(turn)
                self._admit()
            raise
        return turn.is_admitted

    def interrupt(self) -> None:
        """Have those that wait return with nothing taken: there may be no room for long."""
        queue, self._queue = self._queue, deque()
        for turn in queue:
            turn.over.set()

    def give_back(self, size_bytes: int) -> None:
        """Bytes that were taken are free again."""
        self.waiting_bytes = max(0, self.waiting_bytes - size_bytes)
        if self._queue:
            self._admit()

    def clear(self) -> None:
        """All that was taken is free again."""
        self.give_back(self.waiting_bytes)

    def _admit(self) -> None:
        """Take the bytes of those that wait longest, as far as they fit."""
        queue = self._queue
        while queue and self._fits(queue[0].size_bytes):
            turn = queue.popleft()
            self.waiting_bytes += turn.size_bytes
            turn.is_admitted = True
            turn.over.set()
