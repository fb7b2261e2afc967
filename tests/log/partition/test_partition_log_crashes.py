"""Power loss at every verb of every operation: what was promised is there, in order, unaltered, under its offset."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from callboard.log.errors import DiskFull, StaleIncarnation, StorageError
from callboard.log.format.committed import COMMITTED_NAME, decode_committed, decode_copy, proven_ends
from callboard.log.limits import Limits
from callboard.log.offline.inspection import inspect_log
from callboard.log.seams.disk import Create, Rename, Sync, SyncDirectory, Write
from callboard.simulations.disk.inodes import Garbage, keep_unsynced, lose_unsynced


def keep_some(seed: int) -> Any:
    """A power loss that keeps each unsynced sector, length and name by the toss of a coin."""
    source = random.Random(seed)
    return lambda unsynced: [item for item in unsynced.items if source.random() < 0.5]


DIRECTORY = "topics/t/0"
CHOOSES = (lose_unsynced, keep_unsynced, keep_some(1), keep_some(2), keep_some(3))


async def verify(world: Any) -> None:
    """Everything promised is there; recovery repeated finds the same; the log can be used."""
    await world.check_twice(must_hold=world.promised)
    await world.append(2, 3)
    await world.log.close()
    await world.open()
    world.check(await world.contents(), must_hold=world.promised)


async def append_and_roll(world: Any) -> None:
    """Durable appends, leader appends and syncs over three segments."""
    for step in range(12):
        await world.append(2, 3, durable=step % 3 == 0, size=3_000)
    await world.sync()


@pytest.mark.parametrize("answered", [True, False])
async def test_power_loss_while_appending(make_world: Any, everywhere: Any, answered: bool) -> None:
    """At every verb of appends that roll through segments, durable records survive."""
    verbs = await everywhere(
        lambda: make_world(segment_bytes=65_536),
        append_and_roll,
        chooses=CHOOSES,
        verify=verify,
        answered=answered,
    )
    assert verbs > 40


async def test_power_loss_while_closing(make_world: Any, everywhere: Any) -> None:
    """At every verb of a close, with leader records to sync and an index to store."""

    async def close(world: Any) -> None:
        await world.append(3, 3, size=20_000)
        await world.append(3, durable=False)
        await world.log.close()

    assert await everywhere(make_world, close, chooses=CHOOSES, verify=verify) > 5


async def test_power_loss_while_storing_indexes(
    make_world: Any, everywhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every verb of appends that also store the index of the segment in use."""
    monkeypatch.setattr("callboard.log.segments.index_file.INDEX_INTERVAL_BYTES", 4_000)
    verbs = await everywhere(
        lambda: make_world(segment_bytes=65_536, limits=Limits(index_checkpoint_bytes=20_000)),
        append_and_roll,
        chooses=CHOOSES,
        verify=verify,
    )
    assert verbs > 60


async def test_power_loss_while_healing(make_world: Any, everywhere: Any) -> None:
    """At every verb of healing after a failed sync, and of the appends that follow."""

    async def heal(world: Any) -> None:
        await world.append(2, 3)
        await world.append(3, durable=False)
        world.disk.fail_next(Sync, errno_of("EIO"), path_contains=".log", pages="reverted")
        await world.append(2, 2)
        assert world.log.needs_healing
        await world.append(2, 2)
        await world.append(1, durable=False)
        world.disk.fail_next(Write, errno_of("EIO"), path_contains=".log")
        await world.append(1)
        await world.append(1)

    assert await everywhere(make_world, heal, chooses=CHOOSES, verify=verify) > 20


async def test_power_loss_while_dropping_segments(make_world: Any, everywhere: Any) -> None:
    """At every verb of retention: what is left continues without a hole, from some segment on."""

    async def retain(world: Any) -> None:
        for _ in range(12):
            await world.append(2, 3, size=3_000)
        await world.log.retain(now_us=world.clock.now_us, unsettled_from=1 << 60, drop_unread=False)

    async def verify_suffix(world: Any) -> None:
        await world.check_twice(must_hold=world.promised)
        assert () == world.log.damages
        assert [] == world.lost

    verbs = await everywhere(
        lambda: make_world(segment_bytes=65_536, retention_bytes=80_000),
        retain,
        chooses=CHOOSES,
        verify=verify_suffix,
    )
    assert verbs > 40


