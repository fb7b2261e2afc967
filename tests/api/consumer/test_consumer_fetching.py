"""How much a consumer fetches: prefetch, batches, looking ahead, and sharing with others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.partition.commands import WaitForVisible
from callboard.consumer.fetcher import LATE_S
from callboard.log.errors import LeaseLost
from callboard.log.limits import PREFETCH_MAX, Limits

# -- how much is fetched


async def test_no_more_than_max_in_flight_is_held(autojump_clock: Any, world: Any) -> None:
    """With everything in flight a further `get` waits until something is settled, or a lease runs out."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        async with topic.subscribe("group", max_in_flight=3, visibility_timeout=30.0) as consumer:
            held = [await consumer.get() for _ in range(3)]
            assert await consumer.get(timeout=5.0) is None
            await held[0].ack()
            assert (await consumer.get(timeout=1.0)).offset == 3
            assert await consumer.get(timeout=5.0) is None
            started = trio.current_time()
            message = await consumer.get()
            assert (message.offset, message.attempt) == (1, 2)
            assert trio.current_time() - started < 30.0


async def test_settling_a_batch_twice_over_frees_no_room_twice(autojump_clock: Any, world: Any) -> None:
    """A batch leaves out what was acked one by one; each message counts once, so max_in_flight still holds."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20)
        async with topic.subscribe("group", max_in_flight=4) as consumer:
            batch = await consumer.get_batch(max_records=4, max_wait=0.0)
            for message in [*batch][:3]:
                await message.ack()
            await batch.ack()
            held = [await consumer.get() for _ in range(4)]
            assert await consumer.get(timeout=1.0) is None
            assert consumer._fetcher.leases.in_flight == len(held)


async def test_a_lease_that_may_have_been_shortened_counts_as_shorter(
    autojump_clock: Any, world: Any
) -> None:
    """After a cancelled `extend` nothing is handed over that may be another's soon: it is given back."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            for _ in range(2):
                message = await consumer.get()
            with trio.CancelScope() as scope:
                scope.cancel()
                await message.extend(1.0)
            await trio.sleep(0.9)
            following = await consumer.get()
            assert following.deadline - trio.current_time() > 9.0
            assert message.deadline - trio.current_time() < 0.2


@pytest.mark.parametrize("in_batch", [False, True])
async def test_a_settlement_that_is_tried_again_frees_no_room_twice(
    in_batch: bool, autojump_clock: Any, world: Any
) -> None:
    """What was cancelled under way is in flight until it is settled, and then frees its room once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20)
        async with topic.subscribe("group", max_in_flight=4) as consumer:
            first, *others = [*(await consumer.get_batch(max_records=4, max_wait=0.0))]
            settled: Any = first
            if in_batch:
                for message in (first, *others):
                    await message.release()
                settled = await consumer.get_batch(max_records=2, max_wait=0.0)
                others = [*(await consumer.get_batch(max_records=2, max_wait=0.0))]
            with trio.CancelScope() as scope:
                scope.cancel()
                await settled.nack(delay=100.0)
            assert await consumer.get(timeout=1.0) is None
            with suppress(LeaseLost):
                await settled.nack(delay=100.0)
            count = 2 if in_batch else 1
            held = [await consumer.get(timeout=1.0) for _ in range(count)]
            assert None not in held
            assert await consumer.get(timeout=1.0) is None
            assert len(held) + len(others) == 4


async def test_a_nack_that_is_cut_off_keeps_its_room_also_when_that_was_asked_for(
    autojump_clock: Any, world: Any
) -> None:
    """Another task asks for a message while the nack is under way: what it is leased is given back."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20)
        async with topic.subscribe("group", max_in_flight=2, visibility_timeout=600.0) as consumer:
            held = [await consumer.get(), await consumer.get()]
            got: list[Any] = []

            async def get() -> None:
                got.append(await consumer.get(timeout=5.0))

            async with trio.open_nursery() as nursery:
                world.disk.latency_s = 0.1
                nursery.start_soon(get)
                with trio.move_on_after(0.01):
                    await held[0].nack(delay=100.0)
            world.disk.latency_s = 0.0
            assert got == [None]
            assert (await world.group_of(topic)).leased <= 2
            await held[1].ack()
            assert await consumer.get(timeout=5.0) is not None


