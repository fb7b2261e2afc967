"""The segment header: 64 bytes, stored twice, before the first frame.

The id seeds every checksum of the segment (see `frame`). The header is stored twice because without the id no frame
of the segment can be told from noise: one damaged byte must not cost a segment.
"""

from __future__ import annotations

import enum
import struct
import zlib
from typing import Final

import attrs

from callboard.log.errors import FormatTooNew
from callboard.log.format.faults import Fault, SegmentHeaderInvalid
from callboard.log.format.layout import Field, Layout
from callboard.log.seams.disk import Buffer

__all__ = [
    "SEGMENT_HEADER_BYTES",
    "SEGMENT_LAYOUT",
    "SEGMENT_MAGIC",
    "SEGMENT_VERSION",
    "SegmentHeader",
    "SegmentKind",
    "decode_segment_header",
    "encode_segment_header",
]

SEGMENT_MAGIC: Final = b"CALLBRD1"
SEGMENT_VERSION: Final = 1

SEGMENT_LAYOUT: Final = Layout(
    Field("magic", "8s", "`CALLBRD1`"),
    Field("version", "H", "1; magic, version and checksum keep their places for ever"),
    Field("kind", "B", "1 log of a partition, 2 journal"),
    Field("flags", "B", "0"),
    Field("reserved", "I", "0"),
    Field("segment_id", "Q", "random, never 0"),
    Field("base_offset", "Q", "offset of the first record, or of the one that would be first"),
    Field("created_us", "q", "microseconds since 1970"),
    Field("reserved_too", "20s", "zeros"),
    Field("checksum", "I", "CRC-32 of the 60 bytes before"),
)
COPY_BYTES: Final = SEGMENT_LAYOUT.size_bytes
SEGMENT_HEADER_BYTES: Final = 2 * COPY_BYTES
SEALED_BYTES: Final = COPY_BYTES - 4
CHECKSUM: Final = struct.Struct("<I")


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
    version: int = SEGMENT_VERSION
    intact: bool = True


def encode_segment_header(
    *, segment_id: int, base_offset: int, created_us: int, kind: SegmentKind = SegmentKind.LOG
) -> bytes:
    """The first `SEGMENT_HEADER_BYTES` of a segment."""
    packed = SEGMENT_LAYOUT.struct.pack(
        SEGMENT_MAGIC, SEGMENT_VERSION, kind, 0, 0, segment_id, base_offset, created_us, bytes(20), 0
    )
    sealed = packed[:SEALED_BYTES]
    return (sealed + CHECKSUM.pack(zlib.crc32(sealed))) * 2


def decode_segment_header(buffer: Buffer) -> SegmentHeader:
    """The header of a segment whose file begins with `buffer`.

    Raises `SegmentHeaderInvalid` when both copies are damaged (`Fault.ZEROS`: never written), and `FormatTooNew`.
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
        raise faults[0] if any(view) else SegmentHeaderInvalid(Fault.ZEROS, "the header was never written")
    if faults or copies[0] != copies[1]:
        return attrs.evolve(copies[0], intact=False)
    return copies[0]


def decode_copy(copy: memoryview) -> SegmentHeader:
    if len(copy) < COPY_BYTES:
        raise SegmentHeaderInvalid(Fault.SHORT, "the file ends within the header")
    magic, version, kind, flags, reserved, segment_id, base_offset, created_us, rest, checksum = (
        SEGMENT_LAYOUT.struct.unpack(copy)
    )
    if magic != SEGMENT_MAGIC:
        raise SegmentHeaderInvalid(Fault.MAGIC)
    if zlib.crc32(copy[:SEALED_BYTES]) != checksum:
        raise SegmentHeaderInvalid(Fault.HEADER_CHECKSUM)
    known = kind in (SegmentKind.LOG, SegmentKind.JOURNAL) and not flags and not reserved and not any(rest)
    if version > SEGMENT_VERSION or (version == SEGMENT_VERSION and not known):
        raise FormatTooNew(
            f"a segment has format version {version}, kind {kind}: a newer Callboard wrote it. "
            "Upgrade Callboard to read it.",
            found=version,
            supported=SEGMENT_VERSION,
        )
    if version < 1 or segment_id == 0:
        raise SegmentHeaderInvalid(Fault.HEADER, "version or id is 0")
    return SegmentHeader(segment_id, base_offset, created_us, SegmentKind(kind), version)
