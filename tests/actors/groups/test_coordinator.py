"""The coordinator of a group: members, through crashes and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.groups.coordinator import Join, Leave, Members


def coordinator(runtime: Any, group: str = "group") -> Any:
    """The group's coordinator."""
    return runtime._system.actor(f"groups/{group}")


async def test_joining_and_leaving_may_be_repeated(autojump_clock: Any, in_memory: Any) -> None:
    """A member is counted once however often it joins; leaving twice, or unknown, is nothing."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            ref = coordinator(runtime)
            (member,) = await ref.ask(Members())
            for _ in range(3):
                group_id, settings = await ref.ask(Join(member, topic.topic_id))
            assert (group_id, settings.visibility_timeout) == (1, 30.0)
            assert await ref.ask(Members()) == (member,)
            for _ in range(2):
                await ref.ask(Leave(member))
            await ref.ask(Leave(12345))
            assert await ref.ask(Members()) == ()


async def test_members_outlive_their_coordinator(autojump_clock: Any, in_memory: Any) -> None:
    """A restarted coordinator knows its members, and an ephemeral group ends only with the last of them."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group", durable=False), topic.subscribe("group"):
            runtime.crash("groups/group", RuntimeError("a drill"))
            await trio.sleep(10.0)
            assert len(await coordinator(runtime).ask(Members())) == 2
        await trio.sleep(1.0)
        assert await runtime.groups() == ()
        with pytest.raises(callboard.InvalidArgument):
            coordinator(runtime)


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
    """Also when one of the partitions has failed and cannot be asked."""
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
