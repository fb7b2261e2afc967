"""The process that the SIGKILL test of dead letters kills: it handles messages, of which some can not be handled.

    python dead_letter_child.py DIRECTORY FACTS

FACTS is a file, one line a fact, each written with one `write` to a file opened for appending:

    R offset       the reject of the message returned
    A offset       its ack returned
    D offset n     it was delivered, as the n-th attempt
    F number       dead letters up to this number were forgotten
"""

from __future__ import annotations

import os
import signal
import sys

import trio

import callboard

VALUES = [b"good 0", b"reject 1", b"fail 2", b"good 3", b"kill 4", b"fail 5", b"good 6", b"reject 7"]
LIMIT = 3


async def main(directory: str, path: str) -> None:
    """Publish what is missing, then handle and forget until nothing is left."""
    facts = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words: object) -> None:
        os.write(facts, (" ".join(map(str, words)) + "\n").encode())

    async with callboard.open_runtime(directory) as runtime:
        orders = await runtime.create_topic("orders")
        end = (await orders.describe())[0].next_offset
        for value in VALUES[end:]:
            await orders.publish(value)
        print("ready", flush=True)
        async with orders.subscribe("group", max_deliveries=LIMIT, backoff=0.0, max_backoff=0.0) as consumer:
            while (message := await consumer.get(timeout=0.3)) is not None:
                note("D", message.offset, message.attempt)
                fate = message.value.split()[0]
                if fate == b"kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif fate == b"reject":
                    await message.reject(reason=f"reason {message.offset}")
                    note("R", message.offset)
                elif fate == b"fail":
                    await message.nack(reason=f"reason {message.offset}")
                else:
                    await message.ack()
                    note("A", message.offset)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
