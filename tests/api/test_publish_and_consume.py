"""The whole path through the public API: publish, lease, settle, redeliver, read, reopen."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

import callboard
from callboard.actors.kernel.events import ActorRestarted


async def test_a_published_message_is_consumed_and_stays_settled_after_reopening(tmp_path: Path) -> None:
    """What was acked is not delivered again by a runtime that opens the directory later; what was not, is."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        orders = await runtime.create_topic("orders")
        for number in range(3):
            receipt = await orders.publish(b"%d" % number, key=b"k", headers={"type": "order"})
            assert receipt == callboard.Receipt("orders", 0, number)
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            assert (message.value, message.key, message.headers, message.attempt) == (
                b"0",
                b"k",
                {"type": b"order"},
                1,
            )
            await message.ack()
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        async with runtime.topic("orders").subscribe("billing") as consumer:
            values = [(await consumer.get()).value for _ in range(2)]
            assert values == [b"1", b"2"]
            assert await consumer.get(timeout=0.01) is None


async def test_a_batch_keeps_its_order_and_its_keys_choose_partitions(tmp_path: Path) -> None:
    """Every record of a batch is readable at the place its receipt names."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("events", partitions=4)
        keys = [b"host-%d" % (number % 17) for number in range(1000)]
        values = [b"value-%d" % number for number in range(1000)]
        receipts = await topic.publish_batch(values, keys=keys)
        found = {(r.partition, r.offset): (r.key, r.value) async for r in topic.read()}
        assert len(found) == 1000 == len(receipts)
        for receipt, key, value in zip(receipts, keys, values, strict=True):
            assert found[receipt.partition, receipt.offset] == (key, value)


async def test_batches_are_leased_and_acked_as_ranges(tmp_path: Path) -> None:
    """Consuming in batches sees every message once."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("events", partitions=2)
        values = [b"%d" % number for number in range(5000)]
        await topic.publish_batch(values, keys=values)
        seen: list[bytes] = []
        async with topic.subscribe("group") as consumer:
            async for batch in consumer.batches(max_records=700):
                seen.extend(batch.values())
                await batch.ack()
                if len(seen) == 5000:
                    break
        assert sorted(seen) == sorted(values)
        statistics = await topic.describe()
        assert all(group.pending == 0 for partition in statistics for group in partition.groups)


async def test_receive_acks_nacks_and_releases_by_how_its_body_ends(tmp_path: Path) -> None:
    """A body that returns acks, one that raises nacks and raises, one that is cancelled releases."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("jobs")
        await topic.publish(b"job")
        async with topic.subscribe("workers", backoff=0.0) as consumer:
            with pytest.raises(ValueError, match="no luck"):
                async with consumer.receive() as message:
                    assert message.attempt == 1
                    raise ValueError("no luck")
            with trio.CancelScope() as scope:
                async with consumer.receive() as message:
                    assert message.attempt == 2
                    scope.cancel()
                    await trio.sleep_forever()
            async with consumer.receive() as message:
                assert message.attempt == 2, "a release does not count as an attempt"
            assert await consumer.get(timeout=0.01) is None


async def test_a_crashed_partition_restarts_and_loses_nothing(tmp_path: Path) -> None:
    """After a crash of its actor a partition goes on, with leases kept and offsets continued."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"before")
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            restarted = trio.Event()
            runtime.subscribe_events(
                lambda event: restarted.set() if isinstance(event, ActorRestarted) else None
            )
            runtime.crash("topics/orders/0", RuntimeError("drill"))
            await restarted.wait()
            receipt = await topic.publish(b"after")
            assert receipt.offset == 1
            await message.ack()
            assert (await consumer.get()).value == b"after"
        node = next(node for node in runtime.tree().walk() if node.path == "topics/orders/0")
        assert node.restarts == 1
        assert "drill" in str(node.last_failure)


async def test_event_times_and_append_times_are_told_apart(tmp_path: Path) -> None:
    """A record's timestamp is the event's own time when it has one."""
    moment = datetime(1995, 8, 1, 12, tzinfo=UTC)
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("log")
        await topic.publish(b"old", timestamp=moment)
        await topic.publish(b"new")
        old, new = [record async for record in topic.read()]
        assert old.timestamp == moment
        assert old.append_time.year >= 2024
        assert new.timestamp == new.append_time


async def test_lazy_acks_are_durable_after_flush(tmp_path: Path) -> None:
    """`ack(wait=False)` returns at once, and `flush` when all of them are synced."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"%d" % number for number in range(100)])
        async with topic.subscribe("group") as consumer:
            for _ in range(100):
                await (await consumer.get()).ack(wait=False)
            await consumer.flush()
            assert (await topic.describe())[0].groups[0].pending == 0
