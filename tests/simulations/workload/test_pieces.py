"""The events of a generated workload, without Spark: all counts are the profile's, however it is divided."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.profile_format import WorkloadProfile, profile_from_json
from callboard.simulations.workload.scaling import Scaling, WhatIf

START_US = 1_000_000_000
SECOND_US = 1_000_000


@pytest.fixture
def profile(small_profile_text: str) -> WorkloadProfile:
    """Eight events: seven in the first minute (two seconds of two, one of three), one 61.5 s after the first."""
    return profile_from_json(small_profile_text)


@pytest.fixture
def part(pieces: Any, profile: WorkloadProfile) -> Any:
    """Makes a part of that profile."""

    def make(seed: str = "0", **scaling: Fraction) -> Any:
        return pieces.ProfilePart(0, profile, Scaling(**scaling), START_US, seed)

    return make


def events_of(part: Any) -> list[Any]:
    """All events of a part: (number, time since the start, key, size)."""
    rows = []
    for piece in part.pieces():
        found = part.make(piece)
        times = (found.time_us - START_US).tolist()
        rows += list(zip(found.number.tolist(), times, found.key.tolist(), found.size.tolist(), strict=True))
    return rows


def seconds_of(rows: list[Any]) -> list[int]:
    """How many events there are in each second that has some, sorted."""
    return sorted(Counter(time // SECOND_US for _, time, _, _ in rows).values())


def test_at_scale_1_all_counts_are_the_profiles(part: Any) -> None:
    """Buckets, seconds, keys, sizes and the span."""
    rows = events_of(part())
    assert [number for number, _, _, _ in rows] == list(range(8))
    assert min(time for _, time, _, _ in rows) == 0
    assert max(time for _, time, _, _ in rows) == 61_500_000
    assert sum(time < 60_000_000 for _, time, _, _ in rows) == 7
    assert seconds_of(rows) == [1, 2, 2, 3]
    assert all(time % 1_000 == 0 for _, time, _, _ in rows)
    assert Counter(key for _, _, key, _ in rows) == {0: 4, 1: 2, 2: 1, -1: 1}
    assert Counter(size // 16 for _, _, _, size in rows) == {0: 7, 4: 1}
    assert sum(size for _, _, _, size in rows) == 100


def test_a_larger_volume_multiplies_them(part: Any) -> None:
    """Ten times the events in the same seconds, of ten times the keys; or of the same."""
    rows = events_of(part(volume=Fraction(10)))
    assert seconds_of(rows) == [10, 20, 20, 30]
    counts = Counter(key for _, _, key, _ in rows)
    assert [counts[key] for key in range(30)] == [4] * 10 + [2] * 10 + [1] * 10
    assert counts[-1] == 10
    rows = events_of(part(volume=Fraction(10), keys=Fraction(1, 10)))
    assert seconds_of(rows) == [10, 20, 20, 30]
    assert Counter(key for _, _, key, _ in rows) == {0: 40, 1: 20, 2: 10, -1: 10}
    assert sum(size for _, _, _, size in rows) == 1_000


def test_a_fraction_of_the_volume_is_exact(part: Any) -> None:
    """A quarter of eight."""
    assert len(events_of(part(volume=Fraction(1, 4)))) == 2
    assert len(events_of(part(volume=Fraction(7, 8)))) == 7


def test_pieces_are_the_same_however_they_are_cut(pieces: Any, part: Any, monkeypatch: Any) -> None:
    """An event depends on its number alone."""
    whole = events_of(part(volume=Fraction(60)))
    monkeypatch.setattr(pieces, "PIECE_EVENTS", 7)
    assert events_of(part(volume=Fraction(60))) == whole
    assert len(list(part(volume=Fraction(60)).pieces())) > 50


def test_another_seed_is_another_workload_of_the_same_character(part: Any) -> None:
    """Other places, the same counts."""
    one, other = (events_of(part(seed, volume=Fraction(20))) for seed in ("1", "2"))
    assert one != other
    assert seconds_of(one) == seconds_of(other)
    assert Counter(row[2] for row in one) == Counter(row[2] for row in other)


def test_lengths_that_the_profile_knows_are_those_of_values(
    pieces: Any, small_profile: dict[str, Any], small_dependence: dict[str, Any]
) -> None:
    """Exactly, in each layer; the others of their class have the bytes that are left."""
    small_profile["value_sizes"] = [[3, 4], [15, 1], [71, 1]]
    for dependence in (None, small_dependence):
        document = {**small_profile, **({"dependence": dependence} if dependence else {})}
        profile = profile_from_json(json.dumps(document))
        made = pieces.ProfilePart(0, profile, Scaling(volume=Fraction(3)), profile.start_us, "7")
        sizes = [size for piece in made.pieces() for size in made.make(piece).size.tolist()]
        # Three times: 100 bytes in all, so 2 are left for two values.
        assert Counter(sizes) == {1: 6, 3: 12, 15: 3, 71: 3}


def test_a_longer_duration_repeats_the_time(part: Any) -> None:
    """At the same rate; the second time is drawn anew, and cut where it ends."""
    rows = events_of(part(duration=Fraction(2)))
    assert len(rows) == 16
    assert seconds_of(rows) == [1, 1, 2, 2, 2, 2, 3, 3]
    assert sum(time >= 120_000_000 for _, time, _, _ in rows) == 8
    assert len(events_of(part(duration=Fraction(1, 2)))) == 7


def test_bursts_are_put_together_and_divided(part: Any) -> None:
    """Of the three seconds of the first minute, two become one, or each becomes two."""
    assert len(seconds_of(events_of(part(burst=Fraction(2))))) == 3
    assert sum(seconds_of(events_of(part(burst=Fraction(2))))) == 8
    assert max(seconds_of(events_of(part(burst=Fraction(1, 2))))) == 2
    assert len(seconds_of(events_of(part(burst=Fraction(1, 2))))) == 7


def test_keys_are_made_more_and_fewer(part: Any, content: Any) -> None:
    """Each of three stands for four; or all three for one."""
    many = part(volume=Fraction(1_000), keys=Fraction(4, 1_000))
    counts = Counter(row[2] for row in events_of(many))
    assert len(counts.keys() - {-1}) == 12
    assert counts[-1] == 1_000
    assert sum(counts[key] for key in range(4)) == 4_000
    assert {row[2] for row in events_of(part(keys=Fraction(1, 3)))} == {0, -1}
    names = content.keys_of(many, content.np.arange(12))
    assert len(set(names)) == 12


@pytest.mark.parametrize(("skew", "counts"), [(0, [2, 2, 3]), (1, [4, 2, 1]), (2, [5, 1, 1])])
def test_skew_changes_how_often_keys_come(part: Any, skew: int, counts: list[int]) -> None:
    """Of 4, 2 and 1 events: equal shares of seven, the same, or shares in proportion to 16, 4 and 1."""
    found = Counter(row[2] for row in events_of(part(skew=Fraction(skew))))
    assert [found[key] for key in (0, 1, 2, -1)] == [*counts, 1]


def test_keys_are_named_alike_wherever_they_come(part: Any, content: Any) -> None:
    """With the profile's lengths, all different, whatever other keys are asked for at once."""
    whole = content.keys_of(part(), content.np.arange(3))
    assert Counter(map(len, whole)) == {3: 1, 5: 2}
    assert len(set(whole)) == 3
    for key in range(3):
        assert content.keys_of(part(), content.np.array([key])) == [whole[key]]


