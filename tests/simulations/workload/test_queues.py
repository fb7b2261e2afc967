"""Simulated queues against others that follow one event after the other."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

GAPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 3, 10, 40]), st.sampled_from([None, 1, 2, 3])),
    min_size=1,
    max_size=60,
)
CUTS = st.lists(st.integers(0, 60), max_size=4)


@pytest.fixture(scope="module")
def queues(spark_packages: None) -> Any:
    """`callboard.simulations.workload.queues`, which needs numpy."""
    return import_module("callboard.simulations.workload.queues")


def timed(gaps: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    """Gaps as times, with their keys."""
    time, events = 0, []
    for gap, key in gaps:
        time += gap
        events.append((time, key))
    return events


def fed(queue: Any, events: list[tuple[int, int | None]], cuts: list[int]) -> Any:
    """The facts of a queue that gets events in pieces."""
    import numpy as np

    bounds = sorted({0, len(events), *(min(cut, len(events)) for cut in cuts)})
    for start, stop in pairwise(bounds):
        piece = events[start:stop]
        queue.add(
            np.array([time for time, _ in piece], dtype=np.int64),
            np.array([key or 0 for _, key in piece], dtype=np.int64),
            np.array([key is not None for _, key in piece], dtype=bool),
        )
    return queue.facts()


def served(
    events: list[tuple[int, int | None]], servers: int, service: int, *, keeps_order: bool
) -> tuple[list[int], list[int]]:
    """Waits and depths, found tick by tick: at each, who is done leaves, who is ready longest starts."""
    arrived: dict[int, int] = {}
    ready_at: dict[int, int] = {}
    started: dict[int, int] = {}
    depths = []
    for tick in range(events[-1][0] + service * (len(events) + 1) + 1):
        running = [each for each, start in started.items() if start + service > tick]

        def is_ready(each: int, tick: int = tick) -> bool:
            key = events[each][1]
            return (
                not keeps_order
                or key is None
                or all(
                    other in started and started[other] + service <= tick
                    for other in arrived
                    if other < each and events[other][1] == key
                )
            )

        def start_what_can(tick: int = tick, running: list[int] = running) -> None:
            for each in sorted(arrived):
                if each not in started and each not in ready_at and is_ready(each):
                    ready_at[each] = tick
            waiting = sorted((each for each in ready_at if each not in started), key=lambda each: order(each))
            for each in waiting[: servers - len(running)]:
                started[each] = tick
                running.append(each)

        def order(each: int) -> tuple[int, int]:
            """At one tick, those whose predecessors end are ready first, in the order of ends."""
            key = events[each][1]
            before = [
                o for o in arrived if o < each and keeps_order and key is not None and events[o][1] == key
            ]
            ended = max((started[o] + service for o in before), default=-1)
            if ended == ready_at[each]:  # by who was started first, not by who arrived first
                return ready_at[each], max(map(list(started).index, before)) - len(events)
            return ready_at[each], each

        start_what_can()
        for each, (time, _) in enumerate(events):
            if time == tick:
                depths.append(sum(other not in started for other in arrived))
                arrived[each] = tick
                start_what_can()
    return [started[each] - events[each][0] for each in range(len(events))], depths


def histogram(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """What, and how many."""
    return tuple(sorted((what, numbers.count(what)) for what in set(numbers)))


@given(gaps=GAPS, cuts=CUTS, servers=st.integers(1, 4), service=st.sampled_from([1, 7, 20]))
def test_a_consumer_serves_in_the_order_of_arrival(
    queues: Any, gaps: Any, cuts: list[int], servers: int, service: int
) -> None:
    """Waits and depths are those of a queue that is followed tick by tick, however the events come in pieces."""
    events = timed(gaps)
    waits, depths = served(events, servers, service, keeps_order=False)
    found = fed(queues.QueueConsumer(service, servers), events, cuts)
    small = [each for each in waits if each < 128]
    assert [pair for pair in found.waits if pair[0] < 128] == list(histogram(small))
    assert sum(many for _, many in found.waits) == len(events)
    assert found.depths == histogram(depths)


@given(gaps=GAPS, cuts=CUTS, servers=st.integers(1, 4), service=st.sampled_from([1, 7, 20]))
def test_workers_keep_the_order_of_each_key(
    queues: Any, gaps: Any, cuts: list[int], servers: int, service: int
) -> None:
    """An event waits for those before it with its key, and for a worker; keyless ones for a worker alone."""
    events = timed(gaps)
    waits, depths = served(events, servers, service, keeps_order=True)
    found = fed(queues.Workers(service, servers), events, cuts)
    small = [each for each in waits if each < 128]
    assert [pair for pair in found.waits if pair[0] < 128] == list(histogram(small))
    assert sum(many for _, many in found.waits) == len(events)
    assert found.depths == histogram(depths)


@given(gaps=GAPS, cuts=CUTS, partitions=st.integers(1, 3))
def test_each_partition_is_a_queue_of_its_own(
    queues: Any, gaps: Any, cuts: list[int], partitions: int
) -> None:
    """The events of a partition wait as in a consumer's queue of their own; the middle of three ways counts."""
    import numpy as np

    events = [(time, key) for time, key in timed(gaps) if key is not None]
    if not events:
        return
    words = np.array([key for _, key in events], dtype=np.int64)
    ways = []
    for salt in range(3):
        waits: list[int] = []
        depths: list[int] = []
        places = queues.partition_of(words, salt, partitions).tolist()
        for partition in range(partitions):
            own = [event for event, place in zip(events, places, strict=True) if place == partition]
            if own:
                more, deep = served(own, 1, 7, keeps_order=False)
                waits += more
                depths += deep
        longest = sorted(waits)[-(-len(waits) * 99 // 100) - 1]
        ways.append((longest, histogram([each for each in waits if each < 128]), histogram(depths)))
    found = fed(queues.Partitions(7, partitions, 3), events, cuts)
    middle = sorted(ways)[1][0] // 4  # longer waits are counted by class
    small = tuple(pair for pair in found.waits if pair[0] < 128)
    assert (small, found.depths) in [way[1:] for way in ways if abs(way[0] // 4 - middle) <= way[0] // 100]


@given(number=st.integers(0, 2**60))
def test_a_class_is_close_to_its_numbers(queues: Any, number: int) -> None:
    """Small numbers are classes of their own; others lose at most one part in 32."""
    import numpy as np

    (found,) = queues.number_classes(np.array([number], dtype=np.int64)).tolist()
    assert found <= number <= found + found // 32
    if number < 128:
        assert found == number


def test_a_queue_that_falls_behind_for_ever_is_given_up(queues: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded: a queue above the limit is overloaded, and holds no more."""
    monkeypatch.setattr(queues, "BACKLOG_MAX", 50)
    events = [(0, 1)] * 60
    for queue in (queues.Workers(10, 8), queues.QueueConsumer(10)):
        assert fed(queue, events, [20, 40]).is_overloaded
    assert not fed(queues.Workers(10, 8), events[:40], []).is_overloaded
