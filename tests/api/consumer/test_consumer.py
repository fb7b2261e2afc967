"""One consumer: leases, redelivery, settling, and bodies that hold a lease."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.partition.commands import WaitForVisible
from callboard.log.limits import Limits
from callboard.simulations.disk.inodes import lose_unsynced


async def test_what_is_not_settled_in_time_comes_again(autojump_clock: Any, world: Any) -> None:
    """After `visibility_timeout` the message is delivered again, to whoever asks, with the next attempt number."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            started = trio.current_time()
            for attempt in (1, 2, 3):
                message = await consumer.get()
                assert (message.attempt, trio.current_time() - started) == (attempt, 10.0 * (attempt - 1))
            await message.ack()
            assert await consumer.get(timeout=60.0) is None


async def test_a_nack_delays_and_counts_and_a_release_does_neither(autojump_clock: Any, world: Any) -> None:
    """`nack(delay=5)` brings the message back in five seconds as attempt 2, `release` at once as the same attempt."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            started = trio.current_time()
            await message.nack(delay=5.0, reason="no luck")
            assert await consumer.get(timeout=4.9) is None
            message = await consumer.get()
            assert (message.attempt, trio.current_time() - started) == (2, 5.0)
            await message.release()
            message = await consumer.get()
            assert (message.attempt, trio.current_time() - started) == (2, 5.0)
            await message.nack()
            assert (await consumer.get()).attempt == 3


async def test_a_delay_outlives_the_process(autojump_clock: Any, world: Any) -> None:
    """A delayed message is not delivered earlier because the directory was opened again."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).nack(delay=100.0)
    await trio.sleep(30.0)
    async with world.open() as runtime, runtime.topic("jobs").subscribe("group") as consumer:
        assert await consumer.get(timeout=69.0) is None
        assert (await consumer.get(timeout=2.0)).attempt == 2


async def test_a_late_ack_counts_until_the_message_is_leased_again(autojump_clock: Any, world: Any) -> None:
    """Finished work is not redone; once somebody else has the message the old receipt is worth nothing."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2)
        async with topic.subscribe("group", visibility_timeout=10.0, max_in_flight=1) as first:
            late = await first.get()
            await trio.sleep(15.0)
            await late.ack()
            assert (await world.group_of(topic)).floor == 1
            later = await first.get()
            await trio.sleep(15.0)
            async with topic.subscribe("group") as second:
                again = await second.get()
                assert (again.offset, again.attempt) == (1, 2)
                with pytest.raises(callboard.LeaseLost) as caught:
                    await later.ack()
                assert caught.value.lost == ((1, 2),)
                assert (await world.group_of(topic)).leased == 1
                await again.ack()
        assert (await world.group_of(topic)).pending == 0


async def test_extending_moves_the_end_of_a_lease_both_ways(autojump_clock: Any, world: Any) -> None:
    """`extend(s)` makes the lease end s seconds from now, be that later or sooner than before."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            message = await consumer.get()
            started = trio.current_time()
            await trio.sleep(9.0)
            await message.extend(20.0)
            message = await consumer.get()
            assert (message.attempt, trio.current_time() - started) == (2, 29.0)
            await message.extend(1.0)
            message = await consumer.get()
            assert (message.attempt, trio.current_time() - started) == (3, 30.0)
            await trio.sleep(11.0)
            with pytest.raises(callboard.LeaseLost):
                await message.extend(1.0)


