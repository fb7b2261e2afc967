"""The rows of a slice as Arrow record batches, and the report of what is damaged. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from callboard.log.limits import MIB
from callboard.recordings.reader import Span
from callboard.spark.arrow import arrow_schema, joined, to_arrow, with_instants
from callboard.spark.files import make_folders, remove_file, storage_errors, write_text
from callboard.spark.options import ReadOptions
from callboard.spark.slice_reading import Lost, read_slice
from callboard.spark.slices import Slice

ROWS: Final = 4_096
"""Smaller frames are put together: with few rows a batch, what Spark does for each batch costs most of the time."""
GATHERED_BYTES: Final = 1 * MIB
"""Bytes of frames that are put together at most; a larger one stays alone."""
NAME_SHOWN_MAX: Final = 100
Ranges = list[tuple[int, int]]
"""First and last offsets."""


def read_batches(options: ReadOptions, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice as record batches of some thousand rows, or some MiB.

    Raises as `read_slice`. What the options let be passed over is named in a file of `options.report` when the reading
    ends, whether or not it came to the slice's end.
    """
    if options.report is None:
        yield from _read(options, piece, None, None)
        return
    lost: Ranges = []
    removed: Ranges = []
    is_over = False
    try:
        yield from _read(
            options,
            piece,
            lost if options.passes_damage else None,
            removed if options.passes_removed else None,
        )
        is_over = True
    finally:
        if lost or removed or is_over:
            _report(options.report, piece, lost, removed)


def _read(
    options: ReadOptions, piece: Slice, lost: Ranges | None, removed: Ranges | None
) -> Iterator[pa.RecordBatch]:
    spans = {"timestamp": options.wanted.span, "append_time": options.wanted.appended}
    spans = {name: span for name, span in spans.items() if not span.is_open}
    schema = arrow_schema(tuple(dict.fromkeys((*options.names, *spans))))
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for columns in read_slice(piece, _noted(lost), _noted(removed)):
        # A batch keeps the whole frame in memory, even if only a small column of it is wanted.
        frame_bytes = columns.size_bytes
        if gathered and (rows >= ROWS or size_bytes + frame_bytes > GATHERED_BYTES):
            yield joined(gathered)
            gathered, rows, size_bytes = [], 0, 0
        batch = to_arrow(columns, (piece.topic, piece.partition), schema)
        for name, span in spans.items():
            batch = _within(batch, name, span)
        if batch.num_rows:
            gathered.append(with_instants(batch.select(list(options.names)), options.instants))
            rows += batch.num_rows
            size_bytes += frame_bytes
    if gathered:
        yield joined(gathered)


def _noted(ranges: Ranges | None) -> Lost | None:
    return None if ranges is None else lambda first, last: ranges.append((first, last))


def _within(batch: pa.RecordBatch, name: str, span: Span) -> pa.RecordBatch:
    times = batch.column(name).to_numpy()
    mask = times == times
    if span.from_us is not None:
        mask &= times >= span.from_us
    if span.to_us is not None:
        mask &= times < span.to_us
    return batch if mask.all() else batch.filter(pa.array(mask))


def _report(folder: str, piece: Slice, lost: Ranges, removed: Ranges) -> None:
    """Name what is lost in a file of the slice's own; remove what an earlier reading left there if nothing is."""
    if lost or removed:
        report_losses(folder, piece.topic, piece.partition, piece.start, piece.path, lost, removed)
        return
    with storage_errors(f"naming what is damaged in {folder}"):
        remove_file(f"{folder}/{_report_name(piece.topic, piece.partition, piece.start)}")


def report_losses(
    folder: str, topic: str, partition: int, offset: int, path: str, lost: Ranges, removed: Ranges
) -> None:
    """Write the file of what a reading from `offset` on passed over: damaged offsets, and those that retention took."""
    with storage_errors(f"naming what is damaged in {folder}"):
        make_folders(folder)
        found = {"topic": topic, "partition": partition, "path": path, "lost": lost, "removed": removed}
        write_text(f"{folder}/{_report_name(topic, partition, offset)}", json.dumps(found) + "\n")


def _report_name(topic: str, partition: int, offset: int) -> str:
    # A recording's manifest names the topic, and nothing vouches for it.
    return f"{quote(topic, safe='')[:NAME_SHOWN_MAX]}-{partition}-{offset}.json"
