"""A file of noise that has the name of a segment, at each offset of a log, costs nothing: all that look say so."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
import trio

from callboard.actors.notices import DamageFound, JournalSalvaged
from callboard.log.format.frame import FRAME_MAGIC
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.segments.segment_file import base_offset_of, segment_path
from callboard.simulations.disk.memory_disk import MemoryDisk

RECORDS = 12
BEHIND = 3
"""Names behind the end that are tried too."""


def spoil(world: Any, path: str, start: int) -> None:
    """Spoil a byte at the start of the file, or of a frame of it."""
    world.disk.flip(path, start)


def damage_nothing(world: Any) -> None:
    """Every record is there."""


def damage_middle(world: Any) -> None:
    """The first segment has lost a frame that is neither its first nor its last."""
    path = world.segments()[0]
    data = world.disk.files()[path]
    spoil(world, path, data.index(FRAME_MAGIC, data.index(FRAME_MAGIC, SEGMENT_HEADER_BYTES) + 1))


def damage_end(world: Any) -> None:
    """The last segment has lost its frames, and the first one as `damage_middle` says."""
    damage_middle(world)
    path = world.segments()[-1]
    at, data = 0, world.disk.files()[path]
    while (at := data.find(FRAME_MAGIC, at + 1)) > 0:
        spoil(world, path, at)


def damage_header(world: Any) -> None:
    """A segment in the middle has lost its header, and has no index."""
    path = world.segments()[1]
    for byte in (20, 84):
        spoil(world, path, byte)


def offsets_of(spans: Iterable[tuple[int | None, int | None]]) -> set[int]:
    """All offsets in the spans, both ends included."""
    return {
        offset
        for first, last in spans
        if first is not None and last is not None
        for offset in range(first, last + 1)
    }


async def verified(disk: MemoryDisk) -> set[int]:
    """What verify calls lost, now or earlier."""
    report = await verify_directory(disk)
    found = (*report.problems, *report.notes)
    return offsets_of((each.first_offset, each.last_offset) for each in found)


async def opened(world: Any) -> tuple[set[int], dict[int, bytes]]:
    """What the runtime calls lost when it has opened the topic and read it, and the records."""
    told: list[DamageFound] = []

    def hear(event: Any) -> None:
        if isinstance(event, DamageFound):
            told.append(event)

    async with world.open(on_event=hear) as runtime:
        values = await world.values(runtime)
        (part,) = await runtime.topic("orders").describe()
    lost = offsets_of((each.first_offset, each.last_offset) for each in told)
    assert part.lost_records == len(lost)
    return lost, values


async def read_beside(disk: MemoryDisk, directory: str) -> dict[int, bytes]:
    """What a reader of another process finds."""
    reader = await LogReader.open(await disk.incarnate("reader"), directory)
    found: dict[int, bytes] = {}
    offset = reader.start_offset
    while offset < reader.visible_end:
        reading = await reader.read(offset)
        for columns in reading.batches:
            found.update(zip(columns.offset_list(), columns.value_list(), strict=True))
        offset = reading.next_offset
    await reader.close()
    return found


@pytest.mark.parametrize("is_kept", [True, False], ids=["all is there", "retention dropped the beginning"])
@pytest.mark.parametrize("is_repaired", [False, True], ids=["as it is", "after a repair"])
@pytest.mark.parametrize("damage", [damage_nothing, damage_middle, damage_end, damage_header])
async def test_a_file_of_noise_costs_nothing_whatever_offset_it_is_named_by(
    autojump_clock: Any, world: Any, damage: Any, is_repaired: bool, is_kept: bool
) -> None:
    """Opening, verify, repair and a reader beside find the records, and the losses, that they find without it."""
    noise = random.Random(1)
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=65_536)
        for _ in range(RECORDS):
            await topic.publish(noise.randbytes(12_000))
        if not is_kept:
            await runtime.alter_topic("orders", retention_bytes=120_000)
            await trio.sleep(600)
            assert (await topic.describe())[0].start_offset > 0
    damage(world)
    if is_repaired:
        await repair_directory(world.disk)
    directory = f"topics/{topic.topic_id}/0"
    files = world.disk.files()

    def copied(name: int | None = None) -> Any:
        other = type(world)(MemoryDisk(clock=world.clock), world.clock)
        for path, data in files.items():
            other.put(path, data)
        if name is not None:
            other.put(segment_path(directory, name), noise.randbytes(200))
        return other

    expected = await opened(copied())
    is_readable = damage is not damage_header or is_repaired
    assert expected[0] == await verified(world.disk)
    taken = {base_offset_of(path.rpartition("/")[2]) for path in world.segments()}
    for name in sorted(set(range(RECORDS + BEHIND)) - taken):
        beside = copied(name)
        assert (name, expected[0]) == (name, await verified(beside.disk))
        if is_readable and name not in expected[0]:  # else it may be what held them
            assert (name, expected[1]) == (name, await read_beside(beside.disk, directory))
        assert (name, expected) == (name, await opened(beside))
        mended = copied(name)
        lost = (await repair_directory(mended.disk)).lost
        assert (name, offsets_of((first, last) for _, first, last in lost) - expected[0]) == (name, set())
        assert (name, expected) == (name, await opened(mended))


@pytest.mark.parametrize("is_copy", [False, True], ids=["noise", "a copy"])
async def test_a_file_in_a_delivery_journal_that_costs_nothing_is_not_reported(
    autojump_clock: Any, world: Any, is_copy: bool
) -> None:
    """Groups go on where they were, and no damage of a journal is reported."""
    told: list[Any] = []
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"one", b"two"])
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    (segment,) = world.journals()
    content = world.disk.files()[segment] if is_copy else random.Random(1).randbytes(200)
    world.put(segment_path(segment.rpartition("/")[0], 1), content)
    async with world.open(on_event=told.append) as runtime:
        assert {1: b"two"} == await world.drain(runtime)
    assert [] == [event for event in told if isinstance(event, JournalSalvaged)]
