"""What topics and consumers use of the runtime that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, Protocol

from callboard.actors.catalog.directory import LiveTopic
from callboard.actors.groups.renewals import Lingers, RenewedLeases
from callboard.actors.kernel import ActorRef
from callboard.actors.partition.beside.outbox import Outbox
from callboard.actors.partition.commands import PartitionStatistics
from callboard.actors.partition.port import PartitionPort
from callboard.actors.recurring.schedules import LiveSchedule
from callboard.actors.timers.timers import Timers
from callboard.log.limits import Limits
from callboard.log.seams.clock import Clock


class Session(Protocol):
    """An open runtime, as what it hands out sees it."""

    clock: Clock
    timers: Timers
    renewed_leases: RenewedLeases
    lingers: Lingers
    limits: Limits

    def check_open(self) -> None:
        """Raise `RuntimeClosed` unless the runtime is open or closing, and what `check_run` raises."""

    def check_run(self) -> None:
        """Raise `WrongRun` in another thread or trio run than the one that opened the runtime."""

    async def ask_catalog(self, command: Any) -> Any:
        """Ask the catalog. Raises `RuntimeClosed`, and what the catalog answers."""

    async def partition_statistics(self, ports: Sequence[PartitionPort]) -> tuple[PartitionStatistics, ...]:
        """Each partition's statistics; only the state of those that do not answer."""

    def live_topic(self, topic: object) -> LiveTopic:
        """The topic that somebody names, or has. Raises `TopicNotFound`, `InvalidArgument`."""

    def delaying(self, live: LiveTopic) -> Any:
        """What publishes delayed messages to a topic."""

    async def outbox(self, source: PartitionPort, *, delays: bool = False) -> Outbox:
        """The outbox of a partition, made if need be, and one that takes delayed messages if asked.

        Raises `TopicNotFound`, and what keeps it from being made.
        """

    def scheduler(self) -> ActorRef[Any]:
        """Who moves delayed messages to their topics; there is one when a topic has some. Raises `RuntimeClosed`."""

    def zone(self, name: str) -> tzinfo:
        """The time zone of that name. Raises `InvalidArgument`."""

    def schedules_of(self, topic_id: str) -> Sequence[LiveSchedule]:
        """The recurring publishes of a topic."""

    def emit(self, event: Any) -> None:
        """Put an event into the runtime's log of events, and tell its subscribers."""
