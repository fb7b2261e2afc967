"""Properties of the format: everything round-trips, and arbitrary bytes raise nothing but what is documented."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.log.errors import FormatTooNew
from callboard.log.format.columns import NO_TIME, Columns
from callboard.log.format.committed import decode_committed, encode_committed
from callboard.log.format.compression import NONE, Codec, Compression, decompress
from callboard.log.format.faults import FormatFault
from callboard.log.format.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEADER,
    FrameFields,
    FrameHeader,
    decode_body,
    decode_frame,
    decode_header,
    encode_frame,
    reseal,
    seed_of,
)
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import decode_segment_header, encode_segment_header

SEGMENT = 0xFEEDFACE
DOCUMENTED = (FormatFault, FormatTooNew)
COMPRESSIONS = (
    NONE,
    Compression("gzip", level=1, minimum_bytes=0, minimum_saving=0.0),
    Compression("zstd", level=1, minimum_bytes=0, minimum_saving=0.0),
)

u64 = st.integers(0, 2**64 - 1)
times = st.none() | st.integers(NO_TIME + 1, 2**63 - 1)
header_maps = st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)


@st.composite
def producer_runs(draw: st.DrawFn, count: int) -> list[tuple[int, int, int, int]]:
    runs = []
    while count:
        length = draw(st.integers(1, count))
        producer_id = draw(st.just(0) | u64)
        place = (draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**63))) if producer_id else (0, 0)
        runs.append((length, producer_id, *place))
        count -= length
    return runs


@st.composite
def batches(draw: st.DrawFn) -> Columns:
    """A batch with any mixture of columns, dense or sparse, with one append time or many."""
    count = draw(st.integers(1, 12))

    def maybe(items: st.SearchStrategy[object]) -> object:
        return draw(st.none() | st.lists(items, min_size=count, max_size=count))

    columns = Columns.build(
        draw(st.lists(st.none() | st.binary(max_size=40), min_size=count, max_size=count)),
        maybe(st.none() | st.binary(max_size=5)),
        maybe(header_maps),
        maybe(times),
        priorities=maybe(st.integers(0, 255)),
        expiries=maybe(times),
        dedup_ids=maybe(st.none() | st.binary(max_size=5)),
        producers=draw(st.none() | producer_runs(count)),
    )
    if draw(st.booleans()):
        offsets = draw(st.lists(st.integers(5, 40), min_size=count, max_size=count, unique=True).map(sorted))
        columns.base_offset = first = offsets[0] - draw(st.integers(0, 3))
        columns.span = offsets[-1] + draw(st.integers(0, 3)) - first
        if columns.span >= count:
            columns.offset_deltas = array("I", [offset - first for offset in offsets])
    if draw(st.booleans()):
        columns.append_times = [draw(st.integers(-(2**60), 2**60)) for _ in range(columns.count)]
    return columns


def records_of(columns: Columns) -> list[tuple[object, ...]]:
    """Everything about every record, by the one-record accessors."""
    accessors: tuple[Callable[[int], object], ...] = (
        columns.value,
        columns.key,
        columns.headers,
        columns.event_time,
        columns.append_time,
        columns.priority,
        columns.expiry,
        columns.dedup_id,
        columns.producer,
        columns.offset,
    )
    return [tuple(accessor(index) for accessor in accessors) for index in range(columns.count)]


def frame_of(columns: Columns, base_offset: int = 0, compression: Compression = NONE) -> bytes:
    return b"".join(
        encode_frame(
            columns, segment_id=SEGMENT, base_offset=base_offset, append_time_us=1234, compression=compression
        )
    )


@given(batches(), st.integers(0, 2**63), st.sampled_from(COMPRESSIONS))
def test_every_batch_comes_back_under_every_compression(
    columns: Columns, base_offset: int, compression: Compression
) -> None:
    """All columns of all records survive encoding, and encoding what was decoded gives the same bytes (FR2)."""
    columns.base_offset, columns.append_time_us = base_offset, 1234
    frame = frame_of(columns, base_offset, compression)
    header, decoded = decode_frame(frame, 0, SEGMENT)

    assert records_of(columns) == records_of(decoded)
    assert (columns.last_offset, columns.size_bytes) == (decoded.last_offset, decoded.size_bytes)
    assert header.count == decoded.count
    assert frame == frame_of(decoded, base_offset, compression)
    body = frame[FRAME_HEADER_BYTES:]
    elsewhere = reseal(HEADER.unpack_from(frame), body, seed_of(7))
    assert frame == reseal(HEADER.unpack_from(elsewhere), body, seed_of(SEGMENT)) + body


@given(batches(), st.data())
def test_every_slice_is_the_records_it_covers(columns: Columns, data: st.DataObject) -> None:
    """Slices, lists and selections agree with the records one by one, before and after encoding."""
    columns.base_offset, columns.append_time_us = 900, 1234
    decoded = decode_frame(frame_of(columns, 900), 0, SEGMENT)[1]
    expected = records_of(columns)
    for batch in (columns, decoded):
        start = data.draw(st.integers(0, batch.count))
        stop = data.draw(st.integers(start, batch.count))
        part = batch.select(start, stop)
        assert expected[start:stop] == records_of(part)
        assert (
            [record[0] for record in expected[start:stop]]
            == part.value_list()
            == batch.value_list(start, stop)
        )
        assert (
            [record[1] for record in expected[start:stop]] == part.key_list() == batch.key_list(start, stop)
        )
        assert [record[2] for record in expected[start:stop]] == part.header_list()
        if part.count:
            part.append_time_us = part.append_time(0)
            assert part.append_times is not None or part.append_time_us == 1234
            again = decode_frame(frame_of(part, part.base_offset), 0, SEGMENT)[1]
            assert expected[start:stop] == records_of(again)


def walked(file: bytes, **settings: Any) -> FrameWalk:
    """A walk that was fed the whole file at once."""
    walk = FrameWalk(SEGMENT, 0, file_end=len(file), **settings)
    if walk.need is not None:
        walk.feed(file[walk.need.position :])
    return walk


@given(st.lists(batches(), max_size=5), st.data())
def test_segments_survive_any_single_wound(parts: list[Columns], data: st.DataObject) -> None:
    """Whatever stretch is overwritten, cut out or inserted, frames before it and whole frames after it are found."""
    file = encode_segment_header(segment_id=SEGMENT, base_offset=0, created_us=0)
    base, places = 0, []
    for part in parts:
        places.append((len(file), base))
        file += frame_of(part, base)
        base += part.span + 1
    at = data.draw(st.integers(128, len(file)))
    removed = data.draw(st.integers(0, len(file) - at))
    inserted = data.draw(st.binary(max_size=80) | st.sampled_from([bytes(80), file[128:300]]))
    wounded = file[:at] + inserted + file[at + removed :]
    ends = [*[place for place, _ in places[1:]], len(file)][: len(places)]
    expected = {first for (_, first), end in zip(places, ends, strict=True) if end <= at}
    expected |= {first for place, first in places if place >= at + removed}

    found: list[int] = []

    def take(_: int, fields: FrameFields, body: memoryview) -> bool:
        header = FrameHeader(*fields)
        assert decode_body(header, body).count == header.count
        found.append(header.base_offset)
        return False

    scan = walked(wounded, visit=take)
    assert expected <= set(found) <= {first for _, first in places}
    assert sorted(set(found)) == found
    for damage in scan.damages:
        assert 128 <= damage.start <= damage.end <= len(wounded)
        assert damage.start < damage.end or damage.first_offset_lost <= damage.last_offset_lost


decoders: dict[str, Callable[[bytes], object]] = {
    "segment header": decode_segment_header,
    "frame header": lambda data: decode_header(data, 0, SEGMENT),
    "frame": lambda data: decode_frame(data, 0, SEGMENT),
    "index": lambda data: SegmentIndex.decode(data, SEGMENT),
    "committed": decode_committed,
    "gzip": lambda data: decompress(Codec.GZIP, data, 5000),
    "zstd": lambda data: decompress(Codec.ZSTD, data, 5000),
    "scan": walked,
}


def index_bytes() -> bytes:
    index = SegmentIndex(SEGMENT, 0, interval_bytes=1)
    for number in range(3):
        index.note(128 + number, 1, number, number, 1, number)
    return index.encode()


valid_files = st.sampled_from(
    [
        encode_segment_header(segment_id=SEGMENT, base_offset=0, created_us=0),
        frame_of(Columns.build([b"a", None], [b"k", b"l"])),
        index_bytes(),
        encode_committed(3, 3),
        bytes(COMPRESSIONS[1].compress(bytes(5000))[1]),
        bytes(COMPRESSIONS[2].compress(bytes(5000))[1]),
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Valid bytes with some overwritten, then cut or extended."""
    data = bytearray(draw(valid_files))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=20))


