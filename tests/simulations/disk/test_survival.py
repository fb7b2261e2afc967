"""What a power cut leaves, drawn from a seed."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.seams.disk import Create, Link, MakeDirectory, Open, Sync, SyncDirectory, Write
from callboard.simulations.disk.damage_budget import DamageBudget
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.disk.survival import Survival

SECTOR = 512


async def half_synced(sectors: int = 8) -> MemoryDisk:
    """A disk with a synced file of ones whose second half, and as much again, was written over with twos."""
    disk = MemoryDisk()
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit(
        (
            Create(handle),
            Write(handle, 0, [b"\1" * sectors * SECTOR]),
            Sync(handle),
            SyncDirectory(""),
            Write(handle, sectors // 2 * SECTOR, [b"\2" * sectors * SECTOR]),
        )
    )
    return disk


def sectors_of(data: bytes) -> list[bytes]:
    """A file cut into sectors."""
    return [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]


async def test_nothing_survives_at_zero() -> None:
    """With all odds zero a power cut leaves what was synced and nothing else."""
    disk = await half_synced()
    fates = disk.crash(Survival(seed=1).choosing())
    assert disk.files() == {"a": b"\1" * 8 * SECTOR}
    assert fates == {"sectors lost": 8, "lengths lost": 1}


async def test_everything_survives_at_one() -> None:
    """With certain survival all that was written is there."""
    disk = await half_synced()
    seen = disk.files()
    fates = disk.crash(Survival(1, applied=1.0, names=1.0).choosing())
    assert disk.files() == seen
    assert fates == {"sectors applied": 8}


async def test_torn_files_lose_any_sectors() -> None:
    """Among many seeds of torn files, early sectors are lost while later ones are there, and every count is true."""
    orders = set()
    for seed in range(40):
        disk = await half_synced()
        fates = disk.crash(Survival(seed, applied=0.5, torn=1.0).choosing())
        found = sectors_of(disk.files()["a"])
        assert len(found) in (8, 12)
        assert set(found[:4]) == {b"\1" * SECTOR}
        orders.add(tuple(sector[0] for sector in found[4:8]))
        applied, lost = fates["sectors applied"], fates["sectors lost"]
        assert applied + lost == 8
        assert found.count(b"\2" * SECTOR) == applied or len(found) == 8
        assert fates["files torn"] == bool(applied and lost)
        assert disk.faults.counts == fates
    assert (1, 2, 1, 2) in orders or (1, 1, 2, 1) in orders or (1, 1, 2, 2) in orders
    assert len(orders) > 8


async def test_a_longer_file_ends_in_zeros_only_if_told() -> None:
    """Without `zeros` a file is longer only when all the bytes of its new length were saved."""
    seen = set()
    for zeros in (True, False):
        for seed in range(60):
            disk = await half_synced()
            disk.crash(Survival(seed, applied=0.5, torn=1.0, zeros=zeros).choosing())
            found = disk.files()["a"]
            if b"\0" in found:
                seen.add((zeros, "zeros"))
                assert zeros
            if len(found) > 8 * SECTOR:
                seen.add((zeros, "longer"))
    assert {(True, "zeros"), (True, "longer")} <= seen


async def test_a_whole_write_survives_with_its_length_without_zeros() -> None:
    """Where all of the new bytes were saved, the new length was, too."""
    disk = await half_synced()
    disk.crash(Survival(3, applied=1.0, zeros=False).choosing())
    assert len(disk.files()["a"]) == 12 * SECTOR


async def one_sector(damage_budget: DamageBudget, survival: Survival) -> bytes:
    """The file that is left when two bytes behind two synced ones may have been trashed."""
    disk = MemoryDisk()
    disk.damage_budget = damage_budget
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit(
        (Create(handle), Write(handle, 0, [b"safe" + bytes(96)]), Sync(handle), SyncDirectory(""))
    )
    await life.submit((Write(handle, 4, [b"lost" * 4]),))
    fates = disk.crash(survival.choosing(disk.damage_budget))
    assert fates == {"sectors trashed": 1}
    return disk.files()["a"]


async def test_garbage_spares_the_neighbours() -> None:
    """A trashed sector holds garbage where it was being written, and what was beside it is unharmed."""
    found = {await one_sector(DamageBudget(), Survival(seed, applied=1.0, trashed=1.0)) for seed in range(20)}
    assert all(data[:4] == b"safe" and data[20:] == bytes(80) for data in found)
    assert len(found) > 5


async def test_garbage_beyond_the_promise_is_noted() -> None:
    """Beyond the promise the neighbours are spoiled as well, and the damage budget knows of it."""
    damage_budget = DamageBudget(beyond=True)
    found = {await one_sector(damage_budget, Survival(seed, applied=1.0, trashed=1.0)) for seed in range(20)}
    assert any(data[:4] != b"safe" for data in found)
    assert {(damage.kind, damage.path, damage.start, damage.end) for damage in damage_budget.damages} == {
        ("trashed", "a", 0, 100)
    }


async def test_garbage_is_noted_by_each_name() -> None:
    """Garbage in a file that has a name in quarantine as well is noted by the name that counts."""
    disk = MemoryDisk()
    disk.damage_budget = DamageBudget(beyond=True)
    disk.plant_file("topics/a", b"safe" + bytes(96))
    life = await disk.incarnate("owner")
    handle = life.handle("topics/a")
    await life.submit((MakeDirectory("quarantine"), Link("topics/a", "quarantine/a"), Open(handle)))
    await life.submit((SyncDirectory(""), SyncDirectory("quarantine"), Write(handle, 4, [b"lost"])))
    disk.crash(Survival(0, applied=1.0, trashed=1.0).choosing(disk.damage_budget))
    assert [(damage.kind, damage.path) for damage in disk.damage_budget.damages] == [("trashed", "topics/a")]


async def test_names_are_lost_in_any_order() -> None:
    """Directory changes survive each on its own, or up to one that did not."""
    found = set()
    for seed in range(80):
        disk = MemoryDisk()
        life = await disk.incarnate("owner")
        await life.submit([MakeDirectory(name) for name in "abc"])
        fates = disk.crash(Survival(seed, names=0.5).choosing())
        kept = "".join(sorted(path for path, _ in disk.tree.walk() if path))
        found.add(kept)
        assert (fates["names kept"], fates["names lost"]) == (len(kept), 3 - len(kept))
    assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


async def test_one_file_does_not_shift_the_draws_of_another() -> None:
    """What survives of a file is the same whether or not another file was written."""
    found = []
    for others in (0, 3):
        disk = await half_synced()
        life = await disk.incarnate("other")
        for number in range(others):
            handle = life.handle(f"x{number}")
            await life.submit((Create(handle), Write(handle, 0, [b"x" * 999]), SyncDirectory("")))
        disk.crash(Survival(5, applied=0.5, torn=1.0, trashed=0.3).choosing())
        found.append(disk.files()["a"])
    assert found[0] == found[1]


@given(st.integers(), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_a_draw_repeats(seed: int, applied: float, torn: float, trashed: float, zeros: bool) -> None:
    """The same survival of the same disk leaves the same bytes."""
    survival = Survival(seed, applied, torn, trashed, 0.5, zeros)

    async def left() -> dict[str, bytes]:
        disk = await half_synced(4)
        disk.crash(survival.choosing(disk.damage_budget))
        return disk.files()

    assert trio.run(left) == trio.run(left)


@pytest.mark.parametrize("field", ["applied", "torn", "trashed", "names"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_odds_are_probabilities(field: str, value: Any) -> None:
    """Odds outside of 0 to 1 are refused."""
    with pytest.raises(ValueError, match=field):
        Survival(0, **{field: value})
