"""Openings: how many partitions recover at once, and which is next.

Recovery reads delivery journals and the ends of logs into memory, so partitions take turns: at most `OPENINGS_MAX` at
a time, and together they hold no more than an estimated `OPENING_BYTES_MAX`, unless one alone does. No topic has more
than half of the turns, and topics are served in rotation, so that one of a thousand partitions, or one whose disk
hangs, does not keep the others waiting. A recovery that is *overdue* (`OPENING_TURN_S`) no longer counts, since its
disk may hang for ever; its topic still has one turn less.

A partition that a task publishes to, or reads by itself, is *needed*: its turn comes before all that are not. What
goes to every partition of a topic, such as a consumer that joins, needs none more than the others.

Invariants
----------
O1  Turns that count are at most `OPENINGS_MAX`, and hold at most `OPENING_BYTES_MAX` together, or one alone more.
O2  A topic's turns that have not ended, overdue ones included, are at most half of `OPENINGS_MAX`.
O3  Of the turns that O1 and O2 let begin, needed ones begin first, in the rotation of their topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import attrs
import trio

from callboard.actors.partition.budget import Budget
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
        self._needed, self._waiting = _Queue(), _Queue()

    async def wait_turn(self, topic_id: str) -> Turn:
        """A turn that has begun: `end` it. Cancelled: there is none."""
        turn = Turn(topic_id)
        self.add(turn)
        return await self.wait(turn)

    def add(self, turn: Turn) -> None:
        """It is to begin: `wait` for that."""
        self._waiting.add(turn)

    async def wait(self, turn: Turn) -> Turn:
        """Until it has begun: `end` it. Cancelled: there is none."""
        self._admit()
        try:
            await turn.begun.wait()
        except BaseException:
            if turn.begun.is_set():
                self.end(turn)
            else:
                self._waiting.remove(turn)
                self._needed.remove(turn)
            raise
        return turn

    def need(self, turn: Turn) -> None:
        """A task waits for this one (O3). A second call changes nothing."""
        if self._waiting.remove(turn):
            self._needed.add(turn)

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
        """Begin the turns for which there is room, topic by topic (O1, O2, O3)."""
        while self.counted < self._count_max:
            turn = self._needed.take(self._has_room) or self._waiting.take(self._has_room)
            if turn is None:
                return
            self._running[turn.topic_id] = self._running.get(turn.topic_id, 0) + 1
            self.counted += 1
            turn.is_counted = True
            turn.begun.set()

    def _has_room(self, topic_id: str) -> bool:
        return self._running.get(topic_id, 0) < max(1, self._count_max // 2)


class _Queue:
    """Turns that wait, by topic id; the topic whose turn is next comes first."""

    def __init__(self) -> None:
        self._topics: OrderedDict[str, dict[Turn, None]] = OrderedDict()

    def add(self, turn: Turn) -> None:
        """It comes after all others of its topic."""
        self._topics.setdefault(turn.topic_id, {})[turn] = None

    def remove(self, turn: Turn) -> bool:
        """Whether it was there."""
        turns = self._topics.get(turn.topic_id)
        if turns is None or turn not in turns:
            return False
        del turns[turn]
        if not turns:
            del self._topics[turn.topic_id]
        return True

    def take(self, has_room: Callable[[str], bool]) -> Turn | None:
        """The next one of a topic that has room; topics take turns."""
        topic_id = next(filter(has_room, self._topics), None)
        if topic_id is None:
            return None
        turn = next(iter(self._topics[topic_id]))
        self._topics.move_to_end(topic_id)
        self.remove(turn)
        return turn
