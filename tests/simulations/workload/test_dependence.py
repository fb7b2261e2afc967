"""What joins events, without Spark: counted, read, and drawn again so that it holds."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.dependence import fine_class, fine_low, size_classes, windows_of
from callboard.simulations.workload.profile_format import WorkloadProfile, profile_from_json
from callboard.simulations.workload.scaling import Scaling

START_US = 1_000_000_000
SECOND_US = 1_000_000


@pytest.fixture(scope="module")
def np(spark_packages: None) -> Any:
    """numpy."""
    return import_module("numpy")


@pytest.fixture(scope="module")
def cascade(spark_packages: None) -> Any:
    """`callboard.simulations.workload.cascade`."""
    return import_module("callboard.simulations.workload.cascade")


@pytest.fixture(scope="module")
def tables(spark_packages: None) -> Any:
    """`callboard.simulations.workload.tables`."""
    return import_module("callboard.simulations.workload.tables")


@pytest.fixture(scope="module")
def turns(spark_packages: None) -> Any:
    """`callboard.simulations.workload.turns`."""
    return import_module("callboard.simulations.workload.turns")


@pytest.fixture
def document(small_profile: dict[str, Any], small_dependence: dict[str, Any]) -> dict[str, Any]:
    """The profile of eight events, with what joins them."""
    return {**small_profile, "dependence": small_dependence}


@pytest.fixture
def profile(document: dict[str, Any]) -> WorkloadProfile:
    """The same, read."""
    return profile_from_json(json.dumps(document))


# -- numbers, windows and classes


@given(st.integers(0, 2**60))
def test_a_number_lies_in_its_class(number: int) -> None:
    """From the class's least number to before that of the next."""
    assert fine_low(fine_class(number)) <= number < fine_low(fine_class(number) + 1)


def test_many_numbers_have_the_classes_of_each(np: Any, tables: Any) -> None:
    """Around each power of two, where floating point would err."""
    numbers = sorted({(1 << bits) + near for bits in range(1, 62) for near in (-1, 0, 1)} | {0})
    assert tables.fine_classes(np.array(numbers)).tolist() == [fine_class(number) for number in numbers]
    assert tables.lengths_of_bits(np.array(numbers)).tolist() == [number.bit_length() for number in numbers]


