"""Frames: a fixed header with its own checksum, and a body of columns with another.

Theory of operation
-------------------
Both checksums are CRC-32 seeded with the CRC-32 of the segment's 64-bit id, so a frame is valid in one
segment only: a payload that happens to be a frame, or a stale frame in recycled space, never passes for a
record. The header's checksum covers the body's checksum and the offsets, hence it binds the body to its place
in the log. Because the header has a checksum of its own, a length is either right or known to be wrong, and a
damaged body can be skipped.

Frames follow one another without padding: there is no byte in a segment that no checksum covers.

Invariants
----------
F1  The first byte of a frame is never 0, so zeros are never a frame.
F2  The same columns, place and settings give the same bytes; `encode(decode(frame)) == frame` when
    uncompressed.
F3  No decoder allocates more than the header's lengths, and these are checked against the limits first.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, Final

import attrs

from callboard.log import limits
from callboard.log.errors import FormatTooNew, InternalError, InvalidArgument
from callboard.log.format.body import body_parts, read_body
from callboard.log.format.columns import Columns
from callboard.log.format.compression import NONE, Codec, Compression, decompress
from callboard.log.format.faults import FaultReason, FrameInvalid
from callboard.log.format.layout import Layout, LayoutField
from callboard.log.seams.disk import Buffer

__all__ = [
    "BASE_OFFSET",
    "COUNT",
    "FRAME_HEADER_BYTES",
    "FRAME_LAYOUT",
    "FRAME_MAGIC",
    "FRAME_VERSION",
    "FrameFields",
    "FrameHeader",
    "LAST_OFFSET",
    "MAX_TIME",
    "decode_body",
    "decode_frame",
    "decode_header",
    "encode_frame",
    "frame_length",
    "header_of",
    "plain_body",
    "reseal",
    "seed_of",
]

FRAME_MAGIC: Final = b"\xf9CBF"
NEWEST_CODEC: Final = max(Codec)
FRAME_VERSION: Final = 1

FRAME_LAYOUT: Final = Layout(
    LayoutField("magic", "4s", "F9 43 42 46 (F9 occurs in no UTF-8 text)"),
    LayoutField("version", "B", "1"),
    LayoutField("codec", "B", "of the body: 0 none, 1 gzip, 2 zstd"),
    LayoutField("flags", "H", "0"),
    LayoutField("count", "I", "records, at least 1"),
    LayoutField(
        "body_checksum", "I", "CRC-32 of the body as stored, seeded with the CRC-32 of the segment id"
    ),
    LayoutField("body_bytes", "I", "length of the body as stored"),
    LayoutField("plain_bytes", "I", "length of the body when uncompressed"),
    LayoutField("base_offset", "Q", "offset that the deltas count from; of the first record when dense"),
    LayoutField("last_offset", "Q", "last offset that the frame covers"),
    LayoutField("base_time_us", "q", "append time of the first record, microseconds since 1970"),
    LayoutField("max_time_us", "q", "latest append time of the records"),
    LayoutField("header_checksum", "I", "CRC-32 of the 56 bytes before, seeded like the body's"),
)
FRAME_HEADER_BYTES: Final = FRAME_LAYOUT.size_bytes
SEALED_BYTES: Final = FRAME_HEADER_BYTES - 4
COUNT: Final = 4
BODY_CHECKSUM: Final = 5
BASE_OFFSET: Final = 8
LAST_OFFSET: Final = 9
MAX_TIME: Final = 11
"""Places in the unpacked fields of a header."""
HEADER: Final = FRAME_LAYOUT.struct
SEALED: Final = struct.Struct(HEADER.format[:-1])
CHECKSUM: Final = struct.Struct("<I")
SEGMENT_ID: Final = struct.Struct("<Q")

JOIN_BELOW_BYTES: Final = 16 * limits.KIB
"""Below this, one buffer is cheaper to write than many."""


@attrs.define
class FrameHeader:
    """A header whose checksum held. `seed` is what the segment's checksums begin with."""

    codec: int
    count: int
    body_checksum: int
    body_bytes: int
    plain_bytes: int
    base_offset: int
    last_offset: int
    base_time_us: int
    max_time_us: int
    seed: int

    @property
    def frame_bytes(self) -> int:
        """Header and body together: the next frame begins this far on."""
        return FRAME_HEADER_BYTES + self.body_bytes


