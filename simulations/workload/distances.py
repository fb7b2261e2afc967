"""Are two recordings alike? Distances between their profiles, and a verdict. Pure; `comparing` measures.

What joins two events, and what that does to queues, is judged in `behaviour`, and is part of the verdict.

A distance is the largest difference between two curves (`curves`), each of which rises from 0 to 1. Scale is taken out
of all of them, so that ten times the traffic at the same times of day is alike:

    rate             events so far, by the part of the time that has passed
    burst            events in one second, of all seconds; those of the busier recording are brought to the other's
                     mean: 10 events at ten times the rate count as 1, and 5 as 0 or 1 with equal weight
    arrivals         times between neighbours, in units of their mean
    value_bytes      sizes of values
    key_skew         share of the events that the most frequent keys have, by the share of the keys that these are
    key_gaps         times between neighbours with one key, in units of their median
    session_events   events of a session
    session_length   time from a session's first event to its last

Where scale cannot be taken out, a distance above the threshold is not judged, and its note says why:

- Clocks with coarse steps. More events then share an instant when there are more of them. Times are judged where each
  unit has at least 8 steps of its clock, or the units differ by less than half.
- Sessions end after a fixed silence, so those of a key that comes ten times as often are others. They are judged where
  the medians of `key_gaps` differ by less than half.

A distance above the threshold that the number of events, keys or sessions could explain by chance alone (at a level of
1 %) is not judged either. The rate is judged where each profile has at least 8 buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.behaviour import QUEUES, ROWS, Behaviour, BehaviourRow, QueueRow, judge
from callboard.simulations.workload.curves import Curve, largest_difference
from callboard.simulations.workload.profile_format import SECOND_US, Histogram, WorkloadProfile, total
from callboard.simulations.workload.verdicts import Verdict, is_near, number_text

THRESHOLD: Final = Fraction(1, 10)
"""Larger distances are differences."""
STEPS_MIN: Final = 8
"""Of the clock, in a unit of times, for the clock not to matter."""
BUCKETS_MIN: Final = 8
SAME: Final = Fraction(1, 100)
"""A scale that differs by less is not reported."""
CHANCE: Final = Fraction(163, 100)
"""Samples of n and m from one source differ by more than this times sqrt(1/n + 1/m) in one of a hundred cases."""

Pair = tuple[WorkloadProfile, WorkloadProfile]


@attrs.frozen
class Distance:
    """One distance. Without `curves` there is nothing on one side, or on both, and no value."""

    name: str
    verdict: Verdict
    note: str = ""
    value: Fraction | None = None
    where: Fraction | None = None
    """The x at which the curves differ most."""
    curves: tuple[Curve, Curve] | None = None


@attrs.frozen
class Comparison:
    """All distances between two profiles and, of two recordings, all rows and queues of `behaviour`."""

    distances: tuple[Distance, ...]
    threshold: Fraction
    notes: tuple[str, ...]
    """What the two differ in that the distances leave out."""
    rows: tuple[BehaviourRow, ...] = ()
    queues: tuple[QueueRow, ...] = ()

    def named(self, verdict: Verdict) -> list[str]:
        """The names of the distances, rows and queues with that verdict."""
        judged: tuple[Distance | BehaviourRow | QueueRow, ...] = (*self.distances, *self.rows, *self.queues)
        return [each.name for each in judged if each.verdict is verdict]

    @property
    def is_alike(self) -> bool:
        """Whether nothing is different."""
        return not self.named(Verdict.DIFFERENT)

    @property
    def words(self) -> str:
        """The verdict, in one sentence or several."""
        alike, few = map(self.named, (Verdict.ALIKE, Verdict.TOO_FEW))
        limit = f"{float(self.threshold):g}"
        found = " ".join(self._differences(limit))
        if found and alike:
            found += f" Alike in {_listed(alike)}."
        elif alike and self.rows:
            found = f"Alike: no distance that is judged is above {limit}, and no row or queue is apart."
        elif alike:
            found = f"Alike: no distance that is judged is above {limit}."
        elif not found:
            found = "Nothing could be judged."
        if few:
            found += f" Too few to tell: {_listed(few)}."
        if left_out := self.named(Verdict.NOT_JUDGED):
            found += f" Not judged: {_listed(left_out)}."
        return found

    def document(self, recordings: tuple[str, str]) -> dict[str, Any]:
        """All of it for a JSON document, of recordings with these names."""
        return {
            "is_alike": self.is_alike,
            "verdict": self.words,
            "threshold": float(self.threshold),
            "recordings": recordings,
            "notes": self.notes,
            "distances": [
                {
                    "name": each.name,
                    "distance": None if each.value is None else float(each.value),
                    "verdict": each.verdict.value,
                    "note": each.note,
                }
                for each in self.distances
            ],
            "rows": [
                {
                    "name": each.name,
                    "values": [None if value is None else float(value) for value in each.values],
                    "verdict": each.verdict.value,
                    "note": each.note,
                }
                for each in self.rows
            ],
            "queues": [
                {
                    "name": each.name,
                    "waits": [
                        [float(facts.wait(percent)) for percent in (50, 99)] for facts in each.facts or ()
                    ],
                    "depths": [
                        [float(facts.depth(percent)) for percent in (50, 99)] for facts in each.facts or ()
                    ],
                    "factor": None if each.factor is None else float(each.factor),
                    "verdict": each.verdict.value,
                    "note": each.note,
                }
                for each in self.queues
            ],
        }

    def _differences(self, limit: str) -> Iterator[str]:
        """A sentence for each kind of difference: which, and by how much."""
        if far := [each.name for each in self.distances if each.verdict is Verdict.DIFFERENT]:
            yield f"Different in {_listed(far)}: a distance is above {limit}."
        if rows := [each for each in self.rows if each.verdict is Verdict.DIFFERENT]:
            told = (f"{_listed([row.name])} ({' and '.join(map(number_text, row.values))})" for row in rows)
            yield f"Different in {', '.join(told)}."
        if queues := [each for each in self.queues if each.verdict is Verdict.DIFFERENT]:
            told = (f"{_listed([queue.name])} ({queue.note})" for queue in queues)
            yield f"Different in the queues {', '.join(told)}."


def compare(
    first: WorkloadProfile,
    second: WorkloadProfile,
    *,
    threshold: Fraction = THRESHOLD,
    unjudged: Mapping[str, str] | None = None,
    behaviours: tuple[Behaviour, Behaviour] | None = None,
) -> Comparison:
    """The distances between two profiles that have events, and the rows and queues of their recordings' behaviours.

    `unjudged` names what not to judge, and why. Raises `InvalidArgument` when one has no events, for an unknown name,
    and for a threshold that is none.
    """
    unjudged = unjudged or {}
    if unknown := [name for name in unjudged if name not in COMPARED]:
        raise InvalidArgument(f"There is no distance {unknown[0]!r}. There are {', '.join(COMPARED)}.")
    if not 0 <= threshold <= 1:
        raise InvalidArgument(f"The threshold is {float(threshold):g}. Give one from 0 to 1.")
    for which, profile in (("first", first), ("second", second)):
        if not profile.events:
            raise InvalidArgument(
                f"The {which} recording holds no events, so there is nothing to compare. Name another."
            )
    pair = first, second
    distances = _Judge(pair, threshold, unjudged)
    rows, queues = ((), ()) if behaviours is None else judge(*behaviours, unjudged)
    return Comparison(tuple(map(distances.distance, DISTANCES)), threshold, tuple(_notes(pair)), rows, queues)


def _listed(names: list[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)


# -- the curves, by the distance's name; None where a profile has nothing of the kind


def _rate(pair: Pair) -> list[Curve]:
    curves = []
    for profile in pair:
        # An event takes a step of the clock, so that a recording of one instant has a length too.
        length = profile.span_us + profile.time_step_us
        starts = range(0, len(profile.bucket_counts) * profile.bucket_us, profile.bucket_us)
        curves.append(
            Curve.of_classes(
                (Fraction(start, length), Fraction(min(start + profile.bucket_us, length), length), many)
                for start, many in zip(starts, profile.bucket_counts, strict=True)
            )
        )
    return curves


def _burst(pair: Pair) -> list[Curve]:
    means = [Fraction(profile.events, _seconds(profile)) for profile in pair]
    curves = []
    for profile, mean in zip(pair, means, strict=True):
        quiet = _seconds(profile) - total(profile.burst)
        counts = [(0, quiet), *profile.burst]
        weights: dict[int, Fraction] = {}
        by = mean / min(means)
        for count, seconds in counts:
            whole, rest = divmod(count / by, 1)
            weights[whole] = weights.get(whole, Fraction(0)) + seconds * (1 - rest)
            weights[whole + 1] = weights.get(whole + 1, Fraction(0)) + seconds * rest
        curves.append(Curve.of_classes((count, count, weights[count]) for count in sorted(weights)))
    return curves


def _seconds(profile: WorkloadProfile) -> int:
    return profile.span_us // SECOND_US + 1


def _arrivals(pair: Pair) -> list[Curve]:
    return [_in_units(profile.arrival_log2_us, _arrival_us(profile)) for profile in pair]


def _arrival_us(profile: WorkloadProfile) -> Fraction:
    """The mean time between neighbours."""
    return Fraction(profile.span_us, max(profile.events - 1, 1))


def _value_bytes(pair: Pair) -> list[Curve]:
    return [
        Curve.of_classes(
            (each * profile.value_bin_bytes, (each + 1) * profile.value_bin_bytes, many)
            for each, many in profile.value_bytes
        )
        for profile in pair
    ]


def _key_skew(pair: Pair) -> list[Curve]:
    """Of the keys beyond the most frequent ones a profile knows the sum, so both are taken as evenly spread there."""
    known = min(Fraction(len(profile.key_top), profile.distinct_keys) for profile in pair)
    curves = []
    for profile in pair:
        keys, tail = profile.distinct_keys, profile.key_tail
        sums = [0, *accumulate(profile.key_top)]
        points = [(Fraction(rank, keys), Fraction(events)) for rank, events in enumerate(sums)]
        if tail.keys:
            points.append((Fraction(1), Fraction(sums[-1] + tail.events)))
        full = Curve(tuple((x, y / points[-1][1]) for x, y in points))
        kept = [point for point in full.points if point[0] < known]
        border = (known, next(full.sides([known]))[0])
        curves.append(Curve((*kept, border, *([(Fraction(1), Fraction(1))] if known < 1 else []))))
    return curves


def _key_gaps(pair: Pair) -> list[Curve]:
    return [_in_units(profile.gap_log2_us, _key_us(profile)) for profile in pair]


def _key_us(profile: WorkloadProfile) -> Fraction:
    """The median time between neighbours with one key. A mean would hang on how long a recording is."""
    if not profile.gap_log2_us:
        return Fraction(0)
    return _in_units(profile.gap_log2_us, Fraction(1)).quantile(Fraction(1, 2))


def _session_events(pair: Pair) -> list[Curve]:
    return [Curve.of_classes((what, what, many) for what, many in profile.session_events) for profile in pair]


def _session_length(pair: Pair) -> list[Curve]:
    return [_in_units(profile.session_log2_us, Fraction(1)) for profile in pair]


def _in_units(classes: Histogram, unit_us: Fraction) -> Curve:
    """Class 0 is one value, 0; class c is spread from 2**(c-1) to 2**c microseconds."""
    unit_us = unit_us or Fraction(1)
    return Curve.of_classes(
        (Fraction(2**what // 2) / unit_us, Fraction(2**what if what else 0) / unit_us, many)
        for what, many in classes
    )


_Curves = Callable[[Pair], list[Curve]]
_Count = Callable[[WorkloadProfile], int]
DISTANCES: Final[dict[str, tuple[_Curves, _Count]]] = {
    "rate": (_rate, lambda profile: profile.events),
    "burst": (_burst, _seconds),
    "arrivals": (_arrivals, lambda profile: total(profile.arrival_log2_us)),
    "value_bytes": (_value_bytes, lambda profile: profile.events),
    "key_skew": (_key_skew, lambda profile: profile.distinct_keys),
    "key_gaps": (_key_gaps, lambda profile: total(profile.gap_log2_us)),
    "session_events": (_session_events, lambda profile: total(profile.session_events)),
    "session_length": (_session_length, lambda profile: total(profile.session_log2_us)),
}
"""By name: what makes the curves, and how many things a profile knows for it."""
COMPARED: Final = (*DISTANCES, *ROWS, *QUEUES)
"""The names of all that may be judged, and ignored."""


# -- judging


@attrs.frozen
class _Judge:
    pair: Pair
    threshold: Fraction
    unjudged: Mapping[str, str]

    def distance(self, name: str) -> Distance:
        """One distance, judged."""
        curves_of, count_of = DISTANCES[name]
        counts = [count_of(profile) for profile in self.pair]
        if not all(counts):
            return Distance(name, *self._lacking(name, counts))
        one, two = curves_of(self.pair)
        value, where = largest_difference(one, two)
        verdict, note = self._judged(name, value, counts)
        return Distance(name, verdict, note, value, where, (one, two))

    def _lacking(self, name: str, counts: list[int]) -> tuple[Verdict, str]:
        if name in self.unjudged:
            return Verdict.NOT_JUDGED, self.unjudged[name]
        if not any(counts):
            return Verdict.NOT_JUDGED, "neither recording has any"
        which = "first" if counts[0] else "second"
        chances = [count or profile.events for count, profile in zip(counts, self.pair, strict=True)]
        verdict = Verdict.TOO_FEW if _is_chance(Fraction(1), chances) else Verdict.DIFFERENT
        return verdict, f"only the {which} recording has any"

    def _judged(self, name: str, value: Fraction, counts: list[int]) -> tuple[Verdict, str]:
        if name in self.unjudged:
            return Verdict.NOT_JUDGED, self.unjudged[name]
        coarsest = min(self.pair, key=lambda profile: len(profile.bucket_counts))
        fewest = len(coarsest.bucket_counts)
        if name == "rate" and fewest < BUCKETS_MIN and self.pair[0] != self.pair[1]:
            is_finest = coarsest.bucket_us == SECOND_US
            advice = "no more seconds were recorded" if is_finest else "profile with a shorter --bucket"
            return Verdict.NOT_JUDGED, f"it is known in {fewest} buckets; {advice}"
        if value <= self.threshold:
            return Verdict.ALIKE, ""
        if reason := _hindrance(name, self.pair):
            return Verdict.NOT_JUDGED, reason
        if _is_chance(value, counts):
            return Verdict.TOO_FEW, f"of {counts[0]:,} and {counts[1]:,}, chance alone may make as much"
        return Verdict.DIFFERENT, ""


def _is_chance(value: Fraction, counts: list[int]) -> bool:
    return value * value <= CHANCE * CHANCE * sum(Fraction(1, count) for count in counts)


def _hindrance(name: str, pair: Pair) -> str | None:
    """Why scale cannot be taken out of a distance. Of equal scales there is nothing to take out."""
    scales: list[list[Fraction]] = [
        [Fraction(each.events, _seconds(each)) for each in pair],
        [Fraction(each.events - each.keyless, max(each.distinct_keys, 1) * _seconds(each)) for each in pair],
        [Fraction(_seconds(each)) for each in pair],
    ]
    if (
        all(is_near(*both) for both in scales)
        and pair[0].time_step_us == pair[1].time_step_us
        and pair[0].session_idle_us == pair[1].session_idle_us
    ):
        return None
    if name.startswith("session"):
        if pair[0].session_idle_us != pair[1].session_idle_us:
            return "the profiles end sessions after different times"
        if not is_near(*map(_key_us, pair)):
            return "keys come at different rates, and a session ends after a fixed silence"
    unit_of = {"arrivals": _arrival_us, "key_gaps": _key_us}.get(name)
    if unit_of is not None:
        units = [unit_of(profile) for profile in pair]
        steps = [profile.time_step_us for profile in pair]
        is_coarse = any(unit < STEPS_MIN * step for unit, step in zip(units, steps, strict=True))
        if is_coarse and not (is_near(*units) and steps[0] == steps[1]):
            return f"the rates differ, and times have steps of {max(steps) / SECOND_US:g} s"
    return None


def _notes(pair: Pair) -> list[str]:
    notes = []
    facts: dict[str, Sequence[Fraction | int]] = {
        "the events": [profile.events for profile in pair],
        "the time": [profile.span_us for profile in pair],
        "the keys": [profile.distinct_keys for profile in pair],
        "the rate": [Fraction(profile.events, _seconds(profile)) for profile in pair],
    }
    for what, (one, two) in facts.items():
        ratio = Fraction(two) / Fraction(one) if one and two else Fraction(1)
        if abs(ratio - 1) > SAME:
            notes.append(f"The second has {number_text(ratio)} times {what} of the first.")
    if notes:
        notes.append("Scale is taken out of all distances.")
    if any(profile.key_tail.keys for profile in pair):
        notes.append("The key skew is that of the most frequent keys; of the others a profile knows the sum.")
    return notes
