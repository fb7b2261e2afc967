"""What joins the events of a recording, against plain sums over lists; of what is generated, nothing else is known."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from statistics import fmean, pvariance
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.simulations.workload.behaviour import QUEUES, ROWS, Behaviour

Event = tuple[int, int | None, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 700, 9_000, 400_000, 1_000_000, 3_000_000]),
        st.sampled_from([None, 1, 2, 3, 4, 99]),
        st.integers(0, 5),
    ),
    min_size=2,
    max_size=80,
)


@pytest.fixture(scope="module")
def sequence(spark_packages: None) -> Any:
    """`callboard.simulations.workload.sequence`, which needs numpy."""
    return import_module("callboard.simulations.workload.sequence")


def timed(steps: list[tuple[int, int | None, int]], start_us: int = 0) -> list[Event]:
    """Gaps as times."""
    time, events = start_us, []
    for gap, key, size in steps:
        time += gap
        events.append((time, key, size))
    return events


def measured(sequence: Any, events: list[Event], cuts: tuple[int, ...] = (), **more: Any) -> Behaviour:
    """The behaviour of events that come in pieces."""
    import numpy as np

    plan = sequence.SequencePlan(
        events=len(events),
        start_us=events[0][0],
        span_us=events[-1][0] - events[0][0],
        time_step_us=more.pop("time_step_us", 1),
        distinct_keys=len({key for _, key, _ in events} - {None}),
        **more,
    )
    found = sequence.Sequence(plan)
    bounds = sorted({0, len(events), *(min(cut, len(events)) for cut in cuts)})
    for start, stop in pairwise(bounds):
        piece = events[start:stop]
        found.add(
            np.array([time for time, _, _ in piece], dtype=np.int64),
            np.array([key or 0 for _, key, _ in piece], dtype=np.int64),
            np.array([key is not None for _, key, _ in piece], dtype=bool),
            np.array([size for _, _, size in piece], dtype=np.int64),
        )
    behaviour: Behaviour = found.finish()
    return behaviour


def correlation(numbers: list[int]) -> float | None:
    """Autocorrelation at lag 1, of a textbook."""
    if len(numbers) < 2 or not (variance := pvariance(numbers)):
        return None
    mean = fmean(numbers)
    together = sum((one - mean) * (two - mean) for one, two in pairwise(numbers))
    return together / (variance * len(numbers))


def intervals(events: list[Event], width_us: int) -> list[int]:
    """How many events each interval has."""
    start, end = events[0][0], events[-1][0]
    counts = Counter((time - start) // width_us for time, _, _ in events)
    return [counts[number] for number in range((end - start) // width_us + 1)]


def expected(events: list[Event]) -> dict[str, float | None]:
    """All rows, from lists."""
    start, span = events[0][0], events[-1][0] - events[0][0]
    keyed = [event for event in events if event[1] is not None]
    fine = intervals(events, 10_000)
    pairs = list(pairwise(events))
    found: dict[str, float | None] = {
        "dispersion": pvariance(fine) / fmean(fine),
        "autocorrelation": correlation(intervals(events, 1_000_000)),
        "same_instant": sum(one[0] == two[0] for one, two in pairs) / len(pairs),
        "size_autocorrelation": correlation([size for _, _, size in events]),
        "compression": None,
    }
    if not keyed:
        return found | dict.fromkeys(("same_key", "drift", "short_lives", "lru_hits", "size_by_key"))
    found["same_key"] = sum(one[1] == two[1] is not None for one, two in pairs) / len(pairs)
    shares = Counter(key for _, key, _ in keyed)
    windows: dict[int, list[int | None]] = defaultdict(list)
    for time, key, _ in keyed:
        windows[(time - start) * 20 // (span + 1)].append(key)
    found["drift"] = sum(
        len(keys)
        / len(keyed)
        * sum(abs(keys.count(key) / len(keys) - many / len(keyed)) for key, many in shares.items())
        / 2
        for keys in windows.values()
    )
    times = {key: [time for time, own, _ in keyed if own == key] for key in shares}
    judged = [each for each in times.values() if len(each) >= 10]
    short = [each for each in judged if (each[-1] - each[0]) * 10 < span]
    found["short_lives"] = len(short) / len(judged) if judged and span else None
    used: list[int | None] = []
    hits = 0
    for _, key, _ in keyed:
        hits += key in used
        used = [*(other for other in used if other != key), key][-max(1, len(shares) // 10) :]
    found["lru_hits"] = hits / len(keyed)
    sizes = [size for _, _, size in keyed]
    total = pvariance(sizes) * len(sizes)
    means = {key: fmean(size for _, own, size in keyed if own == key) for key in shares}
    between = sum(many * (means[key] - fmean(sizes)) ** 2 for key, many in shares.items())
    found["size_by_key"] = between / total if total else None
    return found


def check(found: Behaviour, wanted: dict[str, float | None]) -> None:
    """The rows are these, but for the last digits."""
    assert found.rows.keys() == wanted.keys() == ROWS.keys()
    for name, value in found.rows.items():
        own = None if value is None else float(value)
        assert own == (None if wanted[name] is None else pytest.approx(wanted[name], abs=1e-5)), name


@given(steps=EVENTS, cuts=st.tuples(st.integers(0, 80), st.integers(0, 80)))
def test_rows_are_those_of_a_textbook(sequence: Any, steps: Any, cuts: tuple[int, int]) -> None:
    """However the events come in pieces, each row is what plain sums give."""
    events = timed(steps, 1_000)
    check(measured(sequence, events, cuts), expected(events))


def traffic(seed: int = 1, many: int = 4_000) -> list[Event]:
    """Sessions of keys, whose sizes differ, that begin at random."""
    chance = random.Random(seed)
    events: list[Event] = []
    for key in range(60):
        begin = chance.randrange(60_000_000)
        for _ in range(many // 60):
            begin += chance.choice([0, 200, 5_000, 300_000])
            events.append((begin, key, 10 * key + chance.randrange(40)))
    return sorted(events, key=lambda event: event[0])


def test_traffic_has_its_rows_and_queues(sequence: Any) -> None:
    """Thousands of events, in pieces or whole, give one behaviour, which survives the way to the driver."""
    events = traffic()
    found = measured(sequence, events, (100, 101, 2_000))
    check(found, expected(events))
    assert found == measured(sequence, events)
    assert found.queues.keys() == QUEUES.keys()
    assert Behaviour.from_plain(found.to_plain()) == found


def test_the_names_of_keys_do_not_matter_but_for_partitions(sequence: Any) -> None:
    """Other words for the same keys give the same rows, and the same waits of workers."""
    events = traffic()
    names = random.Random(2).sample(range(1 << 40), 60)
    renamed = [(time, None if key is None else names[key], size) for time, key, size in events]
    one, two = measured(sequence, events), measured(sequence, renamed)
    assert one.rows == two.rows
    for name in ("consumer_50", "consumer_80", "workers_50", "workers_80"):
        assert one.queues[name] == two.queues[name]


def test_a_sample_of_keys_stands_for_all(sequence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more keys than the limit, a part of them is looked at, and the rows are about the same."""
    chance = random.Random(3)
    events = [
        (time, int(chance.paretovariate(0.6)) % 5_000, time % 7) for time in range(0, 60_000_000, 3_000)
    ]
    whole = measured(sequence, events)
    monkeypatch.setattr(sequence, "KEYS_MAX", 200)
    sampled = measured(sequence, events)
    assert sampled.rows != whole.rows
    for name in ("short_lives", "size_by_key", "lru_hits"):
        assert float(sampled.rows[name] or 0) == pytest.approx(float(whole.rows[name] or 0), abs=0.1)


