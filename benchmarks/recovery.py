"""How long after a SIGKILL the first message is consumed: `python benchmarks/recovery.py [--in DIRECTORY]`.

For each way of publishing, a child process stores messages of 100 bytes in one partition, until the number asked for
(1,000,000) is acknowledged, goes on publishing, and is killed there. A fresh process then opens the directory and
consumes one message, for several rounds, each from a copy of the directory as the kill left it:

    import    until all modules are imported, which happens when `callboard.open_runtime` is first named
    open      from the start of open_runtime until it is open
    first     from the start of open_runtime until the first message is in the consumer's hands: the target
    whole     from starting the process to the first message: what the parent sees, interpreter and import included

Then the same with the index files deleted, which recovery has to do without. Ways of publishing:

    batches   one task, publish_batch of 1,000
    singly    512 tasks, each publishing one message after the other; a commit makes one frame of what waits
    frames    512 tasks, each publishing batches of one message: a frame per message, the worst that a log can hold
    consumed  batches, all but the last messages consumed singly, each ack a journal event: the worst for its journal
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

MESSAGES = 1_000_000
TARGET_S = {"batches": 1.0, "singly": 2.0}
VALUE = b"v" * 100
TASKS = 512
UNCONSUMED = 1000


# -- the process that is killed


def publish_until_killed(directory: str, way: str, messages: int) -> None:
    """Publish; say so when `messages` are acknowledged; go on."""
    import trio

    import callboard

    async def main() -> None:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("killed")
            acknowledged = itertools.count(1)

            async def singly() -> None:
                while True:
                    await topic.publish(VALUE)
                    if next(acknowledged) == messages:
                        print("stored", flush=True)

            async def frames() -> None:
                while True:
                    await topic.publish_batch([VALUE])
                    if next(acknowledged) == messages:
                        print("stored", flush=True)

            async def batches() -> None:
                for number in itertools.count(1):
                    await topic.publish_batch([VALUE] * 1000)
                    if number * 1000 == messages and way == "batches":
                        print("stored", flush=True)
                    if number * 1000 == messages + UNCONSUMED and way == "consumed":
                        return

            async def consume() -> None:
                async with topic.subscribe("first") as consumer:
                    for _ in range(messages):
                        message = await consumer.get()
                        await message.ack(wait=False)
                    await consumer.flush()
                    print("stored", flush=True)
                    await trio.sleep_forever()

            async with trio.open_nursery() as nursery:
                if way in ("batches", "consumed"):
                    nursery.start_soon(batches)
                    if way == "consumed":
                        nursery.start_soon(consume)
                else:
                    for _ in range(TASKS):
                        nursery.start_soon(singly if way == "singly" else frames)

    trio.run(main)


def kill_in_flight(directory: str, way: str, messages: int) -> float:
    """Run the publisher until it stored what was asked for, then kill it; returns how long that took."""
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, __file__, "--publish", way, "--in", directory, "--messages", str(messages)],
        stdout=subprocess.PIPE,
    )
    line = child.stdout.readline()
    if line != b"stored\n":
        sys.exit(f"the publisher ended early: {child.wait()}")
    child.send_signal(signal.SIGKILL)
    child.wait()
    return time.perf_counter() - started


# -- the process that opens again


def open_and_consume(directory: str) -> None:
    """Print, as JSON, how long it took to import, to open, and to have the first message."""
    begun = time.perf_counter()
    import trio

    import callboard

    open_runtime = callboard.open_runtime  # the package is lazy: this imports the rest
    imported = time.perf_counter() - begun

    async def main() -> None:
        started = time.perf_counter()
        async with open_runtime(directory) as runtime:
            opened = time.perf_counter() - started
            async with runtime.topic("killed").subscribe("first") as consumer:
                message = await consumer.get()
                first = time.perf_counter() - started
                assert message.value == VALUE
                wall = time.time()
            end = (await runtime.stats()).partitions[0].visible_end
        figures = {"import": imported, "open": opened, "first": first, "wall": wall, "end": end}
        print(json.dumps(figures), flush=True)

    trio.run(main)


def reopened(directory: str) -> dict[str, float]:
    """The figures of one fresh process over `directory`."""
    started = time.time()
    child = subprocess.run(
        [sys.executable, __file__, "--open", "--in", directory], stdout=subprocess.PIPE, check=True
    )
    figures: dict[str, float] = json.loads(child.stdout)
    figures["whole"] = figures.pop("wall") - started
    return figures


# -- the table


def partition_files(directory: str) -> tuple[int, int, list[pathlib.Path]]:
    """Segments, bytes of the log's files (zeros ahead included), and the index files."""
    logs = list(pathlib.Path(directory).glob("topics/*/*/*.log"))
    indexes = list(pathlib.Path(directory).glob("topics/*/*/*.index"))
    return len(logs), sum(path.stat().st_size for path in logs), indexes


def measure(parent: str, way: str, messages: int, rounds: int) -> None:
    """Print the lines of one way of publishing."""
    killed = os.path.join(parent, "killed")
    spent = kill_in_flight(killed, way, messages)
    segments, size_bytes, _ = partition_files(killed)
    print(f"{way}: {messages:,} messages in {spent:.1f} s; {segments} segments, {size_bytes / 1e6:.0f} MB")
    for without_index in (False, True):
        found: list[dict[str, float]] = []
        for _ in range(rounds):
            copy = os.path.join(parent, "copy")
            shutil.copytree(killed, copy)
            if without_index:
                for path in partition_files(copy)[2]:
                    path.unlink()
            os.sync()
            found.append(reopened(copy))
            shutil.rmtree(copy)
        first = statistics.median(each["first"] for each in found)
        target = TARGET_S.get(way, 2.0)
        verdict = "met" if first < target else "MISSED"
        values = {name: statistics.median(each[name] for each in found) for name in found[0]}
        print(
            f"  {'without indexes' if without_index else 'as killed':16} first {first:.3f} s"
            f" ({min(each['first'] for each in found):.3f} to {max(each['first'] for each in found):.3f});"
            f" target {target:.0f} s: {verdict};"
            f" open {values['open']:.3f} s, import {values['import']:.3f} s, whole {values['whole']:.3f} s;"
            f" {values['end']:,.0f} messages found",
            flush=True,
        )
    shutil.rmtree(killed)


def main() -> None:
    """Parse the command line; measure, or be one of the two child processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in", dest="folder", default=None, help="where to make the temporary directory")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("batches", "singly", "frames", "consumed"), default=None)
    parser.add_argument("--publish", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.publish:
        publish_until_killed(given.folder, given.publish, given.messages)
    elif given.open:
        open_and_consume(given.folder)
    else:
        with tempfile.TemporaryDirectory(dir=given.folder) as parent:
            for way in ("batches", "singly", "frames", "consumed"):
                if given.only in (None, way):
                    measure(parent, way, given.messages, given.rounds)


if __name__ == "__main__":
    main()
