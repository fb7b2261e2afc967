"""A commit on its way: frames with their offsets, and the verbs that write them; pure but for the id of a new segment.

A stage fills one segment after the other. Verbs that need space (zeros, a new segment, room for an index) come before
the write that they serve, so that a full disk fails the plan before a byte of the records is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from callboard.log.format.columns import Columns
from callboard.log.format.compression import Compression
from callboard.log.format.frame import encode_frame
from callboard.log.format.identity import identity_of
from callboard.log.format.segment import SEGMENT_HEADER_BYTES, GapReason, encode_segment_header
from callboard.log.partition.rewriting import new_segment_id
from callboard.log.seams.disk import Buffer, Incarnation, Verb, Write
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.index_file import index_is_due, index_room_verbs, index_store_verbs, new_index
from callboard.log.segments.segment_file import SegmentFile
from callboard.log.segments.segments import StoredSegment

__all__ = ["StagedRun", "StagedAppend", "Stager", "make_segment"]

Frame = tuple[Columns, int, int]
"""The records, the position of their frame, its length."""


@attrs.define
class StagedRun:
    """The part of a stage that goes into one segment."""

    segment: StoredSegment
    is_new: bool
    buffers: list[Buffer] = attrs.Factory(list)
    frames: list[Frame] = attrs.Factory(list)
    size_bytes: int = 0
    index_stored_to: int = attrs.Factory(lambda run: run.segment.index_stored_to, takes_self=True)
    """Of the segment, before this was staged."""


@attrs.define
class StagedAppend:
    """Verbs to be submitted, in order; then `PartitionLog.applied`, or `failed`."""

    verbs: tuple[Verb, ...]
    base_offsets: tuple[int, ...]
    """Where each batch begins."""
    end_offset: int
    size_bytes: int
    is_synced: bool
    runs: list[StagedRun]
    makes_index_room: bool

    @property
    def first_write(self) -> int:
        """The index of the first verb that stores a byte of a record."""
        handles = {id(run.segment.file.handle) for run in self.runs if run.buffers}
        for place, verb in enumerate(self.verbs):
            if type(verb) is Write and id(verb.handle) in handles:
                return place
        return len(self.verbs)


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


class Stager:
    """Builds one `StagedAppend`."""

    __slots__ = (
        "makes_index_room",
        "_checkpoint_bytes",
        "_compression",
        "_end_verbs",
        "_entropy",
        "_files",
        "_now_us",
        "_roll_bytes",
        "_verbs",
        "runs",
    )

    def __init__(
        self,
        files: Incarnation,
        active: StoredSegment,
        *,
        entropy: Entropy,
        compression: Compression,
        roll_bytes: int,
        checkpoint_bytes: int,
        now_us: int,
    ) -> None:
        self._files = files
        self._entropy = entropy
        self._compression = compression
        self._roll_bytes = roll_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self._now_us = now_us
        self._verbs: list[Verb] = []
        self._end_verbs: list[Verb] = []
        self.runs = [StagedRun(active, False)]
        self.makes_index_room = False

    def stage(self, batches: Sequence[Columns], offset: int, *, sync: bool, roll: bool) -> StagedAppend:
        """Give `batches` the offsets from `offset` on. `roll`: begin with a new segment."""
        if roll:
            self.roll(offset)
        bases = []
        now_us, compression, roll_bytes = self._now_us, self._compression, self._roll_bytes
        run = self.runs[-1]
        segment_id, position = run.segment.file.segment_id, run.segment.file.position
        total = 0
        for columns in batches:
            columns.base_offset = offset
            columns.append_time_us = now_us
            if position + columns.size_bytes > roll_bytes and position > SEGMENT_HEADER_BYTES:
                run = self.roll(offset)
                segment_id, position = run.segment.file.segment_id, run.segment.file.position
            frame = encode_frame(
                columns,
                segment_id=segment_id,
                base_offset=offset,
                append_time_us=now_us,
                compression=compression,
            )
            size = len(frame[0]) if len(frame) == 1 else sum(map(len, frame))
            run.buffers += frame
            run.frames.append((columns, position, size))
            run.size_bytes += size
            bases.append(offset)
            position += size
            total += size
            offset += columns.span + 1
        self._close_run(sync)
        return StagedAppend(
            (*self._verbs, *self._end_verbs),
            tuple(bases),
            offset,
            total,
            sync,
            self.runs,
            self.makes_index_room,
        )

    def roll(self, offset: int) -> StagedRun:
        """Seal the segment in use, synced, and go on in a new one that begins at `offset`."""
        before = self.runs[-1].segment
        is_complete = not self.runs[-1].frames
        self._close_run(False)
        self._verbs += before.file.seal_verbs()
        made, header = make_segment(
            self._files,
            before,
            offset,
            segment_id=new_segment_id(self._entropy),
            now_us=self._now_us,
            limit_bytes=self._roll_bytes,
        )
        self._verbs += made.file.creation_verbs(self._files, header)
        self._end_verbs += index_store_verbs(before, is_last=True, is_complete=is_complete)
        run = StagedRun(made, True)
        self.runs.append(run)
        return run

    def _close_run(self, sync: bool) -> None:
        """The verbs that write what was gathered for the segment."""
        run = self.runs[-1]
        if not run.buffers:
            return
        segment = run.segment
        if index_is_due(segment, self._checkpoint_bytes):
            room = index_room_verbs(self._files, segment)
            self.makes_index_room = bool(room)
            self._verbs += room
            self._end_verbs += index_store_verbs(segment)
        self._verbs += segment.file.append_verbs(run.buffers, run.size_bytes, sync=sync)
