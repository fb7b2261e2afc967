"""Bodies that outlast the visibility timeout: what was fetched ahead, and never handed over, counts no attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

import callboard

VISIBILITY_S = 10.0
COUNT = 300


def _taking(way: str, consumer: Any) -> Callable[[], Awaitable[list[Any]]]:
    """What hands over the next messages, in one of the ways in which a program takes them."""
    batches = consumer.batches(max_records=20)

    async def take() -> list[Any]:
        match way:
            case "get":
                return [await consumer.get()]
            case "iterate":
                return [await anext(consumer)]
            case "batches":
                return [*(await anext(batches))]
        return [*(await consumer.get_batch(max_records=20, max_wait=0.01))]

    return take


WAYS = ("get", "iterate", "batches", "get_batch")


@pytest.mark.parametrize("blocks", [False, True], ids=["waits", "blocks the loop"])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("way", WAYS)
async def test_what_was_never_handed_over_counts_no_attempt(
    autojump_clock: Any, world: Any, way: str, partitions: int, blocks: bool
) -> None:
    """When a body outlasts the visibility timeout, only the messages that it has were attempted."""
    had: Counter[tuple[int, int]] = Counter()
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=partitions)
        for partition in range(partitions):
            await topic.publish_batch([b"x"] * (COUNT // partitions), partition=partition)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S, max_deliveries=3) as consumer:
            take, turn, settled = _taking(way, consumer), 0, 0
            while settled < COUNT:
                messages = await take()
                for message in messages:
                    had[message.partition, message.offset] += 1
                    assert message.attempt == had[message.partition, message.offset]
                turn += 1
                if turn % 9 == 8:
                    if blocks:
                        autojump_clock.jump(2.5 * VISIBILITY_S)
                    await trio.sleep(2.5 * VISIBILITY_S)
                    continue
                for message in messages:
                    await message.ack(wait=False)
                settled += len(messages)
            await consumer.flush()
        groups = [part.groups[0] for part in await topic.describe()]
        assert [(group.pending, group.dead_lettered) for group in groups] == [(0, 0)] * partitions


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_hung_consumer_has_fetched_is_for_others(
    autojump_clock: Any, world: Any, way: str
) -> None:
    """Within half of a visibility timeout others are handed all but what the hung body has, at their first attempt."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, COUNT)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as hung:
            take, seen = _taking(way, hung), 0
            while seen < COUNT // 3:
                for message in (messages := await take()):
                    await message.ack()
                seen += len(messages)
            held = {message.offset for message in await take()}
            hung_at, left = trio.current_time(), COUNT - seen - len(held)
            async with topic.subscribe("group") as other:
                for _ in range(left):
                    message = await other.get(timeout=VISIBILITY_S)
                    assert message is not None
                    assert message.attempt == 1
                    assert message.offset not in held
                    await message.ack()
                assert trio.current_time() - hung_at < 0.6 * VISIBILITY_S
                message = await other.get(timeout=VISIBILITY_S)
                assert (message.offset in held, message.attempt) == (True, 2)


