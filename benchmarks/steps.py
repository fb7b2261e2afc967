"""The longest steps of opening a directory with many ranges: `python benchmarks/steps.py [--messages 1000000]`.

A child process publishes the messages into one partition, has one consumer ack every second of them, singly, and ends
without closing anything. The directory is then opened twice by fresh processes: the first voids all leases and writes a
snapshot, the second restores that. Each prints its processor time up to the first message, imports included, and the
longest steps in the event loop, in milliseconds of processor time. What Python's garbage collector took of them is left
out, and printed by itself: a collection takes as long as the whole program has objects.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time

import trio

import callboard

MESSAGES = 1_000_000
BATCH = 10_000


class Steps(trio.abc.Instrument):
    """The processor time of each step, without the garbage collector's."""

    def __init__(self) -> None:
        self.found: list[tuple[float, str]] = []
        self.collecting: list[float] = []
        self._since = self._collecting_since = self._collected = 0.0
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self.collecting.append(time.thread_time() - self._collecting_since)
            self._collected += self.collecting[-1]

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step begins."""
        del task
        self._since, self._collected = time.thread_time(), 0.0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """It ends."""
        self.found.append((time.thread_time() - self._since - self._collected, task.name))


async def leave(directory: str, messages: int) -> None:
    """Publish, ack every second message, end at once."""
    async with callboard.open_runtime(directory) as runtime:
        topic = await runtime.create_topic("many")
        for _ in range(messages // BATCH):
            await topic.publish_batch([b"v" * 20] * BATCH, acks="leader")
        async with topic.subscribe("group", max_in_flight=messages, visibility_timeout=6000) as consumer:
            for number in range(messages):
                message = await consumer.get()
                if number % 2 == 0:
                    await message.ack(wait=False)
            await consumer.flush()
            os._exit(0)


async def open_again(directory: str) -> None:
    """Open it, take one message, let what is owed be written."""
    async with callboard.open_runtime(directory) as runtime:
        async with runtime.topic("many").subscribe("group") as consumer:
            await consumer.get()
            print(f"first message after {time.process_time():.2f} s of processor time", end="")
        await trio.sleep(0.5)


def main() -> None:
    """Parse the command line; measure, or be one of the child processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--leave", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--open", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.leave:
        trio.run(leave, given.leave, given.messages)
    elif given.open:
        steps, _ = Steps(), callboard.open_runtime  # the package is lazy: this imports the rest
        trio.run(open_again, given.open, instruments=[steps])
        longest = ", ".join(f"{seconds * 1000:.0f}" for seconds, _ in sorted(steps.found, reverse=True)[:8])
        collecting = ", ".join(
            f"{seconds * 1000:.0f}" for seconds in sorted(steps.collecting, reverse=True)[:4]
        )
        print(f"; longest steps {longest} ms; longest collections {collecting} ms", flush=True)
    else:
        with tempfile.TemporaryDirectory() as directory:
            child = [sys.executable, __file__, "--messages", str(given.messages)]
            subprocess.run([*child, "--leave", directory], check=True)
            for words in ("as it was left", "once more"):
                print(f"{words}: ", end="", flush=True)
                subprocess.run([*child, "--open", directory], check=True)


if __name__ == "__main__":
    main()
