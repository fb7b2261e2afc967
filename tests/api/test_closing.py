"""What closing a runtime leaves behind, also when a partition has just crashed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import callboard
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


class Broken(logging.Handler):
    """A handler of the program's that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError("my handler is broken")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Callboard's, whose handlers are put back as they were."""
    found = logging.getLogger("callboard")
    handlers, propagates = found.handlers[:], found.propagate
    found.propagate = False
    yield found
    found.handlers[:], found.propagate = handlers, propagates


@pytest.mark.parametrize("fails", [False, True])
async def test_a_logging_handler_that_raises_while_closing(tmp_path: Any, logger: Any, fails: bool) -> None:
    """The directory is free again, and what comes out is what the body raised, if it did."""

    async def handle(message: Any) -> None:
        raise ValueError("no")

    async def live() -> None:
        async with callboard.open_runtime(tmp_path) as runtime:
            orders = await runtime.create_topic("orders")
            await orders.publish_batch([b"order"] * 30)
            with trio.move_on_after(0.5):
                await orders.work(handle, "billing", retry=0.01, concurrency=8)  # more lines than are logged
            logger.addHandler(Broken())
            if fails:
                raise LookupError("the body's own")

    if fails:
        with pytest.raises(LookupError, match="the body's own"):
            await live()
    else:
        await live()
    async with callboard.open_runtime(tmp_path):
        pass
