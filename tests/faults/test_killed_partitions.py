"""Partition actors that crash, a thousand times and too often."""

from __future__ import annotations

import itertools
import random
from typing import Any

import attrs
import pytest
import trio

import callboard

CRASHES = 1000


class Drill(Exception):
    """What the partition is made to crash with."""


@attrs.define
class Load:
    """One topic under load, and what its users were told."""

    name: str
    draw: random.Random
    over: trio.Event
    stored: dict[int, bytes] = attrs.Factory(dict)
    acked: dict[int, bytes] = attrs.Factory(dict)
    delivered: set[int] = attrs.Factory(set)

    async def publish(self, topic: Any, who: int) -> None:
        """Publish until it is over; an indefinite error is no promise."""
        number = 0
        while not self.over.is_set():
            value = b"%d/%d" % (who, number)
            number += 1
            try:
                receipt = await topic.publish(value, acks="all" if who else "leader")
            except callboard.ActorCrashed as error:
                assert error.indefinite
            else:
                assert self.stored.setdefault(receipt.offset, value) == value
            await trio.sleep(self.draw.uniform(0.0, 2.4))

    async def consume(self, topic: Any) -> None:
        """Consume and ack; what was acked is not seen again."""
        async with topic.subscribe("group") as consumer:
            async for message in consumer:
                assert message.offset not in self.acked
                self.delivered.add(message.offset)
                try:
                    await message.ack()
                except (callboard.ActorCrashed, callboard.LeaseLost):
                    # Lost: the ack of an earlier delivery took effect, and its crash kept that from being told.
                    continue
                self.acked[message.offset] = message.value

    async def read(self, topic: Any) -> None:
        """Follow the log: every offset, in order."""
        expected = 0
        async for record in topic.read(follow=True):
            assert record.offset == expected
            expected += 1

    async def check(self, world: Any, runtime: Any) -> None:
        """All promises held, nothing left to do."""
        log = await world.values(runtime, self.name)
        assert {offset: log.get(offset) for offset in self.stored} == self.stored
        assert {offset: log.get(offset) for offset in self.acked} == self.acked
        assert self.delivered == set(log)
        (part,) = await runtime.topic(self.name).describe()
        assert part.groups[0].pending == 0


@pytest.mark.parametrize(("topics", "seed"), [(10, 1), pytest.param(1, 2, marks=pytest.mark.slow)])
async def test_a_thousand_crashes_under_load_break_no_promise(
    autojump_clock: Any, world: Any, topics: int, seed: int
) -> None:
    """While publishing, consuming and reading go on: no record is lost, none acked comes again, offsets hold."""
    draw, over = random.Random(seed), trio.Event()
    world.disk.latency_s = 0.002
    loads = [Load(f"topic-{number}", random.Random(number), over) for number in range(topics)]
    async with world.open() as runtime, trio.open_nursery() as nursery:
        for load in loads:
            topic = await runtime.create_topic(load.name)
            for who in range(2):
                nursery.start_soon(load.publish, topic, who)
                nursery.start_soon(load.consume, topic)
            nursery.start_soon(load.read, topic)
        for number in range(CRASHES):
            await trio.sleep(draw.uniform(0.52, 0.6) / topics)
            runtime.crash(f"topics/{loads[number % topics].name}/0", Drill(str(number)))
        over.set()
        await trio.sleep(120.0)
        nodes = [node for node in runtime.tree().walk() if node.path.endswith("/0")]
        assert [node.state for node in nodes] == ["running"] * topics
        assert sum(node.restarts for node in nodes) == CRASHES
        for load in loads:
            await load.check(world, runtime)
        nursery.cancel_scope.cancel()
    assert sum(len(load.stored) for load in loads) > CRASHES // 4
    async with world.open() as runtime:
        for load in loads:
            assert await world.drain(runtime, load.name) == {}
            await load.check(world, runtime)


