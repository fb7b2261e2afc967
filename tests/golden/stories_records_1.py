"""Stories of record version 1: journals whose records are maps and arrays with room for what comes later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import test_golden_directories as golden
import trio
from story import BEGIN, KIB, Story, attempts_of, story, take


async def _topics(tell: Story, runtime: Any) -> Any:
    """Topics with settings that differ, one altered, one deleted; twenty jobs, ten of them two hours later."""
    await runtime.create_topic(
        "packed", partitions=2, compression="gzip", segment_bytes=64 * KIB, retention_bytes=1024 * KIB
    )
    await runtime.create_topic("aging", segment_age=600.0, retention_age=86_400.0, drop_unread=True)
    await runtime.alter_topic("aging", retention_age=172_800.0, max_message_bytes=2048)
    await runtime.create_topic("deleted")
    await runtime.delete_topic("deleted")
    topic = await runtime.create_topic("jobs")
    for n in range(10):
        await tell.publish(topic, b"job %d" % n, key=b"k%d" % (n % 3), headers={"n": str(n)})
    tell.clock.skip(7200)
    await tell.publish_batch(topic, [b"job %d" % n for n in range(10, 20)])
    await tell.publish_batch(runtime.topic("packed"), [b"packed " * 40 + b"%d" % n for n in range(20)])
    return topic


async def _groups(tell: Story, runtime: Any, topic: Any) -> None:
    """Groups with every setting and in every state."""
    async with topic.subscribe("middle", visibility_timeout=12.5, max_in_flight=50) as consumer:
        for message in await take(consumer, 12):
            if message.offset in (0, 3, 4, 7, 11):
                await message.ack()
            else:
                await message.release()
    tell.delivers["middle of jobs"] = attempts_of(n for n in range(20) if n not in (0, 3, 4, 7, 11))
    async with topic.subscribe("delayed", group_expiry=None, backoff=0.25, max_backoff=30.0) as consumer:
        for message in await take(consumer, 4):
            await message.nack(delay=3600.0 + message.offset, reason="not before the afternoon")
    tell.delivers["delayed of jobs"] = attempts_of(range(4, 20))
    async with topic.subscribe("retried") as consumer:
        for message in await take(consumer, 3):
            await message.nack(reason="again: Grüße")
    tell.delivers["retried of jobs"] = attempts_of(range(3), 2) + attempts_of(range(3, 20))
    async with topic.subscribe("from-instant", start=BEGIN + timedelta(hours=1)):
        pass
    tell.delivers["from-instant of jobs"] = attempts_of(range(10, 20))
    async with topic.subscribe("from-offset", start=15, group_expiry=90_000.0) as consumer:
        await (await consumer.get()).ack()
    tell.delivers["from-offset of jobs"] = attempts_of(range(16, 20))
    async with topic.subscribe("from-end", start="end"):
        pass
    tell.delivers["from-end of jobs"] = []
    async with topic.subscribe("ephemeral", durable=False) as consumer:
        await (await consumer.get()).ack()
    async with topic.subscribe("gone") as consumer:
        await (await consumer.get()).ack()
    await runtime.group("gone").delete()
    async with topic.subscribe("expired", visibility_timeout=0.05) as consumer:
        await consumer.get_batch(max_records=4, max_wait=0)  # and eight more ahead
        await trio.sleep(0.3)
    tell.delivers["expired of jobs"] = attempts_of(range(12), 2) + attempts_of(range(12, 20))


@story
async def records_1_closed(tell: Story) -> None:
    """Topics and groups with every setting and in every state, of record version 1; closed."""
    async with tell.open() as runtime:
        await _groups(tell, runtime, await _topics(tell, runtime))


@story
async def records_1_killed(tell: Story) -> None:
    """The same, of record version 1, with leases out and a durable actor of a user; killed."""
    async with tell.open() as runtime:
        topic = await _topics(tell, runtime)
        await _groups(tell, runtime, topic)
        ledger = await runtime.spawn(golden.Ledger, name="ledger")
        for number in range(11):
            await ledger.ask([f"account-{number % 3}", number])
        consumer = await topic.subscribe("leases").__aenter__()
        batch = await consumer.get_batch(max_records=5, max_wait=0)  # and ten more ahead
        await next(iter(batch)).ack()
        tell.delivers["leases of jobs"] = attempts_of(range(1, 15), 2) + attempts_of(range(15, 20))
        tell.kill()
