"""Ending a consumer's waiting without touching what is in hand; acks that are handed over."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.partition.commands import Flush
from callboard.log.errors import MailboxFull
from callboard.log.limits import Limits


async def pending(topic: Any) -> int:
    """How many messages the group has not settled."""
    found: int = (await topic.describe())[0].groups[0].pending
    return found


async def test_a_drain_ends_every_wait(autojump_clock: Any, world: Any) -> None:
    """`get` and `receive` raise, iterating ends; also in the tasks that wait, whatever they wait for."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        ended: list[str] = []
        async with topic.subscribe("billing") as consumer:

            async def receives() -> None:
                with pytest.raises(callboard.ConsumerDrained):
                    async with consumer.receive():
                        pass
                ended.append("receive")

            async def iterates() -> None:
                async for _ in consumer:
                    pass
                ended.append("iteration")

            async def takes_batches() -> None:
                async for _ in consumer.batches(max_records=10):
                    pass
                ended.append("batches")

            async with trio.open_nursery() as nursery:
                for wait in (receives, iterates, takes_batches):
                    nursery.start_soon(wait)
                await trio.sleep(1)
                consumer.drain()
            assert sorted(ended) == ["batches", "iteration", "receive"]
            with pytest.raises(callboard.ConsumerDrained, match="takes no further message"):
                await consumer.get(timeout=1)
            consumer.drain()


async def test_a_drain_touches_no_body(autojump_clock: Any, world: Any) -> None:
    """What runs goes on and is acked; what was fetched ahead is for others at once."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(40)])
        handled = []
        async with topic.subscribe("billing") as consumer, topic.subscribe("billing") as other:
            async for message in consumer:
                handled.append(message.value)
                await message.ack()
                if len(handled) == 20:
                    break
            async with consumer.receive() as message:
                consumer.drain()
                left = []
                while (found := await other.get(timeout=0.5)) is not None:
                    left.append(found.value)
                    await found.ack()
                await trio.sleep(60)
                handled.append(message.value)
        assert sorted(handled + left) == sorted(b"%d" % number for number in range(40))
        assert await pending(topic) == 0


async def test_a_drain_while_a_consumer_has_no_room(autojump_clock: Any, world: Any) -> None:
    """Who waits for room is woken too; what is held can be settled."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b"])
        async with topic.subscribe("billing", max_in_flight=1) as consumer:
            message = await consumer.get()
            async with trio.open_nursery() as nursery:

                async def waits() -> None:
                    with pytest.raises(callboard.ConsumerDrained):
                        await consumer.get()

                nursery.start_soon(waits)
                await trio.sleep(1)
                consumer.drain()
            await message.ack()
        assert await pending(topic) == 1


async def test_the_ack_of_a_body_that_ended_is_handed_over_although_it_is_cancelled(
    autojump_clock: Any, world: Any
) -> None:
    """A cancellation that comes while the body runs to its end takes effect after that: the message is settled."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b"])
        async with topic.subscribe("billing") as consumer:
            for waits in (True, False):
                with trio.CancelScope() as scope:
                    async with consumer.receive(wait=waits):
                        scope.cancel()
        assert await pending(topic) == 0


async def test_an_ack_need_not_be_waited_for(autojump_clock: Any, world: Any) -> None:
    """`receive(wait=False)`: leaving the consumer waits for all of them."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(100)])
        async with topic.subscribe("billing") as consumer:
            for _ in range(100):
                async with consumer.receive(wait=False) as message:
                    assert message.value is not None
        assert await pending(topic) == 0


@pytest.mark.parametrize("waits", [True, False])
async def test_a_full_mailbox_does_not_keep_the_ack_of_a_cancelled_body(
    autojump_clock: Any, world: Any, waits: bool
) -> None:
    """A body that ended normally is acked although its consumer is cancelled, and leaves, before there is room."""
    async with world.open(limits=Limits(partition_mailbox=2)) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b"])
        port = runtime._session.mirror.find("orders").ports[0]
        async with topic.subscribe("billing") as consumer:
            with trio.CancelScope() as scope:
                async with consumer.receive(wait=waits) as message:
                    assert message.value == b"a"
                    with pytest.raises(MailboxFull):
                        while True:
                            port.ref.tell_nowait(Flush())
                    scope.cancel()
            assert scope.cancelled_caught or not waits  # one that is not waited for may be gathered instead
            assert message.settled
        async with topic.subscribe("billing") as consumer:
            assert (await consumer.get()).value == b"b"
        async with topic.subscribe("billing") as consumer:
            other = await consumer.get()
            assert (other.value, other.attempt) == (b"b", 1)
        (group,) = (await topic.describe())[0].groups
        assert (group.floor, group.redelivered) == (1, 0)


async def test_an_ack_that_publishes_is_not_handed_over_without_its_publishes(
    autojump_clock: Any, world: Any
) -> None:
    """Who is cancelled before that is written has done neither."""
    async with world.open() as runtime:
        topic, other = await runtime.create_topic("orders"), await runtime.create_topic("other")
        await topic.publish(b"a")
        async with topic.subscribe("billing") as consumer:
            with trio.CancelScope() as scope:
                async with consumer.receive() as message:
                    await message.publish(other, b"b")
                    scope.cancel()
            assert not message.settled
        assert await pending(topic) == (await other.describe())[0].visible_end ^ 1


async def test_what_is_given_back_while_a_partition_has_failed_is_for_others_when_it_is_back(
    autojump_clock: Any, world: Any
) -> None:
    """At once, long before its lease would run out, and as if it had never been delivered."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(10)])
        async with topic.subscribe("billing", visibility_timeout=1000) as first:
            batch = await first.get_batch(max_records=2)
            await batch.release()
            assert (await first.get()).attempt == 1
            while (await topic.describe())[0].state != "failed":
                runtime.crash("topics/orders/0", RuntimeError("a drill"))
                await trio.sleep(0.26)
            first.drain()
            async with topic.subscribe("billing") as second:
                await runtime.restart("topics/orders/0")
                found = [await second.get(timeout=5) for _ in range(9)]
                assert [(message.value, message.attempt) for message in found if message is not None] == [
                    (b"%d" % number, 1) for number in range(1, 10)
                ]
