"""How a group was served with the records of a topic, in a few figures, from logs and delivery journals. Without Spark.

Each partition's journal is read once, from its beginning, and its log beside it: a batch of the log is in memory from
the first fact about it until all of its records are settled. So memory is bounded by what was unsettled at a time.

Invariants
----------
F1  Each record of the log from where the group began is counted as published once, and as settled at most once.
F2  A histogram or a timeline has a bounded number of bins, however long or much it is of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import aclosing
from functools import partial
from itertools import accumulate
from typing import Any, Final

import attrs

from callboard.log.errors import GroupNotFound
from callboard.log.format.columns import Columns
from callboard.offline import OfflineDirectory
from callboard.recordings.reader import LogBatches
from callboard.simulations.workload.analysis import Latency, bin_of
from callboard.simulations.workload.analysis_plan import AnalysedPartition, plan_analysis
from callboard.simulations.workload.delivery_history import Fact, FactKind, Opening
from callboard.simulations.workload.journal_walk import JournalHistory

BINS_MAX: Final = 4_096
"""Of a timeline."""
ABSENT: Final = 2
"""In the place of a flag: there is no such record."""
CAUSES: Final = ("nacked", "released", "expired", "voided")
"""What ends an attempt without settling its message; `voided` by a crash."""


@attrs.frozen(kw_only=True)
class Figures:
    """How a group was served."""

    messages: int
    """In the log, from where the group began, or its history does."""
    settled: int
    """Of them."""
    counts: dict[str, int]
    """What happened to offsets since the group began, also to those that the log holds no more."""
    dead_letters: int
    delivery: Latency | None
    """From the append of a message to its first delivery; None when none is known."""
    settling: Latency | None
    """From the append of a message to its being settled: acked, or given up."""
    lag_p50: int
    lag_p99: int
    lag_max: int
    """Messages that were published and not settled, over time."""
    starts: tuple[int, ...] = ()
    """The first offset of each partition that is counted."""
    notes: tuple[str, ...] = ()
    """What the journals or the log tell no more."""

    @property
    def redelivered(self) -> int:
        """Deliveries after the first of a message, but for those that were given back."""
        return self.counts.get("redelivered", 0)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "messages": self.messages,
            "settled": self.settled,
            "unsettled": self.messages - self.settled,
            "redelivered": self.redelivered,
            "dead_letters": self.dead_letters,
            "counts": dict(self.counts),
            "delivery": None if self.delivery is None else self.delivery.document(),
            "settling": None if self.settling is None else self.settling.document(),
            "lag": {"p50": self.lag_p50, "p99": self.lag_p99, "max": self.lag_max},
            "notes": list(self.notes),
        }


class _Times:
    """A histogram of times."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._count = self._sum_us = self._most_us = 0

    def add(self, us: int, count: int) -> None:
        us = max(us, 0)
        self._bins[bin_of(us)] += count
        self._count += count
        self._sum_us += us * count
        self._most_us = max(self._most_us, us)

    def latency(self) -> Latency | None:
        if not self._count:
            return None
        bins = tuple(sorted(self._bins.items()))
        return Latency(
            count=self._count, mean_us=self._sum_us // self._count, most_us=self._most_us, bins=bins
        )


class _Timeline:
    """How much a number rose or fell, by time; bins become longer when there are too many."""

    def __init__(self) -> None:
        self._shift = 10
        self._bins: Counter[int] = Counter()

    def add(self, time_us: int, count: int) -> None:
        self._bins[time_us >> self._shift] += count
        while len(self._bins) > BINS_MAX:
            self._shift += 1
            coarse: Counter[int] = Counter()
            for number, many in self._bins.items():
                coarse[number >> 1] += many
            self._bins = coarse

    def quantiles(self) -> tuple[int, int, int]:
        """What was not exceeded during half of the time, and during 99 % of it; and the most."""
        numbers = sorted(self._bins)
        if not numbers:
            return 0, 0, 0
        levels = list(accumulate(self._bins[number] for number in numbers))
        spans: Counter[int] = Counter()
        for number, following, level in zip(numbers, numbers[1:], levels, strict=False):
            spans[level] += following - number
        span, passed, found = max(spans.total(), 1), 0, []
        spans[levels[-1]] += 0
        ordered = sorted(spans)
        for part in (50, 99):
            passed = 0
            for level in ordered:
                passed += spans[level]
                if passed * 100 >= span * part:
                    break
            found.append(level)
        return found[0], found[1], max(levels)


@attrs.define
class _Batch:
    """A batch of the log, and which of its records were delivered and settled."""

    base: int
    stop: int
    times: list[int]
    """By offset from `base` on."""
    delivered: bytearray
    settled: bytearray
    left: int

    @classmethod
    def of(cls, columns: Columns, start: int) -> _Batch:
        """What lies in the batch from an offset on."""
        stop = columns.base_offset + columns.span + 1
        settled, times, left = (
            bytearray([ABSENT]) * (stop - columns.base_offset),
            [0] * (stop - columns.base_offset),
            0,
        )
        for index, offset in enumerate(columns.offset_list()):
            if offset >= start:
                at = offset - columns.base_offset
                settled[at], times[at], left = 0, columns.append_time(index), left + 1
        return cls(columns.base_offset, stop, times, bytearray(settled), settled, left)