async def test_acks_without_waiting_are_written_together_soon(autojump_clock: Any, world: Any) -> None:
    """Lazy acks are coalesced within 10 ms into one commit, and `flush` waits for it."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        async with topic.subscribe("group", max_in_flight=100) as consumer:
            messages = [await consumer.get() for _ in range(100)]
            await trio.sleep(1.0)
            before = (await topic.describe())[0].commits
            for message in messages:
                await message.ack(wait=False)
            await trio.sleep(0.009)
            assert (await topic.describe())[0].commits == before
            await trio.sleep(0.002)
            assert (await topic.describe())[0].commits == before + 1
            started = trio.current_time()
            await consumer.flush()
            assert trio.current_time() == started


async def test_lazy_acks_are_written_whatever_the_caller_does_next(autojump_clock: Any, world: Any) -> None:
    """A caller that acks without waiting and then works for long, or is interrupted, leaves no ack unsent."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20)
        async with topic.subscribe("group", max_in_flight=20) as consumer:
            for message in [await consumer.get() for _ in range(5)]:
                await message.ack(wait=False)
            await trio.sleep(0.02)
            assert (await world.group_of(topic)).floor == 5
        with pytest.raises(KeyError):
            async with topic.subscribe("group", max_in_flight=20) as consumer:
                for message in [await consumer.get() for _ in range(5)]:
                    await message.ack(wait=False)
                raise KeyError
        await trio.sleep(0.02)
        assert ((await world.group_of(topic)).floor, (await world.group_of(topic)).leased) == (10, 0)


async def test_lazy_acks_of_neighbours_are_one_event(autojump_clock: Any, world: Any) -> None:
    """In order they go as ranges, in any order all of them count; each is settled once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 64)
        async with topic.subscribe("group", max_in_flight=64) as consumer:
            messages = [*(await consumer.get_batch(max_records=64, max_wait=0.0))]
            before = runtime._session.system.actor("topics/jobs/0").statistics().received
            for message in messages[:40]:
                await message.ack(wait=False)
            await consumer.flush()
            after = runtime._session.system.actor("topics/jobs/0").statistics().received
            assert after - before == 2  # one settlement, one flush
            for message in reversed(messages[40:]):
                await message.ack(wait=False)
            with pytest.raises(callboard.InvalidArgument):
                await messages[0].ack(wait=False)
            await consumer.flush()
        assert ((await world.group_of(topic)).floor, (await world.group_of(topic)).pending) == (64, 0)


async def test_merged_acks_that_came_too_late_are_all_named(autojump_clock: Any, world: Any) -> None:
    """`LeaseLost` at the flush names the message that was leased again, and none of its neighbours."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 6)
        async with (
            topic.subscribe("group", visibility_timeout=10.0) as slow,
            topic.subscribe("group", visibility_timeout=10.0) as quick,
        ):
            stale = [*(await slow.get_batch(max_records=6, max_wait=0.0))]
            await trio.sleep(11.0)
            assert (await quick.get()).offset == 0
            for message in stale:
                await message.ack(wait=False)
            with pytest.raises(callboard.LeaseLost) as lost:
                await slow.flush()
            assert lost.value.lost == ((0, 1),)


