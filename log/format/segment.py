"""The segment header: 64 bytes, stored twice, before the first frame.

The id seeds every checksum of the segment (see `frame`). The header is stored twice because without the id no frame
of the segment can be distinguished from noise: one damaged byte must not cost a segment.

A segment that lies in the folder of another log (files were swapped, or restored into the wrong place) has checksums
that hold, so without its *identity* one topic's records would be served as another's. The identity is the CRC-32 of the
folder's path below the root; the topic's id, never used again, is part of the path, and so is the partition's number.

Only logs whose folders are Callboard's own have an identity: the catalog, partitions, their delivery journals. All
other logs (recordings, journals of users' actors) may be moved and copied at will: their identity is 0, *unbound*. So
it is in every segment that was written before headers had an identity; unbound segments are accepted everywhere.
"""

from __future__ import annotations

import enum
import zlib
from typing import Final

import attrs

from callboard.log.format.faults import FaultReason, SegmentHeaderInvalid
from callboard.log.format.fields import too_new
from callboard.log.format.layout import Layout, LayoutField
from callboard.log.seams.disk import Buffer

SEGMENT_MAGIC: Final = b"CALLBRD1"
SEGMENT_VERSION: Final = 1

SEGMENT_LAYOUT: Final = Layout(
    LayoutField("magic", "8s", "`CALLBRD1`"),
    LayoutField("version", "H", "1; magic, version and checksum keep their places for ever"),
    LayoutField("kind", "B", "1 log of a partition, 2 journal"),
    LayoutField("flags", "B", "0"),
    LayoutField("identity", "I", "CRC-32 of the path of the log's folder; 0: the segment is bound to no log"),
    LayoutField("segment_id", "Q", "random, never 0"),
    LayoutField("base_offset", "Q", "offset of the first record, or of the one that would be first"),
    LayoutField("created_us", "q", "microseconds since 1970"),
    LayoutField(
        "previous_end",
        "Q",
        "first offset past the segment before; up to the base offset there are no records",
    ),
    LayoutField("previous_base", "Q", "base offset of the segment before; of this one when it was the first"),
    LayoutField(
        "gap", "B", "why previous_end is below the base offset: 0 it is not, 1 unsynced records, 2 damage"
    ),
    LayoutField("records_version", "B", "version of what the records hold; in a journal its owner's, else 0"),
    LayoutField("reserved", "2s", "zeros"),
    LayoutField("checksum", "I", "CRC-32 of the 60 bytes before"),
)
COPY_BYTES: Final = SEGMENT_LAYOUT.size_bytes
SEGMENT_HEADER_BYTES: Final = 2 * COPY_BYTES

UNBOUND: Final = 0
CATALOG: Final = "catalog"
TOPICS: Final = "topics"
PARTITION_DEPTH: Final = 3
"""topics/<topic id>/<partition>; what lies below is a journal."""


class GapReason(enum.IntEnum):
    """Why no records have the offsets before a segment."""

    NONE = 0
    """There is no gap."""
    UNSYNCED = 1
    """They were named or seen, but never synced, and power failed: they are not used again."""
    DAMAGED = 2
    """The bytes that held them are damaged."""


class SegmentKind(enum.IntEnum):
    """What the frames of a segment hold."""

    LOG = 1
    JOURNAL = 2


@attrs.frozen
class SegmentHeader:
    """What a segment says of itself. `intact` is False when one of the two copies is damaged."""

    segment_id: int
    base_offset: int
    created_us: int
    kind: SegmentKind = SegmentKind.LOG
    previous_end: int = 0
    previous_base: int = 0
    gap: GapReason = GapReason.NONE
    records_version: int = 0
    version: int = SEGMENT_VERSION
    intact: bool = True
    identity: int = 0
    """Which log the segment belongs to (see `identity_of`); 0: any."""


