"""The coordinator of a group: members, through crashes and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.catalog.commands import EnsureGroup
from callboard.actors.groups.commands import (
    Assigned,
    Departed,
    Fence,
    Fenced,
    HandedOver,
    Join,
    Joined,
    Leave,
    SettingsAltered,
    TakenAway,
)
from callboard.actors.groups.coordinator import RETRY_S, UNJOINED_S
from callboard.actors.kernel import ActorSystem, Batch, MailboxSpec, notify
from callboard.actors.settings import GroupSettings
from callboard.consumer.participation import Participation
from callboard.log.limits import Limits
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


def coordinator(runtime: Any, group: str = "group") -> Any:
    """The group's coordinator."""
    return runtime._session.system.actor(f"groups/{group}")


async def members(runtime: Any) -> tuple[int, ...]:
    """The ids of the only group's consumers."""
    (group,) = await runtime.groups()
    return tuple(info.consumer for info in group.consumers)


async def test_joining_and_leaving_may_be_repeated(autojump_clock: Any, in_memory: Any) -> None:
    """A member is counted once however often it joins; leaving twice, or unknown, is nothing."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            ref = coordinator(runtime)
            (member,) = await members(runtime)
            for _ in range(3):
                joined = await ref.ask(Join(member, topic.topic_id))
            assert (joined.group_id, joined.generation) == (1, 1)
            assert await members(runtime) == (member,)
            for _ in range(2):
                await ref.ask(Leave(member))
            await ref.ask(Leave(12345))
            assert await members(runtime) == ()


async def test_members_outlive_their_coordinator(autojump_clock: Any, in_memory: Any) -> None:
    """A restarted coordinator knows its members, and an ephemeral group ends only with the last of them."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group", durable=False), topic.subscribe("group"):
            runtime.crash("groups/group", RuntimeError("a drill"))
            await trio.sleep(10.0)
            assert len(await members(runtime)) == 2
        await trio.sleep(1.0)
        assert await runtime.groups() == ()
        with pytest.raises(callboard.InvalidArgument):
            coordinator(runtime)


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
async def test_nobody_joins_a_group_that_is_about_to_end(
    autojump_clock: Any, in_memory: Any, is_refused: bool, crashes: bool
) -> None:
    """Who joins while the catalog decides that a group ends hears that it ended, or is a member if the disk refuses.

    Also when the coordinator crashes meanwhile.
    """
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        catalog = runtime._session.catalog
        admission = await catalog.ask(EnsureGroup("group", ("orders",), {"durable": False}))
        await trio.sleep(UNJOINED_S - 0.005)
        in_memory.disk.latency_s = 0.2
        if is_refused:
            in_memory.disk.fail_next("sync", "EIO", path_contains="catalog")
        await trio.sleep(0.01)
        if crashes:
            runtime.crash("groups/group", RuntimeError("a drill"))
            await trio.sleep(0.1)
        joining = coordinator(runtime).ask_nowait(Join(admission.consumer, topic.topic_id))
        await trio.sleep(0.01)
        assert await members(runtime) == ()
        if is_refused and not crashes:
            await joining.wait()
            assert await members(runtime) == (admission.consumer,)
        else:
            with pytest.raises(
                callboard.ActorCrashed
            ):  # it was stopped: a consumer asks again, and hears that
                await joining.wait()
            assert await runtime.groups() == ()


