"""Batches of consumers of many partitions: which wait for nothing while something is ready, and mixed ones."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

import callboard

PARTITIONS = 50


async def _filled(runtime: Any, partitions: int = PARTITIONS, each: int = 20) -> Any:
    topic = await runtime.create_topic("jobs", partitions=partitions)
    for partition in range(partitions):
        await topic.publish_batch([b"%d" % number for number in range(each)], partition=partition)
    return topic


@pytest.mark.parametrize("mixed", [False, True])
async def test_a_consumer_of_many_partitions_waits_only_when_none_has_anything(
    autojump_clock: Any, world: Any, mixed: Any
) -> None:
    """While another partition has messages, no batch waits for company, however long `max_wait` is."""
    async with world.open() as runtime:
        topic = await _filled(runtime)
        async with topic.subscribe("group") as consumer:
            begun, got = trio.current_time(), 0
            async for batch in consumer.batches(max_records=100, max_wait=5.0, mixed=mixed):
                got += len(batch)
                await batch.ack()
                if got == PARTITIONS * 20:
                    break
            last_s = 0.0 if mixed else 5.0  # the last one is not full, and nobody has anything
            assert trio.current_time() - begun == pytest.approx(last_s)


async def test_a_mixed_batch_takes_from_several_partitions(autojump_clock: Any, world: Any) -> None:
    """It is full where one partition has not enough; its columns, places and parts agree, in order per partition."""
    async with world.open() as runtime:
        topic = await _filled(runtime)
        seen: dict[int, list[int]] = {}
        async with topic.subscribe("group") as consumer:
            batches = consumer.batches(max_records=100, max_wait=1.0, mixed=True)
            for _ in range(PARTITIONS * 20 // 100):
                batch = await anext(batches)
                assert len(batch) == len(batch.values()) == 100
                assert len(batch.parts) >= 5
                assert batch.attempts() == [1] * 100
                assert batch.keys() == [None] * 100
                assert [(m.topic, m.partition, m.offset) for m in batch] == batch.places()
                assert [m.value for m in batch] == batch.values()
                assert [m.timestamp for m in batch] == batch.timestamps()
                for _, partition, offset in batch.places():
                    seen.setdefault(partition, []).append(offset)
                await batch.ack(wait=False)
            await consumer.flush()
        assert seen == {partition: list(range(20)) for partition in range(PARTITIONS)}
        assert sum(part.groups[0].pending for part in await topic.describe()) == 0


async def test_a_mixed_batch_waits_for_company_from_any_partition(autojump_clock: Any, world: Any) -> None:
    """What comes within `max_wait` joins it, wherever it comes."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=8, each=0)
        async with topic.subscribe("group") as consumer, trio.open_nursery() as nursery:

            async def publish() -> None:
                for partition in range(8):
                    await topic.publish(b"x", partition=partition)
                    await trio.sleep(0.1)

            nursery.start_soon(publish)
            batch = await anext(consumer.batches(max_records=100, max_wait=0.55, mixed=True))
            assert batch.places() == [("jobs", partition, 0) for partition in range(6)]
            await batch.ack()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release"])
async def test_a_mixed_batch_is_settled_as_a_whole(autojump_clock: Any, world: Any, verb: str) -> None:
    """Parts and messages that were settled by themselves are left out; settling it twice is refused."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=4, each=5)
        async with topic.subscribe("group", backoff=0.0) as consumer:
            batch = await anext(consumer.batches(max_records=100, max_wait=0.1, mixed=True))
            assert len(batch) == 20
            await batch.parts[0].ack()
            await next(iter(batch.parts[1])).ack()
            await getattr(batch, verb)()
            with pytest.raises(callboard.InvalidArgument, match="settled once"):
                await batch.ack()
            groups = [part.groups[0] for part in await topic.describe()]
            assert sum(group.leased for group in groups) == 0
            assert sum(group.pending for group in groups) == (14 if verb in ("nack", "release") else 0)
            assert sum(group.dead_lettered for group in groups) == (14 if verb == "reject" else 0)
            if verb in ("nack", "release"):
                message = await consumer.get(timeout=1.0)
                assert message.attempt == (2 if verb == "nack" else 1)


async def test_a_mixed_batch_of_which_a_part_is_lost(autojump_clock: Any, world: Any) -> None:
    """The partitions whose leases are there are acked; those that another has had since are named."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=2, each=5)
        async with topic.subscribe("group", visibility_timeout=1.0) as consumer:
            batch = await anext(consumer.batches(max_records=100, max_wait=0.1, mixed=True))
            await trio.sleep(2.0)
            async with topic.subscribe("group") as other:
                message = await other.get()
                assert message.attempt == 2
                with pytest.raises(callboard.LeaseLost, match=f"jobs/{message.partition}"):
                    await batch.ack()
                await message.ack()
                groups = [part.groups[0] for part in await topic.describe()]
                assert groups[1 - message.partition].pending == 0


