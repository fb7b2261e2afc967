"""The partition actor: leases across crashes and restarts, alarms, and what it leaves behind."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

import callboard
from callboard import DiskFull
from callboard.actors.kernel import Gathering
from callboard.actors.notices import OpeningLacksSpace
from callboard.actors.partition.commands import (
    Ack,
    Alter,
    Extend,
    Fetch,
    Nack,
    Read,
    ReleaseConsumer,
    SettleUnawaited,
    WaitForReady,
    WaitForVisible,
)
from callboard.actors.settings import TopicSettings
from callboard.log.limits import Limits


async def orders(runtime: Any, count: int, **settings: Any) -> Any:
    """A topic with messages, and a group in it that nobody reads."""
    topic = await runtime.create_topic("orders", **settings)
    if count:
        await topic.publish_batch([b"%d" % number for number in range(count)])
    async with topic.subscribe("group"):
        pass
    return topic


async def outcomes(in_memory: Any, replies: list[Any]) -> list[int]:
    """The offsets that were handed over; a reply may also have been lost with the actor."""
    found: list[int] = []
    for reply in replies:
        with suppress(callboard.ActorCrashed):
            found += in_memory.offsets(await reply.wait())
    return found


@pytest.mark.parametrize("path", ["/delivery/", "/0/00000"], ids=["while leased", "while read"])
async def test_leases_that_nobody_heard_of_are_released_at_the_restart(
    autojump_clock: Any, in_memory: Any, path: str
) -> None:
    """Fetches that wait for the disk when the partition crashes cost their messages neither time nor an attempt."""
    async with in_memory.open() as runtime:
        await orders(runtime, 60)
    async with in_memory.open() as runtime:  # nothing is in memory any more
        await in_memory.join(runtime)
        in_memory.disk.hang(path)
        replies = []
        for consumer in range(5):
            replies.append(in_memory.fetch(runtime, consumer=consumer))
            await trio.sleep(0.1)
        assert (await in_memory.describe(runtime)).groups[0].leased == 50
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(0.1)
        in_memory.disk.unhang()
        records = await outcomes(in_memory, replies)
        assert len(records) < 50 or path == "/0/00000"
        again = await in_memory.fetch(runtime, consumer=99, records=60).wait()
        assert sorted([*records, *in_memory.offsets(again)]) == list(range(60))
        assert {attempt for _, _, attempt in again.ranges} == {1}


@pytest.mark.parametrize("crashes", [1, 2])
async def test_the_part_of_a_lease_that_was_not_read_is_released_at_the_restart(
    autojump_clock: Any, in_memory: Any, crashes: int
) -> None:
    """What does not fit what a fetch wants is nobody's, also when the partition crashes before the journal says so."""
    async with in_memory.open() as runtime:
        topic = await orders(runtime, 0)
        for number in range(4):
            await topic.publish(b"%d" % number)
        await in_memory.join(runtime)
        ref = in_memory.port(runtime).ref
        records = await ref.ask_nowait(Fetch(1, 99, 4, 1)).wait()
        assert in_memory.offsets(records) == [0]
        for _ in range(crashes):
            runtime.crash("topics/orders/0", RuntimeError("a drill"))
            await trio.sleep(0.1)
        again = await in_memory.fetch(runtime, consumer=100).wait()
        assert in_memory.offsets(again) == [1, 2, 3]
        assert {attempt for _, _, attempt in again.ranges} == {1}


async def test_a_lease_that_was_extended_is_not_cut_short_by_a_restart(
    autojump_clock: Any, in_memory: Any
) -> None:
    """A consumer that was promised ten minutes has them, also when the partition restarts meanwhile."""
    async with in_memory.open() as runtime:
        await orders(runtime, 1)
        records = await in_memory.fetch(runtime).wait()
        ask = in_memory.port(runtime).ref.ask
        assert await ask(Extend(1, records.lease_id, 600.0))
        await runtime.restart("topics/orders/0")
        await trio.sleep(590.0)
        assert await in_memory.fetch(runtime, consumer=100).wait() is None
        await trio.sleep(20.0)
        assert in_memory.offsets(await in_memory.fetch(runtime, consumer=100).wait()) == [0]


