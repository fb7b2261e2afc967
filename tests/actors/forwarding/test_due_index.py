"""The index of delayed records by tick: what is due, in which order, and what cancelling says."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.forwarding import due_index
from callboard.actors.forwarding.due_index import DueIndex, Taken
from callboard.actors.timers.commands import TICK_MAX
from callboard.log.errors import InternalError

YEAR = 365 * 86_400_000


def filled(*ticks: int) -> DueIndex:
    """An index with a record for each tick; ids count from 0."""
    index = DueIndex()
    for number, tick in enumerate(ticks):
        index.add([(number, tick)])
    return index


def ids(taken: list[Taken]) -> list[int]:
    """Which records those are."""
    return [record.delayed_id for record in taken]


@pytest.mark.parametrize("delay", [1, 63, 64, 4096, 2**32 - 1, 2**32, 2**32 + 1, YEAR, 1000 * YEAR])
@pytest.mark.parametrize("begin", [0, 1, 63, 1_700_000_000_123])
def test_a_record_comes_at_its_tick(begin: int, delay: int) -> None:
    """Not one before it, however often it is looked for meanwhile; and looking is never put off beyond it."""
    index = filled(begin, begin + delay)
    assert [Taken(begin, 0)] == index.take(begin, 10)
    for before in (delay // 2, delay - 1):
        assert [] == index.take(begin + before, 10)
        look = index.next_look()
        assert look is not None
        assert look <= begin + delay
    assert [Taken(begin + delay, 1)] == index.take(begin + delay, 10)


def test_equal_ticks_come_in_order_of_id() -> None:
    """Also when some were added after the earlier ones had moved to another level."""
    index = filled(5000, 5, 5000)
    assert [1] == ids(index.take(4999, 10))
    index.add([(3, 5000)])
    assert [0, 2] == ids(index.take(5000, 2))
    assert [3] == ids(index.take(5000, 2))


def test_what_lies_beyond_all_ticks_is_kept() -> None:
    """It comes at the last tick."""
    index = filled(2**62)
    assert [] == index.take(TICK_MAX - 1, 1)
    assert [0] == ids(index.take(TICK_MAX, 1))


def test_cancelling_while_a_tick_is_taken_keeps_the_rest() -> None:
    """The others of that tick come, and one that is moving cannot be cancelled any more."""
    index = filled(7, 7, 7, 7)
    assert [0] == ids(index.take(7, 1))
    assert [False, True, False, False] == index.cancel([0, 2, 2, 99])
    assert [1, 3] == ids(index.take(7, 10))


def test_a_clock_that_went_back_makes_nothing_due() -> None:
    """What was added meanwhile comes when the clock has come to it."""
    index = filled(10 * YEAR, 20 * YEAR)
    assert [0] == ids(index.take(10 * YEAR, 9))
    index.add([(2, 1000)])
    assert [] == index.take(999, 9)
    assert 1000 == index.next_look()
    assert [2] == ids(index.take(1000, 9))
    assert [1] == ids(index.take(20 * YEAR, 9))


def test_a_large_bucket_is_spread_a_part_at_a_time() -> None:
    """Before what is due is taken, a hundred thousand records are spread in steps; what comes meanwhile is in order."""
    count = 100_000
    index = filled(0)
    assert [0] == ids(index.take(0, 1))
    index.add([(number, 2**30 + number % 7) for number in range(1, count)])
    steps = 0
    while index.spread(2**30 + 7):
        steps += 1
        look = index.next_look()
        assert look is not None
        assert look <= 2**30
        if steps == 3:
            index.add([(count, 2**30), (count + 1, 5)])
    assert steps >= count // 8192
    assert [count + 1, 7, 14] == ids(index.take(2**30, 3))
    taken: list[Taken] = []
    while more := index.take(2**30, count):
        taken += more
    assert count == ids(taken)[-1]


class Looks(array):  # type: ignore[type-arg]
    """A column that counts how often a place in it is asked for."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        type(self).looks += 1 if isinstance(at, int) else len(range(*at.indices(len(self))))
        return super().__getitem__(at)


def most_looks(steps: Iterator[object]) -> int:
    """How many records one of the steps looks at, at most."""
    most = Looks.looks = 0
    for _ in steps:
        most, Looks.looks = max(most, Looks.looks), 0
    return max(most, Looks.looks)


def taking(index: DueIndex, now: int, taken: list[Taken]) -> Iterator[object]:
    """Take what is due, 256 at a time, until there is nothing more to look for."""
    while (look := index.next_look()) is not None and look <= now:
        yield
        taken += index.take(now, 256)


