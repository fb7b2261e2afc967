"""A log finds the file `committed` of another one."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.log.format.committed import HAD_PUBLISHERS, HAS_START, decode_committed, encode_committed
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory


async def fill(world: Any) -> str:
    """Publish 2 messages to partition 0, and 200 to partition 1; returns the topic's folder."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition, count in enumerate((2, 200)):
            for number in range(count):
                await topic.publish(b"%d" % number, partition=partition)
    return f"topics/{topic.topic_id}"


@pytest.mark.parametrize("is_repaired", [False, True])
@pytest.mark.parametrize("name", ["0", "0/delivery", "catalog"])
async def test_a_committed_file_of_another_log_is_not_believed(
    autojump_clock: Any, world: Any, name: str, is_repaired: bool
) -> None:
    """No record seems lost, everything is served, and verify reports the file until it is made again."""
    folder = await fill(world)
    path = "catalog/committed" if name == "catalog" else f"{folder}/{name}/committed"
    world.put(path, world.disk.file(f"{folder}/1/committed"))
    problems = (await verify_directory(world.disk)).problems
    assert [(each.path, each.kind, each.first_offset) for each in problems] == [(path, "committed", None)]
    assert "belongs to another log" in problems[0].message
    if is_repaired:
        assert (await repair_directory(world.disk)).lost == ()
        assert (await verify_directory(world.disk)).ok
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        assert (await topic.publish(b"2", partition=0)).offset == 2
        statistics = (await topic.describe())[0]
        assert statistics.lost_records == 0
        assert ("another log" in str(statistics.damages)) is (name == "0" and not is_repaired)
    assert (await verify_directory(world.disk)).ok


async def test_a_committed_file_that_names_no_log_is_believed(autojump_clock: Any, world: Any) -> None:
    """Earlier versions wrote none."""
    path = f"{await fill(world)}/0/committed"
    stored = world.disk.file(path)
    ends = decode_committed(stored)
    unnamed = ends.marks & (HAS_START | HAD_PUBLISHERS)
    assert unnamed != ends.marks
    slots = encode_committed(ends.visible_end, ends.durable_end, unnamed, ends.start)
    world.put(path, slots + stored[len(slots) :])
    assert (await verify_directory(world.disk)).ok
    async with world.open() as runtime:
        assert (await runtime.topic("orders").describe())[0].damages == ()
    assert decode_committed(world.disk.file(path)).marks == ends.marks
