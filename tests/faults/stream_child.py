"""Streams messages through one topic, publishing and consuming them, and reports its resident memory as it goes.

python stream_child.py DIRECTORY MESSAGES
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import callboard

BATCH = 1000


def resident_kib() -> int:
    """The resident set of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("no VmRSS")


async def main(directory: str, messages: int) -> None:
    """Publish and consume; print the resident KiB after each twentieth of the way."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("stream", retention_bytes=64 * 1024 * 1024)
        room = trio.Semaphore(20)

        async def publish() -> None:
            for number in range(0, messages, BATCH):
                await room.acquire()
                await topic.publish_batch([b"%099d" % place for place in range(number, number + BATCH)])

        async with trio.open_nursery() as nursery, topic.subscribe("group") as consumer:
            nursery.start_soon(publish)
            expected = 0
            async for batch in consumer.batches(max_records=BATCH):
                for value in batch.values():
                    if int(value) != expected:
                        raise SystemExit(f"{value!r} instead of {expected}")
                    expected += 1
                await batch.ack(wait=False)
                if expected % BATCH == 0:
                    room.release()
                if expected % (messages // 20) == 0:
                    print(resident_kib(), flush=True)
                if expected == messages:
                    break
            await consumer.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
