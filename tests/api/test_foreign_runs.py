"""A runtime belongs to one trio run: calls from other threads and runs are refused, and leave it unharmed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard

in_thread = trio.to_thread.run_sync


async def test_calls_from_another_run_are_refused(tmp_path: Path) -> None:
    """Every asynchronous call in another thread's trio run says why and what to do; the owner goes on and closes."""
    async with callboard.open_runtime(tmp_path) as runtime:
        topic = await runtime.create_topic("jobs")
        await topic.publish_batch([b"a", b"b"])
        batches = topic.read_batches()
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            calls: list[Any] = [
                partial(topic.publish, b"x"),
                partial(topic.publish_batch, [b"x"]),
                topic.flush,
                topic.describe,
                batches.__anext__,
                topic.subscribe("group").__aenter__,
                consumer.get,
                partial(consumer.get, timeout=0),
                consumer.flush,
                partial(consumer.get_batch, max_records=1, max_wait=0.0),
                consumer.receive().__aenter__,
                message.ack,
                message.nack,
                message.release,
                partial(message.ack, wait=False),
                partial(message.extend, 1.0),
                partial(consumer.__aexit__, None, None, None),
                partial(runtime.create_topic, "more"),
                partial(runtime.delete_topic, "jobs"),
                runtime.groups,
                runtime.stats,
                partial(runtime.restart, "topics/jobs/0"),
                partial(runtime.__aexit__, None, None, None),
            ]
            for call in calls:
                with pytest.raises(callboard.WrongRun, match="from_thread"):
                    await in_thread(trio.run, call)
            await message.ack()
            await (await consumer.get()).ack()
        await topic.publish(b"c")
        assert [record.value async for record in topic.read()] == [b"a", b"b", b"c"]


async def test_calls_from_a_thread_without_a_run_are_refused(tmp_path: Path) -> None:
    """Calls that wait for nothing are refused there too; what comes back to the run by `from_thread` is served."""
    async with callboard.open_runtime(tmp_path) as runtime:
        topic = await runtime.create_topic("jobs")
        for call in (
            partial(runtime.topic, "jobs"),
            runtime.topics,
            runtime.tree,
            runtime.events,
            partial(topic.subscribe, "group"),
            topic.read,
        ):
            with pytest.raises(callboard.WrongRun, match="from_thread"):
                await in_thread(call)
        receipt = await in_thread(trio.from_thread.run, topic.publish, b"x")
        assert receipt.offset == 0
        assert await in_thread(trio.from_thread.run_sync, runtime.topics)
