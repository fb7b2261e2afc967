"""A tail torn at every length: the process, or the power, ended in the middle of an append."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.log.format.columns import Columns
from callboard.log.format.frame import encode_frame
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header

BEFORE = {0: b"first", 1: b"second"}


def id_of(data: bytes) -> int:
    """The id in a segment's header."""
    return decode_segment_header(data).segment_id


def frame(value: bytes, segment_id: int, offset: int) -> bytes:
    """A frame with one record, as a segment of that id would hold it at that offset."""
    return b"".join(
        encode_frame(Columns.build([value]), segment_id=segment_id, base_offset=offset, append_time_us=0)
    )


def walked(data: bytes) -> FrameWalk:
    """A walk over the whole segment."""
    walk = FrameWalk(id_of(data), 0, file_end=len(data))
    walk.feed(data[SEGMENT_HEADER_BYTES:])
    return walk


async def torn(world: Any, payload: Any) -> tuple[str, bytes, bytes]:
    """A disk with two records; returns (segment's path, its content, the frame that a third append would write).

    `payload` makes the third record's value from the segment's content.
    """
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders")
        for value in BEFORE.values():
            await topic.publish(value)
    (path,) = world.segments()
    data = world.disk.files()[path]
    end = walked(data).end
    return path, data[:end], frame(payload(data[:end]), id_of(data), 2)


async def check(world: Any, expected: dict[int, bytes]) -> None:
    """The log holds what is expected and goes on behind it; a group gets just that."""
    async with world.open() as runtime:
        assert await world.values(runtime) == expected
        receipt = await runtime.topic("orders").publish(b"after")
        assert receipt.offset == len(expected)
        expected = {**expected, receipt.offset: b"after"}
        assert await world.values(runtime) == expected
        assert await world.drain(runtime) == expected
        (part,) = await runtime.topic("orders").describe()
        assert (part.state, part.damages) == ("running", ())


def ordinary(_: bytes) -> bytes:
    """A payload like any other."""
    return b"torn"


def own_frame(data: bytes) -> bytes:
    """A payload that is an earlier frame of the same segment, byte for byte."""
    return data[walked(data).positions[-1] :]


def foreign_frame(data: bytes) -> bytes:
    """A payload that is a valid frame of another segment, with the offset that would come next."""
    return frame(b"never published", id_of(data) ^ 1, 3)


def foreign_frame_here(data: bytes) -> bytes:
    """The same with the offset of the record that holds it."""
    return frame(b"never published", id_of(data) ^ 1, 2)


PAYLOADS = [ordinary, own_frame, foreign_frame, foreign_frame_here]


@pytest.mark.parametrize("ahead", [0, 4096], ids=["file ends", "zeros follow"])
@pytest.mark.parametrize("payload", PAYLOADS, ids=[payload.__name__ for payload in PAYLOADS])
async def test_a_torn_append_is_as_if_it_had_not_been(
    autojump_clock: Any, world: Any, payload: Any, ahead: int
) -> None:
    """Whatever part of the last frame is there, nothing of it is served, and publishing goes on at its offset."""
    path, data, last = await torn(world, payload)
    start = world.disk.snapshot()
    for length in range(1, len(last), 1 if payload is own_frame else 7):
        world.disk.restore(start)
        world.put(path, data + last[:length] + bytes(ahead))
        await check(world, {**BEFORE, 2: payload(data)} if _is_whole(last[:length], last, ahead) else BEFORE)


def _is_whole(part: bytes, frame: bytes, ahead: int) -> bool:
    """Whether what is missing are zeros that follow anyway."""
    return (part + bytes(ahead))[: len(frame)] == frame


@pytest.mark.parametrize("payload", PAYLOADS, ids=[payload.__name__ for payload in PAYLOADS])
async def test_a_whole_last_frame_is_served_as_one_record(
    autojump_clock: Any, world: Any, payload: Any
) -> None:
    """An append that nobody was told of, but whose every byte arrived, is a record like any other."""
    path, data, last = await torn(world, payload)
    world.put(path, data + last)
    await check(world, {**BEFORE, 2: payload(data)})


async def test_an_append_with_a_hole_is_torn_as_well(autojump_clock: Any, world: Any) -> None:
    """Sectors of a write arrive in any order: zeros anywhere in the last frame void it."""
    path, data, last = await torn(world, own_frame)
    start = world.disk.snapshot()
    for hole in range(0, len(last), 8):
        world.disk.restore(start)
        part = last[:hole] + bytes(len(last[hole : hole + 8])) + last[hole + 8 :]
        world.put(path, data + part + bytes(4096))
        await check(world, {**BEFORE, 2: own_frame(data)} if part == last else BEFORE)
