"""Imports raw traffic into a recording, with Spark: access logs, JSON lines and arrays, CSV, TSV and Parquet.

Every line has one of four fates, and all are counted: it becomes a record; it is *bad*, and kept aside with the reason;
it is skipped, because it is empty or a header; or it is *late*. A line is late when an earlier line of its file has a
later time. Lines that are late by no more than the window are sorted to their place in time, and the others are kept
aside with the bad ones. A strict import fails when any line is bad or late.

What is more than a line is read as the demo reads it: an element of a JSON array, and a CSV record whose quotes are
closed in a later line, count as a line. Such a file is brought into one task, sorted by Spark, never held in memory.

Records of one time lie in the order of file names and lines, so the same files give the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs

from callboard.log.errors import InvalidArgument
from callboard.log.limits import KIB, MIB
from callboard.recordings.manifest import Manifest
from callboard.simulations.workload import parsing
from callboard.simulations.workload.parsing import ZSTD_SUFFIX, InputFile, Parsing, path_of
from callboard.simulations.workload.storage import (
    BadLinesFile,
    check_partitions,
    told_errors,
    write_recording,
)
from callboard.spark.files import absolute, check_new, is_file, is_there, opened, size_of
from callboard.traffic.event import LINE_BYTES_MAX
from callboard.traffic.json_arrays import elements
from callboard.traffic.lines import KEY_COLUMNS, TIME_COLUMNS, LineColumns
from callboard.traffic.reading import (
    Format,
    check_options,
    detect,
    named_by,
    read_events,
)
from callboard.traffic.times import TimeFormat
from callboard.traffic.unpacking import cut_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARQUET: Final = "parquet"
WINDOW_S: Final = 3_600
SAMPLE_LINES: Final = 20
REASONS_SHOWN_MAX: Final = 10
BAD_SUFFIX: Final = ".bad.jsonl"
ZSTD_BYTES_MAX: Final = 128 * MIB
"""A task holds a file of Zstandard as it is, packed: they cannot be divided."""
_HEAD_BYTES: Final = (64 * KIB, SAMPLE_LINES * 64 * KIB)
"""Of what is read to tell formats: at first, and when these are too few lines."""
_PACKED_HEAD_BYTES: Final = (1 * MIB,)
"""The first block of bzip2 is up to 900 kB, packed or not."""
_PACKED: Final = (".gz", ".bz2", ZSTD_SUFFIX)
_PARQUET_SUFFIX = ".parquet"
_WITH_HEADER = (Format.CSV, Format.TSV)
_LOOKED_INTO = (None, Format.JSONL, *_WITH_HEADER)
_SCHEMES = ("file", "hdfs", "s3a", "gs", "abfss")


@attrs.frozen
class ImportReport:
    """What became of the lines (or rows) of an import. All of `lines` are in exactly one of the next four.

    An element of a JSON array counts as a line, and so does a CSV record of several lines.
    """

    lines: int
    records: int
    """Late ones included."""
    keyless: int
    """Records without a key: their key field is absent, null or empty."""
    bad: int
    skipped: int
    """Empty lines and headers."""
    too_late: int
    """Late by more than the window, and kept aside."""
    late: int
    """Late within the window, and sorted."""
    latest_late_us: int
    """How late the latest of `late` and `too_late` is."""
    not_utf8: int
    """Lines that are not UTF-8, bad or not; their bytes are kept as they are."""
    files: int
    empty_files: int
    format: str
    kept_aside: str | None
    """The file of lines kept aside: one JSON object each. Its `line` is the number of the line in the file: of a CSV
    record that of its first line, and of an element of a JSON array the element's, from 1.
    """
    digest: str


def import_traffic(
    session: SparkSession,
    files: Sequence[str],
    out: str,
    *,
    form: Format | str | None = None,
    columns: LineColumns | None = None,
    partitions: int = 1,
    window_s: float = WINDOW_S,
    is_strict: bool = False,
    bad: str | None = None,
) -> ImportReport:
    """Import `files` (paths, folders or patterns) into the recording `out`, a folder that is not there yet.

    `form` is a `Format` or "parquet"; None detects it by the first lines. Lines kept aside go to `bad`, by default
    `out` with `.bad.jsonl`. Raises `InvalidArgument` for files and columns that are not there, for files without a
    single event, and in a strict import for bad and late lines. What fails leaves nothing behind.
    """
    columns = columns or LineColumns()
    check_partitions(partitions)
    if not 0 <= window_s < float("inf"):
        raise InvalidArgument(f"The window is {window_s} s. Give --window seconds from 0 on.")
    check_new(out)
    aside = bad or out + BAD_SUFFIX
    check_new(aside)
    with told_errors():
        addresses = _list_files(session, files)
        is_parquet = form == PARQUET or (
            form is None and all(path.lower().endswith(_PARQUET_SUFFIX) for path in addresses)
        )
        if is_parquet:
            if columns.delimiter is not None or columns.year is not None or columns.records is not None:
                raise InvalidArgument(
                    "Parquet has neither lines nor a --delimiter, --year or --records. Nothing was read."
                )
            rows, job = _parquet_rows(session, addresses, columns, partitions)
        else:
            named = Format(form) if form else named_by(columns)
            if named is not None:
                check_options(named, columns)
            rows, job = _line_rows(session, addresses, named, columns, partitions)
        from pyspark.storagelevel import StorageLevel

        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return _Import(rows, job, int(window_s * 1_000_000), is_strict).run(out, aside)
        finally:
            rows.unpersist()


# -- finding and understanding the input


def _list_files(session: SparkSession, files: Sequence[str]) -> dict[str, str]:
    """The files that are meant, sorted by path: path to the address that Spark takes."""
    from pyspark.errors import AnalysisException

    found: dict[str, str] = {}
    # A listing costs a tenth of a second, so files with plain names are listed together.
    plain = {absolute(name): name for name in files if _is_plain(name)}
    if plain:
        listed = session.read.text([_read_address(path) for path in plain]).inputFiles()
        found.update((path_of(one), one) for one in listed)
    for name in files:
        if _is_plain(name) and absolute(name) in found:
            continue
        address = name
        if urlsplit(name).scheme not in _SCHEMES:
            address = _read_address(absolute(name)) if is_there(name) else absolute(name)
        try:
            listed = session.read.text(address).inputFiles()
        except AnalysisException as error:
            reason = (
                "there is none" if error.getCondition() == "PATH_NOT_FOUND" else str(error).partition("\n")[0]
            )
            raise InvalidArgument(
                f"There is no traffic to read at {name}: {reason:.200}. Check the name."
            ) from None
        if not listed:
            raise InvalidArgument(
                f"{name} holds no files to read. Spark passes over names that begin with a dot or an underscore:"
                " rename them."
            )
        found.update((path_of(one), one) for one in listed)
    return dict(sorted(found.items()))


def _is_plain(name: str) -> bool:
    return urlsplit(name).scheme not in _SCHEMES and is_file(name)


def check_sources(files: Sequence[str]) -> None:
    """Raise `InvalidArgument` for a name that is neither there nor a pattern or an address. Needs no Spark."""
    for name in files:
        is_pattern = any(character in name for character in "*?[{")
        if urlsplit(name).scheme not in _SCHEMES and not is_pattern and not is_there(name):
            raise InvalidArgument(f"There is no traffic to read at {name}: there is none. Check the name.")


def _read_address(path: str) -> str:
    """A path as Spark takes it: characters that would make it a pattern are escaped."""
    return "".join(f"\\{character}" if character in "*?[]{}\\" else character for character in path)


def _line_rows(
    session: SparkSession,
    addresses: dict[str, str],
    form: Format | None,
    columns: LineColumns,
    partitions: int,
) -> tuple[DataFrame, Parsing]:
    from pyspark.sql import functions as f

    found: dict[str, InputFile] = {}
    arrays: list[str] = []
    for index, (path, address) in enumerate(addresses.items()):
        first_line = None
        head = _FileHead.of(session, path, address) if form in _LOOKED_INTO else None
        is_within = columns.records is not None
        if head and form in (None, Format.JSONL) and (is_within or parsing.begins_array(path, head.data)):
            form = Format.JSONL
            check_options(form, columns)
            arrays.append(path)
        elif head and (form is None or form in _WITH_HEADER):
            sample = head.sample()
            if sample:
                if form is None:
                    form = _detected(path, sample, columns)
                    check_options(form, columns)
                first_line = sample[0] if form in _WITH_HEADER else None
                if form in _WITH_HEADER:
                    _check_columns(path, sample, form, columns)
        found[path] = InputFile(index, first_line)
    if form is None:
        raise InvalidArgument(
            f"{_named(addresses)} holds no lines: there is nothing to import. Name other files."
        )
    job = Parsing(form, columns, partitions, found)
    separator = columns.delimiter or ","
    joined = _with_open_quotes(session, addresses, separator) if form is Format.CSV else []
    by_lines = [path for path in addresses if path not in joined and path not in arrays]
    plain_arrays, packed_arrays = _packed_apart(arrays)
    parse_lines = partial(parsing.parse_lines, job)
    rows = []
    if by_lines:
        rows.append(_lines(session, by_lines).mapInArrow(parse_lines, parsing.COLUMNS))
    if plain_arrays:
        pieces = _in_order(_text_rows(session, plain_arrays, parsing.BETWEEN.decode()), len(plain_arrays))
        cut_arrays = partial(parsing.cut_arrays, columns.records)
        found_elements = pieces.mapInArrow(cut_arrays, parsing.LINES)
        rows.append(found_elements.mapInArrow(parse_lines, parsing.COLUMNS))
    if packed_arrays:
        found_elements = _unpacked_rows(session, packed_arrays, partial(elements, within=columns.records))
        rows.append(found_elements.mapInArrow(parse_lines, parsing.COLUMNS))
    if joined:
        cut = f.substring(f.col("line"), 1, LINE_BYTES_MAX + 1).alias("line")
        lines = _in_order(_lines(session, joined).select("path", "block", cut), len(joined))
        rows.append(lines.mapInArrow(partial(parsing.parse_records, job, separator), parsing.COLUMNS))
    return reduce(lambda some, more: some.unionAll(more), rows), job


@attrs.frozen
class _FileHead:
    """The first bytes of a file, as it lies there. A job of Spark for each file would take a third of a second."""

    path: str
    data: bytes
    is_whole: bool

    @classmethod
    def of(cls, session: SparkSession, path: str, address: str) -> _FileHead:
        """Enough of it for arrays to be detected, and for as many lines as a sample has. A local file needs no Java."""
        sizes = _PACKED_HEAD_BYTES if path.lower().endswith(_PACKED) else _HEAD_BYTES
        with contextlib.ExitStack() as closing:
            read, length = _opened(session, path, address, closing)
            if path.lower().endswith(ZSTD_SUFFIX) and length > ZSTD_BYTES_MAX:
                raise _too_large(path, length)
            data = b""
            for more in sizes:
                data += read(len(data), more)
                if len(data) >= length or data.count(b"\n") > SAMPLE_LINES:
                    break
            return cls(path, data, len(data) >= length)

    def sample(self) -> list[bytes]:
        """The first lines, each cut to what a line may have. Raises `InvalidArgument` for a damaged file."""
        return parsing.first_lines(self.path, self.data, SAMPLE_LINES, is_whole=self.is_whole)


def _opened(
    session: SparkSession, path: str, address: str, closing: contextlib.ExitStack
) -> tuple[Callable[[int, int], bytes], int]:
    """What reads this many bytes from a position, one after the other, and how long the file is."""
    size = size_of(path) if urlsplit(address).scheme == "file" else None
    if size is not None and (local := closing.enter_context(opened(path))) is not None:
        return local.read, size
    context: Any = session.sparkContext
    file = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(address))
    system = file.getFileSystem(context._jsc.hadoopConfiguration())
    stream = system.open(file)
    closing.callback(stream.close)
    return lambda _, more: bytes(stream.readNBytes(more)), system.getFileStatus(file).getLen()


def _with_open_quotes(session: SparkSession, paths: Iterable[str], separator: str) -> list[str]:
    """The files of CSV in which a line leaves a quote open: only their records may have more than a line."""
    from pyspark.sql import functions as f

    quoted = _lines(session, paths).where(f.expr("contains(line, X'22')")).select("path", "line")
    found = quoted.mapInArrow(partial(parsing.find_open, separator), "path string").distinct().collect()
    return sorted(path_of(row["path"]) for row in found)


def _in_order(rows: DataFrame, files: int) -> DataFrame:
    """Rows of `parsing.LINES` as `path` and `line`: those of a file in one task, in order. Spark sorts them on disk."""
    from pyspark.sql import functions as f

    # Within a block the number grows from line to line; what it is does not matter.
    numbered = rows.withColumn("at", f.monotonically_increasing_id())
    tasks = min(files, rows.sparkSession.sparkContext.defaultParallelism)
    ordered = numbered.repartition(tasks, "path").sortWithinPartitions("path", "block", "at")
    return ordered.select("path", "line")


def _lines(session: SparkSession, paths: Iterable[str]) -> DataFrame:
    """The lines of files, as rows of `parsing.LINES`: Spark unpacks what it can, and Zstandard is unpacked here."""
    plain, packed = _packed_apart(paths)
    found = []
    if plain:
        found.append(_text_rows(session, plain, "\n"))
    if packed:
        found.append(_unpacked_rows(session, packed, cut_lines))
    return found[0] if len(found) == 1 else found[0].unionAll(found[1])


def _packed_apart(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """The others, and those of Zstandard."""
    apart: tuple[list[str], list[str]] = ([], [])
    for path in paths:
        apart[path.lower().endswith(ZSTD_SUFFIX)].append(path)
    return apart


def _text_rows(session: SparkSession, paths: list[str], between: str) -> DataFrame:
    from pyspark.sql import functions as f

    lines = session.read.option("lineSep", between).text([_read_address(path) for path in paths])
    return lines.select(
        f.col("_metadata.file_path").alias("path"),
        f.col("_metadata.file_block_start").alias("block"),
        f.col("value").cast("binary").alias("line"),
    )


def _too_large(path: str, length: int) -> InvalidArgument:
    return InvalidArgument(
        f"{path} has {length} bytes, and Zstandard files of at most {ZSTD_BYTES_MAX} bytes are unpacked here. Unpack it"
        " (zstd -d), or split it. Nothing was read."
    )


def _unpacked_rows(
    session: SparkSession, paths: list[str], cut: Callable[[Iterable[bytes]], Iterator[bytes]]
) -> DataFrame:
    from pyspark.sql import functions as f

    files = session.read.format("binaryFile").load([_read_address(path) for path in paths])
    sizes = files.select(f.col("_metadata.file_path").alias("path"), "length")
    large = sizes.where(f.col("length") > ZSTD_BYTES_MAX).first()
    if large is not None:
        raise _too_large(path_of(large["path"]), large["length"])
    contents = files.select(f.col("_metadata.file_path").alias("path"), "content")
    return contents.mapInArrow(partial(parsing.unpack_files, cut), parsing.LINES)


def _detected(path: str, sample: list[bytes], columns: LineColumns) -> Format:
    if any(b"\0" in line for line in sample):
        raise InvalidArgument(
            f"{path} is not text in UTF-8 or a similar encoding: it holds zero bytes. Convert it (iconv -f UTF-16 -t"
            " UTF-8), or name its --format."
        )
    try:
        return detect(sample, columns)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _check_columns(path: str, sample: list[bytes], form: Format, columns: LineColumns) -> None:
    try:
        next(read_events(sample, form=form, columns=columns), None)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _parquet_rows(
    session: SparkSession, addresses: dict[str, str], columns: LineColumns, partitions: int
) -> tuple[DataFrame, Parsing]:
    from pyspark.sql import functions as f

    table = session.read.parquet(*[_read_address(path) for path in addresses])
    types = dict(table.dtypes)
    time = _find_column(types, columns.time, TIME_COLUMNS, "time", _named(addresses))
    key = _find_column(types, columns.key, KEY_COLUMNS, None, _named(addresses))
    value = None if columns.value is None else _find_column(types, columns.value, (), None, _named(addresses))
    placed = table.select(
        f.col("_metadata.file_path").alias("path"),
        (f.col("_metadata.row_index") + 1).alias("line"),
        _time_text(_quoted(str(time)), types[str(time)]).alias("time"),
        (f.lit(None).cast("binary") if key is None else _bytes_of(key, types)).alias("key"),
        (f.to_json(f.struct("*")).cast("binary") if value is None else _bytes_of(value, types)).alias(
            "value"
        ),
    )
    if types[str(time)].startswith(("timestamp", "date")):
        columns = attrs.evolve(columns, time_format=TimeFormat.MICROSECONDS)
    found = {path: InputFile(index, None) for index, path in enumerate(addresses)}
    job = Parsing(None, columns, partitions, found)
    return placed.mapInArrow(partial(parsing.parse_columns, job), parsing.COLUMNS), job


def _find_column(
    types: dict[str, str], wanted: str | None, known: Sequence[str], what: str | None, where: str
) -> str | None:
    by_name = {name.lower(): name for name in types}
    if wanted is None:
        found = next((by_name[name] for name in known if name in by_name), None)
        if found is None and what is not None:
            raise InvalidArgument(
                f"{where} has no {what} column of a known name ({', '.join(types)[:200]}). Name one: --{what}-column."
            )
        return found
    if wanted.lower() not in by_name:
        raise InvalidArgument(f"{where}: There is no column {wanted!r}; there are: {', '.join(types)[:200]}.")
    return by_name[wanted.lower()]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _bytes_of(name: str, types: dict[str, str]) -> Column:
    from pyspark.sql import functions as f

    column = f.col(_quoted(name))
    return column if types[name] == "binary" else column.cast("string").cast("binary")


def _time_text(name: str, kind: str) -> Column:
    """A time as text that `parse_time` knows; Spark's own times as microseconds."""
    from pyspark.sql import functions as f

    column = f.col(name)
    if kind.startswith(("timestamp", "date")):
        return f.unix_micros(column.cast("timestamp")).cast("string")
    if kind in ("double", "float"):
        return f.expr(f"cast(try_cast({name} as decimal(38, 6)) as string)")
    return column.cast("string")