async def test_a_quick_caller_is_given_more_at_a_time_and_a_slow_one_less(
    autojump_clock: Any, world: Any
) -> None:
    """Prefetch grows to its limit while the caller keeps up, and falls back to one message."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1000)
        async with topic.subscribe("group") as consumer:
            most = 0
            for _ in range(300):
                await (await consumer.get()).ack()
                most = max(most, (await world.group_of(topic)).leased)
            assert PREFETCH_MAX / 2 <= most <= PREFETCH_MAX
            while consumer._fetcher.fetched.buffer:
                await (await consumer.get()).ack()
            await trio.sleep(1.0)
            await (await consumer.get()).ack()
            assert (await world.group_of(topic)).leased == 0


async def test_messages_that_waited_too_long_in_the_buffer_are_fetched_anew(
    autojump_clock: Any, world: Any
) -> None:
    """Whoever is handed a message has at least half of the visibility timeout for it."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 200)
        async with topic.subscribe("group", visibility_timeout=20.0) as consumer:
            for _ in range(20):
                await (await consumer.get()).ack()
            for number in range(20, 40):
                message = await consumer.get()
                assert (message.offset, message.attempt) == (number, 1)
                assert message.deadline - trio.current_time() >= 10.0
                await trio.sleep(7.0)
                await message.ack()


# -- batches


async def test_a_batch_waits_a_moment_for_company(autojump_clock: Any, world: Any) -> None:
    """What is published within `max_wait` of a batch's first messages joins it; then it is handed over."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group") as consumer, trio.open_nursery() as nursery:

            async def publish() -> None:
                for _ in range(3):
                    await trio.sleep(0.3)
                    await topic.publish(b"late")

            nursery.start_soon(publish)
            started = trio.current_time()
            async for batch in consumer.batches(max_records=10, max_wait=0.7):
                assert (batch.offsets(), batch.attempts()) == ([0, 1, 2], [1, 1, 1])
                assert trio.current_time() - started == pytest.approx(0.7)
                await batch.ack()
                break
            async for batch in consumer.batches(max_records=10, max_wait=0.0):
                assert batch.values() == [b"late"]
                break


async def test_a_batch_waits_no_longer_for_company_on_a_slow_disk(autojump_clock: Any, world: Any) -> None:
    """A partition that does not answer within `max_wait` holds no batch up: its messages are in the next one."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group") as consumer, trio.open_nursery() as nursery:

            async def publish() -> None:
                while True:
                    await trio.sleep(0.1)
                    await topic.publish(b"late", acks="leader")

            world.disk.latency_s = 1.0
            nursery.start_soon(publish)
            found: list[tuple[int, int]] = []
            for _ in range(5):
                batch = await consumer.get_batch(max_records=100, max_wait=0.2)
                leased_at = next(iter(batch)).deadline - consumer.settings.visibility_timeout
                two_commits_s = 2.0  # the one under way when it asks, and the one that journals the lease
                assert trio.current_time() - leased_at <= two_commits_s + 0.2 + 1e-6
                found += zip(batch.offsets(), batch.attempts(), strict=True)
                await batch.ack(wait=False)
            assert found == [(offset, 1) for offset in range(len(found))]
            nursery.cancel_scope.cancel()


