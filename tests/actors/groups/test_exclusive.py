"""Exclusive groups: each partition is one consumer's, through joins, leaves, crashes, and who does not let go."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import trio

import callboard
from callboard.consumer.fetcher import LATE_S
from callboard.simulations.insides import memberships


async def test_partitions_are_shared_out(autojump_clock: Any, in_memory: Any) -> None:
    """Each member owns some partitions and is handed messages of no others; the statistics say who owns what."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=5)
        async with (
            topic.subscribe("group", mode="exclusive", name="one") as one,
            topic.subscribe("group", name="two") as two,
        ):
            for number in range(200):
                await topic.publish(b"%d" % number, partition=number % 5)
            got = defaultdict(set)
            for consumer in (one, two):
                while (message := await consumer.get(timeout=0.5)) is not None:
                    got[consumer.name].add((message.topic, message.partition))
                    await message.ack(wait=False)
            assert got == {"one": set(one.assigned), "two": set(two.assigned)}
            assert sorted(map(len, got.values())) == [2, 3]
            (group,) = await runtime.groups()
            assert [(info.name, info.assigned) for info in group.consumers] == [
                ("one", one.assigned),
                ("two", two.assigned),
            ]
            ids = {partition: info.consumer for info in group.consumers for _, partition in info.assigned}
            for part in await topic.describe():
                assert part.groups[0].owner == ids[part.partition]
                assert part.groups[0].pending == 0
        assert one.assigned == ()


async def test_a_partition_is_let_go_before_another_has_it(autojump_clock: Any, in_memory: Any) -> None:
    """What the owner's caller holds keeps the partition from the next owner; what it has not taken does not."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        async with topic.subscribe("group", mode="exclusive") as first:
            for partition in range(2):
                await topic.publish_batch([b"x"] * 50, partition=partition)
            held = {}
            while len(held) < 2:
                message = await first.get(timeout=1.0)
                if message.partition in held:
                    await message.ack()
                else:
                    held[message.partition] = message
            async with topic.subscribe("group") as second:
                assert await second.get(timeout=1.0) is None
                (kept,) = first.assigned
                assert second.assigned == ()
                moving = 1 - kept[1]
                await held.pop(moving).ack()
                message = await second.get(timeout=1.0)
                assert second.assigned == (("orders", moving),)
                assert message.partition == moving
                await message.ack()
                while (message := await second.get(timeout=0.5)) is not None:
                    assert (message.partition, message.attempt) == (moving, 1)
                    await message.ack()
                parts = await topic.describe()
                assert parts[moving].groups[0].pending == 0


async def test_the_body_of_who_does_not_let_go_is_cancelled(autojump_clock: Any, in_memory: Any) -> None:
    """After `rebalance_timeout` a running body is cancelled, however long its lease, and another gets the message."""
    ended: list[str] = []
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish(b"x", partition=1)

        async def hold() -> None:
            async with topic.subscribe(
                "group", mode="exclusive", rebalance_timeout=3.0, visibility_timeout=600.0
            ) as first:
                try:
                    async with first.receive():
                        await trio.sleep_forever()
                except callboard.LeaseLost:
                    ended.append("lost")
                assert first.assigned == (("orders", 0),)
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.sleep(0.5)
            begun = trio.current_time()
            async with topic.subscribe("group") as second:
                message = await second.get(timeout=60.0)
                assert (message.partition, message.attempt) == (1, 1)
                assert second.assigned == (("orders", 1),)
                assert 3.0 <= trio.current_time() - begun < 3.5
                assert ended == ["lost"]
                await message.ack()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("crashes", ["groups/group", "topics/orders/1"])
async def test_members_survive_crashes(autojump_clock: Any, in_memory: Any, crashes: str) -> None:
    """Whatever crashes while members come and go, every partition has one owner, and every message is handled once."""
    in_memory.disk.latency_s = 0.003
    handled: list[bytes] = []
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=4)
        for number in range(100):
            await topic.publish(b"%d" % number, partition=number % 4)

        async def consume(begins_s: float, ends_s: float) -> None:
            await trio.sleep(begins_s)
            async with topic.subscribe("group", mode="exclusive") as consumer:
                with trio.move_on_after(ends_s - begins_s):
                    while True:
                        message = await consumer.get()
                        with trio.CancelScope(shield=True):
                            await message.ack()
                            handled.append(message.value)
                        await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(consume, 0.05 * number, 1.0 + 0.3 * number)
            for _ in range(5):
                await trio.sleep(0.2)
                runtime.crash(crashes, RuntimeError("a drill"))
        for part in await topic.describe():
            assert part.groups[0].pending == 0
    assert sorted(handled) == sorted(b"%d" % number for number in range(100))


async def test_who_stays_is_not_disturbed(autojump_clock: Any, in_memory: Any) -> None:
    """When others come and go, a member's partition is not told anything, and what it fetched stays its own."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish_batch([b"x"] * 100, partition=0)
        await topic.publish_batch([b"x"] * 100, partition=1)
        async with topic.subscribe("group", mode="exclusive") as first, topic.subscribe("group") as second:
            await trio.sleep(0.1)
            (owned,) = first.assigned
            message = await first.get()
            (membership,) = memberships(runtime)
            epochs = membership.assignment.rows
            epoch = epochs[next(place for place in epochs if place[1] == owned[1])].epoch
            for _ in range(20):
                async with topic.subscribe("group"):
                    await trio.sleep(0.01)
            await second._fetcher.member.leave()
            async with topic.subscribe("group"):
                await trio.sleep(0.1)
                assert owned in first.assigned
            assert epochs[next(place for place in epochs if place[1] == owned[1])].epoch == epoch
            await message.ack()


