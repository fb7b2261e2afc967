"""Reading a journal as its files lie: no lock, nothing changed, as far as it makes sense."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.faults import FrameInvalid, SegmentHeaderInvalid
from callboard.log.format.frame import FrameFields, FrameHeader, decode_body
from callboard.log.journal.journal_placing import find_places
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.journal.journal_recovery import Owner, check_version, finish
from callboard.log.seams.disk import Close, Incarnation
from callboard.log.segments.scanning import open_segment, scan_file
from callboard.log.segments.segment_file import base_offset_of, segment_path


@attrs.define(eq=False)
class JournalReading:
    """One reading of the journal in `directory`; `owner` hears what a replay would tell it.

    `run` raises `PlanFailed` (also when a segment is pruned meanwhile), `FormatTooNew`, and whatever `owner` raises.
    """

    _files: Incarnation
    _directory: str
    _owner: Owner
    faults: list[str] = attrs.Factory(list)
    """What cannot be read and no later snapshot replaces, for people."""
    next_sequence: int = 0
    _announced: tuple[int, int | None] | None = None
    """The sequence of a snapshot that was announced, and from where on records are lost without it."""

    async def run(self) -> None:
        """Read all segments. A snapshot replaces everything before it."""
        files, directory = self._files, self._directory
        entries = await files.list(directory)
        for entry in entries:
            if entry.is_special and base_offset_of(entry.name) is not None:
                self.faults.append(f"{entry.name} is a symbolic link, a pipe or the like")
        entries = [entry for entry in entries if not entry.is_special]
        names = (await find_places(files, directory, entries)).names
        bases = list(names)
        for base, successor in zip_longest(bases, bases[1:]):
            try:
                segment = await open_segment(files, segment_path(directory, names[base]))
            except SegmentHeaderInvalid as fault:
                self.faults.append(f"segment {base} has no readable header ({fault})")
                continue
            try:
                check_version(segment, self._owner)
                self._owner.versioned(segment.header.records_version)
                await scan_file(files, segment, visit=partial(self._visit, successor))
            finally:
                await files.submit((Close(segment.handle),))

    def _visit(self, successor: int | None, position: int, fields: FrameFields, body: memoryview) -> bool:
        header = FrameHeader(*fields)
        if successor is not None and header.base_offset >= successor:
            return True
        try:
            columns = decode_body(header, body)
        except FrameInvalid as fault:
            self.faults.append(f"the frame at byte {position} cannot be decoded ({fault})")
        else:
            self._take(header, columns)
        return False

    def _take(self, header: FrameHeader, columns: Columns) -> None:
        owner, base = self._owner, header.base_offset
        owner.written(header.max_time_us)
        if self._announced is not None:
            (at, first_lost), self._announced = self._announced, None
            if base == at:
                self.next_sequence = header.last_offset + 1
                self.faults.clear()
                finish(owner.restore(columns.value(0) or b""))
                return
            lost_from = at if first_lost is None else first_lost
            self.next_sequence = base if first_lost is None and base == at + 1 else lost_from
        control = decode_control(columns.value(0), behind_gap=base > self.next_sequence)
        if control is None:
            self.faults.append("a frame has no control record")
            return
        expected, self.next_sequence = self.next_sequence, header.last_offset + 1
        if control.kind in (Kind.SNAPSHOT, Kind.HEAL):
            replaces = control.kind is Kind.HEAL or base == 0
            self._announced = base + 1, expected if base > expected else base if replaces else None
            return
        if base > expected:
            self._lost(expected, base - 1)
        if control.kind is Kind.GAP:
            self._lost(base, header.last_offset)
        elif control.kind is Kind.EVENTS:
            for event in columns.value_list(1):
                finish(owner.apply(event or b""))

    def _lost(self, first: int, last: int) -> None:
        self.faults.append(f"records {first} to {last} are lost")
        self._owner.lost(first, last)
