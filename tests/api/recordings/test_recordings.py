"""Recordings on a disk: whole or not there, and never believed unseen."""

from __future__ import annotations

import json
from contextlib import aclosing, suppress
from typing import Any

import pytest
import trio

import callboard
from callboard.log.errors import InvalidArgument, RecordingInvalid
from callboard.log.format.columns import Columns
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.log.seams.disk import Unlink
from callboard.recordings.reader import Recording, Span, open_recording
from callboard.recordings.tally import times_of
from callboard.recordings.writer import new_recording

START_US = 1_700_000_000_000_000
PARTITIONS = 2


def batch(first: int, count: int = 200, value_bytes: int = 200) -> Columns:
    """Records with keys and event times, a second apart."""
    numbers = range(first, first + count)
    columns = Columns.build(
        [b"%d" % number + bytes(value_bytes) for number in numbers],
        [b"key-%d" % (number % 7) for number in numbers],
        event_times=[START_US + 1_000_000 * number for number in numbers],
    )
    columns.append_time_us = START_US + 1_000_000 * first
    return columns


async def write(files: Any, name: str = "day", batches: int = 10) -> None:
    """A recording of two partitions and several segments; partition 1 has the odd batches."""
    source = {"made": "by a test"}
    async with new_recording(
        files, name, partitions=PARTITIONS, source=source, segment_bytes=SEGMENT_BYTES_MIN
    ) as writer:
        for index in range(batches):
            await writer.append(index % PARTITIONS, batch(200 * index))


async def remove(files: Any, path: str) -> None:
    """Remove a file."""
    await files.submit((Unlink(path),))


async def values(recording: Recording, partition: int, **options: Any) -> list[bytes | None]:
    """The values of a partition."""
    found: list[bytes | None] = []
    async with aclosing(await recording.read(partition, **options)) as parts:
        async for columns in parts:
            found += columns.value_list()
    return found


async def test_what_was_recorded_is_read(world: Any) -> None:
    """By partition, in order, over several segments; and verify finds nothing."""
    files = await world.disk.incarnate("records")
    await write(files)
    recording = await open_recording(files, "day")
    assert (recording.manifest.records, recording.manifest.keys) == (2000, (7, True))
    assert len(recording.manifest.partitions[0].segments) > 1
    for partition in range(PARTITIONS):
        expected = [value for index in range(partition, 10, 2) for value in batch(200 * index).value_list()]
        assert await values(recording, partition) == expected
        assert await values(recording, partition, start=555) == expected[555:]
    assert await recording.faults() == []
    assert [entry.name for entry in await files.list("")] == ["day"]


async def test_a_span_of_time_is_read(world: Any) -> None:
    """From its beginning on, without its end; also within a batch."""
    files = await world.disk.incarnate("records")
    await write(files)
    recording = await open_recording(files, "day")
    times: list[int] = []
    span = Span(START_US + 150_000_000, START_US + 450_000_000)
    async with aclosing(await recording.read(0, span=span)) as parts:
        async for columns in parts:
            times += times_of(columns)
    assert times == [START_US + 1_000_000 * number for number in (*range(150, 200), *range(400, 450))]
    assert await values(recording, 0, span=Span(START_US + 10**12)) == []


async def test_nothing_is_left_of_a_recording_that_failed(world: Any) -> None:
    """Whatever raised, the name is free afterwards."""
    files = await world.disk.incarnate("records")
    with pytest.raises(ValueError, match="a drill"):
        async with new_recording(files, "day", partitions=1) as writer:
            await writer.append(0, batch(0))
            raise ValueError("a drill")
    assert await files.list("") == []
    await write(files)


async def test_a_full_disk_is_told_and_leaves_nothing(world: Any) -> None:
    """The error is the disk's."""
    files = await world.disk.incarnate("records")
    world.disk.fill(slack_bytes=100_000)
    with pytest.raises(callboard.DiskFull, match=r"day cannot be written: No space.*Free space"):
        await write(files)
    assert await files.list("") == []


async def test_a_recording_is_whole_or_not_there_after_a_power_cut(world: Any) -> None:
    """Cut after every verb: without the manifest there is no recording, with it every byte is there."""
    verbs = 0
    is_whole = False
    while not is_whole:
        verbs += 1
        world.disk.crash_after(verbs)

        async def end_with_power(life: trio.CancelScope) -> None:
            await world.disk.crashed.wait()
            life.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_with_power, nursery.cancel_scope)
            with suppress(callboard.StorageError):
                await write(await world.disk.incarnate(f"life {verbs}"), f"day-{verbs}", batches=4)
            nursery.cancel_scope.cancel()
        world.disk.power_on()
        files = await world.disk.incarnate(f"looks {verbs}")
        try:
            recording = await open_recording(files, f"day-{verbs}")
        except RecordingInvalid:
            continue
        assert await recording.faults() == []
        assert recording.manifest.records == 800
        is_whole = True
    assert verbs > 20