FrameFields = tuple[Any, ...]
"""What `HEADER` unpacks: the fields of `FRAME_LAYOUT`, in order."""


def header_of(fields: FrameFields, seed: int) -> FrameHeader:
    """The header of a frame that was found valid, from its unpacked fields."""
    _, _, codec, _, count, body_sum, body_bytes, plain_bytes, base, last, first_us, max_us, _ = fields
    return FrameHeader(codec, count, body_sum, body_bytes, plain_bytes, base, last, first_us, max_us, seed)


def seed_of(segment_id: int) -> int:
    """What every checksum of the segment begins with: the CRC-32 of its id, little-endian."""
    return zlib.crc32(SEGMENT_ID.pack(segment_id))


# -- writing -------------------------------------------------------------------------------------------------


def encode_frame(
    columns: Columns,
    *,
    segment_id: int,
    base_offset: int,
    append_time_us: int,
    compression: Compression = NONE,
) -> list[Buffer]:
    """The frame as buffers, one after the other; large uncompressed columns are not copied.

    `append_time_us` is the append time of all records, unless `columns.append_times` has one for each.
    """
    if columns.count < 1:
        raise InvalidArgument("a frame has at least one record: there is nothing to write.")
    if columns.offset_deltas is None and columns.span != columns.count - 1:
        raise InternalError("a dense batch spans offsets that no record has", invariant="C3")
    parts = body_parts(columns)
    size = sum(map(len, parts))
    if size > limits.FRAME_BODY_BYTES_MAX:
        raise InvalidArgument(f"a batch of {size} bytes: at most {limits.FRAME_BODY_BYTES_MAX}. Split it.")
    plain_bytes = size
    codec = Codec.NONE
    if size < JOIN_BELOW_BYTES or compression is not NONE:
        codec, body = compression.compress(b"".join(parts))
        parts = [body]
        size = len(body)
    seed = seed_of(segment_id)
    checksum = seed
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    first_time = latest_time = append_time_us
    if columns.append_times is not None:
        first_time, latest_time = columns.append_times[0], max(columns.append_times)
    sealed = SEALED.pack(
        FRAME_MAGIC,
        FRAME_VERSION,
        codec,
        0,
        columns.count,
        checksum,
        size,
        plain_bytes,
        base_offset,
        base_offset + columns.span,
        first_time,
        latest_time,
    )
    header = sealed + CHECKSUM.pack(zlib.crc32(sealed, seed))
    if len(parts) == 1 and size < JOIN_BELOW_BYTES:
        return [header + parts[0]]
    return [header, *parts]


def frame_length(buffers: Iterable[Buffer]) -> int:
    """The bytes of a frame given as buffers."""
    return sum(map(len, buffers))


def reseal(fields: FrameFields, body: Buffer, seed: int) -> bytes:
    """The header of the same frame in the segment with this seed; `fields` and `body` were found valid elsewhere."""
    sealed = SEALED.pack(*fields[:BODY_CHECKSUM], zlib.crc32(body, seed), *fields[BODY_CHECKSUM + 1 : -1])
    return sealed + CHECKSUM.pack(zlib.crc32(sealed, seed))


# -- reading -------------------------------------------------------------------------------------------------


def decode_header(buffer: Buffer, at: int, segment_id: int) -> FrameHeader:
    """The header of the frame that begins at byte `at`.

    Raises `FrameInvalid` with the reason, or `FormatTooNew` when a newer Callboard wrote it.
    """
    return read_header(memoryview(buffer), at, seed_of(segment_id))


