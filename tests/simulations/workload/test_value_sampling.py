"""Which values of a recording are learned from, and that nothing else counts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from callboard.recordings.manifest import Manifest, PartitionRow, SegmentRow
from callboard.simulations.workload.value_sampling import (
    STRETCH_RECORDS,
    STRETCHES,
    stretches_of,
)


def manifest_of(counts: list[int], bytes_each: int) -> Manifest:
    """Of a recording with this many records in each partition."""
    rows = [
        PartitionRow(
            segments=(SegmentRow(base_offset=0, records=many, size_bytes=1, sha256="0" * 64),)
            if many
            else (),
            payload_bytes=many * bytes_each,
        )
        for many in counts
    ]
    return Manifest(partitions=tuple(rows))


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=40), st.integers(0, 100_000))
def test_stretches_lie_in_the_recording_and_apart(counts: list[int], bytes_each: int) -> None:
    """However many records there are, however long, in however many partitions."""
    found = stretches_of(manifest_of(counts, bytes_each))
    assert len(found) <= STRETCHES
    assert bool(found) == any(counts)
    for partition, start, stop in found:
        assert 0 <= start < stop <= counts[partition]
        assert stop - start <= STRETCH_RECORDS[1]
    for one, two in pairwise(found):
        assert one[0] < two[0] or one[2] <= two[1]


def test_stretches_go_through_all_of_a_recording() -> None:
    """Of one partition in sixteen steps, and of four in as many, each of which has its share."""
    starts = [start for _, start, _ in stretches_of(manifest_of([160_000], 64))]
    assert [round(start / 10_000) for start in starts] == list(range(16))
    partitions = [partition for partition, _, _ in stretches_of(manifest_of([40_000] * 4, 64))]
    assert [partitions.count(partition) for partition in range(4)] == [4, 4, 4, 4]