async def test_a_lease_that_was_shortened_after_an_extension_ends_early(
    autojump_clock: Any, in_memory: Any
) -> None:
    """The last word counts: what was extended for long and then for a short time runs out after the short time."""
    async with in_memory.open() as runtime:
        await orders(runtime, 1)
        records = await in_memory.fetch(runtime).wait()
        ask = in_memory.port(runtime).ref.ask
        for seconds in (600.0, 1.0):
            assert await ask(Extend(1, records.lease_id, seconds))
        await runtime.restart("topics/orders/0")
        await trio.sleep(40.0)
        assert in_memory.offsets(await in_memory.fetch(runtime, consumer=100).wait()) == [0]


async def test_the_offset_of_an_unsynced_record_that_a_consumer_got_is_not_used_again(
    autojump_clock: Any, in_memory: Any
) -> None:
    """A record at level leader is synced before a group gets it, so that its offset stays its own, whatever fails."""
    async with in_memory.open() as runtime:
        topic = await orders(runtime, 0)
        receipt = await topic.publish(b"seen", acks="leader")
        assert in_memory.offsets(await in_memory.fetch(runtime).wait()) == [receipt.offset]
        in_memory.disk.crash()
        with suppress(BaseExceptionGroup, callboard.CallboardError):
            await topic.publish(b"too late")
    async with in_memory.open() as runtime:
        topic = runtime.topic("orders")
        assert (await topic.publish(b"another")).offset > receipt.offset


@pytest.mark.parametrize(("is_killed", "attempt"), [(True, 2), (False, 1)])
async def test_leases_are_kept_by_an_actors_restart_and_end_with_the_process(
    autojump_clock: Any, world: Any, in_memory: Any, is_killed: bool, attempt: int
) -> None:
    """A crashed partition's consumer goes on with its receipt; a dead process voids leases, closing releases them."""
    async with world.doomed() if is_killed else in_memory.open() as runtime:
        await orders(runtime, 2)
        records = await in_memory.fetch(runtime).wait()
        await trio.sleep(25.0)
        await runtime.restart("topics/orders/0")
        await trio.sleep(25.0)
        assert await in_memory.fetch(runtime, consumer=100).wait() is None
        settlement = await in_memory.port(runtime).ref.ask(Ack(1, records.lease_id, [(0, 1)]))
        assert settlement.lost == ()
    async with in_memory.open() as runtime:
        await in_memory.join(runtime)
        records = await in_memory.fetch(runtime, consumer=100).wait()
        assert records.ranges == ((1, 2, attempt),)


async def test_what_the_asker_no_longer_wants_is_taken_back(autojump_clock: Any, in_memory: Any) -> None:
    """A fetch that is abandoned while its lease is written leaves the messages ready, at the same attempt."""
    in_memory.disk.latency_s = 0.01
    async with in_memory.open() as runtime:
        await orders(runtime, 5)
        reply = in_memory.fetch(runtime)
        with trio.move_on_after(0.001):
            await reply.wait()
        await trio.sleep(0.1)
        group = (await in_memory.describe(runtime)).groups[0]
        assert (group.leased, group.ready) == (0, 5)
        assert (await in_memory.fetch(runtime).wait()).ranges == ((0, 5, 1),)


async def test_waiters_are_woken_and_forgotten(autojump_clock: Any, in_memory: Any) -> None:
    """A consumer that finds nothing waits once, is woken once, and is forgotten when it leaves."""
    async with in_memory.open() as runtime:
        topic = await orders(runtime, 0)
        port = in_memory.port(runtime)
        replies = [port.ref.ask_nowait(WaitForReady(1, consumer)) for consumer in (7, 7, 7, 8)]
        assert (await in_memory.describe(runtime)).groups[0].waiting_consumers == 2
        await port.ref.ask(ReleaseConsumer(1, 8))
        assert (await in_memory.describe(runtime)).groups[0].waiting_consumers == 1
        await topic.publish(b"x")
        assert (await in_memory.describe(runtime)).groups[0].waiting_consumers == 0
        assert [reply.done for reply in replies] == [False, False, True, False]