@pytest.mark.parametrize("wait", [True, False])
async def test_a_lost_part_that_publishes_leaves_no_other_part_unacked(
    autojump_clock: Any, world: Any, wait: bool
) -> None:
    """Where the ack of a part publishes, and comes too late, all other parts are acked, awaited or not."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=4, each=5)
        await runtime.create_topic("done")
        async with topic.subscribe("group", visibility_timeout=1.0) as consumer:
            batch = await anext(consumer.batches(max_records=100, max_wait=0.1, mixed=True))
            lost = batch.parts[0]
            await lost.publish("done", b"never")
            for part in batch.parts[1:]:
                await part[0].extend(60.0)
            await trio.sleep(2.0)
            async with topic.subscribe("group") as other:
                assert (await other.get()).partition == lost.partition
                with pytest.raises(callboard.LeaseLost, match=f"jobs/{lost.partition}"):
                    await batch.ack(wait=wait)
                assert all(part.settled for part in batch.parts)
            await consumer.flush()
            groups = [part.groups[0] for part in await topic.describe()]
            assert {part.partition: groups[part.partition].pending for part in batch.parts} == {
                part.partition: 5 if part is lost else 0 for part in batch.parts
            }


async def test_a_part_publishes_with_the_ack_of_the_batch(autojump_clock: Any, world: Any) -> None:
    """What a part publishes goes with its partition's ack."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=3, each=2)
        done = await runtime.create_topic("done")
        async with topic.subscribe("group") as consumer, done.subscribe("group") as following:
            batch = await anext(consumer.batches(max_records=100, max_wait=0.1, mixed=True))
            for part in batch.parts:
                await part.publish("done", b"%d" % part.partition)
            await batch.ack()
            assert sorted([(await following.get()).value for _ in range(3)]) == [b"0", b"1", b"2"]


async def test_many_partitions_hold_no_more_than_may_be_in_flight(autojump_clock: Any, world: Any) -> None:
    """What is asked for ahead of several partitions leaves room for what is in hand."""
    async with world.open() as runtime:
        topic = await _filled(runtime)
        async with topic.subscribe("group", max_in_flight=64) as consumer:
            for _ in range(20):
                batch = await anext(consumer.batches(max_records=16, max_wait=0.1, mixed=True))
                groups = [part.groups[0] for part in await topic.describe()]
                assert sum(group.leased for group in groups) <= 64
                await batch.ack()


async def test_what_comes_late_keeps_its_room_while_others_are_asked(autojump_clock: Any, world: Any) -> None:
    """A consumer that waits for a slow partition again asks no others for what has no room beside its answer."""
    async with world.open() as runtime:
        await _filled(runtime, partitions=2)
    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        async with topic.subscribe("group", max_in_flight=1) as consumer:
            slowness = world.disk.slow(".log", 1.0)
            assert await consumer.get_batch(max_records=2, timeout=0.0) is None
            world.disk.unslow(slowness)
            await trio.sleep(2.0)
            first = await consumer.get_batch(max_records=2, timeout=1.0)
            await first.ack()
            held = await consumer.get_batch(max_records=2, timeout=1.0)
            assert (len(held), held.partition) == (1, 1 - first.partition)
            assert await consumer.get(timeout=1.0) is None
            await held.ack()
            assert (await consumer.get(timeout=1.0)).attempt == 1


async def test_what_comes_late_goes_back_where_others_were_asked_meanwhile(
    autojump_clock: Any, world: Any
) -> None:
    """A slow partition's answer is not handed over beside what others have been asked for ahead."""
    async with world.open() as runtime:
        await _filled(runtime, partitions=4)
    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        async with topic.subscribe("group", max_in_flight=5) as consumer:

            async def take(*sizes: int) -> list[Any]:
                return [
                    await (
                        consumer.get(timeout=1.0)
                        if size == 0
                        else consumer.get_batch(max_records=size, timeout=1.0)
                    )
                    for size in sizes
                ]

            world.disk.slow(f"{topic.topic_id}/3/", 0.03)
            for each in await take(3, 0, 2):
                await each.ack()
            await trio.sleep(1.0)
            (batch,) = await take(3)
            await trio.sleep(0.1)
            await batch.ack()
            held = await take(0, 1, 2, 0, 1)
            sizes = [1 if isinstance(each, callboard.ReceivedMessage) else len(each or ()) for each in held]
            assert sum(sizes) <= 5


