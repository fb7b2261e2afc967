"""What Callboard keeps in memory: `python benchmarks/memory.py [--in DIRECTORY] [--messages N]`.

Each part runs in a process of its own. All figures are resident memory (RSS) in MB, after a garbage collection.

    streaming   1,000,000 messages of 100 bytes are published in batches of 1,000, consumed and acked; RSS at every
                tenth of the way, and the slope: the least-squares fit over the second half, in bytes per message
    retention   the same with `retention_bytes`, so that segments, journals and what describes them go away; with the
                files that are left at the end
    singly      a tenth as many, published and consumed one by one, acked without waiting
    pending     RSS of a runtime whose topic holds 1,000,000 messages that a group has not touched, before and after
                the group is opened, beside the same with 1,000 messages: the target is a few KB, whatever their number
    comings     followers of a silent topic, opened and cancelled; consumers that come and go; groups and topics
                made and deleted: none may leave anything behind
"""

from __future__ import annotations

import argparse
import gc
import pathlib
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable

import trio

import callboard

MESSAGES = 1_000_000
BATCH = 1_000
VALUE = b"v" * 100
POINTS = 20


def resident_bytes() -> int:
    """What the kernel says this process holds."""
    gc.collect()
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def slope(points: list[tuple[int, int]]) -> float:
    """Bytes per message, fitted over the second half of the points."""
    half = points[len(points) // 2 :]
    mean_x = sum(x for x, _ in half) / len(half)
    mean_y = sum(y for _, y in half) / len(half)
    return sum((x - mean_x) * (y - mean_y) for x, y in half) / sum((x - mean_x) ** 2 for x, _ in half)


def report(name: str, points: list[tuple[int, int]]) -> None:
    """One table: RSS over messages, and the slope."""
    print(f"{name}: RSS in MB after so many messages")
    for messages, size in points[:: max(1, len(points) // 10)]:
        print(f"  {messages:>10,} {size / 1e6:8.1f}")
    last = points[-1]
    print(
        f"  {last[0]:>10,} {last[1] / 1e6:8.1f}   slope of the second half: {slope(points):+.2f} bytes per message"
    )


async def stream(directory: str, messages: int) -> None:
    """Publish, consume, ack; print RSS on the way."""
    await streamed("streaming", directory, messages, {})


async def retention(directory: str, messages: int) -> None:
    """The same while the oldest segments go away."""
    await streamed("retention", directory, messages, {"segment_bytes": 4 << 20, "retention_bytes": 16 << 20})
    print(f"  left on disk: {left_on_disk(directory)}")


def left_on_disk(directory: str) -> str:
    """What files there are."""
    files = [path for path in pathlib.Path(directory).rglob("*") if path.is_file()]
    logs = [path for path in files if path.parent.name == "0" and path.suffix == ".log"]
    journals = [path for path in files if path.parent.name == "delivery"]
    return f"{len(logs)} segments, {len(journals)} journal files, {len(files)} files in all"


async def streamed(name: str, directory: str, messages: int, settings: dict[str, int]) -> None:
    """See `stream`."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("stream", **settings)
        points = [(0, resident_bytes())]
        done = 0
        async with topic.subscribe("group") as consumer:
            batches = consumer.batches(max_records=BATCH)
            while done < messages:
                await topic.publish_batch([VALUE] * BATCH)
                batch = await anext(batches)
                done += len(batch.values())
                await batch.ack()
                if done % (messages // POINTS) == 0:
                    points.append((done, resident_bytes()))
        report(name, points)


async def singly(directory: str, messages: int) -> None:
    """One by one: every ack is an event of its own in the delivery journal."""
    messages //= 10
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("stream")
        points = [(0, resident_bytes())]

        async def publish() -> None:
            for _ in range(messages):
                await topic.publish(VALUE)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            async with topic.subscribe("group") as consumer:
                for done in range(1, messages + 1):
                    message = await consumer.get()
                    assert message is not None
                    await message.ack(wait=False)
                    if done % (messages // POINTS) == 0:
                        points.append((done, resident_bytes()))
        report("singly", points)


async def pending(directory: str, messages: int) -> None:
    """A group that has everything before it."""
    print("pending: what opening a group costs that has so many untouched messages before it")
    for number in (BATCH, messages):
        async with callboard.open_runtime(f"{directory}/{number}") as runtime:
            topic = await runtime.create_topic("pending")
            for _ in range(number // BATCH):
                await topic.publish_batch([VALUE] * BATCH)
            async with topic.subscribe("warm"):
                pass
            before = resident_bytes()
            tracemalloc.start()
            async with topic.subscribe("group"):
                gc.collect()
                allocated = tracemalloc.get_traced_memory()[0]
                tracemalloc.stop()
                (statistics,) = (await runtime.stats()).partitions
                waiting = max(group.pending for group in statistics.groups)
                after = resident_bytes()
        print(
            f"  {waiting:>10,} pending: {allocated / 1024:6.1f} KB allocated, RSS {(after - before) / 1024:+6.0f} KB"
        )


async def comings(directory: str, _: int) -> None:
    """What should leave nothing behind, done often."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("quiet")
        await topic.publish(VALUE)

        async def follow() -> None:
            with trio.move_on_after(0.001):
                async for _ in topic.read(start="end", follow=True):
                    pass

        async def member() -> None:
            async with topic.subscribe("members") as consumer:
                await consumer.get(timeout=0)

        async def group() -> None:
            async with topic.subscribe("passing") as consumer:
                await consumer.get()
            await runtime.group("passing").delete()

        async def topics() -> None:
            await runtime.create_topic("passing")
            await runtime.delete_topic("passing")

        what: list[tuple[str, Callable[[], Awaitable[None]], int]] = [
            ("followers of a silent topic", follow, 3_000),
            ("consumers that come and go", member, 3_000),
            ("groups made and deleted", group, 3_000),
            ("topics made and deleted", topics, 1_000),
        ]
        print(
            "comings: bytes that Python holds after each, once queues of recent events and the like are full"
        )
        tracemalloc.start()
        for name, act, times in what:
            for _ in range(min(times, 1_000)):
                await act()
            before = traced_bytes()
            for _ in range(times):
                await act()
            print(f"  {name:32} {(traced_bytes() - before) / times:+8.1f}", flush=True)


def traced_bytes() -> int:
    """What Python holds now."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


PARTS = {
    "streaming": stream,
    "retention": retention,
    "singly": singly,
    "pending": pending,
    "comings": comings,
}


def main() -> None:
    """Run every part in its own process, or the one named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in", dest="folder", default=None, help="where to make the temporary directory")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--only", choices=tuple(PARTS), default=None)
    given = parser.parse_args()
    for name in PARTS if given.only is None else ():
        command = [sys.executable, __file__, "--only", name, "--messages", str(given.messages)]
        subprocess.run(command + (["--in", given.folder] if given.folder else []), check=True)
    if given.only is not None:
        with tempfile.TemporaryDirectory(dir=given.folder) as directory:
            trio.run(PARTS[given.only], directory, given.messages)


if __name__ == "__main__":
    main()
