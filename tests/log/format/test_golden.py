"""Golden files: bytes that every version writes and reads for ever.

A file here never changes. A new case is added to `CASES`, and its file by running this module as a program, which
writes only files that are missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from callboard.log.format.columns import Columns
from callboard.log.format.committed import Committed, decode_committed, encode_committed
from callboard.log.format.compression import NONE, Compression
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body, decode_frame, encode_frame
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentKind,
    belongs_to,
    decode_segment_header,
    encode_segment_header,
    identity_of,
)
from callboard.log.journal.journal_records import (
    CONTROL,
    Control,
    Kind,
    columns_of_control,
    decode_control,
)

FOLDER = Path(__file__).parent / "golden"
SEGMENT = 0x0123456789ABCDEF
NOON_US = 1_700_000_000_000_000


def plain() -> Columns:
    return Columns.build([b"hello", b"board"], [b"alice", b"bob"])


def every_column() -> Columns:
    sparse = Columns.build(
        [b"first", None, b"fourth", b"fifth"],
        [b"k", None, b"k", None],
        [{"type": "order", "raw": b"\xff\x00"}, None, None, None],
        [NOON_US - 5, None, 0, NOON_US],
        priorities=[0, 9, 255, 1],
        expiries=[None, NOON_US + 60_000_000, None, 0],
        dedup_ids=[b"d-1", None, b"d-4", None],
        producers=[(2, 0xFFFF_FFFF_FFFF_FFFF, 3, 41), (2, 5, 0, 2**63)],
    )
    sparse.base_offset, sparse.span = 999, 6
    sparse.offset_deltas = array("I", [1, 2, 4, 5])
    sparse.append_times = [NOON_US, NOON_US + 3, NOON_US + 2, NOON_US + 1]
    return sparse


def frame(columns: Columns, base_offset: int, compression: Compression = NONE) -> bytes:
    buffers = encode_frame(
        columns, segment_id=SEGMENT, base_offset=base_offset, append_time_us=NOON_US, compression=compression
    )
    return b"".join(buffers)


def index() -> bytes:
    grown = SegmentIndex(SEGMENT, 40, interval_bytes=150)
    for number in range(4):
        first = 40 + 2 * number
        grown.note(128 + 100 * number, 100, first, first + 1, 2, NOON_US + number)
    grown.sealed = True
    return grown.encode()


def segment() -> bytes:
    return (
        encode_segment_header(segment_id=SEGMENT, base_offset=42, created_us=NOON_US)
        + frame(plain(), 42)
        + frame(Columns.build([None], [b"alice"]), 44)
        + bytes(40)
    )


def journal() -> bytes:
    """A segment with every kind of frame: a snapshot, events, a gap, a snapshot that replaces all before, a mark."""
    gap = columns_of_control(Kind.GAP, 45)
    gap.span, gap.offset_deltas = 4, array("I", [0])
    parts = [
        (40, columns_of_control(Kind.SNAPSHOT, 42)),
        (41, Columns.build([b"the whole state"])),
        (42, Columns.build([CONTROL.pack(Kind.EVENTS, 42), b"one", b"two"])),
        (45, gap),
        (50, columns_of_control(Kind.HEAL, 52)),
        (51, Columns.build([b"all of it anew"])),
        (52, columns_of_control(Kind.MARK, 52)),
    ]
    header = encode_segment_header(
        segment_id=SEGMENT,
        base_offset=40,
        created_us=NOON_US,
        kind=SegmentKind.JOURNAL,
        records_version=1,
        identity=identity_of("catalog"),
    )
    return header + b"".join(frame(columns, sequence) for sequence, columns in parts)


SHRUNK = Columns.build([b"call " * 20] * 10)
GZIP = Compression("gzip", level=6, minimum_bytes=0)
ZSTD = Compression("zstd", level=1, minimum_bytes=0)

CASES: dict[str, Callable[[], bytes]] = {
    "segment_header": lambda: encode_segment_header(segment_id=SEGMENT, base_offset=42, created_us=NOON_US),
    "journal_header": lambda: encode_segment_header(
        segment_id=SEGMENT, base_offset=0, created_us=NOON_US, kind=SegmentKind.JOURNAL
    ),
    "frame_plain": lambda: frame(plain(), 42),
    "frame_every_column": lambda: frame(every_column(), 999),
    "segment": segment,
    "index": index,
    "journal": journal,
    "committed": lambda: encode_committed(46, 44),
}
COMPRESSED = {"frame_gzip": GZIP, "frame_zstd": ZSTD}


def golden(name: str) -> bytes:
    return (FOLDER / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_encoding_gives_the_golden_bytes(name: str) -> None:
    """The same input gives the bytes that earlier versions wrote."""
    assert golden(name) == CASES[name]()


def test_golden_segment_headers_are_read() -> None:
    """Segment headers of version 1 are read."""
    log, journal = (decode_segment_header(golden(name)) for name in ("segment_header", "journal_header"))

    assert (SEGMENT, 42, NOON_US, SegmentKind.LOG, True) == (
        log.segment_id,
        log.base_offset,
        log.created_us,
        log.kind,
        log.intact,
    )
    assert (0, SegmentKind.JOURNAL) == (journal.base_offset, journal.kind)


def test_golden_frames_are_read() -> None:
    """A frame with every column gives the records it was made of."""
    header, columns = decode_frame(golden("frame_every_column"), 0, SEGMENT)

    assert (999, 1005, 4) == (header.base_offset, header.last_offset, header.count)
    assert [1000, 1001, 1003, 1004] == columns.offset_list()
    assert [b"first", None, b"fourth", b"fifth"] == columns.value_list()
    assert [b"k", None, b"k", None] == columns.key_list()
    assert [{"type": b"order", "raw": b"\xff\x00"}, {}, {}, {}] == columns.header_list()
    assert [NOON_US - 5, None, 0, NOON_US] == [columns.event_time(i) for i in range(4)]
    assert [NOON_US, NOON_US + 3, NOON_US + 2, NOON_US + 1] == [columns.append_time(i) for i in range(4)]
    assert [0, 9, 255, 1] == [columns.priority(i) for i in range(4)]
    assert [None, NOON_US + 60_000_000, None, 0] == [columns.expiry(i) for i in range(4)]
    assert [b"d-1", None, b"d-4", None] == [columns.dedup_id(i) for i in range(4)]
    last = 0xFFFF_FFFF_FFFF_FFFF
    assert [(last, 3, 41), (last, 3, 42), (5, 0, 2**63), (5, 0, 2**63 + 1)] == [
        columns.producer(i) for i in range(4)
    ]


@pytest.mark.parametrize("name", COMPRESSED)
def test_golden_compressed_frames_are_read(name: str) -> None:
    """Compressed frames are read; their bytes may differ between versions of the codecs, so only reading is fixed."""
    header, columns = decode_frame(golden(name), 0, SEGMENT)

    assert name.removeprefix("frame_") == {1: "gzip", 2: "zstd"}[header.codec]
    assert SHRUNK.value_list() == columns.value_list()


def walked(data: bytes, base_offset: int) -> tuple[FrameWalk, list[tuple[FrameHeader, Columns]]]:
    """A walk over a whole segment, and header and records of its frames."""
    found: list[tuple[FrameHeader, Columns]] = []

    def take(_: int, fields: FrameFields, body: memoryview) -> bool:
        header = FrameHeader(*fields)
        found.append((header, decode_body(header, body)))
        return False

    walk = FrameWalk(SEGMENT, base_offset, file_end=len(data), visit=take)
    walk.feed(data[SEGMENT_HEADER_BYTES:])
    return walk, found


def test_the_golden_segment_is_read() -> None:
    """A whole segment is scanned, and its records come back."""
    data = golden("segment")
    scan, frames = walked(data, 42)

    assert (45, len(data) - 40, []) == (scan.next_offset, scan.end, scan.damages)
    assert [[b"hello", b"board"], [None]] == [columns.value_list() for _, columns in frames]


def test_the_golden_journal_is_read() -> None:
    """What each frame of a journal says of itself comes back."""
    data = golden("journal")
    header = decode_segment_header(data)
    assert (SegmentKind.JOURNAL, 40, 1) == (header.kind, header.base_offset, header.records_version)
    assert belongs_to(header, "catalog")
    assert not belongs_to(header, "topics/00/0/delivery")

    _, frames = walked(data, 40)
    assert [(40, 40), (41, 41), (42, 44), (45, 49), (50, 50), (51, 51), (52, 52)] == [
        (frame.base_offset, frame.last_offset) for frame, _ in frames
    ]
    first = [decode_control(columns.value(0)) for _, columns in frames]
    assert [
        Control(Kind.SNAPSHOT, 42),
        None,
        Control(Kind.EVENTS, 42),
        Control(Kind.GAP, 45),
        Control(Kind.HEAL, 52),
        None,
        Control(Kind.MARK, 52),
    ] == first
    assert [b"one", b"two"] == frames[2][1].value_list(1)


def test_golden_index_and_committed_file_are_read() -> None:
    """The small files beside a segment are read."""
    found = SegmentIndex.decode(golden("index"), SEGMENT)

    assert ([40, 44], [128, 328], 8, 48, 528, True) == (
        list(found.offsets),
        list(found.positions),
        found.records,
        found.next_offset,
        found.end_position,
        found.sealed,
    )
    assert Committed(46, 44) == decode_committed(golden("committed"))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    made = CASES | {name: lambda codec=codec: frame(SHRUNK, 7, codec) for name, codec in COMPRESSED.items()}
    for name, make in made.items():
        path = FOLDER / f"{name}.bin"
        if not path.exists():
            path.write_bytes(make())
