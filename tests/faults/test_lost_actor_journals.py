"""The journal of a durable actor loses every segment, or their headers."""

from __future__ import annotations

from typing import Any

import pytest

import callboard
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory


class Counter(callboard.DurableActor[int, int]):
    """Adds up."""

    def __init__(self) -> None:
        self.total = 0

    async def receive(self, message: int) -> int:
        """Add; returns the total."""
        if message:
            await self.persist(message)
        return self.total

    def apply(self, event: int) -> None:
        """Add."""
        self.total += event


async def counted_to_three(world: Any) -> str:
    """The path of the only segment in the journal of a counter that has counted to three."""
    async with world.open() as runtime:
        counter = await runtime.spawn(Counter, name="counter")
        for total in range(1, 4):
            assert await counter.ask(1) == total
    (path,) = [path for path in world.disk.files() if path.startswith("actors/") and path.endswith(".log")]
    return path


@pytest.mark.parametrize("way", ["removed", "blank", "garbage"])
async def test_an_actor_whose_journal_is_lost_starts_once_it_is_repaired(
    autojump_clock: Any, world: Any, way: str
) -> None:
    """Until then it does not start; repair names what is lost, and leaves a journal that takes events again."""
    path = await counted_to_three(world)
    if way == "removed":
        world.disk.tree.unlink(path)
    else:
        size = len(world.disk.file(path))
        world.put(path, bytes(size) if way == "blank" else b"\xa5" * size)
    async with world.open() as runtime:
        with pytest.raises(callboard.ActorStopped):
            await runtime.spawn(Counter, name="counter")
    report = await verify_directory(world.disk)
    assert not report.ok
    assert {log.path: log.kind for log in report.logs}["actors/user/counter"] == "journal"
    assert ("actors/user/counter", 0, 5) in (await repair_directory(world.disk)).lost
    assert (await verify_directory(world.disk)).ok
    for total in (1, 2):
        async with world.open() as runtime:
            counter = await runtime.spawn(Counter, name="counter")
            assert await counter.ask(1) == total


def below(world: Any, folder: str) -> dict[str, bytes]:
    """All files below a folder."""
    return {path: data for path, data in world.disk.files().items() if path.startswith(f"{folder}/")}


@pytest.mark.parametrize("is_repaired", [False, True])
@pytest.mark.parametrize("way", ["gone", "older copy", "folder above gone"])
async def test_an_actor_whose_folder_is_gone_or_older_does_not_start_before_repair(
    autojump_clock: Any, world: Any, way: str, is_repaired: bool
) -> None:
    """Nothing of its state goes back in silence: verify and the start name the loss, and repair leaves a journal that
    takes events, after what the folder still says.
    """
    older: dict[str, bytes] = {}
    for total in (1, 2):
        async with world.open() as runtime:
            counter = await runtime.spawn(Counter, name="counter")
            assert await counter.ask(1) == total
        older = older or below(world, "actors/user/counter")
    for path in below(world, "actors"):
        world.disk.tree.unlink(path)
    for folder in ("actors/user/counter", "actors/user", "actors")[: 3 if "above" in way else 1]:
        world.disk.tree.remove_directory(folder)
    if way == "older copy":
        for path, data in older.items():
            world.put(path, data)
    if not is_repaired:
        async with world.open() as runtime:
            with pytest.raises(callboard.ActorStopped, match=r"records \d+ to"):
                await runtime.spawn(Counter, name="counter")
    (problem,) = (await verify_directory(world.disk)).problems
    assert problem.path.rpartition("/")[0] == "actors/user/counter"
    assert problem.last_offset is not None
    repaired = await repair_directory(world.disk)
    assert {path for path, *_ in repaired.lost} == {"actors/user/counter"}
    assert (await verify_directory(world.disk)).ok
    for total in (1, 2):
        async with world.open() as runtime:
            counter = await runtime.spawn(Counter, name="counter")
            assert await counter.ask(1) == total + (way == "older copy")


@pytest.mark.parametrize("is_repaired", [False, True])
async def test_a_journal_with_one_segment_is_found_under_another_name(
    autojump_clock: Any, world: Any, is_repaired: bool
) -> None:
    """Its header says where it begins, and no other file does: nothing is lost, and the name is put right."""
    path = await counted_to_three(world)
    world.disk.tree.rename(path, path.replace("0.log", "5.log"))
    assert [problem.kind for problem in (await verify_directory(world.disk)).problems] == ["name"]
    if is_repaired:
        report = await repair_directory(world.disk)
        assert ([action.kind for action in report.actions], report.lost) == (["rename"], ())
    async with world.open() as runtime:
        counter = await runtime.spawn(Counter, name="counter")
        assert await counter.ask(1) == 4
    assert (await verify_directory(world.disk)).ok
