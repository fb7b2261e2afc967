"""Frames: what binds a batch to its segment and place, and how other bytes are refused."""

from __future__ import annotations

import io
from array import array

import cbor2
import pytest

from callboard.log import limits
from callboard.log.errors import ConfigurationError, FormatTooNew, InvalidArgument
from callboard.log.format import frame as frames
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Codec, Compression, decompress
from callboard.log.format.faults import FaultReason, FrameInvalid
from callboard.log.format.frame import (
    FRAME_HEADER_BYTES,
    FRAME_LAYOUT,
    HEADER,
    decode_frame,
    decode_header,
    encode_frame,
    encode_values,
    frame_length,
    reseal,
    seed_of,
)

SEGMENT = 0x1122334455667788


def frame_of(columns: Columns, *, segment_id: int = SEGMENT, base_offset: int = 50) -> bytes:
    return b"".join(encode_frame(columns, segment_id=segment_id, base_offset=base_offset, append_time_us=9))


def sealed_anew(frame: bytes, **fields: object) -> bytes:
    """The frame with header fields changed and all checksums right."""
    names = [field.name for field in FRAME_LAYOUT.fields]
    values = dict(zip(names, FRAME_LAYOUT.struct.unpack_from(frame), strict=True)) | fields
    header = FRAME_LAYOUT.struct.pack(*values.values())[:-4]
    body = frame[FRAME_HEADER_BYTES:]
    seed = frames.seed_of(SEGMENT)
    header = header[:12] + frames.zlib.crc32(body, seed).to_bytes(4, "little") + header[16:]
    return header + frames.zlib.crc32(header, seed).to_bytes(4, "little") + body


def reason_of(frame: bytes, segment_id: int = SEGMENT) -> FaultReason:
    with pytest.raises(FrameInvalid) as raised:
        decode_frame(frame, 0, segment_id)
    return raised.value.reason


def test_header_tells_offsets_times_and_lengths() -> None:
    """A header alone says where the frame belongs, how long it is and how old."""
    frame = frame_of(Columns.build([b"a", b"b"]))
    header = decode_header(frame, 0, SEGMENT)

    assert (50, 51, 2) == (header.base_offset, header.last_offset, header.count)
    assert (9, 9) == (header.base_time_us, header.max_time_us)
    assert len(frame) == header.frame_bytes == FRAME_HEADER_BYTES + header.body_bytes


def test_decoded_columns_know_their_offsets_and_append_time() -> None:
    """Decoding assigns base offset and append time from the header."""
    _, columns = decode_frame(frame_of(Columns.build([b"a", b"b"])), 0, SEGMENT)

    assert ([50, 51], 51, [9, 9]) == (
        [columns.offset(i) for i in range(2)],
        columns.last_offset,
        [columns.append_time(i) for i in range(2)],
    )


def test_append_times_that_differ_have_a_column() -> None:
    """Records keep their own append times when batches are joined; the header has the first and the latest."""
    columns = Columns.build([b"a", b"b", b"c"])
    columns.append_times = [30, 50, 40]
    header, decoded = decode_frame(frame_of(columns), 0, SEGMENT)

    assert (30, 50) == (header.base_time_us, header.max_time_us)
    assert [30, 50, 40] == [decoded.append_time(i) for i in range(3)]


def test_a_frame_may_cover_offsets_around_its_records() -> None:
    """Compaction may remove the first and last records of a range; the frame still covers their offsets."""
    columns = Columns.build([b"a", b"c"])
    columns.base_offset, columns.span, columns.offset_deltas = 50, 9, array("I", [1, 3])
    header, decoded = decode_frame(frame_of(columns), 0, SEGMENT)

    assert (50, 59, 2) == (header.base_offset, header.last_offset, header.count)
    assert [51, 53] == decoded.offset_list()
    assert 59 == decoded.last_offset


def test_large_columns_are_not_copied_into_the_frame() -> None:
    """Beyond a small size the column's own bytes are among the buffers to write."""
    columns = Columns.build([b"x" * 40_000, b"y"])
    buffers = encode_frame(columns, segment_id=SEGMENT, base_offset=0, append_time_us=0)

    assert any(buffer is columns.values for buffer in buffers)
    assert len(b"".join(buffers)) == frame_length(buffers)
    assert [b"x" * 40_000, b"y"] == decode_frame(b"".join(buffers), 0, SEGMENT)[1].value_list()


