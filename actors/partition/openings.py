"""Openings: how many partitions recover at once, and who is next.

Recovery reads delivery journals and the ends of logs into memory, so partitions take turns: at most `OPENINGS_MAX` at
a time, and together they hold no more than an estimated `OPENING_BYTES_MAX`, unless one alone does. No topic has more
than half of the turns, and topics are served in rotation, so that one of a thousand partitions, or one whose disk
hangs, does not keep the others waiting. A recovery that is *overdue* (`OPENING_TURN_S`) no longer counts, since its
disk may hang for ever; its topic still has one turn less.

Invariants
----------
O1  Turns that count are at most `OPENINGS_MAX`, and hold at most `OPENING_BYTES_MAX` together, or one alone more.
O2  A topic's turns that have not ended, overdue ones included, are at most half of `OPENINGS_MAX`.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import attrs
import trio

from callboard.actors.partition.port import Budget
from callboard.log.limits import OPENING_BYTES_MAX, OPENINGS_MAX


@attrs.define(eq=False)
class Turn:
    """One partition's recovery: waiting, counted, overdue or ended."""

    topic_id: str
    begun: trio.Event = attrs.field(factory=trio.Event)
    size_bytes: int = 0
    """What it holds."""
    is_counted: bool = False
    is_ended: bool = False


class Openings:
    """The turns of all partitions of a runtime."""

    def __init__(self, count_max: int = OPENINGS_MAX, bytes_max: int = OPENING_BYTES_MAX) -> None:
        self._count_max = count_max
        self.memory = Budget(bytes_max)
        """What the turns that count hold of it."""
        self.counted = 0
        """Turns that count."""
        self._running: dict[str, int] = {}
        """By topic id: turns that have begun and not ended."""
        self._waiting: OrderedDict[str, deque[Turn]] = OrderedDict()
        """By topic id; the topic whose turn is next comes first."""

    async def wait_turn(self, topic_id: str) -> Turn:
        """A turn that has begun: `end` it. Cancelled: there is none."""
        turn = Turn(topic_id)
        self._waiting.setdefault(topic_id, deque()).append(turn)
        self._admit()
        try:
            await turn.begun.wait()
        except BaseException:
            if turn.begun.is_set():
                self.end(turn)
            else:
                waiting = self._waiting[topic_id]
                waiting.remove(turn)
                if not waiting:
                    del self._waiting[topic_id]
            raise
        return turn

    async def hold(self, turn: Turn, size_bytes: int) -> None:
        """Wait until that much memory may be held. Call it once for a turn."""
        await trio.lowlevel.checkpoint()
        await self.memory.take(size_bytes)
        if turn.is_counted:
            turn.size_bytes = size_bytes
        else:
            self.memory.give_back(size_bytes)

    def overdue(self, turn: Turn) -> None:
        """A turn takes long: it no longer counts, and what it holds is not counted either."""
        if turn.is_counted:
            turn.is_counted = False
            self.counted -= 1
            self.memory.give_back(turn.size_bytes)
            self._admit()

    def end(self, turn: Turn) -> None:
        """A turn is over. Ending it twice is ending it once."""
        if turn.is_ended:
            return
        turn.is_ended = True
        self._running[turn.topic_id] -= 1
        if not self._running[turn.topic_id]:
            del self._running[turn.topic_id]
        self.overdue(turn)
        self._admit()

    def _admit(self) -> None:
        """Begin the turns for which there is room, topic by topic (O1, O2)."""
        most = max(1, self._count_max // 2)
        while self.counted < self._count_max:
            topic_id = next((each for each in self._waiting if self._running.get(each, 0) < most), None)
            if topic_id is None:
                return
            turn = self._waiting[topic_id].popleft()
            if self._waiting[topic_id]:
                self._waiting.move_to_end(topic_id)
            else:
                del self._waiting[topic_id]
            self._running[topic_id] = self._running.get(topic_id, 0) + 1
            self.counted += 1
            turn.is_counted = True
            turn.begun.set()
