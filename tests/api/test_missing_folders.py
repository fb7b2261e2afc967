"""A folder of a topic is gone with all that was in it: opening, verify, repair and the statistics say so, and no offset
is given twice."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import DamageFound, JournalSalvaged
from callboard.cli.journals import content_problems
from callboard.log.offline.repair import repair_directory
from callboard.offline import OfflineDirectory


async def fill(world: Any) -> str:
    """Ten messages, of which a group has settled nine, one that is delayed, and what an ack has published."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        await topic.publish(b"later", delay=3600)
        await runtime.create_topic("other")
        async with topic.subscribe("readers") as consumer:
            for _ in range(9):
                message = await consumer.get()
                await message.publish("other", b"by ack")
                await message.ack()
        await trio.sleep(1)
        return topic.topic_id


def remove(world: Any, folder: str) -> None:
    """Remove what is in the folder, and in those below."""
    found = [path for path in world.disk.paths() if path.startswith(f"{folder}/")]
    assert found
    for path in found:
        world.disk.tree.unlink(path)


def emitted(runtime: Any, kind: type) -> list[Any]:
    return [logged.event for logged in runtime.events() if isinstance(logged.event, kind)]


async def missing(world: Any, folder: Any) -> list[str]:
    """The folders that verify and repair call missing."""
    for path, data in world.disk.files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    async with OfflineDirectory(str(folder)) as offline:
        return [problem.path for problem in await content_problems(offline) if problem.kind == "missing"]


@pytest.mark.parametrize("gone", ["", "/0"])
async def test_a_partition_whose_folder_is_gone_begins_anew_above_all_its_offsets(
    autojump_clock: Any, world: Any, tmp_path: Any, gone: str
) -> None:
    """The loss is reported at each opening until it is accepted, and no offset is given again."""
    topic_id = await fill(world)
    remove(world, f"topics/{topic_id}{gone}")
    assert f"topics/{topic_id}/0" in await missing(world, tmp_path)
    offsets = [9]
    for is_first in (True, False):
        async with world.open() as runtime:
            topic = runtime.topic("jobs")
            offsets.append((await topic.publish(b"new", partition=0)).offset)
            assert offsets[-1] > offsets[-2]
            (statistics,) = await topic.describe()
            assert "folder of the log is gone" in statistics.damages[0]
            assert bool(emitted(runtime, JournalSalvaged)) == is_first
            told = [event for event in emitted(runtime, DamageFound) if event.path == "topics/jobs/0"]
            assert [event.is_new for event in told] == [is_first]
            assert [record.value async for record in topic.read()] == [b"new"] * (len(offsets) - 1)
    assert offsets[1] > 2**40
    await repair_directory(world.disk, accept=True)
    async with world.open() as runtime:
        (statistics,) = await runtime.topic("jobs").describe()
        assert statistics.damages == ()


@pytest.mark.parametrize(("beside", "name"), [("delayed", "delayed-0"), ("outbox", "outbox-0")])
async def test_what_is_beside_a_partition_is_missed_too(
    autojump_clock: Any, world: Any, tmp_path: Any, beside: str, name: str
) -> None:
    """Delayed messages, and what acks have published, are not lost without a word with their folder."""
    topic_id = await fill(world)
    path = f"topics/{topic_id}/{name}"
    remove(world, path)
    assert await missing(world, tmp_path) == [path]
    async with world.open() as runtime:
        await trio.sleep(1)
        (statistics,) = [each for each in getattr(await runtime.stats(), beside) if each.topic == "jobs"]
        assert "folder of the log is gone" in str(statistics.damages)
        assert [event.path for event in emitted(runtime, DamageFound)] == [f"topics/jobs/{name}"]


@pytest.mark.parametrize("folder", ["0", "delayed-0", "outbox-0"])
async def test_a_delivery_journal_is_missed_with_its_folder(
    autojump_clock: Any, world: Any, tmp_path: Any, folder: str
) -> None:
    """That what was settled comes again is said."""
    topic_id = await fill(world)
    path = f"topics/{topic_id}/{folder}/delivery"
    remove(world, path)
    assert await missing(world, tmp_path) == [path]
    async with world.open() as runtime:
        await trio.sleep(1)
        (event,) = emitted(runtime, JournalSalvaged)
        assert "its folder is gone" in str(event)
        assert (await runtime.topic("jobs").publish(b"new", partition=0)).offset == 10
    async with world.open() as runtime:
        await trio.sleep(1)
        assert emitted(runtime, JournalSalvaged) == []


async def test_a_topic_whose_folders_were_never_made_is_not_missed(autojump_clock: Any, world: Any) -> None:
    """A crash between the decision and the first file of a topic leaves a topic that begins as any new one."""
    world.disk.fill(0)
    async with world.open() as runtime:
        with pytest.raises(callboard.DiskFull):
            await runtime.create_topic("jobs")
    world.disk.free()
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        assert (await topic.publish(b"first", partition=0)).offset == 0
        assert emitted(runtime, DamageFound) == []


@pytest.mark.parametrize("folder", ["catalog", "topics/*/0/delivery"])
async def test_a_blank_file_beside_a_journal_takes_nothing(
    autojump_clock: Any, world: Any, folder: str
) -> None:
    """What the whole segment before it says is kept: all topics and groups, and all that was settled."""
    topic_id = await fill(world)
    path = folder.replace("*", topic_id)
    world.disk.plant_file(f"{path}/{6:020d}.log", b"")
    async with world.open() as runtime:
        assert {topic.name for topic in runtime.topics()} == {"jobs", "other"}
        assert [group.name for group in await runtime.groups()] == ["readers"]
        assert emitted(runtime, JournalSalvaged) == []
        async with runtime.topic("jobs").subscribe("readers") as consumer:
            assert (await consumer.get()).offset == 9
