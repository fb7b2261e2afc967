"""The first step of recovery: which files lie in a partition's directory, and what their headers say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from callboard.log.format.committed import Committed
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.frame_walk import BEYOND_ALL
from callboard.log.format.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentKind,
    decode_segment_header,
)
from callboard.log.seams.disk import (
    Close,
    Entry,
    Incarnation,
    MakeDirectory,
    Open,
    Rename,
    SyncDirectory,
    Unlink,
    Verb,
)
from callboard.log.segments.damage_record import DAMAGES_NAME
from callboard.log.segments.headers import is_blank
from callboard.log.segments.index_file import load_index
from callboard.log.segments.placing import Stray, place_segments, renames
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import (
    INDEX_SUFFIX,
    NEW_SUFFIX,
    SegmentFile,
    base_offset_of,
    segment_path,
    segment_sizes,
)
from callboard.log.segments.segment_scan import scan_stored
from callboard.log.segments.segments import Damage, StoredSegment


async def survey(
    files: Incarnation,
    directory: str,
    quarantine: Quarantine | None,
    *,
    limit_bytes: int,
    committed: Committed | None,
    entries: Sequence[Entry] | None = None,
) -> Survey:
    """Go through the directory, which holds `entries`. Only the last two segments are left open.

    `committed` is what the file of that name says, None when it cannot be read. Without a `quarantine` nothing is
    written: what would be set aside, removed or renamed stays, and is left out.
    """
    damages: list[Damage] = []
    while True:
        if entries is None:
            entries = await files.list(directory)
        sizes = segment_sizes(entries)
        found = Survey(files, directory, quarantine, limit_bytes, damages=damages)
        for base, size_bytes in sizes.items():
            await found.visit(base, size_bytes)
        if not await found.rename(committed):
            break
        entries = None
    stale = leftovers(directory, entries, sizes)
    if stale and quarantine is not None:
        await files.submit([Unlink(path) for path in stale])
    await found.take_out()
    await found.settle_ends()
    return found


async def ensure_directory(files: Incarnation, directory: str) -> list[Entry]:
    """Make the directory, its name and those above it durable, unless it holds something: which is returned."""
    entries = await files.list(directory)
    if not entries:
        parts = directory.split("/")
        parents = ["/".join(parts[:depth]) for depth in range(len(parts))]
        await files.submit([MakeDirectory(directory), *map(SyncDirectory, parents)])
    return entries


def leftovers(directory: str, entries: Sequence[Entry], bases: Collection[int] | None) -> list[str]:
    """Paths of half-made files, and of indexes whose segment is not among `bases`: nothing in them counts."""
    return [
        f"{directory}/{entry.name}"
        for entry in entries
        if not entry.is_directory
        and (
            base_offset_of(entry.name, NEW_SUFFIX) is not None
            or base_offset_of(entry.name, INDEX_SUFFIX + ".new") is not None
            or entry.name == DAMAGES_NAME + ".new"
            or (bases is not None and base_offset_of(entry.name, INDEX_SUFFIX) not in (None, *bases))
        )
    ]


async def remove_leftovers(files: Incarnation, directory: str, active: StoredSegment) -> None:
    """Remove what a failed plan left: half-made files, and segments past the one in use.

    The latter would supersede whatever is appended from now on; nothing in them was acknowledged.
    """
    entries = await files.list(directory)
    stale = leftovers(directory, entries, None)
    stale += [
        f"{directory}/{entry.name}"
        for entry in entries
        if (base_offset_of(entry.name) or 0) > active.base_offset
    ]
    if stale:
        await files.submit([*(Unlink(path) for path in stale), SyncDirectory(directory)])


@attrs.define
class VisitedFile:
    """A file named like a segment."""

    file: SegmentFile
    size_bytes: int
    is_blank: bool
    """Nothing but zeros, or nothing at all: its creation did not end."""
    header: SegmentHeader | None
    """None when both copies are lost, and when it is no part of a partition's log."""