@given(st.lists(st.integers(0, 1_000), max_size=400))
def test_windows_hold_all_buckets(counts: list[int]) -> None:
    """Each at least one, in order, and about a fiftieth of the events at most but for a bucket's own."""
    ends = windows_of(counts)
    assert list(ends) == sorted(set(ends))
    assert ends[-1:] == ((len(counts),) if counts else ())
    sums = [sum(counts[start:end]) for start, end in zip((0, *ends), ends, strict=False)]
    assert all(each <= sum(counts) // 50 + max(counts) + 400 for each in sums)


@given(st.dictionaries(st.integers(0, 4_000_000), st.integers(1, 1_000), max_size=60))
def test_classes_of_sizes_begin_at_bins(bins: dict[int, int]) -> None:
    """In order, at most 24 of them, and none before the smallest size."""
    borders = size_classes(sorted(bins.items()))
    assert list(borders) == sorted(set(borders))
    assert len(borders) <= 24
    assert set(borders) <= bins.keys() - ({min(bins)} if bins else set())


def test_a_few_large_values_have_a_class(np: Any) -> None:
    """Though they are one of a thousand."""
    assert size_classes([(1, 500), (2, 500), (60_000, 1)])[-1] == 60_000


# -- drawing from counts


def test_columns_are_drawn_as_often_as_counted(np: Any, tables: Any, drawing: Any) -> None:
    """Of the row, or of the nearest that was counted."""
    table = tables.Table.of([(2, 0, 1), (2, 5, 3), (9, 7, 1)])
    words = drawing.words(1, np.arange(40_000))
    found = Counter(table.draw(np.full(40_000, 2), words).tolist())
    assert found.keys() == {0, 5}
    assert 9_500 < found[0] < 10_500
    assert set(table.draw(np.full(10, 4), words[:10]).tolist()) <= {0, 5}
    assert table.draw(np.array([6, 9, 100]), words[:3]).tolist() == [7, 7, 7]
    assert table.means(np.array([2, 3, 9]), np.array([8, 4, 6])).tolist() == [5, 5, 6]


def test_the_nearest_row_has_the_class_before_the_state(np: Any, tables: Any) -> None:
    """Rows are class x states + state."""
    table = tables.Table.of([(3 * 4 + 0, 1, 1), (4 * 4 + 3, 2, 1)], states=4)
    words = np.zeros(2, dtype=np.uint64)
    assert table.draw(np.array([3 * 4 + 3, 4 * 4 + 0]), words).tolist() == [1, 2]


def test_counts_larger_than_half_a_word_keep_their_proportion(np: Any, tables: Any, drawing: Any) -> None:
    """They are shrunk, and none of them to nothing."""
    table = tables.Table.of([(0, 0, 2**50), (0, 1, 2**50), (0, 2, 1)])
    found = Counter(table.draw(np.zeros(10_000, np.int64), drawing.words(3, np.arange(10_000))).tolist())
    assert 4_700 < found[0] < 5_300
    assert 2 in table.columns


# -- the cascade


def divided(np: Any, cascade: Any, tables: Any, steps: list[int], length: int, many: list[int]) -> Any:
    """Where events lie when intervals with this many are divided as one was that had events at `steps`."""
    array = np.array(sorted(steps), dtype=np.int64)
    counts = cascade.count_splits(np.zeros_like(array), array, length, 0, has_slopes=True)
    found = cascade.divide(
        cascade.Nodes.whole(np.array(many), length, np.arange(len(many), dtype=np.uint64)),
        [tables.Table.of(each, cascade.KINDS * cascade.SLOPES) for each in counts],
        has_slopes=True,
    )
    bits = (length - 1).bit_length()
    return [
        (int(place) >> bits, int(low), int(count))
        for place, low, count in zip(found.places, found.low, found.many, strict=True)
    ]


@given(
    st.integers(1, 70).flatmap(
        lambda length: st.tuples(st.just(length), st.lists(st.integers(0, length - 1), min_size=1))
    ),
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
)
def test_no_event_is_lost_and_each_lies_in_its_interval(
    np: Any, cascade: Any, tables: Any, recorded: tuple[int, list[int]], many: list[int]
) -> None:
    """Whatever was counted, and however long the interval is."""
    length, steps = recorded
    found = divided(np, cascade, tables, steps, length, many)
    sums = Counter()
    for interval, step, count in found:
        assert 0 <= step < length
        assert count > 0
        sums[interval] += count
    assert [sums[interval] for interval in range(len(many))] == many
    assert found == sorted(found)


def test_a_burst_at_one_step_is_one_again(np: Any, cascade: Any, tables: Any) -> None:
    """All of its events share a step, that of the recording."""
    assert divided(np, cascade, tables, [37] * 200, 100, [200]) == [(0, 37, 200)]


def test_even_traffic_stays_even(np: Any, cascade: Any, tables: Any) -> None:
    """Four events in each step of 96: again about as many."""
    steps = [step for step in range(96) for _ in range(4)]
    found = divided(np, cascade, tables, steps, 96, [384])
    assert len(found) == 96
    assert max(count for _, _, count in found) <= 6


def test_parts_are_those_of_the_cascade(np: Any, cascade: Any) -> None:
    """Of ten steps, the left half has five; of five, the left has three."""
    steps = np.arange(10)
    assert cascade.parts_of(np.zeros(10, np.int64), steps, 10, 2).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]


# -- turns of keys