async def test_flush_tells_of_lazy_acks_that_came_too_late(autojump_clock: Any, world: Any) -> None:
    """An `ack(wait=False)` whose message was leased again raises `LeaseLost` at the next flush, once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            stale = await consumer.get()
            await trio.sleep(11.0)
            fresh = await consumer.get()
            await stale.ack(wait=False)
            with pytest.raises(callboard.LeaseLost):
                await consumer.flush()
            await consumer.flush()
            await fresh.ack()


async def test_tasks_that_flush_at_once_wait_for_all_acks(autojump_clock: Any, world: Any) -> None:
    """Each flush returns when the acks before it are synced, also those that were sent while another one flushed."""

    async def story(runtime: Any) -> None:
        topic = await world.topic_of(runtime, 2)
        async with topic.subscribe("group") as consumer:
            messages = [await consumer.get() for _ in range(2)]
            world.disk.slow("/delivery/", 1.0)
            await messages[0].ack(wait=False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.flush)
                nursery.start_soon(consumer.flush)
                await trio.sleep(0.5)
                await messages[1].ack(wait=False)
                await trio.sleep(0.1)
                await consumer.flush()
                world.disk.crash(lose_unsynced)

    await world.live(story)
    async with world.open() as runtime:
        assert await world.drain(runtime, "jobs") == {}


async def test_a_consumer_that_fails_leaves_after_its_acks_also_where_a_mailbox_is_full(
    autojump_clock: Any, world: Any
) -> None:
    """What was acked without waiting before the body failed is not delivered again."""
    async with world.open(limits=Limits(partition_mailbox=1)) as runtime:
        topic = await world.topic_of(runtime, 6)
        with pytest.raises(ValueError, match="a drill"):
            async with topic.subscribe("group") as consumer:
                messages = [await consumer.get() for _ in range(6)]
                for message in reversed(messages):
                    await message.ack(wait=False)
                raise ValueError("a drill")
        await trio.sleep(0.1)
        assert (await world.group_of(topic)).pending == 0


async def test_settling_rides_through_a_restart_of_the_partition(autojump_clock: Any, world: Any) -> None:
    """Acks that are under way when the partition crashes are asked again; none raises, none is lost."""
    world.disk.latency_s = 0.01
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20)
        async with topic.subscribe("group", max_in_flight=20) as consumer:
            for wait in (True, False):
                messages = [await consumer.get() for _ in range(10)]
                async with trio.open_nursery() as nursery:
                    for message in messages:
                        nursery.start_soon(partial(message.ack, wait=wait))
                    await trio.sleep(0.005)
                    runtime.crash("topics/jobs/0", RuntimeError("a drill"))
                await consumer.flush()
        assert (await world.group_of(topic)).pending == 0
    async with world.open() as runtime, runtime.topic("jobs").subscribe("group") as consumer:
        assert await consumer.get(timeout=60.0) is None


async def test_what_an_ended_process_had_is_ready_again_though_the_partition_crashes(
    autojump_clock: Any, world: Any
) -> None:
    """Its lease does not begin anew when the journal could not yet take that it has ended, nor the lease after it."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=60.0) as consumer:
            await consumer.get()
            killed = world.disk.snapshot()
    world.disk.restore(killed)
    world.disk.slow("/delivery/", 0.01)
    async with world.open() as runtime, runtime.topic("jobs").subscribe("group") as consumer:
        await runtime.topic("jobs").describe()
        started = trio.current_time()
        world.disk.hang("/delivery/")
        assert await consumer.get(timeout=0.5) is None
        runtime.crash("topics/jobs/0", RuntimeError("a drill"))
        await trio.sleep(0.5)
        world.disk.fail_next("write", "EIO", path_contains="/delivery/")
        world.disk.unhang()
        message = await consumer.get()
        assert (message.attempt, trio.current_time() - started < 5.0) == (2, True)


async def test_a_cancelled_ack_may_be_repeated(autojump_clock: Any, world: Any) -> None:
    """Giving up waiting for an ack does not make the message count as settled here."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            world.disk.hang("/delivery/")
            with trio.move_on_after(1.0):
                await message.ack()
            assert not message.settled
            world.disk.unhang()
            await trio.sleep(1.0)
            await message.ack()  # the first one had arrived, and nobody else was handed the message
        assert (await world.group_of(topic)).pending == 0


# -- receive: the lease lives as long as the body


async def test_receive_renews_while_its_body_runs(autojump_clock: Any, world: Any) -> None:
    """A body of ten minutes under a visibility timeout of ten seconds keeps its message, and acks it."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with (
            topic.subscribe("group", visibility_timeout=10.0) as slow,
            topic.subscribe("group") as other,
        ):
            async with slow.receive() as message:
                assert await other.get(timeout=600.0) is None
            assert message.attempt == 1
            assert (await world.group_of(topic)).pending == 0
        assert (await runtime.stats()).leased_messages == 0


