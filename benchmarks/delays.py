"""What delayed messages cost: `python benchmarks/delays.py [--in DIRECTORY] [--messages N]`.

Each part runs in a process of its own, over one directory. Messages have 100 bytes and are due in more than an hour, at
random, but for the last one.

    insert      1,000,000 are published in batches of 1,000; resident memory of the process with all of them pending
    reopen      the directory is opened anew: resident memory once all are known again
    cancel      a tenth of them are cancelled, in batches of 1,000
    restart     from opening the directory to the first message that came due meanwhile, in a consumer's hands

Memory (RSS) in MB after a garbage collection; the most that the process ever had stands beside it.
"""

from __future__ import annotations

import argparse
import gc
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

import trio

import callboard

MESSAGES = 1_000_000
BATCH = 1_000
VALUE = b"v" * 100
HOUR_S = 3600.0


def memory() -> str:
    """What the kernel says this process holds, and has held."""
    gc.collect()
    now = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{now / 1e6:.1f} MB, at most {most / 1e6:.1f} MB"


async def known(topic: callboard.Topic, messages: int) -> None:
    """Wait until the scheduler knows all that is pending."""
    while await topic.delayed().count() < messages:  # noqa: ASYNC110  nobody else knows it
        await trio.sleep(0.01)


async def insert(directory: str, messages: int) -> None:
    """Publish them."""
    drawn = random.Random(1)
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("later")
        began = time.perf_counter()
        for _ in range(messages // BATCH):
            delays = [HOUR_S * (1 + drawn.random()) for _ in range(BATCH)]
            await topic.publish_batch([VALUE] * BATCH, delays=delays)
        took = time.perf_counter() - began
        await known(topic, messages)
        print(f"insert   {messages / took:>12,.0f} /s   {memory()} with {messages:,} pending")


async def reopen(directory: str, messages: int) -> None:
    """Open it anew."""
    began = time.perf_counter()
    async with callboard.open_runtime(directory) as runtime:
        await known(runtime.topic("later"), messages)
        print(f"reopen   {time.perf_counter() - began:>10.2f} s    {memory()}")


async def cancel(directory: str, messages: int) -> None:
    """Cancel a tenth of them, then have one more come due while the directory is closed."""
    async with callboard.open_runtime(directory) as runtime:
        topic = runtime.topic("later")
        await known(topic, messages)
        delayed = topic.delayed()
        rows = await delayed.list(limit=messages // 10)
        began = time.perf_counter()
        for at in range(0, len(rows), BATCH):
            await delayed.cancel(rows[at : at + BATCH])
        took = time.perf_counter() - began
        print(f"cancel   {len(rows) / took:>12,.0f} /s")
        await topic.publish(b"first", delay=0.5)


async def restart(directory: str, _messages: int) -> None:
    """Open it when the first one is due."""
    await trio.sleep(1.0)
    began = time.perf_counter()
    async with callboard.open_runtime(directory) as runtime:
        async with runtime.topic("later").subscribe("group") as consumer, consumer.receive() as message:
            assert message.value == b"first"
            print(f"restart  {time.perf_counter() - began:>10.2f} s    to the first message that is due")


PARTS = {"insert": insert, "reopen": reopen, "cancel": cancel, "restart": restart}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--in", dest="directory", help="where the directory is made (default: a temporary one)"
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        trio.run(PARTS[arguments.part], arguments.directory, arguments.messages)
    else:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
            place = str(pathlib.Path(scratch, "data"))
            for part in PARTS:
                command = ["--part", part, "--in", place, "--messages", str(arguments.messages)]
                subprocess.run([sys.executable, __file__, *command], check=True)