@given(st.lists(st.integers(0, 9), min_size=1, max_size=300), st.integers(0, 99))
def test_each_key_has_its_events(np: Any, turns: Any, keys: list[int], seed: int) -> None:
    """However runs and returns are drawn."""
    many = np.array(sorted(Counter(keys).values()))
    taken = turns.Turns.of(**turns.count_turns(np.array(keys)))
    who, lengths = taken.take(many, np.array([seed, seed + 1], dtype=np.uint64))
    found = Counter()
    for key, length in zip(who.tolist(), lengths.tolist(), strict=True):
        found[key] += length
    assert [found[key] for key in range(2 * len(many))] == 2 * many.tolist()
    assert (np.diff(who // len(many)) >= 0).all()


def same_as_before(keys: list[int]) -> float:
    """The share of events that follow one of their key."""
    return sum(one == two for one, two in itertools.pairwise(keys)) / (len(keys) - 1)


@pytest.mark.parametrize("run", [1, 3, 20])
def test_keys_come_in_runs_as_recorded(np: Any, turns: Any, run: int) -> None:
    """Twenty keys take turns, with this many events in a row."""
    keys = [at // run % 20 for at in range(6_000)]
    taken = turns.Turns.of(**turns.count_turns(np.array(keys)))
    who, lengths = taken.take(np.array([300] * 20), np.array([5], dtype=np.uint64))
    again = np.repeat(who, lengths).tolist()
    assert abs(same_as_before(again) - same_as_before(keys)) < 0.05


def visits(keys: list[int]) -> list[int]:
    """From how many events the first one of each key is away from its last, ascending."""
    first = {key: at for at, key in reversed(list(enumerate(keys)))}
    last = {key: at for at, key in enumerate(keys)}
    return sorted(last[key] - first[key] for key in first)


def test_short_visits_stay_short_beside_long_ones(np: Any, turns: Any) -> None:
    """A hundred keys have six events, every other one is theirs; others have as many over a quarter of the window."""
    keys: list[int] = []
    for group in range(25):
        slow = [4 * (group // 7 * 7) + number for number in range(28)]
        for at in range(24):
            keys += [1_000 + 4 * group + at // 6, slow[(at + 24 * group) % 28]]
    taken = turns.Turns.of(**turns.count_turns(np.array(keys)))
    _, many = np.unique(keys, return_counts=True)
    found = []
    for seed in range(5):
        who, lengths = taken.take(many, np.array([seed * 2**40 + 5], dtype=np.uint64))
        found += visits(np.repeat(who, lengths).tolist())
    recorded = visits(keys)
    short = [sum(visit <= 30 for visit in each) / len(each) for each in (recorded, found)]
    assert short[0] > 0.4
    assert short[1] > 0.6 * short[0]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_layer_has_its_order_in_any_company(np: Any, turns: Any, layers: int) -> None:
    """The runs of a layer are those that it has alone."""
    keys = np.array([at // 3 % 7 for at in range(500)] + [0, 1] * 50)
    taken = turns.Turns.of(**turns.count_turns(keys))
    many = np.bincount(keys)
    seeds = np.arange(layers, dtype=np.uint64) * np.uint64(2**60 + 7)
    who, lengths = taken.take(many, seeds)
    for layer, seed in enumerate(seeds.tolist()):
        alone, of_alone = taken.take(many, np.array([seed], dtype=np.uint64))
        mine = who // len(many) == layer
        assert (who[mine] % len(many)).tolist() == alone.tolist()
        assert lengths[mine].tolist() == of_alone.tolist()


def test_a_run_ends_where_another_key_comes(np: Any, turns: Any) -> None:
    """Two runs of one key are neighbours only when no other key has events left."""
    keys = np.array([0] * 10 + [1] + [0] * 10 + [2] * 2 + [0] * 8 + [1])
    taken = turns.Turns.of(**turns.count_turns(keys))
    who, _ = taken.take(np.array([200, 20, 30]), np.arange(5, dtype=np.uint64))
    for layer in range(5):
        mine = who[who // 3 == layer].tolist()
        last_other = max(at for at, key in enumerate(mine) if key % 3 and mine[at - 1] != key)
        assert all(one != two for one, two in itertools.pairwise(mine[: last_other + 1]))


def test_sizes_are_dealt_by_class_along_a_key(np: Any) -> None:
    """Two keys whose values differ in size keep theirs; a rare key keeps the class of its first event."""
    order = pytest.importorskip("callboard.simulations.workload.size_order")
    table = order.Table.of
    sizes = order.SizeChains(
        hot=table([(1, 0, 5), (2, 2, 5)]),
        again=np.array([0, 0, 0]),
        first=table([(0, 1, 3)]),
        following=table([(1, 1, 9)]),
        stays=0,
        same=0,
        stream=3,
    )
    keys = np.array([1, 2, 5, 1, 2, 5, 1, 2, 6])
    ranks = sizes.ranks(keys, keys, np.arange(9, dtype=np.uint64) * np.uint64(2**55 + 1))
    dealt = order.in_order(np.array([10, 11, 12, 20, 21, 22, 30, 31, 32]), ranks.reshape(1, -1))[0]
    assert [sorted(dealt[keys == key].tolist()) for key in (1, 2)] == [[10, 11, 12], [30, 31, 32]]
    assert sorted(dealt[keys > 2].tolist()) == [20, 21, 22]


def test_sizes_that_stay_do_not_rise_with_time(np: Any) -> None:
    """Though all of a key's events have one place: half of 1,000 values are 32 bytes long, half 33."""
    order = pytest.importorskip("callboard.simulations.workload.size_order")
    drawing = pytest.importorskip("callboard.simulations.workload.drawing")
    table = order.Table.of
    sizes = order.SizeChains(
        hot=table([(0, 0, 5)]),
        again=np.array([0]),
        first=table([]),
        following=table([]),
        stays=65_536,
        same=65_536,
        stream=3,
    )
    keys: Any = np.zeros(1_000, dtype=np.int64)
    ranks = sizes.ranks(keys, keys, drawing.words(1, np.arange(1_000)))
    dealt = order.in_order(np.repeat([32, 33], 500), ranks.reshape(1, -1))[0]
    assert sorted(dealt.tolist()) == [32] * 500 + [33] * 500
    assert 400 < np.count_nonzero(np.diff(dealt)) < 600


def test_a_size_that_stays_near_is_seldom_the_same(np: Any) -> None:
    """Of 1,000 sizes in a class, a key that never moves has those of about a quarter."""
    order = pytest.importorskip("callboard.simulations.workload.size_order")
    drawing = pytest.importorskip("callboard.simulations.workload.drawing")
    table = order.Table.of
    sizes = order.SizeChains(
        hot=table([(number, 0, 5) for number in range(40)]),
        again=np.array([65_536] * 40),
        first=table([]),
        following=table([]),
        stays=65_536,
        same=0,
        stream=3,
    )
    keys = np.arange(1_000) % 40
    ranks = sizes.ranks(keys, keys, drawing.words(1, np.arange(1_000)))
    dealt = order.in_order(np.arange(1_000), ranks.reshape(1, -1))[0]
    spans = [int(dealt[keys == key].max() - dealt[keys == key].min()) for key in range(40)]
    assert max(spans) < 400
    assert min(spans) > 50


def test_a_keys_size_that_stays_is_one_size(np: Any) -> None:
    """Two keys have sizes of one class: each has few of its sizes, where each event stays with the one before."""
    order = pytest.importorskip("callboard.simulations.workload.size_order")
    drawing = pytest.importorskip("callboard.simulations.workload.drawing")
    table = order.Table.of
    sizes = order.SizeChains(
        hot=table([(0, 0, 5), (1, 0, 5)]),
        again=np.array([65_536, 65_536]),
        first=table([]),
        following=table([]),
        stays=65_536,
        same=65_536,
        stream=3,
    )
    keys = np.arange(200) % 2
    ranks = sizes.ranks(keys, keys, drawing.words(1, np.arange(200)))
    dealt = order.in_order(np.repeat([32, 33], 100), ranks.reshape(1, -1))[0]
    assert [len(set(dealt[keys == key].tolist())) for key in (0, 1)] == [1, 1]


# -- profiles


def test_what_joins_events_is_read_and_written(profile: WorkloadProfile) -> None:
    """Byte for byte; a profile without it has no word of it."""
    assert profile.dependence is not None
    assert profile_from_json(profile.to_json()) == profile
    assert "dependence" not in json.loads(profile_from_json_without(profile).to_json())


def profile_from_json_without(profile: WorkloadProfile) -> WorkloadProfile:
    """As an earlier version wrote it."""
    document = json.loads(profile.to_json())
    del document["dependence"]
    return profile_from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"clock_us": 7}, "clock_us is none of"),
        ({"parts": [6, 1, 0, 0, 0, 1, 0, 1]}, "parts that do not sum up to bucket_counts"),
        ({"step_splits": []}, "another number of split tables"),
        ({"second_splits": [[[0, 0, 0]]]}, "counts nothing"),
        ({"starts": [[2, 0, 1], [1, 0, 1]]}, "starts is not in ascending order"),
        ({"starts": [[2, 0]]}, "starts holds a row that has not 3 numbers"),
        ({"hot": []}, "hot is not a list of 1 to"),
        ({"hot": [{"windows": [], "sizes": [], "again": 0}]}, "hot keys with other events than keyless"),
        ({"others": []}, "does not have all keys"),
        ({"others": [[0, 0, 5, 1, 1]]}, "keys with other events than their class has"),
        ({"others": [[0, 7, 1, 1, 1]]}, "a window, or a class of sizes, that there is not"),
        ({"window_sizes": [[0, 0, 8]]}, "other window_sizes than events"),
        ({"size_stays": -1}, "size_stays holds something"),
        ({"size_stays": 5, "size_same": 6}, "more sizes that are the same than sizes that stay"),
        ({"size_same": 1.5}, "size_same holds something"),
        ({"paces": [[4, 4, 1]]}, "paces without pace_returns"),
        ({"paces": [[4, 4]]}, "paces holds a row that has not 3 numbers"),
    ],
)
def test_what_contradicts_the_profile_is_refused(
    document: dict[str, Any], change: dict[str, Any], problem: str
) -> None:
    """With the field's name."""
    document["dependence"] |= change
    with pytest.raises(InvalidArgument, match=problem):
        profile_from_json(json.dumps(document))


@pytest.mark.parametrize("field", ["clock_us", "hot", "window_sizes"])
def test_a_field_that_lacks_is_named(document: dict[str, Any], field: str) -> None:
    """Nothing is guessed."""
    del document["dependence"][field]
    with pytest.raises(InvalidArgument, match=f"dependence lacks {field}"):
        profile_from_json(json.dumps(document))


# -- workloads


def rows_of(pieces: Any, profile: WorkloadProfile, **scaling: Any) -> list[tuple[int, int, int, int]]:
    """All events, in order: time since the start, number, key, size."""
    part = pieces.ProfilePart(0, profile, Scaling(**scaling), START_US, "7")
    rows = []
    for piece in part.pieces():
        found = part.make(piece)
        times = (found.time_us - START_US).tolist()
        rows += zip(times, found.number.tolist(), found.key.tolist(), found.size.tolist(), strict=True)
    return sorted(rows)


def test_all_counts_are_kept_with_what_joins_events(pieces: Any, profile: WorkloadProfile) -> None:
    """Seconds, keys, sizes and the span, and the clock has its step of 100 ms."""
    rows = rows_of(pieces, profile)
    assert [rows[0][0], rows[-1][0]] == [0, 61_500_000]
    assert sorted(Counter(time // SECOND_US for time, *_ in rows).values()) == [1, 2, 2, 3]
    assert Counter(key for _, _, key, _ in rows) == {0: 4, 1: 2, 2: 1, -1: 1}
    assert Counter(size // 16 for *_, size in rows) == {0: 7, 4: 1}
    assert sum(size for *_, size in rows) == 100
    assert all(time % 100_000 == 0 for time, *_ in rows)


@pytest.mark.parametrize("volume", [Fraction(1, 2), Fraction(7, 8), Fraction(5, 2), Fraction(30)])
def test_volumes_have_their_events_within_the_span(
    pieces: Any, profile: WorkloadProfile, volume: Fraction
) -> None:
    """Whole or not; no time lies behind the profile's last."""
    rows = rows_of(pieces, profile, volume=volume)
    assert len(rows) == 8 * volume
    assert all(0 <= time <= 61_500_000 for time, *_ in rows)
    assert len({number for _, number, _, _ in rows}) == len(rows)


def test_a_fraction_keeps_whole_keys(pieces: Any, profile: WorkloadProfile) -> None:
    """Of a hundred and a half layers, the half has events of keys that have all theirs, but for one."""
    rows = rows_of(pieces, profile, volume=Fraction(1, 2))
    counts = Counter(key for _, _, key, _ in rows if key >= 0)
    cut = [key for key, count in counts.items() if count != {0: 4, 1: 2, 2: 1}[key]]
    assert len(cut) <= 1


def test_other_skews_and_bursts_keep_the_number_of_events(pieces: Any, profile: WorkloadProfile) -> None:
    """Keys are as frequent as asked for."""
    assert len(rows_of(pieces, profile, burst=Fraction(1, 2))) == 8
    assert len(rows_of(pieces, profile, burst=Fraction(3))) == 8
    rows = rows_of(pieces, profile, skew=Fraction(0))
    assert sorted(Counter(key for _, _, key, _ in rows).values()) == [1, 2, 2, 3]


def test_time_is_repeated_with_the_same_keys(pieces: Any, profile: WorkloadProfile) -> None:
    """Twice, and half."""
    rows = rows_of(pieces, profile, duration=Fraction(2))
    assert Counter(key for _, _, key, _ in rows) == {0: 8, 1: 4, 2: 2, -1: 2}
    assert len(rows_of(pieces, profile, duration=Fraction(1, 2))) == 7
