"""One topic whose disk hangs, or whose partitions fail, and the control plane of all others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.kernel.events import ActorStarted
from callboard.actors.notices import OpeningOverdue
from callboard.log.limits import OPENINGS_MAX
from callboard.simulations.insides import directory_of

CONTROL_S = 1.0
"""Virtual seconds within which everything that concerns healthy topics is done."""


async def check_healthy(runtime: Any, number: int) -> None:
    """Everything that the control plane does, for a topic and groups that are fine."""
    with trio.fail_after(CONTROL_S):
        topic = await runtime.create_topic(f"fine-{number}", partitions=2)
        await topic.publish(b"one")
        await runtime.alter_topic(f"fine-{number}", max_message_bytes=1000)
        async with topic.subscribe(f"reader-{number}") as consumer:
            await (await consumer.get()).ack()
        assert f"reader-{number}" in [group.name for group in await runtime.groups()]
        await runtime.group(f"reader-{number}").delete()
        await runtime.delete_topic(f"fine-{number}")


@pytest.mark.parametrize(
    "operation", ["delete_group", "delete_topic", "alter_topic", "create_topic", "subscribe"]
)
async def test_an_operation_on_a_hung_topic_delays_no_other(
    autojump_clock: Any, in_memory: Any, operation: str
) -> None:
    """Whatever hangs on one topic's disk: topics and groups beside it are created, altered, read and deleted."""
    async with in_memory.open() as runtime, unhung_in_the_end(in_memory.disk):
        sick = await runtime.create_topic("sick", partitions=3)
        await sick.publish_batch([b"x"] * 3)
        async with sick.subscribe("group") as consumer:
            await (await consumer.get()).ack()
        done: list[str] = []

        async def operate() -> None:
            if operation == "delete_group":
                await runtime.group("group").delete()
            elif operation == "delete_topic":
                await runtime.delete_topic("sick")
            elif operation == "alter_topic":
                await runtime.alter_topic("sick", segment_age=1.0)
            elif operation == "create_topic":
                await runtime.create_topic("also-sick")
            else:
                async with sick.subscribe("other"):
                    pass
            done.append(operation)

        in_memory.disk.hang("topics" if operation == "create_topic" else sick.topic_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operate)
            await trio.sleep(0.1)
            if operation == "create_topic":
                with trio.fail_after(CONTROL_S):
                    assert [group.name for group in await runtime.groups()] == ["group"]
            else:
                for number in range(3):
                    await check_healthy(runtime, number)
            in_memory.disk.unhang()
        assert done == [operation]


async def test_the_same_group_goes_on_beside_a_hung_topic(autojump_clock: Any, in_memory: Any) -> None:
    """A group that is deleted while one of its topics hangs can be made anew on another topic at once."""
    async with in_memory.open() as runtime, unhung_in_the_end(in_memory.disk):
        sick = await runtime.create_topic("sick")
        fine = await runtime.create_topic("fine")
        await fine.publish(b"one")
        for topic in (sick, fine):
            async with topic.subscribe("group"):
                pass
        in_memory.disk.hang(sick.topic_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.group("group").delete)
            await trio.sleep(0.1)
            with trio.fail_after(CONTROL_S):
                async with fine.subscribe("group") as consumer:
                    assert (await consumer.get()).offset == 0
            in_memory.disk.unhang()


async def test_opening_waits_for_no_partition(autojump_clock: Any, in_memory: Any) -> None:
    """With a hung topic the runtime opens, healthy topics work, and what is asked of the hung one waits for it."""
    async with in_memory.open() as runtime:
        sick = await runtime.create_topic("sick", partitions=20)
        fine = await runtime.create_topic("fine")
        await sick.publish(b"old", partition=0)
        await fine.publish(b"old")
    in_memory.disk.hang(sick.topic_id)
    begun = trio.current_time()
    async with in_memory.open() as runtime, unhung_in_the_end(in_memory.disk):
        assert trio.current_time() - begun < CONTROL_S
        with trio.fail_after(CONTROL_S):
            assert [record.value async for record in runtime.topic("fine").read()] == [b"old"]
        await check_healthy(runtime, 0)
        with trio.move_on_after(5.0) as scope:
            await runtime.topic("sick").publish(b"new", partition=0)
        assert scope.cancelled_caught
        with pytest.raises(trio.TooSlowError):
            await subscribe_within(runtime.topic("sick"), 5.0)
        assert {part.state for part in await runtime.topic("sick").describe()} == {"recovering"}
        assert any(isinstance(logged.event, OpeningOverdue) for logged in runtime.events())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.topic("sick").publish, b"waited")
            await trio.sleep(1.0)
            in_memory.disk.unhang()
        values = [record.value async for record in runtime.topic("sick").read()]
        assert {b"old", b"waited"} <= set(values)


