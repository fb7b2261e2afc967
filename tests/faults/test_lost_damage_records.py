"""The file in which a partition, or the catalog, remembers what it has lost is gone."""

from __future__ import annotations

from typing import Any

import pytest

import callboard
from callboard.log.format.committed import NOTED_AT
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.seams.disk import Create
from callboard.log.segments.damage_record import GONE, OLD, UNREADABLE, decode, encode


async def damaged(world: Any) -> str:
    """A closed topic of one partition whose third frame is damaged, which an opening has noted; its folder."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=1)
        for _ in range(5):
            await topic.publish(bytes(1000))
    folder = f"topics/{topic.topic_id}/0"
    world.disk.flip(f"{folder}/{0:020}.log", 2800)
    await read_all(world)
    assert f"{folder}/damages" in world.disk.files()
    return folder


async def read_all(world: Any) -> callboard.statistics.PartitionStatistics:
    """Open, read the topic to its end, and close; returns what its partition says of itself."""
    async with world.open() as runtime:
        assert len([message async for message in runtime.topic("orders").read()]) == 4
        return (await runtime.stats()).partitions[0]


async def test_damage_that_the_disk_did_not_record_is_recorded_at_closing(
    autojump_clock: Any, world: Any
) -> None:
    """A partition that could not write down what it found does so when it is closed."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=1)
        for _ in range(5):
            await topic.publish(bytes(1000))
    folder = f"topics/{topic.topic_id}/0"
    world.disk.flip(f"{folder}/{0:020}.log", 2800)
    world.disk.fail_next(Create, "EIO", path_contains=f"{folder}/damages", times=100)
    async with world.open() as runtime:
        assert len([message async for message in runtime.topic("orders").read()]) == 4
        world.disk.heal()
    assert [entry.damage.first_offset for entry in decode(world.disk.file(f"{folder}/damages"))] == [2]


def spoil(world: Any, path: str, how: str) -> None:
    """Remove the record of damage, put an older copy of it back, or make it unreadable."""
    entries = decode(world.disk.file(path))
    world.disk.tree.unlink(path)
    if how != GONE:
        world.put(path, encode(entries[:-1]) if how == OLD else b"noise")


@pytest.mark.parametrize("how", [GONE, OLD, UNREADABLE])
async def test_a_record_of_damage_that_is_gone_is_reported_everywhere(
    autojump_clock: Any, world: Any, how: str
) -> None:
    """Verify, repair, opening and the statistics report it alike, until it is accepted."""
    folder = await damaged(world)
    path = f"{folder}/damages"
    spoil(world, path, how)
    found = [each for each in (await verify_directory(world.disk)).problems if each.kind == "damages"]
    assert [each.path for each in found] == [path]
    assert how in found[0].message
    planned = (await repair_directory(world.disk, dry_run=True)).actions
    assert [(each.path, each.kind) for each in planned if each.kind == "damages"] == [(path, "damages")]
    for _ in range(2):
        assert any(how in damage for damage in (await read_all(world)).damages)
    await repair_directory(world.disk, accept=True)
    assert (await read_all(world)).damages == ()


@pytest.mark.parametrize("how", [GONE, OLD, UNREADABLE])
async def test_repair_makes_a_lost_record_of_damage_anew(autojump_clock: Any, world: Any, how: str) -> None:
    """It says what it did; the directory is sound then, and opening still reports what is gone."""
    folder = await damaged(world)
    await repair_directory(world.disk)
    spoil(world, f"{folder}/damages", how)
    actions = (await repair_directory(world.disk)).actions
    assert [(each.path, each.kind) for each in actions] == [(f"{folder}/damages", "damages")]
    assert (await verify_directory(world.disk)).ok
    assert (await repair_directory(world.disk)).actions == ()
    assert any(how in damage for damage in (await read_all(world)).damages)


async def test_the_catalog_reports_a_lost_record_of_damage(autojump_clock: Any, world: Any) -> None:
    """What the catalog had lost is known to be forgotten, as of a partition."""
    async with world.open() as runtime:
        await runtime.create_topic("first", partitions=1)
        await runtime.create_topic("second", partitions=1)
    world.disk.flip(f"catalog/{0:020}.log", 200)
    assert (await repair_directory(world.disk)).lost
    path = "catalog/damages"
    world.disk.tree.unlink(path)
    problems = (await verify_directory(world.disk)).problems
    assert (path, "damages") in [(each.path, each.kind) for each in problems]
    for _ in range(2):
        async with world.open() as runtime:
            assert any(GONE in damage for damage in (await runtime.stats()).catalog.damages)
    await repair_directory(world.disk, accept=True)
    assert (await verify_directory(world.disk)).ok


async def test_a_committed_file_that_says_nothing_may_count_damages(autojump_clock: Any, world: Any) -> None:
    """A repair that notes damage beside a `committed` file of zeros, as after a power loss, leaves nothing wrong."""
    async with world.open() as runtime:
        await runtime.create_topic("first", partitions=1)
        await runtime.create_topic("second", partitions=1)
    world.disk.flip(f"catalog/{0:020}.log", 200)
    world.disk.tree.unlink("catalog/committed")
    world.put("catalog/committed", bytes(64))
    assert (await repair_directory(world.disk)).lost
    assert any(world.disk.file("catalog/committed")[NOTED_AT:])
    assert (await verify_directory(world.disk)).ok


async def test_readers_take_a_committed_file_that_only_counts_damages_for_empty(
    autojump_clock: Any, world: Any
) -> None:
    """A log whose ends a power loss has left as zeros shows readers nothing, whatever its record of damage holds."""
    folder = await damaged(world)
    path = f"{folder}/committed"
    content = world.disk.file(path)
    world.disk.tree.unlink(path)
    world.put(path, bytes(NOTED_AT) + content[NOTED_AT:])
    reader = await LogReader.open(await world.disk.incarnate("reader"), folder)
    assert reader.visible_end == 0
    await reader.close()


@pytest.mark.parametrize("spoilt", ["gone", "garbage"])
async def test_a_record_of_damage_is_counted_again_in_a_new_committed_file(
    autojump_clock: Any, world: Any, spoilt: str
) -> None:
    """A `committed` file that is made anew says again that there is a record of damage."""
    folder = await damaged(world)
    path = f"{folder}/committed"
    content = bytearray(world.disk.file(path))
    assert len(content) > NOTED_AT
    world.disk.tree.unlink(path)
    if spoilt == "garbage":
        content[:64] = content[16384 : 16384 + 64] = b"\xff" * 64
        world.put(path, bytes(content))
    await read_all(world)
    world.disk.tree.unlink(f"{folder}/damages")
    assert any(GONE in damage for damage in (await read_all(world)).damages)


async def test_a_record_of_damage_of_an_earlier_version_is_counted(autojump_clock: Any, world: Any) -> None:
    """A directory whose `committed` file does not name it yet says nothing, until it was opened once."""
    folder = await damaged(world)
    path, damages = f"{folder}/committed", f"{folder}/damages"
    world.put(path, world.disk.file(path)[: 16384 + 32])
    stored = world.disk.file(damages)
    world.disk.tree.unlink(damages)
    assert (await verify_directory(world.disk)).ok is False  # the damage itself is there still
    assert not [each for each in (await verify_directory(world.disk)).problems if each.kind == "damages"]
    world.put(damages, stored)
    await read_all(world)
    world.disk.tree.unlink(damages)
    assert [each for each in (await verify_directory(world.disk)).problems if each.kind == "damages"]
