"""Groups that nobody reads are expired, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

import callboard
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk

DAY = 86_400.0

Open = Callable[[], Any]


@pytest.fixture
def open_again() -> Open:
    """Opens a runtime on one disk in memory, as often as it is called, one after the other."""
    clock = VirtualClock()
    disk = MemoryDisk(clock=clock)
    return lambda: callboard.open_runtime(disk=disk, clock=clock, seed=1)


async def names(runtime: Any) -> list[str]:
    """The groups there are."""
    return [group.name for group in await runtime.groups()]


async def test_a_group_without_members_is_expired_after_its_time(
    autojump_clock: Any, open_again: Open
) -> None:
    """The time counts from the last consumer's leaving."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group"):
            await trio.sleep(10 * DAY)
        await trio.sleep(6.9 * DAY)
        assert await names(runtime) == ["group"]
        await trio.sleep(0.2 * DAY)
        assert await names(runtime) == []


@pytest.mark.parametrize("has_members", [True, False])
async def test_a_crash_of_the_coordinator_expires_nothing(
    autojump_clock: Any, open_again: Open, has_members: bool
) -> None:
    """A group that was opened long ago keeps its place when its coordinator restarts, whoever is reading it."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
        async with topic.subscribe("group") as consumer:
            await trio.sleep(10 * DAY)
            if has_members:
                runtime.crash("groups/group", RuntimeError("a drill"))
                await trio.sleep(DAY)
                assert (await consumer.get()).value == b"one"
        if not has_members:
            runtime.crash("groups/group", RuntimeError("a drill"))
            await trio.sleep(DAY)
        assert await names(runtime) == ["group"]


async def test_a_directory_that_was_closed_for_long_opens_with_its_groups(
    autojump_clock: Any, open_again: Open
) -> None:
    """Consumers come back to their place after a long pause; a group that nobody comes back to is expired then."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"0", b"1"])
        for group in ("group", "forgotten"):
            async with topic.subscribe(group) as consumer:
                await (await consumer.get()).ack()
    await trio.sleep(30 * DAY)
    async with open_again() as runtime:
        await trio.sleep(60)
        async with runtime.topic("orders").subscribe("group") as consumer:
            assert (await consumer.get()).offset == 1
            await trio.sleep(DAY)
        assert await names(runtime) == ["group"]


async def test_short_openings_expire_a_group_too(autojump_clock: Any, open_again: Open) -> None:
    """Its consumers have had their hour to come back, in minutes; one that comes back has all of it again."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders")
        for name in ("used", "unused"):
            async with topic.subscribe(name):
                pass
    await trio.sleep(8 * DAY)
    for minute in range(30):
        async with open_again() as runtime:
            assert len(await names(runtime)) == 2, minute
            await trio.sleep(30)
        await trio.sleep(DAY)
    async with open_again() as runtime, runtime.topic("orders").subscribe("used"):
        pass
    await trio.sleep(8 * DAY)
    openings = 0
    while True:
        async with open_again() as runtime:
            await trio.sleep(30)
            if await names(runtime) == ["used"]:
                break
        openings += 1
        await trio.sleep(DAY)
    assert 20 <= openings <= 40
    async with open_again() as runtime:
        await trio.sleep(1800)
        assert await names(runtime) == ["used"]


async def test_a_few_short_openings_leave_a_short_expiry_time_to_come_back(
    autojump_clock: Any, open_again: Open
) -> None:
    """What looks into a directory for a moment does not use up the time of a group that expires after seconds."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group", group_expiry=20.0):
            pass
    for _ in range(5):
        await trio.sleep(DAY)
        async with open_again() as runtime:
            await trio.sleep(0.1)
            assert await names(runtime) == ["group"]
    await trio.sleep(DAY)
    async with open_again() as runtime:
        await trio.sleep(20)
        assert await names(runtime) == []


async def test_very_many_groups_come_and_go_at_once(autojump_clock: Any, open_again: Open) -> None:
    """More coordinators than the catalog's mailbox holds have news for it: none of them crashes, nothing is lost."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"one")
        count = 1500

        inside = 0
        everybody = trio.Event()

        async def member(number: int) -> None:
            nonlocal inside
            async with topic.subscribe(f"group-{number}"):
                inside += 1
                if inside == count:
                    everybody.set()
                await everybody.wait()

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(member, number)
        await trio.sleep(1)
        (groups,) = [node for node in runtime.tree().children if node.name == "groups"]
        assert [child.last_failure for child in groups.children] == [None] * count
        await trio.sleep(8 * DAY)
        assert await names(runtime) == []


async def test_a_group_ends_although_a_partition_is_down(autojump_clock: Any, open_again: Open) -> None:
    """A failed partition keeps nobody from deleting a group, and forgets it when the directory is opened again."""
    async with open_again() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish(b"one", partition=0)
        for number in range(8):
            async with topic.subscribe(f"short-{number}", durable=False):
                pass
        async with topic.subscribe("group"), topic.subscribe("other", durable=False):
            for _ in range(30):
                runtime.crash("topics/orders/1", RuntimeError("a drill"))
                await trio.sleep(0.3)
            assert [part.state for part in await topic.describe()] == ["running", "failed"]
        await runtime.group("group").delete()
        await trio.sleep(1)
        assert await names(runtime) == []
        (catalog,) = [node for node in runtime.tree().children if node.name == "catalog"]
        assert catalog.restarts == 0
    async with open_again() as runtime:
        await trio.sleep(0.1)  # it recovers, and forgets, while the runtime is open
        assert [part.groups for part in await runtime.topic("orders").describe()] == [(), ()]
