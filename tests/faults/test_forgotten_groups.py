"""The catalog is an older copy: partitions know groups that it does not know, and whose ids it gives away again."""

from __future__ import annotations

from typing import Any

import pytest
import trio


@pytest.mark.parametrize("is_waited", [True, False], ids=["later", "at once"])
async def test_a_new_group_does_not_take_the_place_of_a_forgotten_one(
    autojump_clock: Any, world: Any, is_waited: bool
) -> None:
    """It gets every message, and goes on from where it was itself in the lives to come."""
    async with world.open() as runtime:
        await world.topic_of(runtime, 10)
    older = {path: data for path, data in world.disk.files().items() if path.startswith("catalog/")}
    async with world.open() as runtime:
        jobs = runtime.topic("jobs")
        async with jobs.subscribe("forgotten") as consumer:
            for _ in range(7):
                await (await consumer.get()).ack()
            await (await consumer.get()).reject()
    await trio.sleep(1)
    for path in [path for path in world.disk.files() if path.startswith("catalog/")]:
        world.disk.tree.unlink(path)
    for path, data in older.items():
        world.put(path, data)
    async with world.doomed() as runtime:
        jobs = runtime.topic("jobs")
        if is_waited:
            await jobs.describe()
        async with jobs.subscribe("new") as consumer:
            found = set()
            while (message := await consumer.get(timeout=1)) is not None:
                found.add(message.value)
            assert found == {b"%d" % number for number in range(10)}
            assert await jobs.dead_letters("new").list() == ()
    async with world.doomed() as runtime, runtime.topic("jobs").subscribe("new") as consumer:
        for _ in range(4):
            await (await consumer.get()).ack()
    async with world.open() as runtime:
        assert list(await world.drain(runtime, "jobs", "new")) == list(range(4, 10))