async def test_a_batch_that_is_given_up_goes_back(autojump_clock: Any, world: Any) -> None:
    """Cancelled while it waits for company, `batches` gives back at once what it has; no attempt counts."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group") as consumer:
            with trio.move_on_after(1.0) as scope:
                async for _ in consumer.batches(max_records=10, max_wait=5.0):
                    raise AssertionError("it was to wait")
            assert scope.cancelled_caught
            message = await consumer.get(timeout=0.1)
            assert (message.offset, message.attempt) == (0, 1)
            assert consumer._fetcher.leases.in_flight == 1


async def test_looking_ahead_loses_and_doubles_nothing(autojump_clock: Any, world: Any) -> None:
    """Batches, single gets, slow handlers and cancelled waits, mixed: every message is seen once, at attempt one."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1000, partitions=2)
        await topic.publish_batch([b"%d" % number for number in range(1000)], partition=1)
        seen: dict[tuple[int, int], int] = {}
        async with topic.subscribe("group", visibility_timeout=30.0) as consumer:
            turn = 0
            while len(seen) < 2000:
                turn += 1
                with trio.move_on_after(0.0 if turn % 5 == 0 else 1.0):
                    if turn % 3:
                        batch = await consumer.get_batch(max_records=70, max_wait=0.001)
                        messages = [*batch]
                        if turn % 7 == 0:
                            await trio.sleep(0.5)
                    else:
                        messages = [await consumer.get()]
                    with trio.CancelScope(shield=True):
                        if turn % 11 == 0:
                            await trio.sleep(20.0)  # too long for what was looked at ahead
                        for message in messages:
                            assert message.attempt == 1
                            key = message.partition, message.offset
                            seen[key] = seen.get(key, 0) + 1
                            await message.ack(wait=False)
            await consumer.flush()
        assert set(seen.values()) == {1}
        assert [part.groups[0].pending for part in await topic.describe()] == [0, 0]


async def test_a_wait_shorter_than_the_disk_takes_still_gets_messages(
    autojump_clock: Any, world: Any
) -> None:
    """What a `get(timeout=)` gave up waiting for is there for the next one, at the first attempt, each once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        async with topic.subscribe("group", visibility_timeout=60.0) as consumer:
            world.disk.latency_s = 0.2
            found: list[tuple[int, int]] = []
            for _ in range(60):
                message = await consumer.get(timeout=0.06)
                if message is not None:
                    found.append((message.offset, message.attempt))
                    await message.ack(wait=False)
            assert [(number, 1) for number in range(5)] == found
            await consumer.flush()
        assert (await world.group_of(topic)).pending == 0


async def test_an_answer_that_comes_in_the_moment_in_which_others_are_asked_is_not_lost(
    autojump_clock: Any, world: Any
) -> None:
    """A partition that answers just when its consumer turns to the others has what it sent taken."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        async with topic.subscribe("group", visibility_timeout=60.0) as consumer:
            for number in range(50):
                await topic.publish(b"%d" % number)
                world.disk.latency_s = LATE_S
                message = await consumer.get(timeout=5.0)
                world.disk.latency_s = 0.0
                assert message is not None
                await message.ack()


async def test_a_late_answer_is_given_back_by_who_has_no_room_for_it(autojump_clock: Any, world: Any) -> None:
    """A partition that was too slow has its message back when its consumer's hands are full with another's."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        async with topic.subscribe("group", visibility_timeout=600.0, max_in_flight=1) as full:
            for partition in range(2):
                await topic.publish(b"x", partition=partition)
            world.disk.latency_s = 4 * LATE_S  # both are asked, one after the other, and answer later
            assert await full.get(timeout=5.0) is not None
            world.disk.latency_s = 0.0
            assert await full.get(timeout=1.0) is None
            async with topic.subscribe("group") as other:
                assert await other.get(timeout=5.0) is not None


async def test_a_lease_that_nobody_waited_for_goes_back_when_it_is_old(
    autojump_clock: Any, world: Any
) -> None:
    """Whoever comes back late for what it gave up waiting for is given the message anew, with time to handle it."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=20.0) as consumer:
            world.disk.latency_s = 0.2
            assert await consumer.get(timeout=0.06) is None
            await trio.sleep(15.0)
            message = await consumer.get(timeout=2.0)
            assert (message.offset, message.attempt) == (0, 1)
            assert message.deadline - trio.current_time() > 15.0


