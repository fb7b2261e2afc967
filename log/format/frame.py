"""Frames: a fixed header with its own checksum, and a body of columns with another.

Theory of operation
-------------------
Both checksums are CRC-32 seeded with the CRC-32 of the segment's 64-bit id, so a frame is valid in one
segment only: a payload that happens to be a frame, or a stale frame in recycled space, never passes for a
record. The header's checksum covers the body's checksum and the offsets, hence it binds the body to its place
in the log. Because the header has a checksum of its own, a length is either right or known to be wrong, and a
damaged body can be skipped.

Frames follow one another without padding: there is no byte in a frame that no checksum covers.

The body is one CBOR map from small integers to columns. Each column is a byte string, or an RFC 8746 typed array (a tag
around a byte string), so any CBOR tool can read a body. The encoding is the shortest and the keys rise, hence there is
exactly one body for given columns; a decoder refuses all others. `find_columns` finds each column's bytes without
copying them; a CBOR library would copy every column and leave the typed arrays as tags. CBOR's first bytes of an item,
its type and length, are its *head*.

Invariants
----------
FR1  The first byte of a frame is never 0, so zeros are never a frame.
FR2  The same columns, place and settings give the same bytes; `encode(decode(frame)) == frame` when
     uncompressed.
FR3  No decoder allocates more than the header's lengths, and these are checked against the limits first.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, NoReturn

import attrs

from callboard.log import limits
from callboard.log.errors import InternalError, InvalidArgument
from callboard.log.format.columns import Columns, Ends
from callboard.log.format.compression import NONE, Codec, Compression, decompress
from callboard.log.format.faults import FaultReason, FrameInvalid
from callboard.log.format.fields import too_new
from callboard.log.format.layout import CHECKSUM, Layout, LayoutField
from callboard.log.seams.disk import Buffer

FRAME_MAGIC: Final = b"\xf9CBF"
NEWEST_CODEC: Final = max(Codec)
PLAIN: Final = Codec.NONE
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
SEGMENT_ID: Final = struct.Struct("<Q")

JOIN_BELOW_BYTES: Final = 16 * limits.KIB
"""Below this, one buffer is cheaper to write than many."""
SEEDS_KEPT: Final = 1024


# -- the columns of a body


@attrs.frozen
class ColumnType:
    """A column's type: its RFC 8746 tag (None: a plain byte string) and `array` code."""

    name: str
    tag: int | None
    code: str


BYTES: Final = ColumnType("bytes", None, "B")
U8: Final = ColumnType("u8 array", 64, "B")
U32: Final = ColumnType("u32 array", 70, "I")
U64: Final = ColumnType("u64 array", 71, "Q")
I64: Final = ColumnType("i64 array", 79, "q")


@attrs.frozen
class BodyColumn:
    """One entry of the body's map."""

    key: int
    name: str
    type: ColumnType
    present: str
    meaning: str


BODY_COLUMNS: Final = tuple(
    BodyColumn(key, *row)
    for key, row in enumerate(
        (
            ("values", BYTES, "always", "all payloads, one after the other"),
            ("value_ends", U32, "always", "where each payload ends; count + 1 items with a leading 0"),
            ("value_nulls", BYTES, "some payload is None", "bitmap, least significant bit first; set: None"),
            ("keys", BYTES, "some record has a key", "all keys"),
            ("key_ends", U32, "with keys", "where each key ends; count + 1 items with a leading 0"),
            ("key_nulls", BYTES, "some record has no key", "bitmap; set: no key"),
            ("header_ends", U32, "some record has headers", "record i has headers [i] to [i + 1]"),
            ("header_name_ends", U32, "with headers", "where each header's name ends; headers + 1 items"),
            ("header_names", BYTES, "with headers", "all header names, UTF-8"),
            ("header_value_ends", U32, "with headers", "where each header's value ends; headers + 1 items"),
            ("header_values", BYTES, "with headers", "all header values"),
            ("offset_deltas", U32, "offsets have gaps", "offset minus base offset, rising; count items"),
            ("append_times", I64, "append times differ", "microseconds since 1970; count items"),
            ("event_times", I64, "some record has one", "the publisher's, like append times; -2^63: none"),
            ("priorities", U8, "one is not 0", "one more than each priority; 0: none"),
            ("expiries", I64, "some record has one", "like append times; -2^63: never"),
            ("dedup_ids", BYTES, "some record has one", "all deduplication ids"),
            ("dedup_ends", U32, "with dedup_ids", "where each id ends; count + 1 items with a leading 0"),
            ("dedup_nulls", BYTES, "some record has none", "bitmap; set: no id"),
            ("producer_counts", U32, "some record has a producer", "records in each run, at least 1"),
            ("producer_ids", U64, "with producer_counts", "the producer of each run; 0: none"),
            ("producer_epochs", U32, "with producer_counts", "the producer's epoch in each run"),
            ("producer_sequences", U64, "with producer_counts", "sequence of each run's first record"),
        )
    )
)

