"""Lines of raw traffic become rows in Spark's tasks, by the parsers of `callboard.traffic`.

What is not one line each is read here, too: the elements of a file that is one JSON array take the place of its lines,
and CSV records whose quotes are closed in a later line have the number of their first line.

Vocabulary
----------
block     what one task reads of a file at a time: lines from one position on. A file has one or several
line      numbered within its block from 1; with the lines of the blocks before it, its number in the file
kind      of a row: an event, a bad line, or the tally of a block
ahead_us  the latest time of an event before this one in its block: what is earlier than that is *late*

A block that is not its file's first gets the file's first line, which may be a header. A file of Zstandard, a JSON
array, and a file of CSV with quotes that a line leaves open are one block each.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import attrs
import zstandard

from callboard.log.errors import InvalidArgument
from callboard.log.limits import KEY_BYTES_MAX, MESSAGE_BYTES_DEFAULT
from callboard.traffic.event import LINE_BYTES_MAX, Event
from callboard.traffic.json_arrays import elements
from callboard.traffic.lines import BadLine, LineColumns, Parse
from callboard.traffic.quoted_records import is_left_open, quoted_records
from callboard.traffic.reading import Format, bare_line, parser_of
from callboard.traffic.times import parse_time
from callboard.traffic.unpacking import UNPACKED_BYTES_MAX, ZSTD_FED_BYTES, cut_lines, unpacked_zstd

if TYPE_CHECKING:
    import pyarrow as pa

EVENT: Final = 0
BAD: Final = 1
TALLY: Final = 2
ZSTD_SUFFIX: Final = ".zst"
BETWEEN: Final = b","
"""Where Spark cuts a JSON array, which may be one line as long as its file."""
_LINES_AT_A_TIME: Final = 1_000
_PIECE_BYTES: Final = 65_536
_UNREADABLE = (OSError, EOFError, zlib.error, zstandard.ZstdError)

LINES: Final = "path string, block bigint, line binary"
"""Of the rows that `parse_lines` takes."""
COLUMNS: Final = (
    "kind int, file int, block bigint, line bigint, timestamp bigint, ahead_us bigint, partition int, key binary,"
    " value binary, reason string, events bigint, bad bigint, skipped bigint, not_utf8 bigint"
)
"""Of the rows made here. An event has `partition` when it has a key. A tally: `line` lines, `timestamp` the latest."""


@attrs.frozen
class InputFile:
    """A file to import: its number, and its first line, when its format has a header."""

    index: int
    first_line: bytes | None


@attrs.frozen
class Parsing:
    """What every task needs to know."""

    form: Format | None
    """None: the rows have columns `time`, `key` and `value` already (Parquet)."""
    columns: LineColumns
    partitions: int
    files: Mapping[str, InputFile]
    """By path, as `path_of` writes it."""


@lru_cache(maxsize=1024)
def path_of(address: str) -> str:
    """The path of a file as Spark addresses it (`file:/a%20b`): for people, and the same in all spellings."""
    parts = urlsplit(address)
    path = unquote(parts.path)
    return path if parts.scheme in ("", "file") else f"{parts.scheme}://{parts.netloc}{path}"


@attrs.define
class _Block:
    """One block on its way."""

    file: int
    start: int
    parse: Parse
    lines: int = 0
    events: int = 0
    bad: int = 0
    skipped: int = 0
    not_utf8: int = 0
    latest_us: int | None = None


_NO_COUNTS = (None, None, None, None)


class _WaitingRows:
    """Rows that wait to become a batch."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def event(self, block: _Block, event: Event, partitions: int) -> None:
        partition = None if event.key is None else zlib.crc32(event.key) % partitions
        place = (block.file, block.start, block.lines)
        self._rows.append(
            (
                EVENT,
                *place,
                event.time_us,
                block.latest_us,
                partition,
                event.key,
                event.value,
                None,
                *_NO_COUNTS,
            )
        )

    def bad(self, block: _Block, line: bytes, reason: str) -> None:
        place = (block.file, block.start, block.lines)
        kept = line[: LINE_BYTES_MAX + 1]
        self._rows.append((BAD, *place, None, None, None, None, kept, reason, *_NO_COUNTS))

    def tally(self, block: _Block) -> None:
        place = (block.file, block.start, block.lines)
        counts = (block.events, block.bad, block.skipped, block.not_utf8)
        self._rows.append((TALLY, *place, block.latest_us, None, None, None, None, None, *counts))

    def take(self) -> pa.RecordBatch:
        """The batch of all rows."""
        import pyarrow as pa

        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(_types())
        self._rows = []
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _types().values(), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(_types()))