async def test_a_lost_lease_cancels_the_body(autojump_clock: Any, world: Any) -> None:
    """When the lease cannot be renewed any more the body is cancelled, and `receive` raises `LeaseLost` itself."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        started = trio.current_time()
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            with pytest.raises(callboard.LeaseLost):
                async with consumer.receive():
                    await runtime.group("group").delete()
                    await trio.sleep_forever()
            assert trio.current_time() - started < 10.0
        assert (await runtime.stats()).leased_messages == 0


async def test_a_body_that_settles_by_hand_is_left_alone(autojump_clock: Any, world: Any) -> None:
    """A message acked inside the body has no lease to renew: the body goes on, and its end settles nothing."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            async with consumer.receive() as message:
                await message.ack()
                await trio.sleep(100.0)
            assert (await world.group_of(topic)).pending == 0


async def test_a_slow_body_does_not_sit_on_what_was_fetched_with_its_message(
    autojump_clock: Any, world: Any
) -> None:
    """What a quick consumer fetched ahead goes to others once its body takes longer than a renewal."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 100)
        async with (
            topic.subscribe("group", visibility_timeout=30.0) as slow,
            topic.subscribe("group") as other,
        ):
            for _ in range(20):
                async with slow.receive():
                    await trio.lowlevel.checkpoint()
            assert (await world.group_of(topic)).leased > 1
            async with slow.receive() as message:
                await trio.sleep(11.0)
                assert (await world.group_of(topic)).leased == 1
                found = [await other.get(timeout=0.0001 + number) for number in range(79)]
                assert [other.attempt for other in found if other] == [1] * 79
            assert message.offset == 20


async def test_renewals_of_one_partition_do_not_wait_for_another(autojump_clock: Any, world: Any) -> None:
    """A partition that does not answer for long costs no handler on another partition its lease."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20, partitions=2)
        await topic.publish_batch([b"%d" % number for number in range(20)], partition=1)
        ended: list[tuple[int, bool]] = []

        async def work() -> None:
            async with topic.subscribe("group", visibility_timeout=9.0) as consumer:
                partition = -1
                try:
                    async with consumer.receive() as message:
                        partition = message.partition
                        await trio.sleep(60.0)
                    ended.append((partition, True))
                except callboard.LeaseLost:
                    ended.append((partition, False))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(work)
            await trio.sleep(1.0)
            world.disk.hang(f"topics/{topic.topic_id}/0")
            runtime.crash("topics/jobs/0", RuntimeError("its recovery will hang"))
            await trio.sleep(40.0)
            world.disk.unhang()
        assert {done for partition, done in ended if partition == 1} == {True}
        assert {done for partition, done in ended if partition == 0} == {False}


async def test_exceptions_of_bodies_come_out_as_themselves(autojump_clock: Any, world: Any) -> None:
    """Neither open_runtime nor subscribe nor receive wraps what their bodies raise into a group."""
    error = ValueError("itself")
    for where in ("runtime", "subscribe", "receive"):
        with pytest.raises(ValueError, match="itself") as caught:
            async with world.open() as runtime:
                topic = await world.topic_of(runtime, 1)
                if where == "runtime":
                    raise error
                async with topic.subscribe(where) as consumer:
                    if where == "subscribe":
                        raise error
                    async with consumer.receive():
                        raise error
        assert caught.value is error


async def test_a_group_of_exceptions_from_a_body_passes_whole(autojump_clock: Any, world: Any) -> None:
    """A body's own nursery may raise a group: it passes as it is, and the message is nacked."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", backoff=0.0) as consumer:
            with pytest.raises(ExceptionGroup) as caught:
                async with consumer.receive():
                    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
            assert len(caught.value.exceptions) == 2
            assert (await consumer.get()).attempt == 2


async def test_a_cancelled_scope_hides_no_exception_of_the_body(autojump_clock: Any, world: Any) -> None:
    """The message is nacked without waiting, and its room is free."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe(
            "group", backoff=1.0, visibility_timeout=60.0, max_in_flight=1
        ) as consumer:
            with pytest.raises(ValueError, match="a failure"), trio.CancelScope() as scope:
                async with consumer.receive():
                    scope.cancel()
                    raise ValueError("a failure")
            began = trio.current_time()
            message = await consumer.get(timeout=30.0)
            assert message is not None
            assert (message.attempt, round(trio.current_time() - began)) == (2, 1)


