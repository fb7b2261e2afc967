"""A folder has the name of a small file beside the segments."""

from __future__ import annotations

from typing import Any

import pytest

import callboard
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory

INDEX = "00000000000000000000.index"
SEGMENT = "00000000000000000000.log"
FILES = ["committed", "damages", INDEX, "delivery/committed", "delivery/publishers", "catalog"]


@pytest.mark.parametrize("name", FILES)
async def test_a_folder_in_place_of_a_small_file_is_reported_and_set_aside(
    autojump_clock: Any, world: Any, name: str
) -> None:
    """Verify names it, repair moves it to quarantine with all that is in it, and every message is served after."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=1, dedup_window=3600)
        for number in range(3):
            await topic.publish(b"message", dedup_id=f"id {number}")
    path = "catalog/committed" if name == "catalog" else f"topics/{topic.topic_id}/0/{name}"
    if path in world.disk.files():
        world.disk.tree.unlink(path)
    world.put(f"{path}/kept", b"content")
    found = [each for each in (await verify_directory(world.disk)).problems if each.kind == "folder"]
    assert [each.path for each in found] == [path]
    assert "is a folder" in found[0].message
    assert (await repair_directory(world.disk, dry_run=True)).quarantined == ()
    quarantined = (await repair_directory(world.disk)).quarantined
    assert len(quarantined) == 1
    assert world.disk.file(f"{quarantined[0]}/kept") == b"content"
    await repair_directory(world.disk)
    assert all(each.kind == "publishers" for each in (await verify_directory(world.disk)).problems)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert [message.value async for message in topic.read()] == [b"message"] * 3
        assert (await topic.publish(b"message", dedup_id="id 1")).offset == 1
    assert (await verify_directory(world.disk)).ok


@pytest.mark.parametrize("name", [*FILES, "catalog/log", "delivery/log", "committed.new"])
async def test_what_cannot_be_opened_for_a_folder_is_reported_in_words(
    autojump_clock: Any, world: Any, name: str
) -> None:
    """Opening the directory or its partition, and reading it beside, name the folder and what to do about it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=1, dedup_window=3600)
        await topic.publish(b"message", dedup_id="id")
    folder = f"topics/{topic.topic_id}/0"
    path = (
        f"catalog/{'committed' if name == 'catalog' else SEGMENT}"
        if "catalog" in name
        else f"{folder}/{name}"
    )
    path = path.replace("/log", f"/{SEGMENT}")
    if path in world.disk.files():
        world.disk.tree.unlink(path)
    world.put(f"{path}/kept", b"content")
    told: list[callboard.CallboardError] = []
    try:
        async with world.open() as runtime:
            await runtime.topic("orders").publish(b"more")
    except callboard.CallboardError as error:
        told.append(error)
    try:
        await (await LogReader.open(await world.disk.incarnate("reader"), folder)).read(0)
    except callboard.CallboardError as error:
        told.append(error)
    if name in ("delivery/committed", "delivery/log"):  # opening repairs the journal
        assert told == []
        assert any(each.endswith("/kept") for each in world.disk.files() if each.startswith("quarantine/"))
        return
    if name not in ("committed.new", "catalog/log"):
        assert told
        assert all("is a folder" in str(error) and "callboard repair" in str(error) for error in told)
    assert not any("plan" in str(error) for error in told)
    assert path in [
        each.path for each in (await verify_directory(world.disk)).problems if each.kind == "folder"
    ]


@pytest.mark.parametrize("below", ["", "delivery/"])
@pytest.mark.parametrize("count", [0, 2])
async def test_a_folder_in_place_of_a_segment_is_reported_and_set_aside(
    autojump_clock: Any, world: Any, below: str, count: int
) -> None:
    """Also where the log had nothing yet: repair moves it to quarantine, and the partition serves again."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, count)
        if count:
            async with topic.subscribe("group") as consumer:
                await (await consumer.get()).ack()
    path = f"topics/{topic.topic_id}/0/{below}{SEGMENT}"
    world.disk.tree.unlink(path)
    world.put(f"{path}/kept", b"content")
    problems = (await verify_directory(world.disk)).problems
    assert path in [each.path for each in problems if each.kind == "folder"]
    assert len((await repair_directory(world.disk)).quarantined) == 1
    assert (await verify_directory(world.disk)).ok
    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        assert (await topic.publish(b"more", partition=0)).offset == count
        assert b"more" in [message.value async for message in topic.read()]
