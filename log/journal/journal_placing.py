"""Which files of a journal's folder are its segments, and putting them where they belong.

A name is no evidence against content. A file that is blank is no segment: one gets its name only with all that it began
with, synced (JN3 in `journal`). One whose header cannot be read is none either when the headers around it name one
another, or when the segment before it has a record with the number in its name, because numbers are never used twice.
For the others see `placing`.
"""

from __future__ import annotations

import attrs

from callboard.log.format.faults import FrameInvalid
from callboard.log.format.frame import LAST_OFFSET, FrameFields, FrameHeader, decode_body
from callboard.log.format.segment import identity_of
from callboard.log.journal.journal_floor import owner_of_segments
from callboard.log.journal.journal_records import Kind, decode_control
from callboard.log.seams.disk import Close, Entry, Incarnation, Rename, SyncDirectory, Unlink
from callboard.log.segments.headers import read_headers
from callboard.log.segments.open_segment import open_segment, scan_file
from callboard.log.segments.placing import Placing, Stray, StrayReason, passed_over, place_segments, renames
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import segment_path, segment_sizes


@attrs.frozen
class JournalPlaces:
    """Where the segments of a journal are; all files are named by the number in their name."""

    names: dict[int, int]
    """Of each segment, by its number, rising."""
    strays: dict[int, Stray]
    """Files that are no part of the journal."""

    @property
    def renamed(self) -> dict[int, int]:
        """Files to be renamed: to which number."""
        return {name: base for base, name in self.names.items() if name != base}


async def find_places(files: Incarnation, directory: str, entries: list[Entry]) -> JournalPlaces:
    """Read the headers of all files in `directory`, which has `entries`. Raises `PlanFailed`, `FormatTooNew`."""
    headers, blanks = await read_headers(files, directory, segment_sizes(entries))
    placing = place_segments(directory, headers, None)
    if identity_of(directory) and await owner_of_segments(files, directory, headers.values()) != directory:
        placing = Placing(refused=dict.fromkeys(headers, Stray(StrayReason.FOREIGN)))
    strays = dict.fromkeys(blanks, Stray(StrayReason.BLANK)) | placing.refused
    names = {placing.renamed.get(name, name): name for name in headers if name not in strays}
    passed = passed_over({base: headers[name] for base, name in names.items()})
    earlier: int | None = None
    for base in sorted(names):
        if headers[names[base]] is not None:
            earlier = names[base]
        elif base in passed or (
            earlier is not None and await goes_past(files, segment_path(directory, earlier), base)
        ):
            strays[names.pop(base)] = Stray(StrayReason.WITHIN)
    return JournalPlaces(dict(sorted(names.items())), strays)


async def goes_past(files: Incarnation, path: str, base: int) -> bool:
    """Whether a segment of a journal holds the record `base`, or one behind it.

    The mark of a clean end does not count: the next segment takes its number.
    """
    segment = await open_segment(files, path)
    found: list[int] = []

    def visit(position: int, fields: FrameFields, body: memoryview) -> bool:
        del position
        last = fields[LAST_OFFSET]
        if last > base or (last == base and not is_mark(fields, body)):
            found.append(last)
        return bool(found)

    try:
        await scan_file(files, segment, visit=visit)
    finally:
        await files.submit((Close(segment.handle),))
    return bool(found)


def is_mark(fields: FrameFields, body: memoryview) -> bool:
    """Whether a frame is the mark of a clean end; what cannot be decoded may be one."""
    try:
        record = decode_body(FrameHeader(*fields), body).value(0)
    except FrameInvalid:
        return True
    control = decode_control(record, behind_gap=True)
    return control is not None and control.kind is Kind.MARK


async def put_in_place(
    files: Incarnation, directory: str, places: JournalPlaces, entries: list[Entry]
) -> tuple[str, ...]:
    """Set strays aside, and give segments their names; returns what is in quarantine. Raises `PlanFailed`."""
    quarantine, sizes = Quarantine(files, directory), segment_sizes(entries)
    for name, stray in places.strays.items():
        path = segment_path(directory, name)
        if stray.reason is StrayReason.BLANK:
            await files.submit((Unlink(path), SyncDirectory(directory)))
        else:
            verbs = await quarantine.move_verbs(path, name, sizes[name], 0)
            await files.submit((*verbs, SyncDirectory(directory)))
    for name, base in renames(places.renamed, sizes):
        renaming = Rename(segment_path(directory, name), segment_path(directory, base))
        await files.submit((renaming, SyncDirectory(directory)))
    return tuple(quarantine.kept)