@attrs.define(eq=False)
class Survey:
    """The segments found, in offset order, and what was wrong with the others.

    The files are visited in the order of their names, then judged together.
    """

    _files: Incarnation
    _directory: str
    _quarantine: Quarantine | None
    _limit_bytes: int
    segments: list[StoredSegment] = attrs.Factory(list)
    damages: list[Damage] = attrs.Factory(list)
    doubtful_from: int = BEYOND_ALL
    """From this offset on a segment that has a wrong name is missing; `BEYOND_ALL` when none has."""
    _visited: dict[int, VisitedFile] = attrs.Factory(dict)
    _refused: dict[int, Stray] = attrs.Factory(dict)
    _headers: list[SegmentHeader] = attrs.Factory(list)
    _leading: list[int] = attrs.Factory(list)
    """Places in `damages` of the segments set aside before any could be read."""

    async def visit(self, base: int, size_bytes: int) -> None:
        """Open the file and read its header; all but the last two files are closed."""
        file = SegmentFile(
            self._files, self._directory, base, size_bytes, segment_id=0, limit_bytes=self._limit_bytes
        )
        closing = [visited.file for visited in list(self._visited.values())[-2:-1]]
        await self._files.submit([Open(file.handle), *(Close(earlier.handle) for earlier in closing)])
        data = await self._files.read(file.handle, 0, SEGMENT_HEADER_BYTES)
        try:
            header: SegmentHeader | None = decode_segment_header(data)
        except SegmentHeaderInvalid:
            header = None
        self._visited[base] = VisitedFile(file, size_bytes, is_blank(data, size_bytes), header)

    async def rename(self, committed: Committed | None) -> bool:
        """Give segments under a wrong name the right one; True when there were any: survey the folder again then."""
        found = {base: visited.header for base, visited in self._visited.items() if not visited.is_blank}
        placing = place_segments(self._directory, found, committed)
        self._refused = placing.refused
        if self._quarantine is None:
            for name, base in placing.renamed.items():
                self.doubtful_from = min(self.doubtful_from, base)
                await self._files.submit((Close(self._visited.pop(name).file.handle),))
            return False
        if not placing.renamed:
            return False
        await self._files.submit([Close(visited.file.handle) for visited in self._visited.values()])
        for name in placing.refused.keys() & set(placing.renamed.values()):
            await self._set_aside(self._visited[name], str(placing.refused[name]))
        for name, base in renames(placing.renamed, self._visited):
            here = segment_path(self._directory, name)
            renaming = Rename(here, segment_path(self._directory, base))
            await self._files.submit((renaming, SyncDirectory(self._directory)))
        return True

    async def take_out(self) -> None:
        """Take out of service what is no segment of this log, or cannot be read; keep the others."""
        last_two = list(self._visited)[-2:]
        for base, visited in self._visited.items():
            file = visited.file
            stray = self._refused.get(base)
            header = await self._header(visited) if stray is None else None
            if header is None:
                await self._set_aside(visited, "" if stray is None else str(stray))
                continue
            file.segment_id = header.segment_id
            self._headers.append(header)
            self.segments.append(
                StoredSegment(
                    file,
                    created_us=header.created_us,
                    previous_end=header.previous_end,
                    gap=header.gap,
                    is_open=base in last_two,
                )
            )

    async def _header(self, visited: VisitedFile) -> SegmentHeader | None:
        """The header; when both copies are lost, what the index knows of it; None when that is lost too."""
        header, file = visited.header, visited.file
        if header is not None:
            return header if header.kind is SegmentKind.LOG else None
        if visited.is_blank:
            return None
        base = file.base_offset
        index = await load_index(self._files, self._directory, base)
        if index is None:
            return None
        self.damages.append(Damage(file.path, 0, SEGMENT_HEADER_BYTES, base, base - 1))
        return SegmentHeader(index.segment_id, base, 0, previous_end=base, previous_base=base)

    async def _set_aside(self, visited: VisitedFile, reason: str) -> None:
        """Take a file out of service."""
        file = visited.file
        verbs: list[Verb] = [Close(file.handle)]
        if not visited.is_blank:
            if not self.segments and not reason:
                self._leading.append(len(self.damages))
            base = file.base_offset
            self.damages.append(Damage(file.path, 0, file.position, base, base - 1, reason))
        if visited.is_blank and self._quarantine is not None:
            verbs.append(Unlink(file.path))
        elif self._quarantine is not None:
            segment_id = 0 if visited.header is None else visited.header.segment_id
            verbs += await self._quarantine.move_verbs(file.path, file.base_offset, file.position, segment_id)
            verbs.append(SyncDirectory(self._directory))
        await self._files.submit(verbs)

    async def settle_ends(self) -> None:
        """Each segment ends where its successor says; when one is missing in between, where its frames end."""
        self._name_beginning()
        for place, segment in enumerate(self.segments[:-1]):
            header = self._headers[place + 1]
            segment.end_offset = max(segment.base_offset, header.previous_end)
            if header.previous_base > segment.base_offset:
                # Frames from where the missing one began are superseded.
                end = await scan_stored(self._files, segment, limit=header.previous_base)
                segment.end_offset = min(end, segment.end_offset)
                if segment.end_offset < header.previous_end:
                    self.damages.append(
                        Damage(self._directory, 0, 0, segment.end_offset, header.previous_end - 1)
                    )

    def _name_beginning(self) -> None:
        """What was set aside before the first segment that can be read had the offsets up to the next one."""
        if not self._leading or not self.segments:
            return
        following = [self.damages[place].first_offset for place in self._leading[1:]]
        for place, end in zip(self._leading, [*following, self.segments[0].base_offset], strict=True):
            self.damages[place] = attrs.evolve(self.damages[place], last_offset=end - 1)