async def leave_a_mess(world: Any, choose: Any, verbs: int) -> None:
    """Leader records in pieces, torn durable ones, damage in the middle: an unclean directory."""
    await world.open()
    await world.append(2, 3)
    world.disk.crash_after(verbs, choose)
    try:
        for step in range(8):
            await world.append(1, 3, durable=step == 4, size=700)
    except StaleIncarnation:
        pass
    if not world.disk.is_off:
        world.disk.crash(choose)
    world.disk.power_on()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mess", [8, 14])
async def test_power_loss_while_recovering(make_world: Any, seed: int, mess: int) -> None:
    """At every verb of an unclean open itself: the next open finds the same records at the same offsets."""
    for verbs in range(1_000):
        world = make_world(seed)
        await leave_a_mess(world, keep_some(seed), mess)
        world.disk.crash_after(verbs, keep_some(verbs))
        try:
            await world.open()
        except StaleIncarnation:
            pass
        struck = world.disk.is_off
        world.disk.power_on()
        if not struck:
            break
        found = await world.check_twice(must_hold=world.promised)
        clean = make_world(seed)
        await leave_a_mess(clean, keep_some(seed), mess)
        await clean.open()
        assert await clean.contents() == found
    assert verbs > 4


@pytest.mark.parametrize("choose", CHOOSES)
@pytest.mark.parametrize("hurt", [1, 3])
async def test_power_loss_while_rewriting_around_damage(make_world: Any, choose: Any, hurt: int) -> None:
    """Frames behind damage are rewritten too, and no crash on the way makes any of them unreachable."""
    path = "topics/t/0/00000000000000000000.log"
    for verbs in range(1_000):
        world = make_world()
        await world.open()
        ends = []
        for _ in range(6):
            await world.append(1, 2, size=3_000)
            ends.append(world.log.size_bytes)
        world.disk.crash()
        for place in {hurt, 3}:
            world.disk.flip(path, ends[place] - 100)
        world.disk.crash_after(verbs, choose)
        try:
            await world.open()
        except StaleIncarnation:
            pass
        struck = world.disk.is_off
        world.disk.power_on()
        lost = {at for place in (hurt, 3) for at in (2 * place, 2 * place + 1)}
        must_hold = {at: value for at, value in world.promised.items() if at not in lost}
        assert must_hold == await world.check_twice(must_hold=must_hold)
        if not struck:
            break
    assert verbs > 10


@pytest.mark.parametrize("verb", [Create, Write, Sync, Rename, SyncDirectory])
async def test_what_a_broken_off_recovery_left_is_proven_by_the_next(make_world: Any, verb: Any) -> None:
    """Frames that live in the page cache only are not served before they are synced, whichever recovery does it."""
    path = "topics/t/0/00000000000000000000.log"
    for after in range(12):
        world = make_world()
        await world.open()
        ends = []
        for _ in range(6):
            await world.append(1, 2, durable=False, size=3_000)
            ends.append(world.log.size_bytes)
        world.disk.kill()
        world.disk.flip(path, ends[3] - 100)
        world.disk.fail_next(verb, errno_of("EIO"), after=after)
        try:
            await world.open()
        except StorageError:
            pass
        world.disk.faults.clear()
        world.disk.kill()
        await world.open()
        served = await world.contents()
        assert 10 == len(served)
        world.disk.crash()
        assert served == await world.check_twice(must_hold=served)


async def test_a_killed_process_loses_nothing_visible(world: Any) -> None:
    """After SIGKILL the page cache lives on: leader records too are there, and served only after a sync."""
    await world.open()
    await world.append(3, 5)
    await world.append(3, 5, durable=False)
    world.disk.kill()
    await world.check_twice(must_hold=world.seen)
    world.disk.crash()
    await world.check_twice(must_hold=world.seen)


async def test_offsets_named_by_a_journal_are_not_used_again(world: Any) -> None:
    """Leader records that vanish at power loss leave a recorded gap when a journal names them."""
    await world.open()
    await world.append(2)
    await world.append(5, durable=False)
    world.disk.crash()
    found = await world.check_twice(must_hold=world.promised, named_end=7)
    assert {0, 1} == set(found)
    assert 7 == world.log.next_offset
    assert [(2, 6, "unsynced")] == [(gap.first, gap.last, gap.reason) for gap in world.log.gaps]
    assert [(2, 6)] == world.lost
    await world.append()
    assert 7 in world.promised
    world.disk.crash()
    await world.check_twice(must_hold=world.promised, named_end=7)