async def test_a_handler_of_work_lets_go(autojump_clock: Any, in_memory: Any) -> None:
    """What `work` has fetched and not begun is given back when its partition goes to another."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish_batch([b"x"] * 20, partition=partition)

        async def handle(message: Any) -> None:
            await trio.sleep(1.0)

        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: topic.work(
                    handle, "group", concurrency=1, mode="exclusive", task_status=task_status
                )
            )
            await trio.sleep(0.5)
            async with topic.subscribe("group") as second:
                message = await second.get(timeout=2.0)
                assert message is not None
                assert message.attempt == 1
                await message.ack()
            nursery.cancel_scope.cancel()


async def test_what_only_exclusive_groups_have(in_memory: Any) -> None:
    """A setting of exclusive groups is refused in others, with the reason."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        with pytest.raises(callboard.ConfigurationError, match="only in an exclusive group"):
            async with topic.subscribe("group", rebalance_timeout=3.0):
                pass
        assert await runtime.groups() == ()
        async with topic.subscribe("group", mode="exclusive", rebalance_timeout=3.0):
            with pytest.raises(callboard.ConfigurationError, match="mode is 'exclusive'"):
                async with topic.subscribe("group", mode="shared"):
                    pass


async def test_a_restarted_coordinator_goes_on_with_a_hand_over(autojump_clock: Any, in_memory: Any) -> None:
    """What a member does not let go of is taken from it in time, though the coordinator crashed in between."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish(b"x", partition=partition)
        async with topic.subscribe(
            "group", mode="exclusive", rebalance_timeout=3.0, visibility_timeout=600.0
        ) as first:
            held = [await first.get(), await first.get()]
            async with topic.subscribe("group") as second:
                await trio.sleep(1.0)
                runtime.crash("groups/group", RuntimeError("a drill"))
                message = await second.get(timeout=2.5)
                assert message is not None
                assert trio.current_time() < 4.0
                await message.ack()
                for own in held:
                    if own.partition == message.partition:
                        with pytest.raises(callboard.LeaseLost):
                            await own.ack()
                    else:
                        await own.ack()


async def test_a_topic_of_several_is_deleted(autojump_clock: Any, in_memory: Any) -> None:
    """The partitions of the other topics are shared out as before, also among those who join later."""
    async with in_memory.open() as runtime:
        for name in ("orders", "refunds"):
            await runtime.create_topic(name, partitions=4)
        names = ["orders", "refunds"]
        async with (
            runtime.subscribe(names, "group", mode="exclusive") as one,
            runtime.subscribe(names, "group") as two,
        ):
            await trio.sleep(0.1)
            assert [len(consumer.assigned) for consumer in (one, two)] == [4, 4]
            await runtime.delete_topic("refunds")
            for consumer in (one, two):
                with pytest.raises(callboard.TopicNotFound):
                    await consumer.get(timeout=1.0)
            async with runtime.topic("orders").subscribe("group") as three:
                await trio.sleep(0.1)
                owned = [consumer.assigned for consumer in (one, two, three)]
                assert sorted(map(len, owned)) == [1, 1, 2]
                assert sorted(place for places in owned for place in places) == [
                    ("orders", partition) for partition in range(4)
                ]
                for partition in range(4):
                    await runtime.topic("orders").publish(b"x", partition=partition)
                got = 0
                for consumer in (one, two, three):
                    while (message := await consumer.get(timeout=0.5)) is not None:
                        await message.ack()
                        got += 1
                assert got == 4


async def test_what_is_left_of_a_deleted_topic_is_shared_out_anew(
    autojump_clock: Any, in_memory: Any
) -> None:
    """Nobody joins or leaves: who has lost all its partitions with a topic gets its part of the others."""
    async with in_memory.open() as runtime:
        names = [f"topic-{index}" for index in range(4)]
        for name in names:
            await runtime.create_topic(name)
        async with (
            runtime.subscribe(names, "group", mode="exclusive") as one,
            runtime.subscribe(names, "group") as two,
        ):
            await trio.sleep(0.1)
            for name, _ in two.assigned:
                await runtime.delete_topic(name)
            await trio.sleep(0.1)
            assert sorted(one.assigned + two.assigned) == sorted(
                (topic.name, 0) for topic in runtime.topics()
            )
            assert [len(one.assigned), len(two.assigned)] == [1, 1]


@pytest.mark.parametrize("ending", ["group", "topic", "runtime"])
async def test_who_owns_nothing_hears_of_the_end(autojump_clock: Any, in_memory: Any, ending: str) -> None:
    """A member without a partition waits for none that could tell it."""
    errors: list[type[Exception]] = []

    async def wait(consumer: Any) -> None:
        try:
            await consumer.get()
        except callboard.CallboardError as error:
            errors.append(type(error))

    async with trio.open_nursery() as nursery, in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        owner, idle = topic.subscribe("group", mode="exclusive"), topic.subscribe("group")
        await owner.__aenter__()
        await idle.__aenter__()
        for consumer in (owner, idle):
            nursery.start_soon(wait, consumer)
        await trio.sleep(0.1)
        assert (len(owner.assigned), len(idle.assigned)) == (1, 0)
        if ending == "group":
            await runtime.group("group").delete()
        elif ending == "topic":
            await runtime.delete_topic("orders")
        if ending != "runtime":
            await trio.sleep(1.0)
            assert len(errors) == 2
    assert errors == [callboard.GroupNotFound if ending == "group" else callboard.RuntimeClosed] * 2


@pytest.mark.parametrize("ending", ["ack", "none"])
async def test_a_body_that_has_settled_its_message_is_alive(
    autojump_clock: Any, in_memory: Any, ending: str
) -> None:
    """However long it goes on after that, its consumer is not stalled."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
        async with topic.subscribe(
            "group", mode="exclusive", session_timeout=1.0, visibility_timeout=1.5
        ) as consumer:
            async with consumer.receive() as message:
                if ending == "ack":
                    await message.ack()
                await trio.sleep(30.0)
                assert consumer.assigned == (("orders", 0),)
            (group,) = await runtime.groups()
            assert group.stalled_members == 0
            assert (await runtime.stats()).leased_messages == 0


async def test_a_partition_is_taken_in_the_moment_in_which_its_answer_is_waited_for_no_longer(
    autojump_clock: Any, in_memory: Any
) -> None:
    """At whatever step of a rebalance a consumer stops waiting for an answer, it goes on with its other partitions."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish(b"x", partition=partition)
        for number, steps in enumerate([*range(8)] * 12):
            in_memory.disk.latency_s = 0.0
            group = f"group-{number}"
            async with topic.subscribe(group, mode="exclusive") as first:
                await trio.sleep(0.1)
                in_memory.disk.latency_s = 0.1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(first.get)
                    nursery.start_soon(_stay, topic, group)
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    autojump_clock.jump(LATE_S)


async def _stay(topic: Any, group: str) -> None:
    async with topic.subscribe(group):
        await trio.sleep(1.0)
