"""A runtime in memory whose actors the broker's tests ask directly."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.partition.commands import Describe, Fetch, LeasedRecords, OpenGroup, PartitionStatistics


class RuntimeInMemory:
    """A disk in memory and the runtimes on it; ways to the actors that the public face keeps to itself."""

    def __init__(self, world: Any) -> None:
        self.disk, self.clock, self.open = world.disk, world.clock, world.open

    def port(self, runtime: Any, topic: str = "orders", partition: int = 0) -> Any:
        """A partition's port."""
        return runtime._session.mirror.find(topic).ports[partition]

    async def describe(self, runtime: Any, topic: str = "orders", partition: int = 0) -> PartitionStatistics:
        """A partition's numbers, from its actor."""
        found: PartitionStatistics = await self.port(runtime, topic, partition).ref.ask(Describe())
        return found

    async def join(self, runtime: Any, group_id: int = 1) -> None:
        """Tell a partition the settings of a group, as the coordinator does for a member."""
        await self.port(runtime).ref.ask(OpenGroup(group_id, True, "beginning"))

    def fetch(self, runtime: Any, group_id: int = 1, *, consumer: int = 99, records: int = 10) -> Any:
        """Ask for a lease; the reply to wait for, which gives `LeasedRecords` or None."""
        command = Fetch(group_id, consumer, records, 1 << 20)
        return self.port(runtime).ref.ask_nowait(command)

    @staticmethod
    def offsets(records: LeasedRecords | None) -> list[int]:
        """What was handed over."""
        return (
            []
            if records is None
            else [offset for columns in records.batches for offset in columns.offset_list()]
        )


@pytest.fixture
def in_memory(world: Any) -> RuntimeInMemory:
    """An empty disk."""
    return RuntimeInMemory(world)
