"""Where messages go: turns and partitioners belong to the topic, not to the handle that was used."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard


def _last(key: bytes, partitions: int) -> int:
    return partitions - 1


async def test_handles_of_a_topic_share_the_turn(world: Any, autojump_clock: Any) -> None:
    """A handle per publish spreads messages without a key as one handle does."""
    async with world.open() as runtime:
        await runtime.create_topic("jobs", partitions=2)
        receipts = [await runtime.topic("jobs").publish(b"x") for _ in range(200)]
        assert sorted({receipt.partition for receipt in receipts}) == [0, 1]


async def test_every_handle_publishes_by_the_topics_partitioner(world: Any, autojump_clock: Any) -> None:
    """One key goes to one partition, whichever handle is used, single and in batches."""
    async with world.open() as runtime:
        made = await runtime.create_topic("jobs", partitions=5, partitioner=_last)
        (listed,) = runtime.topics()
        for topic in (made, runtime.topic("jobs"), listed, await runtime.alter_topic("jobs")):
            assert (await topic.publish(b"x", key=b"k")).partition == 4
            (receipt,) = await topic.publish_batch([b"x"], keys=[b"k"])
            assert receipt.partition == 4
        again = runtime.topic("jobs", partitioner=_last)
        assert (await again.publish(b"x", key=b"k")).partition == 4


async def test_a_second_partitioner_is_refused(world: Any, autojump_clock: Any) -> None:
    """Neither one beside another, nor one after the default has placed a key."""
    async with world.open() as runtime:
        await runtime.create_topic("named", partitions=5, partitioner=_last)
        with pytest.raises(callboard.InvalidArgument, match="another partitioner"):
            runtime.topic("named", partitioner=lambda key, partitions: 0)
        used = await runtime.create_topic("used", partitions=5)
        await used.publish(b"x")
        runtime.topic("used")
        await used.publish(b"x", key=b"k")
        with pytest.raises(callboard.InvalidArgument, match="another partitioner"):
            runtime.topic("used", partitioner=_last)


async def test_a_partitioner_may_come_before_the_first_key(world: Any, autojump_clock: Any) -> None:
    """What was looked at, and got messages without a key, has no partitioner yet."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=5)
        await topic.publish(b"x")
        runtime.topic("jobs", partitioner=_last)
        assert (await topic.publish(b"x", key=b"k")).partition == 4


async def test_batches_without_keys_pass_over_partitions_that_refuse(world: Any, autojump_clock: Any) -> None:
    """A batch goes to a partition that takes it, with and without keyed messages beside it."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=3)
        accounts = topic._publisher.accounts()
        await trio.testing.wait_all_tasks_blocked()
        accounts[0].state = "stuck"
        try:
            receipts = await topic.publish_batch([b"a", b"b"])
            assert {receipt.partition for receipt in receipts} == {1}
            accounts[1].state = "failed"
            receipts = await topic.publish_batch(
                [callboard.Message(b"c"), callboard.Message(b"d", partition=2)]
            )
            assert {receipt.partition for receipt in receipts} == {2}
        finally:
            for account in accounts:
                account.state = "running"


async def test_publishing_for_nobody_lets_other_tasks_run(world: Any, autojump_clock: Any) -> None:
    """A loop of `acks="none"` has a pass of the event loop in it now and then, and can be cancelled at each call."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        passes = 0

        async def count() -> None:
            nonlocal passes
            while True:
                await trio.lowlevel.checkpoint()
                passes += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            for _ in range(1000):
                await topic.publish(b"x", acks="none")
            nursery.cancel_scope.cancel()
            await topic.publish(b"cancelled", acks="none")
        assert passes >= 10
        assert (await topic.publish(b"x")).offset == 1000


async def test_only_the_length_of_each_key_is_limited(world: Any, autojump_clock: Any) -> None:
    """A batch may have more bytes of keys in all than one key may have; a key that is longer is named, and refused."""
    async with world.open() as runtime:
        jobs = await runtime.create_topic("jobs")
        keys = [b"%0100d" % number for number in range(1000)]
        await jobs.publish_batch([b"x"] * 1000, keys=keys)
        assert [record.key async for record in jobs.read()] == keys
        longest = b"k" * 65536
        for key in (longest, b""):
            (receipt,) = await jobs.publish_batch([b"x"], keys=[key])
            assert receipt.offset is not None
        with pytest.raises(callboard.InvalidArgument, match="message 1 of the batch"):
            await jobs.publish_batch([b"x", b"y", b"z"], keys=[b"a", longest + b"k", longest])