async def test_readers_and_consumers_are_woken_when_the_partition_stops(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Nobody sleeps on a partition that will say nothing more."""
    async with in_memory.open() as runtime:
        await orders(runtime, 0)
        port = in_memory.port(runtime)
        assert await port.ref.ask(Read(0, 10, 1000)) is None
        replies = [port.ref.ask_nowait(WaitForVisible(0)), port.ref.ask_nowait(WaitForReady(1, 7))]
        await in_memory.describe(runtime)
        assert [reply.done for reply in replies] == [False, False]
        await runtime.delete_topic("orders")
        assert [reply.value() for reply in replies] == [True, True]


async def test_the_end_of_a_hang_does_not_call_a_stopping_partition_running(
    autojump_clock: Any, in_memory: Any
) -> None:
    """The watchdog's news comes late; the state stays what it is."""
    async with in_memory.open() as runtime:
        topic = await orders(runtime, 1)
        port = in_memory.port(runtime)
        async with trio.open_nursery() as nursery:
            in_memory.disk.hang("topics/")
            nursery.start_soon(lambda: topic.publish(b"x"))
            await trio.sleep(6.0)
            assert runtime._session.mirror.state_of(port) == "stuck"
            nursery.start_soon(runtime.restart, "topics/orders/0")
            await trio.sleep(1.0)
            assert runtime._session.mirror.state_of(port) == "stopping"
            in_memory.disk.unhang()
        assert runtime._session.mirror.state_of(port) == "running"
        assert (await in_memory.describe(runtime)).next_offset == 2


async def test_nothing_is_written_once_the_files_are_closed(autojump_clock: Any, in_memory: Any) -> None:
    """Leases that run out while a partition is stopping are not journalled into a closed file."""
    in_memory.disk.latency_s = 1.0
    async with in_memory.open() as runtime:
        topic = await orders(runtime, 50)
        async with topic.subscribe("short", visibility_timeout=0.05) as consumer:
            for turn in range(10):
                with trio.move_on_after(1.5):
                    await consumer.get_batch(max_records=3, max_wait=0.0)
                await trio.sleep(turn * 0.017)
                await runtime.restart("topics/orders/0")
        node = next(node for node in runtime.tree().walk() if node.path == "topics/orders/0")
        assert node.last_failure is None


async def test_the_alarm_rings_for_what_is_due_first(autojump_clock: Any, in_memory: Any) -> None:
    """A lease that is made shorter, or a nearer delay, moves the alarm forward."""
    async with in_memory.open() as runtime:
        await orders(runtime, 3)
        port = in_memory.port(runtime)
        first = await in_memory.fetch(runtime, records=1).wait()
        second = await in_memory.fetch(runtime, records=1).wait()
        started = trio.current_time()
        assert await port.ref.ask(Extend(1, first.lease_id, 2.0))
        await port.ref.ask(Nack(1, second.lease_id, [(1, 2)], delay_s=1.0))
        await in_memory.fetch(runtime, records=1).wait()
        for due in (1.0, 2.0):
            await trio.sleep_until(started + due - 0.01)
            assert (await in_memory.describe(runtime)).groups[0].ready == 0
            await trio.sleep_until(started + due + 0.01)
            assert (await in_memory.describe(runtime)).groups[0].ready == 1
            assert (await in_memory.fetch(runtime, records=1).wait()).ranges[0][2] == 2


async def test_a_partition_recovers_on_a_full_disk_as_far_as_it_is_proven(
    autojump_clock: Any, in_memory: Any
) -> None:
    """What is proven is read, leased and acked; publishes hear DiskFull; freed space is used without a restart."""
    async with in_memory.open() as runtime:
        topic = await orders(runtime, 20)
        async with topic.subscribe("billing") as consumer:
            await (await consumer.get_batch(max_records=3, max_wait=1.0)).ack()
    with trio.CancelScope() as life:
        async with in_memory.open() as runtime:
            await runtime.topic("orders").publish_batch([b"y"] * 5, acks="leader")
            in_memory.disk.kill()
            life.cancel()
            await trio.lowlevel.checkpoint()
    in_memory.disk.power_on()
    in_memory.disk.fill()
    async with in_memory.open() as runtime:
        topic = runtime.topic("orders")
        with trio.fail_after(4.0):
            async with topic.subscribe("billing") as consumer:
                batch = await consumer.get_batch(max_records=100, max_wait=1.0)
                assert list(batch.offsets()) == list(range(3, 20))
                await batch.ack()
            with pytest.raises(DiskFull):
                await topic.publish(b"z")
        assert [logged.event for logged in runtime.events() if isinstance(logged.event, OpeningLacksSpace)]
        assert len([record async for record in topic.read()]) == 20
        in_memory.disk.free()
        with trio.fail_after(4.0):
            assert (await topic.publish(b"z")).offset == 25
        async with topic.subscribe("billing") as consumer:
            assert list((await consumer.get_batch(max_records=100, max_wait=1.0)).offsets()) == list(
                range(20, 26)
            )


async def test_consumers_of_a_partition_that_owes_its_recovery_go_on_when_there_is_space(
    autojump_clock: Any, in_memory: Any
) -> None:
    """After a power cut, nobody publishes: what waits is delivered once space is freed, each offset once."""
    with trio.CancelScope() as life:
        async with in_memory.open() as runtime:
            topic = await orders(runtime, 20)
            async with topic.subscribe("billing") as consumer:
                await (await consumer.get_batch(max_records=3, max_wait=1.0)).ack()
                await consumer.get_batch(max_records=4, max_wait=1.0)
                in_memory.disk.crash()
                life.cancel()
                await trio.lowlevel.checkpoint()
    in_memory.disk.power_on()
    in_memory.disk.fill()
    async with in_memory.open() as runtime, runtime.topic("orders").subscribe("billing") as consumer:
        with trio.move_on_after(600.0):
            await consumer.get_batch(max_records=100, max_wait=1.0)
            raise AssertionError("nothing is proven")
        statistics = await in_memory.describe(runtime)
        assert statistics.lost_records == 0
        in_memory.disk.free()
        with trio.fail_after(61.0):
            found = await consumer.get_batch(max_records=100, max_wait=1.0)
            assert list(found.offsets()) == list(range(3, 20))
            await found.ack()
        assert (await runtime.topic("orders").publish(b"y")).offset == 20
    in_memory.disk.fill()
    async with in_memory.open():
        await trio.sleep(1.0)
    in_memory.disk.free()


async def test_an_incarnation_hands_on_what_it_was_altered_to(autojump_clock: Any, in_memory: Any) -> None:
    """The next one begins with it, and hears from the catalog what is decided meanwhile."""
    async with in_memory.open() as runtime:
        await orders(runtime, 1)
        port = in_memory.port(runtime)
        await port.ref.ask(Alter(TopicSettings(retention_age=5.0)))
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await in_memory.describe(runtime)
        assert port.ref._cell.incarnation._actor._spec.settings == TopicSettings(retention_age=5.0)
        await runtime.alter_topic("orders", retention_age=7.0)
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await in_memory.describe(runtime)
        assert port.ref._cell.incarnation._actor._spec.settings == TopicSettings(retention_age=7.0)


async def test_settlements_that_nobody_awaits_take_of_a_step(autojump_clock: Any, in_memory: Any) -> None:
    """A partition takes no more messages in a step that such settlements have used up: others run before."""
    async with in_memory.open(limits=Limits(step_items=4)) as runtime:
        await orders(runtime, 20)
        await in_memory.join(runtime)
        lease = await in_memory.fetch(runtime, records=20).wait()
        ref = in_memory.port(runtime).ref
        unawaited: Any = Gathering(ref, SettleUnawaited)
        unawaited.add(Ack(1, lease.lease_id, ((0, 1), (2, 3), (4, 5))))
        unawaited.add(Ack(1, lease.lease_id, ((6, 7),)))
        received = [ref.statistics().received]

        class Steps(trio.abc.Instrument):
            def after_task_step(self, task: trio.lowlevel.Task) -> None:
                received.append(ref.statistics().received)

        replies = [ref.ask_nowait(WaitForVisible(0)) for _ in range(3)]
        trio.lowlevel.add_instrument(steps := Steps())
        for reply in replies:
            await reply.wait()
        trio.lowlevel.remove_instrument(steps)
        assert received[0] + 1 in received
