"""A world in memory for the fault suite: one disk, one virtual clock, and any number of runtimes' lives on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.inodes import Choose
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


@attrs.define
class World:
    """A disk in memory, and the time on it. Tests that use it run under trio's autojumping clock."""

    disk: MemoryDisk
    clock: VirtualClock
    lives: int = 0

    def open(self, **settings: Any) -> Any:
        """A runtime on the disk, to be used with `async with`; each has randomness of its own."""
        self.lives += 1
        entropy = SeededEntropy(self.lives)
        return callboard.open_runtime(disk=self.disk, clock=self.clock, entropy=entropy, **settings)

    @asynccontextmanager
    async def doomed(self, choose: Choose | None = None) -> AsyncIterator[Any]:
        """A runtime whose process is dead when the block ends: nothing of its closing reaches the disk.

        With `choose` the power is lost, too, and it says what survives of what was not synced.
        """
        with trio.CancelScope() as life:
            try:
                async with self.open() as runtime:
                    yield runtime
                    if choose is None:
                        self.disk.kill()
                    else:
                        self.disk.crash(choose)
                    life.cancel()
                    await trio.lowlevel.checkpoint()
            except callboard.CallboardError:
                if not life.cancel_called:
                    raise

    async def values(self, runtime: Any, topic: str = "orders") -> dict[int, bytes]:
        """Every record of a topic with one partition, by offset."""
        return {record.offset: record.value async for record in runtime.topic(topic).read()}

    async def drain(self, runtime: Any, topic: str = "orders", group: str = "group") -> dict[int, bytes]:
        """Consume and ack what a group has to do in a topic with one partition; fails when something comes twice."""
        found: dict[int, bytes] = {}
        async with runtime.topic(topic).subscribe(group) as consumer:
            while (message := await consumer.get(timeout=1.0)) is not None:
                assert message.offset not in found
                found[message.offset] = message.value
                await message.ack()
        return found

    def segments(self, directory: str = "topics/") -> list[str]:
        """The log segments of all partitions."""
        return [
            path
            for path in sorted(self.disk.files())
            if path.startswith(directory) and path.endswith(".log") and "/delivery/" not in path
        ]

    def journals(self) -> list[str]:
        """The delivery journals' segments."""
        return [path for path in sorted(self.disk.files()) if "/delivery/" in path and path.endswith(".log")]

    def put(self, path: str, data: bytes) -> None:
        """Replace the content of a file, durably, whatever a process may have open."""
        self.disk.plant_file(path, data)


@pytest.fixture
def world() -> World:
    """An empty disk in memory."""
    clock = VirtualClock()
    return World(MemoryDisk(clock=clock), clock)
