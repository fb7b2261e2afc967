"""Messages that expire in a group that wants to know, and what dead letters tell of their failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import trio

from callboard.log.limits import Limits


async def kept(topic: Any, group: str = "billing") -> list[tuple[int, int, str | None]]:
    """Offset, attempts and reason of the dead letters that partitions keep."""
    return [(each.offset, each.attempts, each.reason) for each in await topic.dead_letters(group).list()]


async def test_what_expires_is_a_dead_letter_where_the_group_asks(autojump_clock: Any, world: Any) -> None:
    """In the order of offsets, once, and only in that group; what has not expired is delivered."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"a", b"b", b"c", b"d"], ttls=[None, 5, 5, 50])
        await trio.sleep(6)
        for group, asks in (("billing", True), ("audit", False)):
            async with topic.subscribe(group, dead_letter_expired=asks) as consumer:
                assert [(await consumer.get()).value for _ in range(2)] == [b"a", b"d"]
                assert await consumer.get(timeout=1) is None
        assert await kept(topic) == [(1, 0, "expired"), (2, 0, "expired")]
        assert await kept(topic, "audit") == []
        (letter, _) = await topic.dead_letters("billing").list()
        assert (letter.first_failed_at, letter.consumer_id, letter.consumers) == (letter.failed_at, None, ())
        assert letter.record is not None
        assert letter.record.value == b"b"


async def test_thousands_that_expire_are_forwarded_and_nobody_waits(autojump_clock: Any, world: Any) -> None:
    """The first receive gives the valid message; all the others are in the dead-letter topic, once, in order."""
    async with world.open(limits=Limits(dead_letters=3)) as runtime:
        dead = await runtime.create_topic("dead")
        topic = await runtime.create_topic("orders")
        for first in range(0, 5000, 1000):
            await topic.publish_batch([b"%d" % n for n in range(first, first + 1000)], ttls=[5.0] * 1000)
        await topic.publish(b"valid")
        await trio.sleep(6)
        async with topic.subscribe("billing", dead_letter_expired=True, dead_letter_topic="dead") as consumer:
            message = await consumer.get(timeout=1)
            assert message.value == b"valid"
            await message.reject(reason="room is left for what fails")
        await trio.sleep(60)
        found = [record async for record in dead.read()]
        assert [record.value for record in found if record.value != b"valid"] == [
            b"%d" % n for n in range(5000)
        ]
        assert len(found) == 5001
        assert found[7].headers["callboard-reason"] == b"expired"
        assert found[7].headers["callboard-attempts"] == b"0"


async def test_without_room_for_more_the_group_waits_and_says_so(autojump_clock: Any, world: Any) -> None:
    """Nothing is lost, and it goes on when some are forgotten."""
    async with world.open(limits=Limits(dead_letters=2)) as runtime:
        topic = await runtime.create_topic("orders")
        values = [b"%d" % n for n in range(8)]
        await topic.publish_batch(values, ttls=[None, 5.0] * 4)
        await trio.sleep(6)
        letters = topic.dead_letters("billing")
        async with topic.subscribe("billing", dead_letter_expired=True, max_in_flight=1) as consumer:
            seen = []
            while (message := await consumer.get(timeout=3)) is not None:
                seen.append(message.value)
                await message.ack()
            assert seen == [b"0", b"2", b"4"]
            assert [each.offset for each in await letters.list()] == [1, 3]
            assert (await topic.describe())[0].groups[0].is_dead_full
            assert await letters.forget((await letters.list())[-1]) == 2
            message = await consumer.get(timeout=3)
            assert message.value == b"6"
            await message.ack()
            assert await consumer.get(timeout=90) is None
            assert [each.offset for each in await letters.list()] == [5, 7]
            assert [each.number for each in await letters.list(limit=1)] == [2]


async def test_what_expires_before_anybody_consumes_is_kept_too(autojump_clock: Any, world: Any) -> None:
    """Also when the directory was closed meanwhile, and a group is not used again: its setting is known."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", default_ttl=5)
        async with topic.subscribe("billing", dead_letter_expired=True):
            pass
        await topic.publish_batch([b"a", b"b"])
    async with world.open() as runtime:
        await trio.sleep(70)
        topic = runtime.topic("orders")
        assert await kept(topic) == [(0, 0, "expired"), (1, 0, "expired")]
        assert (await topic.describe())[0].groups[0].expired_records == 2
        await runtime.group("billing").alter(dead_letter_expired=False)
        await topic.publish(b"c")
        await trio.sleep(70)
        assert len(await kept(topic)) == 2
        assert (await topic.describe())[0].groups[0].pending == 0


async def test_what_is_redriven_to_another_group_is_no_dead_letter_of_this_one(
    autojump_clock: Any, world: Any
) -> None:
    """It expires for the group that it is for, alone."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        topic = await runtime.create_topic("orders", default_ttl=5)
        await topic.publish(b"a")
        for group in ("billing", "audit"):
            settings = {
                "dead_letter_expired": True,
                "dead_letter_topic": "dead" if group == "audit" else None,
            }
            async with topic.subscribe(group, **settings) as consumer:
                message = await consumer.get()
                await (message.reject(reason="x") if group == "audit" else message.ack())
        await trio.sleep(1)
        assert (await runtime.dead_letters("dead").redrive()).messages == 1
        await trio.sleep(70)
        assert await kept(topic) == []
        (group,) = [each for each in (await topic.describe())[0].groups if each.filtered_records]
        assert (group.pending, group.expired_records) == (0, 0)
        assert await runtime.dead_letters("dead").count() == {"expired": 1}


