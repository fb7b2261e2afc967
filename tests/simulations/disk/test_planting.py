"""Every fault that can be planted on a memory disk: what it does, that it is counted, and that it ends."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from callboard.log.errors import PlanFailed, StaleIncarnation, StorageError
from callboard.log.seams.disk import (
    Create,
    Link,
    MakeDirectory,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Unlink,
    Write,
    Zero,
)
from callboard.simulations.disk.damage_budget import DamageBudget, DiskDamage
from callboard.simulations.disk.memory_disk import MemoryDisk

SECTOR = 512


@pytest.fixture
def disk() -> MemoryDisk:
    """An empty disk, on which anything may be damaged."""
    made = MemoryDisk()
    made.damage_budget = DamageBudget(beyond=True)
    return made


async def durable(disk: MemoryDisk, path: str, data: bytes) -> tuple[Any, Any]:
    """An incarnation, and an open handle for a file that survives power loss."""
    life = await disk.incarnate("owner")
    handle = life.handle(path)
    await life.submit((Create(handle), Write(handle, 0, [data]), Sync(handle), SyncDirectory("")))
    return life, handle


async def error_of(life: Any, *plan: Any) -> int | None:
    """The number of the error with which a plan fails."""
    with pytest.raises(PlanFailed) as caught:
        await life.submit(plan)
    return caught.value.error.errno


# -- verbs


async def test_verbs_are_named(disk: MemoryDisk) -> None:
    """A fault may be planted by the names of its verb and its error, and counts its hits."""
    life, handle = await durable(disk, "a", b"x")
    fault = disk.fail_next("sync", "EIO", times=2)
    for _ in range(2):
        assert await error_of(life, Write(handle, 0, [b"y"]), Sync(handle)) == errno.EIO
    await life.submit((Sync(handle),))
    assert fault.hits == 2
    assert disk.faults.counts == {"sync EIO": 2, "pages kept": 2}


async def test_a_mark_may_fail_to_be_mapped(disk: MemoryDisk) -> None:
    """The mapping of a mark fails when told to."""
    life = await disk.incarnate("owner")
    fault = disk.fail_next("mark", "EIO")
    with pytest.raises(StorageError):
        await life.mark("m", 8)
    await life.mark("m", 8)
    assert (fault.hits, disk.faults.counts["mark EIO"]) == (1, 1)


@pytest.mark.parametrize("draw", range(7))
async def test_a_short_write_puts_down_a_part(disk: MemoryDisk, draw: int) -> None:
    """Of a write that ends short some bytes are there, but not all."""
    life, handle = await durable(disk, "a", b"")
    disk.short_write_next("a", draw)
    assert await error_of(life, Write(handle, 0, [b"abc", b"def"]), Sync(handle)) == errno.EIO
    found = disk.files()["a"]
    assert found in (b"a", b"ab", b"abc", b"abcd", b"abcde")
    assert disk.faults.counts["short write"] == 1


async def test_zeroing_may_stop_half_way(disk: MemoryDisk) -> None:
    """Zeroing that fails puts down as many zeros as it was told to."""
    life, handle = await durable(disk, "a", b"")
    disk.fail_next("zero", "ENOSPC", partial=100)
    assert await error_of(life, Zero(handle, 0, 4096)) == errno.ENOSPC
    assert disk.files()["a"] == bytes(100)


# -- reads


async def test_reads_fail(disk: MemoryDisk) -> None:
    """A read error is an error of the call, and the next read is good."""
    life, handle = await durable(disk, "a", b"x")
    fault = disk.fail_read("a")
    with pytest.raises(StorageError):
        await life.read(handle, 0, 1)
    assert await life.read(handle, 0, 1) == b"x"
    assert (fault.hits, disk.faults.counts["read EIO"]) == (1, 1)


async def test_short_reads_are_continued(disk: MemoryDisk) -> None:
    """A cached read that is cut short finds nothing; one that waits is continued and finds all."""
    life, handle = await durable(disk, "a", b"data")
    fault = disk.short_read_next("a", times=2)
    assert life.read_cached(handle, 0, 4) is None
    assert await life.read(handle, 0, 4) == b"data"
    assert life.read_cached(handle, 0, 4) == b"data"
    assert fault.hits == 2


# -- damage


async def test_rot_flips_one_durable_bit(disk: MemoryDisk) -> None:
    """Rot changes one bit of one file, now and after power loss, and the damage budget knows where."""
    await durable(disk, "a", b"\1\0\3" + bytes(600))
    seen = set()
    before = disk.snapshot()
    for draw in range(48):
        disk.restore(before)
        assert disk.rot("a", draw)
        found = disk.files()["a"]
        disk.crash()
        assert disk.files()["a"] == found
        assert found[1] == 0
        seen.add(found[:3])
    assert len(seen) == 16
    assert {(damage.kind, damage.path, damage.start) for damage in disk.damage_budget.damages} == {
        ("rot", "a", 0),
        ("rot", "a", 2),
    }
    assert disk.faults.counts["rot"] == 48


async def test_rot_needs_something_to_spoil(disk: MemoryDisk) -> None:
    """Without a byte that is durable and not zero there is no rot, and none is counted."""
    life, handle = await durable(disk, "a", bytes(100))
    await life.submit((Write(handle, 0, [b"not synced"]),))
    assert not disk.rot("a", 3)
    assert not disk.rot("elsewhere", 3)
    assert not disk.faults.counts


async def test_the_damage_budget_keeps_what_was_promised(disk: MemoryDisk) -> None:
    """While a promise is checked, only what can be made anew is damaged."""
    disk.damage_budget = DamageBudget()
    life, handle = await durable(disk, "a.log", b"x" * 2000)
    assert not disk.rot("", 1)
    misdirected = disk.misdirect_next("")
    await life.submit((Write(handle, 0, [b"y" * 600]), Sync(handle)))
    assert misdirected.hits == 0
    disk.plant_file("a.index", b"index")
    assert disk.rot("", 1)
    assert disk.files()["a.log"] == b"y" * 600 + b"x" * 1400
    assert disk.damage_budget.damages == []


@pytest.mark.parametrize(
    "taken", [(), (Rename("b.log", "a.log"),)], ids=["linked", "replaced but not synced"]
)
async def test_a_segment_with_a_name_in_quarantine_is_promised(
    disk: MemoryDisk, taken: tuple[Rename, ...]
) -> None:
    """What has a name in quarantine does not rot while it is, or after a power loss would be, a segment as well."""
    disk.damage_budget = DamageBudget()
    disk.plant_file("a.log", b"frames")
    life, _ = await durable(disk, "b.log", bytes(6))
    await life.submit((MakeDirectory("quarantine"), SyncDirectory("")))
    await life.submit((Link("a.log", "quarantine/a.log"), SyncDirectory("quarantine"), *taken))
    assert not disk.rot("quarantine", 1)
    disk.crash()
    assert disk.files()["a.log"] == b"frames"
    await (await disk.incarnate("owner")).submit((Unlink("a.log"), SyncDirectory("")))
    assert disk.rot("quarantine", 1)
    assert disk.damage_budget.damages == []


async def test_damage_is_known_by_each_name(disk: MemoryDisk) -> None:
    """Beyond the promise, damage to a file with a name in quarantine is noted by the other name that it has."""
    disk.plant_file("a.log", b"frames")
    life = await disk.incarnate("owner")
    await life.submit((MakeDirectory("quarantine"), Link("a.log", "quarantine/a.log")))
    assert disk.rot("quarantine", 0)
    assert [damage.path for damage in disk.damage_budget.damages] == ["a.log"]


async def test_a_misdirected_write_damages_each_name(disk: MemoryDisk) -> None:
    """A write through a name in quarantine goes astray only where no other name of the file is promised."""
    disk.damage_budget = DamageBudget()
    disk.plant_file("a.log", b"x" * 2000)
    life = await disk.incarnate("owner")
    handle = life.handle("quarantine/a.log")
    await life.submit((MakeDirectory("quarantine"), Link("a.log", handle.path), Open(handle)))
    misdirected = disk.misdirect_next("")
    await life.submit((Write(handle, 0, [b"y" * 600]), Sync(handle)))
    assert misdirected.hits == 0
    disk.damage_budget.beyond = True
    await life.submit((Write(handle, 0, [b"z" * 600]), Sync(handle)))
    assert misdirected.hits == 1
    assert {damage.path for damage in disk.damage_budget.damages} == {"a.log"}


async def test_a_misdirected_write_lands_elsewhere(disk: MemoryDisk) -> None:
    """It overwrites other sectors of the file, and what it was meant for keeps the old bytes."""
    life, handle = await durable(disk, "a", b"".join(bytes([at]) * SECTOR for at in (1, 2, 3)))
    fault = disk.misdirect_next("a", draw=2)
    await life.submit((Write(handle, 10, [b"new"]), Sync(handle)))
    assert fault.hits == 1
    disk.crash()
    found = disk.files()["a"]
    assert found == b"\1" * SECTOR + b"\2" * SECTOR + b"\3" * 10 + b"new" + b"\3" * (SECTOR - 13)
    assert disk.damage_budget.damages == [
        DiskDamage("misdirected", "a", 1034, 1037),
        DiskDamage("misdirected", "a", 10, 13),
    ]


async def test_a_misdirected_write_may_land_twice(disk: MemoryDisk) -> None:
    """With an odd draw it lands where it belongs, too."""
    life, handle = await durable(disk, "a", b"\1" * SECTOR + b"\2" * SECTOR)
    disk.misdirect_next("a", draw=1)
    await life.submit((Write(handle, 0, [b"new"]), Sync(handle)))
    disk.crash()
    assert disk.files()["a"] == (b"new" + b"\1" * 509) + (b"new" + b"\2" * 509)


async def test_a_misdirected_append_leaves_zeros(disk: MemoryDisk) -> None:
    """The file is as long as the system believes, with zeros where the appended bytes are not."""
    life, handle = await durable(disk, "a", b"\1" * SECTOR)
    disk.misdirect_next("a")
    await life.submit((Write(handle, SECTOR, [b"new"]), Sync(handle)))
    assert disk.files()["a"] == b"new" + b"\1" * 509 + bytes(3)


async def test_a_misdirected_write_waits_for_an_elsewhere(disk: MemoryDisk) -> None:
    """A first write has nothing to spoil: it lands where it belongs, and the fault waits for the next."""
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    fault = disk.misdirect_next("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x" * 600]), Sync(handle)))
    assert (fault.hits, disk.files()["a"]) == (0, b"x" * 600)
    await life.submit((Write(handle, 0, [b"y"]),))
    assert fault.hits == 1


# -- space


async def test_a_disk_fills_up_and_is_freed(disk: MemoryDisk) -> None:
    """A full disk takes the slack and no more; once freed it takes all."""
    life, handle = await durable(disk, "a", b"x" * 100)
    fault = disk.fill(slack_bytes=10)
    assert await error_of(life, Write(handle, 100, [b"y" * 20])) == errno.ENOSPC
    assert await error_of(life, Zero(handle, 110, 20)) == errno.ENOSPC
    assert len(disk.files()["a"]) == 110
    assert (fault.hits, disk.faults.counts) == (2, {"write ENOSPC": 1, "zero ENOSPC": 1})
    disk.free()
    await life.submit((Write(handle, 110, [b"y" * 20]),))
    assert fault.hits == 2


# -- time


async def test_slow_paths_take_their_time(autojump_clock: Any, disk: MemoryDisk) -> None:
    """Plans and reads on a slow path take that much longer, others do not."""
    life, handle = await durable(disk, "a", b"x")
    first, second = disk.slow("a", 2.0), disk.slow("", 1.0)
    start = trio.current_time()
    await life.submit((Write(handle, 0, [b"y"]),))
    assert trio.current_time() - start == 3.0
    await life.submit((MakeDirectory("d"),))
    assert trio.current_time() - start == 4.0
    disk.unslow(second)
    await life.read(handle, 0, 1)
    assert trio.current_time() - start == 6.0
    disk.unslow()
    await life.read(handle, 0, 1)
    assert trio.current_time() - start == 6.0
    assert (first.hits, second.hits) == (2, 2)


async def test_stalls_end_one_by_one(autojump_clock: Any, disk: MemoryDisk) -> None:
    """What waits goes on when the last stall that holds it ends; each counts it once."""
    life, _ = await durable(disk, "a", b"x")
    first, second = disk.hang("d"), disk.hang("")
    done = trio.Event()

    async def make() -> None:
        await life.submit((MakeDirectory("d"),))
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make)
        for fault in (first, second):
            with trio.move_on_after(60):
                await done.wait()
            assert not done.is_set()
            disk.unhang(fault)
        await done.wait()
    assert (first.hits, second.hits) == (1, 1)


async def test_healing_ends_everything(autojump_clock: Any, disk: MemoryDisk) -> None:
    """After `heal` verbs and reads succeed at once."""
    life, handle = await durable(disk, "a", b"x")
    disk.fail_next("write", "EIO")
    disk.fail_read("")
    disk.fill()
    disk.slow("", 100.0)
    disk.hang("")
    disk.heal()
    start = trio.current_time()
    await life.submit((Write(handle, 0, [b"yy"]), Sync(handle)))
    assert await life.read(handle, 0, 2) == b"yy"
    assert trio.current_time() == start


# -- the observer and the end of the machine


async def test_the_observer_sees_everything_first(disk: MemoryDisk) -> None:
    """Owner, verb and path of each verb, answered read and mark, in order, before it runs."""
    seen: list[tuple[str, str, str]] = []
    disk.observer = lambda *what: seen.append(what)
    life, handle = await durable(disk, "a", b"x")
    await life.read(handle, 0, 1)
    life.read_cached(handle, 0, 1)
    mark = await life.mark("m", 8)
    mark.store(bytes(8))
    assert [(verb, path) for _, verb, path in seen] == [
        ("create", "a"),
        ("write", "a"),
        ("sync", "a"),
        ("sync_directory", ""),
        ("read", "a"),
        ("read", "a"),
        ("mark", "m"),
        ("mark", "m"),
    ]
    assert {owner for owner, _, _ in seen} == {"owner"}


@pytest.mark.parametrize("fatal", ["create", "write", "sync", "sync_directory"])
@pytest.mark.parametrize("loses_power", [True, False])
async def test_a_verb_does_not_run_after_the_end(disk: MemoryDisk, fatal: str, loses_power: bool) -> None:
    """When the observer ends the machine, the verb that it was told of, and all after it, do not run (M3)."""
    ran: list[str] = []

    def observe(_owner: str, verb: str, _path: str) -> None:
        if verb == fatal:
            if loses_power:
                disk.crash()
            else:
                disk.kill()
        else:
            ran.append(verb)

    disk.observer = observe
    with pytest.raises(StaleIncarnation):
        await durable(disk, "a", b"x")
    order = ["create", "write", "sync", "sync_directory"]
    assert ran == order[: order.index(fatal)]
    assert disk.verbs_executed == len(ran)
    expected = {} if loses_power or fatal == "create" else {"a": b"" if fatal == "write" else b"x"}
    assert disk.files() == expected


async def test_the_dead_are_halted(autojump_clock: Any, disk: MemoryDisk) -> None:
    """With `halted` set, tasks of a dead machine wait there, in plans and in reads; who waits for them waits, too."""
    halted: list[str] = []

    async def halt() -> None:
        halted.append("halted")
        await trio.sleep_forever()

    disk.halted = halt
    life, handle = await durable(disk, "a", b"x")
    disk.hang("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.submit, (Write(handle, 0, [b"y"]),))
        nursery.start_soon(life.read, handle, 0, 1)
        nursery.start_soon(disk.incarnate, "owner")
        with trio.move_on_after(1):
            await trio.sleep_forever()
        disk.crash()
        with trio.move_on_after(1):
            await trio.sleep_forever()
        assert halted == ["halted"] * 2
        nursery.cancel_scope.cancel()
    disk.unhang()
    disk.halted = None
    assert disk.files() == {"a": b"x"}
    await disk.incarnate("owner")


async def test_calls_that_cannot_wait_raise(disk: MemoryDisk) -> None:
    """A cached read and a store of a mark at which the machine ends raise, and nothing is stored."""
    life, handle = await durable(disk, "a", b"x")
    mark = await life.mark("m", 8)
    disk.observer = lambda *_: disk.kill()
    with pytest.raises(StaleIncarnation):
        life.read_cached(handle, 0, 1)
    disk.observer = None
    life, _ = (await disk.incarnate("owner"), None)
    mark = await life.mark("m", 8)
    disk.observer = lambda *_: disk.kill()
    with pytest.raises(StaleIncarnation):
        mark.store(b"12345678")
    assert disk.files()["m"] == bytes(8)


# -- zeros


async def test_zeros_ahead_cost_nothing(disk: MemoryDisk) -> None:
    """A file of a terabyte of zeros is made, synced, copied and lost like a small one."""
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x"]), Zero(handle, 1, 1 << 40), SyncDirectory("")))
    disk.restore(disk.snapshot())
    offered: list[Any] = []

    def choose(unsynced: Any) -> Any:
        offered.append(unsynced.items)
        return unsynced.items

    disk.crash(choose)
    assert offered == [(-1, 0)]
    assert disk.tree.inode("a").volatile.length == (1 << 40) + 1


async def test_damage_goes_with_a_file_that_is_renamed(disk: MemoryDisk) -> None:
    """It is known by both names, and of other files nothing is said; in quarantine it costs nothing."""
    life, _ = await durable(disk, "a.log.new", b"x" * SECTOR)
    await life.submit((MakeDirectory("quarantine"),))
    disk.damage_budget.note("rotten", ["a.log.new"], 3, 4)
    disk.damage_budget.note("rotten", ["a.log.newer"], 5, 6)
    await life.submit((Rename("a.log.new", "a.log"), Rename("a.log", "quarantine/a.log")))
    assert disk.damage_budget.damages == [
        DiskDamage("rotten", "a.log.new", 3, 4),
        DiskDamage("rotten", "a.log.newer", 5, 6),
        DiskDamage("rotten", "a.log", 3, 4),
    ]
