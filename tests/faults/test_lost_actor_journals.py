"""The journal of a durable actor loses every segment, or their headers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import callboard
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Rename


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


async def count_up(world: Any, **counts: int) -> dict[str, int]:
    """Have each counter of these names count this often; returns what each has counted in all."""
    totals: dict[str, int] = {}
    async with world.open() as runtime:
        for name, count in counts.items():
            counter = await runtime.spawn(Counter, name=name)
            for _ in range(count):
                await counter.ask(1)
            totals[name] = await counter.ask(0)
    return totals


def exchange(world: Any, *folders: str) -> None:
    """Each folder takes the name of the next one, and the last that of the first."""
    for folder in folders:
        world.disk.tree.rename(folder, f"{folder}.aside")
    for folder, place in zip(folders, (*folders[1:], folders[0]), strict=True):
        world.disk.tree.rename(f"{folder}.aside", place)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("count", [2, 3])
async def test_folders_of_actors_that_lie_in_one_anothers_places_are_moved_back(
    autojump_clock: Any, world: Any, count: int, is_cut: bool
) -> None:
    """No actor starts with the state of another; verify says whose it is, and repair gives up no event of any."""
    totals = {"a": 2, "b": 5, "c": 9}
    assert await count_up(world, **totals) == totals
    before = below(world, "actors")
    folders = [f"actors/user/{name}" for name in "abc"[:count]]
    exchange(world, *folders)
    async with world.open() as runtime:
        for name in "abc"[:count]:
            with pytest.raises(callboard.ActorStopped, match=r"holds the log of actors/user/[abc]\."):
                await runtime.spawn(Counter, name=name)
    problems = (await verify_directory(world.disk)).problems
    for folder, place in zip(folders, (*folders[1:], folders[0]), strict=True):
        assert any(each.path.startswith(place) and each.message.endswith(folder) for each in problems)
    foretold = (await repair_directory(world.disk, dry_run=True)).actions
    assert [(each.path, each.kind) for each in foretold] == [(folder, "move") for folder in folders]
    if is_cut:
        refused = world.disk.fail_next(Rename, "EIO", path_contains=".moving")
        with suppress(callboard.StorageError):
            await repair_directory(world.disk)
        assert refused.hits
    report = await repair_directory(world.disk)
    assert (report.lost, report.quarantined) == ((), ())
    assert below(world, "actors") == before
    assert (await verify_directory(world.disk)).ok
    assert await count_up(world, a=0, b=0, c=0) == totals


@pytest.mark.parametrize("depth", ["with what is below", "files alone"])
async def test_folders_below_folders_of_actors_are_moved_back_too(
    autojump_clock: Any, world: Any, depth: str
) -> None:
    """The journals of children come to lie where they belong, as those of the actors above them."""

    class Below(Counter):
        """A counter in a folder of its own."""

        def directory(self) -> str:
            return f"actors/user/{self.context.path.rpartition('/')[2].replace('-', '/')}"

    names = ("a", "b", "a-child", "b-child")
    async with world.open() as runtime:
        for number, name in enumerate(names, 1):
            counter = await runtime.spawn(Below, name=name)
            for _ in range(number):
                await counter.ask(1)
    before = below(world, "actors")
    exchange(world, "actors/user/a", "actors/user/b")
    if depth == "files alone":
        exchange(world, "actors/user/a/child", "actors/user/b/child")
    report = await repair_directory(world.disk)
    assert (report.lost, report.quarantined) == ((), ())
    assert below(world, "actors") == before
    assert (await verify_directory(world.disk)).ok


async def test_a_copy_of_another_actors_folder_is_not_taken_for_its_own(
    autojump_clock: Any, world: Any
) -> None:
    """The actor does not start with it; repair sets the copy aside, and names what is lost with the folder."""
    await count_up(world, a=2, b=5)
    for path in below(world, "actors/user/a"):
        world.disk.tree.unlink(path)
    for path, data in below(world, "actors/user/b").items():
        world.put(path.replace("/b/", "/a/"), data)
    async with world.open() as runtime:
        with pytest.raises(callboard.ActorStopped, match="holds the log of actors/user/b"):
            await runtime.spawn(Counter, name="a")
    assert not (await verify_directory(world.disk)).ok
    report = await repair_directory(world.disk)
    assert {path for path, *_ in report.lost} == {"actors/user/a"}
    assert len(report.quarantined) == 1
    assert (await verify_directory(world.disk)).ok
    assert await count_up(world, a=1, b=1) == {"a": 1, "b": 6}


async def test_an_actor_keeps_its_state_under_another_name_when_both_folders_are_moved(
    autojump_clock: Any, world: Any
) -> None:
    """Headers bind no journal of an actor to its folder, and the floor goes with it."""
    await count_up(world, a=2, b=5)
    for above in ("actors", "journals/actors"):
        world.disk.tree.rename(f"{above}/user/a", f"{above}/user/c")
    assert (await verify_directory(world.disk)).ok
    assert not (await repair_directory(world.disk)).actions
    assert await count_up(world, c=1, b=1) == {"c": 3, "b": 6}
    assert (await verify_directory(world.disk)).ok


async def test_a_floor_of_an_earlier_version_says_only_how_far_the_journal_goes(
    autojump_clock: Any, world: Any
) -> None:
    """It names no segment; once the actor was started again, it does."""
    await count_up(world, a=2, b=5)
    for path, data in below(world, "journals").items():
        world.put(path, data[:64])
    assert (await verify_directory(world.disk)).ok
    assert await count_up(world, a=0, b=0) == {"a": 2, "b": 5}
    exchange(world, "actors/user/a", "actors/user/b")
    assert {action.kind for action in (await repair_directory(world.disk)).actions} == {"move"}
    assert await count_up(world, a=0, b=0) == {"a": 2, "b": 5}