async def test_a_group_that_had_members_again_does_not_end(autojump_clock: Any, in_memory: Any) -> None:
    """What was due before somebody joined, and left again, says nothing of the time since: also if the disk refused."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group", group_expiry=1.0):
            pass
        in_memory.disk.fail_next("sync", "EIO", path_contains="catalog")
        await trio.sleep(1.1)
        assert [group.group_id for group in await runtime.groups()] == [1]
        await trio.sleep(RETRY_S - 0.5)
        async with topic.subscribe("group"):
            pass
        await trio.sleep(0.9)
        assert [group.group_id for group in await runtime.groups()] == [1]
        await trio.sleep(RETRY_S)
        assert await runtime.groups() == ()


async def test_a_consumer_joins_through_crashes(autojump_clock: Any, in_memory: Any) -> None:
    """Whatever crashes while it joins, the consumer is a member in the end, or hears why not."""
    in_memory.disk.latency_s = 0.01
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3)
        await topic.publish_batch([b"x"] * 3, partition=2)
        for turn in range(12):
            path = ("groups/group", "topics/orders/2")[turn % 2]
            async with trio.open_nursery() as nursery:

                async def crash(path: str = path, turn: int = turn) -> None:
                    await trio.sleep(0.003 * turn)
                    if path in {node.path for node in runtime.tree().walk()}:
                        runtime.crash(path, RuntimeError("a drill"))

                nursery.start_soon(crash)
                async with topic.subscribe("group") as consumer:
                    message = await consumer.get(timeout=5.0)
                    assert (message.partition, message.attempt) == (2, 1)
                    await message.release()
            await trio.sleep(2.0)
        (info,) = await runtime.groups()
        assert info.members == 0


async def test_the_leases_of_a_member_that_leaves_are_released_everywhere(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Also when one of the partitions has failed and cannot be asked, and the coordinator crashes before it is back."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3)
        for partition in range(3):
            await topic.publish(b"x", partition=partition)
        async with topic.subscribe("group") as survivor:
            async with topic.subscribe("group") as leaver:
                for _ in range(3):
                    await leaver.get()
                while (await topic.describe())[0].state != "failed":
                    runtime.crash("topics/orders/0", RuntimeError("a drill"))
                    await trio.sleep(0.26)
            found = {(await survivor.get(timeout=1.0)).partition for _ in range(2)}
            assert found == {1, 2}
            runtime.crash("groups/group", RuntimeError("a drill"))
            await trio.sleep(1.0)
            await runtime.restart("topics/orders/0")
            assert (await survivor.get(timeout=1.0)).partition == 0


async def test_a_member_that_leaves_many_partitions_takes_few_tasks(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Its leases in 200 partitions are released by a handful of tasks, not by one for each."""

    class Counting(trio.abc.Instrument):
        spawned = 0

        def task_spawned(self, task: trio.lowlevel.Task) -> None:
            self.spawned += 1

    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=200)
        for partition in range(200):
            await topic.publish(b"x", partition=partition)
        async with topic.subscribe("group") as consumer:
            for _ in range(200):
                await consumer.get()
            counting = Counting()
            trio.lowlevel.add_instrument(counting)
        trio.lowlevel.remove_instrument(counting)
        assert 0 < counting.spawned < 50
        async with topic.subscribe("group") as consumer:
            assert {(await consumer.get()).partition for _ in range(200)} == set(range(200))


async def test_a_hung_partition_keeps_the_leases_of_no_other(autojump_clock: Any, in_memory: Any) -> None:
    """A member leaves while the disk of one partition hangs: what it had of the others is delivered at once."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3)
        for partition in range(3):
            await topic.publish(b"x", partition=partition)
        async with topic.subscribe("group") as survivor:
            try:
                async with topic.subscribe("group") as leaver:
                    for _ in range(3):
                        await leaver.get()
                    in_memory.disk.hang(f"topics/{topic.topic_id}/0")
                    raise KeyError("a body that fails waits for nobody")
            except KeyError:
                found = {(await survivor.get(timeout=1.0)).partition for _ in range(2)}
            assert found == {1, 2}
            in_memory.disk.unhang()
            assert (await survivor.get(timeout=1.0)).partition == 0


async def test_a_coordinator_that_crashes_still_has_leases_released(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Its next incarnation asks for what the crashed one had not been answered."""
    in_memory.disk.latency_s = 0.01
    async with in_memory.open(limits=Limits(partition_mailbox=1)) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"x")
        async with topic.subscribe("group") as survivor, trio.open_nursery() as nursery:

            async def crash() -> None:
                await trio.sleep(0.001)
                runtime.crash("groups/group", RuntimeError("a drill"))

            async with topic.subscribe("group") as leaver:
                await leaver.get()
                runtime.crash("topics/orders/0", RuntimeError("a drill"))
                await trio.sleep(0.0001)
                nursery.start_soon(
                    topic.publish, b"y"
                )  # has the mailbox to itself until the partition is back
                await trio.sleep(0.0001)
                nursery.start_soon(crash)
            assert (await survivor.get(timeout=1.0)).value == b"x"