@lru_cache(maxsize=1)
def _types() -> dict[str, Any]:
    import pyarrow as pa

    kinds = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(), "string": pa.string()}
    return {name: kinds[kind] for name, kind in (column.split() for column in COLUMNS.split(","))}


def unpack_files(
    cut: Callable[[Iterable[bytes]], Iterator[bytes]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: rows of `path` and `content` (a whole file, packed or not) become rows of `LINES`, as `cut` cuts them.

    Raises `InvalidArgument` for a file that is damaged, or unpacks to more than `UNPACKED_BYTES_MAX`.
    """
    for batch in batches:
        for address, content in zip(batch.column("path"), batch.column("content"), strict=True):
            path = address.as_py()
            yield from _batches(path, cut(_unpacked(path_of(path), content.as_buffer())))


def cut_arrays(within: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: rows of `path` and `line`, files cut at `BETWEEN`, in order, become rows of `LINES`: elements."""
    for path, pieces in groupby(_path_lines(batches), key=itemgetter(0)):
        yield from _batches(path, elements(_with_between(map(itemgetter(1), pieces)), within, path_of(path)))


def _with_between(pieces: Iterator[bytes]) -> Iterator[bytes]:
    is_first = True
    while some := list(islice(pieces, _LINES_AT_A_TIME)):
        text = BETWEEN.join(some)
        yield text if is_first else BETWEEN + text
        is_first = False


def _path_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    for batch in batches:
        yield from zip(batch.column("path").to_pylist(), batch.column("line").to_pylist(), strict=True)


def _batches(path: str, lines: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """Rows of `LINES`, of a file that is one block."""
    import pyarrow as pa

    while some := list(islice(lines, _LINES_AT_A_TIME)):
        columns = [pa.array([path] * len(some)), pa.array([0] * len(some), pa.int64()), pa.array(some)]
        yield pa.RecordBatch.from_arrays(columns, names=["path", "block", "line"])


def begins_array(path: str, head: bytes) -> bool:
    """Whether the file, packed or not, is one JSON array: by its first bytes. Of lines of JSON each is an object."""
    import pyarrow as pa

    try:
        for piece in _pieces(path.lower(), pa.py_buffer(head)):
            if text := bare_line(piece).strip():
                return text.startswith(b"[")
    except _UNREADABLE:
        pass  # The head of a packed file ends within it; damage is reported when it is read.
    return False


def first_lines(path: str, head: bytes, many: int, *, is_whole: bool) -> list[bytes]:
    """Up to this many lines of a file, packed or not, from its first bytes. A line that these may cut short is left
    out, unless it is the only one. Raises `InvalidArgument` for a packed file that cannot be read.
    """
    import pyarrow as pa

    found: list[bytes] = []
    lines = cut_lines(_pieces(path.lower(), pa.py_buffer(head)))
    try:
        found.extend(islice(lines, many + 1))
    except _UNREADABLE as error:
        if is_whole or not found:
            raise _damaged(path, error) from None
        return found[:many]
    is_cut = not is_whole and len(found) <= many
    return found[:-1] if is_cut and len(found) > 1 else found[:many]


def _damaged(path: str, error: BaseException) -> InvalidArgument:
    return InvalidArgument(
        f"{path} cannot be read: it is not what its name says, or it is damaged ({error}). Check the file."
    )


def _unpacked(path: str, content: pa.Buffer) -> Iterator[bytes]:
    unpacked_bytes = 0
    try:
        for piece in _pieces(path.lower(), content):
            unpacked_bytes += len(piece)
            if unpacked_bytes > UNPACKED_BYTES_MAX:
                raise InvalidArgument(f"{path} holds more than {UNPACKED_BYTES_MAX} bytes. Split it.")
            yield piece
    except _UNREADABLE as error:
        raise _damaged(path, error) from None


def _pieces(name: str, content: pa.Buffer) -> Iterator[bytes]:
    import pyarrow as pa

    stream: Any = pa.BufferReader(content)
    if name.endswith(ZSTD_SUFFIX):
        return unpacked_zstd(iter(partial(stream.read, ZSTD_FED_BYTES), b""))
    if name.endswith(".gz"):
        stream = gzip.GzipFile(fileobj=stream)
    elif name.endswith(".bz2"):
        stream = bz2.BZ2File(stream)
    return iter(partial(stream.read1, _PIECE_BYTES), b"")


def find_open(separator: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the `path` of each file of CSV of which a line leaves a quote open, from rows of `path` and `line`."""
    import pyarrow as pa

    between = separator.encode()
    found: set[str] = set()
    for batch in batches:
        fresh = []
        for path, line in zip(batch.column("path").to_pylist(), batch.column("line"), strict=True):
            if path not in found and is_left_open(line.as_py(), between):
                found.add(path)
                fresh.append(path)
        if fresh:
            yield pa.RecordBatch.from_arrays([pa.array(fresh)], names=["path"])


def parse_records(
    parsing: Parsing, separator: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: rows of `path` and `line`, whole files of CSV in order, whose records may have several lines each."""
    for path, of_file in groupby(_path_lines(batches), key=itemgetter(0)):
        block, rows = _new_block(parsing, path, 0), _WaitingRows()
        for number, record in quoted_records(map(itemgetter(1), of_file), separator):
            block.lines = number - 1
            _parse_line(parsing, block, record.removesuffix(b"\n"), rows)
            if len(rows) >= _LINES_AT_A_TIME:
                yield rows.take()
        rows.tally(block)
        yield rows.take()


def parse_lines(parsing: Parsing, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: rows of `path`, `block` and `line` (bytes), the lines of a block in order."""
    block: _Block | None = None
    place: tuple[str, int] | None = None
    rows = _WaitingRows()
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("path", "block", "line"))
        for path, start, raw in zip(*columns, strict=True):
            if place != (path, start):
                if block is not None:
                    rows.tally(block)
                place = (path, start)
                block = _new_block(parsing, path, start)
            if block is not None:
                _parse_line(parsing, block, raw, rows)
        if len(rows):
            yield rows.take()
    if block is not None:
        rows.tally(block)
        yield rows.take()


def _new_block(parsing: Parsing, path: str, start: int) -> _Block:
    found = parsing.files[path_of(path)]
    if parsing.form is None:
        return _Block(found.index, start, _no_parse)
    parse = parser_of(parsing.form, parsing.columns)
    if start and found.first_line is not None:
        parse(found.first_line)
    return _Block(found.index, start, parse)


def _no_parse(line: bytes) -> None:
    return None


def _parse_line(parsing: Parsing, block: _Block, raw: bytes, rows: _WaitingRows) -> None:
    block.lines += 1
    line = bare_line(raw)
    if not line.isascii() and not _is_utf8(line):
        block.not_utf8 += 1
    if not line:
        block.skipped += 1
        return
    try:
        if len(raw) > LINE_BYTES_MAX:
            raise BadLine(f"longer than {LINE_BYTES_MAX} bytes")
        event = block.parse(line)
    except BadLine as error:
        block.bad += 1
        rows.bad(block, line, str(error))
        return
    if event is None:
        block.skipped += 1
    else:
        _add(parsing, block, event, rows)


def _add(parsing: Parsing, block: _Block, event: Event, rows: _WaitingRows) -> None:
    block.events += 1
    rows.event(block, event, parsing.partitions)
    block.latest_us = event.time_us if block.latest_us is None else max(block.latest_us, event.time_us)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def parse_columns(parsing: Parsing, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: rows of `path`, `line` (its number in the file), `time` (text), `key` and `value` (bytes)."""
    block: _Block | None = None
    place = ""
    rows = _WaitingRows()
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("path", "line", "time", "key", "value"))
        for path, number, time, key, value in zip(*columns, strict=True):
            if block is None or place != path or number != block.lines + 1:
                if block is not None:
                    rows.tally(block)
                place, block = path, _new_block(parsing, path, number)
            block.lines = number
            try:
                event = _event_of(parsing, time, key, value)
            except BadLine as error:
                block.bad += 1
                rows.bad(block, value or b"", str(error))
            else:
                _add(parsing, block, event, rows)
        if len(rows):
            yield rows.take()
    if block is not None:
        rows.tally(block)
        yield rows.take()


def _event_of(parsing: Parsing, time: str | None, key: bytes | None, value: bytes | None) -> Event:
    if time is None:
        raise BadLine("the time is null")
    if value is None:
        raise BadLine("the value is null")
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise BadLine(f"the key has {len(key)} bytes, more than {KEY_BYTES_MAX}")
    if len(value) > MESSAGE_BYTES_DEFAULT:
        raise BadLine(f"the value has {len(value)} bytes, more than {MESSAGE_BYTES_DEFAULT}")
    try:
        key = key if key or parsing.columns.keeps_empty_keys else None
        return Event(parse_time(time, parsing.columns.time_format), key, value)
    except ValueError as error:
        raise BadLine(str(error)) from None
