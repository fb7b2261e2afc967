"""Openings: how many partitions recover at once, and which is next; and the actor that gives them turns and memory.

Recovery reads delivery journals and the ends of logs into memory, so partitions take turns: at most `OPENINGS_MAX` at
a time, and together they hold no more than an estimated `OPENING_BYTES_MAX`, unless one alone does. No topic has more
than half of the turns, and topics are served in rotation, so that one of a thousand partitions, or one whose disk
hangs, does not keep the others waiting. A recovery that is *overdue* (`OPENING_TURN_S`) no longer counts, since its
disk may hang for ever; its topic still has one turn less.

A partition that a task publishes to, or reads by itself, is *needed*: its turn comes before all that are not. What
goes to every partition of a topic, such as a consumer that joins, needs none more than the others.

Each partition that opens is a peer of the actor (`opening_turn`). It says how far it is (`OpeningStands`), and hears
that its turn has begun, and that it may hold what it needs. An incarnation of the actor hears all of that anew. It also
divides the memory for record windows among partitions (`window_shares`): when it restarts, only after all have said
anew what they have.

Invariants
----------
O1  Turns that count are at most `OPENINGS_MAX`, and hold at most `OPENING_BYTES_MAX` together, or one alone more. Those
    that had begun when the actor restarted count too, and no other begins while they are more.
O2  A topic's turns that have not ended, overdue ones included, are at most half of `OPENINGS_MAX`.
O3  Of the turns that O1 and O2 let begin, needed ones begin first, in the rotation of their topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import attrs

from callboard.actors.kernel import Actor, notify
from callboard.actors.partition.commands import (
    GiverCommand,
    MemoryHeld,
    OpeningStage,
    OpeningStands,
    TurnBegins,
    WindowStands,
)
from callboard.actors.partition.window_shares import WindowShares
from callboard.log.limits import OPENING_BYTES_MAX, OPENINGS_MAX


@attrs.define(eq=False)
class Turn:
    """One partition's recovery: waiting, counted, overdue or ended. It calls `begins` and `holds` when it may."""

    topic_id: str
    begins: Callable[[], object]
    holds: Callable[[], object]
    size_bytes: int = 0
    """What it holds."""
    wanted_bytes: int = 0
    """What it is to hold."""
    has_begun: bool = False
    is_counted: bool = False


class Openings:
    """The turns of all partitions of a runtime. Pure."""

    def __init__(self, count_max: int = OPENINGS_MAX, bytes_max: int = OPENING_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.held_bytes = 0
        """What the turns that count hold."""
        self.counted = 0
        """Turns that count."""
        self._running: dict[str, int] = {}
        """By topic id: turns that have begun and not ended."""
        self._needed, self._waiting = _Queue(), _Queue()
        self._wanting: dict[Turn, None] = {}
        """Turns that wait for memory, in their order."""

    def add(self, turn: Turn, *, is_needed: bool = False) -> None:
        """It is to begin: when it is needed, before those that are not (O3)."""
        (self._needed if is_needed else self._waiting).add(turn)
        self._admit()

    def resume(self, turn: Turn, size_bytes: int) -> None:
        """It had begun, and held this much, when an earlier incarnation ended."""
        self._begin(turn)
        turn.size_bytes = size_bytes
        self.held_bytes += size_bytes

    def need(self, turn: Turn) -> None:
        """A task waits for this one (O3). A second call changes nothing."""
        if self._waiting.remove(turn):
            self._needed.add(turn)

    def hold(self, turn: Turn, size_bytes: int) -> None:
        """It is to hold that much memory. A second call changes nothing."""
        if turn.size_bytes or turn in self._wanting:
            return
        turn.wanted_bytes = size_bytes
        self._wanting[turn] = None
        self._grant()

    def overdue(self, turn: Turn) -> None:
        """A turn takes long: it no longer counts, and what it holds is not counted either."""
        if turn.is_counted:
            turn.is_counted = False
            self.counted -= 1
            self.held_bytes -= turn.size_bytes
            self._grant()
            self._admit()

    def end(self, turn: Turn) -> None:
        """A turn is over, or given up before it began."""
        if not turn.has_begun:
            self._waiting.remove(turn)
            self._needed.remove(turn)
            return
        self._wanting.pop(turn, None)
        self._running[turn.topic_id] -= 1
        if not self._running[turn.topic_id]:
            del self._running[turn.topic_id]
        self.overdue(turn)
        self._admit()

    def _begin(self, turn: Turn) -> None:
        self._running[turn.topic_id] = self._running.get(turn.topic_id, 0) + 1
        self.counted += 1
        turn.has_begun = turn.is_counted = True

    def _admit(self) -> None:
        """Begin the turns for which there is room, topic by topic (O1, O2, O3)."""
        while self.counted < self._count_max:
            turn = self._needed.take(self._has_room) or self._waiting.take(self._has_room)
            if turn is None:
                return
            self._begin(turn)
            turn.begins()

    def _has_room(self, topic_id: str) -> bool:
        return self._running.get(topic_id, 0) < max(1, self._count_max // 2)

    def _grant(self) -> None:
        """Have those that wait longest hold what they want, as far as it fits; an overdue one waits for none."""
        for turn in list(self._wanting):
            if turn.is_counted:
                if self.held_bytes and self.held_bytes + turn.wanted_bytes > self._bytes_max:
                    return
                turn.size_bytes = turn.wanted_bytes
                self.held_bytes += turn.size_bytes
            del self._wanting[turn]
            turn.holds()


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


class TurnGiver(Actor[GiverCommand]):
    """The actor that gives partitions their turns to open, and memory for record windows."""

    defers_interrupts = True

    def __init__(self, count_max: int, bytes_max: int, window_bytes: int) -> None:
        self.openings = Openings(count_max, bytes_max)
        self.windows = WindowShares(window_bytes)
        self._turns: dict[int, Turn] = {}
        """By the number of the partition's peer."""

    async def receive(self, message: GiverCommand) -> None:
        """Act on what a partition says of itself."""
        match message:
            case OpeningStands():
                self._opening_stands(message)
            case WindowStands():
                self.windows.stands(message)
        if not self.context.has_notices:
            self._share_windows()

    def _share_windows(self) -> None:
        while (notice := self.windows.next_notice()) is not None:
            partition, message = notice
            if not notify(self.context.ref, partition, message):
                self.windows.gone(partition)

    def _opening_stands(self, message: OpeningStands) -> None:
        openings, turn, stage = self.openings, self._turns.get(message.partition), message.stage
        if stage is OpeningStage.ENDED:
            if turn is not None:
                del self._turns[message.partition]
                openings.end(turn)
            return
        has_begun = stage in (OpeningStage.BEGUN, OpeningStage.HOLDS)
        if turn is None:
            say = partial(notify, self.context.ref, message.partition)
            turn = Turn(message.topic_id, partial(say, TurnBegins()), partial(say, MemoryHeld()))
            self._turns[message.partition] = turn
            if has_begun:
                openings.resume(turn, message.size_bytes if stage is OpeningStage.HOLDS else 0)
            else:
                openings.add(turn, is_needed=stage is OpeningStage.NEEDED)
        if stage is OpeningStage.NEEDED:
            openings.need(turn)
        if message.is_overdue:
            openings.overdue(turn)
        if message.size_bytes and stage is OpeningStage.BEGUN:
            openings.hold(turn, message.size_bytes)