def test_any_cbor_tool_reads_a_body() -> None:
    """An uncompressed body is one CBOR map of byte strings and RFC 8746 arrays."""
    frame = frame_of(Columns.build([b"ab", b"c"], event_times=[7, None]))
    stream = io.BytesIO(frame[FRAME_HEADER_BYTES:])
    body = cbor2.load(stream)

    assert b"" == stream.read()
    assert {0, 1, 13} == set(body)
    assert b"abc" == body[0]
    assert (70, b"\0\0\0\0\2\0\0\0\3\0\0\0") == (body[1].tag, body[1].value)
    assert (79, (7).to_bytes(8, "little") + bytes(7) + b"\x80") == (body[13].tag, body[13].value)


def test_a_frame_is_valid_in_its_own_segment_only() -> None:
    """The same bytes under another segment's id fail at the header already."""
    frame = frame_of(Columns.build([b"a"]))

    assert FaultReason.HEADER_CHECKSUM is reason_of(frame, SEGMENT + 1)


def test_resealing_moves_a_frame_to_another_segment() -> None:
    """A resealed frame equals one that was encoded for the new segment, and only there is it valid."""
    columns = Columns.build([b"a", None], [b"k", b"l"])
    frame = frame_of(columns)
    body = frame[FRAME_HEADER_BYTES:]

    assert frame_of(columns, segment_id=99) == reseal(HEADER.unpack_from(frame), body, seed_of(99)) + body


def test_reasons_are_told_apart() -> None:
    """Zeros, another magic, each checksum, and bytes that end too early have reasons of their own."""
    frame = frame_of(Columns.build([b"abc"]))

    assert FaultReason.ZEROS is reason_of(bytes(200))
    assert FaultReason.ZEROS is reason_of(bytes(20))
    assert FaultReason.MAGIC is reason_of(b"x" + frame[1:])
    assert FaultReason.HEADER_CHECKSUM is reason_of(frame[:20] + b"\xff" + frame[21:])
    assert FaultReason.BODY_CHECKSUM is reason_of(frame[:-1] + b"\xff")
    assert FaultReason.SHORT is reason_of(frame[:-1])
    assert FaultReason.SHORT is reason_of(frame[:59])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"count": 0}, FaultReason.HEADER),
        ({"count": 3}, FaultReason.HEADER),
        ({"base_offset": 99}, FaultReason.HEADER),
        ({"max_time_us": 8}, FaultReason.HEADER),
        ({"plain_bytes": 5}, FaultReason.HEADER),
        ({"count": limits.BATCH_RECORDS_MAX + 1, "last_offset": 10**9}, FaultReason.TOO_LONG),
        ({"body_bytes": limits.FRAME_BODY_BYTES_MAX + 1}, FaultReason.TOO_LONG),
        ({"plain_bytes": limits.FRAME_DECOMPRESSED_BYTES_MAX + 1, "codec": 1}, FaultReason.TOO_LONG),
        ({"codec": 1}, FaultReason.BODY),
        ({"codec": 2}, FaultReason.BODY),
        ({"last_offset": 52}, FaultReason.BODY),
        ({"max_time_us": 10}, FaultReason.BODY),
        ({"count": 1}, FaultReason.BODY),
    ],
)
def test_fields_that_contradict_each_other_are_refused(
    fields: dict[str, object], reason: FaultReason
) -> None:
    """A right checksum does not make a header believable: fields are compared with limits, each other, the body."""
    frame = frame_of(Columns.build([b"a", b"b"]))

    assert reason is reason_of(sealed_anew(frame, **fields))


@pytest.mark.parametrize("fields", [{"version": 2}, {"flags": 1}, {"codec": 3}])
def test_a_newer_frame_is_not_mistaken_for_damage(fields: dict[str, object]) -> None:
    """A checksum that holds over something unknown means a newer Callboard."""
    with pytest.raises(FormatTooNew, match="Upgrade"):
        decode_frame(sealed_anew(frame_of(Columns.build([b"a"])), **fields), 0, SEGMENT)


