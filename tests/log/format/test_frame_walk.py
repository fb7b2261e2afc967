"""Walking from frame to frame: the three drivers, torn tails, damage, and payloads that look like frames."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.log import limits
from callboard.log.errors import FormatTooNew, InternalError
from callboard.log.format import frame as frames
from callboard.log.format import frame_walk
from callboard.log.format.columns import Columns
from callboard.log.format.faults import FaultReason, FrameInvalid
from callboard.log.format.frame import (
    FRAME_HEADER_BYTES,
    FrameFields,
    FrameHeader,
    decode_body,
    decode_header,
    encode_frame,
)
from callboard.log.format.frame_walk import (
    BEYOND_ALL,
    EVERYTHING,
    LOOK_AHEAD_BYTES,
    DamagedRange,
    FrameWalk,
    Tail,
    run_walk_async,
    run_walk_cached,
)
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, decode_segment_header, encode_segment_header

SEGMENT = 0xABCDEF0123456789
OTHER = 0x55


def frame_of(values: list[bytes | None], base_offset: int, segment_id: int = SEGMENT) -> bytes:
    columns = Columns.build(values, [b"k"] * len(values))
    buffers = encode_frame(
        columns, segment_id=segment_id, base_offset=base_offset, append_time_us=base_offset
    )
    return b"".join(buffers)


def segment_of(
    *batches: list[bytes | None], base_offset: int = 7
) -> tuple[bytes, list[tuple[int, int, int]]]:
    """A segment and the (position, first offset, last offset) of its frames."""
    data = encode_segment_header(segment_id=SEGMENT, base_offset=base_offset, created_us=1)
    places = []
    for values in batches:
        places.append((len(data), base_offset, base_offset + len(values) - 1))
        data += frame_of(values, base_offset)
        base_offset += len(values)
    return data, places


def walked(file: bytes, base_offset: int = 7, **settings: Any) -> FrameWalk:
    """A walk that was fed the whole file at once."""
    walk = FrameWalk(SEGMENT, base_offset, file_end=len(file), **settings)
    if walk.need is not None:
        walk.feed(file[walk.need.position :])
    return walk


def fed(walk: FrameWalk, pread: Callable[[int, int], bytes]) -> FrameWalk:
    """The walk, fed by plain reads to its end."""
    while (need := walk.need) is not None:
        walk.feed(pread(need.position, need.length))
    return walk


def frames_in(file: bytes, pieces: int = 1 << 30) -> list[tuple[int, FrameHeader, Columns]]:
    """Position, header and records of every valid frame."""
    found: list[tuple[int, FrameHeader, Columns]] = []

    def take(position: int, fields: FrameFields, body: memoryview) -> bool:
        header = FrameHeader(*fields)
        found.append((position, header, decode_body(header, body)))
        return False

    fed(FrameWalk(SEGMENT, 7, visit=take), pread_of(file, pieces))
    return found


NESTED = frame_of([b"inner"], 8, OTHER) + frame_of([b"earlier"], 7)
BATCHES: tuple[list[bytes | None], ...] = (
    [b"a", b"b"],
    [b"c" * 30],
    [NESTED, None, b"d"],
    [b"e"],
    [b"\xf9CBF" * 5, b""],
)


def test_a_whole_segment_is_found_frame_by_frame() -> None:
    """All frames are found with their records, and the scan knows where and at which offset to go on."""
    data, places = segment_of(*BATCHES)
    scan = walked(data)

    assert [position for position, _, _ in places] == list(scan.positions)
    assert (Tail.CLEAN, len(data), len(data), 16, 9, []) == (
        scan.tail,
        scan.end,
        scan.tail_end,
        scan.next_offset,
        scan.records,
        scan.damages,
    )
    assert list(BATCHES) == [columns.value_list() for _, _, columns in frames_in(data)]
    assert 14 == scan.max_time_us


@pytest.mark.parametrize("zeros", [1, 3, 4, 59, 60, 200_000])
def test_zeros_after_the_last_frame_are_a_clean_end(zeros: int) -> None:
    """A preallocated segment ends where its zeros begin."""
    data, _ = segment_of(*BATCHES)
    scan = walked(data + bytes(zeros))

    assert (Tail.CLEAN, len(data), len(data)) == (scan.tail, scan.end, scan.tail_end)


def test_a_segment_without_frames_is_clean() -> None:
    """An empty or just preallocated segment begins at its base offset."""
    data, _ = segment_of()

    for padding in (b"", bytes(1000)):
        scan = walked(data + padding)
        assert (Tail.CLEAN, SEGMENT_HEADER_BYTES, 7) == (scan.tail, scan.end, scan.next_offset)


@pytest.mark.parametrize("padding", [0, 5000])
def test_a_frame_torn_at_any_byte_is_a_torn_tail(padding: int) -> None:
    """Whatever part of the last frame was written, it is torn; payloads that are frames are not taken."""
    data, places = segment_of(*BATCHES[:3])
    start, first, last = places[-1]

    for length in range(1, len(data.rstrip(b"\0")) - start):  # zeros missing from zeros are not missing
        scan = walked(data[: start + length] + bytes(padding))
        assert (Tail.TORN, start, first, 2, []) == (
            scan.tail,
            scan.end,
            scan.next_offset,
            len(scan.positions),
            scan.damages,
        ), length
        written = data[start : start + length].rstrip(b"\0")
        assert start + len(written) == scan.tail_end
        assert scan.torn_offsets == ((first, last) if length >= FRAME_HEADER_BYTES else None)


def test_a_torn_frame_whose_head_was_not_written_is_torn() -> None:
    """Sectors may reach the disk in any order: zeros first, then the rest of the frame."""
    data, places = segment_of(*BATCHES[:3])
    start = places[-1][0]

    for length in range(1, len(data.rstrip(b"\0")) - start):
        scan = walked(data[:start] + bytes(length) + data[start + length :])
        assert (Tail.TORN, start, 2) == (scan.tail, scan.end, len(scan.positions)), length
        assert len(data.rstrip(b"\0")) == scan.tail_end


def test_a_flipped_byte_costs_only_the_frame_it_lies_in() -> None:
    """Whichever byte is damaged, all other frames are found and exactly the offsets lost are named."""
    data, places = segment_of(*BATCHES, [b"the last"])

    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        header = decode_segment_header(damaged)
        assert (SEGMENT, 7, at >= SEGMENT_HEADER_BYTES) == (
            header.segment_id,
            header.base_offset,
            header.intact,
        )
        scan = walked(damaged, header.base_offset)
        hit = [place for place in places if place[0] <= at][-1:]
        assert [place[0] for place in places if place not in hit] == list(scan.positions), at
        if hit == places[-1:]:
            assert (Tail.TORN, hit[0][0], []) == (scan.tail, scan.end, scan.damages)
        elif hit:
            position, first, last = hit[0]
            end = places[places.index(hit[0]) + 1][0]
            assert [DamagedRange(position, end, first, last)] == scan.damages
            assert (Tail.CLEAN, len(data)) == (scan.tail, scan.end)


def test_damaged_frames_side_by_side_are_one_range() -> None:
    """Damage that spans frames names the offsets of all of them; damage apart is told apart."""
    data, places = segment_of(*([b"%d" % n] for n in range(8)))
    damaged = bytearray(data)
    for number in (1, 2, 5):
        damaged[places[number][0] + FRAME_HEADER_BYTES + 2] ^= 1

    assert [
        DamagedRange(places[1][0], places[3][0], 8, 9),
        DamagedRange(places[5][0], places[6][0], 12, 12),
    ] == walked(damaged).damages


def test_gaps_between_offsets_are_not_taken_for_losses() -> None:
    """When a damaged frame's header holds, exactly its offsets are lost, not those of gaps around it."""
    head = encode_segment_header(segment_id=SEGMENT, base_offset=7, created_us=1)
    bad = bytearray(frame_of([b"b"], 20))
    bad[-1] ^= 1
    data = head + frame_of([b"a"], 7) + bytes(bad) + frame_of([b"c"], 30)

    scan = walked(data)
    assert [(20, 20)] == [(damage.first_offset_lost, damage.last_offset_lost) for damage in scan.damages]
    assert (2, 31) == (len(scan.positions), scan.next_offset)