async def test_what_an_extended_lease_covers_is_for_others_all_the_same(
    autojump_clock: Any, world: Any
) -> None:
    """Whoever extends the lease of a message keeps that one, and not what was fetched together with it."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as slow:
            for _ in range(20):
                message = await slow.get()
                await message.ack()
            message = await slow.get()
            await message.extend(1000.0)
            async with topic.subscribe("group") as other:
                for _ in range(79):
                    got = await other.get(timeout=0.6 * VISIBILITY_S)
                    assert got is not None
                    assert got.attempt == 1
                    await got.ack()
            await message.ack()
        assert (await world.group_of(topic)).pending == 0


async def test_a_lease_that_is_shortened_fails_nothing_that_was_not_handed_over(
    autojump_clock: Any, world: Any
) -> None:
    """An `extend` to a moment ends the lease of the message in hand; the rest is given back before."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as consumer:
            for _ in range(20):
                await (await consumer.get()).ack()
            message = await consumer.get()
            await message.extend(0.5)
            await trio.sleep(2.0)
            assert (await world.group_of(topic)).expired == 1
            for _ in range(80):
                got = await consumer.get(timeout=1.0)
                assert got.attempt == (2 if got.offset == message.offset else 1)
                await got.ack()


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_more_of_a_lease_that_is_shortened_a_little_is_handed_over(
    autojump_clock: Any, world: Any, way: str, is_cancelled: bool
) -> None:
    """Whatever is handed over has half of its visibility timeout left, also after an `extend` to more than that."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as consumer:
            for _ in range(20):
                await (await consumer.get()).ack()
            message = await consumer.get()
            with trio.CancelScope() as scope:
                if is_cancelled:
                    scope.cancel()
                await message.extend(0.6 * VISIBILITY_S)
            await trio.sleep(0.3 * VISIBILITY_S)
            for following in await _taking(way, consumer)():
                assert following.deadline - trio.current_time() >= VISIBILITY_S / 2
                assert following.attempt == 1
            assert message.deadline - trio.current_time() == pytest.approx(0.3 * VISIBILITY_S)


@pytest.mark.parametrize("leaves", ["well", "by an exception"])
@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_consumer_that_computed_for_long_and_leaves_fails_only_what_it_has(
    autojump_clock: Any, world: Any, way: str, mode: Any, leaves: str
) -> None:
    """What was fetched ahead is given back before the leases run out, which have ended meanwhile."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        with suppress(ValueError):
            async with topic.subscribe("group", visibility_timeout=VISIBILITY_S, mode=mode) as consumer:
                take, seen = _taking(way, consumer), 0
                while seen < 40:
                    for message in (messages := await take()):
                        await message.ack()
                    seen += len(messages)
                held = {message.offset for message in await take()}
                autojump_clock.jump(2.5 * VISIBILITY_S)
                if leaves != "well":
                    raise ValueError("by an exception")
        async with topic.subscribe("group") as other:
            for _ in range(100 - seen):
                message = await other.get(timeout=1.0)
                assert message.attempt == 1 or message.offset in held
                await message.ack()


async def test_a_batch_is_handed_over_before_its_lease_is_old(autojump_clock: Any, world: Any) -> None:
    """A `max_wait` beyond the visibility timeout ends after a third of that: no lease runs out while a batch fills."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as consumer:
            begun = trio.current_time()
            batch = await consumer.get_batch(max_records=100, max_wait=1000.0)
            assert (batch.offsets(), batch.attempts()) == ([0, 1, 2], [1, 1, 1])
            assert trio.current_time() - begun == pytest.approx(VISIBILITY_S / 3, abs=0.01)
            await batch.ack()
        assert (await world.group_of(topic)).expired == 0


async def test_a_batch_that_fills_while_the_loop_is_blocked_fails_nothing(
    autojump_clock: Any, world: Any
) -> None:
    """What a batch has when the program computes for longer than a lease lasts comes again, unfailed."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with (
            topic.subscribe("group", visibility_timeout=VISIBILITY_S) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def block() -> None:
                await trio.sleep(1.0)
                autojump_clock.jump(2 * VISIBILITY_S)

            nursery.start_soon(block)
            batch = await consumer.get_batch(max_records=100, max_wait=5.0)
            assert (batch.offsets(), batch.attempts()) == ([0, 1, 2], [1, 1, 1])
            await batch.ack()


@pytest.mark.parametrize("blocks", [False, True], ids=["waits", "blocks the loop"])
async def test_what_was_asked_for_in_vain_fails_nothing(
    autojump_clock: Any, world: Any, blocks: bool
) -> None:
    """What a call gave up waiting for, and no later call takes, goes back to the group before its lease runs out."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as gone:
            world.disk.latency_s = 0.2
            assert await gone.get(timeout=0.06) is None
            await trio.sleep(1.0)
            world.disk.latency_s = 0.0
            assert (await world.group_of(topic)).leased > 0
            if blocks:
                autojump_clock.jump(2 * VISIBILITY_S)
            await trio.sleep(0.5 * VISIBILITY_S)
            assert (await world.group_of(topic)).leased == 0
            async with topic.subscribe("group") as other:
                for offset in range(5):
                    message = await other.get(timeout=1.0)
                    assert (message.offset, message.attempt) == (offset, 1)


async def test_a_drained_consumer_has_nothing_that_it_fetched(autojump_clock: Any, world: Any) -> None:
    """`drain` gives back at once what a partition has answered and nobody has taken."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        async with topic.subscribe("group") as consumer:
            world.disk.latency_s = 0.2
            assert await consumer.get(timeout=0.06) is None
            await trio.sleep(1.0)
            world.disk.latency_s = 0.0
            consumer.drain()
            await trio.sleep(0.1)
            assert (await world.group_of(topic)).leased == 0