async def test_quick_batches_share_a_lease_and_slow_ones_do_not(autojump_clock: Any, world: Any) -> None:
    """While batches are taken quickly one lease covers several of them; a slow caller leases one at a time."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 4000)
        async with topic.subscribe("group", max_in_flight=800) as consumer:
            most, offsets = 0, []
            batches = consumer.batches(max_records=10)
            for _ in range(200):
                batch = await batches.__anext__()
                assert set(batch.attempts()) == {1}
                offsets += batch.offsets()
                await batch.ack()
                most = max(most, (await world.group_of(topic)).leased)
            assert 100 <= most <= 2 * 160
            for _ in range(40):
                await trio.sleep(1.0)
                batch = await batches.__anext__()
                offsets += batch.offsets()
                await batch.ack()
            assert (await world.group_of(topic)).leased <= 10
            assert offsets == list(range(2400))


async def test_a_slow_caller_holds_one_batch(autojump_clock: Any, world: Any) -> None:
    """While a slow caller works on a batch nothing else is in flight: another consumer gets the rest at once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 200)
        async with (
            topic.subscribe("group", visibility_timeout=6.0) as slow,
            topic.subscribe("group") as other,
        ):
            batches = slow.batches(max_records=10)
            for _ in range(8):
                batch = await batches.__anext__()
                await trio.sleep(1.0)
                assert (await world.group_of(topic)).leased == 10
                await batch.ack()
            held = await batches.__anext__()
            began = trio.current_time()
            for _ in range(11):
                batch = await other.get_batch(max_records=10, max_wait=0.0)
                assert set(batch.attempts()) == {1}
                await batch.ack()
            assert trio.current_time() - began < 1.0
            await held.ack()
        assert (await world.group_of(topic)).pending == 0


async def test_attempts_count_what_was_handed_over(autojump_clock: Any, world: Any) -> None:
    """Batches whose bodies outlast their leases raise the attempts of their own messages, and of no others."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        handed: dict[int, int] = {}
        async with topic.subscribe("group", visibility_timeout=0.3) as consumer:
            while (await world.group_of(topic)).pending:
                batch = await consumer.get_batch(max_records=10, max_wait=0.01)
                for offset, attempt in zip(batch.offsets(), batch.attempts(), strict=True):
                    handed[offset] = handed.get(offset, 0) + 1
                    assert attempt == handed[offset]
                await trio.sleep(0.5 if handed[batch.offsets()[0]] == 1 else 0.0)
                with suppress(LeaseLost):
                    await batch.ack()
        assert set(handed) == set(range(100))


async def test_what_is_left_of_a_lease_goes_to_single_gets_and_back(autojump_clock: Any, world: Any) -> None:
    """Batches and single messages may be mixed: what one left of a lease, the other gets; all at attempt one."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3000)
        async with topic.subscribe("group") as consumer:
            seen = []
            for turn in range(90):
                batch = await consumer.get_batch(max_records=10 + turn % 3, max_wait=0.0)
                seen += zip(batch.offsets(), batch.attempts(), strict=True)
                await batch.ack(wait=turn % 2 == 0)
                if turn % 10 == 9:
                    message = await consumer.get()
                    seen.append((message.offset, message.attempt))
                    await message.ack()
            await consumer.flush()
            assert sorted(seen) == [(number, 1) for number in range(len(seen))]


async def test_lazily_acked_batches_of_one_lease_are_one_event(autojump_clock: Any, world: Any) -> None:
    """Acks of neighbouring batches that nobody waits for reach the partition as one range."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3000)
        async with topic.subscribe("group") as consumer:
            batches = consumer.batches(max_records=10)
            for _ in range(100):
                await (await batches.__anext__()).ack(wait=False)
            await consumer.flush()
            before = (await topic.describe())[0].commits
            for _ in range(200):
                await (await batches.__anext__()).ack(wait=False)
            await consumer.flush()
            assert (await topic.describe())[0].commits - before <= 60
        assert (await world.group_of(topic)).pending == 0


# -- sharing


async def test_consumers_of_a_group_share_and_groups_do_not(autojump_clock: Any, world: Any) -> None:
    """Each message goes to one consumer of every group."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 300, partitions=3)
        await topic.publish_batch([b"%d" % number for number in range(300)], partition=2)
        seen: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}

        async def work(group: str) -> None:
            async with topic.subscribe(group) as consumer:
                while (message := await consumer.get(timeout=5.0)) is not None:
                    seen[group].append((message.partition, message.offset))
                    await message.ack()

        async with trio.open_nursery() as nursery:
            for group in ("a", "a", "a", "b"):
                nursery.start_soon(work, group)
        everything = [(partition, offset) for partition in (0, 2) for offset in range(300)]
        assert sorted(seen["a"]) == sorted(seen["b"]) == everything


