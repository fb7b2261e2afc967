"""Repair: make damaged logs whole again, without losing a record that can be read.

Theory of operation
-------------------
A damaged segment is *forked*: its readable frames go into new segment files with new ids, which take its name; the
old file goes to `quarantine/` as it is. In a partition each run of frames that continue one another becomes a segment
of its own, whose header records the gap before it. In a journal a gap frame takes the place of what is lost, so the
segments stay as they are cut. Indexes of forked segments are built again, and so is a damaged committed file.

New segments are made from the highest offsets down; each is synced under a temporary name, then named. A segment ends
where its successor begins, so after every step the log holds every readable record at least once, and repairing
again ends what was interrupted.

Folders of partitions that lie in one another's places are moved back before all else (`moved_folders`).

What is only noted by `verify` is left alone: opening the log takes care of it.

Invariants
----------
RE1  No file is renamed away, or replaced, before every readable record in it is synced under its final name.
RE2  A repaired log verifies clean; repairing it again changes nothing.
RE3  A committed file names only what is there, without a hole, and synced: opening takes what lies below for proven.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from callboard.log.format.committed import (
    HAS_START,
    PUBLISHERS,
    Committed,
    encode_committed,
    encode_committed_file,
    named_marks,
    noted_entries,
)
from callboard.log.format.segment import CATALOG
from callboard.log.journal.journal_disk import make_directory, remove_unfinished, segment_bases
from callboard.log.journal.journal_floor import DEPTH_MAX
from callboard.log.offline.forking import Fork, plan_journal, plan_partition, write_fork
from callboard.log.offline.inspected_log import Inspection, LogKind, Problem, ProblemKind, SegmentState
from callboard.log.offline.inspection import PUBLISHERS_OLD, inspect_log
from callboard.log.offline.moved_folders import misplaced_folders, move_back
from callboard.log.offline.verify import (
    LOST_CATALOG,
    LogReport,
    Meter,
    Progress,
    find_logs,
    lacks_catalog,
    report_of,
    report_of_wrong,
)
from callboard.log.offline.wrong_kinds import lies_below, wrong_folders
from callboard.log.seams.disk import Close, Disk, Incarnation, Rename, Sync, SyncDirectory, Unlink, Verb
from callboard.log.segments.damage_record import DAMAGES_NAME, DamageRecord
from callboard.log.segments.placing import renames
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import INDEX_SUFFIX, SEGMENT_SUFFIX, index_path, segment_path
from callboard.log.segments.segments import Damage
from callboard.log.segments.small_files import open_file, read_whole, replace_whole

GIVEN_UP: Final = "given up by repair"
"""Why records are lost that a repair could not read."""
MOVED_WHOLE: Final = "moved to quarantine whole"


class ActionKind(enum.StrEnum):
    """What repair does, as it prints that."""

    MOVE = "move"
    """A folder goes back to its place."""
    RENAME = "rename"
    """A segment gets the name that its header asks for."""
    FORK = "fork"
    """A new segment takes the place of a damaged one."""
    QUARANTINE = "quarantine"
    """Something is moved to quarantine as it is."""
    INDEX = "index"
    """An index is built again."""
    COMMITTED = "committed"
    """The committed file is written anew."""
    DAMAGES = "damages"
    """The record of damage is written anew."""
    ACCEPT = "accept"
    """What was lost is acknowledged."""


@attrs.frozen
class RepairAction:
    """One thing done, or that would be done."""

    path: str
    kind: ActionKind
    message: str


@attrs.frozen
class RepairReport:
    """The damage, and what was done about it."""

    dry_run: bool
    before: tuple[LogReport, ...]
    actions: tuple[RepairAction, ...]
    lost: tuple[tuple[str, int, int], ...]
    """(log, first offset, last offset) of what could not be read and is recorded as a gap now."""
    quarantined: tuple[str, ...]
    left: tuple[Problem, ...] = ()
    """What no repair mends: a catalog that is missing beside topics' files, a record of publishers that is gone."""

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        return bool(self.actions) and not self.dry_run