@pytest.mark.parametrize("blocks", [False, True], ids=["waits", "blocks the loop"])
@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_handlers_that_hang_fail_only_what_they_have(
    autojump_clock: Any, world: Any, mode: Any, ordering: Any, blocks: bool
) -> None:
    """Whatever `work` has fetched for handlers that are busy counts no attempt, however long they are busy."""
    attempts: Counter[int] = Counter()
    begun = 0

    async def handle(message: Any) -> None:
        nonlocal begun
        begun += 1
        attempts[message.attempt] += 1
        if begun % 40 == 0:
            if blocks:
                autojump_clock.jump(3 * VISIBILITY_S)
            await trio.sleep(3 * VISIBILITY_S)

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await topic.publish_batch([callboard.Message(b"x", key=b"%d" % (n % 7)) for n in range(200)])
        with trio.move_on_after(1000.0):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    lambda: topic.work(
                        handle,
                        "group",
                        concurrency=2,
                        mode=mode,
                        ordering=ordering,
                        visibility_timeout=VISIBILITY_S,
                    )
                )
                await trio.sleep(500.0)
                nursery.cancel_scope.cancel()
        assert (await world.group_of(topic)).pending == 0
        assert attempts[1] == 200
        if not blocks:
            assert set(attempts) == {1}


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_handlers_that_hang_take_no_more_messages(
    autojump_clock: Any, world: Any, ordering: Any
) -> None:
    """When all handlers of `work` hang, other consumers are handed what is published a lease later at once."""
    waited: dict[int, float] = {}
    published: dict[int, float] = {}
    hanging: set[int] = set()
    all_hang = trio.Event()

    async def hang(message: Any) -> None:
        hanging.add(message.offset)
        if len(hanging) == 2:
            all_hang.set()
        await trio.sleep_forever()

    async def receive(topic: Any) -> None:
        async with topic.subscribe("group") as consumer:
            async for message in consumer:
                waited[message.offset] = trio.current_time() - published[message.offset]
                await message.ack()

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        settings: Any = {"visibility_timeout": VISIBILITY_S, "ordering": ordering}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.work(hang, "group", concurrency=2, grace=0, **settings))
            await topic.publish_batch([callboard.Message(b"x", key=b"held %d" % n) for n in range(2)])
            await all_hang.wait()
            nursery.start_soon(receive, topic)
            for n in range(100):
                await trio.sleep(0.5)
                published[n + 2] = trio.current_time()
                await topic.publish(b"x", key=b"%d" % (n % 7))
            await trio.sleep(VISIBILITY_S)
            nursery.cancel_scope.cancel()
    assert len(waited) == 100
    assert max(waited.values()) < VISIBILITY_S
    assert max(waited[n + 2] for n in range(20, 100)) < 0.1


async def test_a_body_of_receive_keeps_its_message_alone(autojump_clock: Any, world: Any) -> None:
    """While a body of `receive` goes on, others are handed what was fetched with its message, also of a pattern."""
    async with world.open() as runtime:
        await world.topic_of(runtime, 100)
        settings: Any = {"visibility_timeout": VISIBILITY_S}
        async with runtime.subscribe(pattern="jo*", group="group", **settings) as slow:
            for _ in range(20):
                async with slow.receive():
                    pass
            async with slow.receive() as kept, runtime.subscribe(pattern="jo*", group="group") as other:
                for _ in range(79):
                    message = await other.get(timeout=0.6 * VISIBILITY_S)
                    assert message is not None
                    assert (message.attempt, message.offset == kept.offset) == (1, False)
                    await message.ack()
                await trio.sleep(5 * VISIBILITY_S)
        assert (await world.group_of(runtime.topic("jobs"))).pending == 0


