"""Dead letters that are forwarded to a topic, as users meet them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.clients.calls import PartitionCalls
from callboard.actors.forwarding import waiting_records


async def reject_all(topic: Any, group: str = "billing", **settings: Any) -> None:
    """A consumer that gives up on everything."""
    async with topic.subscribe(group, **settings) as consumer:
        while (message := await consumer.get(timeout=0.2)) is not None:
            await message.reject(reason=f"no {message.value.decode()}")


async def records(topic: Any) -> list[Any]:
    """All that a topic holds."""
    return [record async for record in topic.read()]


async def test_dead_letters_go_to_the_topic_that_the_group_names(autojump_clock: Any, world: Any) -> None:
    """As they were published, in the order of failure, with what is known of the failure; the partition keeps none."""
    async with world.open() as runtime:
        await runtime.create_topic("orders.dlq")
        orders = await runtime.create_topic("orders", priorities=True)
        await orders.publish(b"a", key=b"k", headers={"type": "order"}, priority=7)
        await orders.publish_batch([b"b", b"c"])
        async with orders.subscribe("billing", dead_letter_topic="orders.dlq", max_deliveries=2) as consumer:
            found = {}
            for _ in range(3):
                message = await consumer.get()
                found[message.value] = message
            await found[b"c"].reject(reason="broken")
            await found[b"a"].reject(reason="of no use")
            await found[b"b"].nack(delay=0)
            again = await consumer.get()
            await again.nack(delay=0, reason="twice")
        await trio.sleep(1)
        stored = await records(runtime.topic("orders.dlq"))
        assert [record.value for record in stored] == [b"c", b"a", b"b"]
        assert stored[1].key == b"k"
        headers = stored[1].headers
        failed_at = headers.pop("callboard-failed-at")
        assert failed_at.endswith(b"+00:00")
        assert headers.pop("callboard-first-failed-at") == failed_at
        consumer = headers.pop("callboard-consumer")
        assert consumer.isdigit()
        assert headers.pop("callboard-consumers") == consumer
        assert headers == {
            "type": b"order",
            "callboard-topic": b"orders",
            "callboard-partition": b"0",
            "callboard-offset": b"0",
            "callboard-group": b"billing",
            "callboard-number": b"1",
            "callboard-attempts": b"1",
            "callboard-reason": b"of no use",
        }
        originals = await records(orders)
        assert stored[1].timestamp == originals[0].timestamp
        assert [record.headers["callboard-attempts"] for record in stored] == [b"1", b"1", b"2"]
        group = (await orders.describe())[0].groups[0]
        assert (group.dead, group.dead_lettered, group.pending) == (0, 3, 0)


async def test_names_of_consumers_are_told(autojump_clock: Any, world: Any) -> None:
    """While the consumer is a member."""
    async with world.open() as runtime:
        dead = await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish(b"a")
        async with orders.subscribe("billing", name="clerk", dead_letter_topic="dead") as consumer:
            await (await consumer.get()).reject(reason="x")
            await trio.sleep(1)
            assert (await records(dead))[0].headers["callboard-consumer"] == b"clerk"


async def test_dead_letters_of_before_are_forwarded_when_a_topic_is_named(
    autojump_clock: Any, world: Any
) -> None:
    """Also those of another process: `Group.alter` is enough."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=3)
        await orders.publish_batch(
            [b"%d" % number for number in range(9)], keys=[b"%d" % n for n in range(9)]
        )
        await reject_all(orders)
        assert len(await orders.dead_letters("billing").list()) == 9
    async with world.open() as runtime:
        dead = await runtime.create_topic("dead", partitions=2)
        await runtime.group("billing").alter(dead_letter_topic="dead")
        await trio.sleep(1)
        assert sorted(record.value for record in await records(dead)) == [b"%d" % n for n in range(9)]
        assert await runtime.topic("orders").dead_letters("billing").list() == ()
    async with world.open() as runtime:
        await trio.sleep(5)
        assert len(await records(runtime.topic("dead"))) == 9


async def test_a_full_target_holds_dead_letters_where_they_are(autojump_clock: Any, world: Any) -> None:
    """They are forwarded when there is room again; nothing is lost, nothing else dies, and an event tells."""
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        dead = await runtime.create_topic("dead", segment_bytes=65_536, retention_bytes=65_536)
        await dead.publish_batch([bytes(1000)] * 64)
        async with dead.subscribe("reader"):
            pass
        await dead.publish_batch([bytes(1000)] * 64)
        with pytest.raises(callboard.TopicFull):
            await dead.publish(b"no room")
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"a", b"b"])
        await reject_all(orders, dead_letter_topic="dead")
        await trio.sleep(5)
        assert [letter.reason for letter in await orders.dead_letters("billing").list()] == ["no a", "no b"]
        assert [event.topic for event in events if isinstance(event, callboard.events.DeadLettersHeld)] == [
            "dead"
        ]
        await runtime.group("reader").delete()
        await trio.sleep(60)
        assert await orders.dead_letters("billing").list() == ()
        assert [record.value for record in await records(dead)][-2:] == [b"a", b"b"]