async def subscribe_within(topic: Any, seconds: float) -> None:
    """Be a member, before so many seconds are over."""
    with trio.fail_after(seconds):
        async with topic.subscribe("group"):
            pass


@asynccontextmanager
async def unhung_in_the_end(disk: Any) -> AsyncIterator[None]:
    """A test that fails while the disk hangs could not close its runtime."""
    try:
        yield
    finally:
        disk.unhang()


async def test_failing_partitions_open_side_by_side(autojump_clock: Any, in_memory: Any) -> None:
    """Ten topics that cannot be opened are known to have failed after the restarts of one, and say so."""
    async with in_memory.open() as runtime:
        for number in range(10):
            await runtime.create_topic(f"broken-{number}")
        fine = await runtime.create_topic("fine")
        await fine.publish(b"old")
        broken = [runtime.topic(f"broken-{number}").topic_id for number in range(10)]
    for topic_id in broken:
        in_memory.disk.fail_read(topic_id, times=1000)
    begun = trio.current_time()
    async with in_memory.open() as runtime:
        assert trio.current_time() - begun < CONTROL_S
        with trio.fail_after(CONTROL_S):
            assert [record.value async for record in runtime.topic("fine").read()] == [b"old"]
        with pytest.raises(callboard.PartitionUnavailable):
            await runtime.topic("broken-0").publish(b"x")
        for number in range(10):
            await directory_of(runtime).opened(directory_of(runtime).find(f"broken-{number}"))
            (port,) = runtime.topic(f"broken-{number}")._live.ports
            assert runtime._session.mirror.state_of(port) == "failed"
        assert trio.current_time() - begun < 8.0


async def test_a_runtime_closes_without_recovering_first(autojump_clock: Any, in_memory: Any) -> None:
    """Partitions whose turn to recover has not come are stopped without recovering."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders", partitions=40)
    in_memory.disk.latency_s = 0.05
    started: list[str] = []
    async with in_memory.open() as runtime:
        runtime.subscribe_events(
            lambda event: started.append(event.path) if isinstance(event, ActorStarted) else None
        )
        before = in_memory.disk.verbs_executed
    in_memory.disk.latency_s = 0.0
    executed = in_memory.disk.verbs_executed - before
    async with in_memory.open() as runtime:
        before = in_memory.disk.verbs_executed
        assert len(await runtime.topic("orders").describe()) == 40
        assert executed < (in_memory.disk.verbs_executed - before) / 2


async def test_partitions_recover_at_most_so_many_at_once(autojump_clock: Any, in_memory: Any) -> None:
    """Of a topic's forty partitions no more than its share recover at any time, and all have in the end."""
    async with in_memory.open() as runtime:
        await runtime.create_topic("orders", partitions=40)
    in_memory.disk.latency_s = 0.05
    async with in_memory.open() as runtime:
        giver: Any = runtime._session.system.actor("openings")._cell.incarnation._actor
        openings, most = giver.openings, 0
        while any(node.state == "starting" for node in runtime.tree().walk()):
            most = max(most, openings.counted)
            await trio.sleep(0.01)
        assert most == OPENINGS_MAX // 2  # no topic has more
        assert (openings.counted, openings.held_bytes) == (0, 0)
        assert {part.state for part in await runtime.topic("orders").describe()} == {"running"}


@pytest.mark.parametrize("use", ["publish", "read"])
async def test_a_partition_that_somebody_needs_opens_before_others(
    autojump_clock: Any, in_memory: Any, use: str
) -> None:
    """Of a hundred partitions that open, each with a consumer, the one that is published to or read waits for few."""
    async with in_memory.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=100)
        await topic.publish(b"before", partition=50)
    in_memory.disk.latency_s = 0.05
    async with in_memory.open() as runtime:
        topic = runtime.topic("orders")
        async with topic.subscribe("group"):
            if use == "publish":
                assert (await topic.publish(b"x", partition=50)).offset == 1
            else:
                async for record in topic.read(partition=50):
                    assert record.value == b"before"
            recovering = [node for node in runtime.tree().walk() if node.state == "starting"]
            assert len(recovering) > 60
    in_memory.disk.latency_s = 0.0
