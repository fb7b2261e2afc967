"""The way out of a delivery journal that is whole and makes no sense: the groups concerned are set back, explicitly.

A journal is read as far as each group makes sense. A group is *broken* from its first record on that cannot have
followed those before it; a record, or a snapshot, that does not parse at all breaks every group. Setting a group back
keeps its state as it was before that record and forgets the records that follow: what they settled is delivered
again. The journal is replaced by one that begins with the state so found; the old one goes to quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs

from callboard.actors.delivery.events import EVENTS
from callboard.actors.partition.group_records import CLOSE, OPEN, RECORDS_VERSION
from callboard.actors.partition.group_states import GroupStates
from callboard.log.errors import JournalInvalid, LogCorrupt
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_disk import segment_bases
from callboard.log.journal.journal_walk import Owner, read_journal
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Incarnation, SyncDirectory
from callboard.log.seams.entropy import Entropy
from callboard.log.segments.quarantine import Quarantine
from callboard.log.segments.segment_file import segment_path

NUMBERING_BITS: Final = 62


@attrs.define
class BrokenGroup:
    """From where on a group's records make no sense. `group_id` is None when they concern every group."""

    group_id: int | None
    why: str
    forgotten_records: int = 0
    """Of the journal, from the first that makes no sense on."""


@attrs.frozen
class GroupReset:
    """What setting back one group in one partition does."""

    group_id: int
    forgotten_records: int
    """Records of the journal that no longer count: leases, settlements, delays."""
    floor: int
    """All offsets below are settled as before; from here on what is not settled is delivered again."""
    settled_above: int
    """Offsets above the floor that stay settled."""


class DeliveryReading:
    """One reading of a delivery journal, as far as each group makes sense. `numbering` begins where nothing is known of
    the numbers that were used.
    """

    def __init__(self, files: Incarnation, directory: str, numbering: int = 0) -> None:
        self._files = files
        self._directory = directory
        self._numbering = numbering
        self.states = states = GroupStates()
        self.broken: dict[int | None, BrokenGroup] = {}
        self.faults: list[str] = []
        """What of the journal cannot be read, for people."""
        self.next_sequence = 0
        self._owner = Owner(
            self._restore,
            self._apply,
            RECORDS_VERSION,
            versioned=states.versioned,
            written=lambda _: None,
            lost=states.lost,
        )

    async def run(self) -> None:
        """Read all there is. Raises `PlanFailed`, `FormatTooNew`."""
        walk = await read_journal(self._files, self._directory, self._owner)
        self.faults, self.next_sequence = walk.faults, walk.next_sequence
        self.states.replayed(self._numbering, walk.next_sequence)

    def _restore(self, data: bytes) -> None:
        self.broken.clear()
        try:
            self.states.restore(data)
        except JournalInvalid as error:
            self._break(error)
            self.states.groups.clear()

    def _apply(self, record: bytes) -> None:
        states = self.states
        try:
            stored = states.parsed(record)
        except JournalInvalid as error:
            self._break(error)
            return
        kind, group_id, events, _ = stored
        try:
            broken = self.broken.get(group_id)
            if kind in (OPEN, CLOSE):
                self.broken.pop(group_id, None)  # opened or closed: its state does not come from before
            elif broken is not None and kind == EVENTS:
                broken.forgotten_records += 1
                states.note_named(events)
                return
            states.replay(*stored)
        except JournalInvalid as error:
            self._break(error)
            states.note_named(events)

    def _break(self, error: JournalInvalid) -> None:
        broken = self.broken.setdefault(error.group, BrokenGroup(error.group, str(error)))
        broken.forgotten_records += 1


async def reset_deliveries(
    files: Incarnation,
    directory: str,
    *,
    groups: Collection[int] | None,
    joined: Mapping[int, bool],
    clock: Clock,
    entropy: Entropy,
    dry_run: bool,
) -> tuple[list[GroupReset], list[str]]:
    """Set back those of `groups` (None: all) that are broken in the journal; what was done, and what is in quarantine.

    `joined` are the groups of the topic with whether they are durable. The directory must be locked, and the journal's
    frames sound: repair it first. Raises `JournalInvalid`, and changes nothing, when others are broken too.
    """
    numbering = entropy.integer(NUMBERING_BITS) or 1
    reading = DeliveryReading(files, directory, numbering)
    await reading.run()
    if reading.faults and not reading.states.lost_sequences:
        raise LogCorrupt(
            f"journal {directory}: {reading.faults[0]}. Nothing was reset. Run `callboard repair` first.",
            path=directory,
        )
    broken, states = reading.broken, reading.states
    if not broken:
        return [], []
    others = [found for group_id, found in broken.items() if groups is not None and group_id not in groups]
    if others:
        who = "'*'" if others[0].group_id is None else others[0].group_id
        raise JournalInvalid(
            f"journal {directory}: {others[0].why}. Nothing was reset: run `callboard repair --reset-deliveries {who}`"
            " too, in the same command.",
            path=directory,
            group=others[0].group_id,
        )
    for group_id, durable in joined.items():
        if group_id not in states.groups and (None in broken or group_id in broken):
            states.open(group_id, durable, 0, numbering)
    bases = await segment_bases(files, directory)
    base = max(reading.next_sequence, *bases) + 1
    concerned = [group_id for group_id in states.groups if None in broken or group_id in broken]
    states.number_on(concerned, numbering, base)
    resets = []
    for group_id in sorted({*broken, *(states.groups if None in broken else ())} - {None}):
        found = broken.get(group_id) or broken[None]
        group = states.groups.get(group_id)
        floor, above = (
            (group.delivery.offsets.floor, group.delivery.offsets.settled.count)
            if group is not None
            else (0, 0)
        )
        resets.append(GroupReset(group_id, found.forgotten_records, floor, above))
    if dry_run:
        return resets, []
    return resets, await _replace(files, directory, reading.states, base, bases, clock, entropy)


async def _replace(
    files: Incarnation,
    directory: str,
    states: GroupStates,
    base: int,
    earlier: Sequence[int],
    clock: Clock,
    entropy: Entropy,
) -> list[str]:
    """Begin the journal anew at `base` with these states; what it had goes to quarantine."""
    sizes = {entry.name: entry.size_bytes for entry in await files.list(directory)}
    await Journal.replace(
        files,
        directory,
        clock=clock,
        entropy=entropy,
        version=RECORDS_VERSION,
        base=base,
        snapshot=states.snapshot(0.0),
    )
    quarantine = Quarantine(files, directory)
    for first in earlier:
        path = segment_path(directory, first)
        verbs = await quarantine.move_verbs(path, first, sizes[path.removeprefix(directory + "/")], 0)
        await files.submit((*verbs, SyncDirectory(directory)))
    return quarantine.kept


def invalid_journal(label: str, path: str, error: JournalInvalid) -> JournalInvalid:
    """The error for people: which partition and group it is about, and the way out."""
    who = "'*'" if error.group is None else error.group
    return JournalInvalid(
        f"partition {label}: {error}. Nothing was changed. This is the symptom of a bug: please report it. To go on"
        f" without what the journal says of {'its groups' if error.group is None else 'the group'} from there on, close"
        f" the runtime and run `callboard repair --reset-deliveries {who}`.",
        path=path,
        group=error.group,
    )
