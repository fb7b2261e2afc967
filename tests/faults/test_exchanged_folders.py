"""The folders of two partitions have exchanged their names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

import callboard
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Rename, Unlink
from tests.faults.sum_keeper import SumKeeper


async def test_verify_says_whose_the_segments_in_a_wrong_folder_are(autojump_clock: Any, world: Any) -> None:
    """So somebody can move them back before the directory is opened, or repaired: then nothing is damaged."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in (0, 1):
            await topic.publish(b"message", partition=partition)
    folders = [f"topics/{topic.topic_id}/{partition}" for partition in (0, 1)]

    def exchange() -> None:
        files = world.disk.files()
        for here, there in (folders, folders[::-1]):
            for path, data in files.items():
                if path.startswith(f"{here}/"):
                    world.put(path.replace(here, there), data)

    exchange()
    strays = [each for each in (await verify_directory(world.disk)).problems if each.kind == "stray"]
    for here, there in (folders, folders[::-1]):
        told = [each.message for each in strays if each.path.startswith(f"{here}/0000")]
        assert told == [f"the file is no part of the log: it belongs to another log, {there}"]
    exchange()
    assert (await verify_directory(world.disk)).ok


def tree(world: Any) -> dict[str, bytes]:
    """All messages, and what is known of them."""
    return {path: data for path, data in world.disk.files().items() if path.startswith("topics/")}


@pytest.mark.parametrize("way", ["two partitions", "two topics", "three partitions", "moved away"])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_repair_moves_folders_back_that_lie_in_one_anothers_places(
    autojump_clock: Any, world: Any, way: str, is_cut: bool
) -> None:
    """With all that is below them, and no record goes to quarantine; also when the first repair is broken off."""
    async with world.open() as runtime:
        topics = [await runtime.create_topic(name, partitions=3) for name in ("orders", "bills")]
        for topic in topics:
            for partition in range(3):
                await topic.publish(b"%d" % partition, partition=partition)
            await topic.publish(b"late", partition=0, delay=3600)
            async with topic.subscribe("group") as consumer:
                await (await consumer.get()).ack()
    before, (one, other) = tree(world), [f"topics/{topic.topic_id}" for topic in topics]
    cycle = {
        "two partitions": [f"{one}/0", f"{one}/1"],
        "two topics": [one, other],
        "three partitions": [f"{one}/0", f"{other}/1", f"{one}/2"],
        "moved away": [f"{one}/0", f"{other}/3"],
    }[way]
    places = [*cycle[1:], cycle[0]]
    for folder in cycle:
        if way != "moved away" or folder == cycle[0]:
            world.disk.tree.rename(folder, f"{folder}.aside")
    for folder, place in zip(cycle, places, strict=True):
        if way != "moved away" or folder == cycle[0]:
            world.disk.tree.rename(f"{folder}.aside", place)
    assert not (await verify_directory(world.disk)).ok
    foretold = [action.kind for action in (await repair_directory(world.disk, dry_run=True)).actions]
    assert set(foretold) == {"move"}
    if is_cut:
        refused = world.disk.fail_next(
            Rename, "EIO", path_contains="topics/" if way == "moved away" else ".moving"
        )
        with suppress(callboard.StorageError):
            await repair_directory(world.disk)
        assert refused.hits
    report = await repair_directory(world.disk)
    assert (report.lost, report.quarantined) == ((), ())
    assert tree(world) == before
    assert (await verify_directory(world.disk)).ok


