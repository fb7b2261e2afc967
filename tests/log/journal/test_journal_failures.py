"""What a journal promises when the power fails, syncs fail, the disk is full or bytes rot."""

import errno
import random

import pytest

from callboard.log.errors import DiskFull, LogCorrupt, PlanFailed, StaleIncarnation, StorageError
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.journal.journal_records import CONTROL_BYTES
from callboard.log.limits import JOURNAL_RESERVE_BYTES, KIB
from callboard.log.seams.disk import Create, Rename, Sync, SyncDirectory, Write, Zero
from callboard.simulations.disk.inodes import keep_unsynced, lose_unsynced

IO_ERROR = OSError(errno.EIO, "Input/output error")


def keep_some(seed):
    """Keep a random part of what was not synced."""
    source = random.Random(seed)

    def choose(unsynced):
        if unsynced.is_directory:
            return unsynced.items[: source.randrange(len(unsynced.items) + 1)]
        return [item for item in unsynced.items if source.random() < 0.5]

    return choose


class Script:
    """A run that notes what was attempted and what was promised to survive power loss."""

    def __init__(self, owner):
        self.owner = owner
        self.attempted = []
        self.durable = 0

    async def append(self, journal, event, sync):
        self.attempted.append(event)
        await self.owner.append(journal, event, sync=sync)
        if not journal.is_dirty:
            self.durable = len(self.attempted)

    async def run(self):
        for turn in range(2):
            journal = await self.owner.open()
            self.attempted = list(self.owner.state)
            self.durable = len(self.attempted)
            await self.append(journal, b"synced%d" % turn * 60, True)
            await self.append(journal, b"left%d" % turn * 200, False)
            await self.append(journal, b"more%d" % turn * 200, False)
            await journal.snapshot(self.owner.image())
            self.durable = len(self.attempted)
            await self.append(journal, b"behind%d" % turn * 90, False)
            await self.append(journal, b"last%d" % turn, True)
            await self.append(journal, b"lost%d" % turn * 300, False)
            await journal.prune()
            await journal.heal(self.owner.image())
            self.durable = len(self.attempted)
            await self.append(journal, b"after%d" % turn, turn == 1)
            await journal.close()
            self.durable = len(self.attempted)


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("choose", [lose_unsynced, keep_unsynced, 1, 2, 3])
def test_every_crash_point(new_owner, run, choose, answered):
    """Whichever verb the power fails at, all that was proven comes back, in order, and nothing that was not said."""

    async def one(verbs):
        owner = new_owner()
        script = Script(owner)
        chosen = keep_some(choose * 1000 + verbs) if isinstance(choose, int) else choose
        owner.disk.crash_after(verbs, chosen, answered=answered)
        try:
            await script.run()
        except StaleIncarnation:
            crashed = True
        else:
            crashed = False
        attempted, durable = script.attempted, script.durable
        owner.disk.power_on()
        journal = await owner.open()
        assert owner.state == attempted[: len(owner.state)]
        assert len(owner.state) >= durable
        believed = list(owner.state)
        await owner.append(journal, b"on")
        await owner.keeps([*believed, b"on"])
        return crashed

    verbs = 0
    while run(one, verbs):
        verbs += 1
    assert verbs > 80


def test_every_torn_length(new_owner, run):
    """However much of an append that was not synced reached the disk, those before it come back; the rest is torn."""

    async def one(kept):
        owner = new_owner()
        journal = await owner.open()
        await owner.append(journal, b"first")
        position = journal._segment.position
        await owner.append(journal, b"second" * 5, sync=False)
        end, path = journal._segment.position, journal.segment.path
        whole = owner.disk.files()[path]
        owner.disk.kill()
        owner.disk.plant_file(path, whole[: position + kept] + bytes(len(whole) - position - kept))
        journal = await owner.open()
        is_whole = position + kept == end or not any(whole[position + kept : end])
        assert [b"first", b"second" * 5][: 1 + is_whole] == owner.state
        assert bool(kept) == (journal.recovery.torn_bytes > 0) or is_whole
        assert len(journal.recovery.quarantined) == (kept > 0 and not is_whole)
        await owner.append(journal, b"third")
        owner.disk.crash()
        await owner.open()
        assert b"third" == owner.state[-1]
        return end - position

    length = run(one, 0)
    for kept in range(1, length + 1):
        run(one, kept)