async def test_who_becomes_slow_leaves_other_partitions_to_others(autojump_clock: Any, world: Any) -> None:
    """What was asked for ahead goes back when its caller is slow, and counts no attempt."""
    async with world.open() as runtime:
        topic = await _filled(runtime)
        async with (
            topic.subscribe("group", visibility_timeout=10.0) as slow,
            topic.subscribe("group") as other,
        ):
            batches = slow.batches(max_records=20)
            for _ in range(20):
                await (await anext(batches)).ack()
            held = await anext(batches)
            await trio.sleep(5.5)
            got = 0
            while (message := await other.get(timeout=0.1)) is not None:
                assert message.attempt == 1
                await message.ack(wait=False)
                got += 1
            assert got == PARTITIONS * 20 - 21 * 20
            await held.ack()


def _received(runtime: Any, partitions: int) -> list[int]:
    """How many messages each partition's actor has taken."""
    names = [f"topics/jobs/{partition}" for partition in range(partitions)]
    return [runtime._session.system.actor(name).statistics().received for name in names]


async def test_a_flush_asks_only_partitions_whose_acks_are_not_synced(
    autojump_clock: Any, world: Any
) -> None:
    """Where the acks are synced, nothing is asked; the others sync at the same time."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=20, each=1)
        async with topic.subscribe("group") as consumer:
            batch = await anext(consumer.batches(max_records=20, max_wait=1.0, mixed=True))
            for part in batch.parts[:15]:
                await part.ack(wait=False)
            await trio.sleep(1.0)
            before = _received(runtime, 20)
            for part in batch.parts[15:]:
                await part.ack(wait=False)
            world.disk.latency_s, begun = 1.0, trio.current_time()
            await consumer.flush()
            assert trio.current_time() - begun == pytest.approx(1.0, abs=0.5)
            world.disk.latency_s = 0.0
            asked = [now - then for now, then in zip(_received(runtime, 20), before, strict=True)]
            late = [part.partition for part in batch.parts[15:]]
            assert asked == [2 if partition in late else 0 for partition in range(20)]
        assert sum(part.groups[0].pending for part in await topic.describe()) == 0


@pytest.mark.parametrize("steps", range(1, 9))
async def test_a_flush_behind_a_cancelled_one_waits_for_no_linger(
    autojump_clock: Any, world: Any, steps: int
) -> None:
    """What the cancelled one waited for is asked for again, and synced at once."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=1)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack(wait=False)
            begun = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.flush)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await consumer.flush()
            assert trio.current_time() == begun


@pytest.mark.parametrize("mixed", [False, True])
async def test_a_partition_that_had_less_than_was_asked_for_is_not_asked_again_at_once(
    autojump_clock: Any, world: Any, mixed: bool
) -> None:
    """It says when it has something: a fetch, a wait and an ack are all that it is sent for what it has."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=20, each=5)
        async with topic.subscribe("group") as consumer:
            before, got = _received(runtime, 20), 0
            async for batch in consumer.batches(max_records=1000, max_wait=1.0, mixed=mixed):
                got += len(batch)
                await batch.ack(wait=False)
                if got == 100:
                    break
            await trio.sleep(1.0)
            asked = [now - then for now, then in zip(_received(runtime, 20), before, strict=True)]
            assert asked == [3] * 20
            await topic.publish(b"more", partition=7)
            message = await consumer.get()
            assert (message.partition, message.value) == (7, b"more")


async def test_a_batch_is_waited_for_no_longer_than_its_timeout(autojump_clock: Any, world: Any) -> None:
    """`get_batch` returns None then, of one partition and mixed, also while another task of the consumer waits."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=2)
        async with topic.subscribe("group") as consumer:
            for mixed in (False, True):
                begun = trio.current_time()
                assert await consumer.get_batch(mixed=mixed, timeout=3.0) is None
                assert trio.current_time() - begun == pytest.approx(3.0)
            assert await consumer.get_batch(timeout=0) is None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.get)
                await trio.testing.wait_all_tasks_blocked()
                assert await consumer.get_batch(timeout=2.0) is None
                nursery.cancel_scope.cancel()


async def test_the_timeout_of_a_batch_ends_with_its_first_message(autojump_clock: Any, world: Any) -> None:
    """A batch that has begun is filled for `max_wait`, however short the timeout; `timeout=0` finds what is there."""
    async with world.open() as runtime:
        topic = await _filled(runtime, partitions=3, each=4)
        async with topic.subscribe("group") as consumer:
            begun = trio.current_time()
            batch = await consumer.get_batch(max_records=100, max_wait=5.0, mixed=True, timeout=0)
            assert isinstance(batch, callboard.hints.MixedBatch)
            assert (len(batch), len(batch.parts)) == (12, 3)
            assert trio.current_time() - begun == pytest.approx(5.0)
            await batch.ack()