async def test_repair_moves_no_copy_of_a_folder(autojump_clock: Any, world: Any) -> None:
    """It lies where another log belongs, and its own place is taken."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish(b"%d" % partition, partition=partition)
    folder = f"topics/{topic.topic_id}"
    own = {path: data for path, data in tree(world).items() if path.startswith(f"{folder}/0/")}
    for path in tree(world):
        if path.startswith(f"{folder}/1/"):
            world.disk.tree.unlink(path)
    for path, data in own.items():
        world.put(path.replace(f"{folder}/0/", f"{folder}/1/"), data)
    assert "move" not in {action.kind for action in (await repair_directory(world.disk)).actions}
    assert {path: data for path, data in tree(world).items() if path.startswith(f"{folder}/0/")} == own


@pytest.mark.parametrize("is_cut", [False, True])
async def test_repair_moves_folders_of_delivery_journals_back(
    autojump_clock: Any, world: Any, is_cut: bool
) -> None:
    """What was settled stays settled, also when the first repair is broken off."""
    async with world.open() as runtime:
        topics = [await runtime.create_topic(name) for name in ("orders", "bills")]
        for topic in topics:
            await topic.publish_batch([b"one", b"two"])
            async with topic.subscribe("group") as consumer:
                await (await consumer.get()).ack()
    before = tree(world)
    one, other = [f"topics/{topic.topic_id}/0/delivery" for topic in topics]
    for here, there in ((one, "aside"), (other, one), ("aside", other)):
        world.disk.tree.rename(here, there)
    if is_cut:
        world.disk.fail_next(Rename, "EIO", path_contains=".moving")
        with suppress(callboard.StorageError):
            await repair_directory(world.disk)
    report = await repair_directory(world.disk)
    assert {action.kind for action in report.actions} == {"move"}
    assert (report.lost, report.quarantined, report.left) == ((), (), ())
    assert tree(world) == before


async def fill(world: Any) -> str:
    """Two partitions with four messages, of which a group has settled three, and published with the acks; two delayed
    messages; an actor. Returns the topic's folder.
    """
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await runtime.create_topic("bills")
        for partition in (0, 1):
            for number in range(4):
                await topic.publish(b"%d" % number, partition=partition)
            await topic.publish(b"late", partition=partition, delay=3600)
        async with topic.subscribe("group") as consumer:
            taken = [0, 0]
            while min(taken) < 3:
                message = await consumer.get()
                taken[message.partition] += 1
                if taken[message.partition] <= 3:
                    await message.publish("bills", b"by ack")
                    await message.ack()
        await (await runtime.spawn(SumKeeper, name="keeper")).ask(3)
    return f"topics/{topic.topic_id}"


def exchange(world: Any, folder: str, *pairs: tuple[str, str]) -> None:
    """Exchange names; T stands for the topic's folder."""
    for pair in pairs:
        here, there = [name.replace("T/", f"{folder}/") for name in pair]
        for source, target in ((here, "aside"), (there, here), ("aside", there)):
            world.disk.tree.rename(source, target)


def emitted(runtime: Any, *kinds: str) -> list[Any]:
    return [each.event for each in runtime.events() if type(each.event).__name__ in kinds]


EXCHANGES = [
    [("catalog", "T/0/delivery")],
    [("catalog", "T/1")],
    [("catalog", "actors/user/keeper")],
    [("T/0/delivery", "actors/user/keeper")],
    [("T/0", "T/outbox-1"), ("T/0/delivery", "T/delayed-1/delivery")],
    [("T/0", "T/1"), ("T/0/delivery", "T/1/delivery")],
    [("T/delayed-0", "T/delayed-1"), ("T/delayed-0/delivery", "T/delayed-1/delivery")],
]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("pairs", EXCHANGES)
async def test_repair_moves_any_log_back_whatever_kind_it_has(
    autojump_clock: Any, world: Any, pairs: list[tuple[str, str]], is_cut: bool
) -> None:
    """The catalog, a delivery journal in a partition's folder that has moved, an actor's: nothing is given up."""
    folder = await fill(world)
    before = {path: data for path, data in world.disk.files().items() if path != "lock"}
    exchange(world, folder, *pairs)
    assert not (await verify_directory(world.disk)).ok
    if is_cut:
        world.disk.fail_next(Rename, "EIO", path_contains=".moving")
        with suppress(callboard.StorageError):
            await repair_directory(world.disk)
    report = await repair_directory(world.disk)
    assert {action.kind for action in report.actions} == {"move"}
    assert (report.lost, report.quarantined, report.left) == ((), (), ())
    assert {path: data for path, data in world.disk.files().items() if path != "lock"} == before


