"""Which files of a folder are segments of its log, and at which offset each belongs: opening and repair decide alike.

A header is believed before a name. A file whose header names another offset gets the name that the header asks for when
the segments around it lack exactly that one; else it is a copy, and is taken out of service. So is a segment of another
log, and one that lies further ahead than a log can explain: an offset, once believed, is never used again, and offsets
end at 2**64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from callboard.log.format.committed import Committed
from callboard.log.format.segment import UNBOUND, SegmentHeader, SegmentKind, belongs_to
from callboard.log.limits import OFFSET_JUMP_MAX, OFFSET_MAX

FOREIGN: Final = "it belongs to another log"
TOO_FAR: Final = "further ahead than the log can explain"


@attrs.define
class Placing:
    """What to do with the files of a folder; all are named by the offset in their name."""

    renamed: dict[int, int] = attrs.Factory(dict)
    """Files to be renamed: to which offset."""
    refused: dict[int, str] = attrs.Factory(dict)
    """Files that are no part of the log, and why."""


def is_within_reach(offset: int, known: int | None) -> bool:
    """Whether a log that is known to reach `known` (None: nothing is known) may reach `offset` too."""
    return offset <= (OFFSET_MAX if known is None else min(known + OFFSET_JUMP_MAX, OFFSET_MAX))


def explains_ends(known: int | None, committed: Committed) -> bool:
    """Whether a log that is known to reach `known` may have the ends that `committed` names."""
    return is_within_reach(max(committed.visible_end, committed.durable_end), known)


def place_segments(
    directory: str, found: Mapping[int, SegmentHeader | None], committed: Committed | None
) -> Placing:
    """Judge the files with the headers `found` (None: it cannot be read) by the offsets in their names, rising."""
    placing = Placing()
    headers: dict[int, SegmentHeader | None] = {}
    strays: dict[int, SegmentHeader] = {}
    for name, header in found.items():
        if header is not None and not belongs_to(header, directory):
            placing.refused[name] = FOREIGN
        elif header is not None and header.base_offset != name:
            strays[name] = header
        else:
            headers[name] = header
    for name, header in strays.items():
        is_free = header.base_offset not in found and header.base_offset not in headers
        if is_free and is_missing(header, headers):
            placing.renamed[name] = header.base_offset
            headers[header.base_offset] = header
        else:
            placing.refused[name] = f"it is a copy of the segment that begins at {header.base_offset}"
    names = {base: name for name, base in placing.renamed.items()}
    known = None if committed is None else max(committed.visible_end, committed.durable_end)
    for base in sorted(headers):
        if is_within_reach(base, known):
            known = base
        else:
            name = names.get(base, base)
            placing.renamed.pop(name, None)
            placing.refused[name] = f"its offset is {TOO_FAR}"
    return placing


def is_missing(header: SegmentHeader, headers: Mapping[int, SegmentHeader | None]) -> bool:
    """Whether the log of the segments `headers` lacks exactly the one with this header."""
    base = header.base_offset
    if header.kind is SegmentKind.JOURNAL or not headers:
        return header.identity != UNBOUND
    if base > max(headers):
        return header.previous_base in headers
    return any(other is not None and other.previous_base == base for other in headers.values())
