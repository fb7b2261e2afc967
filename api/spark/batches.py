"""The rows of a slice as Arrow record batches. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from callboard.log.format.columns import Columns
from callboard.log.limits import MIB
from callboard.recordings.reader import Span
from callboard.spark.arrow import arrow_schema, joined, to_arrow, with_instants
from callboard.spark.loss_report import LossReport
from callboard.spark.options import ReadOptions
from callboard.spark.slice_reading import read_slice
from callboard.spark.slices import Slice

ROWS: Final = 4_096
"""Smaller frames are put together: with few rows a batch, what Spark does for each batch costs most of the time."""
GATHERED_BYTES: Final = 1 * MIB
"""Bytes of frames that are put together at most; a larger one stays alone."""


def read_batches(options: ReadOptions, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice as record batches of some thousand rows, or some MiB.

    Raises as `read_slice`. What the options let be passed over is named in a file of their report's folder when the
    reading ends, whether or not it came to the slice's end.
    """
    losses = options.losses
    if losses.report is None:
        yield from _batches(options, piece, read_slice(piece))
        return
    report = LossReport(topic=piece.topic, partition=piece.partition, start=piece.start, path=piece.path)
    frames = read_slice(
        piece,
        report.add_damaged if losses.passes_damage else None,
        report.add_removed if losses.passes_removed else None,
    )
    is_over = False
    try:
        yield from _batches(options, piece, frames)
        is_over = True
    finally:
        if is_over or not report.is_empty:
            report.write(losses.report)


def _batches(options: ReadOptions, piece: Slice, frames: Iterable[Columns]) -> Iterator[pa.RecordBatch]:
    spans = {"timestamp": options.wanted.span, "append_time": options.wanted.appended}
    spans = {name: span for name, span in spans.items() if not span.is_open}
    schema = arrow_schema(tuple(dict.fromkeys((*options.names, *spans))))
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for columns in frames:
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


def _within(batch: pa.RecordBatch, name: str, span: Span) -> pa.RecordBatch:
    times = batch.column(name).to_numpy()
    mask = times == times
    if span.from_us is not None:
        mask &= times >= span.from_us
    if span.to_us is not None:
        mask &= times < span.to_us
    return batch if mask.all() else batch.filter(pa.array(mask))