NAMES: Final = tuple(column.name for column in BODY_COLUMNS)
KEY: Final = {column.name: column.key for column in BODY_COLUMNS}
TAGS: Final = tuple(column.type.tag or 0 for column in BODY_COLUMNS)
PRODUCER_COLUMNS: Final = tuple(column for column in BODY_COLUMNS if column.name.startswith("producer_"))
columns_of = attrgetter(*(column.name for column in BODY_COLUMNS[: PRODUCER_COLUMNS[0].key]))

TAG_HEAD: Final = 0xD8
BYTES_HEAD: Final = 0x40
MAP_HEAD: Final = 0xA0
COLUMN_HEADS: Final = tuple(
    bytes((column.key,)) if column.type.tag is None else bytes((column.key, TAG_HEAD, column.type.tag))
    for column in BODY_COLUMNS
)


def bytes_head(length: int) -> bytes:
    """The shortest CBOR head of a byte string."""
    if length < 24:
        return bytes((BYTES_HEAD | length,))
    if length < 256:
        return bytes((0x58, length))
    if length < 65536:
        return struct.pack(">BH", 0x59, length)
    return struct.pack(">BI", 0x5A, length)


SHORT_HEADS: Final = tuple(bytes_head(length) for length in range(256))
VALUES_HEAD: Final = bytes((MAP_HEAD | 2,)) + COLUMN_HEADS[0]
"""The beginning of a body that has only `values` and `value_ends`."""

VALUES_ONLY: Final[list[memoryview | None]] = [None] * (len(BODY_COLUMNS) - 3)
"""All columns but those of the values, in a body that has only these."""


# -- headers

FrameFields = tuple[Any, ...]
"""What `HEADER` unpacks: the fields of a `FrameHeader`, not yet named."""


@attrs.define
class FrameHeader:
    """The fields of `FRAME_LAYOUT`."""

    magic: bytes
    version: int
    codec: int
    flags: int
    count: int
    body_checksum: int
    body_bytes: int
    plain_bytes: int
    base_offset: int
    last_offset: int
    base_time_us: int
    max_time_us: int
    header_checksum: int

    @property
    def frame_bytes(self) -> int:
        """Header and body together: the next frame begins this far on."""
        return FRAME_HEADER_BYTES + self.body_bytes


@lru_cache(maxsize=SEEDS_KEPT)
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
        raise InternalError("a dense batch spans offsets that no record has", invariant="BC3")
    stored: tuple[Any, ...] = columns_of(columns)
    if columns.producers is not None:
        stored += tuple(zip(*columns.producers, strict=True))
    present = len(stored) - stored.count(None)
    if present == 2 and type(stored[0]) is bytes and type(stored[1]) is array:
        parts = values_parts(stored[0], stored[1].tobytes())
    else:
        parts = [bytes((MAP_HEAD | present,))]
        for key, column in enumerate(stored):
            if column is None:
                continue
            data: Buffer = column
            kind = type(column)
            if kind is array:
                data = column.tobytes()
            elif kind is memoryview:
                data = column if column.format == "B" else column.cast("B")
            elif kind is not bytes:
                data = array(BODY_COLUMNS[key].type.code, column).tobytes()
            length = len(data)
            parts += COLUMN_HEADS[key] + (SHORT_HEADS[length] if length < 256 else bytes_head(length)), data
    size = sum(map(len, parts))
    check_size(size)
    plain_bytes, codec = size, PLAIN
    if compression.codec != "none":
        codec, body = compression.compress(b"".join(parts))
        parts, size = [body], len(body)
    elif size < JOIN_BELOW_BYTES:
        parts = [b"".join(parts)]
    checksum = seed = seed_of(segment_id)
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
    if size < JOIN_BELOW_BYTES:
        return [header + parts[0]]
    return [header, *parts]


