"""What delayed messages cost: `python benchmarks/delays.py [--in DIRECTORY] [--messages N] [--partitions N]`.

Each part runs in a process of its own, over one directory. Messages have 100 bytes and a key, and are due in more than
an hour, at random, but for the first one.

    insert      1,000,000 are published in batches of 1,000; resident memory of the process with all of them pending
    reopen      the directory is opened anew: resident memory once all are known again
    restart     from opening the directory to the first message that came due meanwhile, in a consumer's hands
    list        all of them are listed, in pages
    cancel      a tenth of them, drawn at random, are cancelled, in batches of 1,000
    restart     the same as above, with the holes that these left

Times are of the wall clock, and in brackets of the process's processor. Memory (RSS) in MB after a garbage collection;
the most that the process ever had stands beside it.
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
    """Wait until the delayed forwarder knows all that is pending."""
    while await topic.delayed().count() < messages:  # noqa: ASYNC110  nobody else knows it
        await trio.sleep(0.01)


class Watch:
    """What passed since it was made."""

    def __init__(self) -> None:
        self.began, self.processor = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self.began:.2f} s ({time.process_time() - self.processor:.2f} s)"

    def rate(self, count: int) -> str:
        """So many a second."""
        wall, processor = time.perf_counter() - self.began, time.process_time() - self.processor
        return f"{count / wall:,.0f} /s ({count / processor:,.0f} /s)"


async def insert(directory: str, messages: int, partitions: int) -> None:
    """Publish them."""
    drawn = random.Random(1)
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("later", partitions=partitions)
        watch = Watch()
        for first in range(0, messages, BATCH):
            delays = [HOUR_S * (1 + drawn.random()) for _ in range(BATCH)]
            keys = [b"key %d" % number for number in range(first, first + BATCH)]
            await topic.publish_batch([VALUE] * BATCH, keys=keys, delays=delays)
        rate = watch.rate(messages)
        await known(topic, messages)
        print(f"insert   {rate}   {memory()} with {messages:,} pending")
        await topic.publish(b"first", delay=0.5)


async def reopen(directory: str, messages: int, _partitions: int) -> None:
    """Open it anew."""
    watch = Watch()
    async with callboard.open_runtime(directory) as runtime:
        await known(runtime.topic("later"), messages)
        print(f"reopen   {watch}   {memory()}")
        await runtime.topic("later").publish(b"first", delay=0.5)


async def list_all(directory: str, messages: int, _partitions: int) -> None:
    """List them."""
    async with callboard.open_runtime(directory) as runtime:
        topic = runtime.topic("later")
        await known(topic, messages)
        watch, count, after = Watch(), 0, None
        while page := await topic.delayed().list(after=after):
            count, after = count + len(page), page[-1]
        assert count >= messages
        print(f"list     {watch.rate(count)}   {memory()}")


async def cancel(directory: str, messages: int, _partitions: int) -> None:
    """Cancel a tenth of them, then have one more come due while the directory is closed."""
    async with callboard.open_runtime(directory) as runtime:
        topic = runtime.topic("later")
        await known(topic, messages)
        delayed, places, after = topic.delayed(), list[tuple[int, int]](), None
        while page := await delayed.list(after=after):
            places += [(each.partition, each.schedule_id) for each in page]
            after = page[-1]
        random.Random(2).shuffle(places)
        batches = [places[at : at + BATCH] for at in range(0, messages // 10, BATCH)]
        del places
        watch = Watch()
        for batch in batches:
            for partition in {partition for partition, _ in batch}:
                ids = [schedule_id for at, schedule_id in batch if at == partition]
                await delayed.cancel_ids(partition, ids)
        print(f"cancel   {watch.rate(messages // 10)}   {memory()}")
        await topic.publish(b"first", delay=0.5)


async def restart(directory: str, _messages: int, _partitions: int) -> None:
    """Open it when the first one is due."""
    await trio.sleep(1.0)
    watch = Watch()
    async with callboard.open_runtime(directory) as runtime:
        async with runtime.topic("later").subscribe("group") as consumer, consumer.receive() as message:
            assert message.value == b"first"
            print(f"restart  {watch}   to the first message that is due")


PARTS = {"insert": insert, "reopen": reopen, "restart": restart, "list": list_all, "cancel": cancel}
ORDER = ("insert", "reopen", "restart", "list", "cancel", "restart")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--in", dest="directory", help="where the directory is made (default: a temporary one)"
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        trio.run(PARTS[arguments.part], arguments.directory, arguments.messages, arguments.partitions)
    else:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
            place = str(pathlib.Path(scratch, "data"))
            sizes = ["--messages", str(arguments.messages), "--partitions", str(arguments.partitions)]
            for part in ORDER:
                command = ["--part", part, "--in", place, *sizes]
                subprocess.run([sys.executable, __file__, *command], check=True)