def test_values_are_parts_of_a_text(part: Any, content: Any) -> None:
    """As long as they are to be; the text begins again where it ends."""
    events = part().make(next(part().pieces()))
    pool = content.text_pool("0")
    assert len(pool) == content.POOL_BYTES
    values = content.values_of(pool, events)
    assert [len(value) for value in values] == events.size.tolist()
    assert all(value in pool + pool for value in values)
    assert content.values_of(b"abc", events._replace(size=events.size + 7))[0] in b"abc" * 99


def test_buckets_that_are_too_long_are_refused(pieces: Any, profile: WorkloadProfile) -> None:
    """Each of their seconds has a place in memory."""
    long = attrs.evolve(
        profile, bucket_us=10**14, bucket_counts=(8,), sub_buckets=(profile.burst,), span_us=61_500_000
    )
    with pytest.raises(InvalidArgument, match="shorter --bucket"):
        pieces.ProfilePart(0, long, Scaling(), START_US, "0")


# -- what if


def happen(what_if: Any, part: Any, *what_ifs: WhatIf) -> list[tuple[int, int, int, int, int]]:
    """All events after what has happened: (number, copy, time since the start, key, size)."""
    rows = []
    for piece in part.pieces():
        found = what_if.changed(part, part.make(piece), what_ifs)
        rows += list(zip(*(column.tolist() for column in found[:5]), strict=True))
    assert len({row[:2] for row in rows}) == len(rows), "number and copy tell events apart"
    return [(number, copy, time - START_US, key, size) for number, copy, time, key, size in rows]