@pytest.mark.parametrize("name", ["day", "sub"])
async def test_a_name_that_is_taken_is_refused(world: Any, name: str) -> None:
    """Before anything is written."""
    files = await world.disk.incarnate("records")
    await write(files, name)
    with pytest.raises(InvalidArgument, match="there already"):
        await write(files, name)
    assert [entry.name for entry in await files.list("")] == [name]


async def test_damage_is_named_and_never_served(world: Any) -> None:
    """A byte that flipped, a missing file, one too many, one that is too short, no manifest."""
    files = await world.disk.incarnate("records")
    await write(files)
    recording = await open_recording(files, "day")
    first, second = recording.manifest.partitions[0].segments[:2]
    path = f"day/0/{first.name}"
    data = world.disk.files()[path]
    world.put(path, data[:500] + bytes([data[500] ^ 1]) + data[501:])
    recording = await open_recording(files, "day")
    assert [first.name in str(fault) for fault in await recording.faults()] == [True]
    with pytest.raises(RecordingInvalid, match="offsets 0 to 199 of partition 0 are damaged"):
        await values(recording, 0)
    world.put(path, data[:-1])
    with pytest.raises(RecordingInvalid, match="bytes, not"):
        await open_recording(files, "day")
    world.put(path, data)
    world.put("day/0/00000000000000999999.log", data)
    with pytest.raises(RecordingInvalid, match="999999"):
        await open_recording(files, "day")
    await remove(files, "day/0/00000000000000999999.log")
    await remove(files, f"day/0/{second.name}")
    with pytest.raises(RecordingInvalid, match=r"\.log is missing"):
        await open_recording(files, "day")
    await remove(files, "day/recording.json")
    with pytest.raises(RecordingInvalid, match=r"no recording\.json"):
        await open_recording(files, "day")


async def test_a_partition_without_its_end_is_not_empty(world: Any) -> None:
    """The file `committed` says how many records there are; the manifest knows better."""
    files = await world.disk.incarnate("records")
    await write(files)
    await remove(files, "day/1/committed")
    recording = await open_recording(files, "day")
    with pytest.raises(
        RecordingInvalid, match=r"partition 1 is to hold offsets 0 to 1000.*day/1/committed, is gone"
    ):
        await values(recording, 1)
    assert ["partition 1" in str(fault) for fault in await recording.faults()] == [True]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("payload_bytes", lambda row: row["payload_bytes"] + 1),
        ("is_ordered", lambda row: not row["is_ordered"]),
        ("first_time_us", lambda row: row["first_time_us"] - 1),
        ("last_time_us", lambda row: row["last_time_us"] + 1),
        ("distinct", lambda keys: keys["distinct"] + 1),
    ],
)
async def test_numbers_of_a_manifest_are_counted_again(world: Any, field: str, change: Any) -> None:
    """Also those that fit to each other."""
    files = await world.disk.incarnate("records")
    await write(files)
    found = json.loads(world.disk.files()["day/recording.json"])
    place = found["keys"] if field == "distinct" else found["partitions"][0]
    before, place[field] = place[field], change(place)
    if field in found:
        rows = [row[field] for row in found["partitions"]]
        whole = {"payload_bytes": sum, "first_time_us": min, "last_time_us": max}
        found[field] = whole[field](rows)
    world.put("day/recording.json", json.dumps(found).encode())
    faults = await (await open_recording(files, "day")).faults()
    assert [str(before) in str(fault) for fault in faults] == [True]


async def test_names_in_a_manifest_lead_nowhere_else(world: Any) -> None:
    """A path in place of a segment's name is refused."""
    files = await world.disk.incarnate("records")
    await write(files)
    found = json.loads(world.disk.files()["day/recording.json"])
    found["partitions"][0]["segments"][0]["name"] = "../../secret"
    world.put("day/recording.json", json.dumps(found).encode())
    with pytest.raises(RecordingInvalid, match=r"name is .*secret"):
        await open_recording(files, "day")


async def test_what_is_not_there_is_refused(world: Any) -> None:
    """Partitions, and spans that end before they begin."""
    files = await world.disk.incarnate("records")
    await write(files)
    recording = await open_recording(files, "day")
    with pytest.raises(InvalidArgument, match="no partition 2"):
        await values(recording, 2)
    with pytest.raises(InvalidArgument, match="empty"):
        Span(5, 5)
    with pytest.raises(InvalidArgument, match="0 partitions"):
        async with new_recording(files, "none", partitions=0):
            pass
