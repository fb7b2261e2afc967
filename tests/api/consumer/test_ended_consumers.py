"""Consumers that are left while tasks wait in them, and consumers whose topics are deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.groups.commands import Fence

Ask = Callable[[Any], Awaitable[Any]]


async def by_get(consumer: Any) -> Any:
    """The next message, by `get`."""
    return await consumer.get()


async def by_receive(consumer: Any) -> None:
    """The next message, by `receive`."""
    async with consumer.receive():
        pass


async def by_batches(consumer: Any) -> Any:
    """The next batch."""
    return await anext(consumer.batches())


WAYS: tuple[Ask, ...] = (by_get, by_receive, by_batches)


async def outcomes(nursery: trio.Nursery, consumer: Any, ask: Ask, tasks: int) -> list[Exception]:
    """A list that gets the errors of so many tasks that ask the consumer side by side."""
    errors: list[Exception] = []

    async def wait() -> None:
        try:
            await ask(consumer)
        except callboard.CallboardError as error:
            errors.append(error)

    for _ in range(tasks):
        nursery.start_soon(wait)
    await trio.sleep(1.0)
    return errors


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
async def test_every_call_hears_that_no_topic_is_left(
    autojump_clock: Any, world: Any, ask: Ask, names: list[str]
) -> None:
    """Every task that waits when the last topic is deleted, and every later call, gets `RuntimeClosed`."""
    async with world.open() as runtime:
        for name in names:
            await runtime.create_topic(name, partitions=2)
        async with runtime.subscribe(names, "group") as consumer:
            for name in names[:-1]:
                await runtime.delete_topic(name)
                with pytest.raises(callboard.TopicNotFound):
                    await consumer.get()
            with trio.fail_after(10.0):
                async with trio.open_nursery() as nursery:
                    errors = await outcomes(nursery, consumer, ask, 3)
                    await runtime.delete_topic(names[-1])
            assert len(errors) == 3
            assert {type(error) for error in errors} == {callboard.RuntimeClosed}
            for _ in range(2):
                with trio.fail_after(10.0), pytest.raises(callboard.RuntimeClosed, match="was deleted"):
                    await ask(consumer)


@pytest.mark.parametrize("ask", WAYS)
async def test_leaving_wakes_all_who_wait(autojump_clock: Any, world: Any, ask: Ask) -> None:
    """Tasks that wait for a message when another task leaves the consumer are told that it is closed."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        with trio.fail_after(10.0):
            async with trio.open_nursery() as nursery:
                async with topic.subscribe("group") as consumer:
                    errors = await outcomes(nursery, consumer, ask, 3)
        assert [type(error) for error in errors] == [callboard.RuntimeClosed] * 3
        assert all("the consumer is closed" in str(error) for error in errors)


async def test_leaving_wakes_who_waits_for_room(autojump_clock: Any, world: Any) -> None:
    """A task that waits because everything allowed is in flight is told that the consumer is closed."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        with trio.fail_after(10.0):
            async with trio.open_nursery() as nursery:
                async with topic.subscribe("group", max_in_flight=1, visibility_timeout=1000.0) as consumer:
                    await consumer.get()
                    errors = await outcomes(nursery, consumer, by_get, 2)
        assert [type(error) for error in errors] == [callboard.RuntimeClosed] * 2


@pytest.mark.parametrize("ask", WAYS)
async def test_leaving_wakes_who_waits_for_a_disk(autojump_clock: Any, world: Any, ask: Ask) -> None:
    """Tasks whose partition does not answer since its disk hangs are told that the consumer is closed."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        try:
            async with trio.open_nursery() as nursery:
                async with topic.subscribe("group") as consumer:
                    world.disk.hang(topic.topic_id)
                    errors = await outcomes(nursery, consumer, ask, 2)
                    assert errors == []
                await trio.sleep(1.0)
                assert [type(error) for error in errors] == [callboard.RuntimeClosed] * 2
                nursery.cancel_scope.cancel()
        finally:
            world.disk.unhang()


async def test_a_deadline_bounds_how_long_leaving_waits_for_lazy_acks(
    autojump_clock: Any, world: Any
) -> None:
    """The consumer departs when it has passed, though the disk hangs, and the acks count when the disk answers."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        begun = trio.current_time()
        with trio.CancelScope() as scope:
            async with topic.subscribe("group") as consumer:
                messages = [await consumer.get() for _ in range(5)]
                world.disk.hang(topic.topic_id)
                for message in messages:
                    await message.ack(wait=False)
                scope.deadline = trio.current_time() + 2
        assert scope.cancelled_caught
        assert trio.current_time() - begun < 3
        world.disk.unhang()
        await trio.sleep(60)
        async with topic.subscribe("group") as consumer:
            assert await consumer.get(timeout=60) is None


async def test_leaving_waits_no_longer_than_other_calls_for_lazy_acks_on_a_disk_that_hangs(
    autojump_clock: Any, world: Any
) -> None:
    """It raises an indefinite error that names the partition, departs, and the acks count when the disk answers."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        with pytest.raises(
            callboard.StorageError, match=f"acks of group 'group' in {topic.name}/0"
        ) as caught:
            async with topic.subscribe("group") as consumer:
                messages = [await consumer.get() for _ in range(5)]
                world.disk.hang(topic.topic_id)
                for message in messages:
                    await message.ack(wait=False)
                begun = trio.current_time()
        assert caught.value.indefinite
        assert 5 <= trio.current_time() - begun < 6
        world.disk.unhang()
        await trio.sleep(60)
        async with topic.subscribe("group") as consumer:
            assert await consumer.get(timeout=60) is None