async def test_a_body_ends_with_its_topic(autojump_clock: Any, world: Any) -> None:
    """At the first renewal that finds the topic deleted, long before its lease would have run out; and it says so."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=30.0) as consumer:
            began = trio.current_time()
            with pytest.raises(callboard.LeaseLost, match="its topic was deleted"):
                async with consumer.receive():
                    await runtime.delete_topic("jobs")
                    await trio.sleep_forever()
            assert trio.current_time() - began < 15.0


async def test_a_lost_lease_hides_no_exception_of_the_body(autojump_clock: Any, world: Any) -> None:
    """When the cancelled body raises an error of its own, that comes out, with a note on the lease."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            with pytest.raises(ValueError, match="while cleaning up") as caught:
                async with consumer.receive():
                    await runtime.group("group").delete()
                    try:
                        await trio.sleep_forever()
                    finally:
                        raise ValueError("while cleaning up")
            assert any("was lost" in note for note in caught.value.__notes__)


async def test_a_cancelled_lazy_ack_keeps_the_outcome_of_an_earlier_one(
    autojump_clock: Any, world: Any
) -> None:
    """A cancelled `ack(wait=False)` that waited for an earlier one takes nothing of what `flush` tells."""
    async with world.open(limits=Limits(lazy_acks=1)) as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group", visibility_timeout=10.0) as consumer:
            stale = await consumer.get()
            await trio.sleep(11.0)
            fresh = await consumer.get()
            other = await consumer.get()
            world.disk.slow("/delivery/", 1.0)
            await stale.ack(wait=False)
            with trio.move_on_after(0.1) as impatient:
                await other.ack(wait=False)
                await fresh.ack(wait=False)
            assert impatient.cancelled_caught
            with pytest.raises(callboard.LeaseLost):
                await consumer.flush()


async def test_a_cancelled_lazy_ack_loses_none_that_were_gathered_before_it(
    autojump_clock: Any, world: Any
) -> None:
    """Those may have been sent when it was cancelled: they are sent again as such, and are not told to be lost."""
    async with world.open(limits=Limits(partition_mailbox=1)) as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=30.0) as consumer:
            first = await consumer.get()
            await topic.publish(b"another")
            second = await consumer.get()
            assert first.lease is not second.lease
            world.disk.slow("/delivery/", 1.0)
            with pytest.raises(callboard.MailboxFull):
                while True:
                    first.lease.port.ref.tell_nowait(WaitForVisible(0))
            await first.ack(wait=False)
            with trio.move_on_after(0.1) as impatient:
                await second.ack(wait=False)
            assert impatient.cancelled_caught
            await second.ack(wait=False)
            await consumer.flush()
        assert (await world.group_of(topic)).pending == 0


async def test_a_nack_after_a_cancelled_ack_is_told_to_be_lost(autojump_clock: Any, world: Any) -> None:
    """The ack had counted: the message does not come again, and the nack must not say that it does."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=30.0) as consumer:
            message = await consumer.get()
            world.disk.slow("/delivery/", 1.0)
            with trio.move_on_after(0.1) as impatient:
                await message.ack()
            assert impatient.cancelled_caught
            with pytest.raises(callboard.LeaseLost):
                await message.nack()
        assert (await world.group_of(topic)).pending == 0


@pytest.mark.parametrize("crash", [False, True])
async def test_what_was_given_back_is_not_acked_late(autojump_clock: Any, world: Any, crash: bool) -> None:
    """A nack and an ack were both cut off, and another consumer has acked the message: that ack was not this one's."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with (
            topic.subscribe("group", visibility_timeout=30.0) as first,
            topic.subscribe("group") as second,
        ):
            message = await first.get()
            world.disk.slow("/delivery/", 1.0)
            for settle in (message.nack, message.ack):
                with trio.move_on_after(0.1) as impatient:
                    await settle()
                assert impatient.cancelled_caught
            again = await second.get()
            assert again.offset == message.offset
            await again.ack()
            async with trio.open_nursery() as nursery:
                if crash:
                    nursery.start_soon(_crash_after, runtime, 0.5)
                with pytest.raises(callboard.LeaseLost):
                    await message.ack()
        world.disk.unslow()  # a restart takes many steps
        assert (await world.group_of(topic)).pending == 0


