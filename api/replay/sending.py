"""Handing records over to one target partition when they are due, a batch at a time.

The next batch leaves when the one before it is stored: so the partition holds a prefix of what it is to get, whatever
happens, and no batch can be missing before a later one. What becomes due meanwhile forms the next batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from callboard.actors.partition.commands import Level
from callboard.log.format.columns import Columns
from callboard.log.seams.clock import Clock
from callboard.replay.pacing import MAX_SPEED, Pace, due_count
from callboard.replay.progress import ReplayTally
from callboard.replay.sources import Timed

NOTED_MAX: Final = 64
"""Of what is handed over together, the lateness of this many parts is noted, each as late as its first record."""


class Sender:
    """Sends what comes through a channel to one partition. `publish(index, columns, level)` returns when it has."""

    def __init__(
        self,
        index: int,
        batches: trio.MemoryReceiveChannel[Timed],
        *,
        publish: Callable[[int, Columns, Level], Awaitable[object]],
        level: Level,
        pace: Pace,
        clock: Clock,
        tally: ReplayTally,
    ) -> None:
        self._index = index
        self._batches = batches
        self._publish = publish
        self._level = level
        self._pace = pace
        self._clock = clock
        self._tally = tally
        self._hand: Timed | None = None
        self._at = 0

    async def run(self) -> None:
        """Send everything; returns when the channel has ended."""
        async with self._batches:
            while True:
                if not self._has_more():
                    try:
                        self._hand, self._at = await self._batches.receive(), 0
                    except trio.EndOfChannel:
                        return
                await self._send_due()

    def _has_more(self) -> bool:
        """Whether a record is known that comes next."""
        if self._hand is not None and self._at < self._hand.columns.count:
            return True
        try:
            self._hand, self._at = self._batches.receive_nowait(), 0
        except (trio.WouldBlock, trio.EndOfChannel):
            self._hand = None
            return False
        return True

    async def _send_due(self) -> None:
        hand, start, pace, tally = self._hand, self._at, self._pace, self._tally
        if hand is None:
            return
        due = tally.waiting[self._index] = pace.due(hand.positions[start])
        await trio.sleep_until(due)
        now = max(due, self._clock.monotonic())
        stop = start + due_count(hand.positions, start, pace, now)
        columns = hand.select(start, stop)
        # Publishing gives the batch its place in the log: these numbers are not to be read from it afterwards.
        records, size_bytes = columns.count, columns.size_bytes
        if pace.speed != MAX_SPEED:
            self._note_lateness(hand, start, stop, now)
        await self._publish(self._index, columns, self._level)
        self._at = stop
        tally.records += records
        tally.payload_bytes += size_bytes
        self._note_stored(now, self._clock.monotonic())

    def _note_lateness(self, hand: Timed, start: int, stop: int, now: float) -> None:
        pace, meter = self._pace, self._tally.lateness
        step = -(-(stop - start) // NOTED_MAX)
        for first in range(start, stop, step):
            due = pace.due(hand.positions[first])
            meter.note(due, now - due, min(step, stop - first))

    def _note_stored(self, sent: float, stored: float) -> None:
        """What was due already while the batch was on its way had to wait."""
        tally = self._tally
        if not self._has_more() or self._hand is None:
            tally.waiting.pop(self._index, None)
            return
        due = tally.waiting[self._index] = self._pace.due(self._hand.positions[self._at])
        if due < stored:
            tally.held_s[self._index] += stored - max(due, sent)
            tally.held_batches += 1