def check_size(body_bytes: int) -> None:
    """Refuse a body that no frame may hold, before it is compressed."""
    if body_bytes > limits.FRAME_BODY_BYTES_MAX:
        raise InvalidArgument(
            f"a batch of {body_bytes} bytes: at most {limits.FRAME_BODY_BYTES_MAX}. Split it."
        )


def values_parts(values: bytes, ends: bytes) -> list[Buffer]:
    """The body of records that have a value and nothing else."""
    length, ends_length = len(values), len(ends)
    head = SHORT_HEADS[length] if length < 256 else bytes_head(length)
    ends_head = SHORT_HEADS[ends_length] if ends_length < 256 else bytes_head(ends_length)
    return [VALUES_HEAD, head, values, COLUMN_HEADS[1], ends_head, ends]


def encode_values(
    values: Sequence[bytes], *, segment_id: int, base_offset: int, append_time_us: int
) -> bytes:
    """The uncompressed frame of records that have a value and nothing else; quicker than by way of `Columns`."""
    ends, count = array("I", accumulate(map(len, values), initial=0)), len(values)
    length, ends_length = ends[-1], 4 * count + 4
    head = SHORT_HEADS[length] if length < 256 else bytes_head(length)
    ends_head = SHORT_HEADS[ends_length] if ends_length < 256 else bytes_head(ends_length)
    body = b"".join((VALUES_HEAD, head, *values, COLUMN_HEADS[1], ends_head, ends))
    size = len(body)
    check_size(size)
    seed, last_offset = seed_of(segment_id), base_offset + count - 1
    sealed = SEALED.pack(
        FRAME_MAGIC, FRAME_VERSION, PLAIN, 0, count, zlib.crc32(body, seed), size, size,
        base_offset, last_offset, append_time_us, append_time_us,
    )  # fmt: skip
    return sealed + CHECKSUM.pack(zlib.crc32(sealed, seed)) + body


def encode_value(
    parts: Sequence[bytes], *, segment_id: int, base_offset: int, append_time_us: int
) -> list[Buffer]:
    """The uncompressed frame of one record that has a value and nothing else; the value is given in parts, which are
    not copied.
    """
    length = sum(map(len, parts))
    ends = array("I", (0, length)).tobytes()
    body = [VALUES_HEAD + bytes_head(length), *parts, COLUMN_HEADS[1] + SHORT_HEADS[len(ends)] + ends]
    size = sum(map(len, body))
    check_size(size)
    checksum = seed = seed_of(segment_id)
    for part in body:
        checksum = zlib.crc32(part, checksum)
    sealed = SEALED.pack(
        FRAME_MAGIC, FRAME_VERSION, PLAIN, 0, 1, checksum, size, size,
        base_offset, base_offset, append_time_us, append_time_us,
    )  # fmt: skip
    return [sealed + CHECKSUM.pack(zlib.crc32(sealed, seed)), *body]


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
    """As `decode_header`, for a segment whose seed is at hand. The fields are within limits (FR3) and agree."""
    if len(view) - at < FRAME_HEADER_BYTES:
        zeros = not any(view[at:])
        raise FrameInvalid(
            FaultReason.ZEROS if zeros else FaultReason.SHORT, "the bytes end within the header"
        )
    header = FrameHeader(*HEADER.unpack_from(view, at))
    if header.magic != FRAME_MAGIC:
        raise FrameInvalid(FaultReason.ZEROS if header.magic == bytes(4) else FaultReason.MAGIC)
    if zlib.crc32(view[at : at + SEALED_BYTES], seed) != header.header_checksum:
        raise FrameInvalid(FaultReason.HEADER_CHECKSUM)
    if header.version != FRAME_VERSION or header.flags or header.codec > NEWEST_CODEC:
        raise too_new(
            f"a frame has version {header.version}, codec {header.codec}, flags {header.flags}",
            found=header.version,
            supported=FRAME_VERSION,
        )
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
    return header


def decode_body(header: FrameHeader, body: Buffer) -> Columns:
    """The columns of a frame whose checksums hold; `body` is what follows the header, `header.body_bytes` long.

    The columns are views of `body` (of its decompressed copy when compressed). Raises `FrameInvalid`.
    """
    if header.codec != Codec.NONE:
        body = decompress(header.codec, body, header.plain_bytes)
    columns = read_body(memoryview(body), header.count, header.last_offset - header.base_offset)
    columns.base_offset = header.base_offset
    columns.append_time_us = header.base_time_us
    times = columns.append_times
    latest = header.base_time_us if times is None else max(times)
    if latest != header.max_time_us or (times is not None and times[0] != header.base_time_us):
        raise FrameInvalid(FaultReason.BODY, "append times do not agree with the header")
    return columns