VALUES = b"\x00\x41a\x01\xd8\x46\x48\0\0\0\0\1\0\0\0"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        b"\xa0",
        b"\xa1\x00\x41a",
        b"\xb8\x02" + VALUES,
        b"\xa2" + VALUES + b"\0",
        b"\xa2\x00\x58\x01a" + VALUES[3:],
        b"\xa2\x00\x41a\x01\xd8\x46\x48\1\0\0\0\1\0\0\0",
        b"\xa2\x00\x41a\x01\xd8\x46\x48\0\0\0\0\2\0\0\0",
        b"\xa2\x00\x41a\x01\xd8\x42\x48\0\0\0\0\1\0\0\0",
        b"\xa2\x00\x5a\xff\xff\xff\xff" + VALUES[2:],
        b"\xa2\x00\x5b\0\0\0\0\0\0\0\1" + VALUES[2:],
        b"\xa3" + VALUES + b"\x02\x41\x01",
        b"\xa3" + VALUES + b"\x02\x41\x00",
        b"\xa3" + VALUES + b"\x03\x40",
        b"\xa3" + VALUES + b"\x06\xd8\x46\x48" + bytes(8),
        b"\xa3" + VALUES + b"\x0b\xd8\x46\x44" + bytes(4),
        b"\xa3" + VALUES + b"\x0e\xd8\x40\x42\1\1",
        b"\xa3" + VALUES + b"\x13\xd8\x46\x44\1\0\0\0",
        b"\xa3" + VALUES + b"\x17\x40",
        b"\xa3" + VALUES + VALUES[:3],
    ],
    ids=lambda body: body.hex()[:40] or "empty",
)
def test_bodies_that_no_encoder_writes_are_refused(body: bytes) -> None:
    """Wrong types, lengths, order, lacking companions and encodings that are not the shortest are all refused."""
    frame = frame_of(Columns.build([b"a"]))[:FRAME_HEADER_BYTES] + body

    assert FaultReason.BODY is reason_of(sealed_anew(frame, body_bytes=len(body), plain_bytes=len(body)))


def test_header_names_must_be_text() -> None:
    """Names that are not UTF-8, or that are cut within a character, are refused when the frame is decoded."""
    columns = Columns.build([b"a"], headers=[{"é": b"", "b": b""}])
    columns.header_names = b"\xff\xfeb"
    assert FaultReason.BODY is reason_of(frame_of(columns))

    columns.header_names, columns.header_name_ends = "éb".encode(), [0, 1, 3]
    columns.header_name_ends = Columns.build([b"\xc3", b"\xa9b"]).value_ends
    assert FaultReason.BODY is reason_of(frame_of(columns))


@pytest.mark.parametrize("lengths", [[0], [3], [4, 4], [5, 0, 300], [70_000, 1], [1] * 3000])
def test_records_with_a_value_alone_make_the_same_frame_the_quick_way(lengths: list[int]) -> None:
    """What is encoded without columns is byte for byte what is encoded with them."""
    values = [b"x" * length for length in lengths]
    quick = encode_values(values, segment_id=SEGMENT, base_offset=50, append_time_us=9)
    assert quick == frame_of(Columns.build(values))


def test_an_empty_batch_is_refused() -> None:
    """There is no frame without records."""
    with pytest.raises(InvalidArgument, match="at least one record"):
        frame_of(Columns.build([]))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compression_is_kept_only_where_it_pays(codec: str) -> None:
    """Small bodies and bodies that hardly shrink are stored as they are."""
    compression = Compression(codec)

    def codec_of(values: list[bytes | None]) -> int:
        columns = Columns.build(values)
        buffers = encode_frame(
            columns, segment_id=SEGMENT, base_offset=0, append_time_us=0, compression=compression
        )
        header, decoded = decode_frame(b"".join(buffers), 0, SEGMENT)
        assert values == decoded.value_list()
        return header.codec

    assert Codec.NONE == codec_of([b"short"])
    assert Codec.NONE == codec_of([bytes(range(256))])
    assert Codec[codec.upper()] == codec_of([b"again and " * 100])


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_decompression_never_yields_more_than_announced(codec: str) -> None:
    """A bomb, a truncated stream and trailing bytes are refused; the announced length is the bound."""
    used, packed = Compression(codec).compress(bytes(10_000_000))

    assert bytes(10_000_000) == decompress(used, packed, 10_000_000)
    for body, announced in ((packed, 1000), (packed, 10_000_001), (bytes(packed[:-3]), 10_000_000)):
        with pytest.raises(FrameInvalid):
            decompress(used, body, announced)
    with pytest.raises(FrameInvalid):
        decompress(used, bytes(packed) + b"more", 10_000_000)
    with pytest.raises(FrameInvalid):
        decompress(used, packed, limits.FRAME_DECOMPRESSED_BYTES_MAX + 1)


def test_compression_settings_are_checked_together() -> None:
    """All problems of a compression setting are in one error."""
    with pytest.raises(ConfigurationError, match=r"level 40.*minimum_bytes.*minimum_saving"):
        Compression("zstd", level=40, minimum_bytes=-1, minimum_saving=1.0)
    with pytest.raises(ConfigurationError, match="lz5"):
        Compression("lz5")
