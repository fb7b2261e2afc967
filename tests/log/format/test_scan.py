"""Scanning: torn tails, damage, and payloads that look like frames."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import FormatTooNew, InternalError
from callboard.log.format import frame as frames
from callboard.log.format.columns import Columns
from callboard.log.format.frame import FRAME_HEADER_BYTES, decode_header, encode_frame
from callboard.log.format.index import SegmentIndex
from callboard.log.format.scan import DamagedRange, SegmentScan, Tail, read_frames, scan_segment
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
    scan = scan_segment(data, SEGMENT, 7)

    assert [position for position, _, _ in places] == list(scan.positions)
    assert (Tail.CLEAN, len(data), len(data), 16, 9, []) == (
        scan.tail,
        scan.end,
        scan.tail_end,
        scan.next_offset,
        scan.records,
        scan.damages,
    )
    assert list(BATCHES) == [columns.value_list() for _, columns in read_frames(data, scan, SEGMENT)]
    assert 14 == scan.max_time_us


@pytest.mark.parametrize("zeros", [1, 3, 4, 59, 60, 200_000])
def test_zeros_after_the_last_frame_are_a_clean_end(zeros: int) -> None:
    """A preallocated segment ends where its zeros begin."""
    data, _ = segment_of(*BATCHES)
    scan = scan_segment(data + bytes(zeros), SEGMENT, 7)

    assert (Tail.CLEAN, len(data), len(data)) == (scan.tail, scan.end, scan.tail_end)


def test_a_segment_without_frames_is_clean() -> None:
    """An empty or just preallocated segment begins at its base offset."""
    data, _ = segment_of()

    for padding in (b"", bytes(1000)):
        scan = scan_segment(data + padding, SEGMENT, 7)
        assert (Tail.CLEAN, SEGMENT_HEADER_BYTES, 7) == (scan.tail, scan.end, scan.next_offset)


@pytest.mark.parametrize("padding", [0, 5000])
def test_a_frame_torn_at_any_byte_is_a_torn_tail(padding: int) -> None:
    """Whatever part of the last frame was written, it is torn; payloads that are frames are not taken."""
    data, places = segment_of(*BATCHES[:3])
    start, first, last = places[-1]

    for length in range(1, len(data.rstrip(b"\0")) - start):  # zeros missing from zeros are not missing
        scan = scan_segment(data[: start + length] + bytes(padding), SEGMENT, 7)
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
        scan = scan_segment(data[:start] + bytes(length) + data[start + length :], SEGMENT, 7)
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
        scan = scan_segment(damaged, header.segment_id, header.base_offset)
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
    ] == scan_segment(damaged, SEGMENT, 7).damages


def test_gaps_between_offsets_are_not_taken_for_losses() -> None:
    """When a damaged frame's header holds, exactly its offsets are lost, not those of gaps around it."""
    head = encode_segment_header(segment_id=SEGMENT, base_offset=7, created_us=1)
    bad = bytearray(frame_of([b"b"], 20))
    bad[-1] ^= 1
    data = head + frame_of([b"a"], 7) + bytes(bad) + frame_of([b"c"], 30)

    scan = scan_segment(data, SEGMENT, 7)
    assert [(20, 20)] == [(damage.first_offset_lost, damage.last_offset_lost) for damage in scan.damages]
    assert (2, 31) == (len(scan.positions), scan.next_offset)


def test_offsets_that_do_not_continue_are_not_served() -> None:
    """A valid frame whose offsets lie below the next one expected is not a record again."""
    data, _ = segment_of([b"a", b"b"])

    scan = scan_segment(data + frame_of([b"again"], 8), SEGMENT, 7)
    assert (Tail.TORN, 1, len(data)) == (scan.tail, len(scan.positions), scan.end)


