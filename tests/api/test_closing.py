"""What closing a runtime leaves behind, also when a partition has just crashed."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from callboard.log.limits import Limits
from callboard.simulations.disk.inodes import lose_unsynced


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_closing_releases_what_consumers_held(
    autojump_clock: Any, world: Any, is_cancelled: bool
) -> None:
    """What was leased when the runtime closed is delivered as attempt one, though its partition had just crashed."""
    with trio.CancelScope() as program:
        async with world.open() as runtime:
            topic = await world.topic_of(runtime, 20)
            with trio.CancelScope() as session:
                async with topic.subscribe("group") as consumer:
                    for _ in range(5):
                        await (await consumer.get()).ack(wait=False)
                    await consumer.flush()
                    runtime.crash("topics/jobs/0", RuntimeError("a drill"))
                    await trio.sleep(1e-6)
                    assert "waiting" in [node.state for node in runtime.tree().walk()]
                    (program if is_cancelled else session).cancel()
                    await trio.lowlevel.checkpoint()
    async with world.open() as runtime, runtime.topic("jobs").subscribe("group") as consumer:
        found = []
        while (message := await consumer.get(timeout=60.0)) is not None:
            found.append((message.offset, message.attempt))
            await message.ack()
        assert found == [(offset, 1) for offset in range(5, 20)]


@pytest.mark.parametrize("acks", ["leader", "none"])
async def test_closing_waits_for_a_partition_that_crashed(autojump_clock: Any, world: Any, acks: Any) -> None:
    """What was stored and not synced when the partition crashed is synced when the runtime has closed."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        await topic.publish(b"here", acks=acks)
        await trio.sleep(1.0)
        runtime.crash("topics/jobs/0", RuntimeError("a drill"))
        await trio.lowlevel.checkpoint()
    world.disk.crash(lose_unsynced)
    world.disk.power_on()
    async with world.open() as runtime:
        assert [record.value async for record in runtime.topic("jobs").read()] == [b"here"]


async def test_closing_waits_for_a_partition_that_crashed_with_a_full_mailbox(
    autojump_clock: Any, world: Any
) -> None:
    """What fills its mailbox meanwhile is stored too, and all of it is synced."""
    async with world.open(limits=Limits(partition_mailbox=1)) as runtime:
        topic = await world.topic_of(runtime, 0)
        await topic.publish(b"here", acks="leader")
        runtime.crash("topics/jobs/0", RuntimeError("a drill"))
        await trio.sleep(1e-6)
        await topic.publish(b"more", acks="none")
    world.disk.crash(lose_unsynced)
    world.disk.power_on()
    async with world.open() as runtime:
        assert [record.value async for record in runtime.topic("jobs").read()] == [b"here", b"more"]