@pytest.mark.parametrize("overdue", [0, 10])
@pytest.mark.parametrize("ticks", [1, 2**20])
def test_each_call_looks_at_a_part_of_what_is_due(overdue: int, ticks: int) -> None:
    """A hundred thousand records that are due at once are taken, in order, in calls that look at a few thousand each:
    also beside records that are overdue, and when the first half of them was cancelled.
    """
    count, begin = 100_000, 2**30
    index = filled(*[begin + 1] * overdue, begin)
    assert overdue in ids(index.take(begin, 1))
    index.add([(overdue + 1 + number, begin + 2 + number * 7919 % ticks) for number in range(count)])
    index.cancel(range(overdue + 1, overdue + 1 + count // 2))
    index._ticks = Looks("q", index._ticks)
    taken: list[Taken] = []
    assert most_looks(taking(index, begin + 2 + ticks, taken)) <= 3 * due_index.STEP_RECORDS
    assert taken == sorted(taken)
    assert len(taken) == overdue + count // 2


def test_columns_are_compacted_in_steps() -> None:
    """When most of a hundred thousand records were cancelled, the rest is moved together a few thousand at a time."""
    count = 100_000
    index = filled()
    index.add([(number, 5000 + number) for number in range(count)])
    index.cancel(number for number in range(count) if number % 8)
    index._ticks = Looks("q", index._ticks)
    assert most_looks(index.compact_in_steps()) <= due_index.STEP_RECORDS
    assert len(index._ids) == len(index) == count // 8
    assert not list(index.compact_in_steps())
    assert most_looks(taking(index, 5000 + count, taken := [])) <= 3 * due_index.STEP_RECORDS
    assert ids(taken) == list(range(0, count, 8))


def test_ids_only_grow() -> None:
    """An id that came before is a bug of the caller, found at once; so is settling what is not moving."""
    index = filled(1, 2)
    with pytest.raises(InternalError, match="does not follow"):
        index.add([(1, 5)])
    with pytest.raises(InternalError, match="is not moving"):
        index.moved([0])


class ScheduleModel(RuleBasedStateMachine):
    """Beside the index, a plain dictionary that is searched anew every time."""

    def __init__(self) -> None:
        super().__init__()
        self.index = DueIndex()
        self.pending: dict[int, int] = {}
        self.moving: dict[int, int] = {}
        self.next_id = 0

    @rule(ticks=st.lists(st.integers(0, 300) | st.integers(0, 2**40), max_size=20), gap=st.integers(1, 5))
    def add(self, ticks: list[int], gap: int) -> None:
        for tick in ticks:
            self.next_id += gap
            self.pending[self.next_id] = tick
            self.index.add([(self.next_id, tick)])
            self.compact()

    @rule(now=st.integers(0, 300) | st.integers(0, 2**40), limit=st.integers(1, 12))
    def take(self, now: int, limit: int) -> None:
        due = sorted((tick, number) for number, tick in self.pending.items() if tick <= now)[:limit]
        taken, most = list[Taken](), len(self.pending) + len(self.moving)
        for _ in range(2 + most):
            taken += self.index.take(now, limit - len(taken))
            if len(taken) == len(due):
                break
            look = self.index.next_look()
            assert look is not None
            assert look <= now
        assert [Taken(tick, number) for tick, number in due] == taken
        for tick, number in due:
            self.moving[number] = tick
            del self.pending[number]

    @rule(now=st.integers(0, 300) | st.integers(0, 2**40))
    def spread(self, now: int) -> None:
        self.index.spread(now)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.integers(0, self.next_id + 1), max_size=30))
        expected = [self.pending.pop(number, None) is not None for number in chosen]
        assert expected == self.index.cancel(chosen)
        self.compact()

    @precondition(lambda self: self.moving)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.moving)), unique=True))
        self.index.moved(chosen)
        for number in chosen:
            del self.moving[number]
        self.compact()

    def compact(self) -> None:
        for _ in self.index.compact_in_steps():
            pass

    @invariant()
    def agrees(self) -> None:
        """Counts and contents are the model's, looking is never put off too long, and memory is bounded (DI5)."""
        index = self.index
        assert (len(self.pending), len(self.moving)) == (len(index), index.moving)
        assert self.pending == {record.delayed_id: record.tick for record in index.pending()}
        look = index.next_look()
        assert not self.pending or (look is not None and look <= min(self.pending.values()))
        kept = len(self.pending) + len(self.moving)
        assert len(index._ids) <= kept + max(due_index.SPARE, kept)


class CompactingModel(ScheduleModel):
    """The same with columns that are compacted, and buckets that are made anew, all the time."""

    def __init__(self) -> None:
        super().__init__()
        due_index.SPARE, due_index.STEP_RECORDS = 2, 3  # type: ignore[misc]

    def teardown(self) -> None:
        due_index.SPARE, due_index.STEP_RECORDS = 1024, 8192  # type: ignore[misc]


ScheduleModel.TestCase.settings = CompactingModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestSchedule = ScheduleModel.TestCase
TestCompactingSchedule = CompactingModel.TestCase


@given(st.sets(st.integers(0, 60), min_size=1), st.lists(st.integers(-3, 64)))
def test_an_id_is_found_wherever_ids_are_missing(known: set[int], asked: list[int]) -> None:
    """What is pending is found, in the order asked for, and nothing else is."""
    index = DueIndex()
    index.add([(each, 5) for each in sorted(known)])
    gone = set(sorted(known)[::3])
    index.cancel(gone)
    assert index.found(asked) == [each for each in asked if each in known - gone]
    assert len(index) == len(known - gone)
