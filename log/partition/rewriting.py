"""Writing frames anew: what an unclean open could not prove goes into new segments, whole and synced before named.

Segments are made from the highest offsets down. A name supersedes the frames at and past its base in the segments
before it; the frames between its own and the next name are still served from where they were (R1 in `recovery`).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence

import attrs

from callboard.log.errors import LogCorrupt, PlanFailed
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, GapReason
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Close, Incarnation, Truncate, Verb
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.filling import CHUNK_BYTES, SegmentFill, make_segment, new_segment_id
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segments import StoredSegment


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


@attrs.define(eq=False)
class Writer:
    """Makes the new segments of one recovery."""

    _files: Incarnation
    _directory: str
    _quarantine: Quarantine
    _clock: Clock
    _entropy: Entropy
    _segment_bytes: int
    rewritten_records: int = 0
    made: list[StoredSegment] = attrs.Factory(list)

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
        made, verbs = make_segment(
            self._files,
            self._directory,
            run.base_offset,
            segment_id=new_segment_id(self._entropy),
            now_us=self._clock.wall_us(),
            limit_bytes=self._segment_bytes,
            previous_base=previous_base,
            previous_end=run.previous_end,
            gap=run.gap,
        )
        await self._files.submit(verbs)
        if run.source is not None and run.positions:
            await self._copy(run, run.source, made)
        keep = await self._keep_replaced(run, segments)
        await self._files.submit(made.file.naming_verbs(before_naming=keep))
        made.end_offset = made.index_in_use.next_offset
        made.is_open = True
        self.made.append(made)
        return made

    async def _copy(self, run: RewrittenRun, source: StoredSegment, made: StoredSegment) -> None:
        """Reseal the frames of `run` into the file of `made`."""
        fill = SegmentFill(self._files, made.file, made.index_in_use)
        walk = FrameWalk(
            source.segment_id,
            run.base_offset,
            position=run.positions[0],
            limit=run.end_offset,
            visit=fill.take,
            chunk_bytes=CHUNK_BYTES,
        )
        await fill.copy(source.file.handle, walk)
        await fill.flush()
        if walk.positions != run.positions:
            raise LogCorrupt(
                f"{source.file.path} gave other bytes than a moment ago: frames are not valid any more. "
                "Check the disk, then open it again.",
                path=source.file.path,
                offsets=(run.base_offset, run.end_offset - 1),
            )
        self.rewritten_records += made.index_in_use.records

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
