"""From columns to the files of a recording, and what its manifest says of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import callboard
from callboard.log.errors import FormatTooNew, InvalidArgument, RecordingInvalid
from callboard.log.format.columns import Columns
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.log.offline.reader import LogReader
from callboard.recordings.encoder import Append, Begin, Output, PartitionEncoder, Whole
from callboard.recordings.key_count import KEPT, KeyCount
from callboard.recordings.manifest import Manifest, decode_manifest

START_US = 1_700_000_000_000_000


def batch(first: int, count: int, value_bytes: int = 100) -> Columns:
    """Records with keys, headers and event times, a millisecond apart."""
    numbers = range(first, first + count)
    columns = Columns.build(
        [b"%d" % number + bytes(value_bytes) for number in numbers],
        [b"key-%d" % (number % 7) for number in numbers],
        [{"number": b"%d" % number} for number in numbers],
        [START_US + 1000 * number for number in numbers],
    )
    columns.append_time_us = START_US + 1000 * first
    return columns


def files_of(outputs: list[Output]) -> dict[str, bytes]:
    """The files that come of it."""
    files: dict[str, bytes] = {}
    begun = ""
    for output in outputs:
        match output:
            case Begin(name):
                begun = name
                files[begun] = b""
            case Append(buffers):
                files[begun] += b"".join(buffers)
            case Whole(name, data):
                files[name] = data
    return files


def encoded(*batches: Columns, seed: str = "s", **settings: Any) -> tuple[dict[str, bytes], PartitionEncoder]:
    """The files of partition 0."""
    encoder = PartitionEncoder(0, seed=seed, segment_bytes=SEGMENT_BYTES_MIN, **settings)
    outputs = [output for columns in batches for output in encoder.add(columns)]
    return files_of(outputs + encoder.finish()), encoder


def manifest(*batches: Columns) -> Manifest:
    """What the manifest says of a recording with one partition."""
    _, encoder = encoded(*batches)
    keys = encoder.keys.distinct, encoder.keys.is_exact
    return Manifest(source={"made": "by hand"}, keys=keys, partitions=(encoder.row,))


async def test_what_was_encoded_is_a_log(world: Any) -> None:
    """A reader of logs reads it back: values, keys, headers and times, over several segments."""
    batches = [batch(500 * index, 500) for index in range(5)]
    files, encoder = encoded(*batches)
    assert sum(name.endswith(".log") for name in files) > 1
    for name, data in files.items():
        world.put(f"0/{name}", data)
    reader = await LogReader.open(await world.disk.incarnate("reads"), "0")
    assert (reader.start_offset, reader.visible_end) == (0, 2500)
    found: list[Columns] = []
    while (offset := sum(len(part) for part in found)) < 2500:
        reading = await reader.read(offset)
        assert not reading.lost
        found += reading.batches
    for name in ("value_list", "key_list", "header_list"):
        expected = [item for part in batches for item in getattr(part, name)()]
        assert [item for part in found for item in getattr(part, name)()] == expected
    times = [time for part in found for time in part.event_times or ()]
    assert times == [START_US + 1000 * number for number in range(2500)]
    assert await reader.offset_at(START_US + 1000 * 1500) == 1500
    await reader.close()
    assert encoder.row.records == 2500


def test_bytes_depend_on_batches_partition_and_seed_alone() -> None:
    """Twice the same is the same; another seed has other checksums."""
    files, _ = encoded(batch(0, 10), batch(10, 10))
    again, _ = encoded(batch(0, 10), batch(10, 10))
    assert files == again
    other, _ = encoded(batch(0, 10), batch(10, 10), seed="other")
    assert other.keys() == files.keys()
    assert other != files


def test_a_row_says_what_the_files_hold() -> None:
    """Digests and sizes of the files; records, bytes and times of what is in them."""
    files, encoder = encoded(*(batch(500 * index, 500) for index in range(3)))
    for segment in encoder.row.segments:
        data = files[segment.name]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (segment.size_bytes, segment.sha256)
    assert encoder.row.first_time_us == START_US
    assert encoder.row.last_time_us == START_US + 1000 * 1499
    assert encoder.row.is_ordered
    assert encoder.row.payload_bytes == sum(batch(500 * index, 500).size_bytes for index in range(3))
    assert (encoder.keys.distinct, encoder.keys.is_exact) == (7, True)


@pytest.mark.parametrize("order", [(10, 0), (0, 10), (0, 0)])
def test_times_that_fall_are_told(order: tuple[int, int]) -> None:
    """From one batch to the next, too."""
    _, encoder = encoded(*(batch(first, 10) for first in order))
    assert encoder.row.is_ordered == (order == (0, 10))


def test_an_empty_partition_has_an_end_and_nothing_else() -> None:
    """And no times."""
    files, encoder = encoded(Columns.build([]))
    assert list(files) == ["committed"]
    assert encoder.row.segments == ()
    assert encoder.row.first_time_us is None
    assert decode_manifest(Manifest(partitions=(encoder.row,)).encode(), "m").records == 0


def test_a_segment_size_out_of_range_is_refused() -> None:
    """Before anything is encoded."""
    with pytest.raises(InvalidArgument, match="segment_bytes is 1"):
        PartitionEncoder(0, segment_bytes=1)


def test_a_manifest_comes_back_and_keeps_what_it_does_not_know() -> None:
    """Optional fields of later versions survive."""
    made = manifest(batch(0, 1000), batch(1000, 1000))
    assert decode_manifest(made.encode(), "m") == made
    found = json.loads(made.encode()) | {"later": [1, 2]}
    kept = decode_manifest(json.dumps(found).encode(), "m")
    assert json.loads(kept.encode()) == found


def test_a_newer_manifest_is_refused() -> None:
    """By its version, with the remedy."""
    found = json.loads(manifest(batch(0, 1)).encode()) | {"version": 2}
    with pytest.raises(FormatTooNew, match="Upgrade"):
        decode_manifest(json.dumps(found).encode(), "m")


def paths_of(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each field below `found`."""
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [path] * bool(path) + [deeper for key, item in items for deeper in paths_of(item, (*path, key))]


