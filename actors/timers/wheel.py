"""The wheel: which slots are due, by tick. A pure data structure: time comes in as an argument.

Vocabulary: a *tick* is a whole number of milliseconds on some clock. A *slot* is what one owner arms; it stands for one
tick at a time. A *bucket* holds slots. A slot is *due* when the wheel has reached its tick, until it is handed over.

There are `LEVELS` levels of 64 buckets. A slot is in the level of the highest group of six bits in which its tick
differs from the wheel's (Varghese and Lauck's hierarchy, with digits of the tick itself as places). In each level all
armed slots therefore lie ahead of the wheel's own digit, and every slot of a lower level comes before all of a higher.

Invariants
----------
TW1  No slot is handed over before the wheel has reached its tick.
TW2  An armed slot is in exactly one bucket, or due; `slot.place` says where. A bucket that holds nothing does not
     exist.
TW3  Slots are handed over in order of their ticks. What is armed meanwhile at a tick that has come has no place in that
     order: a slot that was handed over already comes the next time, so handing over always ends.
TW4  What is due stays due until it is handed over, cancelled or armed anew, also when handing over is broken off.
TW5  Memory is bounded by the slots that are armed.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, Generic, TypeVar

from callboard.actors.timers.commands import TICK_MAX

BITS: Final = 6
"""Of a digit."""
DIGITS: Final = 1 << BITS
LEVELS: Final = TICK_MAX.bit_length() // BITS
FEW: Final = 16
"""Slots among which the first is looked for."""
UNARMED: Final = -1
DUE: Final = -2


class Slot:
    """What one owner arms."""

    __slots__ = ("place", "tick")

    def __init__(self) -> None:
        self.tick = 0
        """When it is due; only while armed."""
        self.place = UNARMED
        """The number of its bucket; `DUE`, or `UNARMED`."""


S = TypeVar("S", bound=Slot)
_by_tick = attrgetter("tick")


class Wheel(Generic[S]):
    """Slots by tick, as of a tick that only grows."""

    __slots__ = ("_armed", "_buckets", "_due", "_now", "_occupied")

    def __init__(self, now: int) -> None:
        self._now = max(0, min(now, TICK_MAX))
        self._buckets: dict[int, dict[S, None]] = {}
        """By level * 64 + digit; none that is empty."""
        self._occupied = [0] * LEVELS
        """By level: a bit for each bucket that holds something."""
        self._due: dict[S, None] = {}
        self._armed = 0

    def __len__(self) -> int:
        """How many slots are armed or due."""
        return self._armed

    @property
    def now(self) -> int:
        """The tick that was reached."""
        return self._now

    def arm(self, slot: S, tick: int) -> None:
        """Have `slot` come at `tick`, whatever it was armed with. At once, if that has passed; never, if beyond all."""
        if slot.place == UNARMED:
            self._armed += 1
        else:
            self._take_out(slot)
        slot.tick = tick
        if tick > TICK_MAX:
            self._armed -= 1
            slot.place = UNARMED
        else:
            self._put(slot)

    def cancel(self, slot: S) -> None:
        """The slot does not come. Nothing happens when it is not armed."""
        if slot.place != UNARMED:
            self._take_out(slot)
            slot.place = UNARMED
            self._armed -= 1

    def next_deadline(self) -> int | None:
        """The tick to advance to next: no slot is due before it. None when none is armed.

        Possibly none is due then either: a bucket of a higher level that holds many is to be spread at its first tick.
        """
        if self._due:
            return self._now
        first = self._first()
        if first is None:
            return None
        level, digit = first
        bucket = self._buckets[level * DIGITS + digit]
        if level and len(bucket) <= FEW:
            return min([slot.tick for slot in bucket])
        return self._begin(level, digit)

    def advance(self, now: int) -> Iterator[S]:
        """Go to `now`, and hand over what is due, in order. Ticks that have passed change nothing.

        Slots may be armed and cancelled between two that are handed over.
        """
        self._advance(min(now, TICK_MAX))
        for slot in sorted(self._due, key=_by_tick):
            if slot.place == DUE:  # otherwise it was cancelled meanwhile, or armed anew
                self.cancel(slot)
                yield slot

    # -- places

    def _put(self, slot: S) -> None:
        if slot.tick <= self._now:
            slot.place = DUE
            self._due[slot] = None
            return
        level = ((self._now ^ slot.tick).bit_length() - 1) // BITS
        digit = slot.tick >> level * BITS & DIGITS - 1
        place = slot.place = level * DIGITS + digit
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = {}
            self._occupied[level] |= 1 << digit
        bucket[slot] = None

    def _take_out(self, slot: S) -> None:
        place = slot.place
        if place == DUE:
            del self._due[slot]
            return
        bucket = self._buckets[place]
        del bucket[slot]
        if not bucket:
            self._forget(place)

    def _forget(self, place: int) -> dict[S, None]:
        level, digit = divmod(place, DIGITS)
        self._occupied[level] ^= 1 << digit
        return self._buckets.pop(place)

    def _first(self) -> tuple[int, int] | None:
        """Level and digit of the bucket whose slots come before all others."""
        for level, occupied in enumerate(self._occupied):
            if occupied:
                return level, (occupied & -occupied).bit_length() - 1
        return None

    def _begin(self, level: int, digit: int) -> int:
        """The first tick of a bucket."""
        above = (level + 1) * BITS
        return (self._now >> above << above) + (digit << level * BITS)

    # -- time

    def _advance(self, now: int) -> None:
        """Spread the buckets whose time has come, the earliest first, so that each slot ends up due or ahead."""
        while now > self._now and (first := self._first()) is not None:
            level, digit = first
            begin = self._begin(level, digit)
            if begin > now:
                break
            self._now = begin
            for slot in self._forget(level * DIGITS + digit):
                self._put(slot)
        self._now = max(self._now, now)
