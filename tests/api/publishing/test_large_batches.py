"""Batches larger than a partition's budget of pending bytes, and messages of any size among many others."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.clients.budget import Budget
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk

KIB = 1024


@pytest.fixture
def runtime() -> Any:
    """A runtime in memory, not opened yet."""
    clock = VirtualClock()
    return callboard.open_runtime(disk=MemoryDisk(clock=clock), clock=clock, seed=1)


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are cut into frames of 2 KiB instead of 8 MiB."""
    monkeypatch.setattr("callboard.publishing.publisher.FRAME_BYTES_TARGET", 2 * KIB)
    monkeypatch.setattr("callboard.publishing.columns.FRAME_BYTES_TARGET", 2 * KIB)


async def small_budgets(runtime: Any, partitions: int) -> Any:
    """A topic whose partitions grant 5 KiB of credit."""
    topic = await runtime.create_topic("orders", partitions=partitions)
    for account in topic._publisher.accounts():
        account.credit = Budget(5 * KIB)
    return topic


@pytest.mark.parametrize("acks", ["all", "none"])
async def test_a_batch_larger_than_the_budget(
    autojump_clock: Any, runtime: Any, small_frames: None, acks: str
) -> None:
    """It is stored whole and in order, several of them side by side too, and the budget is whole again."""
    async with runtime:
        topic = await small_budgets(runtime, 2)
        values = [bytes(KIB - 1) + bytes([number]) for number in range(40)]
        keys = [b"%d" % number for number in range(40)]
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(lambda: topic.publish_batch(values, keys=keys, acks=acks))
            await topic.flush()
        stored = [record.value[-1] async for record in topic.read()]
        assert sorted(stored) == sorted([*range(40)] * 3)
        assert [account.credit.waiting_bytes for account in topic._publisher.accounts()] == [0, 0]


async def test_a_large_message_takes_its_turn(autojump_clock: Any, runtime: Any) -> None:
    """A message as large as the budget is stored although small ones never stop coming."""
    async with runtime:
        topic = await small_budgets(runtime, 1)
        small = 0
        async with trio.open_nursery() as nursery:

            async def chatter() -> None:
                nonlocal small
                for _ in range(500):
                    await topic.publish(bytes(KIB))
                    small += 1

            for _ in range(8):
                nursery.start_soon(chatter)
            while small < 100:
                await trio.lowlevel.checkpoint()
            await topic.publish(bytes(5 * KIB))
            assert small < 200
            nursery.cancel_scope.cancel()


async def test_a_publisher_that_gives_up_lets_the_next_one_in(autojump_clock: Any) -> None:
    """Whoever waits behind a large message that is cancelled goes on at once."""
    budget = Budget(10)
    assert budget.take_nowait(6)
    admitted = []

    async def take(size: int) -> None:
        await budget.take(size)
        admitted.append(size)

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            nursery.start_soon(take, 3)
            await budget.take(10)
        await trio.testing.wait_all_tasks_blocked()
    assert admitted == [3]
    assert budget.waiting_bytes == 9


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_batch_of_too_many_messages(autojump_clock: Any, runtime: Any, partitions: int) -> None:
    """It is refused whole, however many partitions would share it."""
    async with runtime:
        topic = await runtime.create_topic("orders", partitions=partitions)
        with pytest.raises(callboard.InvalidArgument, match="and 100000 are allowed"):
            await topic.publish_batch([b""] * 100_001)
        assert [0] * partitions == [partition.next_offset for partition in await topic.describe()]
