"""Repair keeps every readable record, explains the gaps, and leaves a directory that verifies clean."""

import random

import pytest

from callboard.log.errors import DirectoryLocked, StaleIncarnation
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.inodes import keep_unsynced, lose_unsynced
from callboard.simulations.entropy import SeededEntropy


async def read_all(disk, directory):
    reader = await LogReader.open(await disk.incarnate("reader"), directory)
    records, lost, offset = [], [], reader.start_offset
    while offset < reader.visible_end:
        reading = await reader.read(offset)
        for columns in reading.batches:
            records += zip(columns.offset_list(), columns.value_list(), strict=True)
        lost += reading.lost
        offset = reading.next_offset
    return records, lost


def expected(*ranges):
    return [(offset, b"value-%d" % offset) for first, end in ranges for offset in range(first, end)]


async def repaired(disk):
    """Repair, check that it is sound and idempotent, and return the report."""
    report = await repair_directory(disk)
    after = await verify_directory(disk)
    assert (True, ()) == (after.ok, after.problems)
    again = await repair_directory(disk)
    assert () == again.actions
    return report


async def test_sound_directory_is_left_alone(writer):
    """Repair changes nothing where nothing is damaged."""
    await writer.fill()
    before = writer.disk.durable_files()
    report = await repaired(writer.disk)
    assert not report.changed
    after = writer.disk.durable_files()
    assert before == {path: after[path] for path in before}


async def test_damaged_frame(writer):
    """A damaged frame costs its own records only; the old file is in quarantine."""
    await writer.fill()
    path = writer.path(12)
    whole = writer.disk.files()[path]
    writer.disk.flip(path, whole.index(b"value-16"))
    damaged = writer.disk.files()[path]
    report = await repaired(writer.disk)
    assert ((writer.directory, 15, 17),) == report.lost
    assert damaged in [writer.disk.files()[name] for name in report.quarantined]
    assert (expected((0, 15), (18, 36)), [(15, 17)]) == await read_all(writer.disk, writer.directory)


async def test_dry_run_changes_nothing(writer):
    """A dry run says the same and writes nothing."""
    await writer.fill()
    path = writer.path(12)
    writer.disk.flip(path, writer.disk.files()[path].index(b"value-16"))
    before = writer.disk.files()
    dry = await repair_directory(writer.disk, dry_run=True)
    assert before == writer.disk.files()
    real = await repair_directory(writer.disk)
    assert (dry.actions, dry.lost) == (real.actions, real.lost)
    assert real.changed
    assert not dry.changed


async def test_lock_is_taken(writer):
    """Repair does not touch a directory that a runtime has open."""
    await writer.disk.lock({"pid": 1})
    with pytest.raises(DirectoryLocked):
        await repair_directory(writer.disk)


@pytest.mark.parametrize("base", [0, 12, 24])
async def test_both_header_copies(writer, base):
    """A segment whose header is lost is read with the id that its index knows; without one it is given up, named."""
    await writer.fill()
    for byte in (20, 84):
        writer.disk.flip(writer.path(base), byte)
    report = await repaired(writer.disk)
    records, _ = await read_all(writer.disk, writer.directory)
    if base == 24:
        assert expected((0, 24)) == records
        assert ((writer.directory, 24, 35),) == report.lost
    else:
        assert expected((0, 36)) == records
        assert () == report.lost


async def test_missing_segment(writer):
    """The gap that a missing segment leaves is explained afterwards, and nothing else changes."""
    await writer.fill()
    writer.disk.tree.unlink(writer.path(12))
    report = await repaired(writer.disk)
    assert ((writer.directory, 12, 23),) == report.lost
    assert (expected((0, 12), (24, 36)), [(12, 23)]) == await read_all(writer.disk, writer.directory)


async def test_lost_end(writer):
    """Durable records that are gone from the end are explained, and their offsets never used again."""
    await writer.fill()
    writer.disk.flip(writer.path(24), writer.segment.position - 1)
    report = await repaired(writer.disk)
    assert ((writer.directory, 33, 35),) == report.lost
    assert (expected((0, 33)), [(33, 35)]) == await read_all(writer.disk, writer.directory)
    assert writer.path(36) in writer.disk.files()


async def test_lost_end_with_the_segment_that_it_begins(writer):
    """What is lost on both sides of the last segment's beginning becomes one gap: the segment, now empty, goes."""
    await writer.fill()
    before, last = writer.path(12), writer.path(24)
    frames = writer.disk.files()[before]
    writer.disk.flip(before, frames.index(b"value-21"))
    for offset in range(24, 36, 3):
        writer.disk.flip(last, writer.disk.files()[last].index(b"value-%d" % offset))
    report = await repaired(writer.disk)
    assert ((writer.directory, 21, 35),) == report.lost
    assert (expected((0, 21)), [(21, 35)]) == await read_all(writer.disk, writer.directory)
    assert last not in writer.disk.files()