def read_header(view: memoryview, at: int, seed: int) -> FrameHeader:
    """As `decode_header`, for a segment whose seed is at hand."""
    if len(view) - at < FRAME_HEADER_BYTES:
        zeros = not any(view[at:])
        raise FrameInvalid(
            FaultReason.ZEROS if zeros else FaultReason.SHORT, "the bytes end within the header"
        )
    (
        magic,
        version,
        codec,
        flags,
        count,
        body_checksum,
        body_bytes,
        plain_bytes,
        base,
        last,
        first_us,
        max_us,
        header_checksum,
    ) = HEADER.unpack_from(view, at)
    if magic != FRAME_MAGIC:
        raise FrameInvalid(FaultReason.ZEROS if magic == bytes(4) else FaultReason.MAGIC)
    if zlib.crc32(view[at : at + SEALED_BYTES], seed) != header_checksum:
        raise FrameInvalid(FaultReason.HEADER_CHECKSUM)
    if version != FRAME_VERSION or flags or codec > NEWEST_CODEC:
        raise FormatTooNew(
            f"a frame has version {version}, codec {codec}, flags {flags}: a newer Callboard wrote it. "
            "Upgrade Callboard to read it.",
            found=version,
            supported=FRAME_VERSION,
        )
    header = FrameHeader(
        codec, count, body_checksum, body_bytes, plain_bytes, base, last, first_us, max_us, seed
    )
    check_fields(header)
    return header


def check_fields(header: FrameHeader) -> None:
    """F3, and that the fields agree with one another."""
    if (
        header.body_bytes > limits.FRAME_BODY_BYTES_MAX
        or header.plain_bytes > limits.FRAME_DECOMPRESSED_BYTES_MAX
        or header.count > limits.BATCH_RECORDS_MAX
    ):
        raise FrameInvalid(FaultReason.TOO_LONG, f"{header.count} records, {header.body_bytes} bytes")
    if not 0 < header.count <= header.last_offset - header.base_offset + 1:
        raise FrameInvalid(FaultReason.HEADER, "the count does not fit the offsets")
    if header.max_time_us < header.base_time_us:
        raise FrameInvalid(FaultReason.HEADER, "the latest time is before the first")
    if header.codec == Codec.NONE and header.body_bytes != header.plain_bytes:
        raise FrameInvalid(FaultReason.HEADER, "two lengths for an uncompressed body")


def check_body(header: FrameHeader, body: Buffer) -> None:
    """Compare length and checksum of the stored body."""
    if len(body) != header.body_bytes:
        raise FrameInvalid(FaultReason.SHORT, f"{len(body)} bytes of a body of {header.body_bytes}")
    if zlib.crc32(body, header.seed) != header.body_checksum:
        raise FrameInvalid(FaultReason.BODY_CHECKSUM)


def plain_body(header: FrameHeader, body: Buffer) -> Buffer:
    """The CBOR bytes of a stored body, decompressed."""
    return decompress(header.codec, body, header.plain_bytes)


def decode_body(header: FrameHeader, body: Buffer, *, verify: bool = True) -> Columns:
    """The columns of a frame; `body` is what follows the header, exactly `header.body_bytes` long.

    The columns are views of `body` (of its decompressed copy when compressed). `verify=False` leaves the
    checksum out, for a body that was verified before. Raises `FrameInvalid`.
    """
    if verify:
        check_body(header, body)
    if header.codec != Codec.NONE:
        body = plain_body(header, body)
    columns = read_body(memoryview(body), header.count, header.last_offset - header.base_offset)
    columns.base_offset = header.base_offset
    columns.append_time_us = header.base_time_us
    times = columns.append_times
    latest = header.base_time_us if times is None else max(times)
    if latest != header.max_time_us or (times is not None and times[0] != header.base_time_us):
        raise FrameInvalid(FaultReason.BODY, "append times do not agree with the header")
    return columns


def decode_frame(buffer: Buffer, at: int, segment_id: int) -> tuple[FrameHeader, Columns]:
    """Header and columns of the frame that begins at byte `at` of `buffer`."""
    view = memoryview(buffer)
    header = decode_header(view, at, segment_id)
    body = view[at + FRAME_HEADER_BYTES : at + header.frame_bytes]
    return header, decode_body(header, body)
