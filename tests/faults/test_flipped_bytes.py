"""A flipped byte anywhere in any segment; index files that are gone, or garbage."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import trio

from callboard.actors.notices import JournalSalvaged

SEGMENTS, PER_SEGMENT = 4, 3
LARGE = 1024 * 1024
"""Segments that grow by so many bytes have index files."""


async def fill(world: Any) -> dict[int, bytes]:
    """A topic of several small segments, rolled by age, cleanly closed; a group has settled the first record."""
    expected: dict[int, bytes] = {}
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_age=60.0)
        for _ in range(SEGMENTS):
            for _ in range(PER_SEGMENT):
                value = b"record %d" % len(expected)
                receipt = await topic.publish(value, key=b"key")
                expected[receipt.offset] = value
            await trio.sleep(100.0)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    return expected


async def fill_large(world: Any) -> dict[int, bytes]:
    """The same with segments large enough to have indexes."""
    expected: dict[int, bytes] = {}
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=2 * LARGE)
        while sum(map(len, expected.values())) < 5 * LARGE:
            value = b"record %d" % len(expected) + bytes(LARGE // 10)
            receipt = await topic.publish(value)
            expected[receipt.offset] = value
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    return expected


OFFSETS = re.compile(r"(?:offsets |first=)(\d+)(?: to |, last=)(\d+)")


def named(part: Any) -> set[int]:
    """The offsets that a partition's statistics name as lost; what a journal lost is no offset."""
    found: set[int] = set()
    for text in (*part.damages, *part.gaps):
        for first, last in OFFSETS.findall(text):
            found.update(range(int(first), int(last) + 1))
    return found


async def check(world: Any, expected: dict[int, bytes], what: str) -> set[int]:
    """The damaged log opens, serves all but what it names, and goes on; returns what is lost."""
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        found = await world.values(runtime)
        lost = set(expected) - set(found)
        assert found == {offset: expected[offset] for offset in found}, what
        (part,) = await topic.describe()
        assert lost <= named(part), (what, part.damages, part.gaps)
        assert named(part) & set(found) == set(), what
        receipt = await topic.publish(b"after")
        assert receipt.offset >= len(expected), what
        found[receipt.offset] = b"after"
        assert await world.values(runtime) == found, what
        assert await world.drain(runtime) == {o: v for o, v in found.items() if o != 0}, what
        (part,) = await topic.describe()
        assert part.groups[0].pending == 0, what
    async with world.open() as runtime:
        assert await world.values(runtime) == found, what
    return lost


def places(world: Any, every: int) -> list[tuple[str, int]]:
    """Every byte, or a sample, of each segment up to where its frames end (zeros that follow are no record's)."""
    chosen = []
    for path in world.segments():
        size = len(world.disk.files()[path].rstrip(b"\0")) + 8
        draw = random.Random(path)
        chosen += [(path, place) for place in range(size) if every == 1 or draw.randrange(every) == 0]
    return chosen


async def flip_and_check(world: Any, expected: dict[int, bytes], every: int) -> None:
    """Flip one byte after the other, each on the undamaged disk."""
    start, losses = world.disk.snapshot(), set()
    for path, place in places(world, every):
        world.disk.restore(start)
        mask = 1 << place % 8
        if place >= len(world.disk.files()[path]):
            continue
        world.disk.flip(path, place, mask)
        lost = await check(world, expected, f"{path} byte {place} ^ {mask}")
        assert len(lost) <= 1, f"{path} byte {place}: {lost}"
        losses |= lost
    assert every > 1 or losses == set(expected)


async def test_a_flipped_byte_costs_one_record(autojump_clock: Any, world: Any) -> None:
    """Whatever byte rots: the log opens, serves all others, names the lost offset and goes on publishing."""
    await flip_and_check(world, await fill(world), every=8)


@pytest.mark.slow
async def test_every_flipped_byte_costs_one_record(autojump_clock: Any, world: Any) -> None:
    """The same for every byte of every segment."""
    await flip_and_check(world, await fill(world), every=1)


async def test_a_flipped_byte_in_a_delivery_journal_forgets_no_message(
    autojump_clock: Any, world: Any
) -> None:
    """Whatever byte of the journal rots: every record is read, and none that was unacked is withheld."""
    expected = await fill(world)
    (path,) = world.journals()
    start = world.disk.snapshot()
    size, salvaged = len(world.disk.files()[path].rstrip(b"\0")), 0
    for place in range(0, size, 3):
        world.disk.restore(start)
        world.disk.flip(path, place, 1 << place % 8)
        what = f"{path} byte {place} of {size}"
        async with world.open() as runtime:
            assert await world.values(runtime) == expected, what
            salvaged += any(isinstance(logged.event, JournalSalvaged) for logged in runtime.events())
            receipt = await runtime.topic("orders").publish(b"after")
            assert receipt.offset == len(expected), what
            found = await world.drain(runtime)
            assert set(found) | {0} == {*expected, receipt.offset}, what
        async with world.open() as runtime:
            assert await world.drain(runtime) == {}, what
    assert salvaged > 0


@pytest.mark.parametrize("content", ["gone", "empty", "garbage", "zeros", "another's", "older"])
async def test_an_index_file_is_never_believed(autojump_clock: Any, world: Any, content: str) -> None:
    """Index files that are gone, garbage or somebody else's cost nothing but time."""
    expected = await fill_large(world)
    indexes = sorted(path for path in world.disk.files() if path.endswith(".index"))
    assert len(indexes) >= 2
    contents = [world.disk.files()[path] for path in indexes]
    for place, path in enumerate(indexes):
        if content == "gone":
            world.disk.tree.unlink(path)
            continue
        data = contents[place]
        world.put(
            path,
            {
                "empty": b"",
                "garbage": random.Random(place).randbytes(len(data)),
                "zeros": bytes(len(data)),
                "another's": contents[place - 1],
                "older": data[: len(data) // 2],
            }[content],
        )
    assert await check(world, expected, content) == set()


async def test_a_flipped_byte_in_an_index_file_costs_nothing(autojump_clock: Any, world: Any) -> None:
    """Whatever byte of an index rots, every record is served."""
    expected = await fill_large(world)
    start = world.disk.snapshot()
    path = min(path for path in world.disk.files() if path.endswith(".index"))
    for place in range(0, len(world.disk.files()[path].rstrip(b"\0")), 11):
        world.disk.restore(start)
        world.disk.flip(path, place, 1 << place % 8)
        assert await check(world, expected, f"{path} byte {place}") == set()


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"\xff" * 64, b"garbage"])
async def test_a_committed_file_of_garbage_costs_nothing(
    autojump_clock: Any, world: Any, content: bytes
) -> None:
    """The file that says what is proven may be anything: then nothing is, and all is proven anew."""
    expected = await fill(world)
    (path,) = (path for path in world.disk.files() if path.endswith("/0/committed"))
    world.put(path, content)
    assert await check(world, expected, repr(content)) == set()
