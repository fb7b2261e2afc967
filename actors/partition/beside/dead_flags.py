"""Flags: which partitions have dead letters of which groups to be forwarded. Setting one neither waits nor asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from callboard.actors.unserved import Unserved

if TYPE_CHECKING:
    from callboard.actors.partition.port import PartitionPort


class Source(NamedTuple):
    """Where dead letters are kept: those of one group in one partition."""

    port: PartitionPort
    group_id: int


class DeadFlags:
    """The sources that may have something. They outlive the router, which takes a flag down when nothing is left."""

    def __init__(self) -> None:
        self.forwarded: Counter[str] = Counter()
        """By topic: dead letters that were forwarded there since the directory was opened."""
        self.held: dict[str, str] = {}
        """By topic that takes none now: why."""
        self._counts: dict[Source, int] = {}
        self._new = Unserved[Source]()

    def __len__(self) -> int:
        return len(self._counts)

    def raise_for(self, port: PartitionPort, group_id: int) -> None:
        """There may be dead letters of the group in the partition, or the group's topic for them has changed."""
        source = Source(port, group_id)
        self._counts[source] = self._counts.get(source, 0) + 1
        self._new.add(source)

    def count(self, source: Source) -> int:
        """How often the flag was raised."""
        return self._counts.get(source, 0)

    def lower(self, source: Source, count: int) -> None:
        """Nothing was left when the flag had been raised so often."""
        if self._counts.get(source) == count:
            del self._counts[source]

    def forget_port(self, port: PartitionPort) -> None:
        """The partition is deleted, and all that it keeps."""
        self._forget([source for source in self._counts if source.port is port])

    def forget_group(self, group_id: int) -> None:
        """The group is deleted, and what partitions keep of it."""
        self._forget([source for source in self._counts if source.group_id == group_id])

    def _forget(self, sources: Iterable[Source]) -> None:
        for source in sources:
            del self._counts[source]
            self._new.discard(source)

    def all(self) -> list[Source]:
        """All flags that are up, for a router that begins."""
        self._new.clear()
        return list(self._counts)

    async def new(self) -> list[Source]:
        """Wait for flags that were raised since the last call."""
        return await self._new.take()