async def test_a_target_that_was_deleted_holds_them_too(autojump_clock: Any, world: Any) -> None:
    """Until there is one of the name again, or the group names another."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish(b"a")
        async with orders.subscribe("billing", dead_letter_topic="dead"):
            pass
        await runtime.delete_topic("dead")
        await reject_all(orders)
        await trio.sleep(5)
        assert len(await orders.dead_letters("billing").list()) == 1
        other = await runtime.create_topic("other")
        await runtime.group("billing").alter(dead_letter_topic="other")
        await trio.sleep(40)
        assert [record.value for record in await records(other)] == [b"a"]


async def test_a_target_that_is_deleted_under_way_holds_them_too(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic goes while it is about to take a dead letter; another of its name takes it."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish(b"a")
        store, deleted = PartitionCalls.store, []

        async def delete_first(router: Any, target: Any, batch: Any, *given: Any) -> None:
            if not deleted:
                deleted.append(target)
                await runtime.delete_topic("dead")
            await store(router, target, batch, *given)

        monkeypatch.setattr(PartitionCalls, "store", delete_first)
        await reject_all(orders, dead_letter_topic="dead")
        assert deleted
        assert len(await orders.dead_letters("billing").list()) == 1
        dead = await runtime.create_topic("dead")
        await trio.sleep(60)
        assert [record.value for record in await records(dead)] == [b"a"]
        assert await orders.dead_letters("billing").list() == ()


async def test_large_messages_are_forwarded_a_few_at_a_time(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, none has to be in memory with all others."""
    monkeypatch.setattr(waiting_records, "BYTES_AT_A_TIME", 2500)
    counts = []
    store = PartitionCalls.store

    async def count(router: Any, target: Any, batch: Any, *given: Any) -> None:
        counts.append(batch.count)
        await store(router, target, batch, *given)

    monkeypatch.setattr(PartitionCalls, "store", count)
    async with world.open() as runtime:
        dead = await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        values = [b"%d" % number * 1000 for number in range(7)]
        await orders.publish_batch([*values, bytes(5000)])
        await reject_all(orders)
        await runtime.group("billing").alter(dead_letter_topic="dead")
        await trio.sleep(1)
        assert counts == [3, 3, 2]
        assert [record.value for record in await records(dead)] == [*values, bytes(5000)]


async def test_wrong_topics_are_refused(autojump_clock: Any, world: Any) -> None:
    """One that is not there, one that the group reads, and circles; nothing is changed."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        dead = await runtime.create_topic("dead")
        for topic, words in (
            ("missing", "there is no such topic"),
            ("orders", "come to itself"),
            ("a/b", "no name"),
        ):
            with pytest.raises(callboard.ConfigurationError, match=words):
                async with orders.subscribe("billing", dead_letter_topic=topic):
                    pass
        async with orders.subscribe("billing", dead_letter_topic="dead"):
            pass
        with pytest.raises(callboard.ConfigurationError, match="takes the dead letters of another group"):
            async with dead.subscribe("repair", dead_letter_topic="orders"):
                pass
        async with dead.subscribe("repair"):
            pass
        with pytest.raises(callboard.ConfigurationError, match="takes the dead letters of another group"):
            await runtime.group("repair").alter(dead_letter_topic="orders")
        with pytest.raises(callboard.ConfigurationError, match="come to itself"):
            await runtime.group("billing").alter(dead_letter_topic="orders")
        with pytest.raises(callboard.ConfigurationError, match="come to itself"):
            async with runtime.subscribe(["orders", "dead"], "billing"):
                pass


async def test_the_router_is_there_when_it_is_needed(autojump_clock: Any, world: Any) -> None:
    """It stands in the tree from the first group on that names a topic."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("dead")
        assert "dead-letters" not in [node.name for node in runtime.tree().children]
        async with orders.subscribe("billing", dead_letter_topic="dead"):
            assert "dead-letters" in [node.name for node in runtime.tree().children]


async def test_headers_that_are_named_like_ours_come_back(autojump_clock: Any, world: Any) -> None:
    """Only those that forwarding itself adds are left out of what is redriven: a schedule's, say, are the message's."""
    own = {"callboard-own": b"1", "callboard-schedule": b"nightly"}
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish(b"a", headers=own)
        async with orders.subscribe("billing", dead_letter_topic="dead") as consumer:
            for _ in range(2):
                await (await consumer.get()).reject(reason="x")
                await trio.sleep(1)
                (letter,) = await runtime.dead_letters("dead").list()
                assert {name: letter.record.headers[name] for name in own} == own
                await runtime.dead_letters("dead").redrive()
            message = await consumer.get()
            assert {
                name: value for name, value in message.headers.items() if name != "callboard-for-group"
            } == own
            await message.ack()
