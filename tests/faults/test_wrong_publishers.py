"""A partition finds a record of publishers that is another partition's, or an older copy of its own."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.notices import PublishersLost
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import SyncDirectory, Unlink

COUNT = 40
KEPT = 65_536
"""The smallest segment, and the smallest of what retention keeps: some fifteen of these messages."""


async def publish(topic: Any, numbers: range, partition: int = 0) -> list[int | None]:
    """Publish a message for each number under an id; returns the offsets of their receipts."""
    values = [b"%d" % number + b"x" * 4000 for number in numbers]
    receipts = [
        await topic.publish(value, dedup_id=f"id {number}", partition=partition)
        for number, value in zip(numbers, values, strict=True)
    ]
    return [receipt.offset for receipt in receipts]


def lost(runtime: Any) -> list[str]:
    """The partitions that reported that they lost their record of publishers."""
    return [logged.event.path for logged in runtime.events() if isinstance(logged.event, PublishersLost)]


async def judged(disk: Any) -> tuple[set[str], set[str]]:
    """What verify, and what repair, say of records of publishers: the files."""
    problems, left = (await verify_directory(disk)).problems, (await repair_directory(disk)).left
    return {each.path for each in problems if each.kind == "publishers"}, {each.path for each in left}


@pytest.mark.parametrize("is_copied", [True, False], ids=["copied", "exchanged"])
async def test_a_record_of_publishers_of_another_partition_is_not_believed(
    autojump_clock: Any, world: Any, is_copied: bool
) -> None:
    """What the log holds is read instead, so ids are known; opening, verify and repair report the file."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2, dedup_window=3600)
        for partition in (0, 1):
            await publish(topic, range(partition * COUNT, (partition + 1) * COUNT), partition)
        places = [f"topics/{topic.topic_id}/{partition}/delivery/publishers" for partition in (0, 1)]
    stored = [world.disk.file(path) for path in places]
    world.put(places[1], stored[0])
    if not is_copied:
        world.put(places[0], stored[1])
    wrong = {places[1]} if is_copied else set(places)
    assert await judged(world.disk) == (wrong, wrong)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        for partition in (0, 1):
            again = await publish(topic, range(partition * COUNT, (partition + 1) * COUNT), partition)
            assert again == list(range(COUNT))
        assert len(lost(runtime)) == len(wrong)
        damaged = [each.partition for each in await topic.describe() if each.damages]
        assert damaged == ([1] if is_copied else [0, 1])
    assert await judged(world.disk) == (set(), set())


async def test_an_older_copy_that_does_not_know_what_retention_has_dropped_is_reported(
    autojump_clock: Any, world: Any
) -> None:
    """What it lacks nobody knows any more; what it knows, and what the log still holds, is known."""
    async with world.open() as runtime:
        topic = await runtime.create_topic(
            "orders", dedup_window=3600, segment_bytes=KEPT, retention_bytes=KEPT
        )
        await publish(topic, range(5))
        path = f"topics/{topic.topic_id}/0/delivery/publishers"
    older = world.disk.file(path)
    async with world.open() as runtime:
        await publish(runtime.topic("orders"), range(5, 3 * COUNT))
        (before,) = await runtime.topic("orders").describe()
        assert before.start_offset > COUNT
    world.put(path, older)
    assert await judged(world.disk) == ({path}, {path})
    for is_first in (True, False):
        async with world.open() as runtime:
            topic = runtime.topic("orders")
            assert await publish(topic, range(5)) == list(range(5))
            assert await publish(topic, range(3 * COUNT - 5, 3 * COUNT)) == list(
                range(3 * COUNT - 5, 3 * COUNT)
            )
            assert lost(runtime) == (["topics/orders/0"] if is_first else [])
            (statistics,) = await topic.describe()
            assert "older copy" in str(statistics.damages)
    assert await judged(world.disk) == (set(), set())


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "without header"])
async def test_repair_tells_of_a_record_that_ends_before_the_repaired_log(
    autojump_clock: Any, world: Any, is_gone: bool
) -> None:
    """The log begins behind what is lost: a dry run and the repair say what verify finds behind them."""
    async with world.doomed() as runtime:
        topic = await runtime.create_topic("orders", dedup_window=3600, segment_bytes=KEPT)
        await publish(topic, range(COUNT))
        path = f"topics/{topic.topic_id}/0/delivery/publishers"
    first, *later = world.segments()
    assert later
    if is_gone:
        files = await world.disk.incarnate("drill")
        folder = first.rpartition("/")[0]
        await files.submit((*map(Unlink, (first, *later)), SyncDirectory(folder)))
    else:
        world.put(first, bytes(8192) + world.disk.file(first)[8192:])
        index = first.removesuffix(".log") + ".index"
        if index in world.disk.files():
            world.put(index, b"")
    planned = await repair_directory(world.disk, dry_run=True)
    done = await repair_directory(world.disk)
    assert [each.path for each in planned.left] == [each.path for each in done.left] == [path]
    assert await judged(world.disk) == ({path}, {path})
    async with world.open() as runtime:
        await runtime.topic("orders").publish(b"", dedup_id="new")
        assert lost(runtime) == ["topics/orders/0"]
    assert await judged(world.disk) == (set(), set())