def _named(addresses: dict[str, str]) -> str:
    first = next(iter(addresses))
    return first if len(addresses) == 1 else f"{first} (and {len(addresses) - 1} more)"


# -- from parsed rows to the recording


@attrs.frozen
class _Import:
    """Rows of `parsing.COLUMNS` on their way to a recording."""

    rows: DataFrame
    job: Parsing
    window_us: int
    is_strict: bool

    def run(self, out: str, aside: str) -> ImportReport:
        """Do everything."""
        from pyspark.sql import functions as f

        tallies = self.rows.where(f.col("kind") == parsing.TALLY).collect()
        events, bad = (sum(tally[name] for tally in tallies) for name in ("events", "bad"))
        skipped, not_utf8 = (sum(tally[name] for tally in tallies) for name in ("skipped", "not_utf8"))
        if not events:
            raise self._nothing(bad, skipped)
        placed = self._placed(tallies)
        lateness = placed.agg(
            f.count(f.when(f.col("late_us").between(1, self.window_us), 1)).alias("late"),
            f.count(f.when(f.col("late_us") > self.window_us, 1)).alias("too_late"),
            f.max("late_us").alias("latest"),
            f.count(f.when((f.col("late_us") <= self.window_us) & f.col("key").isNull(), 1)).alias("keyless"),
        ).first()
        late, too_late = lateness["late"], lateness["too_late"]
        latest_late_us = max(lateness["latest"] or 0, 0)
        if self.is_strict and (bad or late or too_late):
            raise InvalidArgument(
                f"Of {events + bad} lines {bad} are bad and {late + too_late} are late (by up to"
                f" {latest_late_us / 1_000_000:g} s), and the import is strict. Nothing was written."
                f" {self._first_reasons()}Mend the files, or import without --strict."
            )
        if events == too_late:
            raise InvalidArgument(f"All {events} events are later than the window. Give a longer --window.")
        with BadLinesFile(aside) as kept:
            if bad or too_late:
                kept.write(self._aside(placed))
            manifest = self._write(placed, out)
            kept.keep()
        tallied = {tally["file"] for tally in tallies}
        return ImportReport(
            lines=events + bad + skipped,
            records=manifest.records,
            keyless=lateness["keyless"],
            bad=bad,
            skipped=skipped,
            too_late=too_late,
            late=late,
            latest_late_us=latest_late_us,
            not_utf8=not_utf8,
            files=len(self.job.files),
            empty_files=len(self.job.files) - len(tallied),
            format=PARQUET if self.job.form is None else self.job.form.value,
            kept_aside=aside if bad or too_late else None,
            digest=manifest.digest,
        )

    def _placed(self, tallies: list[Any]) -> DataFrame:
        """Events and bad lines with `number`, that of the line in its file, and `late_us` (null for bad lines).

        `late_us` is how much earlier an event is than an earlier line of its file; 0 and less for most.
        """
        from pyspark.sql import functions as f

        before: list[tuple[int, int, int, int | None]] = []
        lines: dict[int, int] = {}
        latest: dict[int, int] = {}
        for tally in sorted(tallies, key=lambda tally: (tally["file"], tally["block"])):
            file = tally["file"]
            before.append((file, tally["block"], lines.get(file, 0), latest.get(file)))
            if self.job.form is not None:  # rows of Parquet are numbered within their file
                lines[file] = lines.get(file, 0) + tally["line"]
            if tally["timestamp"] is not None:
                latest[file] = max(latest.get(file, tally["timestamp"]), tally["timestamp"])
        schema = "file int, block bigint, lines_before bigint, before_us bigint"
        blocks = self.rows.sparkSession.createDataFrame(before, schema)
        found = self.rows.where(f.col("kind") != parsing.TALLY)
        late_us = f.greatest("ahead_us", "before_us") - f.col("timestamp")
        is_event = f.col("kind") == parsing.EVENT
        return (
            found.join(f.broadcast(blocks), ["file", "block"])
            .withColumn("number", f.col("lines_before") + f.col("line"))
            .withColumn("late_us", f.when(is_event, f.coalesce(late_us, f.lit(0))))
        )

    def _write(self, placed: DataFrame, out: str) -> Manifest:
        from pyspark.sql import functions as f

        # Events without a key are dealt out by their place in the input, which no division among tasks changes.
        place = f.concat_ws("/", "file", "number").cast("binary")
        spread = f.pmod(f.crc32(place), f.lit(self.job.partitions)).cast("int")
        partitioned = placed.where(f.col("late_us") <= self.window_us).withColumn(
            "partition", f.coalesce("partition", spread)
        )
        names = [path.rpartition("/")[2] for path in self.job.files]
        return write_recording(
            partitioned,
            out,
            partitions=self.job.partitions,
            source={
                "made_by": "callboard workload import",
                "format": PARQUET if self.job.form is None else self.job.form.value,
                "files": ", ".join(names)[:1_000],
            },
            order=("file", "number"),
        )

    def _aside(self, placed: DataFrame) -> Iterator[bytes]:
        """The lines to keep aside, by file and number: one JSON object each."""
        from pyspark.sql import functions as f

        seconds = f.format_string("%.3f", f.col("late_us") / 1_000_000)
        reason = f.concat(seconds, f.lit(" s later than lines before it, more than the window"))
        aside = placed.where(f.col("late_us").isNull() | (f.col("late_us") > self.window_us))
        found = aside.select("file", "number", "value", f.coalesce("reason", reason).alias("reason"))
        paths = list(self.job.files)
        for row in found.orderBy("file", "number").toLocalIterator():
            fields = {"file": paths[row["file"]], "line": row["number"], "reason": row["reason"]}
            yield json.dumps(fields | _text(bytes(row["value"])), ensure_ascii=False).encode() + b"\n"

    def _first_reasons(self) -> str:
        from pyspark.sql import functions as f

        bad = self.rows.where(f.col("kind") == parsing.BAD).orderBy("file", "block", "line")
        found = bad.select("block", "line", "reason").limit(REASONS_SHOWN_MAX).collect()
        # Only lines of a file's first block are known by their number here.
        reasons = [(f"line {row['line']}: " if row["block"] == 0 else "") + row["reason"] for row in found]
        return f"The first reasons: {'; '.join(reasons)}. " if reasons else ""

    def _nothing(self, bad: int, skipped: int) -> InvalidArgument:
        where = _named(dict.fromkeys(self.job.files, ""))
        if not bad:
            return InvalidArgument(
                f"{where} holds no events, only {skipped} empty lines and headers. Nothing was written. Name other"
                " files."
            )
        is_json = self.job.form is Format.JSONL and self.job.columns.records is None
        array = (
            " If the file is one object with the records in an array, name that: --records."
            if is_json
            else ""
        )
        return InvalidArgument(
            f"None of {bad} lines of {where} can be read as {self.job.form.value if self.job.form else PARQUET}."
            f" {self._first_reasons()}Nothing was written. Name another --format, or the columns.{array}"
        )


def _text(line: bytes) -> dict[str, str]:
    """A line as JSON can hold it."""
    try:
        return {"text": line.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(line).decode()}
