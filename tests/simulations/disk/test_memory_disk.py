"""How the memory disk forgets and fails: what the contract leaves to power loss, and what tests may plant."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from callboard.log.errors import PlanFailed, StaleIncarnation, StorageError
from callboard.log.seams.disk import (
    Create,
    Link,
    MakeDirectory,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
    Zero,
)
from callboard.simulations.disk.inodes import LENGTH, Unsynced, keep_unsynced
from callboard.simulations.disk.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    """An empty disk."""
    return MemoryDisk()


async def durable(disk: MemoryDisk, path: str, data: bytes) -> tuple[Any, Any]:
    """An incarnation, and an open handle for a file that survives power loss."""
    life = await disk.incarnate("owner")
    handle = life.handle(path)
    await life.submit((Create(handle), Write(handle, 0, [data]), Sync(handle), SyncDirectory("")))
    return life, handle


# -- power loss


async def test_unsynced_bytes_are_lost(disk: MemoryDisk) -> None:
    """Power loss takes what was written after the last sync, and the length with it (DK4)."""
    life, handle = await durable(disk, "a", b"safe")
    await life.submit((Write(handle, 4, [b"lost"]), Write(handle, 0, [b"S"])))
    assert disk.files() == {"a": b"Safelost"}
    disk.crash()
    assert disk.files() == {"a": b"safe"}


async def test_synced_bytes_survive_but_their_name_may_not(disk: MemoryDisk) -> None:
    """A new file that was synced is gone when its directory was not (DK4)."""
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x"]), Sync(handle)))
    disk.crash()
    assert disk.files() == {}


async def test_unsynced_names_come_back(disk: MemoryDisk) -> None:
    """Renames, links and unlinks are undone by power loss unless the directory was synced (DK4)."""
    life, _ = await durable(disk, "a", b"x")
    await life.submit((Link("a", "b"), Rename("a", "c")))
    assert list(disk.files()) == ["b", "c"]
    disk.crash()
    assert disk.files() == {"a": b"x"}
    life = await disk.incarnate("owner")
    await life.submit((Rename("a", "c"), SyncDirectory(""), Unlink("c")))
    disk.crash()
    assert disk.files() == {"c": b"x"}


async def test_a_rename_within_a_directory_is_atomic(disk: MemoryDisk) -> None:
    """After power loss the target is the old file or the new one, never missing, and the source goes with it."""
    await durable(disk, "a", b"new")
    disk.plant_file("b", b"old")
    life = await disk.incarnate("owner")
    await life.submit((Rename("a", "b"),))
    before = disk.snapshot()
    disk.crash()
    assert disk.files() == {"a": b"new", "b": b"old"}
    disk.restore(before)
    disk.crash(keep_unsynced)
    assert disk.files() == {"b": b"new"}


async def test_directories_are_lost_with_all_in_them(disk: MemoryDisk) -> None:
    """A directory whose name was not synced is gone, however well its files were synced."""
    life = await disk.incarnate("owner")
    handle = life.handle("d/a")
    await life.submit((MakeDirectory("d"), Create(handle), Sync(handle), SyncDirectory("d")))
    disk.crash()
    assert disk.files() == {}


async def test_any_subset_of_sectors_may_survive(disk: MemoryDisk) -> None:
    """Power loss may keep a later sector of one write and lose an earlier one (M1)."""
    life, handle = await durable(disk, "a", bytes(2048))
    await life.submit((Write(handle, 0, [b"\1" * 2048]),))
    offered: list[Unsynced] = []

    def choose(unsynced: Unsynced) -> tuple[int, ...]:
        offered.append(unsynced)
        return (1, 3)

    disk.crash(choose)
    assert offered == [Unsynced("a", False, (0, 1, 2, 3))]
    assert disk.files()["a"] == (bytes(512) + b"\1" * 512) * 2


async def test_the_length_may_survive_without_the_bytes(disk: MemoryDisk) -> None:
    """A file may be longer after power loss, with zeros where its new bytes were lost (M1)."""
    life, handle = await durable(disk, "a", b"x" * 512)
    await life.submit((Write(handle, 512, [b"y" * 1000]),))
    before = disk.snapshot()
    disk.crash(lambda unsynced: [item for item in unsynced.items if item == LENGTH])
    assert disk.files()["a"] == b"x" * 512 + bytes(1000)
    disk.restore(before)
    disk.crash(lambda unsynced: [item for item in unsynced.items if item != LENGTH])
    assert disk.files()["a"] == b"x" * 512


async def test_a_cut_may_be_undone(disk: MemoryDisk) -> None:
    """Truncated bytes are back after power loss unless the file was synced."""
    life, handle = await durable(disk, "a", b"0123456789")
    await life.submit((Truncate(handle, 4),))
    disk.crash()
    assert disk.files()["a"] == b"0123456789"
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Open(handle), Truncate(handle, 4), Sync(handle), Truncate(handle, 8), Sync(handle)))
    disk.crash()
    assert disk.files()["a"] == b"0123" + bytes(4)


async def test_unsynced_marks_are_lost(disk: MemoryDisk) -> None:
    """What was stored in a mark is lost with the power, unless the system had written it."""
    disk.plant_file("m", bytes(8))
    mark = await (await disk.incarnate("owner")).mark("m", 8)
    mark.store(b"12345678")
    before = disk.snapshot()
    disk.crash()
    assert disk.files()["m"] == bytes(8)
    disk.restore(before)
    disk.crash(keep_unsynced)
    assert disk.files()["m"] == b"12345678"


async def test_a_killed_process_loses_nothing(disk: MemoryDisk) -> None:
    """The page cache outlives the process; power loss later still takes what was not synced."""
    life, handle = await durable(disk, "a", b"x")
    await life.submit((Write(handle, 1, [b"y"]),))
    disk.kill()
    with pytest.raises(StaleIncarnation):
        await life.submit(())
    assert disk.files() == {"a": b"xy"}
    disk.crash()
    assert disk.files() == {"a": b"x"}


async def test_a_crash_fences_all_and_frees_the_lock(disk: MemoryDisk) -> None:
    """After a crash the directory can be locked again, and the dead do nothing (M3)."""
    lock = await disk.lock({"pid": 1})
    life, handle = await durable(disk, "a", b"x")
    mark = await life.mark("m", 8)
    disk.crash()
    with pytest.raises(StaleIncarnation):
        await life.read(handle, 0, 1)
    with pytest.raises(StaleIncarnation):
        mark.store(bytes(8))
    again = await disk.lock({"pid": 2})
    lock.release()
    again.release()


@pytest.mark.parametrize("wanted", ["lock", "incarnation"])
async def test_the_dead_take_nothing_from_the_next_life(disk: MemoryDisk, wanted: str) -> None:
    """Who was locking the directory, or beginning an incarnation, when the machine died comes away with nothing."""

    class Killer(trio.abc.Instrument):
        """Kills once the taker has come to its first checkpoint."""

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            if task.name == "taker":
                trio.lowlevel.remove_instrument(self)
                disk.kill()

    async def take() -> None:
        with pytest.raises(StaleIncarnation):
            await (disk.lock({"pid": 1}) if wanted == "lock" else disk.incarnate("owner"))

    trio.lowlevel.add_instrument(Killer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, name="taker")
    (await disk.lock({"pid": 2})).release()


# -- crashes at every verb


async def story(disk: MemoryDisk) -> list[str]:
    """A file written in two synced steps, with what was answered."""
    answered = []
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    try:
        await life.submit((Create(handle), Write(handle, 0, [b"one"]), Sync(handle), SyncDirectory("")))
        answered.append("one")
        await life.submit((Write(handle, 3, [b"two"]), Sync(handle)))
        answered.append("two")
    except StaleIncarnation:
        answered.append("crash")
    return answered


@pytest.mark.parametrize(
    ("verbs", "answers", "files"),
    [
        (0, ["crash"], {}),
        (1, ["crash"], {}),
        (3, ["crash"], {}),
        (4, ["one", "crash"], {"a": b"one"}),
        (5, ["one", "crash"], {"a": b"one"}),
        (6, ["one", "two"], {"a": b"onetwo"}),
    ],
)
async def test_power_fails_between_any_two_verbs(
    disk: MemoryDisk, verbs: int, answers: list[str], files: dict[str, bytes]
) -> None:
    """With power lost as a verb starts, plans that ended before it were answered, and what they synced is there."""
    disk.crash_after(verbs)
    assert await story(disk) == answers
    disk.crash()
    disk.power_on()
    assert disk.files() == files


async def test_power_fails_before_the_answer(disk: MemoryDisk) -> None:
    """With power lost right after the last verb, it took effect but its plan was not answered."""
    disk.crash_after(6, answered=False)
    assert await story(disk) == ["one", "crash"]
    assert disk.verbs_executed == 6
    assert disk.files() == {"a": b"onetwo"}


async def test_a_disk_without_power_stays_off(disk: MemoryDisk) -> None:
    """After the power failed nothing can be started on the disk until it is switched on."""
    disk.crash_after(1)
    assert await story(disk) == ["crash"]
    await disk.crashed.wait()
    assert disk.is_off
    with pytest.raises(StaleIncarnation):
        await disk.incarnate("owner")
    with pytest.raises(StaleIncarnation):
        await disk.lock({})
    disk.power_on()
    assert not disk.crashed.is_set()
    assert await story(disk) == ["one", "two"]


async def test_every_verb_is_counted_and_logged(disk: MemoryDisk) -> None:
    """The disk tells which verbs ran, on which path, for whom."""
    ran: list[tuple[str, str, str]] = []
    disk.observer = lambda owner, verb, path: ran.append((owner, verb, path))
    await story(disk)
    assert disk.verbs_executed == 6
    assert [verb for _, verb, _ in ran] == ["create", "write", "sync", "sync_directory", "write", "sync"]
    assert {(owner, path) for owner, _, path in ran} == {("owner", "a"), ("owner", "")}


# -- planted errors


async def test_a_failed_sync_may_drop_its_pages(disk: MemoryDisk) -> None:
    """On other systems the bytes of a failed sync are gone from reads at once (M2)."""
    life, handle = await durable(disk, "a", b"safe")
    disk.fail_next(Sync, OSError(errno.EIO, "rotten"), pages="reverted")
    with pytest.raises(PlanFailed):
        await life.submit((Write(handle, 0, [b"LOSTLOST"]), Sync(handle)))
    assert await life.read(handle, 0, 8) == b"safe" + bytes(4)


async def test_bytes_written_anew_after_a_failed_sync_are_safe(disk: MemoryDisk) -> None:
    """Only writing the same bytes again makes them durable after a failed sync (M2)."""
    life, handle = await durable(disk, "a", b"safe")
    disk.fail_next(Sync, OSError(errno.EIO, "rotten"))
    with pytest.raises(PlanFailed):
        await life.submit((Write(handle, 4, [b"lost"]), Sync(handle)))
    await life.submit((Write(handle, 4, [b"lost"]), Sync(handle)))
    disk.crash()
    assert disk.files()["a"] == b"safelost"


async def test_a_write_may_stop_half_way(disk: MemoryDisk) -> None:
    """A failing write puts down as much as it was told to before it fails."""
    life, handle = await durable(disk, "a", b"")
    disk.fail_next(Write, OSError(errno.ENOSPC, "full"), partial=3)
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Write(handle, 0, [b"ab", b"cdef"]), Sync(handle)))
    assert (caught.value.index, caught.value.error.errno) == (0, errno.ENOSPC)
    assert disk.files()["a"] == b"abc"
    assert disk.faults.counts == {"write ENOSPC": 1}


async def test_faults_hit_where_and_as_often_as_told(disk: MemoryDisk) -> None:
    """A fault passes `after` verbs on matching paths, then fails `times` of them, and is gone."""
    life = await disk.incarnate("owner")
    disk.fail_next(MakeDirectory, OSError(errno.EIO, "rotten"), path_contains="x", after=1, times=2)
    fates = []
    for path in ("a", "x1", "b", "x2", "c", "x3", "x4"):
        try:
            await life.submit((MakeDirectory(path),))
            fates.append(path)
        except PlanFailed:
            fates.append("failed")
    assert fates == ["a", "x1", "b", "failed", "c", "failed", "x4"]
    assert disk.faults.counts == {"make_directory EIO": 2}


async def test_healing_forgets_planted_faults(disk: MemoryDisk) -> None:
    """After `clear` nothing fails any more."""
    life = await disk.incarnate("owner")
    disk.fail_next(MakeDirectory, OSError(errno.EIO, "rotten"), times=99)
    disk.faults.clear()
    await life.submit((MakeDirectory("a"),))


async def test_reads_fail_when_told_to(disk: MemoryDisk) -> None:
    """A planted read error meets both ways of reading."""
    life, handle = await durable(disk, "a", b"x")
    disk.fail_next("read", OSError(errno.EIO, "rotten"), times=2)
    with pytest.raises(StorageError):
        await life.read(handle, 0, 1)
    with pytest.raises(StorageError):
        life.read_cached(handle, 0, 1)
    assert await life.read(handle, 0, 1) == b"x"


async def test_a_cold_cache_has_nothing(disk: MemoryDisk) -> None:
    """While the disk is cold, only waiting reads return something."""
    life, handle = await durable(disk, "a", b"x")
    assert life.read_cached(handle, 0, 1) == b"x"
    disk.cold = True
    assert life.read_cached(handle, 0, 1) is None
    assert await life.read(handle, 0, 1) == b"x"


async def test_a_full_disk_takes_what_fits_and_heals(disk: MemoryDisk) -> None:
    """A write beyond the capacity stops there with ENOSPC; overwriting and, with space freed, writing go on."""
    life, handle = await durable(disk, "a", b"12345678")
    disk.capacity_bytes = 10
    assert await life.free_bytes() == 2
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Write(handle, 8, [b"abcd"]),))
    assert caught.value.error.errno == errno.ENOSPC
    assert disk.files()["a"] == b"12345678ab"
    await life.submit((Write(handle, 0, [b"x" * 10]), Sync(handle)))
    with pytest.raises(PlanFailed):
        await life.submit((Zero(handle, 10, 1),))
    with pytest.raises(StorageError):
        await life.mark("m", 8)
    disk.capacity_bytes = 20
    await life.submit((Write(handle, 10, [b"abcd"]),))
    assert await life.free_bytes() == 6


async def test_an_unlinked_open_file_still_takes_space(disk: MemoryDisk) -> None:
    """Space comes back when the last name is gone and the last handle is closed."""
    disk.capacity_bytes = 100
    life, _ = await durable(disk, "a", b"12345678")
    await life.submit((Unlink("a"), SyncDirectory("")))
    assert disk.used_bytes == 8
    await disk.incarnate("owner")
    assert disk.used_bytes == 0


async def test_a_hanging_disk_holds_its_plans(disk: MemoryDisk) -> None:
    """Plans on a hanging path wait, seen from outside, and no cancellation ends that (DK1)."""
    life, handle = await durable(disk, "a", b"")
    disk.hang("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.submit, (Write(handle, 0, [b"x"]),))
        nursery.start_soon(life.submit, (MakeDirectory("b"),))
        await trio.testing.wait_all_tasks_blocked()
        assert life.in_flight_since is not None
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        assert life.in_flight_since is not None
        disk.unhang()
    assert life.in_flight_since is None
    assert disk.files()["a"] == b"x"


async def test_power_loss_ends_a_hanging_plan(disk: MemoryDisk) -> None:
    """A plan that hangs when the power fails never runs, and its task learns that it is dead (M3)."""
    life, handle = await durable(disk, "a", b"")
    disk.hang()
    outcomes: list[str] = []

    async def write() -> None:
        try:
            await life.submit((Write(handle, 0, [b"x"]),))
        except StaleIncarnation:
            outcomes.append("stale")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        disk.crash()
    disk.unhang()
    assert outcomes == ["stale"]
    assert disk.files()["a"] == b""


async def test_latency_passes_on_the_virtual_clock(
    disk: MemoryDisk, autojump_clock: trio.testing.MockClock
) -> None:
    """A slow disk takes its time, told by the clock of the run."""
    disk.latency_s = 3.0
    life = await disk.incarnate("owner")
    await life.submit((MakeDirectory("a"),))
    assert trio.current_time() == 3.0


async def test_rot_is_seen_now_and_after_power_loss(disk: MemoryDisk) -> None:
    """A flipped bit is wrong in the cache and on the disk."""
    await durable(disk, "a", b"\x00\x00")
    disk.flip("a", 1, 0x81)
    assert disk.files()["a"] == disk.durable_files()["a"] == b"\x00\x81"


async def test_snapshots_are_independent(disk: MemoryDisk) -> None:
    """A restored snapshot is what it was, however often it is used, with links and durability kept."""
    life, handle = await durable(disk, "a", b"x")
    await life.submit((Link("a", "b"), SyncDirectory(""), Write(handle, 0, [b"y"])))
    before = disk.snapshot()
    for _ in range(2):
        disk.crash()
        assert disk.files() == {"a": b"x", "b": b"x"}
        disk.flip("a", 0)
        assert disk.files()["b"] == b"y"
        disk.restore(before)
        assert disk.files() == {"a": b"y", "b": b"y"}
        assert disk.durable_files() == {"a": b"x", "b": b"x"}


async def test_planted_files_are_durable(disk: MemoryDisk) -> None:
    """A planted file and its directories survive power loss; planting again replaces it."""
    disk.plant_file("d/e/a", b"one")
    disk.plant_file("d/e/a", b"tw")
    disk.crash()
    assert disk.files() == {"d/e/a": b"tw"}