async def test_a_partition_whose_answer_was_given_up_is_asked_again(autojump_clock: Any, world: Any) -> None:
    """While a body of one task goes on, another task gets the message of a partition that takes long to lease it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=2)
        for partition in range(2):
            await topic.publish(b"%d" % partition, partition=partition)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S) as consumer:
            slowness = world.disk.slow(f"topics/{topic.topic_id}/1/", VISIBILITY_S / 2)
            async with trio.open_nursery() as nursery, consumer.receive() as message:
                assert message.value == b"0"

                async def take_other() -> None:
                    with trio.fail_after(3 * VISIBILITY_S):
                        other = await consumer.get()
                    assert other.value == b"1"
                    await other.ack()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(take_other)
                await trio.sleep(VISIBILITY_S / 2)  # longer than until the lease of the body is renewed
                world.disk.unslow(slowness)
                await trio.sleep(4 * VISIBILITY_S)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 45.0])
@pytest.mark.parametrize("way", ["receive", "work"])
async def test_a_lease_that_its_body_has_moved_is_renewed_in_time(
    autojump_clock: Any, world: Any, way: str, seconds: float
) -> None:
    """Nobody else is handed the message while the body runs, whether it has shortened its lease or lengthened it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=1)
        await topic.publish(b"long")
        ended: list[float] = []

        async def body(message: Any) -> None:
            await message.extend(seconds)
            await trio.sleep(100)
            ended.append(trio.current_time())

        async def receive() -> None:
            async with topic.subscribe("group", visibility_timeout=30) as consumer:
                async with consumer.receive() as message:
                    await body(message)

        async with trio.open_nursery() as nursery:
            if way == "receive":
                nursery.start_soon(receive)
            else:
                nursery.start_soon(partial(topic.work, body, "group", visibility_timeout=30))
            await trio.sleep(0.1)
            async with topic.subscribe("group", visibility_timeout=30) as other:
                assert await other.get(timeout=150) is None
            nursery.cancel_scope.cancel()
        assert len(ended) == 1


async def test_a_body_ends_when_the_lease_that_it_has_shortened_cannot_be_renewed(
    autojump_clock: Any, world: Any
) -> None:
    """It does not run on until the renewal that was due before."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=1)
        await topic.publish(b"long")
        began = 0.0
        with pytest.raises(callboard.LeaseLost):
            async with topic.subscribe("group", visibility_timeout=30) as consumer:
                async with consumer.receive() as message:
                    await message.extend(3)
                    began = trio.current_time()
                    await runtime.group("group").reset()
                    await trio.sleep(100)
        assert trio.current_time() - began <= 3


async def test_a_partition_with_room_for_one_question_renews_all_leases(
    autojump_clock: Any, world: Any
) -> None:
    """Of very many bodies that run at once none loses its lease, however small the mailbox of their partition is."""
    count, ended = 40, []
    async with world.open(limits=callboard.Limits(partition_mailbox=1)) as runtime:
        topic = await world.topic_of(runtime, count)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S, max_in_flight=count) as consumer:

            async def handle() -> None:
                async with consumer.receive() as message:
                    await trio.sleep(3.5 * VISIBILITY_S)
                ended.append((message.offset, message.attempt))

            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(handle)
    assert sorted(ended) == [(offset, 1) for offset in range(count)]


async def test_handlers_keep_their_leases_with_room_for_one_question(autojump_clock: Any, world: Any) -> None:
    """`work` handles each message once, however small the mailbox of the partition is."""
    count, attempts = 40, []
    async with world.open(limits=callboard.Limits(partition_mailbox=1)) as runtime:
        topic = await world.topic_of(runtime, count)
        async with trio.open_nursery() as nursery:

            async def handle(message: Any) -> None:
                await trio.sleep(3.5 * VISIBILITY_S)
                attempts.append((message.offset, message.attempt))
                if len(attempts) == count:
                    nursery.cancel_scope.cancel()

            with trio.move_on_after(20 * VISIBILITY_S):
                await topic.work(handle, group="group", concurrency=count, visibility_timeout=VISIBILITY_S)
    assert sorted(attempts) == [(offset, 1) for offset in range(count)]


async def test_what_renews_a_lease_for_one_body_renews_it_for_those_of_the_same_lease(
    autojump_clock: Any, world: Any
) -> None:
    """A body goes on while its lease lasts, whichever message of the lease it was last renewed for."""
    done: list[int] = []

    async with world.open() as runtime, trio.open_nursery() as nursery:
        topic = await runtime.create_topic("jobs")
        await topic.publish_batch([b"%d" % number for number in range(6)])

        async def silence(seconds: float) -> None:
            hung = world.disk.hang(f"{topic.topic_id}/0/")
            runtime._session.system.actor("topics/jobs/0").crash(RuntimeError("a drill"))
            await trio.sleep(seconds)
            world.disk.unhang(hung)

        async with topic.subscribe("group", visibility_timeout=9.0) as consumer:

            async def body(seconds: float) -> None:
                async with consumer.receive() as message:
                    await trio.sleep(seconds)
                    done.append(message.offset)

            for _ in range(3):
                await body(0.0)
            nursery.start_soon(body, 12.5)
            await trio.sleep(1.0)
            await silence(3.0)
            nursery.start_soon(body, 8.2)
            await trio.sleep(0.3)
            await silence(8.0)
            await trio.sleep(1.0)
            assert done == [0, 1, 2, 4, 3]
