"""The catalog crashes at every step of creating and deleting: what it had begun is finished, nothing is in the way."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

import callboard
from callboard.log.seams.disk import Sync, Unlink

STEPS = range(0, 120, 3)


async def crash_during(runtime: Any, steps: int, operation: Any, *args: Any) -> None:
    """Crash the catalog after so many turns of the event loop of `operation`, and let it come back."""
    async with trio.open_nursery() as nursery:

        async def operate() -> None:
            try:
                await operation(*args)
            except (callboard.ActorCrashed, callboard.TopicNotFound, callboard.GroupNotFound) as error:
                assert (
                    isinstance(error, callboard.TopicNotFound | callboard.GroupNotFound) or error.indefinite
                )

        nursery.start_soon(operate)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        runtime.crash("catalog", RuntimeError("a drill"))
    await trio.sleep(60)


@pytest.mark.parametrize("verb", ["create_topic", "delete_topic"])
async def test_the_catalog_crashes_at_a_topic(autojump_clock: Any, world: Any, verb: str) -> None:
    """A topic is whole or gone, and can be created, used and deleted again at once."""
    async with world.open() as runtime:
        for steps in STEPS:
            if verb == "delete_topic":
                await runtime.create_topic("orders", partitions=2)
            await crash_during(runtime, steps, getattr(runtime, verb), "orders")
            topic = await runtime.create_topic("orders")
            await topic.publish(b"%d" % steps)
            assert [record.value async for record in topic.read()] == [b"%d" % steps]
            await runtime.delete_topic("orders")
            assert world.segments() == []


async def test_the_catalog_crashes_at_a_group(autojump_clock: Any, world: Any) -> None:
    """Subscribing and deleting a group, broken off anywhere, leave a group that can be read and deleted."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")

        async def subscribe() -> None:
            async with topic.subscribe("group"):
                pass

        for steps in STEPS:
            await crash_during(runtime, steps, subscribe)
            await crash_during(runtime, steps, runtime.group("group").delete)
            async with topic.subscribe("group") as consumer:
                async with consumer.receive(timeout=1.0) as message:
                    assert message is None or message.value == b"one"
            await runtime.group("group").delete()
            assert await runtime.groups() == ()


async def test_a_catalog_that_is_gone_is_not_made_anew(autojump_clock: Any, world: Any) -> None:
    """Topics without a catalog are refused by name and stay as they are; with it they are there again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
    catalog = {path: data for path, data in world.disk.files().items() if path.startswith("catalog/")}
    drill = await world.disk.incarnate("drill")
    await drill.submit(tuple(Unlink(path) for path in catalog))
    for _ in range(2):
        with pytest.raises(callboard.LogCorrupt, match="catalog"):
            async with world.open():
                pass
    for path, data in catalog.items():
        world.put(path, data)
    async with world.open() as runtime:
        assert await world.values(runtime) == {0: b"one"}


@pytest.mark.parametrize(("code", "times"), [(errno.EIO, 1), (errno.ENOSPC, 4), (errno.EDQUOT, 4)])
async def test_a_topic_that_is_in_the_page_cache_only_is_not_launched(
    autojump_clock: Any, world: Any, code: int, times: int
) -> None:
    """A catalog whose decision could not be synced stores it anew before it launches the topic; then power may fail."""
    async with world.open() as runtime:
        world.disk.fail_next(Sync, OSError(errno.EIO, "no"), path_contains="catalog")
        with pytest.raises(callboard.StorageError):
            await runtime.create_topic("orders")
    world.disk.fail_next(Sync, OSError(code, "no"), path_contains="catalog", times=times)
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
        world.disk.crash()
    async with world.open() as runtime:
        assert [record.value async for record in runtime.topic("orders").read()] == [b"one"]


async def test_a_journal_whose_name_is_not_synced_takes_nothing(autojump_clock: Any, world: Any) -> None:
    """Its directory could not be synced, first for an error, then for lack of space: it is written anew first."""
    for error in ("EIO", "ENOSPC"):
        world.disk.fail_next("sync_directory", error, path_contains="catalog", after=1)

    async def create(runtime: Any) -> None:
        await runtime.create_topic("orders")

    await world.live(create)
    async with world.open() as runtime:
        assert [topic.name for topic in runtime.topics()] == ["orders"]
