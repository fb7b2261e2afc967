"""Reads a delivery journal from its first segment on, in a task: one chunk of a file in memory at a time.

A runtime reads a journal from its newest snapshot on. Its history is in the segments before, which stay as long as the
log segments that they name. What cannot be read is named, and what follows a loss is kept apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from callboard.actors.partition.group_records import RECORDS_VERSION
from callboard.log.errors import JournalInvalid, OffsetOutOfRange
from callboard.log.format.columns import Columns
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.fields import too_new
from callboard.log.format.frame import FrameHeader
from callboard.log.format.frame_walk import BEYOND_ALL
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    belongs_to,
    decode_segment_header,
)
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.segments.segment_file import segment_path
from callboard.simulations.workload.delivery_history import DeliveryHistory, Fact
from callboard.spark.files import opened
from callboard.spark.segment_frames import segment_frames


@attrs.frozen(kw_only=True)
class JournalPlace:
    """A delivery journal, as it was when the reading was planned."""

    label: str
    """How messages name the partition."""
    root: str
    directory: str
    bases: tuple[int, ...]
    """The first record of each segment."""
    end: int | None
    """Records from here on no sync had proven; None when that is unknown."""


@attrs.define
class JournalHistory:
    """One reading of one journal. Use up `facts`; then the fields are complete.

    Raises `JournalInvalid`, `FormatTooNew`, `StorageError`; `OffsetOutOfRange` when a segment is there no more.
    """

    _place: JournalPlace
    history: DeliveryHistory = attrs.Factory(DeliveryHistory)
    first_us: int | None = None
    """When the first record was written that is there."""
    last_us: int | None = None
    lost: list[tuple[int, int]] = attrs.Factory(list)
    """First and last number of the journal's records that cannot be read."""
    _next: int = 0
    _snapshot_at: int | None = None
    """Where an announced snapshot is due."""

    def facts(self) -> Iterator[Fact]:
        """All facts, in the order in which they were written."""
        place = self._place
        self._next = place.bases[0] if place.bases else 0
        for number, base in enumerate(place.bases):
            is_last = number == len(place.bases) - 1
            stop = place.end if is_last else place.bases[number + 1]
            for header, columns in self._frames(base, stop):
                try:
                    yield from self._frame(header, columns)
                except JournalInvalid as error:
                    raise JournalInvalid(
                        f"partition {place.label}: {error}. Run `callboard verify`, then `callboard repair`.",
                        path=place.directory,
                        group=error.group,
                    ) from error
        if place.end is not None and place.bases:
            self._reach(place.end)
        self.history.end()

    def _frames(self, base: int, stop: int | None) -> Iterator[tuple[FrameHeader, Columns]]:
        """The readable frames of a segment that end at or below `stop`."""
        path = f"{self._place.root}/{segment_path(self._place.directory, base)}"
        with opened(path) as file:
            if file is None:
                raise OffsetOutOfRange(
                    f"{path} is there no more: the runtime removed it after the reading was planned. Try again.",
                    path=path,
                )
            header = self._header(file.read(0, SEGMENT_HEADER_BYTES), base, path)
            if header is None:
                return
            # A frame that makes no sense is missing where the next one is taken.
            yield from segment_frames(file, header, stop=BEYOND_ALL if stop is None else stop)

    def _header(self, data: bytes, base: int, path: str) -> SegmentHeader | None:
        try:
            header = decode_segment_header(data)
        except SegmentHeaderInvalid:
            return None
        if not belongs_to(header, self._place.directory) or header.base_offset != base:
            return None
        if header.records_version > RECORDS_VERSION:
            found = header.records_version
            what = f"its records are of version {found}"
            raise too_new(what, found=found, supported=RECORDS_VERSION, path=path)
        self.history.versioned(header.records_version)
        return header

    def _frame(self, header: FrameHeader, columns: Columns) -> Iterator[Fact]:
        base, time_us = header.base_offset, header.max_time_us
        if base == self._snapshot_at:
            self._next, self._snapshot_at = header.last_offset + 1, None
            yield from self.history.snapshot(columns.value(0) or b"", self._seen(time_us))
            return
        records = columns.value_list()
        control = decode_control(records[0], behind_gap=base > self._next)
        if control is None:
            self._reach(header.last_offset + 1)
            return
        if control.kind in (Kind.SNAPSHOT, Kind.HEAL):
            # What is missing before it is in the snapshot, though without a time: no event will fail to fit.
            self._missing(base)
            self._next, self._snapshot_at = header.last_offset + 1, base + 1
            return
        self._reach(base)
        self._next = header.last_offset + 1
        self._seen(time_us)
        if control.kind is Kind.GAP:
            self._reach(self._next, since=base)
        elif control.kind is Kind.EVENTS:
            for record in records[1:]:
                yield from self.history.record(record or b"", time_us)

    def _seen(self, time_us: int) -> int:
        if self.first_us is None:
            self.first_us = time_us
        self.last_us = time_us
        return time_us

    def _missing(self, following: int) -> bool:
        """Note records that are not there before `following`."""
        if following > self._next:
            self.lost.append((self._next, following - 1))
            return True
        return False

    def _reach(self, following: int, since: int | None = None) -> None:
        """Records before `following` are given up: what follows may not fit."""
        if since is not None:
            self._next = since
        if self._missing(following):
            self.history.lost(*self.lost[-1])
        self._next = max(self._next, following)
