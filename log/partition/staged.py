"""What an append will have done when its plan has run."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from callboard.log.format.columns import Columns
from callboard.log.seams.disk import Buffer, Handle, Verb
from callboard.log.segments.segments import StoredSegment


@attrs.define
class StagedRun:
    """The part of an append that goes into one segment."""

    segment: StoredSegment
    position: int
    """Where the file ends, and up to where it is zeroed, when the verbs have run."""
    allocated_to: int
    making: Sequence[Verb] = ()
    """What makes the segment, when it is new."""
    buffers: list[Buffer] = attrs.Factory(list)
    frames: list[tuple[Columns, int, int]] = attrs.Factory(list)
    """The records, the position of their frame, its length."""


@attrs.define
class StagedAppend:
    """Verbs to be submitted, in order; then `PartitionLog.applied`, or `failed`.

    Verbs that need space (zeros, a new segment, room for an index) come before the write that they serve, so that a
    full disk fails the plan before a byte of the records is stored.
    """

    verbs: list[Verb]
    base_offsets: list[int]
    """Where each batch begins."""
    end_offset: int
    is_synced: bool
    runs: list[StagedRun]
    index_before: tuple[int, int, Handle | None]
    """What was known of the index of the segment in use."""