class _Partition:
    """One partition, while its journal and its log are read."""

    def __init__(
        self,
        place: AnalysedPartition,
        batches: LogBatches,
        lag: _Timeline,
        delivery: _Times,
        settling: _Times,
    ) -> None:
        self.messages = self.settled = self.gone = self.untimed = 0
        self._place = place
        self._batches = batches
        self._lag, self._delivery, self._settling = lag, delivery, settling
        self._bases: list[int] = []
        self._held: list[_Batch] = []
        self._end = place.log_start
        """Up to where the log was read."""

    async def take(self, fact: Fact, start: int) -> None:
        """A fact about the group, which began at `start` here."""
        await self.read_to(fact.stop, start)
        if fact.kind is not FactKind.LEASED:
            self.gone += max(0, min(fact.stop, self._place.log_start) - fact.start)
        first = max(0, bisect_right(self._bases, fact.start) - 1)
        for batch in self._held[first:]:
            if batch.base >= fact.stop:
                break
            for at in range(max(fact.start - batch.base, 0), min(fact.stop, batch.stop) - batch.base):
                self._note(batch, at, fact)
        if any(not batch.left for batch in self._held[first : first + 64]):
            self._held = [batch for batch in self._held if batch.left]
            self._bases = [batch.base for batch in self._held]

    def _note(self, batch: _Batch, at: int, fact: Fact) -> None:
        waited_us = fact.time_us - batch.times[at]
        if fact.kind is FactKind.LEASED:
            if not batch.delivered[at]:
                batch.delivered[at] = 1
                if fact.attempt <= 1:
                    self._delivery.add(waited_us, 1)
        elif not batch.settled[at]:
            batch.settled[at] = 1
            batch.left -= 1
            self.settled += 1
            self._lag.add(max(fact.time_us, batch.times[at]), -1)
            if fact.kind is FactKind.UNTIMED:
                self.untimed += 1
            else:
                self._settling.add(waited_us, 1)

    async def read_to(self, stop: int, start: int) -> None:
        """Read the log below `stop`; the group began at `start`."""
        while self._end < min(stop, self._place.log_end):
            columns = await anext(self._batches, None)
            if columns is None:
                self._end = self._place.log_end
                return
            self._end = columns.base_offset + columns.span + 1
            batch = _Batch.of(columns, start)
            if batch.left:
                self.messages += batch.left
                for time_us, flag in zip(batch.times, batch.settled, strict=True):
                    if not flag:
                        self._lag.add(time_us, 1)
                self._held.append(batch)
                self._bases.append(batch.base)


async def figures_of(directory: str, topic: str, group: str) -> Figures:
    """How the group was served with the records of the topic. `directory` is only read, and may be open elsewhere.

    Raises `StorageError`, `TopicNotFound`, `GroupNotFound`, `LogCorrupt`, `JournalInvalid`, `FormatTooNew`.
    """
    plan = await plan_analysis(directory, topic, group)
    lag, delivery, settling = _Timeline(), _Times(), _Times()
    counts: Counter[str] = Counter()
    messages = settled = dead = 0
    notes, starts = list(plan.notes), []
    async with OfflineDirectory(directory) as offline:
        record = await offline.topic(topic)
        for place in plan.places:
            lost: list[tuple[int, int]] = []
            reader = await offline.reader(record, place.partition)
            note = partial(_note_lost, lost)
            batches = LogBatches(reader, place.log_start, place.log_end, note, now_us=offline.clock.wall_us())
            async with aclosing(batches):
                partition = _Partition(place, batches, lag, delivery, settling)
                openings = await _walk(place, partition)
            messages, settled = messages + partition.messages, settled + partition.settled
            starts.append(max(openings[0].start if openings else 0, place.log_start))
            for opening in openings:
                counts.update(opening.counts)
                dead += opening.dead_lettered
            notes += _notes(place, partition, openings, lost)
    if not counts and all(note.endswith("was not opened") for note in notes):
        notes = [f"group {group!r} has never read topic {topic!r}"]
    p50, p99, most = lag.quantiles()
    return Figures(
        messages=messages,
        settled=settled,
        counts=dict(counts),
        dead_letters=dead,
        delivery=delivery.latency(),
        settling=settling.latency(),
        lag_p50=p50,
        lag_p99=p99,
        lag_max=most,
        starts=tuple(starts),
        notes=tuple(notes),
    )


async def _walk(place: AnalysedPartition, partition: _Partition) -> list[Opening]:
    """Read journal and log; the group's openings in the partition."""
    walk = JournalHistory(place.journal)
    if place.groups is None:
        raise GroupNotFound("figures are of one group.", group="")

    def theirs() -> list[Opening]:
        return [opening for opening in walk.history.openings if opening.group_id in (place.groups or ())]

    for fact in walk.facts():
        if fact.group_id in place.groups:
            await partition.take(fact, theirs()[0].start)
    place.note_implied(walk)
    found = theirs()
    await partition.read_to(place.log_end, found[0].start if found else place.log_start)
    return found


def _note_lost(lost: list[tuple[int, int]], first: int, last: int) -> None:
    lost.append((first, last))


def _notes(
    place: AnalysedPartition, partition: _Partition, openings: list[Opening], lost: list[tuple[int, int]]
) -> list[str]:
    label, notes = place.journal.label, []
    if not openings:
        return [f"{label}: the group was not opened"]
    if not openings[0].is_whole:
        start = openings[0].start
        notes.append(f"{label}: the journal has the group from offset {start} on; the rest is left out")
    if partition.gone:
        notes.append(
            f"{label}: {partition.gone:,} messages that the group had settled are not in the log any more"
        )
    if partition.untimed:
        notes.append(
            f"{label}: of {partition.untimed:,} messages the journal does not say any more when they were settled"
        )
    if len(openings) > 1:
        notes.append(f"{label}: the group was opened anew, or set back, {len(openings) - 1} times")
    if lost:
        notes.append(f"{label}: records cannot be read, {lost[0][0]} to {lost[0][1]} first")
    return notes