FOUND = json.loads(manifest(batch(0, 1000), batch(1000, 1000)).encode())
FREE = {"source", "made", "distinct", "is_exact", "is_ordered"}
"""What nothing else in the manifest contradicts."""
VALUES = (
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5) | st.lists(st.integers(0, 3))
)


@given(path=st.sampled_from([path for path in paths_of(FOUND) if path[-1] not in FREE]), value=VALUES)
def test_a_field_that_is_wrong_is_named(path: tuple[Any, ...], value: Any) -> None:
    """Whatever stands there instead: nothing of it is believed, and nothing but our errors is raised."""
    found = json.loads(json.dumps(FOUND))
    below = found
    for key in path[:-1]:
        below = below[key]
    if json.dumps(below[path[-1]]) == json.dumps(value):
        return
    below[path[-1]] = value
    with pytest.raises((RecordingInvalid, FormatTooNew)):
        decode_manifest(json.dumps(found).encode(), "m")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"format": "other"}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    """With the file named."""
    with pytest.raises(RecordingInvalid, match=r"here/recording\.json"):
        decode_manifest(data, "here/recording.json")


def test_keys_are_counted_exactly_while_they_are_few() -> None:
    """Twice is once, None is no key, and parts make the whole."""
    one, two = KeyCount(), KeyCount()
    one.add([b"a", b"b", None, b"a"])
    two.add([b"b", b"c", b""])
    one.merge(two)
    one.merge(KeyCount(two.hashes))
    assert (one.distinct, one.is_exact) == (4, True)


def test_many_keys_are_estimated_within_a_few_percent() -> None:
    """However they are divided and merged, the estimate is the same."""
    count = 20 * KEPT
    parts = [KeyCount() for _ in range(3)]
    whole = KeyCount()
    for first in range(0, count, 1000):
        keys = [b"key-%d" % number for number in range(first, first + 1000)]
        whole.add(keys)
        parts[first % 3].add(keys)
    merged = KeyCount()
    for part in reversed(parts):
        merged.merge(part)
    assert merged.distinct == whole.distinct
    assert not merged.is_exact
    assert abs(merged.distinct - count) < count * 0.03


def test_a_count_that_was_stored_says_what_it_said_before() -> None:
    """Also where it keeps just as many hashes as it may."""
    for many in (KEPT - 1, KEPT, KEPT + 1):
        count = KeyCount()
        count.add([b"key-%d" % number for number in range(many)])
        stored = KeyCount(count.hashes)
        assert (stored.distinct, stored.is_exact) == (count.distinct, count.is_exact)
        assert count.is_exact == (many < KEPT)


def test_the_error_is_public() -> None:
    """Users can catch it by name."""
    assert issubclass(callboard.RecordingInvalid, callboard.StorageError)