async def crash_until_failed(runtime: Any, path: str) -> None:
    """Crash an actor again and again, as soon as it runs."""
    for number in range(1000):
        node = next(node for node in runtime.tree().walk() if node.path == path)
        if node.state == "failed":
            return
        if node.state == "running":
            runtime.crash(path, Drill(str(number)))
        await trio.sleep(0.01)
    raise AssertionError(f"{path} never failed")


async def test_a_partition_that_crashes_too_often_is_failed_until_restarted(
    autojump_clock: Any, world: Any
) -> None:
    """Its publishers and readers hear PartitionUnavailable, the others go on; an explicit restart revives it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        other = await runtime.create_topic("other")
        for partition in range(2):
            await topic.publish(b"before", partition=partition)
        async with topic.subscribe("group") as consumer:
            await crash_until_failed(runtime, "topics/orders/1")
            with pytest.raises(callboard.PartitionUnavailable) as caught:
                await topic.publish(b"refused", partition=1)
            assert (caught.value.state, caught.value.partition) == ("failed", 1)
            assert "restart" in str(caught.value)
            with pytest.raises(callboard.PartitionUnavailable):
                await topic.publish(b"refused", partition=1, acks="none")
            with pytest.raises(callboard.PartitionUnavailable):
                async for _ in topic.read(partition=1):
                    pass
            assert [part.state for part in await topic.describe()] == ["running", "failed"]
            await topic.publish(b"goes on", partition=0)
            await other.publish(b"goes on")
            found = [await consumer.get(timeout=1.0) for _ in range(3)]
            assert [message and message.value for message in found] == [b"before", b"goes on", None]
            await runtime.restart("topics/orders/1")
            receipt = await topic.publish(b"revived", partition=1)
            assert receipt.offset == 1
            found = [await consumer.get(timeout=1.0) for _ in range(2)]
            assert [message and message.value for message in found] == [b"before", b"revived"]
    async with world.open() as runtime:
        assert [part.visible_end for part in await runtime.topic("orders").describe()] == [2, 2]


async def test_what_waits_at_a_failing_partition_is_answered(autojump_clock: Any, world: Any) -> None:
    """Publishes and flushes that are under way when it fails for good hear an error; nobody hangs."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        stored: dict[int, bytes] = {}
        outcomes: list[callboard.CallboardError] = []

        async def publish(who: int) -> None:
            for number in itertools.count():
                value = b"%d/%d" % (who, number)
                stored[(await topic.publish(value)).offset] = value

        async def flush(_: int) -> None:
            while True:
                await topic.flush()

        async def until_unavailable(operation: Any, who: int) -> None:
            while not outcomes or not isinstance(outcomes[-1], callboard.PartitionUnavailable):
                try:
                    await operation(who)
                except callboard.CallboardError as error:
                    outcomes.append(error)

        world.disk.latency_s = 0.003
        async with trio.open_nursery() as nursery:
            for who in range(10):
                nursery.start_soon(until_unavailable, publish, who)
            nursery.start_soon(until_unavailable, flush, 0)
            await trio.sleep(0.1)
            await crash_until_failed(runtime, "topics/orders/0")
        assert {type(error) for error in outcomes} <= {callboard.ActorCrashed, callboard.PartitionUnavailable}
        await runtime.restart("topics/orders/0")
        stored[(await topic.publish(b"revived")).offset] = b"revived"
        log = await world.values(runtime)
        assert {offset: log.get(offset) for offset in stored} == stored


@pytest.mark.parametrize("path", ["catalog", "groups/group"])
async def test_other_actors_crash_and_come_back(autojump_clock: Any, world: Any, path: str) -> None:
    """A crash of the catalog or a coordinator costs nobody anything but time."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"0", b"1"])
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            async with consumer.receive() as message:
                runtime.crash(path, Drill())
                await trio.sleep(60.0)
            assert message.offset == 0
            await runtime.create_topic("another")
            async with topic.subscribe("group") as second:
                message = await second.get()
                assert message.offset == 1
                await message.ack()
    async with world.open() as runtime:
        assert await world.drain(runtime) == {}