async def test_tasks_may_share_one_consumer(autojump_clock: Any, world: Any) -> None:
    """Workers that use one consumer see every message once, and all of them work."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 200, partitions=2)
        seen: list[int] = []
        workers: set[int] = set()

        async def work(number: int, consumer: Any) -> None:
            while True:
                async with consumer.receive(timeout=5.0) as message:
                    if message is None:
                        return
                    workers.add(number)
                    await trio.sleep(1.0)
                    seen.append(message.offset)

        async with topic.subscribe("group") as consumer:
            started = trio.current_time()
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(work, number, consumer)
            assert trio.current_time() - started <= 20.0 + 6.0
        assert sorted(seen) == list(range(200))
        assert workers == set(range(10))


async def test_what_a_dying_consumer_held_goes_to_the_others_at_once(autojump_clock: Any, world: Any) -> None:
    """A consumer whose body raises gives everything back: no lease has to run out, no attempt counts."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        async with topic.subscribe("group", visibility_timeout=3600.0) as survivor:
            with pytest.raises(ValueError, match="died"):
                async with topic.subscribe("group") as victim:
                    for _ in range(10):
                        await victim.get()
                    raise ValueError("died")
            found = [await survivor.get(timeout=1.0) for _ in range(10)]
            assert [(message.offset, message.attempt) for message in found] == [(n, 1) for n in range(10)]


async def test_a_cancelled_get_leaves_no_lease_behind(autojump_clock: Any, world: Any) -> None:
    """Wherever a `get` is cancelled, its message comes again soon, at the same attempt; none comes twice."""
    world.disk.latency_s = 0.001
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 400)
        async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
            turn, seen = 0, set()
            while len(seen) < 400:
                turn += 1
                with trio.move_on_after((turn % 8) * 0.0004):
                    message = await consumer.get()
                    with trio.CancelScope(shield=True):
                        assert message.attempt == 1
                        assert message.offset not in seen
                        seen.add(message.offset)
                        await message.ack()
            assert await consumer.get(timeout=1.0) is None
        assert (await world.group_of(topic)).pending == 0


async def test_a_consumer_waits_quietly_and_is_woken(autojump_clock: Any, world: Any) -> None:
    """With nothing to do a consumer sleeps; a publish wakes it at once, whatever else it waited for."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0, partitions=3)
        async with topic.subscribe("group") as consumer, trio.open_nursery() as nursery:
            got: list[tuple[int, float]] = []

            async def work() -> None:
                async for message in consumer:
                    got.append((message.partition, trio.current_time()))
                    await message.ack()

            nursery.start_soon(work)
            times = []
            for turn in range(12):
                await trio.sleep(1000.0)
                times.append((turn % 3, trio.current_time()))
                await topic.publish(b"wake up", partition=turn % 3)
            await trio.sleep(1.0)
            assert got == times
            nursery.cancel_scope.cancel()


async def test_consumers_hear_that_a_topic_or_runtime_is_gone(autojump_clock: Any, world: Any) -> None:
    """Whoever waits for messages, or follows the log, is told when there will be none any more."""
    heard: list[str] = []

    async def consume(topic: Any) -> None:
        try:
            async with topic.subscribe("group") as consumer:
                await consumer.get()
        except callboard.RuntimeClosed as error:
            heard.append(str(error))

    async def follow(topic: Any) -> None:
        try:
            async for _ in topic.read(follow=True):
                pass
        except callboard.RuntimeClosed as error:
            heard.append(str(error))

    async with trio.open_nursery() as nursery:
        async with world.open() as runtime:
            for name in ("deleted", "closed"):
                topic = await runtime.create_topic(name, partitions=2)
                nursery.start_soon(consume, topic)
                nursery.start_soon(follow, topic)
            await trio.sleep(10.0)
            await runtime.delete_topic("deleted")
            await trio.sleep(10.0)
            assert len(heard) == 2
        await trio.sleep(10.0)
        assert len(heard) == 4
        nursery.cancel_scope.cancel()


async def test_not_wanting_to_wait_still_finds_what_is_there(autojump_clock: Any, world: Any) -> None:
    """`get(timeout=0)` looks once: it returns a message that is there, and None when there is none."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2)
        async with topic.subscribe("group") as consumer:
            for expected in (b"0", b"1"):
                message = await consumer.get(timeout=0)
                assert message.value == expected
                await message.ack()
            before = trio.current_time()
            assert await consumer.get(timeout=0) is None
            async with consumer.receive(timeout=0) as message:
                assert message is None
            assert trio.current_time() == before