def test_a_row_without_a_meaning_is_none(sequence: Any) -> None:
    """A clock of seconds knows no dispersion in 10 ms; one instant has no queues."""
    steps: Any = [(1_000_000, None, 3)] * 20
    found = measured(sequence, timed(steps), time_step_us=1_000_000)
    rows = found.rows
    assert (rows["dispersion"], rows["same_key"], rows["size_autocorrelation"]) == (None, None, None)
    assert measured(sequence, [(5, 1, 1), (5, 1, 2)]).queues == {}


def test_a_load_gives_the_service_time(sequence: Any) -> None:
    """Servers are busy for half of the time, whether there are one, eight, or three times as many."""
    events = [(1_000 * number, number % 50, 1) for number in range(2_001)]
    for times in (1, 3):
        found = measured(sequence, events, times=times)
        for name, servers in (("consumer_50", times), ("workers_50", 8 * times)):
            busy = Fraction(found.queues[name].service * 2_001, 2_000_000 * 1_024 * servers)
            assert float(busy) == pytest.approx(0.5, abs=1e-3)
            assert found.queues[name].waits == ((0, 2_001),)


def test_copies_side_by_side_with_as_many_servers_wait_alike(sequence: Any) -> None:
    """Three recordings of one kind at once, with three times the servers, have the depths of one and its servers."""
    one = traffic(1)
    three = sorted(
        (time, 100 * copy + (key or 0), size)
        for copy, seed in enumerate((1, 2, 3))
        for time, key, size in traffic(seed)
    )
    first, second = measured(sequence, one), measured(sequence, three, times=3)
    assert {name: facts.times for name, facts in second.queues.items()} == {
        name: 1 if name.startswith("partitions") else 3 for name in QUEUES
    }
    for name in ("workers_50", "workers_80"):
        deep, deeper = first.queues[name], second.queues[name]
        assert (deeper.depth(99) + 1) / (deep.depth(99) + 1) < 2


def test_names_of_frequent_keys_do_not_decide_who_shares_a_partition(sequence: Any) -> None:
    """The same events with other keys wait as long in partitions, when it is known which keys are frequent."""
    steps = [(1 + number * number % 7, number * number % 23 % 9 + 1, 10) for number in range(2_000)]
    counts = Counter(key for _, key, _ in steps)
    often = tuple(sorted(counts, key=lambda key: (-counts[key], key)))
    renamed = [(gap, (key * 0x9E3779B97F4A7C15) % 2**62, size) for gap, key, size in steps]
    one = measured(sequence, timed(steps), often=often)
    two = measured(sequence, timed(renamed), often=tuple((key * 0x9E3779B97F4A7C15) % 2**62 for key in often))
    assert {name: one.queues[name] for name in one.queues} == {name: two.queues[name] for name in two.queues}
    without = measured(sequence, timed(renamed))
    assert without.queues["partitions_80"] != one.queues["partitions_80"]
    assert without.queues["workers_80"] == one.queues["workers_80"]