def encode_segment_header(
    *,
    segment_id: int,
    base_offset: int,
    created_us: int,
    kind: SegmentKind = SegmentKind.LOG,
    previous_end: int | None = None,
    previous_base: int | None = None,
    gap: GapReason = GapReason.NONE,
    records_version: int = 0,
    identity: int = 0,
) -> bytes:
    """The first `SEGMENT_HEADER_BYTES` of a segment; by default it continues the one before, or is the first."""
    copy = SEGMENT_LAYOUT.seal(
        SEGMENT_MAGIC,
        SEGMENT_VERSION,
        kind,
        0,
        identity,
        segment_id,
        base_offset,
        created_us,
        base_offset if previous_end is None else previous_end,
        base_offset if previous_base is None else previous_base,
        gap,
        records_version,
        bytes(2),
    )
    return copy * 2


def decode_segment_header(buffer: Buffer) -> SegmentHeader:
    """The header of a segment whose file begins with `buffer`.

    Raises `SegmentHeaderInvalid` when both copies are damaged (`FaultReason.ZEROS`: never written), and `FormatTooNew`.
    """
    view = memoryview(buffer)[:SEGMENT_HEADER_BYTES]
    copies: list[SegmentHeader] = []
    faults: list[SegmentHeaderInvalid] = []
    for at in (0, COPY_BYTES):
        try:
            copies.append(decode_copy(view[at : at + COPY_BYTES]))
        except SegmentHeaderInvalid as fault:
            faults.append(fault)
    if not copies:
        raise (
            faults[0]
            if any(view)
            else SegmentHeaderInvalid(FaultReason.ZEROS, "the header was never written")
        )
    if faults or copies[0] != copies[1]:
        return attrs.evolve(copies[0], intact=False)
    return copies[0]


def decode_copy(copy: memoryview) -> SegmentHeader:
    """One of the two copies of a header."""
    if len(copy) < COPY_BYTES:
        raise SegmentHeaderInvalid(FaultReason.SHORT, "the file ends within the header")
    magic, version, kind, flags, identity, *places = SEGMENT_LAYOUT.struct.unpack(copy)
    segment_id, base_offset, created_us, previous_end, previous_base, gap, records_version, rest, _ = places
    if magic != SEGMENT_MAGIC:
        raise SegmentHeaderInvalid(FaultReason.MAGIC)
    if not SEGMENT_LAYOUT.is_sealed(copy):
        raise SegmentHeaderInvalid(FaultReason.HEADER_CHECKSUM)
    known = kind in (1, 2) and gap <= max(GapReason) and not flags and not any(rest)
    known = known and (kind == SegmentKind.JOURNAL or not records_version)
    if version > SEGMENT_VERSION or (version == SEGMENT_VERSION and not known):
        raise too_new(
            f"a segment has format version {version}, kind {kind}", found=version, supported=SEGMENT_VERSION
        )
    if version < 1 or segment_id == 0:
        raise SegmentHeaderInvalid(FaultReason.HEADER, "version or id is 0")
    if previous_end > base_offset or previous_base > base_offset:
        raise SegmentHeaderInvalid(FaultReason.HEADER, "the segment before ends behind this one's beginning")
    return SegmentHeader(
        segment_id,
        base_offset,
        created_us,
        SegmentKind(kind),
        previous_end,
        previous_base,
        GapReason(gap),
        records_version,
        version,
        identity=identity,
    )


def identity_of(directory: str) -> int:
    """The identity of the log in `directory`, relative to the root; `UNBOUND` when it has none."""
    return UNBOUND if kind_of(directory) is None else zlib.crc32(directory.encode()) or 1


def kind_of(directory: str) -> SegmentKind | None:
    """What kind of log belongs in `directory`; None when that is not Callboard's to say."""
    parts = directory.split("/")
    if parts[0] == CATALOG:
        return SegmentKind.JOURNAL
    if parts[0] != TOPICS or len(parts) < PARTITION_DEPTH:
        return None
    return SegmentKind.LOG if len(parts) == PARTITION_DEPTH else SegmentKind.JOURNAL


def belongs_to(header: SegmentHeader, directory: str) -> bool:
    """Whether a segment with this header may lie in `directory`: it is bound to no other, and of the kind there."""
    return header.identity in (UNBOUND, identity_of(directory)) and kind_of(directory) in (None, header.kind)
