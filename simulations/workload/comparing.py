"""Compares two recordings, or profiles of them: measures what is not measured yet, with Spark, and hands it on."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import attrs

from callboard.simulations.workload.behaving import measure_behaviour
from callboard.simulations.workload.behaviour import Behaviour
from callboard.simulations.workload.distances import THRESHOLD, Comparison, compare
from callboard.simulations.workload.measuring import measure_recording
from callboard.simulations.workload.profile_format import WorkloadProfile, profile_from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES_MAX: Final = 1_000
"""A queue of the busier recording has at most this many times the servers."""
NO_ORDER: Final = (
    "A profile does not hold events in their order, so neither what joins them nor queues are compared. Name"
    " recordings."
)


@attrs.frozen
class Side:
    """One of the two that are compared: the profile and, of a recording, how its events hang together."""

    profile: WorkloadProfile
    behaviour: Behaviour | None = None


def measure_side(
    session: SparkSession, recording: str, *, bucket_us: int | None = None, times: int = 1
) -> Side:
    """Measure the recording in that folder, in 200 buckets of time unless `bucket_us` says otherwise.

    Its queues have `times` the usual number of servers: see `measure_sides`. Raises `RecordingInvalid`,
    `FormatTooNew`, `InvalidArgument`, `StorageError`.
    """
    profile = measure_recording(session, recording, bucket_us=bucket_us, has_dependence=False)
    if not profile.events:
        return Side(profile)
    return Side(profile, measure_behaviour(session, recording, profile, times=times))


def measure_sides(
    session: SparkSession, recordings: Sequence[str], *, bucket_us: int | None = None
) -> list[Side]:
    """Measure recordings to compare: those with N times the lowest rate of them get N times the servers.

    Raises as `measure_side`.
    """
    profiles = [
        measure_recording(session, recording, bucket_us=bucket_us, has_dependence=False)
        for recording in recordings
    ]
    lowest = min((rate for rate in map(_rate, profiles) if rate), default=Fraction(1))
    found = []
    for recording, profile in zip(recordings, profiles, strict=True):
        behaviour = None
        if profile.events:
            times = min(max(round(_rate(profile) / lowest), 1), TIMES_MAX)
            behaviour = measure_behaviour(session, recording, profile, times=times)
        found.append(Side(profile, behaviour))
    return found


def _rate(profile: WorkloadProfile) -> Fraction:
    """Events per microsecond."""
    return Fraction(profile.events, max(profile.span_us, 1))


def side_of_profile(text: str | bytes) -> Side:
    """The side that a profile's text describes. Raises `InvalidArgument`, `FormatTooNew`."""
    return Side(profile_from_json(text))


def compare_sides(
    first: Side, second: Side, *, threshold: Fraction = THRESHOLD, ignored: tuple[str, ...] = ()
) -> Comparison:
    """All distances and, of two recordings, all rows and queues. What is `ignored` is not judged.

    Raises `InvalidArgument`.
    """
    unjudged = dict.fromkeys(ignored, "ignored")
    behaviours = None
    if first.behaviour is not None and second.behaviour is not None:
        behaviours = first.behaviour, second.behaviour
    found = compare(
        first.profile, second.profile, threshold=threshold, unjudged=unjudged, behaviours=behaviours
    )
    return found if behaviours else attrs.evolve(found, notes=(*found.notes, NO_ORDER))
