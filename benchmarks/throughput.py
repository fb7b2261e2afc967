"""Publish and consume against the bare append + fdatasync of the same bytes: the median of interleaved pairs.

Run `python benchmarks/throughput.py [--pairs 5] [--seconds 1]`. Values of 100 bytes and keys of 9, prebuilt, `acks="all"`, one
partition. Each pair measures Callboard and the bare file right after each other, so that a machine whose speed drifts
does not decide the ratio. The second baseline overwrites a preallocated file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

import callboard
from callboard.topic import Topic

VALUE_BYTES = 100
FRAME_OVERHEAD = 130


def bare_rate(folder: Path, payload_bytes: int, records: int, seconds: float, *, overwrite: bool = False) -> float:
    """Records per second of write + fdatasync, `records` in `payload_bytes` a time."""
    data = os.urandom(payload_bytes)
    path = folder / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    try:
        if overwrite:
            for at in range(0, 64 << 20, 1 << 20):
                os.pwrite(descriptor, bytes(1 << 20), at)
            os.fsync(descriptor)
        done = offset = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(descriptor, data, offset)
            os.fdatasync(descriptor)
            offset += payload_bytes
            if overwrite and offset > (64 << 20) - payload_bytes:
                offset = 0
            done += records
        return done / (time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()


async def batch_rate(topic: Topic, count: int, seconds: float) -> float:
    values = [os.urandom(VALUE_BYTES) for _ in range(count)]
    keys = [b"key%06d" % number for number in range(count)]
    await topic.publish_batch(values, keys=keys)
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        await topic.publish_batch(values, keys=keys)
        done += count
    return done / (time.perf_counter() - start)


async def single_rate(topic: Topic, tasks: int, seconds: float) -> float:
    values = [os.urandom(VALUE_BYTES) for _ in range(64)]
    done = 0
    stop = False

    async def publish(number: int) -> None:
        nonlocal done
        value = values[number % 64]
        while not stop:
            await topic.publish(value, key=b"key000001")
            done += 1

    start = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(publish, number)
        await trio.sleep(seconds)
        stop = True
    return done / (time.perf_counter() - start)


async def consume_rate(topic: Topic, records: int, count: int) -> float:
    values = [os.urandom(VALUE_BYTES) for _ in range(1000)]
    keys = [b"key%06d" % number for number in range(1000)]
    for _ in range(records // 1000):
        await topic.publish_batch(values, keys=keys)
    done = 0
    async with topic.subscribe(f"group-{time.monotonic_ns()}", start=(await topic.describe())[0].visible_end - records) as consumer:
        start = time.perf_counter()
        if count == 1:
            async for message in consumer:
                await message.ack(wait=False)
                done += 1
                if done >= records:
                    break
            await consumer.flush()
        else:
            async for batch in consumer.batches(max_records=count):
                assert len(batch.values()) == len(batch)
                await batch.ack()
                done += len(batch)
                if done >= records:
                    break
        elapsed = time.perf_counter() - start
    return done / elapsed


async def paired(name: str, pairs: int, measure: Callable[[], Awaitable[float]], bare: Callable[[], float], over: Callable[[], float]) -> None:
    rates, ratios, overs = [], [], []
    for _ in range(pairs):
        rate = await measure()
        base, overwrite = bare(), over()
        rates.append(rate)
        ratios.append(rate / base)
        overs.append(rate / overwrite)
    print(
        f"{name:34s} {statistics.median(rates):12,.0f} msg/s   {statistics.median(ratios):6.2f} of bare append + fdatasync"
        f"   {statistics.median(overs):6.2f} of bare overwrite",
        flush=True,
    )


async def main(pairs: int, seconds: float, inline: bool, folder: Path) -> None:
    async with callboard.open_runtime(folder / "data", sync_inline=inline) as runtime:
        topic = await runtime.create_topic("bench")
        for count in (1000, 100):
            size = count * (VALUE_BYTES + 9 + 8) + FRAME_OVERHEAD
            await paired(
                f"publish_batch of {count}",
                pairs,
                lambda count=count: batch_rate(topic, count, seconds),
                lambda size=size, count=count: bare_rate(folder, size, count, seconds),
                lambda size=size, count=count: bare_rate(folder, size, count, seconds, overwrite=True),
            )
        size = VALUE_BYTES + 9 + FRAME_OVERHEAD
        for tasks in (1, 64, 512):
            await paired(
                f"single publishes, {tasks} tasks",
                pairs,
                lambda tasks=tasks: single_rate(topic, tasks, seconds),
                lambda: bare_rate(folder, size, 1, seconds),
                lambda: bare_rate(folder, size, 1, seconds, overwrite=True),
            )
        for count, records in ((1000, 300_000), (1, 20_000)):
            size = count * (VALUE_BYTES + 9 + 8) + FRAME_OVERHEAD
            await paired(
                f"consume in {count}s with acks",
                pairs,
                lambda count=count, records=records: consume_rate(topic, records, count),
                lambda size=size, count=count: bare_rate(folder, size, count, seconds),
                lambda size=size, count=count: bare_rate(folder, size, count, seconds, overwrite=True),
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--inline", action="store_true")
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        trio.run(main, options.pairs, options.seconds, options.inline, Path(name))
