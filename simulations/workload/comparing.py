"""Compares two recordings, or profiles of them: measures what is not measured yet, with Spark, and hands it on."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

import attrs

from callboard.simulations.workload.distances import THRESHOLD, Comparison, compare
from callboard.simulations.workload.measuring import measure_recording
from callboard.simulations.workload.profile_format import SECOND_US, WorkloadProfile, profile_from_json
from callboard.spark.slices import read_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS: Final = 200
"""A recording's time is cut into about so many buckets."""
GENERATED: Final = "callboard workload generate"
"""What made a recording, as its manifest says."""
NOT_KEPT: Final = ("arrivals", "key_gaps", "session_events", "session_length")
NOT_KEPT_NOTE: Final = "not kept by generating: times within a second, and the order of a key's events"


@attrs.frozen
class Side:
    """One of the two that are compared."""

    profile: WorkloadProfile
    is_generated: bool = False


def measure_side(session: SparkSession, recording: str, *, bucket_us: int | None = None) -> Side:
    """Measure the recording in that folder, in about 200 buckets of time unless `bucket_us` says otherwise.

    Raises `RecordingInvalid`, `FormatTooNew`, `InvalidArgument`, `StorageError`.
    """
    manifest = read_manifest(recording)
    first, last = manifest.first_time_us, manifest.last_time_us
    if bucket_us is None and first is not None and last is not None:
        bucket_us = SECOND_US * ((last - first) // (SECOND_US * BUCKETS) + 1)
    profile = measure_recording(session, recording, bucket_us=bucket_us)
    return Side(profile, manifest.source.get("made_by") == GENERATED)


def side_of_profile(text: str | bytes) -> Side:
    """The side that a profile's text describes. Raises `InvalidArgument`, `FormatTooNew`."""
    return Side(profile_from_json(text))


def compare_sides(
    first: Side, second: Side, *, threshold: Fraction = THRESHOLD, ignored: tuple[str, ...] = ()
) -> Comparison:
    """All distances. What is `ignored`, or not kept when a recording is generated, is not judged.

    Raises `InvalidArgument`.
    """
    unjudged = dict.fromkeys(ignored, "ignored")
    if first.is_generated or second.is_generated:
        unjudged = dict.fromkeys(NOT_KEPT, NOT_KEPT_NOTE) | unjudged
    return compare(first.profile, second.profile, threshold=threshold, unjudged=unjudged)
