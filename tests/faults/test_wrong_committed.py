"""A log finds the file `committed` of another one."""

from __future__ import annotations

from typing import Any

import pytest

import callboard
from callboard.log.format.committed import HAD_PUBLISHERS, HAS_START, decode_committed, encode_committed
from callboard.log.offline.reader import LogReader
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
        assert ("another log" in str(statistics.damages)) is (name != "catalog" and not is_repaired)
        lost = str((await runtime.stats()).catalog.damages)
        assert ("another log" in lost) is (name == "catalog" and not is_repaired)
    assert (await verify_directory(world.disk)).ok


@pytest.mark.parametrize("way", ["foreign", "removed"])
async def test_readers_without_the_lock_do_not_guess_how_far_a_log_reaches(
    autojump_clock: Any, world: Any, way: str
) -> None:
    """They refuse where its file `committed` is another log's or is gone, until an opening, or repair, makes it anew;
    both and verify report it, and no record is lost.
    """
    folder = f"{await fill(world)}/1"
    path, snapshot = f"{folder}/committed", world.disk.snapshot()
    for is_repaired in (False, True):
        world.disk.restore(snapshot)
        snapshot = world.disk.snapshot()
        if way == "removed":
            world.disk.tree.unlink(path)
        else:
            world.put(path, world.disk.file(f"{folder[:-1]}0/committed"))
        with pytest.raises(callboard.LogCorrupt, match=r"is not known.*callboard repair"):
            await LogReader.open(await world.disk.incarnate("reader"), folder)
        problems = (await verify_directory(world.disk)).problems
        assert [(each.path, each.kind) for each in problems] == [(path, "committed")]
        if is_repaired:
            assert (await repair_directory(world.disk)).lost == ()
        async with world.open() as runtime:
            statistics = (await runtime.topic("orders").describe())[1]
            assert statistics.lost_records == 0
            assert [path in str(each) for each in statistics.damages] == [True] * (not is_repaired)
        assert (await verify_directory(world.disk)).ok
        reader = await LogReader.open(await world.disk.incarnate("reader"), folder)
        assert reader.visible_end == 200


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
