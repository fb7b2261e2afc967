"""Verify: read every byte under a root, and name what is damaged, where, and which records it cost.

Every directory that holds segments is a *log*: a partition's, or a journal's. So is one whose committed file proves
that it held some. Nothing is written, and the lock is not needed: beside a running process the end of each log is
judged as of when it was read.

A *problem* is damage: `callboard repair` acts on it. A *note* is something that crashes leave behind and that
opening the log takes care of, or that is explained already: torn tails, unproven frames that power loss took, recorded
gaps, indexes that have to be built again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.log.format.committed import COMMITTED_NAME, Committed, proven_ends
from callboard.log.format.faults import SegmentHeaderInvalid
from callboard.log.format.segment import (
    CATALOG,
    SEGMENT_HEADER_BYTES,
    TOPICS,
    UNBOUND,
    SegmentKind,
    belongs_to,
    decode_segment_header,
    identity_of,
    kind_of,
)
from callboard.log.journal.journal_disk import segment_bases
from callboard.log.journal.journal_floor import DEPTH_MAX, FLOORS, floored_journals
from callboard.log.offline.inspected_log import Inspection, LogKind, Problem, ProblemKind
from callboard.log.offline.inspection import inspect_log
from callboard.log.offline.wrong_kinds import is_wrong_file, lies_below, wrong_folders
from callboard.log.seams.disk import Close, Disk, Entry, Incarnation
from callboard.log.segments.quarantine import DIRECTORY as QUARANTINE
from callboard.log.segments.segment_file import regular_sizes, segment_path
from callboard.log.segments.small_files import open_file, read_whole

SKIPPED: Final = frozenset({QUARANTINE, FLOORS})


@attrs.frozen
class Progress:
    """The progress of verify or repair."""

    path: str
    bytes_done: int
    bytes_total: int


@attrs.frozen
class LogReport:
    """One log."""

    path: str
    kind: LogKind
    records: int
    size_bytes: int
    segments: int
    start_offset: int
    end_offset: int
    """One above the last record's offset."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems


@attrs.frozen
class VerifyReport:
    """All logs under a root."""

    logs: tuple[LogReport, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return all(log.ok for log in self.logs)

    @property
    def partitions(self) -> tuple[LogReport, ...]:
        """The logs that hold messages."""
        return tuple(log for log in self.logs if log.kind is LogKind.PARTITION)

    @property
    def journals(self) -> tuple[LogReport, ...]:
        """The logs that hold state."""
        return tuple(log for log in self.logs if log.kind is LogKind.JOURNAL)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything damaged."""
        return tuple(problem for log in self.logs for problem in log.problems)

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Everything notable that is not damage."""
        return tuple(note for log in self.logs for note in log.notes)

    @property
    def records(self) -> int:
        """Records that can be read, in all logs."""
        return sum(log.records for log in self.logs)

    @property
    def size_bytes(self) -> int:
        """Bytes read."""
        return sum(log.size_bytes for log in self.logs)


async def verify_directory(disk: Disk, *, progress: Callable[[Progress], None] | None = None) -> VerifyReport:
    """Check every frame, index entry, offset and mark under the root of `disk`. `progress` is called per chunk.

    Raises `InvalidArgument` when the root is a folder inside a runtime's directory, `StorageError` when the disk fails,
    `FormatTooNew` when a newer Callboard wrote something.
    """
    files = await disk.incarnate("verify")
    wrong = await wrong_folders(files)
    logs = await find_logs(files, wrong)
    meter = Meter(progress, sum(logs.values()))
    reports, owners = [], {identity_of(directory): directory for directory in logs}
    for directory in logs:
        meter.path = directory
        inspection = await inspect_log(files, directory, progress=meter.add)
        _name_owners(inspection, owners)
        reports.append(report_of(inspection))
    if lacks_catalog(logs) and not lies_below(CATALOG, wrong):
        reports.insert(0, LOST_CATALOG)
    return VerifyReport((*map(report_of_wrong, wrong), *reports))


def _name_owners(log: Inspection, owners: Mapping[int, str]) -> None:
    """Say of segments of other logs whose they are, as far as there is such a folder: operators may move them there."""
    for state in log.refused:
        identity = UNBOUND if state.header is None else state.header.identity
        if identity not in (UNBOUND, identity_of(log.directory)) and identity in owners:
            words = f", {owners[identity]}"
            log.problems = [
                attrs.evolve(each, message=each.message + words) if each in state.problems else each
                for each in log.problems
            ]


def lacks_catalog(logs: Collection[str]) -> bool:
    """Whether there are files of topics among these logs, and no catalog that names them."""
    return CATALOG not in logs and any(directory.startswith(TOPICS + "/") for directory in logs)


LOST_CATALOG_WORDS: Final = (
    "the catalog is missing, and with it the names and settings of the topics whose files are there. Repair "
    "cannot rebuild it: restore the folder `catalog` from a copy before the directory is opened"
)
LOST_CATALOG: Final = LogReport(
    CATALOG,
    LogKind.JOURNAL,
    records=0,
    size_bytes=0,
    segments=0,
    start_offset=0,
    end_offset=0,
    problems=(Problem(CATALOG, ProblemKind.CATALOG, LOST_CATALOG_WORDS),),
)


@attrs.define
class Meter:
    """Adds up progress."""

    _progress: Callable[[Progress], None] | None
    _total: int
    path: str = ""
    _done: int = 0

    def add(self, size_bytes: int) -> None:
        """Add bytes that were read."""
        self._done += size_bytes
        if self._progress is not None:
            self._progress(Progress(self.path, min(self._done, self._total), self._total))


async def find_logs(files: Incarnation, wrong: Collection[Problem]) -> dict[str, int]:
    """Every directory under the root that holds segments, or should, with the bytes of its segments.

    Also one that is gone: a journal that has a floor, unless something else is in its place, as `wrong` says.

    Raises `InvalidArgument` for a folder of a runtime's directory, in place of the directory.
    """
    found: dict[str, int] = {}
    pending = [("", 0)]
    while pending:
        directory, depth = pending.pop()
        entries = await files.list(directory)
        sizes = regular_sizes(entries)
        is_hidden = any(is_wrong_file(entry) for entry in entries)
        if directory and (sizes or is_hidden or await lacks_segments(files, directory, entries)):
            found[directory] = sum(sizes.values())
        if depth < DEPTH_MAX:
            prefix = directory + "/" if directory else ""
            pending += [
                (prefix + entry.name, depth + 1)
                for entry in entries
                if entry.is_directory and entry.name not in SKIPPED and not is_wrong_file(entry)
            ]
    for directory in await floored_journals(files):
        if not lies_below(directory, wrong):
            found.setdefault(directory, 0)
    if found and not {entry.name for entry in await files.list("")} & {CATALOG, TOPICS}:
        for directory in found:
            await _check_root(files, directory)
    return dict(sorted(found.items()))


async def _check_root(files: Incarnation, directory: str) -> None:
    """Raise `InvalidArgument` when a header says that the log lies below another root: all files would seem strays."""
    for base in await segment_bases(files, directory):
        handle = files.handle(segment_path(directory, base))
        if not await open_file(files, handle):
            continue
        data = await files.read(handle, 0, SEGMENT_HEADER_BYTES)
        await files.submit((Close(handle),))
        try:
            header = decode_segment_header(data)
        except SegmentHeaderInvalid:
            continue
        if not belongs_to(header, directory):
            raise InvalidArgument(
                f"{directory} is part of a directory that begins further up: here is neither {CATALOG} nor {TOPICS}."
                " Nothing was changed. Name the folder that holds both."
            )


async def lacks_segments(files: Incarnation, directory: str, entries: Collection[Entry]) -> bool:
    """Whether its committed file proves that the directory, which holds these entries, has lost every segment.

    Not the catalog, which no repair can make again: see `lacks_catalog`. Raises `FormatTooNew`.
    """
    if directory == CATALOG or not any(entry.name == COMMITTED_NAME and entry.is_file for entry in entries):
        return False
    stored = await read_whole(files, f"{directory}/{COMMITTED_NAME}")
    ends = None if stored is None else proven_ends(stored)
    return ends is not None and ends > Committed(0, 0)


def report_of_wrong(problem: Problem) -> LogReport:
    """The report about something that is in the place of a folder, and of all logs that were in it."""
    kind = LogKind.PARTITION if kind_of(problem.path) is SegmentKind.LOG else LogKind.JOURNAL
    return LogReport(
        problem.path,
        kind,
        records=0,
        size_bytes=0,
        segments=0,
        start_offset=0,
        end_offset=0,
        problems=(problem,),
    )


def report_of(log: Inspection) -> LogReport:
    """The report about one log."""
    return LogReport(
        log.directory,
        log.kind,
        sum(segment.records for segment in log.segments),
        sum(segment.size_bytes for segment in log.segments),
        len(log.segments),
        log.segments[0].base if log.segments else 0,
        log.end,
        tuple(log.problems),
        tuple(log.notes),
    )