def decode_frame(buffer: Buffer, at: int, segment_id: int) -> tuple[FrameHeader, Columns]:
    """Header and columns of the frame that begins at byte `at` of `buffer`. Raises as `decode_header` does."""
    view = memoryview(buffer)
    header = decode_header(view, at, segment_id)
    body = view[at + FRAME_HEADER_BYTES : at + header.frame_bytes]
    if len(body) != header.body_bytes:
        raise FrameInvalid(FaultReason.SHORT, f"{len(body)} bytes of a body of {header.body_bytes}")
    if zlib.crc32(body, seed_of(segment_id)) != header.body_checksum:
        raise FrameInvalid(FaultReason.BODY_CHECKSUM)
    return header, decode_body(header, body)


# -- reading a body


def refuse(detail: str) -> NoReturn:
    """Raise the error for a body that is not well-formed."""
    raise FrameInvalid(FaultReason.BODY, detail)


def find_columns(body: memoryview) -> list[memoryview | None]:
    """The bytes of each column by key, None where absent. Reads heads only."""
    found: list[memoryview | None] = [None] * len(BODY_COLUMNS)
    size, tags, limit = len(body), TAGS, len(BODY_COLUMNS)
    try:
        entries = body[0] - MAP_HEAD
        if not 0 <= entries <= len(BODY_COLUMNS):
            refuse("not a map of columns")
        at = 1
        previous = -1
        for _ in range(entries):
            key = body[at]
            if not previous < key < limit:
                refuse(f"key {key} after {previous}")
            previous = key
            at += 1
            if tags[key]:
                if body[at] != TAG_HEAD or body[at + 1] != tags[key]:
                    refuse(f"{NAMES[key]} has another type")
                at += 2
            length = body[at] - BYTES_HEAD
            if 0 <= length < 24:
                at += 1
            else:
                at, length = read_bytes_head(body, at)
            end = at + length
            if end > size:
                refuse(f"{NAMES[key]} ends beyond the body")
            found[key] = body[at:end]
            at = end
    except IndexError:
        refuse("ends within a head")
    if at != size:
        refuse("bytes after the map")
    return found


def read_bytes_head(body: memoryview, at: int) -> tuple[int, int]:
    """(where the bytes begin, how many they are) of the byte string of 24 bytes or more whose head is at `at`."""
    head = body[at]
    if head == 0x58:
        length, least, at = body[at + 1], 24, at + 2
    elif head == 0x59:
        length, least, at = int.from_bytes(body[at + 1 : at + 3], "big"), 256, at + 3
    elif head == 0x5A:
        length, least, at = int.from_bytes(body[at + 1 : at + 5], "big"), 65536, at + 5
    else:
        refuse("not a byte string")
    if length < least:
        refuse("a length is not in its shortest form")
    return at, length


def read_body(body: memoryview, count: int, span: int) -> Columns:
    """The columns of a body of `count` records; all of BC1 to BC4 is checked here.

    They are views of the body, but for the runs of producers, which are copied.
    """
    found = find_columns(body)
    values, value_ends, value_nulls = found[0], found[1], found[2]
    if values is None or value_ends is None:
        refuse("no values")
    columns = Columns(count, span, values, read_ends(value_ends, count, len(values)), value_nulls)
    if value_nulls is not None:
        check_nulls(value_nulls, count, columns.value_ends)
    if span != count - 1 and found[KEY["offset_deltas"]] is None:
        refuse("offsets have gaps, but there are no deltas")
    if found[3:] == VALUES_ONLY:
        return columns
    columns.keys, columns.key_ends, columns.key_nulls = read_optional(found[3:6], count)
    columns.dedup_ids, columns.dedup_ends, columns.dedup_nulls = read_optional(found[16:19], count)
    read_headers(columns, found[6:11])
    read_deltas(columns, found[KEY["offset_deltas"]])
    columns.append_times = read_numbers(found[KEY["append_times"]], "q", count)
    columns.event_times = read_numbers(found[KEY["event_times"]], "q", count)
    columns.expiries = read_numbers(found[KEY["expiries"]], "q", count)
    columns.priorities = found[KEY["priorities"]]
    if columns.priorities is not None and len(columns.priorities) != count:
        refuse("priorities do not cover the records")
    read_producers(columns, found[19:23])
    return columns