def test_offsets_that_do_not_continue_are_not_served() -> None:
    """A valid frame whose offsets lie below the next one expected is not a record again."""
    data, _ = segment_of([b"a", b"b"])

    scan = walked(data + frame_of([b"again"], 8))
    assert (Tail.TORN, 1, len(data)) == (scan.tail, len(scan.positions), scan.end)


@st.composite
def misdirected_segments(draw: st.DrawFn) -> tuple[bytes, set[int]]:
    """A segment in which a write landed at a wrong place, and the offsets of the frames that are whole in theirs."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=12))
    data, places = segment_of(*([b"%d" % size * size] * size for size in sizes))
    ends = [*(position for position, _, _ in places[1:]), len(data)]
    first = draw(st.integers(0, len(places) - 1))
    last = draw(st.integers(first, min(first + 2, len(places) - 1)))
    piece = data[places[first][0] : ends[last]]
    file = bytearray(data)
    if draw(st.booleans()):
        file[places[first][0] : ends[last]] = bytes(len(piece))
    to = draw(st.integers(SEGMENT_HEADER_BYTES, len(data)))
    file[to : to + len(piece)] = piece[: len(data) - to]
    whole = {
        offset
        for (position, low, high), end in zip(places, ends, strict=True)
        if file[position:end] == data[position:end]
        for offset in range(low, high + 1)
    }
    return bytes(file), whole


@given(misdirected_segments())
def test_a_misdirected_write_costs_no_frame_that_it_did_not_overwrite(case: tuple[bytes, set[int]]) -> None:
    """Every record whose frame is whole in its place is found, whichever frames lie valid in a wrong one."""
    file, whole = case
    found = [columns.offset_list() for _, _, columns in frames_in(file)]
    offsets = [offset for batch in found for offset in batch]
    assert whole <= set(offsets)
    assert offsets == sorted(set(offsets))


def test_a_frame_that_jumps_ahead_gives_way_to_a_lower_one_behind_it() -> None:
    """What lies before the lower frame is one damaged range; without a lower one the frame stands."""
    batches = ([b"x" * 50],) * 8
    data, places = segment_of(*batches)
    size = places[1][0] - places[0][0]
    moved = data[places[7][0] :]
    damaged = bytearray(data)
    damaged[places[2][0] + 9 : places[2][0] + 9 + size] = moved
    damaged[places[7][0] :] = bytes(len(moved))

    scan = walked(damaged)
    assert [DamagedRange(places[1][0] + size, places[4][0], 9, 10)] == scan.damages
    assert [7, 8, 11, 12, 13] == offsets_of(damaged)

    damaged[places[4][0] :] = bytes(len(damaged) - places[4][0])
    scan = walked(damaged)
    assert [DamagedRange(places[2][0], places[2][0] + 9, 9, 13)] == scan.damages
    assert [7, 8, 14] == offsets_of(damaged)


@pytest.mark.parametrize("reached", [1, 2, 3])
def test_a_copied_header_costs_no_frame_that_its_length_reaches_over(reached: int) -> None:
    """A header at a wrong place, whose body would reach over whole frames to another, is passed by alone."""
    size = len(frame_of([b"x"], 7))
    value = next(
        n for n in range(1000) if len(frame_of([bytes(n)], 11)) == FRAME_HEADER_BYTES + reached * size
    )
    data, places = segment_of([b"x"], [b"x"], [b"x"], [b"x"], [bytes(value)])
    at, last = places[1][0], places[4][0]
    header = data[last : last + FRAME_HEADER_BYTES]
    file = data[:at] + header + data[at:]

    assert [7, 8, 9, 10, 11] == offsets_of(file)
    assert [DamagedRange(at, at + FRAME_HEADER_BYTES, 8, 7)] == walked(file).damages


def test_a_copy_of_a_frame_with_a_bad_body_loses_no_record_that_is_read() -> None:
    """The header of a damaged copy does not make its offsets lost, when the frame itself follows."""
    data, places = segment_of([b"a"], [b"b"], [b"c"])
    at, copied = places[1][0], bytearray(data[places[2][0] :])
    copied[-1] ^= 1
    file = data[:at] + copied + data[at:]

    assert [7, 8, 9] == offsets_of(file)
    assert [DamagedRange(at, at + len(copied), 8, 7)] == walked(file).damages


def offsets_of(file: bytes) -> list[int]:
    found = frames_in(file)
    return [offset for _, _, columns in found for offset in columns.offset_list()]


def test_overwritten_stretches_are_damage_when_frames_follow() -> None:
    """Random bytes, zeros and foreign frames over any part are passed by, and the rest is found."""
    data, places = segment_of(*([b"%03d" % n * 20] for n in range(20)))

    for start, length, filler in ((places[3][0] + 10, 300, b"\xa5"), (places[8][0], 250, b"\0")):
        damaged = data[:start] + filler * length + data[start + length :]
        scan = walked(damaged)
        lost = [p for p in places if p[0] < start + length and p[0] + (places[1][0] - places[0][0]) > start]
        assert [p[0] for p in places if p not in lost] == list(scan.positions)
        assert [(lost[0][1], lost[-1][2])] == [
            (d.first_offset_lost, d.last_offset_lost) for d in scan.damages
        ]


FOUND = (
    "positions",
    "damages",
    "tail",
    "end",
    "tail_end",
    "next_offset",
    "records",
    "torn_offsets",
    "max_time_us",
)


def found_by(walk: FrameWalk) -> list[object]:
    """All that a walk tells."""
    return [getattr(walk, name) for name in FOUND]


def pread_of(file: bytes, pieces: int = 1 << 30) -> Callable[[int, int], bytes]:
    """Reads `file`, never more than `pieces` bytes at a time."""
    return lambda position, length: file[position : position + min(length, pieces)]


@pytest.mark.parametrize("is_end_known", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 60, 97, 4096])
def test_chunks_of_any_size_give_the_same_walk(chunk_bytes: int, is_end_known: bool) -> None:
    """How the file is cut into chunks makes no difference, whole, torn or damaged."""
    data, places = segment_of(*BATCHES, [b"last"])
    damaged = bytearray(data)
    damaged[places[2][0] + 5] ^= 1
    zeroed = data[: places[1][0]] + bytes(len(data) - places[1][0])

    for file in (data, bytes(damaged), data[:-3], zeroed, zeroed + b"x", data + bytes(100)):
        end = len(file) if is_end_known else None
        parts = fed(FrameWalk(SEGMENT, 7, file_end=end, chunk_bytes=chunk_bytes), pread_of(file))
        assert found_by(walked(file)) == found_by(parts)


@st.composite
def wounded_segments(draw: st.DrawFn) -> bytes:
    """A segment in which bytes are flipped, cut out or zeroed."""
    batches = draw(st.lists(st.sampled_from(BATCHES), max_size=6))
    file = bytearray(segment_of(*batches)[0])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(SEGMENT_HEADER_BYTES, len(file)))
        length = draw(st.integers(0, 90))
        how = draw(st.sampled_from(["flip", "cut", "zero", "end", "move"]))
        if how == "flip" and at < len(file):
            file[at] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del file[at : at + length]
        elif how == "zero":
            file[at : at + length] = bytes(len(file[at : at + length]))
        elif how == "end":
            file += bytes(length)
        elif how == "move":
            to = draw(st.integers(SEGMENT_HEADER_BYTES, len(file)))
            file[to : to + 3 * length] = file[at : at + len(file[to : to + 3 * length])]
    return bytes(file)


@given(
    wounded_segments(),
    st.sampled_from([1, 13, 64, 300, 10_000]),
    st.sampled_from([1, 5, 61, 1 << 20]),
    st.booleans(),
    st.booleans(),
    st.integers(5, 25),
    st.sampled_from([EVERYTHING, 9, 12, BEYOND_ALL]),
)
def test_all_drivers_find_the_same(
    file: bytes, chunk: int, pieces: int, is_end_known: bool, resync: bool, limit: int, visit_from: int
) -> None:
    """Plain reads, awaited reads and reads that never wait, cut anyhow, find, visit and pass over the same."""
    visits: list[list[tuple[int, bytes]]] = []

    def new_walk(chunk_bytes: int = chunk) -> FrameWalk:
        visited: list[tuple[int, bytes]] = []
        visits.append(visited)

        def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
            visited.append((position, bytes(body)))
            return len(visited) == 3

        return FrameWalk(
            SEGMENT,
            7,
            file_end=len(file) if is_end_known else None,
            limit=limit,
            check_from=visit_from,
            visit=visit,
            visit_from=visit_from,
            resync=resync,
            chunk_bytes=chunk_bytes,
        )

    async def awaited(position: int, length: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return pread_of(file, pieces)(position, length)

    plain = fed(new_walk(1 << 20), pread_of(file))
    cut = fed(new_walk(), pread_of(file, pieces))
    waiting = trio.run(run_walk_async, new_walk(), awaited)
    cached = new_walk()
    tries = itertools.count()
    while not run_walk_cached(
        cached, lambda at, n: pread_of(file, pieces)(at, n) if next(tries) % 2 else None
    ):
        need = cached.need
        if need is not None:
            cached.feed(pread_of(file, pieces)(*need))
        if cached.need is None:
            break

    assert found_by(plain) == found_by(cut) == found_by(waiting) == found_by(cached)
    assert visits[0] == visits[1] == visits[2] == visits[3]


@given(wounded_segments(), st.sampled_from([1, 100, 1 << 20]))
def test_no_more_than_a_chunk_or_a_frame_and_its_look_ahead_is_asked_for(file: bytes, chunk: int) -> None:
    """Bytes are asked for with rising positions, none twice, none behind the file's end, never much at a time (FW4).

    The look ahead behind a frame that jumps is the most, besides the frame itself.
    """
    walk = FrameWalk(SEGMENT, 7, file_end=len(file), chunk_bytes=chunk)
    longest = max(map(len, (frame_of(values, 7) for values in BATCHES)))
    at = SEGMENT_HEADER_BYTES
    while (need := walk.need) is not None:
        assert at <= need.position
        assert 0 < need.length <= max(chunk, longest + LOOK_AHEAD_BYTES)
        at = need.position + need.length
        assert at <= len(file)
        walk.feed(file[need.position : at])


@pytest.mark.parametrize("is_end_known", [False, True])
def test_a_long_frame_is_asked_for_and_checked_in_parts(
    monkeypatch: pytest.MonkeyPatch, is_end_known: bool
) -> None:
    """A frame that is longer than a part is read in parts, each of which is checked once, when it comes; whatever byte
    of it is flipped, or missing, the walk finds what one that reads it whole finds.
    """
    file, places = segment_of([b"a"], [b"b" * 300, b"c" * 200], [b"d"], [b"e" * 400])
    damaged = [file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :] for at in range(places[0][0], len(file), 7)]
    torn = [file[:at] for at in range(places[1][0], len(file), 7)]
    for part, checked_most in ((1 << 20, 1 << 20), (64, 2 * 64)):
        monkeypatch.setattr(frame_walk, "PART_BYTES", part)
        found = []
        for each in (file, *damaged, *torn):
            counting = Counting()
            monkeypatch.setattr(frame_walk, "zlib", counting)
            walk = FrameWalk(
                SEGMENT, 7, file_end=len(each) if is_end_known else None, chunk_bytes=64, first_bytes=64
            )
            fed(walk, lambda position, length, each=each: each[position : position + length])
            found.append(
                (walk.positions, walk.damages, walk.end, walk.tail, walk.tail_end, walk.torn_offsets)
            )
            if each is file:
                assert counting.most_bytes <= checked_most
                assert counting.bytes_ <= len(file) + 4 * FRAME_HEADER_BYTES
        if part == 1 << 20:
            expected = found
    assert found == expected


class Counting:
    """Counts the bytes of which checksums are made."""

    def __init__(self) -> None:
        self.bytes_ = self.most_bytes = 0

    def crc32(self, data: Any, value: int = 0) -> int:
        """The checksum."""
        self.bytes_ += len(data)
        self.most_bytes = max(self.most_bytes, len(data))
        return zlib.crc32(data, value)


def test_a_length_beyond_the_end_of_the_file_is_not_asked_for() -> None:
    """A header that promises half a gigabyte in a small file is no reason to ask for it."""
    data, _ = segment_of([b"a"])
    seed = frames.seed_of(SEGMENT)
    size = limits.FRAME_BODY_BYTES_MAX
    sealed = frames.SEALED.pack(frames.FRAME_MAGIC, 1, 0, 0, 1, 0, size, size, 8, 8, 0, 0)
    file = data + sealed + frames.CHECKSUM.pack(frames.zlib.crc32(sealed, seed)) + bytes(range(1, 200))
    asked = []

    def pread(position: int, length: int) -> bytes:
        asked.append(length)
        return file[position : position + length]

    walk = fed(FrameWalk(SEGMENT, 7, file_end=len(file)), pread)
    assert (Tail.TORN, (8, 8), 1) == (walk.tail, walk.torn_offsets, len(walk.positions))
    assert max(asked) <= len(file)


def test_bodies_that_nobody_wants_are_not_read() -> None:
    """On the way to an offset, large frames are passed over by their headers."""
    large: list[bytes | None] = [bytes(50_000)]
    data, places = segment_of(large, large, large, [b"wanted"])
    read = 0
    visited = []

    def pread(position: int, length: int) -> bytes:
        nonlocal read
        read += length
        return data[position : position + length]

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        visited.append(position)
        return True

    fed(
        FrameWalk(
            SEGMENT,
            7,
            file_end=len(data),
            check_from=10,
            visit=visit,
            visit_from=10,
            chunk_bytes=1000,
        ),
        pread,
    )
    assert [places[3][0]] == visited
    assert read < 5000


def test_a_frame_that_its_visitor_refuses_is_damage() -> None:
    """Checksums may hold over a body that makes no sense: its offsets are lost like those of any damaged frame."""
    data, places = segment_of([b"a", b"b"], [b"c"], [b"d"])

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        if position == places[1][0]:
            raise FrameInvalid(FaultReason.BODY)
        return False

    walk = fed(FrameWalk(SEGMENT, 7, visit=visit), pread_of(data))
    assert [DamagedRange(places[1][0], places[2][0], 9, 9)] == walk.damages
    assert [places[0][0], places[2][0]] == list(walk.positions)


def test_frames_are_read_with_a_plain_pread() -> None:
    """Positions, headers and records, one after the other, with nothing but a function that reads bytes."""
    data, places = segment_of(*BATCHES)
    found = frames_in(data, pieces=100)
    assert [place[0] for place in places] == [position for position, _, _ in found]
    assert [place[1:] for place in places] == [(head.base_offset, head.last_offset) for _, head, _ in found]
    assert list(BATCHES) == [columns.value_list() for _, _, columns in found]


def test_a_scan_resumes_from_a_known_frame() -> None:
    """From a position that an index proved, only what follows is read."""
    data, places = segment_of(*BATCHES)
    position, first, _ = places[3]
    scan = walked(data, first, position=position)

    assert [place[0] for place in places[3:]] == list(scan.positions)
    assert len(data) == scan.end


def test_walking_over_headers_does_not_read_bodies() -> None:
    """With `check_from=BEYOND_ALL` a damaged body passes: the caller has proven it before, or will."""
    data, places = segment_of(*BATCHES)
    damaged = bytearray(data)
    damaged[places[1][0] + FRAME_HEADER_BYTES + 3] ^= 1

    assert len(places) == len(walked(damaged, check_from=BEYOND_ALL).positions)


def test_a_scan_fills_an_index() -> None:
    """The index made by a scan equals the one made while writing."""
    data, places = segment_of(*BATCHES)
    found = SegmentIndex(SEGMENT, 7, interval_bytes=100)
    written = SegmentIndex(SEGMENT, 7, interval_bytes=100)
    walked(data, index=found)
    for position, first, last in places:
        size = decode_header(data, position, SEGMENT).frame_bytes
        written.note(position, size, first, last, last - first + 1, first)

    assert written.encode() == found.encode()
    assert (len(data), 16, 9) == (found.end_position, found.next_offset, found.records)


def test_a_newer_frame_stops_the_scan() -> None:
    """A frame that a newer Callboard wrote is neither torn nor damaged: the reader must be upgraded."""
    data, places = segment_of([b"a"], [b"b"])
    start = places[1][0]
    sealed = bytearray(data[start : start + 56])
    sealed[4] = 9
    checksum = frames.zlib.crc32(sealed, frames.seed_of(SEGMENT)).to_bytes(4, "little")

    with pytest.raises(FormatTooNew):
        walked(data[:start] + bytes(sealed) + checksum + data[start + 60 :])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2]),
            *(st.sampled_from([0, 1, 2, 16, 60, 200, 2**32 - 1]) for _ in range(3)),
            *(st.sampled_from([0, 7, 8, 9, 10, 2**64 - 1]) for _ in range(2)),
            *(st.sampled_from([-5, 0, 5]) for _ in range(2)),
            st.sampled_from([0, 16, 40]),
        ),
        max_size=6,
    )
)
def test_forged_headers_neither_hang_nor_break_a_scan(forged: list[tuple[int, ...]]) -> None:
    """Headers with right checksums and any fields, before, between and within frames, end in a scan like any other."""
    data, _ = segment_of([b"a"], [b"b"])
    seed = frames.seed_of(SEGMENT)
    for codec, count, length, plain, base, last, first_us, latest_us, filler in forged:
        body = bytes(range(1, filler + 1))
        checksum = frames.zlib.crc32(body[:length], seed)
        sealed = frames.SEALED.pack(
            frames.FRAME_MAGIC, 1, codec, 0, count, checksum, length, plain, base, last, first_us, latest_us
        )
        data += sealed + frames.CHECKSUM.pack(frames.zlib.crc32(sealed, seed)) + body
    whole = walked(data)
    parts = fed(FrameWalk(SEGMENT, 7, chunk_bytes=50), pread_of(data))

    assert 2 <= len(whole.positions)
    assert found_by(whole) == found_by(parts)


def test_a_finished_walk_takes_no_more() -> None:
    """Feeding after the end is a bug (FW3)."""
    walk = FrameWalk(SEGMENT, 0)
    walk.feed(b"")
    assert walk.need is None
    with pytest.raises(InternalError, match="FW3"):
        walk.feed(b"x")