async def test_many_consumers_cancelled_together_all_leave(autojump_clock: Any, in_memory: Any) -> None:
    """None stays a member; the group expires, and retention no longer waits for it."""
    in_memory.disk.latency_s = 0.001
    count = 1500
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", retention_bytes=1 << 18, segment_bytes=1 << 16)
        inside = 0
        everybody = trio.Event()

        async def consume() -> None:
            nonlocal inside
            async with topic.subscribe("group") as consumer:
                inside += 1
                if inside == count:
                    everybody.set()
                await consumer.get()

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(consume)
            await everybody.wait()
            (info,) = await runtime.groups()
            assert info.members == count
            nursery.cancel_scope.cancel()
        await trio.sleep(10.0)
        (info,) = await runtime.groups()
        assert info.members == 0
        with pytest.raises(callboard.TopicFull):
            for _ in range(40):
                await topic.publish(b"x" * 20_000)
        await trio.sleep(8 * 86_400.0)
        assert await runtime.groups() == ()
        for _ in range(40):
            await topic.publish(b"x" * 20_000)


async def test_who_is_cancelled_before_its_turn_is_no_member(autojump_clock: Any, in_memory: Any) -> None:
    """A consumer that gave up while its joining still waited leaves nothing behind."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            for turn in range(50):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:

                        async def join() -> None:
                            async with topic.subscribe("group"):
                                await trio.sleep_forever()

                        nursery.start_soon(join)
                        for _ in range(turn % 10):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()
            await trio.sleep(1.0)
            (info,) = await runtime.groups()
            assert info.members == 1


async def test_a_fenced_member_loses_its_leases_and_joins_again(autojump_clock: Any, in_memory: Any) -> None:
    """Its receipts are void, what it had is leased to others at once, and it goes on as a new generation."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish_batch([b"x"] * 2, partition=partition)
        async with topic.subscribe("group", name="first") as fenced, topic.subscribe("group") as other:
            held = [await fenced.get() for _ in range(4)]
            first, second = (await runtime.groups())[0].consumers
            assert (first.name, first.generation, first.topics) == ("first", 1, ("orders",))
            assert second.consumer == first.consumer + 1
            await coordinator(runtime).ask(Fence(first.consumer))
            for message in held:
                with pytest.raises(callboard.LeaseLost):
                    await message.ack()
            taken = [await other.get(timeout=1.0) for _ in range(4)]
            assert all(message.attempt == 1 for message in taken)
            for message in taken[:2]:
                await message.ack()
            for message in taken[2:]:
                await message.release()
            again = [await fenced.get(timeout=1.0) for _ in range(2)]
            for message in again:
                await message.ack()
            assert (await runtime.groups())[0].consumers[0].generation == 2
        assert [part.groups[0].pending for part in await topic.describe()] == [0, 0]