async def test_the_first_failure_and_all_consumers_are_told(autojump_clock: Any, world: Any) -> None:
    """Across restarts and ends of the process, by name if they had one, in the topic of dead letters too."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        topic = await runtime.create_topic("orders")
        await topic.publish(b"a")
        settings: dict[str, Any] = {"max_deliveries": 4, "dead_letter_topic": "dead", "visibility_timeout": 2}
        async with topic.subscribe("billing", name="clerk", **settings) as consumer:
            await (await consumer.get()).nack(delay=0)
            (record,) = [each async for each in topic.read()]
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        async with topic.subscribe("billing", **settings) as consumer:
            unnamed = await consumer.get(timeout=5)
            await trio.sleep(3)  # its lease runs out
        async with topic.subscribe("billing", name="teller", **settings) as consumer:
            message = await consumer.get(timeout=5)
            assert message.attempt == 3
            await message.nack(delay=30)
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        async with topic.subscribe("billing", name="clerk", **settings) as consumer:
            await (await consumer.get(timeout=60)).reject(reason="no use")
            await trio.sleep(1)
        (letter,) = await runtime.dead_letters("dead").list()
        assert (letter.attempts, letter.consumer_name) == (4, "clerk")
        assert letter.consumers[0] == "clerk"
        assert letter.consumers[1].isdigit()
        assert letter.consumers[2:] == ("teller",)
        assert letter.first_failed_at is not None
        assert letter.first_failed_at - record.append_time < timedelta(seconds=1)
        assert letter.failed_at - letter.first_failed_at > timedelta(seconds=30)
        assert unnamed.attempt == 2


async def test_failures_in_any_number_of_consumers_are_noted(autojump_clock: Any, world: Any) -> None:
    """Neighbours that failed in different consumers fail together, again and again; none of their names is missed."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for turn in range(30):
            await topic.publish_batch([b"a", b"b"])
            for name in ("a", "b"):
                async with topic.subscribe("billing", name=f"{name}{turn}") as consumer:
                    batch = await consumer.get_batch(max_records=2, max_wait=1)
                    messages = {message.value: message for message in batch}
                    await messages.pop(name.encode()).nack(delay=0)
                    (other,) = messages.values()
                    await other.release()
            async with topic.subscribe("billing", name=f"both{turn}") as consumer:
                batch = await consumer.get_batch(max_records=2, max_wait=1)
                assert len(batch) == 2
                await batch.nack(delay=0)
            async with topic.subscribe("billing") as consumer:
                batch = await consumer.get_batch(max_records=2, max_wait=1)
                await batch.reject(reason="enough")
        letters = await topic.dead_letters("billing").list()
        assert [letter.consumers[:2] for letter in letters] == [
            (f"{name}{turn}", f"both{turn}") for turn in range(30) for name in ("a", "b")
        ]
        assert (await topic.describe())[0].state == "running"


async def test_what_expires_after_it_was_given_back_is_kept_while_nobody_consumes(
    autojump_clock: Any, world: Any
) -> None:
    """Within a minute, also between messages that stay; in a group that keeps nothing of it, it is settled."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % n for n in range(6)], ttls=[20.0, None] * 3)
        for group, asks in (("billing", True), ("audit", False)):
            async with topic.subscribe(group, dead_letter_expired=asks) as consumer:
                for message in [await consumer.get() for _ in range(6)]:
                    await message.release()
        assert [group.next_offset for group in (await topic.describe())[0].groups] == [6, 6]
        await trio.sleep(13)
        assert await kept(topic) == []
        await trio.sleep(66)
        assert await kept(topic) == [(0, 0, "expired"), (2, 0, "expired"), (4, 0, "expired")]
        for group in (await topic.describe())[0].groups:
            assert (group.pending, group.expired_records, group.floor) == (3, 3, 1)
        async with topic.subscribe("billing") as consumer:
            assert [(await consumer.get(timeout=1)).value for _ in range(3)] == [b"1", b"3", b"5"]