@given(st.sampled_from(sorted(decoders)), st.binary(max_size=300) | mutated())
@settings(max_examples=500)
def test_decoders_raise_only_what_is_documented(decoder: str, data: bytes) -> None:
    """Whatever the bytes, a decoder returns or raises a `FormatFault` or `FormatTooNew`."""
    try:
        decoders[decoder](data)
    except DOCUMENTED:
        pass


def exercise(columns: Columns) -> None:
    """Read all there is, in every way."""
    records_of(columns)
    columns.value_list(), columns.key_list(), columns.header_list(), columns.offset_list()
    columns.select(0, columns.count // 2)
    frame_of(columns, columns.base_offset)


@st.composite
def mutated_bodies(draw: st.DrawFn) -> tuple[int, bytes]:
    columns = draw(batches())
    body = bytearray(frame_of(columns)[FRAME_HEADER_BYTES:])
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return columns.span, bytes(body)


def header_of(count: int, body: bytes, last: int, time_us: int) -> FrameHeader:
    """A header that nobody has checked."""
    return FrameHeader(FRAME_MAGIC, 1, 0, 0, count, 0, len(body), len(body), 0, last, time_us, time_us, 0)


@given(st.integers(1, 14), st.none() | st.integers(0, 20), st.binary(max_size=100) | mutated_bodies())
@settings(max_examples=500)
def test_bodies_whose_checksums_hold_are_still_not_believed(
    count: int, span: int | None, made: bytes | tuple[int, bytes]
) -> None:
    """A body under a forged header is refused as a whole, or every record of it can be read without surprises."""
    own_span, body = made if isinstance(made, tuple) else (count - 1, made)
    last = own_span if span is None else span
    header = header_of(count, body, last, 1234)
    try:
        columns = decode_body(header, body)
    except DOCUMENTED:
        return
    exercise(columns)


@given(st.binary(max_size=64), st.sampled_from([Codec.GZIP, Codec.ZSTD]), st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_claims_of_length_allocate_nothing(noise: bytes, codec: Codec, claimed: int) -> None:
    """Small bytes that claim to be huge are refused with little memory: lengths are compared, not believed."""
    zstd_claim = b"\x28\xb5\x2f\xfd\xa0" + claimed.to_bytes(4, "little") + noise
    body_claim = b"\xa2\x00\x5a" + claimed.to_bytes(4, "big") + noise
    header = header_of(100_000, body_claim, 2**40, 0)
    tracemalloc.start()
    try:
        for attempt in (
            lambda: decompress(codec, zstd_claim, 5000),
            lambda: decode_body(header, body_claim),
        ):
            try:
                attempt()
            except DOCUMENTED:
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