async def test_a_consumer_that_was_fenced_while_it_waited_for_a_disk_goes_on(
    autojump_clock: Any, world: Any
) -> None:
    """A task that waits for a partition's answer when its consumer begins a new generation asks anew."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        async with topic.subscribe("group") as consumer, trio.open_nursery() as nursery:
            got: list[Any] = []

            async def get() -> None:
                got.append(await consumer.get())

            world.disk.hang(topic.topic_id)
            nursery.start_soon(get)
            await trio.sleep(1.0)
            try:
                (group,) = await runtime.groups()
                nursery.start_soon(
                    runtime._session.system.actor("groups/group").ask, Fence(group.consumers[0].consumer)
                )
                await trio.sleep(1.0)
            finally:
                world.disk.unhang()
            await trio.sleep(60.0)
            nursery.cancel_scope.cancel()
        assert [message.offset for message in got] == [0]


async def test_leaving_wakes_who_fills_a_batch(autojump_clock: Any, world: Any) -> None:
    """A batch that waits to become full is not handed out by a consumer that was left; its messages come again."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)

        async def fill(consumer: Any) -> Any:
            return await anext(consumer.batches(max_wait=1000.0))

        with trio.fail_after(10.0):
            async with trio.open_nursery() as nursery:
                async with topic.subscribe("group") as consumer:
                    errors = await outcomes(nursery, consumer, fill, 1)
        assert [type(error) for error in errors] == [callboard.RuntimeClosed]
        async with topic.subscribe("group") as consumer:
            message = await consumer.get(timeout=1.0)
            assert (message.offset, message.attempt) == (0, 1)


async def test_a_deleted_topic_wakes_who_waits_for_room(autojump_clock: Any, world: Any) -> None:
    """What was leased of a deleted topic is in flight no more: the other topic is read."""
    async with world.open() as runtime:
        first, other = await runtime.create_topic("a"), await runtime.create_topic("b")
        await first.publish_batch([b"x"] * 5)
        async with (
            runtime.subscribe(["a", "b"], "group", max_in_flight=1, visibility_timeout=1000.0) as consumer,
            trio.open_nursery() as nursery,
        ):
            held = await consumer.get()
            assert held.topic == "a"
            errors = await outcomes(nursery, consumer, by_get, 1)
            await runtime.delete_topic("a")
            await trio.sleep(1.0)
            assert [error.topic for error in errors] == ["a"]
            await other.publish(b"y")
            with trio.fail_after(10.0):
                assert (await consumer.get()).topic == "b"


async def test_settling_in_a_deleted_topic_names_it(autojump_clock: Any, world: Any) -> None:
    """Settling, and waiting for acks, in a deleted topic raises `TopicNotFound`; the rest is settled."""
    async with world.open() as runtime:
        first, other = await runtime.create_topic("a"), await runtime.create_topic("b")
        await first.publish_batch([b"x"] * 5)
        await other.publish_batch([b"y"] * 5)
        async with runtime.subscribe(["a", "b"], "group") as consumer:
            held: dict[str, list[Any]] = {"a": [], "b": []}
            for _ in range(10):
                message = await consumer.get()
                held[message.topic].append(message)
            await held["a"][0].ack(wait=False)
            await trio.sleep(1.0)
            await held["a"][1].ack(wait=False)
            await runtime.delete_topic("a")
            for settle in (held["a"][2].ack, held["a"][2].nack, held["a"][2].release):
                with pytest.raises(callboard.TopicNotFound) as raised:
                    await settle()
                assert raised.value.topic == "a"
            with pytest.raises(callboard.TopicNotFound):
                await held["a"][2].extend(5.0)
            await held["a"][3].ack(wait=False)
            for message in held["b"]:
                await message.ack(wait=False)
            with pytest.raises(callboard.TopicNotFound) as raised:
                await consumer.flush()
            assert raised.value.topic == "a"
            await consumer.flush()
        assert [group.pending for part in await other.describe() for group in part.groups] == [0]


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
@pytest.mark.parametrize("pause_s", [0.0, 1.0])
async def test_leaving_says_nothing_of_acks_in_a_deleted_topic(
    autojump_clock: Any, world: Any, names: list[str], pause_s: float
) -> None:
    """A consumer whose topic was deleted is left without an error, whether or not its acks had been written."""
    async with world.open() as runtime:
        for name in names:
            await (await runtime.create_topic(name)).publish_batch([b"x"] * 10)
        async with runtime.subscribe(names, "group") as consumer:
            for _ in range(10 * len(names)):
                await (await consumer.get()).ack(wait=False)
            await trio.sleep(pause_s)
            await runtime.delete_topic("a")
        for name in names[1:]:
            parts = await runtime.topic(name).describe()
            assert [group.pending for part in parts for group in part.groups] == [0]


@pytest.mark.parametrize("ask", WAYS)
async def test_messages_of_a_deleted_topic_are_not_handed_out(
    autojump_clock: Any, world: Any, ask: Ask
) -> None:
    """What was fetched before its topic was deleted is dropped: the next call raises `TopicNotFound`."""
    async with world.open() as runtime:
        first, other = await runtime.create_topic("a"), await runtime.create_topic("b")
        await first.publish_batch([b"x"] * 500)
        async with runtime.subscribe(["a", "b"], "group") as consumer:
            if ask is by_batches:
                for _ in range(8):
                    await (await anext(consumer.batches(max_records=10))).ack(wait=False)
            else:
                for _ in range(30):
                    await (await consumer.get()).ack()
            await runtime.delete_topic("a")
            with trio.fail_after(10.0), pytest.raises(callboard.TopicNotFound) as raised:
                await ask(consumer)
            assert raised.value.topic == "a"
            await other.publish(b"y")
            with trio.fail_after(10.0):
                await ask(consumer)