@pytest.mark.parametrize("other", ["T/0/delivery", "T/1", "actors/user/keeper"])
async def test_opening_refuses_another_log_in_the_place_of_the_catalog(
    autojump_clock: Any, world: Any, other: str
) -> None:
    """It says whose it is and what moves it back, and changes nothing."""
    folder = await fill(world)
    exchange(world, folder, ("catalog", other))
    before = {path: data for path, data in world.disk.files().items() if path != "lock"}
    with pytest.raises(callboard.LogCorrupt, match="callboard repair") as caught:
        async with world.open():
            pass
    assert f"holds the log of {other.replace('T/', f'{folder}/')}. Nothing was changed" in str(caught.value)
    assert {path: data for path, data in world.disk.files().items() if path != "lock"} == before


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("holds", ["", "delayed-", "outbox-"])
async def test_opening_reports_exchanged_folders_of_delivery_journals(
    autojump_clock: Any, world: Any, holds: str, is_cut: bool
) -> None:
    """In an event and in the statistics, also when a crash interrupts it; all that the logs hold is served."""
    folder = await fill(world)
    names = [f"{holds}{partition}" for partition in (0, 1)]
    exchange(world, folder, (f"T/{names[0]}/delivery", f"T/{names[1]}/delivery"))
    if is_cut:
        world.disk.fail_next(Unlink, "EIO", path_contains="/delivery/")
        async with world.open() as runtime:
            await trio.sleep(0.5)
    async with world.open() as runtime:
        await trio.sleep(1)
        statistics = await runtime.stats()
        rows = {"": statistics.partitions, "delayed-": statistics.delayed, "outbox-": statistics.outbox}[
            holds
        ]
        damages = [str(row.damages) for row in rows if row.topic == "orders"]
        events = emitted(runtime, "JournalSalvaged")
        if not is_cut:
            assert {event.path for event in events} == {f"topics/orders/{name}" for name in names}
            assert all("holds another log" in event.damage for event in events)
            assert damages
            assert all("/delivery: all that it said is lost" in words for words in damages)
        if not holds:
            async with runtime.topic("orders").subscribe("group") as consumer:
                taken = {((message := await consumer.get()).partition, message.offset) for _ in range(8)}
            assert len(taken) == 8
    assert (await verify_directory(world.disk)).ok


@pytest.mark.parametrize("holds", ["", "delayed-", "outbox-"])
async def test_opening_reports_exchanged_committed_files_of_delivery_journals(
    autojump_clock: Any, world: Any, holds: str
) -> None:
    """They cost nothing, and are made anew."""
    folder = await fill(world)
    names = [f"{holds}{partition}" for partition in (0, 1)]
    exchange(world, folder, tuple(f"T/{name}/delivery/committed" for name in names))
    async with world.open() as runtime:
        await trio.sleep(1)
        events = emitted(runtime, "JournalSalvaged")
        assert {event.path for event in events} == {f"topics/orders/{name}" for name in names}
        assert all("delivery/committed: it belongs to another log" in event.damage for event in events)
    assert (await verify_directory(world.disk)).ok
    async with world.open() as runtime:
        await trio.sleep(1)
        assert emitted(runtime, "JournalSalvaged") == []


@pytest.mark.parametrize("is_cut", [False, True])
async def test_opened_with_its_folder_exchanged_a_partition_gives_no_offset_again(
    autojump_clock: Any, world: Any, is_cut: bool
) -> None:
    """Its own records are not there, which is reported until accepted, and it begins above all that it can have had."""
    folder = await fill(world)
    exchange(world, folder, ("T/0", "T/1"))
    if is_cut:
        world.disk.fail_next(Unlink, "EIO", path_contains=f"{folder}/0/0")
        async with world.open() as runtime:
            await trio.sleep(0.5)
    for _ in range(2):
        async with world.open() as runtime:
            topic = runtime.topic("orders")
            for partition in (0, 1):
                assert (await topic.publish(b"new", partition=partition)).offset > 2**40
                assert "holds another log, and its own is not there" in str(
                    (await topic.describe())[partition].damages
                )
    assert (await verify_directory(world.disk)).ok