def read_ends(data: memoryview, count: int, last: int) -> Ends:
    """Read where items end, checked by BC1."""
    if len(data) != 4 * (count + 1):
        refuse("ends do not cover the items")
    ends = data.cast("I")
    if ends[0] != 0 or ends[count] != last:
        refuse("ends do not span the bytes")
    if count > 1:
        items = ends.tolist()
        if items != sorted(items):
            refuse("ends fall")
    return ends


def check_nulls(nulls: memoryview, count: int, ends: Ends) -> None:
    """As long as the items, some bit set, none beyond the last item, and no bytes where an item is None."""
    bits = int.from_bytes(nulls, "little")
    if len(nulls) != (count + 7) // 8 or not bits or bits >> count:
        refuse("a bitmap does not fit the items")
    digits = f"{bits:b}"[::-1]
    index = digits.find("1")
    while index >= 0:
        if ends[index] != ends[index + 1]:
            refuse("an item is None and has bytes")
        index = digits.find("1", index + 1)


def read_optional(
    found: Sequence[memoryview | None], count: int
) -> tuple[memoryview | None, Ends | None, memoryview | None]:
    """Read a byte column with its ends and nulls, checked by BC1 and BC2."""
    data, ends_data, nulls = found
    if data is None or ends_data is None:
        if data is not None or ends_data is not None or nulls is not None:
            refuse("a column lacks its companion")
        return None, None, None
    ends = read_ends(ends_data, count, len(data))
    if nulls is not None:
        check_nulls(nulls, count, ends)
    return data, ends, nulls


def read_headers(columns: Columns, found: Sequence[memoryview | None]) -> None:
    """Read the five columns of headers, checked by BC1 and BC2; names are whole UTF-8 text."""
    ends, name_ends, names, value_ends, values = found
    if ends is None or name_ends is None or names is None or value_ends is None or values is None:
        if any(column is not None for column in found):
            refuse("headers lack a column")
        return
    if not name_ends or len(name_ends) % 4:
        refuse("header names have no ends")
    total = len(name_ends) // 4 - 1
    columns.header_ends = read_ends(ends, columns.count, total)
    columns.header_name_ends = read_ends(name_ends, total, len(names))
    columns.header_value_ends = read_ends(value_ends, total, len(values))
    columns.header_names, columns.header_values = names, values
    text = bytes(names)
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            refuse("header names are not UTF-8")
        if any(end < len(text) and text[end] & 0xC0 == 0x80 for end in columns.header_name_ends):
            refuse("a header name ends within a character")


def read_deltas(columns: Columns, data: memoryview | None) -> None:
    """Read where offsets leave gaps, checked by BC3."""
    if data is None:
        return
    deltas = read_numbers(data, "I", columns.count)
    items = list(deltas or ())
    if items[-1] > columns.span or any(map(int.__ge__, items, items[1:])):
        refuse("offset deltas do not rise within the span")
    if columns.span == columns.count - 1:
        refuse("offset deltas without a gap")
    columns.offset_deltas = deltas


def read_numbers(data: memoryview | None, code: str, count: int) -> Sequence[int] | None:
    """Read a column of numbers, checked by BC2."""
    if data is None:
        return None
    if len(data) != count * struct.calcsize(code):
        refuse("a column of numbers does not cover the records")
    return data.cast(code)  # type: ignore[call-overload, no-any-return]


def read_producers(columns: Columns, found: Sequence[memoryview | None]) -> None:
    """Read the runs of producers, checked by BC4."""
    counts = found[0]
    if counts is None or any(column is None for column in found):
        if any(column is not None for column in found):
            refuse("producers lack a column")
        return
    if not counts or len(counts) % 4:
        refuse("no runs of producers")
    total = len(counts) // 4
    lists = [
        list(read_numbers(data, column.type.code, total) or ())
        for data, column in zip(found, PRODUCER_COLUMNS, strict=True)
    ]
    if 0 in lists[0] or sum(lists[0]) != columns.count:
        refuse("runs of producers do not cover the records")
    columns.producers = list(zip(*lists, strict=True))