@pytest.mark.parametrize("pages", ["kept", "reverted"])
async def test_failed_sync_is_never_believed(owner, pages):
    """After a failed sync nothing is staged until a healing snapshot, in a new segment, replaces what is in doubt."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    abandoned = journal.segment.path
    owner.disk.fail_next(Sync, IO_ERROR, pages=pages)
    with pytest.raises(StorageError) as caught:
        await journal.append([b"b"])
    assert caught.value.indefinite
    assert journal.needs_healing
    with pytest.raises(StorageError, match="Heal the journal"):
        journal.stage([b"c"])
    await journal.heal(owner.image())
    assert journal.segment.path != abandoned
    await owner.append(journal, b"c")
    await owner.keeps([b"a", b"c"])


async def test_heal_may_fail_and_be_repeated(owner):
    """While the disk refuses, healing fails and may be repeated; then the journal goes on."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    owner.disk.fail_next(Sync, IO_ERROR)
    with pytest.raises(StorageError):
        await journal.append([b"b"])
    for verb in (Create, Write, Sync, Rename, SyncDirectory):
        owner.disk.fail_next(verb, IO_ERROR)
        with pytest.raises(StorageError):
            await journal.heal(owner.image())
        assert journal.needs_healing
    await journal.heal(owner.image())
    await owner.keeps([b"a"])


@pytest.mark.parametrize("verb", [Create, Write, Zero, Sync])
async def test_failed_snapshot_changes_nothing(owner, verb):
    """A snapshot that fails before it has its name leaves the journal as it was."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    owner.disk.fail_next(verb, IO_ERROR)
    with pytest.raises(StorageError):
        await journal.snapshot(owner.image())
    assert not journal.needs_healing
    await owner.append(journal, b"b")
    assert 1 == len(owner.segments())
    await owner.keeps([b"a", b"b"])


async def test_snapshot_of_uncertain_name_needs_healing(owner):
    """When nobody knows whether the snapshot's name is durable, the journal must be healed."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    owner.disk.fail_next(SyncDirectory, IO_ERROR)
    with pytest.raises(StorageError):
        await journal.snapshot(owner.image())
    assert journal.needs_healing
    await journal.heal(owner.image())
    await owner.append(journal, b"b")
    await owner.keeps([b"a", b"b"])


async def test_failed_rewrite_opens_for_healing(owner):
    """When the unproven tail cannot be synced at open, the journal opens and asks to be healed."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    owner.disk.kill()
    owner.disk.fail_next(Sync, IO_ERROR)
    journal = await owner.open()
    assert [b"a"] == owner.state
    assert journal.needs_healing
    await journal.heal(owner.image())
    await owner.keeps([b"a"])


async def test_names_that_cannot_be_synced_at_open_need_healing(owner):
    """What is appended to a segment whose name may go with the power is not promised: the journal asks to be healed."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    owner.disk.fail_next(SyncDirectory, "ENOSPC", path_contains="catalog", times=2)
    with pytest.raises(DiskFull):
        await journal.snapshot(owner.image())
    owner.disk.kill()
    journal = await owner.open()
    assert [b"a"] == owner.state
    assert journal.needs_healing
    assert journal.has_unproven_reads
    await journal.heal(owner.image())
    await owner.append(journal, b"b")
    await owner.keeps([b"a", b"b"])


async def test_failure_elsewhere_needs_no_healing(owner):
    """When a verb of somebody else failed in the same plan, nothing of the journal was written."""
    journal = await owner.open()
    files = journal._files
    other = files.handle("other")
    owner.disk.fail_next(Create, IO_ERROR)
    staged = journal.stage([b"a"])
    with pytest.raises(PlanFailed) as caught:
        await files.submit((Create(other), *staged.verbs))
    error = journal.failed(staged, caught.value)
    assert not error.indefinite
    assert not journal.needs_healing
    await owner.append(journal, b"b")
    await owner.keeps([b"b"])


async def test_full_disk_leaves_the_reserve(owner):
    """On a full disk the journal goes on for as long as its reserve lasts, fails clearly, and heals by itself."""
    journal = await owner.open()
    owner.disk.capacity_bytes = owner.disk.used_bytes
    event = bytes(8 * KIB)
    stored = 0
    with pytest.raises(DiskFull):
        while True:
            await owner.append(journal, event)
            stored += 1
    assert stored * len(event) > JOURNAL_RESERVE_BYTES - 2 * len(event)
    assert journal.is_short_of_space
    assert not journal.needs_healing
    with pytest.raises(DiskFull):
        await journal.snapshot(owner.image())
    owner.disk.capacity_bytes = None
    for _ in range(3):
        await owner.append(journal, event)
    assert journal.reserve_bytes >= JOURNAL_RESERVE_BYTES
    assert not journal.is_short_of_space
    await owner.keeps([event] * (stored + 3))


