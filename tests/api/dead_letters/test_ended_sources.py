"""Sources that have ended: topics that take dead letters, and what acks publish, do not know them for ever."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from callboard.actors.kernel import ActorRef
from callboard.actors.partition import commands as c
from callboard.simulations.disk.memory_disk import lose_unsynced

SOON_S = 20.0


async def fail(runtime: Any, topic: str = "orders", group: str = "billing", count: int = 1) -> None:
    """Some messages of a topic become dead letters of a group, in the topic "letters"."""
    await runtime.create_topic("letters")
    live = await runtime.create_topic(topic)
    await live.publish_batch([topic.encode()] * count)
    async with live.subscribe(group, dead_letter_topic="letters", group_expiry=None) as consumer:
        for _ in range(count):
            await (await consumer.get()).reject()
    await trio.sleep(1)


async def hand_on(runtime: Any, topic: str = "orders") -> None:
    """A message of a topic is acked with a publish to the topic "letters"."""
    await runtime.create_topic("letters")
    live = await runtime.create_topic(topic)
    await live.publish(topic.encode())
    async with live.subscribe(f"handing-on-{topic}") as consumer, consumer.receive() as message:
        await message.publish("letters", message.value)
    await trio.sleep(1)


async def known(runtime: Any) -> int:
    """How many sources the topic "letters" knows."""
    (part,) = await runtime.topic("letters").describe()
    count: int = part.producers
    return count


async def letters(runtime: Any) -> list[bytes]:
    """What came to the topic."""
    return [record.value async for record in runtime.topic("letters").read()]


@pytest.mark.parametrize("end", ["topic", "group", "outbox"])
async def test_the_sources_of_what_is_deleted_are_forgotten(
    autojump_clock: Any, world: Any, end: str
) -> None:
    """Of as many topics, or groups, as come and go one is known: the one that is there."""
    async with world.open() as runtime:
        for number in range(5):
            if end == "outbox":
                await hand_on(runtime, f"orders-{number}")
            else:
                await fail(runtime, f"orders-{number}" if end == "topic" else "orders", f"group-{number}")
            if number < 4 and end == "group":
                await runtime.group(f"group-{number}").delete()
            elif number < 4:
                await runtime.delete_topic(f"orders-{number}")
        await trio.sleep(SOON_S)
        assert await known(runtime) == 1
        assert len(await letters(runtime)) == 5
    async with world.open() as runtime:
        assert await known(runtime) == 1


async def test_what_was_not_forgotten_in_time_is_forgotten_after_a_restart(
    autojump_clock: Any, world: Any
) -> None:
    """Nothing has to be remembered for that."""
    async with world.doomed(lose_unsynced) as runtime:
        await fail(runtime, "orders")
        await fail(runtime, "jobs")
        await runtime.delete_topic("orders")
        assert await known(runtime) == 2
    async with world.open() as runtime:
        await trio.sleep(SOON_S)
        assert await known(runtime) == 1
    async with world.doomed() as runtime:
        await trio.sleep(SOON_S)
        assert await known(runtime) == 1


async def test_a_source_that_lives_is_known_however_often_it_is_looked(
    autojump_clock: Any, world: Any, monkeypatch: Any
) -> None:
    """It retries what was stored and not yet forgotten, after hours and restarts, and nothing comes twice."""
    ask = ActorRef.ask

    async def ask_others(ref: Any, message: Any, **given: Any) -> Any:
        if isinstance(message, c.ForgetDead | c.ForgetOutbox):
            await trio.sleep_forever()
        return await ask(ref, message, **given)

    async with world.doomed() as runtime:
        await fail(runtime, "gone")
        monkeypatch.setattr(ActorRef, "ask", ask_others)
        with trio.move_on_after(5):
            await fail(runtime, "orders", count=3)
        with trio.move_on_after(5):
            await hand_on(runtime, "jobs")
        monkeypatch.undo()
        await runtime.delete_topic("gone")
        await trio.sleep(SOON_S)
    for _ in range(2):
        async with world.open() as runtime:
            await trio.sleep(3600)
            assert sorted(await letters(runtime)) == [b"gone", b"jobs", *[b"orders"] * 3]
            assert await known(runtime) == 2


async def test_a_target_that_fails_is_told_later(autojump_clock: Any, world: Any) -> None:
    """When it runs again."""
    async with world.open() as runtime:
        await fail(runtime, "orders")
        await fail(runtime, "jobs")
        path = "topics/letters/0"
        while next(node.state for node in runtime.tree().walk() if node.path == path) != "failed":
            runtime.crash(path, ValueError("on purpose"))
            await trio.sleep(0.3)
        await runtime.delete_topic("orders")
        await trio.sleep(100)
        await runtime.restart(path)
        await trio.sleep(1000)
        assert await known(runtime) == 1


async def test_the_sources_of_a_lost_journal_are_forgotten(autojump_clock: Any, world: Any) -> None:
    """Another journal takes its place, and counts anew, as another source."""
    async with world.open() as runtime:
        await fail(runtime, "orders", count=3)
        await hand_on(runtime, "orders")
        assert await known(runtime) == 2
        folder = f"topics/{runtime.topic('orders').topic_id}/0/delivery/"
    for path in world.disk.files():
        if path.startswith(folder):
            world.disk.tree.unlink(path)
    async with world.open() as runtime:
        await trio.sleep(SOON_S)
        assert await known(runtime) == 0
        await fail(runtime, "orders")
        await trio.sleep(SOON_S)
        assert await known(runtime) == 1


async def test_no_source_is_forgotten_while_a_partition_does_not_say_which_it_is(
    autojump_clock: Any, world: Any
) -> None:
    """It may be one of the partition's, which forwards again what it had not forgotten when it runs again."""
    async with world.open() as runtime:
        await fail(runtime, "jobs")
        await fail(runtime, "orders", "audit")
        path = "topics/orders/0"
        while next(node.state for node in runtime.tree().walk() if node.path == path) != "failed":
            runtime.crash(path, ValueError("on purpose"))
            await trio.sleep(0.3)
        await runtime.delete_topic("jobs")
        await trio.sleep(100)
        assert await known(runtime) == 2
        await runtime.restart(path)
        await trio.sleep(1000)
        assert await known(runtime) == 1
