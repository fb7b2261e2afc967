"""What of a topic of dead letters is done with: it was redriven or purged, and is settled in one group, `HANDLED`.

The group is opened by the first redrive or purge: from then on the topic keeps what is not settled there, as for any
group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from callboard.actors.catalog.commands import ListGroups
from callboard.actors.kernel import Question
from callboard.actors.names import HANDLED
from callboard.actors.partition.commands import Describe, ListUnsettled, SettleOffsets
from callboard.asking import ask_again
from callboard.consumer.fetcher import Fetcher
from callboard.log.errors import GroupNotFound

if TYPE_CHECKING:
    from callboard.actors.catalog.commands import GroupRecord
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.mirror import MirroredTopic
    from callboard.message import Record
    from callboard.session import Session

A = TypeVar("A")
Groups = Mapping[str, "GroupRecord"]


class HandledLetters:
    """The handled letters of one topic, below the offsets `ends` of its partitions if there are any."""

    def __init__(self, session: Session, live: MirroredTopic, ends: Sequence[int] | None = None) -> None:
        self._session = session
        self._live = live
        self._ends = ends

    @property
    def ports(self) -> Sequence[PartitionPort]:
        """Of the partitions."""
        return self._live.ports

    async def groups(self) -> Groups:
        """All groups of the runtime as they are now, by name."""
        return {record.name: record for record in await self._session.ask_catalog(ListGroups())}

    async def unhandled(self, port: PartitionPort) -> Iterable[tuple[int, int]]:
        """The offsets of a partition, below its given end, that were neither redriven nor purged."""
        group_id = self._group_in(await self.groups())
        found: Iterable[tuple[int, int]]
        if group_id is None:
            statistics = await self.ask(port, Describe())
            found = [(statistics.start_offset, statistics.visible_end)]
        else:
            found = await self._ask_group(port, ListUnsettled(group_id))
        if self._ends is not None:
            end = self._ends[port.index]
            found = [(start, min(stop, end)) for start, stop in found]
        return [(start, stop) for start, stop in found if start < stop]

    async def is_unhandled(self, partition: int, offset: int, groups: Groups) -> bool:
        """Whether it was neither redriven nor purged until now."""
        group_id = self._group_in(groups)
        if group_id is None:
            return True
        return bool(await self._ask_group(self.ports[partition], ListUnsettled(group_id, offset, offset + 1)))

    async def settle(self, records: Sequence[Record]) -> None:
        """Settle records of one partition as handled."""
        group_id = self._group_in(await self.groups())
        if group_id is None:
            group_id = await self._open_group()
        ranges = tuple([(record.offset, record.offset + 1) for record in records])
        await self._ask_group(self.ports[records[0].partition], SettleOffsets(group_id, ranges))

    def _group_in(self, groups: Groups) -> int | None:
        group = groups.get(HANDLED)
        return None if group is None or self._live.topic_id not in group.topic_ids else group.group_id

    async def _open_group(self) -> int:
        """Make sure that the group is there, in every partition."""
        async with Fetcher(self._session, (self._live,), HANDLED, {"group_expiry": None}) as consumer:
            return consumer.leases.group_id

    async def _ask_group(self, port: PartitionPort, command: Question[A]) -> A:
        """Ask a partition about the group, which it may lack when the process ended while the group was opened."""
        try:
            return await self.ask(port, command)
        except GroupNotFound:
            await self._open_group()
            return await self.ask(port, command)

    async def ask(self, port: PartitionPort, command: Question[A]) -> A:
        """Ask a partition, again when its actor crashes."""
        self._session.check_open()
        return await ask_again(port.ref, command, f"dead letters in {port.label}")
