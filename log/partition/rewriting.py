"""Writing frames anew: what an unclean open could not prove goes into new segments, whole and synced before named.

Segments are made from the highest offsets down. A name supersedes the frames at and past its base in the segments
before it; the frames between its own and the next name are still served from where they were (R1 in `recovery`).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Final

import attrs

from callboard.log.errors import LogCorrupt, PlanFailed
from callboard.log.format.frame import (
    BASE_OFFSET,
    COUNT,
    FRAME_HEADER_BYTES,
    LAST_OFFSET,
    MAX_TIME,
    FrameFields,
    reseal,
    seed_of,
)
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, GapReason, encode_segment_header, identity_of
from callboard.log.limits import MIB
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Buffer, Close, Incarnation, Truncate, Verb
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.index_file import new_index
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import SegmentFile
from callboard.log.segments.segments import StoredSegment

CHUNK_BYTES: Final = 1 * MIB
SEGMENT_ID_BITS: Final = 64


def new_segment_id(entropy: Entropy) -> int:
    """A random id, never 0."""
    return entropy.integer(SEGMENT_ID_BITS) or 1


def make_segment(
    files: Incarnation,
    before: StoredSegment,
    base_offset: int,
    *,
    segment_id: int,
    now_us: int,
    limit_bytes: int,
    earlier: StoredSegment | None = None,
) -> tuple[StoredSegment, bytes]:
    """A segment that continues `before` at `base_offset` without a gap, and its header.

    One that has the base of `before` takes its place: it follows `earlier`, as that did, and behind the same gap.
    """
    directory = before.file.directory
    previous_base, previous_end, gap = before.base_offset, base_offset, GapReason.NONE
    if before.base_offset == base_offset:
        previous_base = base_offset if earlier is None else earlier.base_offset
        previous_end, gap = before.previous_end, before.gap
    file = SegmentFile(files, directory, base_offset, segment_id=segment_id, limit_bytes=limit_bytes)
    header = encode_segment_header(
        segment_id=segment_id,
        base_offset=base_offset,
        created_us=now_us,
        previous_end=previous_end,
        previous_base=previous_base,
        gap=gap,
        identity=identity_of(directory),
    )
    made = StoredSegment(
        file,
        created_us=now_us,
        previous_end=previous_end,
        gap=gap,
        index=new_index(segment_id, base_offset),
    )
    made.damages = ()
    return made, header


@attrs.define
class RewrittenRun:
    """Frames that continue one another without a gap: what one new segment will hold."""

    source: StoredSegment | None
    base_offset: int
    end_offset: int
    previous_end: int
    gap: GapReason
    positions: array[int] = attrs.Factory(lambda: array("Q"))
    """Where the frames are in `source`, none for an empty segment."""


class Writer:
    """Makes the new segments of one recovery."""

    def __init__(
        self,
        files: Incarnation,
        directory: str,
        quarantine: Quarantine,
        *,
        clock: Clock,
        entropy: Entropy,
        segment_bytes: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._quarantine = quarantine
        self._clock = clock
        self._entropy = entropy
        self._segment_bytes = segment_bytes
        self.rewritten_records = 0
        self.made: list[StoredSegment] = []

    async def replace(
        self, segments: Sequence[StoredSegment], runs: Sequence[RewrittenRun]
    ) -> list[StoredSegment]:
        """Make a segment of each run; returns all segments, each ending where its successor says."""
        if not runs:
            return list(segments)
        before = [segment for segment in segments if segment.base_offset < runs[0].base_offset]
        made: dict[int, StoredSegment] = {}
        for place in range(len(runs) - 1, -1, -1):
            previous_base = runs[place].base_offset
            if place:
                previous_base = runs[place - 1].base_offset
            elif before:
                previous_base = before[-1].base_offset
            made[runs[place].base_offset] = await self._make(runs[place], previous_base, segments)
        survivors = [segment for segment in segments if segment.base_offset not in made]
        for segment in segments:
            if segment.base_offset in made:
                await self._files.submit((Close(segment.file.handle),))
        for segment in survivors[max(len(before) - 1, 0) :]:
            await self._trim(segment)
        everything = sorted((*survivors, *made.values()), key=lambda segment: segment.base_offset)
        for segment, following in itertools.pairwise(everything):
            if following.base_offset in made:
                segment.end_offset = max(segment.base_offset, following.previous_end)
        return everything

    async def _make(
        self, run: RewrittenRun, previous_base: int, segments: Sequence[StoredSegment]
    ) -> StoredSegment:
        file = SegmentFile(
            self._files,
            self._directory,
            run.base_offset,
            segment_id=new_segment_id(self._entropy),
            limit_bytes=self._segment_bytes,
        )
        created_us = self._clock.wall_us()
        header = encode_segment_header(
            segment_id=file.segment_id,
            base_offset=run.base_offset,
            created_us=created_us,
            previous_end=run.previous_end,
            previous_base=previous_base,
            gap=run.gap,
            identity=identity_of(self._directory),
        )
        await self._files.submit(file.start_verbs(self._files, header))
        index = new_index(file.segment_id, run.base_offset)
        if run.source is not None and run.positions:
            await self._copy(run, run.source, file, index)
        await self._files.submit(file.naming_verbs(before_naming=await self._keep_replaced(run, segments)))
        made = StoredSegment(
            file, created_us=created_us, previous_end=run.previous_end, gap=run.gap, index=index
        )
        made.is_open = True
        made.damages = ()
        self.made.append(made)
        return made

    async def _copy(
        self, run: RewrittenRun, source: StoredSegment, file: SegmentFile, index: SegmentIndex
    ) -> None:
        """Reseal the frames of `run` into `file`, a chunk at a time."""
        parts: list[Buffer] = []
        seed, note = seed_of(file.segment_id), index.note
        position = file.position

        def take(_: int, fields: FrameFields, body: memoryview) -> bool:
            """The loop that a million frames go through."""
            nonlocal position
            parts.append(reseal(fields, body, seed))
            parts.append(body)
            size = FRAME_HEADER_BYTES + len(body)
            note(position, size, fields[BASE_OFFSET], fields[LAST_OFFSET], fields[COUNT], fields[MAX_TIME])
            position += size
            return False

        walk = FrameWalk(
            source.segment_id,
            run.base_offset,
            position=run.positions[0],
            limit=run.end_offset,
            visit=take,
            chunk_bytes=CHUNK_BYTES,
        )
        while (need := walk.need) is not None:
            walk.feed(await self._files.read(source.file.handle, need.position, need.length))
            if parts:
                data = b"".join(parts)
                parts.clear()
                await self._files.submit(file.fill_verbs((data,), len(data)))
        if walk.positions != run.positions:
            raise LogCorrupt(
                f"{source.file.path} gave other bytes than a moment ago: frames are not valid any more. "
                "Check the disk, then open it again.",
                path=source.file.path,
                offsets=(run.base_offset, run.end_offset - 1),
            )
        self.rewritten_records += index.records

    async def _keep_replaced(self, run: RewrittenRun, segments: Sequence[StoredSegment]) -> tuple[Verb, ...]:
        """Verbs that keep a segment with frames in quarantine when its name is about to be taken."""
        if not run.positions:
            return ()
        for segment in segments:
            if segment.base_offset == run.base_offset:
                return await self._quarantine.link_verbs(
                    segment.file.path,
                    segment.base_offset,
                    SEGMENT_HEADER_BYTES,
                    segment.file.allocated_to,
                    segment.segment_id,
                )
        return ()

    async def _trim(self, segment: StoredSegment) -> None:
        """Cut off what was superseded or never used: tidiness only, so a refusal does not matter."""
        file = segment.file
        if not segment.is_open or file.allocated_to <= file.position:
            return
        try:
            await self._files.submit((Truncate(file.handle, file.position),))
        except PlanFailed:
            return
        file.allocated_to = file.position
