"""Segment headers, indexes and committed files: read back, bound to their segment, and refused when damaged."""

from __future__ import annotations

import zlib

import pytest

from callboard.log.errors import FormatTooNew
from callboard.log.format.committed import (
    COMMITTED_BYTES,
    COMMITTED_COPY_AT,
    COMMITTED_SLOT_BYTES,
    Committed,
    decode_committed,
    decode_copy,
    encode_committed,
    encode_committed_file,
    proven_ends,
)
from callboard.log.format.faults import (
    CommittedInvalid,
    FaultReason,
    FormatFault,
    IndexInvalid,
    SegmentHeaderInvalid,
)
from callboard.log.format.index import INDEX_HEADER_BYTES, SegmentIndex
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentKind,
    decode_segment_header,
    encode_segment_header,
)

HEADER = encode_segment_header(segment_id=77, base_offset=1000, created_us=-5, kind=SegmentKind.JOURNAL)


def sealed(copy: bytes) -> bytes:
    return copy[:60] + zlib.crc32(copy[:60]).to_bytes(4, "little")


def test_a_segment_header_is_read_back() -> None:
    """Id, base offset, time and kind come back, from exactly the header's bytes."""
    assert SEGMENT_HEADER_BYTES == len(HEADER)
    assert SegmentHeader(77, 1000, -5, SegmentKind.JOURNAL, 1000, 1000) == decode_segment_header(
        HEADER + b"more"
    )


def test_one_copy_of_the_segment_header_is_enough() -> None:
    """A damaged byte in either copy is reported, and costs nothing."""
    for at in range(SEGMENT_HEADER_BYTES):
        damaged = bytearray(HEADER)
        damaged[at] ^= 1
        header = decode_segment_header(damaged)
        assert (77, 1000, False) == (header.segment_id, header.base_offset, header.intact)


@pytest.mark.parametrize(
    ("buffer", "reason"),
    [
        (bytes(SEGMENT_HEADER_BYTES), FaultReason.ZEROS),
        (b"", FaultReason.ZEROS),
        (HEADER[:63], FaultReason.SHORT),
        (b"x" * SEGMENT_HEADER_BYTES, FaultReason.MAGIC),
        ((HEADER[:30] + b"x" + HEADER[31:64]) * 2, FaultReason.HEADER_CHECKSUM),
        (sealed(HEADER[:16] + bytes(8) + HEADER[24:64]) * 2, FaultReason.HEADER),
    ],
)
def test_a_segment_header_that_is_none_is_refused(buffer: bytes, reason: FaultReason) -> None:
    """Never written, too short, foreign and damaged headers have reasons of their own."""
    with pytest.raises(SegmentHeaderInvalid) as raised:
        decode_segment_header(buffer)
    assert reason is raised.value.reason


@pytest.mark.parametrize("change", [(8, 2), (10, 9), (11, 1), (58, 1)])
def test_a_newer_segment_is_refused_as_newer(change: tuple[int, int]) -> None:
    """A checksum that holds over an unknown version, kind, flag or field means a newer Callboard."""
    newer = bytearray(HEADER[:64])
    newer[change[0]] = change[1]
    with pytest.raises(FormatTooNew, match="Upgrade"):
        decode_segment_header(sealed(bytes(newer)) * 2)


def filled_index() -> SegmentIndex:
    """Frames of 100 bytes with 10 records each from offset 50, every third one noted; the clock steps back once."""
    index = SegmentIndex(77, 50, interval_bytes=300)
    for number, time_us in enumerate((10, 20, 30, 40, 35, 36, 50, 60, 70, 80)):
        first = 50 + 10 * number
        index.note(SEGMENT_HEADER_BYTES + 100 * number, 100, first, first + 9, 10, time_us)
    return index


def test_an_index_is_read_back() -> None:
    """Entries, end, counts and the seal come back."""
    index = filled_index()
    index.sealed = True
    decoded = SegmentIndex.decode(index.encode(), 77, interval_bytes=300)

    for name in SegmentIndex.__slots__:
        assert getattr(index, name) == getattr(decoded, name), name
    assert (4, 100, 150, SEGMENT_HEADER_BYTES + 1000, 80) == (
        len(decoded),
        decoded.records,
        decoded.next_offset,
        decoded.end_position,
        decoded.max_time_us,
    )


def test_offsets_are_found_from_the_entry_before() -> None:
    """A walk from the position found meets the offset, and starts less than an interval before it."""
    index = filled_index()

    assert [SEGMENT_HEADER_BYTES + 100 * n for n in (0, 0, 0, 3, 3, 9, 9)] == [
        index.find_offset(offset)[0] for offset in (0, 50, 79, 80, 109, 140, 10**9)
    ]
    assert SEGMENT_HEADER_BYTES == SegmentIndex(77, 50).find_offset(60)[0]


def test_times_are_found_though_the_clock_was_set_back() -> None:
    """No record at or after the instant lies before the position found."""
    index = filled_index()

    assert [SEGMENT_HEADER_BYTES + 100 * n for n in (0, 0, 0, 3, 3, 6, 9, 9)] == [
        index.find_time(time_us)[0] for time_us in (0, 10, 30, 31, 40, 41, 71, 1000)
    ]
    assert SEGMENT_HEADER_BYTES == SegmentIndex(77, 50).find_time(60)[0]