async def repair_directory(
    disk: Disk,
    *,
    dry_run: bool = False,
    accept: bool = False,
    now_us: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> RepairReport:
    """Repair every damaged log under the root of `disk`; with `dry_run` only say what would be done.

    Partitions and the catalog report what they have lost at every opening, until a repair with `accept` acknowledges
    it. `now_us` is when this repair happens, microseconds since 1970.

    Takes the directory's lock, so no runtime may have it open: raises `DirectoryLocked` otherwise. Raises
    `StorageError` when the disk fails: repair again then. Needs free space for the damaged segments' readable part.
    """
    lock = None if dry_run else await disk.lock({"program": "callboard repair"})
    try:
        files = await disk.incarnate("repair")
        wrong = await wrong_folders(files)
        kept = [] if dry_run else [await move_whole(files, problem.path) for problem in wrong]
        there = wrong if dry_run else []
        logs = await find_logs(files, there)
        moves = await misplaced_folders(files, logs)
        if moves and not dry_run:
            moves |= await move_all_back(files, moves)
            logs = await find_logs(files, there)
        moving = tuple(f"{folder}/" for folder in moves) if dry_run else ()
        meter = Meter(progress, sum(logs.values()))
        repairs = []
        for directory in logs:
            meter.path = directory
            log = await inspect_log(files, directory, progress=meter.add)
            repair = LogRepair(files, log, dry_run=dry_run)
            if log.problems and not f"{directory}/".startswith(moving):
                await repair.run()
            if log.remembers_damage:
                await repair.record(accept=accept, now_us=now_us)
            repairs.append(repair)
    finally:
        if lock is not None:
            lock.release()
    return RepairReport(
        dry_run,
        (*map(report_of_wrong, wrong), *(report_of(repair.log) for repair in repairs)),
        (
            *(RepairAction(problem.path, ActionKind.QUARANTINE, MOVED_WHOLE) for problem in wrong),
            *(
                RepairAction(folder, ActionKind.MOVE, f"moved back to {place}")
                for folder, place in moves.items()
            ),
            *(action for repair in repairs for action in repair.actions),
        ),
        tuple(lost for repair in repairs for lost in repair.lost),
        (*kept, *(path for repair in repairs for path in repair.quarantine.kept)),
        (
            *(LOST_CATALOG.problems if lacks_catalog(logs) and not lies_below(CATALOG, there) else ()),
            *(problem for repair in repairs for problem in repair.left),
        ),
    )


async def move_all_back(files: Incarnation, moves: dict[str, str]) -> dict[str, str]:
    """Carry out the `moves`, and those of folders that are seen to be misplaced once that is done; returns those."""
    later: dict[str, str] = {}
    for _ in range(DEPTH_MAX):
        if not moves:
            break
        await move_back(files, moves)
        moves = await misplaced_folders(files, await find_logs(files, []))
        later |= moves
    return later


async def repair_journal(files: Incarnation, directory: str) -> tuple[tuple[str, int, int], ...]:
    """Repair a journal whose owner has the lock, before it is opened; returns what is lost, as `RepairReport.lost`.

    One whose segments are gone, although records in them were synced, begins again with a gap. Raises
    `StorageError` when the disk fails: repair again then.
    """
    repair = LogRepair(files, await inspect_log(files, directory), dry_run=False)
    if repair.log.problems or not repair.log.segments:
        await repair.run()
    return tuple(repair.lost)


async def move_whole(files: Incarnation, path: str) -> str:
    """Move what has the place of a folder to quarantine; returns where it is then. Raises `PlanFailed`."""
    return await Quarantine(files, path.rpartition("/")[0]).move_whole(path)


def replaced_segments(segments: Sequence[SegmentState], forks: Sequence[Fork]) -> list[SegmentState]:
    """Those that go to quarantine: forks hold what can be read of them, or record a gap in their place."""
    taken = {fork.base for fork in forks}
    used = {fork.source.base for fork in forks if fork.source is not None}
    lost = [span for fork in forks for span in fork.lost]

    def is_given_up(state: SegmentState) -> bool:
        in_gap = any(first <= state.base <= last for first, last in lost)
        return not state.runs and (in_gap or bool(state.problems))

    return [
        state for state in segments if state.base not in taken and (state.base in used or is_given_up(state))
    ]


class LogRepair:
    """The repair of one log."""

    def __init__(self, files: Incarnation, log: Inspection, *, dry_run: bool) -> None:
        self.files = files
        self.log = log
        self.dry_run = dry_run
        self.actions: list[RepairAction] = []
        self.lost: list[tuple[str, int, int]] = []
        self.quarantine = Quarantine(files, log.directory)
        self.left = [problem for problem in log.problems if problem.kind is ProblemKind.PUBLISHERS]
        """What only opening the directory mends."""

    async def run(self) -> None:
        """Plan the actions, report them, and carry them out."""
        log = self.log
        forks = plan_journal(log) if log.kind is LogKind.JOURNAL else plan_partition(log)
        misnamed = [state for state in log.segments if state.is_misnamed]
        gone = replaced_segments(log.segments, forks)
        self._report(forks, misnamed, gone)
        if not self.dry_run:
            await self._carry_out(forks, misnamed, gone)
        forked = {fork.base for fork in forks}
        replaced = forked | {state.base for state in gone}
        await self._mend_rest(replaced)
        kept = {state.base for state in log.segments} - replaced
        self._look_at_publishers(min(forked | kept, default=0))

    def _look_at_publishers(self, start: int) -> None:
        """The log begins at `start` now: the record of publishers may end before that, and did not before."""
        end, path = self.log.publishers_end, f"{self.log.directory}/{PUBLISHERS}"
        if end is not None and end < start and not self.left:
            self.left.append(Problem(path, ProblemKind.PUBLISHERS, PUBLISHERS_OLD, 0))

    def _report(
        self, forks: Sequence[Fork], misnamed: Sequence[SegmentState], gone: Sequence[SegmentState]
    ) -> None:
        """Note what is done about the segments, and what is lost."""
        log = self.log
        for state in misnamed:
            name = segment_path(log.directory, state.base).rpartition("/")[2]
            self.actions.append(
                RepairAction(state.path, ActionKind.RENAME, f"named {name}, as its header says")
            )
        for fork in forks:
            message = f"offsets {fork.base} to {fork.end - 1} are kept in a new segment"
            if fork.end == fork.base:
                message = "a new, empty segment"
            elif fork.source is None:
                message = f"a new segment says that offsets {fork.base} to {fork.end - 1} are lost"
            path = log.directory if fork.source is None else fork.source.path
            self.actions.append(RepairAction(path, ActionKind.FORK, message))
            self.lost += [(log.directory, first, last) for first, last in fork.lost]
        if log.lost_beginning is not None:
            self.lost.append((log.directory, *log.lost_beginning))
        self.actions += [
            RepairAction(state.path, ActionKind.QUARANTINE, MOVED_WHOLE) for state in (*log.refused, *gone)
        ]
        self.actions += [RepairAction(path, ActionKind.QUARANTINE, MOVED_WHOLE) for path in log.wrong_kinds]

    async def _carry_out(
        self, forks: Sequence[Fork], misnamed: Sequence[SegmentState], gone: Sequence[SegmentState]
    ) -> None:
        """Set files aside, rename segments, and write new ones, from the highest offsets down."""
        log = self.log
        for path in log.wrong_kinds:
            await self.quarantine.move_whole(path)
        if not await self.files.list(log.directory):  # a folder that is gone
            await make_directory(self.files, log.directory)
        await remove_unfinished(self.files, log.directory, await self.files.list(log.directory))
        for state in log.refused:
            await self._set_aside(state)
        await self._rename(misnamed)
        for fork in reversed(forks):
            await self._fork(fork)
        for state in gone:
            await self._set_aside(state)

    async def _rename(self, misnamed: Sequence[SegmentState]) -> None:
        """Give segments the names that their headers ask for."""
        directory = self.log.directory
        names = await segment_bases(self.files, directory)
        lie_at = {segment_path(directory, name): name for name in names}
        for name, base in renames({lie_at[state.path]: state.base for state in misnamed}, names):
            renaming = Rename(segment_path(directory, name), segment_path(directory, base))
            await self.files.submit((renaming, SyncDirectory(directory)))
        for state in misnamed:
            state.path, state.is_misnamed = segment_path(directory, state.base), False

    async def record(self, *, accept: bool, now_us: int) -> None:
        """Remember what this repair gave up; with `accept`, that all of it is known."""
        directory = self.log.directory
        if self.dry_run and f"{directory}/{DAMAGES_NAME}" in self.log.wrong_kinds:
            return  # what it may have said can be read no more
        record = await DamageRecord.load(self.files, directory)
        if record.fault:
            self.actions.append(RepairAction(record.path, ActionKind.DAMAGES, f"made anew: {record.fault}"))
        record.add([Damage(directory, 0, 0, first, last, GIVEN_UP) for _, first, last in self.lost], now_us)
        lost_records = record.lost_records
        if accept and record.accept():
            what = f"{lost_records} lost records are" if lost_records else "what was lost is"
            message = f"{what} acknowledged, and not reported again"
            self.actions.append(RepairAction(record.path, ActionKind.ACCEPT, message))
        if not self.dry_run:
            await record.store()

    async def _fork(self, fork: Fork) -> None:
        """Write one new segment and give it its name; what had the name goes to quarantine in the same plan (RE1)."""
        before: tuple[Verb, ...] = ()
        for state in self.log.segments:
            if state.base == fork.base:
                before = await self.quarantine.link_verbs(
                    state.path, state.base, 0, state.size_bytes, state.segment_id or 0
                )
        index = await write_fork(self.files, self.log, fork, before)
        if self.log.kind is LogKind.PARTITION:
            await replace_whole(self.files, index_path(self.log.directory, fork.base), index.encode())

    async def _set_aside(self, state: SegmentState) -> None:
        directory, segment_id = self.log.directory, state.segment_id or 0
        verbs = await self.quarantine.move_verbs(state.path, state.base, state.size_bytes, segment_id)
        index = state.path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
        if any(f"{directory}/{entry.name}" == index for entry in await self.files.list(directory)):
            verbs += (Unlink(index),)
        await self.files.submit((*verbs, SyncDirectory(directory)))

    async def _mend_rest(self, replaced: set[int]) -> None:
        """Rebuild damaged indexes and the committed file."""
        for state in self.log.segments:
            if not state.index_is_sound and state.base not in replaced and state.segment_id is not None:
                path = index_path(self.log.directory, state.base)
                self.actions.append(RepairAction(path, ActionKind.INDEX, "rebuilt"))
                if not self.dry_run:
                    await self.files.submit((Unlink(path), SyncDirectory(self.log.directory)))
        was_moved = self.log.committed_path in self.log.wrong_kinds and self.log.end > 0
        if any(problem.kind is ProblemKind.COMMITTED for problem in self.log.problems) or (
            was_moved and self.log.kind is LogKind.PARTITION
        ):
            await self._replace_committed(replaced)
        elif self.log.kind is LogKind.PARTITION and self.log.committed is not None:
            await self._replace_start(self.log.committed)

    async def _replace_start(self, ends: Committed) -> None:
        """Say where the log begins now: what this repair gave up there is on record, and not missing any more."""
        log = self.log
        if log.lost_beginning is not None:
            message = f"says that the log begins at {log.lost_beginning[1] + 1} now"
            self.actions.append(RepairAction(log.committed_path, ActionKind.COMMITTED, message))
        if self.dry_run:
            return
        bases = await segment_bases(self.files, log.directory)
        if bases and ends.marks & HAS_START and ends.begins_at(bases[0]) != bases[0]:
            stored = await read_whole(self.files, log.committed_path) or b""
            slots = encode_committed(ends.visible_end, ends.durable_end, ends.marks, bases[0])
            await replace_whole(self.files, log.committed_path, slots + stored[len(slots) :])

    async def _replace_committed(self, replaced: set[int]) -> None:
        """Name no end that was not synced (RE3)."""
        log = self.log
        holes = [
            state.unproven_hole
            for state in log.segments
            if state.unproven_hole is not None and state.base not in replaced
        ]
        end = min([log.end, *holes])
        if log.committed is not None:
            end = max(end, log.committed.durable_end)
        self.actions.append(RepairAction(log.committed_path, ActionKind.COMMITTED, f"says {end} now"))
        if self.dry_run:
            return
        if log.segments:
            last = self.files.handle(log.segments[-1].path)
            if await open_file(self.files, last):
                await self.files.submit((Sync(last), Close(last)))
        marks = 0 if log.committed is None else log.committed.marks
        start = next(iter(await segment_bases(self.files, log.directory)), end)
        marks = named_marks(marks, log.directory)
        if log.kind is LogKind.PARTITION:
            marks |= HAS_START
        stored = await read_whole(self.files, log.committed_path) or b""
        data = encode_committed_file(end, marks, start, noted_entries(stored, log.directory))
        await replace_whole(self.files, log.committed_path, data)
