"""What decoders raise when bytes are not what they should be.

These exceptions stay inside `callboard.log`: the owner of the file turns them into `LogCorrupt`, a torn tail,
or a rebuilt index, because only the owner knows the path and what may follow. `FormatTooNew` is the one
public error that decoders raise themselves: a checksum that holds over a version, codec or flag unknown here
was written by a newer Callboard, and must never be mistaken for damage.
"""

from __future__ import annotations

import enum


class FaultReason(enum.Enum):
    """Why bytes were refused."""

    ZEROS = "zeros"
    """Nothing was ever written here: the clean end of a preallocated file."""
    SHORT = "short"
    """The bytes end before the header, or the body that the header announces, does."""
    MAGIC = "magic"
    HEADER_CHECKSUM = "header_checksum"
    HEADER = "header"
    """The header's checksum holds, but its fields contradict each other."""
    TOO_LONG = "too_long"
    """A length or count is above its limit."""
    BODY_CHECKSUM = "body_checksum"
    BODY = "body"
    """The body's checksum holds (or was not asked for), but the columns are not well-formed."""
    CHECKSUM = "checksum"
    FOREIGN = "foreign"
    """A valid segment, but of another log."""


class FormatFault(Exception):
    """Bytes that a decoder refused; `reason` says why."""

    def __init__(self, reason: FaultReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason


class FrameInvalid(FormatFault):
    """Not a valid frame of this segment."""


class SegmentHeaderInvalid(FormatFault):
    """Neither copy of the segment header is valid."""


class IndexInvalid(FormatFault):
    """Not a valid index of this segment: build it anew from the segment."""


class CommittedInvalid(FormatFault):
    """Neither slot of a `committed` file is valid: read again, a store may be under way."""
