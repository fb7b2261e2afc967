"""Which partitions a consumer asks next: those that have, or may have, something ready, and the notices of the others.

Topics take turns, and so do the partitions of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from callboard.actors.clients.port import PartitionPort
from callboard.actors.partition import commands as c
from callboard.consumer.notices import AwaitedPartitions
from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.consumer.leases import ConsumerLeases
    from callboard.consumer.member import GroupMember


class PartitionTurns:
    """Chooses the partition that a consumer asks next."""

    def __init__(self, leases: ConsumerLeases, member: GroupMember) -> None:
        self._leases = leases
        self._member = member
        self._rows: dict[str, dict[PartitionPort, None]] = {}
        """By topic; the first of the first topic is next."""
        self.awaited = AwaitedPartitions[PartitionPort](lambda: leases.in_flight)

    @property
    def are_left(self) -> bool:
        """Whether any partition has, or may have, something ready."""
        return bool(self._rows)

    def may_have_more(self, port: PartitionPort) -> bool:
        """Whether the partition has, or may have, something ready."""
        return port in self._rows.get(port.topic, ())

    def next(self, most: int) -> list[PartitionPort]:
        """The partitions whose turns are next."""
        found: list[PartitionPort] = []
        rows = [iter(ports) for ports in self._rows.values()]
        while rows and len(found) < most:
            nexts = [next(row, None) for row in rows]
            found += [port for port in nexts if port is not None]
            rows = [row for row, port in zip(rows, nexts, strict=True) if port is not None]
        return found[:most]

    def look_at(self, ports: Iterable[PartitionPort]) -> None:
        """These partitions may have something ready: they come last."""
        for port in ports:
            if self._member.reads(port):
                self._rows.setdefault(port.topic, {})[port] = None

    def look_at_noticed(self) -> None:
        """So may those whose notices have come."""
        if self.awaited.ready:
            self.look_at(self.awaited.take())

    def put_last(self, port: PartitionPort) -> None:
        """The partition had its turn, and so had its topic; it may have more."""
        ports = self._rows.pop(port.topic, {})
        ports.pop(port, None)
        ports[port] = None
        self._rows[port.topic] = ports

    def end(self, port: PartitionPort) -> None:
        """There is nothing in the partition now."""
        ports = self._rows.get(port.topic)
        if ports is not None:
            ports.pop(port, None)
            if not ports:
                del self._rows[port.topic]

    def end_topic(self, topic: str) -> None:
        """The topic is read no longer."""
        self._rows.pop(topic, None)

    def awaits(self, port: PartitionPort) -> bool:
        """Have a partition that had less than it was asked for say when it has more: no fetch is in vain.

        False when it takes no question now: it is asked in its turn.
        """
        try:
            self.awaited.ask_nowait(port, port.ref, self._wait())
        except CallboardError:
            return False
        self.end(port)
        return True

    async def ask_to_wait(self, port: PartitionPort) -> None:
        """The same, once there is room in its mailbox. Raises as `ActorRef.send`."""
        await self.awaited.ask(port, port.ref, self._wait())

    def _wait(self) -> c.WaitForReady:
        return c.WaitForReady(self._leases.group_id, self._member.id)