async def test_an_ack_that_was_cut_off_is_acked_again_when_others_were_given_back(
    autojump_clock: Any, world: Any
) -> None:
    """Another message of the same lease was nacked meanwhile: the ack counts all the same."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2)
        async with topic.subscribe("group", visibility_timeout=30.0) as consumer:
            async for batch in consumer.batches(max_records=2, max_wait=1.0):
                one, other = batch
                break
            world.disk.slow("/delivery/", 1.0)
            with trio.move_on_after(0.1) as impatient:
                await one.ack()
            assert impatient.cancelled_caught
            await other.nack()
            await one.ack()
        world.disk.unslow()
        assert (await world.group_of(topic)).pending == 1


@pytest.mark.parametrize("how", ["gathered", "gathered batch", "batch"])
async def test_an_ack_that_was_cut_off_is_acked_again_together_with_others(
    autojump_clock: Any, world: Any, how: str
) -> None:
    """The first ack had counted: the second is not reported as lost, whatever it goes to the partition with."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group", visibility_timeout=30.0) as consumer:
            batch = await consumer.get_batch(max_records=3, max_wait=1.0)
            world.disk.slow("/delivery/", 1.0)
            for message in batch[:2]:
                with trio.move_on_after(0.1) as impatient:
                    await message.ack()
                assert impatient.cancelled_caught
            world.disk.unslow()
            await trio.sleep(5.0)
            if how == "gathered":
                for message in batch:
                    await message.ack(wait=False)
            else:
                await batch.ack(wait=how == "batch")
            await consumer.flush()
        assert (await world.group_of(topic)).pending == 0


async def _crash_after(runtime: callboard.Runtime, seconds: float) -> None:
    await trio.sleep(seconds)
    runtime.crash("topics/jobs/0", RuntimeError("a drill"))


async def test_times_are_numbers_of_seconds_that_can_be_told(autojump_clock: Any, world: Any) -> None:
    """For ever is a timeout, and no delay; what is too long is told with the maximum."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"tea")
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get(timeout=math.inf)
            assert message is not None
            for refused in (math.inf, math.nan, 10**10, -1):
                with pytest.raises(callboard.InvalidArgument, match=r"from 0 to 1,000,000,000"):
                    await message.nack(delay=refused)
            await message.ack()
            with trio.move_on_after(10**6) as scope:
                await consumer.get(timeout=math.inf)
            assert scope.cancelled_caught
            with pytest.raises(callboard.InvalidArgument, match="not a dead letter"):
                await orders.dead_letters("billing").forget("x")  # type: ignore[arg-type]


async def test_closing_gives_back_what_a_consumer_holds_that_was_never_left(
    autojump_clock: Any, world: Any
) -> None:
    """It is no attempt: the next opening hands it over at once, as if it had not been handed over before."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"tea")
        consumer = await topic.subscribe("workers", max_deliveries=2).__aenter__()
        message = await consumer.get()
        assert message is not None
        assert message.attempt == 1
    async with world.open() as runtime, runtime.topic("orders").subscribe("workers") as consumer:
        message = await consumer.get(timeout=1.0)
        assert message is not None
        assert message.attempt == 1
