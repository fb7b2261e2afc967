"""Frames that the disk wrote to a wrong place: the live log, readers without the lock, verify and repair agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory

DIRECTORY = "topics/t/0"
FIRST = f"{DIRECTORY}/00000000000000000000.log"
WORLD: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _worlds(make_world: Any) -> None:
    """Hypothesis cannot take function-scoped fixtures: the maker of worlds is passed by name."""
    WORLD["make"] = make_world


async def written(sizes: list[int], *, size: int = 60) -> tuple[Any, list[int]]:
    """A closed log with one frame of so many records each, and where its frames begin and the last one ends."""
    world = WORLD["make"]()
    await world.open()
    ends = [world.log.size_bytes]
    for count in sizes:
        await world.append(1, count, size=size)
        ends.append(world.log.size_bytes)
    await world.log.close()
    return world, ends


async def read_offline(world: Any) -> tuple[dict[int, bytes | None], set[int]]:
    """All records without the lock, and the offsets that are named as lost."""
    reader = await LogReader.open(await world.disk.incarnate("reader"), DIRECTORY)
    reading = await reader.read(reader.start_offset, max_records=10_000)
    await reader.close()
    records = {
        offset: value
        for columns in reading.batches
        for offset, value in zip(columns.offset_list(), columns.value_list(), strict=True)
    }
    return records, spread(reading.lost)


def spread(ranges: Any) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


async def all_agree(world: Any) -> dict[int, bytes | None]:
    """Read the log in every way there is; returns its records."""
    offline, lost = await read_offline(world)
    (report,) = (await verify_directory(world.disk)).partitions
    named = {
        (problem.first_offset, problem.last_offset)
        for problem in (*report.problems, *report.notes)
        if problem.first_offset is not None and problem.last_offset is not None
    }
    assert lost == spread(named)
    repaired = WORLD["make"]()
    for path, data in world.disk.files().items():
        repaired.disk.plant_file(path, data)
    await repair_directory(repaired.disk)
    assert (await read_offline(repaired))[0] == offline
    await world.open()
    live = await world.contents()
    assert (live, spread(world.lost)) == (offline, lost)
    assert set(live) | lost == set(world.seen)
    assert all(world.seen[offset] == value for offset, value in live.items())
    return live


async def test_frames_in_an_earlier_place_do_not_cost_the_lower_ones_behind_them() -> None:
    """Offsets 24 and 25 lie valid amid the bytes of 17: only these three are lost, and everybody says so."""
    world, ends = await written([1] * 18 + [3, 3, 2, 2], size=600)
    data = bytearray(world.disk.files()[FIRST])
    piece = data[ends[20] : ends[21]]
    data[ends[20] : ends[21]] = bytes(len(piece))
    data[ends[17] + 9 : ends[17] + 9 + len(piece)] = piece
    world.disk.plant_file(FIRST, bytes(data))

    lost = set(world.seen) - set(await all_agree(world))
    assert {24, 25} <= lost <= {17, 18, 19, 20, 24, 25}


async def judge(sizes: list[int], size: int, first: int, last: int, place: int, *, instead: bool) -> None:
    """Let the frames `first` to `last` land at byte `place`, and read the log in every way there is."""
    world, ends = await written(sizes, size=size)
    stored = world.disk.files()[FIRST]
    file, piece = bytearray(stored), stored[ends[first] : ends[last + 1]]
    if instead:
        file[ends[first] : ends[last + 1]] = bytes(len(piece))
    file[place : place + len(piece)] = piece[: ends[-1] - place]
    world.disk.plant_file(FIRST, bytes(file))

    found = await all_agree(world)
    offset = 0
    for count, start, end in zip(sizes, ends, ends[1:], strict=False):
        if file[start:end] == stored[start:end]:
            assert set(range(offset, offset + count)) <= set(found)
        offset += count


@pytest.mark.parametrize(
    ("sizes", "size", "first", "place"),
    [
        pytest.param([1] * 9, 60, 1, 330, id="within its own body"),
        pytest.param([1, 1, 1], 12_000, 0, 188, id="over the first entry of the index"),
        pytest.param([1, 2], 12_000, 1, 128, id="over the beginning"),
    ],
)
async def test_a_frame_in_two_places_is_read_once(
    sizes: list[int], size: int, first: int, place: int
) -> None:
    """A frame that lies in a wrong place as well: nobody is led astray by the index, or by headers that hold."""
    await judge(sizes, size, first, first, place, instead=False)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_wherever_frames_land_all_readers_agree(data: Any) -> None:
    """A write lands anywhere in the file, as well as or instead of where it belongs: what is whole in its place is
    served by the live log, without the lock, and after repair; all else is named by all of them."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=10), label="records")
    size = data.draw(st.sampled_from([60, 12_000]), label="size")
    first = data.draw(st.integers(0, len(sizes) - 1), label="first")
    last = data.draw(st.integers(first, min(first + 2, len(sizes) - 1)), label="last")
    _, ends = await written(sizes, size=size)
    place = data.draw(st.integers(ends[0], ends[-1] - 1), label="place")
    await judge(sizes, size, first, last, place, instead=data.draw(st.booleans(), label="instead"))
