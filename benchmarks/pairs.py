"""Callboard beside the bare disk, SQLite, and another version of itself: ratios of interleaved pairs in one run.

Usage: `python benchmarks/pairs.py [--against PYTHON] [--rounds 7] [--works publish-1,...] [--directory DIR]`.

Each contestant is a process that waits for orders. A round orders the same work of each in turn, so that all of them
meet the same moods of the machine; a ratio is the median over the rounds of the pairs' ratios. PYTHON is the
interpreter of an environment with another version of Callboard. Values have 100 bytes. All is durable when
acknowledged but for the works whose name says `leader` or `none`. One in-flight publish at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

VALUE = b"v" * 100
SECONDS = 0.4
BACKLOG = {1: 10_000, 100: 60_000, 1000: 100_000}
LATENCY_RATE = 1000
LATENCY_MESSAGES = 1500

WORKS = (
    "publish-1",
    "publish-100",
    "publish-1000",
    "leader-1",
    "none-1",
    "consume-1-lazy",
    "consume-100",
    "consume-100-lazy",
    "tasks-16",
    "tasks-512",
    "latency",
)


class Bare:
    """The same bytes, appended to one file and synced."""

    works = ("publish-1", "publish-100", "publish-1000")

    def __init__(self, directory: str) -> None:
        self._file = os.open(f"{directory}/bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def publish(self, batch: int) -> float:
        """Records per second."""
        values = [VALUE] * batch
        return repeated(lambda: (os.write(self._file, b"".join(values)), os.fdatasync(self._file)), batch)


class Sqlite:
    """A table by hand: WAL, synchronous=FULL, one transaction per batch, one consumer with a cursor."""

    works = ("publish-1", "publish-100", "publish-1000", "consume-100", "latency")

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/queue.db"
        self._table = self._open()

    def _open(self) -> sqlite3.Connection:
        table = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        table.execute("PRAGMA journal_mode=WAL")
        table.execute("PRAGMA synchronous=FULL")
        table.execute(
            "CREATE TABLE IF NOT EXISTS q (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL)"
        )
        return table

    def _insert(self, values: list[bytes]) -> None:
        self._table.execute("BEGIN IMMEDIATE")
        self._table.executemany("INSERT INTO q (body) VALUES (?)", [(value,) for value in values])
        self._table.execute("COMMIT")

    def publish(self, batch: int) -> float:
        """Records per second."""
        values = [VALUE] * batch
        rate = repeated(lambda: self._insert(values), batch)
        self._table.execute("DELETE FROM q")
        return rate

    def consume(self, batch: int) -> float:
        """Records per second, fetched and deleted in transactions of `batch`."""
        count = BACKLOG[batch]
        self._insert([VALUE] * count)
        seen, cursor = 0, 0
        started = time.perf_counter()
        while seen < count:
            rows = self._table.execute(
                "SELECT id, body FROM q WHERE id > ? ORDER BY id LIMIT ?", (cursor, batch)
            ).fetchall()
            bodies = [body for _, body in rows]
            seen += len(bodies)
            cursor = rows[-1][0]
            self._table.execute("DELETE FROM q WHERE id <= ?", (cursor,))
        return count / (time.perf_counter() - started)

    def latency(self) -> list[float]:
        """p50 and p99 in ms; the consumer polls every millisecond, for SQLite cannot notify."""
        import threading

        other, found = self._open(), []

        def consume() -> None:
            cursor = other.execute("SELECT coalesce(max(id), 0) FROM q").fetchone()[0]
            while len(found) < LATENCY_MESSAGES:
                for row, body in other.execute(
                    "SELECT id, body FROM q WHERE id > ? ORDER BY id LIMIT 100", (cursor,)
                ):
                    cursor = row
                    found.append(time.perf_counter() - float(body))
                other.execute("DELETE FROM q WHERE id <= ?", (cursor,))
                time.sleep(0.001)

        consumer = threading.Thread(target=consume)
        consumer.start()
        time.sleep(0.05)
        begun = time.perf_counter()
        for number in range(LATENCY_MESSAGES):
            time.sleep(max(0.0, begun + number / LATENCY_RATE - time.perf_counter()))
            self._insert([f"{time.perf_counter():.9f}".encode()])
        consumer.join()
        return percentiles(found)


class Log:
    """Callboard, through its public names: the whole of a contestant, since it needs trio's loop."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._topics = 0

    async def run(self) -> None:
        """Carry out orders until there are no more."""
        import trio

        import callboard

        async with callboard.open_runtime(f"{self._directory}/data") as self._runtime:
            while order := await trio.to_thread.run_sync(sys.stdin.readline):
                print(json.dumps(await self.carry_out(order.strip())), flush=True)

    async def _topic(self) -> Any:
        self._topics += 1
        return await self._runtime.create_topic(f"topic-{self._topics}")

    async def carry_out(self, work: str) -> Any:
        """The figure of one round: a rate, or percentiles."""
        if work == "latency":
            return await self._latency()
        kind, count, *lazy = work.split("-")
        if kind == "tasks":
            return await self._tasks(int(count))
        if kind == "consume":
            return await self._consume(int(count), bool(lazy))
        return await self._publish(int(count), "all" if kind == "publish" else kind)

    async def _publish(self, batch: int, acks: str) -> float:
        topic = await self._topic()
        values, done = [VALUE] * batch, 0
        await topic.publish(VALUE)
        started = time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            if batch == 1:
                await topic.publish(VALUE, acks=acks)
            else:
                await topic.publish_batch(values, acks=acks)
            done += batch
        if acks == "none":
            await topic.flush()
        rate = done / (time.perf_counter() - started)
        await self._runtime.delete_topic(topic.name)
        return rate

    async def _tasks(self, tasks: int) -> float:
        import trio

        topic = await self._topic()
        count = 25_000 if tasks > 100 else 8_000

        async def publish() -> None:
            for _ in range(count // tasks):
                await topic.publish(VALUE)

        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(publish)
        rate = count / (time.perf_counter() - started)
        await self._runtime.delete_topic(topic.name)
        return rate

    async def _consume(self, batch: int, lazy: bool) -> float:
        topic = await self._topic()
        count = BACKLOG[batch]
        for _ in range(count // 1000):
            await topic.publish_batch([VALUE] * 1000, acks="leader")
        await topic.publish(VALUE)
        seen = 0
        async with topic.subscribe(topic.name) as consumer:
            started = time.perf_counter()
            if batch == 1:
                async for message in consumer:
                    _ = message.value
                    await message.ack(wait=not lazy)
                    seen += 1
                    if seen == count:
                        break
            else:
                async for messages in consumer.batches(max_records=batch):
                    seen += len(messages.values())
                    await messages.ack(wait=not lazy)
                    if seen >= count:
                        break
            if lazy:
                await consumer.flush()
            rate = seen / (time.perf_counter() - started)
        await self._runtime.delete_topic(topic.name)
        return rate

    async def _latency(self) -> list[float]:
        import trio

        topic = await self._topic()
        found: list[float] = []
        async with topic.subscribe(topic.name) as consumer, trio.open_nursery() as nursery:

            async def consume() -> None:
                async for batch in consumer.batches(max_records=100, max_wait=0.0):
                    now = time.perf_counter()
                    found.extend(now - float(value) for value in batch.values())
                    await batch.ack()
                    if len(found) >= LATENCY_MESSAGES:
                        return

            nursery.start_soon(consume)
            begun = time.perf_counter()
            for number in range(LATENCY_MESSAGES):
                await trio.sleep(max(0.0, begun + number / LATENCY_RATE - time.perf_counter()))
                await topic.publish(f"{time.perf_counter():.9f}".encode())
        await self._runtime.delete_topic(topic.name)
        return percentiles(found)


def percentiles(latencies: list[float]) -> list[float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(latencies)
    return [1e3 * ordered[len(ordered) // 2], 1e3 * ordered[len(ordered) * 99 // 100]]


def repeated(work: Callable[[], object], records: int) -> float:
    """Records per second of `work`, over `SECONDS`."""
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        work()
        done += records
    return done / (time.perf_counter() - started)


def serve(name: str, directory: str) -> None:
    """Be a contestant: carry out orders from standard input, one figure a line."""
    if name == "log":
        import trio

        trio.run(Log(directory).run)
        return
    contestant = Bare(directory) if name == "bare" else Sqlite(directory)
    for order in sys.stdin:
        kind, _, count = order.strip().partition("-")
        if order.strip() not in contestant.works:
            print("null", flush=True)
        elif kind == "latency":
            print(json.dumps(contestant.latency()), flush=True)  # type: ignore[union-attr]
        else:
            print(json.dumps(getattr(contestant, kind)(int(count))), flush=True)


class Contestant:
    """A process that carries out orders."""

    def __init__(self, label: str, python: str, name: str, directory: str) -> None:
        self.label = label
        self._folder = tempfile.TemporaryDirectory(dir=directory, prefix=f"{name}-")
        self._process = subprocess.Popen(
            [python, "-P", __file__, "--serve", name, self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, work: str) -> Any:
        """The figure of one round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def report(work: str, contestants: list[Contestant], rounds: list[list[Any]]) -> str:
    """One line: medians, and Callboard's ratio to each other contestant, pair by pair."""
    parts = [f"{work:<17}"]
    ours = [figures[0] for figures in rounds]
    for place, contestant in enumerate(contestants):
        theirs = [figures[place] for figures in rounds]
        if theirs[0] is None:
            continue
        if work == "latency":
            text = " / ".join(f"{statistics.median(t[p] for t in theirs):.2f}" for p in (0, 1)) + " ms"
        else:
            text = f"{statistics.median(theirs):,.0f}/s"
            if place:
                ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
                text += f" (x{ratio:.2f})"
        parts.append(f"{contestant.label} {text}")
    return "  ".join(parts)


def main() -> None:
    """Order the works of all contestants in turn, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", help="the Python of an environment with another version of Callboard")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--directory", default=".", help="where the files go; must be on a real disk")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    contestants = [Contestant("callboard", sys.executable, "log", given.directory)]
    if given.against:
        contestants.append(Contestant("before", given.against, "log", given.directory))
    contestants.append(Contestant("bare", sys.executable, "bare", given.directory))
    contestants.append(Contestant("sqlite", sys.executable, "sqlite", given.directory))
    try:
        for work in given.works.split(","):
            rounds = [[contestant.order(work) for contestant in contestants] for _ in range(given.rounds + 1)]
            print(report(work, contestants, rounds[1:]), flush=True)  # the first round warms up
    finally:
        for contestant in contestants:
            contestant.end()


if __name__ == "__main__":
    main()