async def test_batches_do_not_leave_fetched_messages_lying(autojump_clock: Any, world: Any) -> None:
    """Who goes on in batches after iterating gets what was fetched ahead at once, and as the first attempt."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 4)
        async with topic.subscribe("group") as consumer:
            for _ in range(2):
                await (await consumer.get()).ack()
            assert len(consumer._fetcher.fetched.buffer) == 1
            started = trio.current_time()
            found: list[tuple[int, int]] = []
            while len(found) < 2:
                batch = await consumer.get_batch(max_records=10, max_wait=0.0)
                found += zip(batch.offsets(), batch.attempts(), strict=True)
                await batch.ack()
            assert sorted(found) == [(2, 1), (3, 1)]
            assert trio.current_time() - started < 1.0


async def test_a_batch_holds_nothing_whose_lease_has_run_out(autojump_clock: Any, world: Any) -> None:
    """What a slow disk has held up for longer than its lease is not handed over: it comes with the next batch."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 10)
        async with topic.subscribe("group", visibility_timeout=1.0) as consumer:
            async with trio.open_nursery() as nursery:

                async def quick_again() -> None:
                    await trio.sleep(1.2)
                    world.disk.latency_s = 0.0

                world.disk.latency_s = 1.5
                nursery.start_soon(quick_again)
                batch = await consumer.get_batch(max_records=10, max_wait=0.0)
                assert next(iter(batch)).deadline > runtime._session.clock.monotonic()
            await batch.ack()
            assert await consumer.get(timeout=5.0) is None


# -- one pass of the loop for many messages


async def test_other_tasks_run_at_least_once_in_64_messages(autojump_clock: Any, world: Any) -> None:
    """Messages that are in the buffer already share a pass of the loop; no caller starves the others."""
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with world.open() as runtime, trio.open_nursery() as nursery:
        topic = await world.topic_of(runtime, 2000)
        async with topic.subscribe("group") as consumer:
            for _ in range(PREFETCH_MAX * 2):
                await (await consumer.get()).ack(wait=False)
            nursery.start_soon(count)
            await trio.lowlevel.checkpoint()
            longest, seen = 0, 0
            for _ in range(1000):
                before = passes
                await (await consumer.get()).ack(wait=False)
                seen = seen + 1 if passes == before else 0
                longest = max(longest, seen)
            assert 32 <= longest <= 64
            nursery.cancel_scope.cancel()


async def test_a_cancelled_get_loses_no_message_of_the_buffer(autojump_clock: Any, world: Any) -> None:
    """Every `get` can be cancelled, also one that would not let others run; the message is there for the next."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 300)
        async with topic.subscribe("group") as consumer:
            seen = []
            for number in range(600):
                with trio.CancelScope() as scope:
                    if number % 2:
                        scope.cancel()
                    message = await consumer.get()
                    seen.append(message.offset)
                    await message.ack(wait=False)
                assert scope.cancelled_caught is bool(number % 2)
            assert seen == list(range(300))
            await consumer.flush()
            assert (await world.group_of(topic)).pending == 0


async def test_what_is_given_back_while_a_mailbox_is_full_is_released_when_there_is_room(
    autojump_clock: Any, world: Any
) -> None:
    """Another consumer is handed it at once, and not when its lease runs out."""
    async with world.open(limits=Limits(partition_mailbox=1)) as runtime:
        topic = await world.topic_of(runtime, 10)
        async with topic.subscribe("group") as consumer, topic.subscribe("group") as other:
            for _ in range(5):
                message = await consumer.get()
            with pytest.raises(callboard.MailboxFull):
                while True:
                    message.lease.port.ref.tell_nowait(WaitForVisible(0))
            assert consumer._fetcher.fetched.buffer
            consumer._fetcher.fetched.give_back_buffer()
            started = trio.current_time()
            found = [await other.get() for _ in range(5)]
            assert sorted((one.offset, one.attempt) for one in found) == [
                (offset, 1) for offset in range(5, 10)
            ]
            assert trio.current_time() - started < 1.0
