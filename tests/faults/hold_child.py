"""Opens a runtime on a directory, says so, and holds it until its standard input ends.

python hold_child.py DIRECTORY
"""

from __future__ import annotations

import sys

import trio

import callboard


async def main(directory: str) -> None:
    """Open, publish, wait."""
    try:
        async with callboard.open_runtime(directory) as runtime:
            topic = await runtime.create_topic("orders")
            await topic.publish(b"by the child")
            print("open", flush=True)
            await trio.to_thread.run_sync(sys.stdin.read)
    except callboard.DirectoryLocked as error:
        print(f"locked by {error.holder['pid']}", flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
