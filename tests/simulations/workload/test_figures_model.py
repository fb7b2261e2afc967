"""Figures of any history are those of a model that looks at each record by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.log.format.columns import Columns
from callboard.simulations.workload import figures
from callboard.simulations.workload.analysis import bin_of
from callboard.simulations.workload.delivery_history import Fact, FactKind
from callboard.simulations.workload.figures import _Partition, _Timeline, _Times

BIN_US = 1_024
TIMES = st.integers(0, 60_000)


@attrs.frozen
class History:
    """Records by offset, with the times of their appends, in batches; and what happened to them."""

    batches: list[list[int]]
    appended: dict[int, int]
    group_start: int
    facts: list[Fact]
    log_start: int
    log_end: int


@st.composite
def histories(draw: Any) -> History:
    """A log with gaps, and facts of one group about what is not settled yet; times rise in each of both."""
    log_start = at = draw(st.integers(0, 5))
    batches: list[list[int]] = []
    for size in draw(st.lists(st.integers(1, 6), max_size=6)):
        at += draw(st.sampled_from((0, 0, 0, 3)))
        offsets = [at]
        for _ in range(size - 1):
            offsets.append(offsets[-1] + draw(st.sampled_from((1, 1, 1, 2))))
        batches.append(offsets)
        at = offsets[-1] + 1
    offsets = [offset for batch in batches for offset in batch]
    appended = dict(zip(offsets, sorted(draw(TIMES) for _ in offsets), strict=True))
    start = draw(st.integers(0, 4))
    facts: list[Fact] = []
    unsettled, now = set(range(start, at)), 0
    for kind in draw(st.lists(st.sampled_from(FactKind), max_size=20)):
        if not unsettled:
            break
        now += draw(st.integers(0, 9_000))
        first = draw(st.sampled_from(sorted(unsettled)))
        stop = first + 1
        while stop in unsettled and draw(st.booleans()):
            stop += 1
        facts.append(Fact(1, 0, kind, first, stop, now, draw(st.integers(1, 2))))
        if kind is not FactKind.LEASED:
            unsettled -= set(range(first, stop))
    return History(batches, appended, start, facts, log_start, at)


def columns_of(batch: list[int], appended: dict[int, int]) -> Columns:
    """The batch as it is read."""
    columns = Columns.build([b""] * len(batch))
    columns.base_offset, columns.span = batch[0], batch[-1] - batch[0]
    columns.append_times = [appended[offset] for offset in batch]
    if columns.span + 1 > len(batch):
        columns.offset_deltas = [offset - batch[0] for offset in batch]
    return columns


async def walk(history: History) -> tuple[_Partition, _Timeline, _Times, _Times]:
    """What is counted."""

    async def batches() -> AsyncIterator[Columns]:
        for batch in history.batches:
            yield columns_of(batch, history.appended)

    place: Any = attrs.make_class("Place", ["log_start", "log_end"])(history.log_start, history.log_end)
    lag, delivery, settling = _Timeline(), _Times(), _Times()
    found: Any = batches()
    partition = _Partition(place, found, lag, delivery, settling)
    for fact in history.facts:
        await partition.take(fact, history.group_start)
    await partition.read_to(history.log_end, history.group_start)
    await found.aclose()
    return partition, lag, delivery, settling


def told(times: list[int]) -> Any:
    """The same in the form of a histogram."""
    if not times:
        return None
    return len(times), sum(times) // len(times), max(times), sorted(map(bin_of, times))


def shown(times: _Times) -> Any:
    """A histogram, with each of its times."""
    found = times.latency()
    if found is None:
        return None
    return found.count, found.mean_us, found.most_us, [each for each, many in found.bins for _ in range(many)]


def lag_of(changes: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Half of the time, and 99 % of it, it was no more than; and the most: from one bin to the next."""
    numbers = sorted({time // BIN_US for time, _ in changes})
    if not numbers:
        return 0, 0, 0
    levels = [sum(by for time, by in changes if time // BIN_US <= number) for number in numbers]
    seen = [
        level
        for level, one, other in zip(levels, numbers, numbers[1:], strict=False)
        for _ in range(one, other)
    ]
    if not seen:
        return levels[0], levels[0], levels[0]
    seen.sort()
    half, most = ((len(seen) * part + 99) // 100 - 1 for part in (50, 99))
    return seen[half], seen[most], max(levels)


@settings(max_examples=400, deadline=None)
@given(histories())
def test_figures_are_those_of_each_record(history: History) -> None:
    """Each record is published once and settled at most once, and waits as long as it did."""
    partition, lag, delivery, settling = trio.run(walk, history)
    appended = {offset: time for offset, time in history.appended.items() if offset >= history.group_start}
    delivered: list[int] = []
    settled: list[int] = []
    changes = [(time, 1) for time in appended.values()]
    untimed = ended = 0
    for offset, time in appended.items():
        facts = [fact for fact in history.facts if fact.start <= offset < fact.stop]
        leases = [fact for fact in facts if fact.kind is FactKind.LEASED]
        if leases and leases[0].attempt == 1:
            delivered.append(max(0, leases[0].time_us - time))
        for fact in facts:
            if fact.kind is FactKind.LEASED:
                continue
            ended += 1
            changes.append((max(fact.time_us, time), -1))
            if fact.kind is FactKind.UNTIMED:
                untimed += 1
            else:
                settled.append(max(0, fact.time_us - time))
    assert (partition.messages, partition.settled, partition.untimed) == (len(appended), ended, untimed)
    assert shown(delivery) == told(delivered)
    assert shown(settling) == told(settled)
    assert lag.quantiles() == lag_of(changes)


@given(st.lists(st.tuples(st.integers(0, 2**50), st.sampled_from((1, 1, -1)))))
def test_a_timeline_of_any_length_has_few_bins_and_loses_nothing(changes: list[tuple[int, int]]) -> None:
    """However often it is made coarser (F2)."""
    timeline = _Timeline()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "BINS_MAX", 4)
        for time, by in changes:
            timeline.add(time, by)
    assert len(timeline._bins) <= 4
    assert timeline._bins.total() == sum(by for _, by in changes)
    for number, many in timeline._bins.items():
        assert many == sum(by for time, by in changes if time >> timeline._shift == number)
