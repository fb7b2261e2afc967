"""What the catalog's actor does so that partitions know nothing more of groups that do not read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from callboard.actors.partition import commands as c
from callboard.log.errors import ActorCrashed, ActorStopped, CallboardError

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import Directory, LiveTopic
    from callboard.actors.catalog.state import CatalogState, GroupRecord
    from callboard.actors.partition.port import PartitionPort


class ForgetsGroups:
    """See the module. The rest is the catalog's."""

    context: Any
    _directory: Directory
    _state: CatalogState

    if TYPE_CHECKING:

        def _operation_failed(self, subject: str, error: CallboardError) -> None: ...

    async def _close_group(self, record: GroupRecord) -> None:
        """Have every partition of its topics forget the group."""
        async with trio.open_nursery() as nursery:
            for port in self._directory.ports(record):
                nursery.start_soon(self._close_group_at, port, record.group_id)

    async def _close_group_at(self, port: PartitionPort, group_id: int) -> None:
        """Have a partition forget a group. One that cannot do it now does it at the next start."""
        while True:
            try:
                await port.ref.ask(c.CloseGroup(group_id))
            except ActorCrashed:
                continue
            except ActorStopped:
                return  # its topic was deleted, or the runtime closes: the next opening sees to it
            except CallboardError as error:
                self._operation_failed(f"forgetting group {group_id} at {port.label}", error)
            return

    async def _close_forgotten_groups(self, live: LiveTopic) -> None:
        """Delivery states of groups that do not read the topic any more would hold retention back for ever."""
        async with trio.open_nursery() as nursery:
            for port in live.ports:
                nursery.start_soon(self._close_forgotten_at, port)

    async def _close_forgotten_at(self, port: PartitionPort) -> None:
        """Once the partition has recovered."""
        try:
            statistics = await port.ref.ask(c.Describe())
        except CallboardError:
            return
        for group in statistics.groups:
            record = self._state.groups.get(group.group_id)
            is_read = record is not None and (record.pattern is None or port.topic_id in record.topic_ids)
            if not is_read:
                await self._close_group_at(port, group.group_id)