MINUTE = {"start_us": START_US, "stop_us": START_US + 60_000_000}


def test_in_silence_nothing_happens(what_if: Any, part: Any) -> None:
    """From its beginning to before its end."""
    (row,) = happen(what_if, part(), WhatIf(kind="silence", **MINUTE))
    assert row[2] == 61_500_000


def test_a_crowd_comes_in_the_same_seconds(what_if: Any, part: Any) -> None:
    """Five times as many, with keys of their own."""
    large = part(volume=Fraction(100), keys=Fraction(1, 100))
    rows = happen(what_if, large, WhatIf(kind="flash-crowd", times=5, **MINUTE))
    assert len(rows) == 5 * 700 + 100
    assert sorted(Counter(row[2] // SECOND_US for row in rows).values()) == [100, 1_000, 1_000, 1_500]
    assert {row[3] for row in rows if row[1]} == {0, 1, 2, -1}


def test_retries_come_later_with_the_same_key(what_if: Any, part: Any) -> None:
    """After 2 s, after 4 s more, after 8 s more."""
    rows = happen(what_if, part(), WhatIf(kind="retry-storm", times=3, after_us=2_000_000, **MINUTE))
    assert len(rows) == 8 + 3 * 7
    by_number = {number: sorted(row[1:] for row in rows if row[0] == number) for number in range(8)}
    for events in by_number.values():
        first = events[0][1]
        assert [time - first for _, time, _, _ in events] in ([0, 2_000_000, 6_000_000, 14_000_000], [0])
        assert len({(key, size) for _, _, key, size in events}) == 1


def test_a_hot_key_gets_its_share(what_if: Any, part: Any) -> None:
    """All events, or about a half of them, which are others for another event."""
    every = happen(what_if, part(), WhatIf(kind="hot-key", share=Fraction(1), **MINUTE))
    assert len({row[3] for row in every if row[2] < 60_000_000}) == 1
    large = part(volume=Fraction(100), skew=Fraction(0))
    half = happen(what_if, large, WhatIf(kind="hot-key", share=Fraction(1, 2), **MINUTE))
    (_, most), *_ = Counter(row[3] for row in half if row[2] < 60_000_000).most_common(1)
    assert 300 < most < 550


def test_what_happens_twice_stays_apart(what_if: Any, part: Any) -> None:
    """Copies of copies have names of their own."""
    storm = WhatIf(kind="retry-storm", times=2, after_us=1_000, **MINUTE)
    crowd = WhatIf(kind="flash-crowd", times=3, **MINUTE)
    assert len(happen(what_if, part(), storm, crowd)) > 8 + 7 * 2
    assert len(happen(what_if, part(), crowd, storm, crowd)) >= 7 * 27