async def test_opens_on_a_full_disk(owner):
    """A journal with an unproven, torn tail opens on a full disk, and takes appends from its reserve."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    await owner.append(journal, b"b" * 3000, sync=False)
    torn_at = journal._segment.position - 100
    owner.disk.kill()
    owner.disk.flip(journal.segment.path, torn_at)
    owner.disk.capacity_bytes = owner.disk.used_bytes
    journal = await owner.open()
    assert [b"a"] == owner.state
    assert () == journal.recovery.quarantined
    await owner.append(journal, b"c")
    await owner.keeps([b"a", b"c"])


async def test_hole_among_unsynced_appends_is_torn(owner):
    """When power loss kept a later unsynced append but not an earlier one, both are torn: neither was promised."""
    journal = await owner.open()
    await owner.append(journal, b"a")
    start = journal._segment.position
    await owner.append(journal, b"b" * 50, sync=False)
    await owner.append(journal, b"c" * 50, sync=False)
    owner.disk.kill()
    owner.disk.flip(journal.segment.path, start + 70)
    journal = await owner.open()
    assert [b"a"] == owner.state
    assert 1 == len(journal.recovery.quarantined)
    await owner.append(journal, b"d")
    await owner.keeps([b"a", b"d"])


async def test_damage_of_proven_events_is_said(owner):
    """Events that a later frame proves and that cannot be read raise LogCorrupt, with the place and what to do."""
    journal = await owner.open()
    await owner.append(journal, b"a" * 50)
    await owner.append(journal, b"b" * 50)
    await owner.append(journal, b"c" * 50)
    path = journal.segment.path
    owner.disk.kill()
    owner.disk.flip(path, owner.disk.files()[path].index(b"b" * 50))
    with pytest.raises(LogCorrupt, match="callboard repair") as caught:
        await owner.open()
    assert (path, (2, 3)) == (caught.value.path, caught.value.offsets)


async def test_a_damaged_snapshot_that_nothing_lies_before_is_said(owner):
    """A snapshot in the very first segment took the place of what it summed up: it cannot be passed over."""
    journal = await owner.open()
    owner.state = [b"a", b"b"]
    await journal.snapshot(owner.image())
    await owner.append(journal, b"c")
    await journal.close()
    data = owner.disk.files()[journal.segment.path]
    owner.disk.flip(journal.segment.path, bytes(data).index(b"a,b"))
    with pytest.raises(LogCorrupt):
        await owner.open()


async def test_a_snapshot_behind_damage_is_no_control_record(owner):
    """A snapshot that lost its announcement and is as long as a control record is damage, and no newer format."""
    journal = await owner.open()
    await owner.append(journal, b"a" * CONTROL_BYTES)
    await journal.snapshot(owner.image())
    await owner.append(journal, b"b")
    owner.disk.crash()
    owner.disk.flip(journal.segment.path, SEGMENT_HEADER_BYTES + 4)
    with pytest.raises(LogCorrupt, match="callboard repair"):
        await owner.open()


async def test_later_snapshot_replaces_damage(owner):
    """Damage before a snapshot does not matter."""
    journal = await owner.open()
    await owner.append(journal, b"a" * 50)
    path = journal.segment.path
    await journal.snapshot(owner.image())
    owner.disk.crash()
    owner.disk.flip(path, SEGMENT_HEADER_BYTES + 70)
    await owner.open()
    assert [b"a" * 50] == owner.state


@pytest.mark.parametrize("byte", range(SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 260, 7))
async def test_any_flipped_byte(owner, byte):
    """A flipped bit never changes an event: the journal says that it is corrupt, or only its last append is torn."""
    journal = await owner.open()
    for event in (b"a", b"b", b"c"):
        await owner.append(journal, event)
    owner.disk.kill()
    owner.disk.flip(journal.segment.path, byte)
    try:
        await owner.open()
    except LogCorrupt:
        return
    assert owner.state in ([b"a", b"b"], [b"a", b"b", b"c"])
