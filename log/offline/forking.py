"""Forks: which new segments a repair makes of a damaged log, and how they are written."""

from __future__ import annotations

import hashlib
from itertools import zip_longest
from typing import Final

import attrs

from callboard.log.format.frame import BASE_OFFSET, FrameFields, encode_frame
from callboard.log.format.frame_walk import FrameWalk
from callboard.log.format.index import SegmentIndex
from callboard.log.format.segment import GapReason, SegmentKind, encode_segment_header, identity_of
from callboard.log.journal.journal_records import Kind, columns_of_control
from callboard.log.limits import SEGMENT_BYTES_MAX
from callboard.log.offline.inspected_log import FoundRun, Inspection, LogKind, ProblemKind, SegmentState
from callboard.log.seams.disk import Buffer, Close, Incarnation, Open, Verb
from callboard.log.segments.filling import SegmentFill
from callboard.log.segments.index_file import new_index
from callboard.log.segments.segment_file import SegmentFile

FORKING_KINDS: Final = frozenset(
    {
        ProblemKind.HEADER,
        ProblemKind.HEADER_COPY,
        ProblemKind.DAMAGE,
        ProblemKind.UNDECODABLE,
        ProblemKind.SNAPSHOT,
        ProblemKind.LOST,
    }
)
"""Problems of a segment that only a new one in its place mends."""

Span = tuple[int, int]
"""First and last offset."""


@attrs.frozen
class Fork:
    """A segment to be made: frames of `source`, and, in a journal, gap frames between them."""

    base: int
    end: int
    source: SegmentState | None
    parts: tuple[FoundRun | Span, ...]
    lost: tuple[Span, ...] = ()
    previous_end: int | None = None
    previous_base: int | None = None
    gap: GapReason = GapReason.NONE


def plan_partition(log: Inspection) -> list[Fork]:
    """A segment for each run of frames in a damaged segment; its header explains the gap before it."""
    forks: list[Fork] = []
    if not log.segments:
        end = 0 if log.committed is None else log.committed.durable_end
        start = log.start_of_nothing
        return (
            [Fork(end, end, None, (), ((start, end - 1),), start, end, GapReason.DAMAGED)]
            if end > start
            else []
        )
    end = previous_base = log.segments[0].base
    for state in log.segments:
        if not needs_fork(state, end):
            end, previous_base = max(end, state.end), state.base
            continue
        for run in state.runs:
            gap, lost = gap_before(state, run, end)
            forks.append(Fork(run.base, run.end, state, (run,), lost, end, previous_base, gap))
            end, previous_base = run.end, run.base
    # What is empty at the end still says where the log continues.
    last = log.segments[-1]
    top = max(0 if log.committed is None else log.committed.durable_end, last.base)
    if top > end:
        forks.append(Fork(top, top, None, (), ((end, top - 1),), end, previous_base, GapReason.DAMAGED))
    elif not last.runs and needs_fork(last, end):
        forks.append(Fork(end, end, None, (), (), end, previous_base))
    return forks


def needs_fork(state: SegmentState, end: int) -> bool:
    """Whether the segment is damaged, or must explain that the log before it ends at `end`."""
    if state.header is None or any(
        problem.kind in FORKING_KINDS - {ProblemKind.LOST} for problem in state.problems
    ):
        return True
    if state.problems and len(state.runs) > 1:
        return True
    return state.base > end and not state.explains_gap(end)


def gap_before(state: SegmentState, run: FoundRun, end: int) -> tuple[GapReason, tuple[Span, ...]]:
    """Why there is nothing between `end` and the run, and what of it was unknown so far."""
    if run.base == end:
        return GapReason.NONE, ()
    if state.header is not None and run.base == state.base and state.explains_gap(end):
        return state.header.gap, ()
    return GapReason.DAMAGED, ((end, run.base - 1),)


