"""What is generated behaves like what was recorded: statistics of two events at a time, and queues.

They are counted here, by plain loops over the events, and with nothing of what measures or generates.
"""

from __future__ import annotations

import heapq
import itertools
import pathlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import attrs
import pytest

from callboard.simulations.workload.generating import generate
from callboard.simulations.workload.measuring import measure_rows
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.storage import recording_rows
from callboard.traffic.reading import read_events

Events = list[tuple[int, bytes | None, int]]
"""Time, key and size, in the order of time."""

WORKERS = 8


def same_instant(events: Events) -> float:
    """The share of events that come with the one before."""
    return sum(one[0] == two[0] for one, two in itertools.pairwise(events)) / len(events)


def same_key(events: Events) -> float:
    """The share of events that have the key of the one before."""
    return sum(one[1] == two[1] for one, two in itertools.pairwise(events)) / len(events)


def cache_hits(events: Events) -> float:
    """The share of events whose key is among a tenth of the keys, those that came last."""
    room = max(len({key for _, key, _ in events}) // 10, 1)
    cache: OrderedDict[bytes | None, None] = OrderedDict()
    hits = 0
    for _, key, _ in events:
        hits += key in cache
        cache[key] = None
        cache.move_to_end(key)
        if len(cache) > room:
            cache.popitem(last=False)
    return hits / len(events)


def drift(events: Events) -> float:
    """How far the keys of a twentieth of the time are from those of all, on average."""
    start, span = events[0][0], events[-1][0] - events[0][0] + 1
    whole = Counter(key for _, key, _ in events)
    windows: dict[int, Counter[bytes | None]] = {}
    for time, key, _ in events:
        windows.setdefault((time - start) * 20 // span, Counter())[key] += 1
    apart = 0.0
    for window in windows.values():
        many = window.total()
        apart += many * sum(abs(window[key] / many - whole[key] / len(events)) for key in whole) / 2
    return apart / len(events)


def short_lives(events: Events) -> float:
    """The share of keys, of those with several events, that have all of them within a tenth of the time."""
    times: dict[bytes | None, list[int]] = {}
    for time, key, _ in events:
        times.setdefault(key, []).append(time)
    lives = [found[-1] - found[0] for found in times.values() if len(found) > 1]
    return sum(life * 10 < events[-1][0] - events[0][0] for life in lives) / len(lives)


def size_by_key(events: Events) -> float:
    """The part of the sizes' variance that their keys explain."""
    mean = sum(size for *_, size in events) / len(events)
    by_key: dict[bytes | None, list[int]] = {}
    for _, key, size in events:
        by_key.setdefault(key, []).append(size)
    between = sum(len(sizes) * (sum(sizes) / len(sizes) - mean) ** 2 for sizes in by_key.values())
    return between / sum((size - mean) ** 2 for *_, size in events)


def second_by_second(events: Events) -> float:
    """The autocorrelation of the events of a second with those of the next."""
    start = events[0][0]
    counts = Counter((time - start) // 1_000_000 for time, *_ in events)
    series = [counts[second] for second in range((events[-1][0] - start) // 1_000_000 + 1)]
    mean = len(events) / len(series)
    variance = sum((count - mean) ** 2 for count in series)
    return sum((one - mean) * (two - mean) for one, two in itertools.pairwise(series)) / variance


def wait_of_one(events: Events, load: float) -> list[float]:
    """How long events wait for the only consumer, in mean times between events."""
    unit = (events[-1][0] - events[0][0]) / len(events)
    free, waits = 0.0, []
    for time, *_ in events:
        free = max(free, time)
        waits.append((free - time) / unit)
        free += load * unit
    return sorted(waits)


def wait_in_order(events: Events, load: float) -> list[float]:
    """The same for eight workers, of which no two have events of one key at a time."""
    unit = (events[-1][0] - events[0][0]) / len(events)
    service = WORKERS * load * unit
    waiting: dict[Any, list[int]] = {}
    ready: list[int] = []
    busy: list[tuple[float, int]] = []
    waits: list[float] = []
    keys = [number if key is None else key for number, (_, key, _) in enumerate(events)]
    at = 0
    now = 0.0
    while at < len(events) or busy:
        if at < len(events) and (not busy or events[at][0] < busy[0][0]):
            now = events[at][0]
            queue = waiting.setdefault(keys[at], [])
            queue.append(at)
            if len(queue) == 1:
                heapq.heappush(ready, at)
            at += 1
        else:
            now, done = heapq.heappop(busy)
            queue = waiting[keys[done]]
            queue.pop(0)
            if queue:
                heapq.heappush(ready, queue[0])
            else:
                del waiting[keys[done]]
        while ready and len(busy) < WORKERS:
            event = heapq.heappop(ready)
            waits.append((now - events[event][0]) / unit)
            heapq.heappush(busy, (now + service, event))
    return sorted(waits)


def assert_waits_are_alike(one: Events, two: Events, wait: Callable[[Events, float], list[float]]) -> None:
    """Within one and a half times, at half the load and at four fifths; below an event's time, they are none."""
    for load, part in itertools.product((0.5, 0.8), (50, 99)):
        waits = [max(wait(events, load)[len(events) * part // 100], 1.0) for events in (one, two)]
        assert max(waits) <= 1.5 * min(waits), (load, part, waits)


@attrs.frozen
class Pair:
    """Recorded, and generated from the profile of that."""

    recorded: Events
    generated: Events

    def assert_near(self, statistic: Callable[[Events], float], within: float = 0.2) -> None:
        """Up to a part of the recorded one."""
        recorded, generated = statistic(self.recorded), statistic(self.generated)
        assert abs(generated - recorded) <= within * abs(recorded), (recorded, generated)


def pair_of(
    spark: Any, path: pathlib.Path, out: pathlib.Path, bucket_us: int, volume: Fraction = Fraction(1)
) -> Pair:
    """Measure the events of a file, and generate."""
    with path.open("rb") as file:
        rows = [(event.time_us, event.key, event.value) for event in read_events(file)]
    frame = spark.createDataFrame(rows, "timestamp bigint, key binary, value binary")
    profile = measure_rows(frame, bucket_us=bucket_us, partitions=1)
    assert len(profile.to_json()) < 1_000_000
    generate(spark, [profile], str(out), scaling=Scaling(volume=volume), seed=3)
    found = recording_rows(spark, str(out))[0].orderBy("timestamp", "partition", "offset").collect()
    generated = [(row.timestamp, row.key and bytes(row.key), len(row.value)) for row in found]
    return Pair(
        sorted(((time, key, len(value)) for time, key, value in rows), key=lambda row: row[0]), generated
    )


@pytest.fixture(scope="module")
def web(spark: Any, nasa_log: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A web server's day."""
    return pair_of(spark, nasa_log, tmp_path_factory.mktemp("web") / "day", 232_000_000)


@pytest.mark.parametrize(
    "statistic", [same_instant, same_key, cache_hits, drift, short_lives, size_by_key, second_by_second]
)
def test_a_web_servers_events_are_joined_as_recorded(web: Pair, statistic: Callable[[Events], float]) -> None:
    """Each statistic within a fifth."""
    web.assert_near(statistic)


def visit_lengths(events: Events) -> list[int]:
    """How long visits last, to a power of two: one ends when its key does not come for half an hour."""
    last: dict[bytes | None, tuple[int, int]] = {}
    found = []
    for time, key, _ in events:
        first, before = last.get(key, (time, time))
        if time - before > 1_800_000_000:
            found.append(before - first)
            first = time
        last[key] = first, time
    found += [before - first for first, before in last.values()]
    return sorted(length.bit_length() for length in found)


def test_visits_to_a_web_server_last_as_long_as_recorded(web: Pair) -> None:
    """The shares of those that last up to any power of two are at most a tenth apart."""
    recorded, generated = visit_lengths(web.recorded), visit_lengths(web.generated)
    for bits in range(64):
        shares = [sum(length <= bits for length in each) / len(each) for each in (recorded, generated)]
        assert abs(shares[0] - shares[1]) <= 0.1, (bits, shares)


def test_values_have_the_lengths_of_the_recorded_ones(web: Pair) -> None:
    """Each length as often."""
    assert Counter(size for *_, size in web.generated) == Counter(size for *_, size in web.recorded)


@pytest.mark.parametrize("wait", [wait_of_one, wait_in_order])
def test_a_web_servers_queues_are_those_recorded(
    web: Pair, wait: Callable[[Events, float], list[float]]
) -> None:
    """For one consumer, and for eight that keep the order of keys."""
    assert_waits_are_alike(web.recorded, web.generated, wait)


def test_bursts_of_inference_requests_come_again(
    spark: Any, azure_code: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """On and off, to the microsecond and without keys: seconds that are busy follow each other."""
    pair = pair_of(spark, azure_code, tmp_path / "code", 18_000_000)
    pair.assert_near(second_by_second)
    assert_waits_are_alike(pair.recorded, pair.generated, wait_of_one)
    assert pair.generated[-1][0] - pair.generated[0][0] == 3_435_948_056
