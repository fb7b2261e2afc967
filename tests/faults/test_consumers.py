"""Consumers that never ack, that raise, that are slow: others are not harmed, and nothing is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio

from callboard.log.limits import Limits

TIMEOUT = 10.0


async def test_what_a_consumer_never_acks_goes_to_the_others(autojump_clock: Any, world: Any) -> None:
    """Its leases run out and others do the work; each message is done in the end."""
    done: set[int] = set()
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(100)])

        async def works() -> None:
            async with topic.subscribe("group", visibility_timeout=TIMEOUT) as consumer:
                async for message in consumer:
                    await trio.sleep(0.1)
                    await message.ack()
                    done.add(message.offset)

        async with (
            topic.subscribe("group", visibility_timeout=TIMEOUT) as never_acks,
            trio.open_nursery() as nursery,
        ):
            taken = [(await never_acks.get()).offset for _ in range(30)]
            nursery.start_soon(works)
            await trio.sleep(TIMEOUT - 1)
            assert done.isdisjoint(taken)
            await trio.sleep(60.0)
            assert done == set(range(100))
            nursery.cancel_scope.cancel()
        (part,) = await topic.describe()
        assert part.groups[0].pending == 0
        assert part.groups[0].expired >= len(taken)


async def test_a_consumer_that_never_acks_stops_at_its_limit(autojump_clock: Any, world: Any) -> None:
    """`max_in_flight` bounds what it holds; publishing and other groups do not notice."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(100)])
        async with topic.subscribe("stuck", visibility_timeout=TIMEOUT, max_in_flight=7) as consumer:
            held = [await consumer.get() for _ in range(7)]
            assert await consumer.get(timeout=TIMEOUT / 2) is None
            (part,) = await topic.describe()
            assert part.groups[0].leased == 7
            await topic.publish(b"100")
            assert len(await world.drain(runtime, group="other")) == 101
            await held[3].ack()
            message = await consumer.get(timeout=1.0)
            assert message is not None


async def test_a_body_that_raises_gets_its_message_again_later_each_time(
    autojump_clock: Any, world: Any
) -> None:
    """Backoff grows up to its maximum; others' messages are not held up meanwhile."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"poison", b"good", b"good"])
        moments: list[float] = []
        good = 0
        async with topic.subscribe("group", backoff=1.0, max_backoff=8.0) as consumer:
            while len(moments) < 6:
                try:
                    async with consumer.receive() as message:
                        if message.value == b"poison":
                            moments.append(trio.current_time())
                            assert message.attempt == len(moments)
                            raise ValueError("poison")
                        good += 1
                        assert len(moments) == 1
                except ValueError:
                    continue
        assert good == 2
        delays = [later - earlier for earlier, later in itertools.pairwise(moments)]
        assert all(delay <= 8.0 + 1.0 for delay in delays)
        assert delays[0] < delays[-1]


async def test_a_slow_iteration_does_not_sit_on_messages_that_others_could_do(
    autojump_clock: Any, world: Any
) -> None:
    """One who takes a minute for each message leaves the rest to one who is quick."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(300)])
        counts = {"slow": 0, "quick": 0}

        async def work(name: str, seconds: float) -> None:
            async with topic.subscribe("group", visibility_timeout=300.0) as consumer:
                async for message in consumer:
                    await trio.sleep(seconds)
                    await message.ack()
                    counts[name] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, "slow", 60.0)
            nursery.start_soon(work, "quick", 0.01)
            await trio.sleep(100.0)
            (part,) = await topic.describe()
            assert part.groups[0].pending <= 2
            nursery.cancel_scope.cancel()
        assert counts["quick"] >= 290


async def test_a_stalled_group_does_not_stop_publishing_or_memory(autojump_clock: Any, world: Any) -> None:
    """A consumer that holds a message for ever costs the partition ranges, not messages."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"held")
        async with topic.subscribe("group", visibility_timeout=10**6) as consumer:
            held = await consumer.get()
            for _ in range(20):
                await topic.publish_batch([b"x"] * 1000)
            done = 0
            async for batch in consumer.batches(max_records=1000, max_wait=0.0):
                await batch.ack()
                done += len(batch)
                if done == 20_000:
                    break
            (part,) = await topic.describe()
            assert (part.groups[0].floor, part.groups[0].pending) == (0, 1)
            await held.ack()
            (part,) = await topic.describe()
            assert part.groups[0].floor == 20_001


async def test_a_consumers_exception_comes_out_as_itself(autojump_clock: Any, world: Any) -> None:
    """What the body of `subscribe` raises is not wrapped in a group, and its leases are released at once."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        with pytest.raises(KeyError):
            async with topic.subscribe("group", visibility_timeout=10**6) as consumer:
                await consumer.get()
                raise KeyError("mine")
        async with topic.subscribe("group") as consumer:
            message = await consumer.get(timeout=1.0)
            assert message is not None
            assert message.attempt == 1


async def test_a_clock_that_was_set_back_while_the_runtime_was_down_makes_no_delay_longer(
    autojump_clock: Any, world: Any
) -> None:
    """The delay of a nack is kept as wall time, and counted from when it was written if that is still to come."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).nack(delay=10.0)
    world.clock.shift(-5000.0)
    async with world.open() as runtime:
        async with runtime.topic("orders").subscribe("group") as consumer:
            assert await consumer.get(timeout=9.0) is None
            message = await consumer.get(timeout=2.0)
            assert message.attempt == 2


async def test_a_lease_that_runs_out_while_its_records_are_read_is_no_message(
    autojump_clock: Any, world: Any
) -> None:
    """On a slow disk a lease may be over before its records are there: its consumer gets them by the next one."""
    async with world.open(limits=Limits(fetch_bytes=1, tail_cache_bytes=1)) as runtime:
        topic = await runtime.create_topic("orders")
        for number in range(4):
            await topic.publish(b"%d" % number)
        async with topic.subscribe("group", visibility_timeout=0.5) as consumer:
            first = await consumer.get()
            await first.ack()
            world.disk.cold = True
            world.disk.latency_s = 0.4
            found = []
            with trio.move_on_after(5.0):
                found.append((await consumer.get()).offset)
            world.disk.latency_s = 0.0
            while len(found) < 3:
                message = await consumer.get()
                found.append(message.offset)
                await message.ack()
        assert sorted(set(found)) == [1, 2, 3]


async def test_what_a_cancelled_fetch_leased_comes_before_what_follows_it(
    autojump_clock: Any, world: Any
) -> None:
    """A consumer whose `get(timeout=)` ran out on a slow disk goes on with the message that it was about to get."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group") as consumer:
            for number in range(6):
                await topic.publish(b"%d" % number)
            world.disk.latency_s = 0.15
            assert await consumer.get(timeout=0.1) is None
            world.disk.latency_s = 0.0
            found = [(await consumer.get()).offset for _ in range(6)]
        assert found == list(range(6))
