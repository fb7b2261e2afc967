"""The session: the inside of an open runtime, which all that the runtime hands out holds.

`Runtime` opens and closes it. Topics, consumers, groups and the other handles ask it whether the runtime is open, for
the topic of a name, for the catalog's answers, for the clock. No user gets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import Any, Literal, Never, TypeVar

import trio
from trio.lowlevel import TrioToken, current_trio_token

from callboard.actors.catalog.commands import DELAYED_FORWARDER, FORWARDER, EnableOutbox
from callboard.actors.clients.port import PartitionPort
from callboard.actors.companions import Outbox
from callboard.actors.kernel import ActorRef, Question
from callboard.actors.mirror import Mirror, MirroredGroup, MirroredSchedule, MirroredTopic
from callboard.actors.names import no_topic
from callboard.actors.partition.commands import Describe, PartitionStatistics
from callboard.actors.timers.commands import CountTimers, TimerStatistics
from callboard.actors.timing import Timers, WheelAddress
from callboard.asking import ask_again
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    GroupNotFound,
    RuntimeClosed,
    TopicNotFound,
    WrongRun,
)
from callboard.log.limits import Limits
from callboard.log.plain import text
from callboard.log.seams.clock import Clock
from callboard.log.seams.entropy import Entropy
from callboard.open_acks import OutboxClient
from callboard.renewals import RenewedLeases
from callboard.reports.figures import DESCRIBE_TIMEOUT_S
from callboard.supervision import System

A = TypeVar("A")
State = Literal["new", "opening", "open", "closing", "closed"]


class Session:
    """The inside of one runtime. `state`, `run` and `system` are set by the runtime alone."""

    def __init__(
        self,
        place: str,
        clock: Clock,
        entropy: Entropy,
        limits: Limits,
        load_zone: Callable[[str], tzinfo],
        live_of: Callable[[object], MirroredTopic | None],
    ) -> None:
        self.place = place
        """The runtime's directory, as messages name it."""
        self.clock = clock
        self.entropy = entropy
        self.limits = limits
        self.wheel = WheelAddress(clock)
        self.timers = Timers(self.wheel, self._wait_in_vain)
        """Those of the handles."""
        self.mirror = Mirror(self._topic_deleted)
        """The topics, groups and schedules that are live, as the catalog has said."""
        self.renewed_leases = RenewedLeases(self.timers, self.mirror.is_live)
        self.load_zone = load_zone
        """Finds a time zone by its name. Raises `InvalidArgument`."""
        self.live_of = live_of
        """The live topic of a `Topic`; None for anything else."""
        self.publishers: dict[MirroredTopic, Any] = {}
        """By live topic that was asked for: what this runtime's handles publish to it with (`publisher_of`)."""
        self.system: System
        self.catalog: ActorRef[Any]
        self.state: State = "new"
        self.run: TrioToken | None = None
        self._outbox_client: OutboxClient | None = None

    # -- whether it may be used

    def check_open(self) -> None:
        """Raise `RuntimeClosed` unless the runtime is open, or still closing: actors may finish their work then.

        Raise `WrongRun` in another thread or trio run than the one that opened it.
        """
        if self.state not in ("open", "closing"):
            raise RuntimeClosed(
                f"the runtime on {self.place} is {self.state}. Nothing was done. Use it inside `async with`."
            )
        try:
            if current_trio_token() is self.run:  # as in `check_run`; this is on every path
                return
        except RuntimeError:
            pass
        self.check_run()

    def check_run(self) -> None:
        """Raise `WrongRun` in another thread or trio run than the one that opened the runtime."""
        try:
            run = current_trio_token()
        except RuntimeError:
            run = None
        if run is not self.run:
            raise WrongRun(
                f"the runtime on {self.place} belongs to the trio run that opened it, and this is"
                f" {'a thread or program without one' if run is None else 'another'}. Nothing was done. From another"
                " thread use trio.from_thread.run(function, trio_token=...), with the token of the runtime's run."
            )

    # -- actors

    async def ask_catalog(self, command: Question[A]) -> A:
        """Ask the catalog. Raises `RuntimeClosed`, indefinite once the catalog was asked, and what it answers."""
        self.check_open()
        try:
            return await self.catalog.ask(command)
        except (ActorStopped, ActorCrashed) as error:
            if isinstance(error, ActorCrashed) and self.state == "open":
                raise
            raise RuntimeClosed(
                "the runtime closed before it answered; the change may have been made. Open it again, and look.",
                indefinite=True,
            ) from error

    def begin(self, catalog: ActorRef[Any]) -> None:
        """The runtime is about to open: hear what its catalog says."""
        self.catalog = catalog
        self.mirror.open(catalog, self.system.actor, asks=False)

    def _topic_deleted(self, live: MirroredTopic) -> None:
        publisher = self.publishers.get(live)
        for account in () if publisher is None else publisher.accounts():
            account.topic_deleted()

    async def _wait_in_vain(self) -> Never:
        raise RuntimeClosed(f"the runtime on {self.place} is closing. Open it again.")

    def delayed_forwarder(self) -> ActorRef[Any]:
        """The delayed forwarder, the actor `scheduler`; it runs once a topic has delayed messages.

        Raises `RuntimeClosed`.
        """
        self.check_open()
        return self._background(DELAYED_FORWARDER, "done")

    def _background(self, name: str, done: str) -> ActorRef[Any]:
        """An actor that works for all topics, and is there."""
        if name not in self.system.root:  # it has stopped, and the rest closes still
            raise RuntimeClosed(f"the runtime on {self.place} is closing. Nothing was {done}. Open it again.")
        return self.system.root.child(name)

    def emit(self, event: Any) -> None:
        """Put an event into the runtime's log of events, which calls its subscribers."""
        self.system.events.emit(event)

    # -- topics

    def find(self, name: object) -> MirroredTopic:
        """The topic of that name. Raises `TopicNotFound`."""
        word = text(name)
        live = None if word is None else self.mirror.find(word)
        if live is None:
            raise no_topic(name, (each.name for each in self.mirror.topics()))
        return live

    def topic_of_id(self, topic_id: str, name: str) -> MirroredTopic:
        """The topic that the catalog has answered with. Raises `TopicNotFound` when it was deleted since."""
        live = self.mirror.by_id(topic_id)
        if live is None:
            raise TopicNotFound(f"topic {name!r} was deleted meanwhile. Create it again.", topic=name)
        return live

    def group_of_id(self, group_id: int, name: str) -> MirroredGroup:
        """The group that the catalog has answered with. Raises `GroupNotFound` when it has ended since."""
        group = self.mirror.group(group_id)
        if group is None:
            raise GroupNotFound(f"group {name!r} was deleted or has expired. Subscribe again.", group=name)
        return group

    def schedules_of(self, topic_id: str) -> Sequence[MirroredSchedule]:
        """The recurring publishes of a topic."""
        return self.mirror.schedules(topic_id)

    async def outbox(self, source: PartitionPort, *, delays: bool = False) -> Outbox:
        """The outbox of a partition, made if need be, and one that takes delayed messages if asked.

        Raises `TopicNotFound`, and what keeps it from being made.
        """
        live = self.mirror.by_id(source.topic_id)
        found = None if live is None else live.outbox_of(source.index, delays=delays)
        if found is None and live is not None:
            await self.ask_catalog(EnableOutbox(source.topic, delays))
            found = None if live.deleted else live.outbox_of(source.index, delays=delays)
        if found is None:
            raise TopicNotFound(f"topic {source.topic!r} was deleted.", topic=source.topic)
        return found

    def outbox_client(self) -> OutboxClient:
        """What tells the forwarder of the acks with publishes that are on their way. Raises `RuntimeClosed`."""
        if self._outbox_client is None:
            self._outbox_client = OutboxClient(self._background(FORWARDER, "acked"))
        return self._outbox_client

    async def timer_statistics(self) -> TimerStatistics:
        """What the timer wheel has done so far."""
        return await ask_again(self.wheel.ref, CountTimers(), "counting timers")

    async def partition_statistics(self, ports: Sequence[PartitionPort]) -> tuple[PartitionStatistics, ...]:
        """Each partition's statistics; only the state of one that does not answer within DESCRIBE_TIMEOUT_S."""
        self.check_open()
        found: dict[int, PartitionStatistics] = {}

        async def describe(place: int, port: PartitionPort) -> None:
            with suppress(CallboardError):
                found[place] = await port.ref.ask(Describe())

        with trio.move_on_after(DESCRIBE_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for place, port in enumerate(ports):
                    nursery.start_soon(describe, place, port)
        self.check_open()
        state_of = self.mirror.state_of
        unknown = (PartitionStatistics(port.topic, port.index, state_of(port)) for port in ports)
        return tuple(found.get(place, state) for place, state in enumerate(unknown))