async def test_committed_file(writer):
    """A damaged committed file is written anew."""
    await writer.fill()
    for byte in (10, 42):
        writer.disk.flip(f"{writer.directory}/committed", byte)
    await repaired(writer.disk)
    assert (expected((0, 36)), []) == await read_all(writer.disk, writer.directory)


def damage(writer, source, flips):
    """Flip bytes anywhere in the segments' frames; the offsets that are in no flipped frame."""
    for _ in range(flips):
        path = writer.path(source.choice(writer.bases))
        data = writer.disk.files()[path]
        writer.disk.flip(path, source.randrange(len(data.rstrip(b"\0"))), 1 << source.randrange(8))


@pytest.mark.parametrize("seed", range(40))
async def test_random_damage(new_writer, seed):
    """Whatever bytes flip: what could be read before the repair can be read after it, and it verifies clean."""
    source = random.Random(seed)
    writer = await new_writer().start()
    await writer.fill(segments=4, frames=3)
    damage(writer, source, source.randrange(1, 6))
    before = await verify_directory(writer.disk)
    await repaired(writer.disk)
    records, _ = await read_all(writer.disk, writer.directory)
    assert all(value == b"value-%d" % offset for offset, value in records)
    assert len(records) == before.records


@pytest.mark.parametrize("choose", [lose_unsynced, keep_unsynced], ids=["lose", "keep"])
def test_crash_at_every_verb(new_writer, run, choose):
    """A repair that is interrupted anywhere loses nothing, and the next one ends it."""

    async def one(verbs):
        writer = await new_writer().start()
        await writer.fill(segments=3, frames=4)
        for base, text in ((0, b"value-4"), (12, b"value-13"), (12, b"value-19")):
            path = writer.path(base)
            writer.disk.flip(path, writer.disk.files()[path].index(text))
        await writer.files.submit([])
        writer.disk.crash(keep_unsynced)
        writer.disk.crash_after(verbs, choose)
        try:
            await repair_directory(writer.disk)
        except StaleIncarnation:
            crashed = True
        else:
            crashed = False
        writer.disk.power_on()
        await repaired(writer.disk)
        records, _ = await read_all(writer.disk, writer.directory)
        assert expected((0, 3), (6, 12), (15, 18), (21, 36)) == records
        return crashed

    verbs = 0
    while run(one, verbs):
        verbs += 1
    assert verbs > 20


def test_what_is_set_aside_survives_a_power_cut_at_every_verb(new_writer, run):
    """A segment that is given up has a durable name at any time, the old one or the new one."""

    async def one(verbs):
        writer = await new_writer().start()
        await writer.fill()
        for byte in (20, 84):
            writer.disk.flip(writer.path(24), byte)
        await writer.files.submit([])
        writer.disk.crash(keep_unsynced)
        spoiled = writer.disk.files()[writer.path(24)]
        writer.disk.crash_after(verbs, lose_unsynced)
        try:
            await repair_directory(writer.disk)
        except StaleIncarnation:
            crashed = True
        else:
            crashed = False
        writer.disk.power_on()
        assert spoiled in writer.disk.files().values()
        await repaired(writer.disk)
        assert spoiled in writer.disk.files().values()
        return crashed

    verbs = 0
    while run(one, verbs):
        verbs += 1
    assert verbs > 5


class State:
    """A journal's owner."""

    def __init__(self, disk):
        self.disk = disk
        self.events, self.lost = [], []

    def restore(self, data):
        self.events[:] = data.split(b",")

    async def open(self):
        files = await self.disk.incarnate("owner")
        self.events, self.lost = [], []
        return await Journal.open(
            files,
            "catalog",
            Owner(self.restore, self.events.append, lost=lambda *lost: self.lost.append(lost)),
            clock=VirtualClock(),
            entropy=SeededEntropy(7),
        )

    async def append(self, journal, *events):
        await journal.append(events)
        self.events.extend(events)


@pytest.fixture
async def state(writer):
    return State(writer.disk)


def flip_text(disk, path, text, after=0):
    disk.flip(path, disk.files()[path].index(text, after))


async def test_damaged_journal(state):
    """A journal with damaged events opens after repair, with all other events, and names the gap."""
    journal = await state.open()
    for number in range(5):
        await state.append(journal, b"event-%d" % number)
    state.disk.kill()
    flip_text(state.disk, journal.segment.path, b"event-2")
    report = await repaired(state.disk)
    assert (("catalog", 4, 5),) == report.lost
    journal = await state.open()
    assert [b"event-0", b"event-1", b"event-3", b"event-4"] == state.events
    assert [(4, 5)] == state.lost
    await state.append(journal, b"on")
    state.disk.crash()
    await state.open()
    assert b"on" == state.events[-1]


async def unsynced(state, *events):
    """A journal with one synced event, and others that are in the page cache only, a frame each."""
    journal = await state.open()
    await journal.append([b"synced"])
    for event in events:
        await journal.append([event], sync=False)
    return journal


