"""Opening a partition's delivery journal: the groups' states, whatever the last process, or the disk, left of it."""

from __future__ import annotations

from typing import Any, Final

from callboard.actors.kernel import Context
from callboard.actors.notices import JournalSalvaged
from callboard.actors.partition.delivery_reset import invalid_journal
from callboard.actors.partition.group_records import RECORDS_VERSION
from callboard.actors.partition.group_states import GroupStates
from callboard.actors.partition.participants import made_in_steps
from callboard.actors.partition.spec import PartitionSpec
from callboard.log.errors import (
    DiskFull,
    FormatTooNew,
    JournalInvalid,
    LogCorrupt,
    PlanFailed,
    StorageError,
    lacks_space,
)
from callboard.log.format.committed import COMMITTED_NAME, encode_named
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_disk import error_of
from callboard.log.journal.journal_floor import other_log_error, owner_of_journal
from callboard.log.journal.journal_walk import Owner
from callboard.log.offline.repair import repair_journal
from callboard.log.offline.wrong_kinds import is_wrong_file
from callboard.log.seams.clock import wall_offset
from callboard.log.seams.disk import Incarnation
from callboard.log.segments.headers import holds_another
from callboard.log.segments.segment_file import regular_sizes
from callboard.log.segments.small_files import listed, replace_whole

GONE: Final = (
    "its folder is gone, and with it what the groups had settled and leased in the partition: all that is there is"
    " delivered again"
)

DISPLACED: Final = "something else was in the place of this file: what it said is lost"

STRANGE: Final = (
    "its folder holds another log, which is moved to quarantine, and its own records are not there: all that the"
    " partition holds is delivered again"
)


async def open_delivery_journal(
    files: Incarnation, spec: PartitionSpec, context: Context[Any], is_gone: bool = False
) -> tuple[Journal, GroupStates]:
    """The journal and what it says. One that is damaged is repaired, which is reported, and what it still says is kept.
    One that `is_gone` with its folder, or in whose place another lies, begins again, behind all records that it can
    have had.

    Without space for the repair the same is read, and written once there is space. Raises `JournalInvalid` when it
    makes no sense, `FormatTooNew`, `LogCorrupt` when the journal of a durable actor lies there, `StorageError`.
    """
    damage: LogCorrupt | None = None
    displaced: list[str] = []
    if is_gone:
        _begin_anew(spec, context)
        damage = LogCorrupt(f"journal {spec.journal_directory}: {GONE}")
    try:
        journal, states = await _opened(files, spec, context, is_damaged=is_gone)
    except (LogCorrupt, JournalInvalid, FormatTooNew) as error:
        owner = await owner_of_journal(files, spec.journal_directory)
        if owner != spec.journal_directory:
            raise other_log_error(spec.journal_directory, owner) from error
        if not isinstance(error, LogCorrupt):
            raise
        damage = error
        try:
            entries = await listed(files, spec.journal_directory)
            displaced = [
                f"{spec.journal_directory}/{entry.name}: {DISPLACED}"
                for entry in entries
                if is_wrong_file(entry)
            ]
            if displaced:
                damage = None  # which says that nothing was changed
            if await holds_another(files, spec.journal_directory, regular_sizes(entries)):
                damage = LogCorrupt(f"journal {spec.journal_directory}: {STRANGE}")
                # First, so that a crash before the end of this does not leave a journal that seems to be new.
                ends = encode_named(_begin_anew(spec, context), spec.journal_directory)
                await replace_whole(files, f"{spec.journal_directory}/{COMMITTED_NAME}", ends)
            await repair_journal(files, spec.journal_directory)
        except StorageError as obstacle:
            if not lacks_space(obstacle):
                if isinstance(obstacle, PlanFailed):
                    raise error_of(spec.journal_directory, "repairing", obstacle) from obstacle
                raise
            journal, states = await _opened(files, spec, context, is_damaged=True)
        else:
            journal, states = await _opened(files, spec, context, is_damaged=is_gone)
    states.wrong_files = [*displaced, *journal.wrong_files]
    losses = states.losses(spec.journal_directory)
    if states.wrong_files and not states.lost_sequences:
        context.emit(JournalSalvaged(context.path, "; ".join(losses)))
    if states.lost_sequences:
        states.replayed(journal.next_id, journal.next_sequence)
        context.emit(JournalSalvaged(context.path, str(damage) if damage else "; ".join(losses)))
        journal.needs_healing = True  # with the next records, unless it is healed here
        # Groups that are opened anew are such records: until they are written, the journal says that it has losses.
        if not spec.hand_over.carried.lost_readers(states.groups):
            try:
                pieces = states.snapshot_in_pieces(wall_offset(context.clock))
                await journal.heal(await made_in_steps(pieces, context.limits))
            except DiskFull as obstacle:
                journal.lack = obstacle
            except StorageError:
                pass
    if journal.next_sequence > 0 or spec.hand_over.carried.readers:
        # It may be a copy from before the first record of a group that the catalog knows.
        states.begin_life()
    return journal, states


def _begin_anew(spec: PartitionSpec, context: Context[Any]) -> int:
    """Have the journal, of which all is gone, begin behind all records that it can have had; returns where.

    No journal has had more than 15,000 records for every second since 1970.
    """
    end = spec.hand_over.journal_end
    end.sequence = max(end.sequence, context.clock.wall_us() >> 16, 1)
    return end.sequence


async def _opened(
    files: Incarnation, spec: PartitionSpec, context: Context[Any], *, is_damaged: bool = False
) -> tuple[Journal, GroupStates]:
    offset_s, now_us = wall_offset(context.clock), context.clock.wall_us()
    states = GroupStates(offset_s, opened_us=now_us, stamps=spec.hand_over.carried.stamps)
    owner = Owner(
        states.restore_in_steps,
        states.apply_in_steps,
        RECORDS_VERSION,
        states.versioned,
        states.written,
        states.lost,
    )
    try:
        journal = await Journal.open(
            files,
            spec.journal_directory,
            owner,
            clock=context.clock,
            entropy=context.entropy,
            is_damaged=is_damaged,
            proven_end=spec.hand_over.journal_end,
            limits=context.limits,
        )
    except JournalInvalid as error:
        raise invalid_journal(spec.label, spec.journal_directory, error) from error
    return journal, states
