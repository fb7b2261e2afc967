"""Which log a segment belongs to: a number in its header, made from the folder of the log.

A segment that lies in the folder of another log (files were swapped, or restored into the wrong place) has checksums
that hold, so without this number one topic's records would be served as another's. It is the CRC-32 of the folder's
path below the root. The topic's id, never used again, is part of the path, and so is the partition's number.

Only logs whose folders are Callboard's own have an identity: the catalog, partitions, their delivery journals. All
other logs (recordings, journals of users' actors) may be moved and copied at will: their identity is 0, *unbound*. So
it is in every segment that was written before headers told an identity; unbound segments are accepted everywhere.
"""

from __future__ import annotations

import zlib
from typing import Final

from callboard.log.format.segment import SegmentHeader, SegmentKind

__all__ = ["UNBOUND", "belongs_to", "identity_of", "kind_of"]

UNBOUND: Final = 0
CATALOG: Final = "catalog"
TOPICS: Final = "topics"
PARTITION_DEPTH: Final = 3
"""topics/<topic id>/<partition>; what lies below is a journal."""


def identity_of(directory: str) -> int:
    """The identity of the log in `directory`, relative to the root; `UNBOUND` when it has none."""
    return UNBOUND if kind_of(directory) is None else zlib.crc32(directory.encode()) or 1


def kind_of(directory: str) -> SegmentKind | None:
    """What kind of log belongs in `directory`; None when that is not Callboard's to say."""
    parts = directory.split("/")
    if parts[0] == CATALOG:
        return SegmentKind.JOURNAL
    if parts[0] != TOPICS or len(parts) < PARTITION_DEPTH:
        return None
    return SegmentKind.LOG if len(parts) == PARTITION_DEPTH else SegmentKind.JOURNAL


def belongs_to(header: SegmentHeader, directory: str) -> bool:
    """Whether a segment with this header may lie in `directory`."""
    return header.identity in (UNBOUND, identity_of(directory))
