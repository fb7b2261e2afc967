"""The catalog is older than the folders of its topics: what it does not know of is served, and reported."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import CatalogDamaged
from callboard.cli.journals import content_problems
from callboard.log.offline.repair import repair_directory
from callboard.log.seams.disk import Create, Sync
from callboard.log.segments.damage_record import decode
from callboard.offline import OfflineDirectory


def below(world: Any, folder: str) -> dict[str, bytes]:
    """All files below a folder."""
    return {path: data for path, data in world.disk.files().items() if path.startswith(f"{folder}/")}


def reported(runtime: Any) -> list[str]:
    """What the catalog reported."""
    return [logged.event.damage for logged in runtime.events() if isinstance(logged.event, CatalogDamaged)]


async def nameless(world: Any, place: Any) -> list[str]:
    """The folders that verify does not find in the catalog."""
    for path, data in world.disk.files().items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    async with OfflineDirectory(str(place)) as offline:
        return [problem.path for problem in await content_problems(offline) if problem.kind == "nameless"]


async def make(world: Any) -> tuple[str, dict[str, bytes]]:
    """A topic of which messages are delayed, and whose acks publish; its id, and the catalog from before that."""
    async with world.open() as runtime:
        jobs = await world.topic_of(runtime, 2)
        await runtime.create_topic("taken")
    older = below(world, "catalog")
    async with world.doomed() as runtime:
        jobs = runtime.topic("jobs")
        await jobs.publish(b"later", delay=60)
        async with jobs.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.publish("taken", b"by ack", delay=60)
            await message.ack()
        await trio.sleep(1)
    return jobs.topic_id, older


async def test_what_an_older_catalog_does_not_know_of_is_served(
    autojump_clock: Any, world: Any, tmp_path: Any
) -> None:
    """Delayed messages, and what acks have published, come to their topics, and the loss is reported until it is
    accepted.
    """
    topic_id, older = await make(world)
    for path in below(world, "catalog"):
        world.disk.tree.unlink(path)
    for path, data in older.items():
        world.put(path, data)
    folders = [f"topics/{topic_id}/delayed-0", f"topics/{topic_id}/outbox-0"]
    assert set(folders) < set(await nameless(world, tmp_path))
    for _ in range(2):
        async with world.open() as runtime:
            told = str(reported(runtime))
            assert all(folder in told for folder in folders)
            assert folders[0] in str((await runtime.stats()).catalog.damages)
            await trio.sleep(100)
            values = [record.value async for record in runtime.topic("jobs").read()]
            assert values == [b"0", b"1", b"later"]
            assert [record.value async for record in runtime.topic("taken").read()] == [b"by ack"]
    await repair_directory(world.disk, accept=True)
    async with world.open() as runtime:
        assert reported(runtime) == []
        assert not (await runtime.stats()).catalog.damages


async def older_catalog(world: Any) -> str:
    """A closed directory with an older copy of its catalog; the folder of delayed messages that it does not know of."""
    topic_id, older = await make(world)
    for path in below(world, "catalog"):
        world.disk.tree.unlink(path)
    for path, data in older.items():
        world.put(path, data)
    return f"topics/{topic_id}/delayed-0"


async def test_a_loss_that_the_disk_did_not_record_is_recorded_at_closing(
    autojump_clock: Any, world: Any
) -> None:
    """It can be accepted then as it was reported, and is not reported again."""
    folder = await older_catalog(world)
    world.disk.fail_next(Create, "EIO", path_contains="catalog/damages")
    async with world.open() as runtime:
        assert folder in str(reported(runtime))
    assert folder in str(decode(world.disk.file("catalog/damages")))
    await repair_directory(world.disk, accept=True)
    async with world.open() as runtime:
        assert reported(runtime) == []


async def test_a_loss_that_the_disk_did_not_record_outlives_a_snapshot(
    autojump_clock: Any, world: Any
) -> None:
    """A snapshot of the catalog knows the folder; that it had not known it is recorded before."""
    folder = await older_catalog(world)
    world.disk.fail_next(Create, "EIO", path_contains="catalog/damages")
    async with world.doomed() as runtime:
        assert folder in str(reported(runtime))
        world.disk.fail_next(Sync, "EIO", path_contains="catalog/0")
        with pytest.raises(callboard.StorageError):
            await runtime.create_topic("refused")
        await runtime.create_topic("healed")
    async with world.open() as runtime:
        assert folder in str(reported(runtime))


@pytest.mark.parametrize("kind", ["delayed-0", "outbox-0"])
async def test_a_copy_of_another_topics_folder_is_not_served(
    autojump_clock: Any, world: Any, tmp_path: Any, kind: str
) -> None:
    """The topic in whose folder it lies has no delayed messages and no outbox by it."""
    topic_id, _ = await make(world)
    async with world.open() as runtime:
        other = runtime.topic("taken").topic_id
    for path, data in below(world, f"topics/{topic_id}/{kind}").items():
        world.put(
            path.replace(topic_id, other).replace(kind, "delayed-0" if kind == "outbox-0" else "outbox-0"),
            data,
        )
    async with world.open() as runtime:
        assert reported(runtime) == []
        assert "taken" not in {each.topic for each in (await runtime.stats()).outbox}