def test_an_index_goes_on_growing_after_it_was_read() -> None:
    """An index that was read back and noted on equals one that was never written."""
    whole, resumed = filled_index(), SegmentIndex.decode(filled_index().encode(), 77, interval_bytes=300)
    for index in (whole, resumed):
        index.note(SEGMENT_HEADER_BYTES + 1000, 400, 150, 150, 1, 5)
        index.note(SEGMENT_HEADER_BYTES + 1400, 400, 151, 151, 1, 5)
    assert whole.encode() == resumed.encode()


def test_any_damaged_byte_of_an_index_is_noticed() -> None:
    """An index that is cut, damaged, or another segment's is refused, and rebuilt by its owner."""
    encoded = filled_index().encode()

    for at in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[at] ^= 0x10
        for bad in (bytes(damaged), encoded[:at]):
            with pytest.raises(IndexInvalid):
                SegmentIndex.decode(bad, 77)
    for bad in (encoded + b"\0", bytes(len(encoded))):
        with pytest.raises(IndexInvalid):
            SegmentIndex.decode(bad, 77)
    with pytest.raises(IndexInvalid):
        SegmentIndex.decode(encoded, 78)


@pytest.mark.parametrize(
    ("column", "items"),
    [
        ("offsets", [50, 50, 60, 70]),
        ("positions", [128, 127, 700, 800]),
        ("positions", [0, 400, 700, 800]),
        ("positions", [128, 428, 728, 99999]),
        ("offsets", [50, 80, 110, 150]),
        ("times", [0, 30, 20, 40]),
        ("times", [0, 30, 40, 81]),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(column: str, items: list[int]) -> None:
    """Right checksums over entries that fall, or lie outside the segment, are not believed (IX1, IX2)."""
    index = filled_index()
    getattr(index, column)[:] = type(index.times)("q" if column == "times" else "Q", items)
    with pytest.raises(IndexInvalid, match="body"):
        SegmentIndex.decode(index.encode(), 77)


def test_a_newer_index_is_refused_as_newer() -> None:
    """An index of a newer version is not rebuilt over, but refused."""
    newer = bytearray(SegmentIndex(77, 0).encode()[: INDEX_HEADER_BYTES - 4])
    newer[8] = 2
    seed = zlib.crc32((77).to_bytes(8, "little"))
    with pytest.raises(FormatTooNew):
        SegmentIndex.decode(bytes(newer) + zlib.crc32(newer, seed).to_bytes(4, "little"), 77)


def test_committed_ends_are_read_back() -> None:
    """Visible and durable end come back from 64 bytes."""
    encoded = encode_committed(2**63, 5)
    assert COMMITTED_BYTES == 64 == len(encoded)
    assert Committed(2**63, 5) == decode_committed(encoded)


def test_a_torn_store_leaves_a_whole_slot() -> None:
    """While one slot is being stored, a reader finds the other; of two whole slots the further one counts."""
    old, new = encode_committed(10, 9), encode_committed(0x0102030405060708, 0x0102030405060708)

    for stored in range(COMMITTED_BYTES + 1):
        found = decode_committed(new[:stored] + old[stored:])
        assert found in (Committed(10, 9), Committed(0x0102030405060708, 0x0102030405060708))
        assert (found.visible_end == 10) == (stored < COMMITTED_SLOT_BYTES)


def test_a_committed_file_has_a_copy_far_behind_its_slots() -> None:
    """The slots count while one of them is whole; else the copy does; else nothing is known."""
    encoded = encode_committed_file(7)
    assert len(encoded) == COMMITTED_COPY_AT + COMMITTED_SLOT_BYTES
    later = encode_committed(9, 8) + encoded[COMMITTED_BYTES:]
    assert decode_committed(encoded) == decode_copy(encoded) == decode_copy(later) == Committed(7, 7)
    assert proven_ends(later) == proven_ends(later[:COMMITTED_BYTES]) == Committed(9, 8)
    assert proven_ends(bytes(COMMITTED_BYTES) + encoded[COMMITTED_BYTES:]) == Committed(7, 7)
    for short in (encoded[:-1], encoded[:COMMITTED_BYTES], b"", bytes(len(encoded))):
        assert decode_copy(short) is None
        assert proven_ends(short.replace(b"CBCM", b"XXXX")) is None


@pytest.mark.parametrize("buffer", [b"", bytes(64), b"x" * 64, encode_committed(1, 1)[:63]])
def test_a_committed_file_without_a_whole_slot_is_refused(buffer: bytes) -> None:
    """Neither slot whole: the reader reads again, and distrusts the file if that does not help."""
    with pytest.raises(CommittedInvalid):
        decode_committed(buffer)


def test_a_newer_committed_file_is_refused_as_newer() -> None:
    """A newer version is never read as ends."""
    slot = bytearray(encode_committed(1, 1)[:28])
    slot[4] = 2
    with pytest.raises(FormatTooNew):
        decode_committed((bytes(slot) + zlib.crc32(slot).to_bytes(4, "little")) * 2)


def test_faults_name_their_reason() -> None:
    """The message of a fault begins with its reason."""
    assert "zeros" == str(FormatFault(FaultReason.ZEROS))
    assert "body: ends fall" == str(FormatFault(FaultReason.BODY, "ends fall"))
