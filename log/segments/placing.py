"""Which files of a folder are segments of its log, and at which offset each belongs: opening and repair decide alike.

A header is believed before a name. A file whose header names another offset gets the name that the header asks for when
no other file has it by right, and the headers of the others name exactly that one before or behind them; else it is a
copy, and is taken out of service. Files that have exchanged their names exchange them again. A segment of another log
is taken out of service, and so is one that lies further ahead than a log can explain: an offset, once believed, is
never used again, and offsets end at 2**64.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from callboard.log.format.committed import FOREIGN, Committed
from callboard.log.format.segment import UNBOUND, SegmentHeader, SegmentKind, belongs_to
from callboard.log.limits import OFFSET_JUMP_MAX, OFFSET_MAX

BEGINNING_GONE: Final = "the beginning of the log is gone, and retention has not dropped it"
TOO_FAR: Final = "further ahead than the log can explain"


class StrayReason(enum.Enum):
    """Why a file that is named like a segment is no part of the log; its value says so to people."""

    BLANK = "it is blank"
    FOREIGN = FOREIGN
    COPY = "it is a copy of the segment that begins at"
    TOO_FAR = f"its offset is {TOO_FAR}"
    DROPPED = "retention has left the log to begin behind it"
    WITHIN = "the segments around it leave no place for it"
    BEYOND = "the log ends before it"


@attrs.frozen
class Stray:
    """The judgement that a file is no part of the log; as text it says why."""

    reason: StrayReason
    copied: int | None = None
    """The base offset of the segment of which it is a copy."""

    def __str__(self) -> str:
        words = self.reason.value
        return words if self.copied is None else f"{words} {self.copied}"


@attrs.define
class Placing:
    """What to do with the files of a folder; all are named by the offset in their name."""

    renamed: dict[int, int] = attrs.Factory(dict)
    """Files to be renamed: to which offset."""
    refused: dict[int, Stray] = attrs.Factory(dict)
    """Files that are no part of the log."""

    def put(self, name: int, header: SegmentHeader) -> SegmentHeader:
        """Have a file renamed to what its header, which is returned, says."""
        self.renamed[name] = header.base_offset
        return header


def is_within_reach(offset: int, known: int | None) -> bool:
    """Whether a log that is known to reach `known` (None: nothing is known) may reach `offset` too."""
    return offset <= (OFFSET_MAX if known is None else min(known + OFFSET_JUMP_MAX, OFFSET_MAX))


def explains_ends(known: int | None, committed: Committed) -> bool:
    """Whether a log that is known to reach `known` may have the ends that `committed` names."""
    return is_within_reach(max(committed.visible_end, committed.durable_end), known)


def place_segments(
    directory: str, found: Mapping[int, SegmentHeader | None], committed: Committed | None
) -> Placing:
    """Judge the files with the headers `found` (None: it cannot be read) by the offsets in their names, rising.

    Leave out files that are blank: they are no segments.
    """
    placing = Placing()
    headers: dict[int, SegmentHeader | None] = {}
    strays: dict[int, SegmentHeader] = {}
    for name, header in found.items():
        if header is not None and not belongs_to(header, directory):
            placing.refused[name] = Stray(StrayReason.FOREIGN)
        elif header is not None and header.base_offset != name:
            strays[name] = header
        else:
            headers[name] = header
    _give_back_names(placing, strays, headers)
    for name, header in strays.items():
        placing.refused[name] = Stray(StrayReason.COPY, header.base_offset)
    names = {base: name for name, base in placing.renamed.items()}
    known = None if committed is None else max(committed.visible_end, committed.durable_end)
    for base in sorted(headers):
        if is_within_reach(base, known):
            known = base
        else:
            name = names.get(base, base)
            placing.renamed.pop(name, None)
            placing.refused[name] = Stray(StrayReason.TOO_FAR)
    first = min((base for base, header in headers.items() if header is not None), default=None)
    start = None if first is None or committed is None else committed.begins_at(first)
    if first is not None and start is not None:
        dropped = [base for base, header in headers.items() if header is None and base < min(first, start)]
        placing.refused.update(dict.fromkeys(dropped, Stray(StrayReason.DROPPED)))
    return placing


def _give_back_names(
    placing: Placing, strays: dict[int, SegmentHeader], headers: dict[int, SegmentHeader | None]
) -> None:
    """Take out of `strays` those that have a place in the log of the segments `headers`, and put them there.

    First those that have one another's names, then those that the others link: each that has found its place may be
    what links the next one to the log, before it or behind it. Where no file has its own name, the first of them does.
    """
    for name in exchanged(strays):
        header = strays.pop(name)
        headers[header.base_offset] = placing.put(name, header)
    if strays and not headers:
        name = min(strays, key=lambda name: (strays[name].base_offset, name))
        header = strays.pop(name)
        headers[header.base_offset] = placing.put(name, header)
    is_rising, is_over = True, False
    while strays and not is_over:
        is_over = True
        links = {header.previous_base for header in headers.values() if header is not None}
        highest = max(headers, default=-1)
        for name in sorted(strays, key=lambda name: strays[name].base_offset, reverse=not is_rising):
            header = strays[name]
            if header.base_offset not in headers and is_missing(header, headers, links, highest):
                headers[header.base_offset] = placing.put(name, strays.pop(name))
                links.add(header.previous_base)
                highest = max(highest, header.base_offset)
                is_over = False
        is_rising = not is_rising


def exchanged(strays: Mapping[int, SegmentHeader]) -> set[int]:
    """Those of the files that have one another's names: each has a name that the header of one of them asks for."""
    names = set(strays)
    while True:
        wanted = {strays[name].base_offset for name in names}
        kept = {name for name in names & wanted if strays[name].base_offset in names}
        if kept == names:
            return names
        names = kept


def is_missing(
    header: SegmentHeader,
    headers: Mapping[int, SegmentHeader | None],
    links: Collection[int],
    highest: int,
) -> bool:
    """Whether the log needs this segment. `headers` are the segments found, the last at `highest`; `links` are the
    bases that they name as their predecessors.

    What is bound to the log and lies behind all others is missing: nothing there says that it is not. So is what is
    bound to a journal and at no other's place, because the numbers of a journal leave nothing out.
    """
    base = header.base_offset
    if header.identity != UNBOUND and (base > highest or header.kind is SegmentKind.JOURNAL):
        return True
    return header.previous_base in headers if base > highest else base in links


def passed_over(headers: Mapping[int, SegmentHeader | None]) -> set[int]:
    """The files of a log, by base offset, that have nothing but a name, and no place between the headers around them.

    The next header names the segment before it, and where that ended: none begins between the two, or from there on.
    """
    found, pending, is_behind = set[int](), list[int](), False
    for base in sorted(headers):
        header = headers[base]
        if header is None:
            pending.append(base)
            continue
        if is_behind:
            found.update(
                name for name in pending if header.previous_base < name or header.previous_end <= name
            )
        pending, is_behind = [], True
    return found


def renames(renamed: Mapping[int, int], taken: Collection[int]) -> list[tuple[int, int]]:
    """The renames in an order in which none takes a name that another file still has; `taken` are all names in use.

    Files that have exchanged names go by a name that is free. Broken off anywhere, what is left is to be placed again.
    """
    pending, steps, names = dict(renamed), list[tuple[int, int]](), set(taken)
    while pending:
        name = next((name for name, base in pending.items() if base not in pending), None)
        if name is None:
            name, base = pending.popitem()
            free = max([*names, *renamed.values()]) + 1
            steps.append((name, free))
            names.add(free)
            pending[free] = base
        else:
            steps.append((name, pending.pop(name)))
    return steps
