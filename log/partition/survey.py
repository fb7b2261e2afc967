"""The first step of recovery: which files lie in a partition's directory, and what their headers say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from callboard.log.format.committed import COMMITTED_NAME
from callboard.log.format.faults import SegmentHeaderInvalid
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
    SyncDirectory,
    Unlink,
    Verb,
)
from callboard.log.segments.index_file import read_index_bytes, segment_id_in
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.scanning import scan_stored
from callboard.log.segments.segment_file import (
    INDEX_SUFFIX,
    NEW_SUFFIX,
    SegmentFile,
    base_offset_of,
    segment_path,
)
from callboard.log.segments.segments import Damage, StoredSegment

__all__ = ["COMMITTED_NAME", "Survey", "leftovers", "survey"]

NEW_INDEX_SUFFIX: Final = INDEX_SUFFIX + ".new"


@attrs.frozen
class Survey:
    """The segments found, in offset order, and what was wrong with the others."""

    segments: list[StoredSegment]
    damages: tuple[Damage, ...]
    ignored: tuple[str, ...]


async def survey(files: Incarnation, directory: str, quarantine: Quarantine, *, limit_bytes: int) -> Survey:
    """Read the directory, made when missing. Only the last two segments are left open."""
    entries = await files.list(directory)
    if not entries:
        await files.submit(make_directory_verbs(directory))
    bases = [base for entry in entries if (base := segment_base(entry)) is not None]
    sizes = {entry.name: entry.size_bytes for entry in entries}
    stale = leftovers(directory, entries, bases)
    if stale:
        await files.submit([Unlink(path) for path in stale])
    known = {path.removeprefix(directory + "/") for path in stale} | {COMMITTED_NAME}
    ignored = tuple(
        entry.name
        for entry in entries
        if not entry.is_directory and entry.name not in known and not is_ours(entry.name)
    )
    surveyor = Surveyor(files, directory, quarantine, limit_bytes)
    for base in bases:
        await surveyor.visit(base, sizes[segment_path("", base)[1:]])
    await surveyor.settle_ends()
    return Survey(surveyor.segments, tuple(surveyor.damages), ignored)


def make_directory_verbs(directory: str) -> list[Verb]:
    """Make the directory, and its name and those above it durable."""
    parts = directory.split("/")
    parents = ["/".join(parts[:depth]) for depth in range(len(parts))]
    return [MakeDirectory(directory), *(SyncDirectory(parent) for parent in parents)]


def segment_base(entry: Entry) -> int | None:
    return None if entry.is_directory else base_offset_of(entry.name)


def is_ours(name: str) -> bool:
    return base_offset_of(name) is not None or base_offset_of(name, INDEX_SUFFIX) is not None


def leftovers(directory: str, entries: Sequence[Entry], bases: Sequence[int] | None) -> list[str]:
    """Paths of half-made files, and of indexes whose segment is not among `bases`: nothing in them counts."""
    return [
        f"{directory}/{entry.name}"
        for entry in entries
        if not entry.is_directory
        and (
            base_offset_of(entry.name, NEW_SUFFIX) is not None
            or base_offset_of(entry.name, NEW_INDEX_SUFFIX) is not None
            or (bases is not None and base_offset_of(entry.name, INDEX_SUFFIX) not in (None, *bases))
        )
    ]


class Surveyor:
    """Visits the segments in offset order."""

    def __init__(self, files: Incarnation, directory: str, quarantine: Quarantine, limit_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._quarantine = quarantine
        self._limit_bytes = limit_bytes
        self._headers: list[SegmentHeader] = []
        self.segments: list[StoredSegment] = []
        self.damages: list[Damage] = []
        self._leading: list[int] = []
        """Places in `damages` of the segments set aside before any could be read."""

    async def visit(self, base: int, size_bytes: int) -> None:
        """Open the segment and read its header; the segment before the last one is closed."""
        file = SegmentFile(
            self._files,
            self._directory,
            base,
            segment_id=0,
            limit_bytes=self._limit_bytes,
            position=size_bytes,
        )
        closing = [segment for segment in self.segments[-2:-1] if segment.is_open]
        await self._files.submit([Open(file.handle), *(Close(segment.file.handle) for segment in closing)])
        for segment in closing:
            segment.is_open = False
        data = await self._files.read(file.handle, 0, SEGMENT_HEADER_BYTES)
        header = await self._header(file, data)
        if header is None:
            await self._set_aside(file, any(data) or size_bytes > SEGMENT_HEADER_BYTES)
            return
        file.segment_id = header.segment_id
        found = StoredSegment(
            file, created_us=header.created_us, previous_end=header.previous_end, gap=header.gap
        )
        found.is_open = True
        self._headers.append(header)
        self.segments.append(found)

    async def _header(self, file: SegmentFile, data: bytes) -> SegmentHeader | None:
        """The header; when both copies are lost, what the index knows of it; None when that is lost too."""
        try:
            header = decode_segment_header(data)
            if header.base_offset == file.base_offset and header.kind is SegmentKind.LOG:
                return header
        except SegmentHeaderInvalid:
            if not any(data):
                return None
            index = await read_index_bytes(self._files, self._directory, file.base_offset)
            segment_id = None if index is None else segment_id_in(index)
            if segment_id is not None:
                base = file.base_offset
                self.damages.append(Damage(file.path, 0, SEGMENT_HEADER_BYTES, base, base - 1))
                return SegmentHeader(segment_id, base, 0, previous_end=base, previous_base=base)
        return None

    async def _set_aside(self, file: SegmentFile, holds_bytes: bool) -> None:
        """Take a segment that cannot be read out of service, and its index with it."""
        verbs: list[Verb] = [Close(file.handle)]
        if holds_bytes:
            verbs += await self._quarantine.move_verbs(file.path, file.base_offset, file.position, 0)
            verbs.append(SyncDirectory(self._directory))
            if not self.segments:
                self._leading.append(len(self.damages))
            self.damages.append(Damage(file.path, 0, file.position, file.base_offset, file.base_offset - 1))
        else:
            verbs.append(Unlink(file.path))
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