async def test_a_fetch_of_an_earlier_generation_is_refused(autojump_clock: Any, in_memory: Any) -> None:
    """Also by a partition that restarted since; a consumer that left and one of another id are no concern of it."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"x"] * 4)
        async with topic.subscribe("group"):
            (member,) = await members(runtime)
            await coordinator(runtime).ask(Fence(member))
            for _ in range(2):
                with pytest.raises(callboard.log.errors.ConsumerFenced):
                    await in_memory.fetch(runtime, consumer=member).wait()
                runtime.crash("topics/orders/0", RuntimeError("a drill"))
                await trio.sleep(1.0)
            records = await in_memory.fetch(runtime, consumer=member + 1, records=1).wait()
            assert in_memory.offsets(records) == [0]


async def test_a_fenced_member_that_sleeps_or_works_hears_of_it(autojump_clock: Any, in_memory: Any) -> None:
    """A consumer that waits for messages joins again; the body of `receive` is cancelled when its lease is renewed."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
        async with topic.subscribe("group", visibility_timeout=3.0) as consumer:
            (member,) = await members(runtime)
            with pytest.raises(callboard.LeaseLost):
                async with consumer.receive():
                    await coordinator(runtime).ask(Fence(member))
                    await trio.sleep(60.0)
            await (await consumer.get()).ack()
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    assert (await consumer.get()).value == b"two"

                nursery.start_soon(wait)
                await trio.sleep(1.0)
                await coordinator(runtime).ask(Fence(member))
                await trio.sleep(1.0)
                await topic.publish(b"two")


async def test_news_for_a_member_coalesce(autojump_clock: Any, in_memory: Any) -> None:
    """The last word counts, only what is new wakes the consumer, and taking what has ended leaves none behind."""
    woken: list[int] = []
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            ref = coordinator(runtime)
        news = Participation(ref, 7, lambda: woken.append(1))
        news.open()
        assert news.assigned is None

        def say(*notices: object) -> None:
            assert all(notify(ref, news.number, notice) for notice in notices)

        say(Assigned(frozenset({("topic", 0), ("topic", 1)}), frozenset({("topic", 0)})))
        say(HandedOver(("topic", 1)))
        assert news.handed_over == {("topic", 0), ("topic", 1)}
        say(*2 * [Assigned(frozenset({("topic", 1)}), frozenset({("topic", 1)}))])
        say(*2 * [TakenAway(("topic", 0))], Fenced(3), Fenced(2))
        assert news.generation == 3
        assert news.assigned == news.handed_over == {("topic", 1)}
        assert news.take_ended() == [("topic", 0)]
        assert news.take_ended() == []
        assert len(woken) == 6
        assert not news.is_stopped
    assert news.is_stopped


async def test_a_consumer_departs_until_an_incarnation_of_the_coordinator_takes_that(
    autojump_clock: Any,
) -> None:
    """Also when the one that runs fails before; what has been taken is not said again."""
    system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
    ref = system.register("groups/group", MailboxSpec(1))
    cell: Any = ref._cell
    consumer = Participation(ref, 7)
    consumer.open()
    consumer.depart()
    consumer.depart()
    cell.fail(RuntimeError("a drill"), None)
    cell.revive()
    for taken in ([Departed(7)], []):
        cell.tell_began()
        assert [message for message, _ in Batch(cell.mailbox, 9)] == taken


async def test_what_a_consumer_heard_of_settings_outlasts_an_older_answer(
    autojump_clock: Any, in_memory: Any
) -> None:
    """One that joined while they were altered takes the answer later than what was said after it."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            news = Participation(coordinator(runtime), 7)
        for version, is_paused in ((2, False), (1, True), (3, True), (3, False)):
            news.joined(Joined(1, 1, GroupSettings(paused=is_paused), version=version))
            if version == 2:
                news.hear(SettingsAltered(GroupSettings(), 2))
            assert news.settings.paused == (version == 3 and is_paused)


async def test_consumer_ids_are_never_used_twice(autojump_clock: Any, in_memory: Any) -> None:
    """Not in a later life either, nor after a crash of the catalog."""
    seen: list[int] = []
    for _ in range(3):
        async with in_memory.open() as runtime:
            topic = await runtime.create_topic("orders")
            for _ in range(5):
                async with topic.subscribe("group"):
                    (info,) = await runtime.groups()
                    seen += [consumer.consumer for consumer in info.consumers]
            runtime.crash("catalog", RuntimeError("a drill"))
            await trio.sleep(1.0)
            async with topic.subscribe("group"):
                (info,) = await runtime.groups()
                seen += [consumer.consumer for consumer in info.consumers]
    assert seen == sorted(set(seen))
    assert len(seen) == 18