def errno_of(name: str) -> OSError:
    """The OSError of that name."""
    number = getattr(errno, name)
    return OSError(number, name)


async def verify_on_a_full_disk(world: Any) -> None:
    """What is proven is served and nothing is made up or called lost; when space is freed, all of it is there."""
    world.disk.fill()
    log = await world.open(named_end=world.named_end)
    owed = log.owed_for is not None
    found = await world.contents()
    if owed:
        assert [] == world.lost
        assert log.damages == ()
        assert all(world.seen.get(at, value) == value for at, value in found.items())
        with pytest.raises(DiskFull):
            await log.heal()
        assert found == await world.contents()
    world.disk.free()
    await log.heal()
    healed = await world.contents()
    world.check(healed, must_hold=world.promised | found)
    assert log.next_offset >= max((world.named_end - 1, *world.promised)) + 1
    assert log.owed_for is None
    world.opened_owing += owed
    await log.close()
    world.seen = {at: value for at, value in world.seen.items() if at < world.named_end} | healed
    world.pending.clear()
    await verify(world)


@pytest.mark.parametrize("named_end", [0, 60])
async def test_power_loss_and_then_a_full_disk(make_world: Any, everywhere: Any, named_end: int) -> None:
    """At every verb of appends that roll: the log opens as far as it is proven, and heals without a new opening."""
    opened_owing = 0

    async def verify_one(world: Any) -> None:
        nonlocal opened_owing
        world.named_end, world.opened_owing = named_end, 0
        await verify_on_a_full_disk(world)
        opened_owing += world.opened_owing

    await everywhere(
        lambda: make_world(segment_bytes=65_536), append_and_roll, chooses=CHOOSES, verify=verify_one
    )
    assert opened_owing > 50


async def test_a_hole_among_records_that_were_not_synced_is_no_damage(world: Any) -> None:
    """A power loss that keeps later writes and not earlier ones damages nothing: `leader` records promised no more."""
    await world.open()
    await world.append(durable=True, size=1_500)
    for _ in range(4):
        await world.append(durable=False, size=1_500)
    world.disk.crash(lambda unsynced: [item for item in unsynced.items if item not in (5, 6, 7)])
    report = await inspect_log(await world.disk.incarnate("verify"), DIRECTORY)
    assert report.problems == []
    assert [(note.kind, note.first_offset, note.last_offset) for note in report.notes] == [("torn", 1, 2)]
    for _ in range(2):
        log = await world.open()
        assert log.damages == ()
        assert [(gap.first, gap.last, gap.reason) for gap in log.gaps] == [(1, 2, "unsynced")]
        assert list(await world.contents()) == [0, 3, 4]
        world.disk.crash()


def spoil_committed(unsynced: Any) -> Any:
    """A power loss that keeps every sector, but turns those of a `committed` file into garbage."""
    if unsynced.is_directory or not unsynced.path.endswith(COMMITTED_NAME):
        return unsynced.items
    return [item if item < 0 else Garbage(item, b"\xa5" * 512) for item in unsynced.items]


async def test_a_hole_among_records_that_were_not_synced_is_no_damage_when_committed_is_garbage(
    world: Any,
) -> None:
    """The sector in which the file is stored all the time may be lost with the power; its copy is not."""
    await world.open()
    await world.append(durable=True, size=1_500)
    await world.log.close()
    await world.open()
    for _ in range(4):
        await world.append(durable=False, size=1_500)

    def choose(unsynced: Any) -> Any:
        if unsynced.path.endswith(".log"):
            return [item for item in unsynced.items if item not in (5, 6, 7)]
        return spoil_committed(unsynced)

    world.disk.crash(choose)
    path = f"{DIRECTORY}/{COMMITTED_NAME}"
    assert world.disk.files()[path][:64] == b"\xa5" * 64
    report = await inspect_log(await world.disk.incarnate("verify"), DIRECTORY)
    assert [(problem.path, problem.kind) for problem in report.problems] == [(path, "committed")]
    for _ in range(2):
        log = await world.open()
        assert log.damages == ()
        assert [(gap.first, gap.last, gap.reason) for gap in log.gaps] == [(1, 2, "unsynced")]
        assert list(await world.contents()) == [0, 3, 4]
        world.disk.crash(spoil_committed)


