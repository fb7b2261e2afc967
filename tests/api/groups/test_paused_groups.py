"""Groups that are paused: nothing is handed over, and nothing is lost."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio


async def nothing(consumer: Any, seconds: float = 5.0) -> bool:
    """Whether the consumer gets no message for that long."""
    return await consumer.get(timeout=seconds) is None


async def test_a_paused_group_is_handed_nothing_until_it_is_resumed(autojump_clock: Any, world: Any) -> None:
    """Also what was fetched ahead is not handed over: it is given back, and counts no attempt."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        async with topic.subscribe("group") as consumer:
            first = await consumer.get()
            await runtime.group("group").pause()
            assert await nothing(consumer)
            place = await world.group_of(topic)
            assert (place.is_paused, place.leased, place.ready, place.pending) == (True, 1, 9, 10)
            await first.ack()
            await runtime.group("group").resume()
            rest = [await consumer.get(timeout=5.0) for _ in range(9)]
            assert [message.attempt for message in rest] == [1] * 9
            for message in rest:
                await message.ack()
        assert (await world.group_of(topic)).pending == 0


async def test_a_consumer_that_waits_goes_on_when_its_group_is_resumed(
    autojump_clock: Any, world: Any
) -> None:
    """Without a message being published, and without a timeout."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        async with topic.subscribe("group") as consumer:
            await runtime.group("group").pause()
            await topic.publish(b"tea")
            with trio.fail_after(5.0):
                async with trio.open_nursery() as nursery:

                    async def take() -> None:
                        assert (await consumer.get()).value == b"tea"

                    nursery.start_soon(take)
                    await trio.sleep(1.0)
                    await runtime.group("group").resume()


async def test_what_consumers_hold_can_be_settled_and_renewed_meanwhile(
    autojump_clock: Any, world: Any
) -> None:
    """A body of `receive` runs to its end, however long that takes; a nack's delay runs, and does not hand over."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group", visibility_timeout=2.0, retry=1.0) as consumer:
            async with consumer.receive():
                failed, extended = await consumer.get(), await consumer.get()
                await runtime.group("group").pause()
                await failed.nack()
                await extended.extend(30.0)
                await trio.sleep(10.0)  # the lease of the body is renewed
                await extended.ack()
            place = await world.group_of(topic)
            assert (place.pending, place.leased, place.ready) == (1, 0, 1)
            assert await nothing(consumer)
            await runtime.group("group").resume()
            again = await consumer.get(timeout=1.0)
            assert (again.offset, again.attempt) == (failed.offset, 2)


async def test_every_way_to_consume_stands_still(autojump_clock: Any, world: Any) -> None:
    """Batches, mixed batches, iterating, `work`; and each goes on by itself."""
    handled: list[str] = []

    async def taking(topic: Any, way: str, group: str) -> None:
        async with topic.subscribe(group) as consumer:
            if way == "iterating":
                async for message in consumer:
                    handled.append(way)
                    await message.ack()
            async for batch in consumer.batches(mixed=way == "mixed", max_records=2):
                handled.extend([way] * len(batch))
                await batch.ack()

    async def working(topic: Any) -> None:
        async def handle(message: Any) -> None:
            handled.append("work")

        await topic.work(handle, group="work", concurrency=2)

    ways = ("iterating", "batches", "mixed", "work")
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0, partitions=2)
        async with trio.open_nursery() as nursery:
            for way in ways[:-1]:
                nursery.start_soon(taking, topic, way, way)
            nursery.start_soon(working, topic)
            await trio.sleep(1.0)
            for way in ways:
                await runtime.group(way).pause()
            for partition in (0, 1):
                await topic.publish_batch([b"tea"] * 5, partition=partition)
            await trio.sleep(60.0)
            assert handled == []
            for way in ways:
                await runtime.group(way).resume()
            await trio.sleep(5.0)
            nursery.cancel_scope.cancel()
        assert sorted(handled) == sorted(way for way in ways for _ in range(10))


async def test_handlers_that_run_end_and_no_further_one_begins(autojump_clock: Any, world: Any) -> None:
    """What `work` had fetched ahead is given back."""
    begun: list[int] = []
    ended: list[int] = []

    async def handle(message: Any) -> None:
        begun.append(message.offset)
        await trio.sleep(3.0)
        ended.append(message.offset)

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                await topic.work(handle, group="group", concurrency=2)

            nursery.start_soon(work)
            await trio.sleep(0.5)
            await runtime.group("group").pause()
            await trio.sleep(20.0)
            assert (begun, sorted(ended)) == ([0, 1], [0, 1])
            place = await world.group_of(topic)
            assert (place.pending, place.ready, place.leased) == (8, 8, 0)
            await runtime.group("group").resume()
            await trio.sleep(20.0)
            assert sorted(ended) == list(range(10))
            nursery.cancel_scope.cancel()


async def test_a_group_stays_paused_over_restarts(autojump_clock: Any, world: Any) -> None:
    """Of a partition, of the coordinator, of the catalog, and of the process."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group") as consumer:
            await runtime.group("group").pause()
            for path in (f"topics/{topic.name}/0", "groups/group", "catalog"):
                assert runtime.crash(path, RuntimeError("a drill"))
                assert await nothing(consumer)
                assert consumer.settings.paused
            async with topic.subscribe("group") as another:
                assert await nothing(another)
    async with world.open() as runtime:
        async with runtime.topic(topic.name).subscribe("group") as consumer:
            assert await nothing(consumer)
            await runtime.group("group").resume()
            assert await consumer.get(timeout=1.0) is not None


@pytest.mark.parametrize("is_down", ["failed", "hung"])
async def test_a_partition_that_is_down_leases_nothing_when_it_runs(
    autojump_clock: Any, world: Any, is_down: str
) -> None:
    """Pausing does not wait for it for long."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2)
        path = f"topics/{topic.name}/0"
        async with topic.subscribe("group") as consumer:
            if is_down == "failed":
                while (await topic.describe())[0].state != "failed":
                    runtime.crash(path, RuntimeError("a drill"))
                    await trio.sleep(0.26)
            else:
                world.disk.hang(f"{topic.topic_id}/0")
                runtime.crash(path, RuntimeError("a drill"))
            with trio.fail_after(6.0):
                await runtime.group("group").pause()
            world.disk.unhang()
            if is_down == "failed":
                await runtime.restart(path)
            assert await nothing(consumer)
            await runtime.group("group").resume()
            assert await consumer.get(timeout=5.0) is not None


async def test_partitions_of_a_paused_exclusive_group_still_change_owners(
    autojump_clock: Any, world: Any
) -> None:
    """A member that leaves is replaced, none is stalled for letting messages wait, and the new owner gets them then."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 4)
        group = runtime.group("group")
        async with AsyncExitStack() as stack:
            async with topic.subscribe("group", mode="exclusive", session_timeout=10.0) as one:
                await one.get()
                await group.pause()
                two = await stack.enter_async_context(topic.subscribe("group", mode="exclusive"))
                await trio.sleep(60.0)
                (info,) = await runtime.groups()
                assert info.stalled_members == 0
                assert one.assigned == (("jobs", 0),)
            await trio.sleep(1.0)
            assert two.assigned == (("jobs", 0),)
            assert await nothing(two)
            await group.resume()
            assert (await two.get(timeout=1.0)).offset == 0