def test_overwritten_stretches_are_damage_when_frames_follow() -> None:
    """Random bytes, zeros and foreign frames over any part are passed by, and the rest is found."""
    data, places = segment_of(*([b"%03d" % n * 20] for n in range(20)))

    for start, length, filler in ((places[3][0] + 10, 300, b"\xa5"), (places[8][0], 250, b"\0")):
        damaged = data[:start] + filler * length + data[start + length :]
        scan = scan_segment(damaged, SEGMENT, 7)
        lost = [p for p in places if p[0] < start + length and p[0] + (places[1][0] - places[0][0]) > start]
        assert [p[0] for p in places if p not in lost] == list(scan.positions)
        assert [(lost[0][1], lost[-1][2])] == [
            (d.first_offset_lost, d.last_offset_lost) for d in scan.damages
        ]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 60, 97, 4096])
def test_chunks_of_any_size_give_the_same_scan(chunk_bytes: int) -> None:
    """How the file is cut into chunks makes no difference, whole, torn or damaged."""
    data, places = segment_of(*BATCHES, [b"last"])
    damaged = bytearray(data)
    damaged[places[2][0] + 5] ^= 1
    zeroed = data[: places[1][0]] + bytes(len(data) - places[1][0])

    for file in (data, bytes(damaged), data[:-3], zeroed, zeroed + b"x", data + bytes(100)):
        whole = scan_segment(file, SEGMENT, 7)
        parts = SegmentScan(SEGMENT, 7)
        for at in range(SEGMENT_HEADER_BYTES, len(file), chunk_bytes):
            parts.feed(file[at : at + chunk_bytes])
        parts.finish()
        for name in (
            "positions",
            "damages",
            "tail",
            "end",
            "tail_end",
            "next_offset",
            "records",
            "torn_offsets",
        ):
            assert getattr(whole, name) == getattr(parts, name), name


def test_a_scan_resumes_from_a_known_frame() -> None:
    """From a position that an index proved, only what follows is read."""
    data, places = segment_of(*BATCHES)
    position, first, _ = places[3]
    scan = scan_segment(data, SEGMENT, first, position=position)

    assert [place[0] for place in places[3:]] == list(scan.positions)
    assert len(data) == scan.end


def test_walking_over_headers_does_not_read_bodies() -> None:
    """With `check_bodies=False` a damaged body passes: the caller has proven it before, or will."""
    data, places = segment_of(*BATCHES)
    damaged = bytearray(data)
    damaged[places[1][0] + FRAME_HEADER_BYTES + 3] ^= 1

    assert len(places) == len(scan_segment(damaged, SEGMENT, 7, check_bodies=False).positions)


def test_a_scan_fills_an_index() -> None:
    """The index made by a scan equals the one made while writing."""
    data, places = segment_of(*BATCHES)
    found = SegmentIndex(SEGMENT, 7, interval_bytes=100)
    written = SegmentIndex(SEGMENT, 7, interval_bytes=100)
    scan_segment(data, SEGMENT, 7, index=found)
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
        scan_segment(data[:start] + bytes(sealed) + checksum + data[start + 60 :], SEGMENT, 7)


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
    whole = scan_segment(data, SEGMENT, 7)
    parts = SegmentScan(SEGMENT, 7)
    for at in range(SEGMENT_HEADER_BYTES, len(data), 50):
        parts.feed(data[at : at + 50])
    parts.finish()

    assert 2 <= len(whole.positions)
    for name in ("positions", "damages", "tail", "end", "tail_end", "next_offset", "records", "torn_offsets"):
        assert getattr(whole, name) == getattr(parts, name), name


def test_a_finished_scan_takes_no_more() -> None:
    """Feeding after the end is a bug (S3)."""
    scan = SegmentScan(SEGMENT, 0)
    scan.finish()
    with pytest.raises(InternalError, match="S3"):
        scan.feed(b"x")


def test_found_frames_are_values() -> None:
    """What a scan reports can be compared and shown."""
    data, _ = segment_of([b"a"])
    (found, _), *_ = read_frames(data, scan_segment(data, SEGMENT, 7), SEGMENT)

    assert found == attrs.evolve(found)
    assert 7 == found.header.base_offset