def spoil_committed(disk):
    for byte in (10, 42):
        disk.flip("catalog/committed", byte)


async def test_a_committed_file_names_nothing_behind_a_hole(state):
    """Power loss took an unsynced frame and left the one behind it: a repair does not call that one synced."""
    journal = await unsynced(state, b"x" * 1000, b"behind")

    def lose_first_sector(unsynced):
        return unsynced.items[1:] if unsynced.path == journal.segment.path else unsynced.items

    state.disk.crash(lose_first_sector)
    assert b"behind" in state.disk.files()[journal.segment.path]
    spoil_committed(state.disk)
    await repaired(state.disk)
    await state.open()
    assert (state.events, state.lost) == ([b"synced"], [])


async def test_a_committed_file_names_nothing_that_was_not_synced(state):
    """After a killed process a repair syncs what it calls committed: the power may go before the next opening."""
    await unsynced(state, b"unsynced")
    state.disk.kill()
    spoil_committed(state.disk)
    await repaired(state.disk)
    state.disk.crash()
    await state.open()
    assert (state.events, state.lost) == ([b"synced", b"unsynced"], [])


@pytest.mark.parametrize("part", ["announcement", "snapshot"])
@pytest.mark.parametrize("heal", [True, False])
@pytest.mark.parametrize("more", [True, False])
async def test_damaged_snapshot(state, part, heal, more):
    """A journal whose snapshot is damaged opens after repair with what the events before and after it say."""
    journal = await state.open()
    await state.append(journal, b"a", b"b")
    await (journal.heal if heal else journal.snapshot)(b"a,b,snapshot")
    if more:
        await state.append(journal, b"c")
    path = journal.segment.path
    state.disk.kill()
    if part == "snapshot":
        flip_text(state.disk, path, b"a,b,snapshot")
    else:
        state.disk.flip(path, 128 + 70)
    await repaired(state.disk)
    journal = await state.open()
    assert [b"a", b"b", *[b"c"] * more] == state.events
    await state.append(journal, b"d")
    state.disk.crash()
    await state.open()
    assert b"d" == state.events[-1]


@pytest.mark.parametrize("heal", [True, False])
async def test_a_snapshot_that_nothing_readable_follows(state, heal):
    """One repair is enough for a segment of which no more than its announcement is left, in the middle of a journal."""
    journal = await state.open()
    await state.append(journal, b"a", b"b")
    await (journal.heal if heal else journal.snapshot)(b"a,b")
    path = journal.segment.path
    await state.append(journal, b"c")
    await journal.snapshot(b"a,b,c")
    await state.append(journal, b"d")
    state.disk.kill()
    content = state.disk.files()[path]
    for byte in range(content.index(b"a,b"), len(content)):
        state.disk.flip(path, byte)
    await repaired(state.disk)
    assert (await state.open()) is not None
    assert state.events == [b"a", b"b", b"c", b"d"]


async def test_journal_without_beginning(state):
    """A pruned journal whose only snapshot is damaged opens after repair with the events behind it."""
    journal = await state.open()
    await state.append(journal, b"a")
    await journal.snapshot(b"a,snapshot")
    await journal.prune()
    await state.append(journal, b"b")
    state.disk.kill()
    flip_text(state.disk, journal.segment.path, b"a,snapshot")
    await repaired(state.disk)
    await state.open()
    assert [b"b"] == state.events


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_journal_segment_without_header(state, place):
    """A journal segment whose header is lost is given up as a whole, and the others are kept."""
    paths = []
    journal = await state.open()
    for event in (b"a", b"b", b"c"):
        await state.append(journal, event)
        paths.append(journal.segment.path)
        await journal._change_segment("rolling", None, b"")
    await state.append(journal, b"d")
    state.disk.kill()
    for byte in (20, 84):
        state.disk.flip(paths[place], byte)
    await repaired(state.disk)
    await state.open()
    assert [event for index, event in enumerate((b"a", b"b", b"c", b"d")) if index != place] == state.events


@pytest.mark.parametrize("seed", range(30))
async def test_random_damage_of_a_journal(state, seed):
    """Whatever bytes flip: after repair the journal verifies clean, opens, and tells nothing that was not said."""
    source = random.Random(seed)
    journal = await state.open()
    said = [b"event-%d" % number for number in range(12)]
    for number, event in enumerate(said):
        await state.append(journal, event)
        if number in (4, 8):
            await journal.snapshot(b",".join(said[: number + 1]))
    state.disk.kill()
    paths = sorted(path for path in state.disk.files() if path.startswith("catalog/"))
    for _ in range(source.randrange(1, 6)):
        path = source.choice(paths)
        length = len(state.disk.files()[path].rstrip(b"\0"))
        state.disk.flip(path, source.randrange(length), 1 << source.randrange(8))
    await repaired(state.disk)
    await state.open()
    assert sorted(set(state.events), key=said.index) == state.events
