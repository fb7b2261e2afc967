"""Distances between profiles, and the verdict on them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.comparing import Side, compare_sides
from callboard.simulations.workload.distances import DISTANCES, Comparison, Distance, Verdict, compare
from callboard.simulations.workload.profile_format import KeyTail, WorkloadProfile, profile_from_json
from callboard.simulations.workload.report import rate_text

SECONDS = 1_000


def steady(rate: int = 1, *, keys: int = 10, seconds: int = SECONDS, **other: Any) -> WorkloadProfile:
    """The profile of `rate` events in each of this many seconds, evenly spread, on a clock of microseconds.

    Keys take turns; their times between events are so much shorter when they come more often.
    """
    gap_us = 1_000_000 // rate
    events = rate * seconds
    classes = ((gap_us.bit_length(), events - 1),)
    key_gap = ((keys * gap_us).bit_length(), events - keys)
    fields: dict[str, Any] = {
        "events": events,
        "start_us": 0,
        "span_us": seconds * 1_000_000 - gap_us,
        "time_step_us": 1,
        "bucket_us": 10_000_000,
        "bucket_counts": (10 * rate,) * (seconds // 10),
        "sub_buckets": (((rate, 10),),) * (seconds // 10),
        "burst": ((rate, seconds),),
        "arrival_log2_us": classes,
        "key_top": (events // keys,) * keys,
        "key_tail": KeyTail(0, 0),
        "keyless": 0,
        "key_bytes": ((4, keys),),
        "gap_log2_us": (key_gap,),
        "session_idle_us": 1_800_000_000,
        "session_events": (((events // keys).bit_length(), keys),),
        "session_log2_us": ((30, keys),),
        "value_bin_bytes": 16,
        "value_bytes": ((2, events // 2), (3, events // 2)),
        "value_total_bytes": 40 * events,
        "partitions": 1,
    }
    return WorkloadProfile(**fields | other)


def verdicts(comparison: Comparison) -> dict[str, str]:
    """What is said of each distance."""
    return {distance.name: distance.verdict.value for distance in comparison.distances}


def distance(comparison: Comparison, name: str) -> Distance:
    """One of the distances."""
    return next(each for each in comparison.distances if each.name == name)


def test_a_profile_is_like_itself(small_profile_text: str) -> None:
    """All distances are 0, and all verdicts good, even for a recording of eight events."""
    small = profile_from_json(small_profile_text)
    for profile in (small, steady()):
        found = compare(profile, profile)
        assert [each.value for each in found.distances] == [0] * len(DISTANCES)
        assert set(verdicts(found).values()) == {"alike"}
        assert found.is_alike
        assert found.words == "Alike: no distance that is judged is above 0.1."


def test_eight_times_the_rate_is_alike_and_told() -> None:
    """The same traffic at eight times the rate has no distance; sessions, of more events now, are not judged."""
    found = compare(steady(), steady(8))
    expected = dict.fromkeys(DISTANCES, "alike") | {"session_events": "not judged"}
    assert verdicts(found) == expected
    assert distance(found, "burst").value == 0
    assert distance(found, "session_events").value == 1
    assert found.notes == (
        "The second has 8 times the events of the first.",
        "The second has 8 times the rate of the first.",
        "Scale is taken out of all distances.",
    )
    assert found.is_alike


def test_the_rate_is_compared_by_the_part_of_the_time() -> None:
    """Where all events of a second come in its first half, the curves are half a unit apart."""
    counts = (20,) * 50 + (0,) * 49 + (0,)
    half = attrs.evolve(
        steady(),
        bucket_counts=(*counts[:49], 19, *counts[50:99], 1),
        sub_buckets=(*(((2, 10),),) * 49, ((1, 1), (2, 9)), *((),) * 49, ((1, 1),)),
        burst=((1, 2), (2, 499)),
    )
    found = distance(compare(steady(), half), "rate")
    # After 500 of 999.000001 seconds: 999 of 1,000 events, and 500 of 1,000.
    assert found.value == Fraction(999, 1000) - Fraction(500, 1000)
    assert found.verdict is Verdict.DIFFERENT


def test_seconds_of_a_busier_recording_are_brought_to_the_mean_of_the_other() -> None:
    """Three events in a second at twice the rate count half as one and half as two."""
    twice = attrs.evolve(
        steady(2),
        bucket_counts=(20,) * 100,
        sub_buckets=(((1, 5), (3, 5)),) * 100,
        burst=((1, 500), (3, 500)),
    )
    found = distance(compare(steady(1), twice), "burst")
    # 1 counts as 0 and 1, 3 as 1 and 2: a quarter is at 0, where the other has none.
    assert (found.value, found.where) == (Fraction(1, 4), 0)


def test_key_skew_looks_at_the_keys_that_both_know() -> None:
    """Beyond the most frequent keys a profile knows a sum, so the other one is taken to be even there, too."""
    known = steady(key_top=(400, 200, 100, 100, 50, 50, 25, 25, 25, 25))
    cut = steady(key_top=(400, 200), key_tail=KeyTail(8, 400))
    assert distance(compare(known, cut), "key_skew").value == 0
    even = distance(compare(known, steady()), "key_skew")
    # The first two of ten have 600 of 1,000, in place of 200, and the first four 800 in place of 400.
    assert even.value == Fraction(4, 10)
    assert even.verdict is Verdict.TOO_FEW
    assert even.note == "of 10 and 10, chance alone may make as much"


def test_a_coarse_clock_leaves_times_unjudged() -> None:
    """When seconds are counted, more events share one at a higher rate: that is shown, and no difference."""
    one = steady(1, time_step_us=1_000_000)
    ten = steady(
        8,
        time_step_us=1_000_000,
        arrival_log2_us=((0, 7_000), (20, 999)),
        gap_log2_us=((0, 900), (21, 7_090)),
    )
    found = compare(one, ten)
    arrivals = distance(found, "arrivals")
    assert arrivals.verdict is Verdict.NOT_JUDGED
    assert arrivals.value == Fraction(7000, 7999)
    assert arrivals.note == "the rates differ, and times have steps of 1 s"
    assert found.is_alike
    fine = compare(steady(1), attrs.evolve(ten, time_step_us=1))
    assert distance(fine, "arrivals").verdict is Verdict.DIFFERENT


def test_few_events_are_too_few(small_profile_text: str) -> None:
    """What chance alone may make is no difference, and the words say so."""
    small = profile_from_json(small_profile_text)
    found = compare(small, attrs.evolve(small, value_bytes=((0, 3), (1, 4), (4, 1)), value_total_bytes=150))
    assert distance(found, "value_bytes").value == Fraction(1, 2)
    assert distance(found, "value_bytes").verdict is Verdict.TOO_FEW
    assert found.is_alike
    assert "Too few to tell: value bytes." in found.words
    assert (
        distance(
            compare(steady(), steady(value_bytes=((5, 1000),), value_total_bytes=80_000)), "value_bytes"
        ).value
        == 1
    )


def test_a_high_rate_is_a_whole_number() -> None:
    """Not a power of ten."""
    assert rate_text(steady(30_495)) == "30,495 per second"
    assert rate_text(steady(2)) == "2 per second"


def test_few_buckets_do_not_judge_the_rate() -> None:
    """One bucket holds any rate: two recordings are not alike because nobody looked."""
    coarse = {"bucket_us": 1_000_000_000, "bucket_counts": (1000,), "sub_buckets": (((1, 1000),),)}
    found = distance(compare(steady(**coarse), steady()), "rate")
    assert found.verdict is Verdict.NOT_JUDGED
    assert "shorter --bucket" in found.note
    seconds: dict[str, Any] = {
        "bucket_us": 1_000_000,
        "bucket_counts": (10, 10),
        "sub_buckets": (((10, 1),),) * 2,
    }
    short = steady(10, seconds=2, session_log2_us=((20, 10),), **seconds)
    found = distance(compare(short, steady(10)), "rate")
    assert found.note == "it is known in 2 buckets; no more seconds were recorded"


def test_what_only_one_has_is_a_difference() -> None:
    """Events without keys differ from those with keys; where neither has any, there is nothing to judge."""
    none: dict[str, Any] = {"key_top": (), "key_bytes": (), "gap_log2_us": (), "session_events": ()}
    keyless = steady(**none, keyless=1000, session_log2_us=())
    found = compare(steady(), keyless)
    assert distance(found, "key_skew") == Distance(
        "key_skew", Verdict.DIFFERENT, "only the first recording has any"
    )
    assert not found.is_alike
    both = compare(keyless, keyless)
    assert both.named(Verdict.NOT_JUDGED) == ["key_skew", "key_gaps", "session_events", "session_length"]
    assert both.is_alike


def test_every_recording_is_held_to_all_that_can_be_judged() -> None:
    """Nothing is left out because of what made a recording: only what the user ignores."""
    recorded, other = Side(steady()), Side(steady(session_events=((1, 1000),), session_log2_us=((0, 1000),)))
    found = compare_sides(recorded, other)
    assert distance(found, "session_events").value == 1
    assert found.named(Verdict.DIFFERENT) == ["session_events", "session_length"]
    ignoring = compare_sides(recorded, other, ignored=("session_events", "session_length"))
    assert ignoring.is_alike


def test_at_one_scale_a_coarse_clock_hides_nothing() -> None:
    """As many events of as many keys in the same time: other gaps of a key are a difference, in whole seconds too."""
    one = steady(time_step_us=1_000_000, gap_log2_us=((24, 990),))
    other = attrs.evolve(one, gap_log2_us=((0, 890), (27, 100)))
    found = distance(compare(one, other), "key_gaps")
    assert found.verdict is Verdict.DIFFERENT


def test_profiles_alone_say_that_the_order_of_events_is_not_known() -> None:
    """A verdict on profiles does not pass for one on queues."""
    found = compare_sides(Side(steady()), Side(steady()))
    assert found.is_alike
    assert "Name recordings" in found.notes[-1]


def test_threshold_names_and_events_are_checked() -> None:
    """Unknown names, thresholds that are none, and recordings without events are refused by name."""
    one = steady()
    with pytest.raises(InvalidArgument, match="no distance 'speed'"):
        compare(one, one, unjudged={"speed": ""})
    for threshold in (Fraction(-1), Fraction(2)):
        with pytest.raises(InvalidArgument, match="from 0 to 1"):
            compare(one, one, threshold=threshold)
    lists = {name: () for name, value in attrs.asdict(one, recurse=False).items() if isinstance(value, tuple)}
    empty = attrs.evolve(one, events=0, span_us=0, value_total_bytes=0, **lists)
    for pair, which in (((empty, one), "first"), ((one, empty), "second")):
        with pytest.raises(InvalidArgument, match=f"The {which} recording holds no events"):
            compare(*pair)
    other = steady(value_bytes=((2, 300), (3, 700)), value_total_bytes=45_000)
    assert not compare(one, other).is_alike
    assert compare(one, other, threshold=Fraction(1, 5)).is_alike
