"""A world in memory for tests of the public face: one disk, one virtual clock, any number of runtimes on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

import callboard
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.inodes import lose_unsynced
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

Story = Callable[[Any], Awaitable[object]]
"""What somebody does with a runtime."""


@attrs.define
class World:
    """A disk in memory and the time on it. Tests that use it run under trio's autojumping clock."""

    disk: MemoryDisk
    clock: VirtualClock
    lives: int = 0

    def open(self, **settings: Any) -> Any:
        """A runtime on the disk, for `async with`; each has randomness of its own."""
        self.lives += 1
        entropy = SeededEntropy(self.lives)
        return callboard.open_runtime(disk=self.disk, clock=self.clock, entropy=entropy, **settings)

    @staticmethod
    async def topic_of(runtime: Any, count: int, **settings: Any) -> Any:
        """A topic "jobs" whose first partition holds `count` messages: 0, 1, 2, ..."""
        topic = await runtime.create_topic("jobs", **settings)
        if count:
            await topic.publish_batch([b"%d" % number for number in range(count)], partition=0)
        return topic

    @staticmethod
    async def group_of(topic: Any, partition: int = 0) -> Any:
        """What the first partition tells of its only group."""
        (group,) = (await topic.describe())[partition].groups
        return group

    async def live(self, story: Story, power_lasts: int | None = None) -> None:
        """Run `story` in a runtime that loses power after so many verbs, or at its end; no closing counts."""
        if power_lasts is not None:
            self.disk.crash_after(power_lasts)
        with trio.CancelScope() as life:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end_with_power, life)
                    async with self.open() as runtime:
                        await story(runtime)
                        if power_lasts is None:
                            self.disk.crash(lose_unsynced)
                        else:
                            await trio.sleep_forever()
                        life.cancel()
                        await trio.lowlevel.checkpoint()
            except* callboard.CallboardError:
                if not (self.disk.is_off or life.cancel_called):
                    raise
        self.disk.power_on()

    async def _end_with_power(self, life: trio.CancelScope) -> None:
        await self.disk.crashed.wait()
        life.cancel()


@pytest.fixture
def world() -> World:
    """An empty disk in memory."""
    clock = VirtualClock()
    return World(MemoryDisk(clock=clock), clock)
