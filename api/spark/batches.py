"""The rows of a slice as Arrow record batches, and the report of what is damaged. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from callboard.log.limits import MIB
from callboard.recordings.reader import Span
from callboard.spark.arrow import arrow_schema, joined, to_arrow
from callboard.spark.files import make_folders, remove_file, told, write_text
from callboard.spark.options import ReadOptions
from callboard.spark.slices import Slice, read_slice

ROWS: Final = 4_096
"""Smaller frames are put together: with few rows a batch, what Spark does for each batch costs most of the time."""
GATHERED_BYTES: Final = 1 * MIB
"""Frames of so many bytes are put together at most; a larger one stays alone."""
NAME_SHOWN_MAX: Final = 100


def read_batches(options: ReadOptions, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice as record batches of some thousand rows, or some MiB.

    Raises as `read_slice`. With `options.report` what is damaged is passed over, and named in a file there when the
    reading ends, whether or not it came to the slice's end.
    """
    if options.report is None:
        yield from _read(options, piece, None)
        return
    lost: list[tuple[int, int]] = []
    is_over = False
    try:
        yield from _read(options, piece, lost)
        is_over = True
    finally:
        if lost or is_over:
            _report(options.report, piece, lost)


def _read(options: ReadOptions, piece: Slice, lost: list[tuple[int, int]] | None) -> Iterator[pa.RecordBatch]:
    spans = {"timestamp": options.wanted.span, "append_time": options.wanted.appended}
    spans = {name: span for name, span in spans.items() if not span.is_open}
    schema = arrow_schema(tuple(dict.fromkeys((*options.names, *spans))))
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for columns in read_slice(piece, None if lost is None else lambda *found: lost.append(found)):
        # A batch keeps the whole frame in memory, even if only a small column of it is wanted.
        frame_bytes = columns.size_bytes
        if gathered and (rows >= ROWS or size_bytes + frame_bytes > GATHERED_BYTES):
            yield joined(gathered)
            gathered, rows, size_bytes = [], 0, 0
        batch = to_arrow(columns, (piece.topic, piece.partition), schema)
        for name, span in spans.items():
            batch = _within(batch, name, span)
        if batch.num_rows:
            gathered.append(batch.select(list(options.names)))
            rows += batch.num_rows
            size_bytes += frame_bytes
    if gathered:
        yield joined(gathered)


def _within(batch: pa.RecordBatch, name: str, span: Span) -> pa.RecordBatch:
    times = batch.column(name).to_numpy()
    mask = times == times
    if span.from_us is not None:
        mask &= times >= span.from_us
    if span.to_us is not None:
        mask &= times < span.to_us
    return batch if mask.all() else batch.filter(pa.array(mask))


def _report(folder: str, piece: Slice, lost: list[tuple[int, int]]) -> None:
    """Name what is lost in a file of the slice's own; remove what an earlier reading left there if nothing is."""
    # A recording's manifest names the topic, and nobody vouches for it.
    name = f"{quote(piece.topic, safe='')[:NAME_SHOWN_MAX]}-{piece.partition}-{piece.base_offset}.json"
    with told(f"naming what is damaged in {folder}"):
        if not lost:
            remove_file(f"{folder}/{name}")
            return
        make_folders(folder)
        found = {"topic": piece.topic, "partition": piece.partition, "path": piece.path, "lost": lost}
        write_text(f"{folder}/{name}", json.dumps(found) + "\n")
