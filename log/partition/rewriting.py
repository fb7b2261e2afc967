"""Writing frames anew: what an unclean open could not prove, or a failed sync has left in doubt, goes to new segments.

Each is whole and synced before it is named. Recovery makes them from the highest offsets down. A name supersedes the
frames at and past its base in the segments before it; the frames between its own and the next name are still served
from where they were (RC1 in `recovery`). After a failure the abandoned file is not touched again: its pages past the
durable end may say anything.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from contextlib import suppress

import attrs

from callboard.log.errors import LogCorrupt, PlanFailed
from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.format.frame import encode_frame
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, GapReason, encode_segment_header, identity_of
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Close, Incarnation, Truncate, Verb
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.filling import CHUNK_BYTES, SegmentFill, new_segment_id
from callboard.log.segments.index_file import new_index
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import SegmentFile
from callboard.log.segments.segments import SegmentList, StoredSegment


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
class SegmentWriter:
    """Makes the new segments of a partition."""

    files: Incarnation
    directory: str
    quarantine: Quarantine
    clock: Clock
    entropy: Entropy
    segment_bytes: int
    rewritten_records: int = 0
    made: list[StoredSegment] = attrs.Factory(list)

    def begin(
        self, base: int, previous_base: int, previous_end: int, now_us: int, gap: GapReason = GapReason.NONE
    ) -> tuple[StoredSegment, tuple[Verb, ...]]:
        """A segment behind one that began at `previous_base` and ended at `previous_end`, and what begins it."""
        segment_id = new_segment_id(self.entropy)
        file = SegmentFile(
            self.files, self.directory, base, segment_id=segment_id, limit_bytes=self.segment_bytes
        )
        header = encode_segment_header(
            segment_id=segment_id,
            base_offset=base,
            created_us=now_us,
            previous_end=previous_end,
            previous_base=previous_base,
            gap=gap,
            identity=identity_of(self.directory),
        )
        index = new_index(segment_id, base)
        made = StoredSegment(file, index, created_us=now_us, previous_end=previous_end, gap=gap, damages=())
        return made, file.start_verbs(header)

    async def heal(
        self, segments: SegmentList, unsynced: Sequence[Columns], durable_end: int, compression: Compression
    ) -> StoredSegment:
        """Make the segment that goes on at `durable_end`, holding `unsynced`. All of it is synced at return.

        It takes the place of the last one when nothing in that was synced, and follows what that followed.
        """
        active = segments.active
        previous_base, previous_end, gap = active.base_offset, durable_end, GapReason.NONE
        if active.base_offset == durable_end:
            previous_base = segments[-2].base_offset if len(segments) > 1 else durable_end
            previous_end, gap = active.previous_end, active.gap
        made, making = self.begin(durable_end, previous_base, previous_end, self.clock.wall_us(), gap)
        fill, verbs = SegmentFill(self.files, made.file, made.index_in_use), list(making)
        for columns in unsynced:
            frame = encode_frame(
                columns,
                segment_id=made.segment_id,
                base_offset=columns.base_offset,
                append_time_us=columns.append_time_us,
                compression=compression,
            )
            fill.add(frame, columns.base_offset, columns.last_offset, columns.count, columns.append_time_us)
            verbs += fill.verbs()
        keep: tuple[Verb, ...] = ()
        if active.base_offset == durable_end and active.file.position > SEGMENT_HEADER_BYTES:
            keep = await self.quarantine.link_verbs(
                active.file.path, durable_end, SEGMENT_HEADER_BYTES, active.file.position, active.segment_id
            )
        verbs += made.file.naming_verbs(before_naming=keep)
        try:
            await self.files.submit(verbs)
        except PlanFailed:
            await made.file.give_up()
            raise
        made.end_offset = made.index_in_use.next_offset
        made.is_open = True
        return made

    async def replace(
        self, segments: Sequence[StoredSegment], runs: Sequence[RewrittenRun]
    ) -> list[StoredSegment]:
        """Make a segment of each run; returns all segments, each ending where its successor says."""
        if not runs:
            return list(segments)
        before = [segment for segment in segments if segment.base_offset < runs[0].base_offset]
        made: dict[int, StoredSegment] = {}
        previous = [before[-1] if before else runs[0], *runs[:-1]]
        for run, earlier in reversed(list(zip(runs, previous, strict=True))):
            made[run.base_offset] = await self._make(run, earlier.base_offset, segments)
        survivors = [segment for segment in segments if segment.base_offset not in made]
        for segment in segments:
            if segment.base_offset in made:
                await self.files.submit((Close(segment.file.handle),))
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
        now_us = self.clock.wall_us()
        made, verbs = self.begin(run.base_offset, previous_base, run.previous_end, now_us, run.gap)
        await self.files.submit(verbs)
        if run.source is not None and run.positions:
            await self._copy(run, run.source, made)
        keep = await self._keep_replaced(run, segments)
        await self.files.submit(made.file.naming_verbs(before_naming=keep))
        made.end_offset = made.index_in_use.next_offset
        made.is_open = True
        self.made.append(made)
        return made

    async def _copy(self, run: RewrittenRun, source: StoredSegment, made: StoredSegment) -> None:
        """Reseal the frames of `run` into the file of `made`."""
        fill = SegmentFill(self.files, made.file, made.index_in_use)
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
                file = segment.file
                return await self.quarantine.link_verbs(
                    file.path, file.base_offset, SEGMENT_HEADER_BYTES, file.allocated_to, file.segment_id
                )
        return ()

    async def _trim(self, segment: StoredSegment) -> None:
        """Cut off what was superseded or never used: tidiness only, so a refusal does not matter."""
        file = segment.file
        if segment.is_open and file.allocated_to > file.position:
            with suppress(PlanFailed):
                await self.files.submit((Truncate(file.handle, file.position),))
                file.allocated_to = file.position