def plan_journal(log: Inspection) -> list[Fork]:
    """A segment for each damaged one, under the same name, with gap frames for what is lost."""
    forks: list[Fork] = []
    if not log.segments:
        end = log.journal_end
        return [Fork(0, end, None, ((0, end - 1),), ((0, end - 1),))] if end else []
    first = log.segments[0]
    if first.base > 0 and any(
        problem.kind is ProblemKind.SNAPSHOT and problem.first_offset == 0 for problem in first.problems
    ):
        forks.append(Fork(0, first.base, None, ((0, first.base - 1),), ((0, first.base - 1),)))
    for state, following in zip_longest(log.segments, log.segments[1:]):
        if not any(problem.kind in FORKING_KINDS for problem in state.problems):
            continue
        parts: list[FoundRun | Span] = []
        end = state.base
        for run in state.runs:
            if run.base > end:
                parts.append((end, run.base - 1))
            parts.append(run)
            end = run.end
        if following is None and end < log.journal_end:
            parts.append((end, log.journal_end - 1))
            end = log.journal_end
        if state.lost_snapshot and end == state.base + 1:
            parts.append((end, end))  # the announcement is there, and becomes a gap of its own
            end += 1
        if following is not None and end < following.base and not following.heals:
            parts.append((end, following.base - 1))
            end = following.base
        lost = tuple(part for part in parts if isinstance(part, tuple))
        forks.append(Fork(state.base, end, state, tuple(parts), lost))
    return forks


# -- writing ------------------------------------------------------------------------------------------------------


async def write_fork(
    files: Incarnation, log: Inspection, fork: Fork, before_naming: tuple[Verb, ...]
) -> SegmentIndex:
    """Write the new segment, sync it, name it. Returns its index."""
    source = fork.source
    header = None if source is None else source.header
    segment_id = forked_id(log.directory, fork)
    file = SegmentFile(files, log.directory, fork.base, segment_id=segment_id, limit_bytes=SEGMENT_BYTES_MAX)
    encoded = encode_segment_header(
        segment_id=segment_id,
        base_offset=fork.base,
        created_us=0 if header is None else header.created_us,
        kind=SegmentKind.JOURNAL if log.kind is LogKind.JOURNAL else SegmentKind.LOG,
        previous_end=fork.previous_end,
        previous_base=fork.previous_base,
        gap=fork.gap,
        records_version=0 if header is None else header.records_version,
        identity=identity_of(log.directory),
    )
    await files.submit(file.start_verbs(encoded))
    index = new_index(segment_id, fork.base)
    fill = SegmentFill(files, file, index)
    if source is not None and source.segment_id is not None:
        await copy_parts(files, fill, fork, source, source.segment_id)
    else:
        for part in fork.parts:
            if isinstance(part, tuple):
                fill.add(*gap_frame(segment_id, *part))
    await fill.flush()
    await files.submit((*file.naming_verbs(before_naming=before_naming), Close(file.handle)))
    return index


async def copy_parts(
    files: Incarnation, fill: SegmentFill, fork: Fork, source: SegmentState, source_id: int
) -> None:
    """The parts of `fork`: frames of its source, resealed for the new segment, and gap frames."""

    def take(position: int, fields: FrameFields, body: memoryview) -> bool:
        if not source.lost_snapshot or fields[BASE_OFFSET] != source.base:
            return fill.take(position, fields, body)
        # An announcement without its snapshot would announce whatever follows.
        fill.add(*gap_frame(fill.segment_id, source.base, source.base))
        return False

    handle = files.handle(source.path)
    await files.submit((Open(handle),))
    for part in fork.parts:
        if isinstance(part, tuple):
            fill.add(*gap_frame(fill.segment_id, *part))
            continue
        for start, end in part.spans:
            walk = FrameWalk(source_id, part.base, position=start, file_end=end, visit=take)
            await fill.copy(handle, walk)
    await files.submit((Close(handle),))


def gap_frame(segment_id: int, first: int, last: int) -> tuple[list[Buffer], int, int, int, int]:
    """A frame that says that a journal's records `first` to `last` are lost, and what an index notes of it."""
    columns = columns_of_control(Kind.GAP, first)
    columns.span = last - first
    columns.offset_deltas = [0] if last > first else None
    frame = encode_frame(columns, segment_id=segment_id, base_offset=first, append_time_us=0)
    return frame, first, last, 1, 0


def forked_id(directory: str, fork: Fork) -> int:
    """An id that no other segment has: made from the old one, so that repairing again in the same state repeats it."""
    old = 0 if fork.source is None else fork.source.segment_id or 0
    words = f"{directory} {old:016x} {fork.base} {fork.end} {len(fork.parts)}"
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") or 1