class Diary(callboard.DurableActor[Any, list[Any]]):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    async def receive(self, message: Any) -> list[Any]:
        if message is not None:
            await self.persist(message)
        return self.entries

    def apply(self, event: Any) -> None:
        self.entries.append(event)


async def fill_diary(world: Any, entry: Any) -> tuple[str, str]:
    """Four messages, of which a group has settled two, and an actor that has kept `entry`. Returns the folders of the
    delivery journal and of the actor's.
    """
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"0", b"1", b"2", b"3"])
        async with topic.subscribe("group") as consumer:
            for _ in range(2):
                await (await consumer.get()).ack()
        await (await runtime.spawn(Diary, name="diary")).ask(entry)
    return f"topics/{topic.topic_id}/0/delivery", "actors/user/diary"


async def left_of(world: Any) -> tuple[list[int], list[Any]]:
    """The offsets that the group gets, without settling them, and what the actor has kept."""
    async with world.open() as runtime:
        offsets: list[int] = []
        async with runtime.topic("orders").subscribe("group") as consumer:
            with trio.move_on_after(1):
                while True:
                    offsets.append((await consumer.get()).offset)
        return offsets, await (await runtime.spawn(Diary, name="diary")).ask(None)


ENTRIES = [3, "text", {"kind": "meal"}]
"""The delivery journal cannot parse the first; the others seem to be of a newer version."""


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
@pytest.mark.parametrize("way", ["folders", "segments"])
async def test_an_actors_journal_in_the_place_of_a_delivery_journal_is_moved_back(
    autojump_clock: Any, world: Any, way: str, entry: Any
) -> None:
    """Opening and verify say whose it is, opening changes neither, and the repair that it names costs nothing."""
    own, other = await fill_diary(world, entry)
    name = "" if way == "folders" else f"/{0:020}.log"
    exchange(world, own, (own + name, other + name))
    before = {path: data for path, data in world.disk.files().items() if path.startswith((own, other))}
    async with world.open() as runtime:
        with pytest.raises(
            callboard.PartitionUnavailable, match=f"holds the log of {other}.*callboard repair"
        ):
            async with runtime.topic("orders").subscribe("group") as consumer:
                await consumer.get()
        with pytest.raises(callboard.ActorStopped, match=f"holds the log of {own}.*callboard repair"):
            await runtime.spawn(Diary, name="diary")
    assert {
        path: data for path, data in world.disk.files().items() if path.startswith((own, other))
    } == before
    told = [each.message for each in (await verify_directory(world.disk)).problems if each.kind == "stray"]
    for owner in (own, other):
        assert f"the file is no part of the log: it belongs to another log, {owner}" in told
    report = await repair_directory(world.disk)
    assert (report.lost, report.quarantined, report.left) == ((), (), ())
    assert (await verify_directory(world.disk)).ok
    assert await left_of(world) == ([2, 3], [entry])


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
async def test_a_copy_of_an_actors_journal_in_the_place_of_a_delivery_journal_goes_to_quarantine(
    autojump_clock: Any, world: Any, entry: Any
) -> None:
    """By the repair that opening names; then all that the partition holds is delivered again."""
    own, other = await fill_diary(world, entry)
    files = world.disk.files()
    for path in [path for path in files if path.startswith(f"{own}/")]:
        world.disk.tree.unlink(path)
    for path in [path for path in files if path.startswith(f"{other}/")]:
        world.put(path.replace(other, own), files[path])
    async with world.open() as runtime:
        with pytest.raises(
            callboard.PartitionUnavailable, match=f"holds the log of {other}.*callboard repair"
        ):
            async with runtime.topic("orders").subscribe("group") as consumer:
                await consumer.get()
    assert not (await verify_directory(world.disk)).ok
    report = await repair_directory(world.disk)
    assert len(report.quarantined) == 1
    assert (await verify_directory(world.disk)).ok
    assert await left_of(world) == ([0, 1, 2, 3], [entry])