async def test_the_ends_are_known_after_garbage_at_every_verb(make_world: Any, everywhere: Any) -> None:
    """Whenever the power goes, the slots or the copy are whole, and say nothing that was not synced."""

    async def open_and_close(world: Any) -> None:
        for turn in range(3):
            await world.append(2, 3, durable=True)
            await world.append(1, durable=False)
            if turn:
                await world.log.close()
            await world.open()

    async def known(world: Any) -> None:
        ends = proven_ends(world.disk.files()[f"{DIRECTORY}/{COMMITTED_NAME}"])
        assert ends is not None
        log = await world.open()
        assert log.damages == ()
        assert ends.durable_end <= log.durable_end
        await verify(world)

    assert await everywhere(make_world, open_and_close, chooses=(spoil_committed,), verify=known) > 40


async def test_an_earlier_versions_committed_file_gets_its_copy(world: Any) -> None:
    """Of 64 bytes, without a copy: the next opening adds it; the slots stay where earlier versions read them."""
    path = f"{DIRECTORY}/{COMMITTED_NAME}"
    await world.open()
    await world.append(3, 3)
    await world.log.close()
    world.disk.plant_file(path, world.disk.files()[path][:64])
    await world.open()
    stored = world.disk.files()[path]
    assert decode_copy(stored) == decode_committed(stored[:64]) == proven_ends(stored)
    world.disk.plant_file(path, bytes(64) + stored[64:])
    assert (await world.open()).recovery.rewritten_records == 0


async def test_a_disk_without_space_for_the_copy_keeps_no_log_from_opening(world: Any) -> None:
    """The slots are enough; the copy is written by a later opening."""
    path = f"{DIRECTORY}/{COMMITTED_NAME}"
    await world.open()
    await world.append(3, 3)
    await world.log.close()
    world.disk.plant_file(path, world.disk.files()[path][:64])
    world.disk.capacity_bytes = world.disk.used_bytes
    await world.open()
    assert decode_copy(world.disk.files()[path]) is None
    await world.log.close()
    world.disk.capacity_bytes = None
    await world.open()
    assert decode_copy(world.disk.files()[path]) is not None


async def test_a_hole_is_damage_when_nobody_knows_what_was_synced(world: Any) -> None:
    """Without the `committed` file, what is missing between two frames may have been synced."""
    await world.open()
    for _ in range(4):
        await world.append(durable=True, size=1_500)
    world.disk.flip(f"{DIRECTORY}/00000000000000000000.log", 2_500)
    world.disk.plant_file(f"{DIRECTORY}/committed", bytes(64))
    world.disk.crash()
    log = await world.open()
    assert [(damage.first_offset, damage.last_offset) for damage in log.damages] == [(1, 1)]
    assert [gap.reason for gap in log.gaps] == ["damaged"]


async def test_a_power_cut_leaves_what_a_new_log_and_a_closed_one_knew(world: Any) -> None:
    """How far a log was synced is known from its first opening on, and after each closing."""

    def known() -> tuple[int, int]:
        committed = decode_committed(world.disk.files()[f"{DIRECTORY}/{COMMITTED_NAME}"])
        return committed.visible_end, committed.durable_end

    await world.open()
    await world.append(2, 3, durable=False)
    world.disk.crash()
    assert (0, 0) == known()
    await world.open(named_end=6)
    await world.append(2, 3, durable=False)
    end = world.log.visible_end
    assert end > 6
    await world.log.close()
    world.disk.crash()
    assert (end, end) == known()


async def test_a_mark_that_cannot_be_synced_does_not_keep_a_log_from_closing(world: Any) -> None:
    """It only knows less after a power cut."""
    refusal = OSError(errno.EIO, "I/O error")
    await world.open()
    await world.append(2, 3)
    world.disk.fail_next(Sync, refusal, path_contains=COMMITTED_NAME)
    await world.log.close()
    await world.open()
    assert 6 == world.log.next_offset
