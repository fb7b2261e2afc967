"""The folders of two partitions have exchanged their names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import callboard
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Rename


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
