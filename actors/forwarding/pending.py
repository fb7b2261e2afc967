"""What is pending in one waiting partition: an index by tick for each of the two clocks. Pure.

A delay ends at a deadline of the monotonic clock, which no jump of the wall clock moves. That clock begins anew with
each process, so a delay that began in an earlier run is what is left of it by the wall clock when it is read: never
more than it was when it was published, whatever the clock has done since. An instant follows the wall clock.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from heapq import merge
from typing import Final

from callboard.actors.forwarding.due_index import DueIndex
from callboard.actors.records.delayed_records import INSTANT
from callboard.actors.timers.commands import NEVER, TICKS, tick_at
from callboard.log.format.stamps import Stamps, is_ahead

TICK_US: Final = 1_000_000 // TICKS
SHIFT: Final = 1 << 52
"""Added to the ticks of delays, which have none below 0: one that ended while the directory was closed may be due
before the monotonic clock began, and keeps its place among the others. It leaves room for 400,000 years."""


class Pending:
    """The pending records of one waiting partition, by tick: delays and instants apart.

    `run` is the number of this opening of the directory. A delay of an earlier one that a clock has
    stamped which was ahead counts from when its partition noticed that (`stamps`): it is asked for those `ahead`.
    """

    def __init__(self, run: int, stamps: Stamps | None = None) -> None:
        self._run = run
        self._stamps = Stamps() if stamps is None else stamps
        self._delays = DueIndex()
        self._instants = DueIndex()

    def __len__(self) -> int:
        return len(self._delays) + len(self._instants)

    def found(self, delayed_ids: Collection[int]) -> list[int]:
        """Those of these ids that are pending, in their order."""
        delays, instants = self._delays.found(delayed_ids), self._instants.found(delayed_ids)
        if not instants or not delays:
            return delays or instants
        found = {*delays, *instants}
        return [each for each in delayed_ids if each in found]

    def ahead(self, moments: Iterable[tuple[int, ...]], now_us: int) -> tuple[int, ...]:
        """The stamps of earlier runs that are later than now: the partition notices them before they are added."""
        run = self._run
        found = {
            due_us - delay_us
            for kind, due_us, _, begun, delay_us in moments
            if begun != run and kind != INSTANT and is_ahead(due_us - delay_us, now_us)
        }
        return tuple(sorted(found, reverse=True))

    def add(
        self, ids: Sequence[int], moments: Iterable[tuple[int, ...]], *, now_s: float, now_us: int
    ) -> None:
        """Records wait. Ids rise. `moments` as `moments_of` tells."""
        mono_us, run, shift = round(now_s * 1e6), self._run, SHIFT
        delays: list[tuple[int, int]] = []
        instants: list[tuple[int, int]] = []
        for delayed_id, (kind, due_us, deadline_us, begun, delay_us) in zip(ids, moments, strict=True):
            if kind == INSTANT:
                instants.append((delayed_id, -(-due_us // TICK_US)))
            else:
                if begun != run and due_us - now_us > delay_us:
                    due_us = self._stamps.believed(due_us - delay_us, now_us) + delay_us
                at_us = deadline_us if begun == run else mono_us + min(due_us - now_us, delay_us)
                delays.append((delayed_id, shift - (-at_us // TICK_US)))
        self._delays.add(delays)
        self._instants.add(instants)

    def spread(self, now_s: float, wall_s: float) -> bool:
        """Do a part of what `take` would have to do first; whether there is more of it."""
        return self._delays.spread(SHIFT + tick_at(now_s)) or self._instants.spread(tick_at(wall_s))

    def take(self, now_s: float, wall_s: float, limit: int) -> list[int]:
        """At most `limit` records that are due, in order of when they were, on one clock after the other. There may be
        fewer than are due, or none, while there is more to `spread`.
        """
        taken = self._delays.take(SHIFT + tick_at(now_s), limit)
        taken += self._instants.take(tick_at(wall_s), limit - len(taken))
        return [each.delayed_id for each in taken]

    def moved(self, delayed_ids: Iterable[int]) -> None:
        """These are in their topic."""
        for delayed_id in delayed_ids:
            index = self._delays if self._delays.is_moving(delayed_id) else self._instants
            index.moved((delayed_id,))

    def cancel(self, delayed_ids: Iterable[int]) -> None:
        """These do not wait any more."""
        ids = list(delayed_ids)
        self._delays.cancel(ids)
        self._instants.cancel(ids)

    def compact_in_steps(self) -> Generator[None, None, None]:
        """Once records were added, moved or cancelled, keep the memory bounded. Ask for nothing else until its end."""
        yield from self._delays.compact_in_steps()
        yield from self._instants.compact_in_steps()

    def next_deadline(self) -> float:
        """When to look, by the monotonic clock."""
        look = self._delays.next_look()
        return NEVER if look is None else max(look - SHIFT, 0) / TICKS

    def next_instant(self) -> float:
        """When to look, by the wall clock."""
        look = self._instants.next_look()
        return NEVER if look is None else look / TICKS

    def first_due_us(self, now_s: float, now_us: int) -> int | None:
        """When to look at the wall clock for the first of all; None when none waits."""
        delay, instant = self._delays.next_look(), self._instants.next_look()
        found = [] if delay is None else [now_us + round(((delay - SHIFT) / TICKS - now_s) * 1e6)]
        found += [] if instant is None else [instant * 1000]
        return min(found, default=None)

    def listed(self, after: int, limit: int, now_s: float, now_us: int) -> list[tuple[int, int]]:
        """The first `limit` ids above `after`, with when each is due by the wall clock, in microseconds."""
        shift_us = now_us - round(now_s * 1e6)
        delays = (
            (each.delayed_id, (each.tick - SHIFT) * TICK_US + shift_us)
            for each in self._delays.pending(after)
        )
        instants = ((each.delayed_id, each.tick * 1000) for each in self._instants.pending(after))
        return [row for row, _ in zip(merge(delays, instants), range(limit), strict=False)]
