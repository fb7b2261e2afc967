"""The directory of what is live: topics with their ports, coordinators with their refs.

The catalog fills it, and hands it on to its next incarnation. What of it changes, mirrors hear (`mirror`).

Launching never waits: partitions recover side by side, and what is sent to them waits in their mailboxes. Launching and
retiring are idempotent, wherever a crash of the catalog broke them off: they start what is not there yet, and stop what
still is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
import trio

from callboard.actors.catalog.commands import (
    DELAYED_FORWARDER,
    FORWARDER,
    ROUTER,
    CatalogStands,
    CatalogStatistics,
    GroupEnded,
    GroupRecord,
    GroupStands,
    MirrorNotice,
    OutboxOpened,
    RouteGroup,
    SourcesEnded,
    TopicDeleted,
    TopicRecord,
    WaitingOpened,
)
from callboard.actors.catalog.group_news import GroupNews
from callboard.actors.catalog.live_schedules import Schedules
from callboard.actors.catalog.live_topic import LiveTopic as LiveTopic
from callboard.actors.catalog.partition_view import PartitionView
from callboard.actors.clients.port import REFUSING, PartitionPort, unavailable
from callboard.actors.companions import (
    DELAYED,
    OUTBOX,
    Outbox,
    companion_settings,
    outbox_folder,
    waiting_folder,
    waiting_settings,
)
from callboard.actors.groups.coordinator import Coordinator
from callboard.actors.groups.spec import CoordinatorSpec
from callboard.actors.kernel import ActorRef, MailboxSpec, notify_all
from callboard.actors.kernel.cell import stopped
from callboard.actors.partition.commands import Alter, AlterDelivery, DeliverySettings
from callboard.actors.partition.partition import Partition
from callboard.actors.partition.spec import PartitionSpec, ReadingGroups
from callboard.actors.recurring.commands import RECURRING
from callboard.actors.settings import TopicSettings
from callboard.actors.standing import StandingNotices
from callboard.actors.timing import WheelAddress
from callboard.log.errors import CallboardError, StorageError
from callboard.log.limits import LAUNCHED_AT_ONCE, USUAL, Limits
from callboard.supervision import Backoff, ChildSpec, Supervisor, SupervisorSpec

PARTITION_INTENSITY = 20
PARTITION_PERIOD_S = 10.0
PARTITION_BACKOFF = Backoff(initial=0.01, maximum=0.25)
"""A partition that crashes more often than this is failed: something is wrong with it that restarting does not mend."""


@attrs.define(eq=False)
class LiveGroup:
    """A group whose coordinator was started."""

    ref: ActorRef[Any]
    spec: CoordinatorSpec
    news: GroupNews
    is_over: bool = False
    """The group is gone, or about to go."""

    def stands(self) -> GroupStands:
        """What mirrors are to know of it."""
        return GroupStands(self.spec.group_id, self.spec.name, self.ref.path, self.news.settings)


class Directory:
    """Live topics by name and id, live groups by id."""

    def __init__(self, wheel: WheelAddress, limits: Limits = USUAL) -> None:
        self.wheel = wheel
        self.schedules = Schedules(wheel.clock, self.say)
        self._limits = limits
        self._start: Callable[[str], ActorRef[Any] | None] = lambda _: None
        self._topics: Supervisor
        self._groups: Supervisor
        self._by_id: dict[str, LiveTopic] = {}
        self._by_name: dict[str, LiveTopic] = {}
        self._views: dict[PartitionPort, PartitionView] = {}
        self._live_groups: dict[int, LiveGroup] = {}
        self._group_news: dict[int, GroupNews] = {}
        self._to_router = StandingNotices[RouteGroup | SourcesEnded]()
        """By group that names a topic for dead letters: the ids of the topics that it reads."""
        self._to_partitions: dict[PartitionPort, StandingNotices[Alter | AlterDelivery]] = {}
        """Of those of which something was altered: by group's id, None for the topic's settings."""
        self._to_forwarder = StandingNotices[OutboxOpened | SourcesEnded]()
        self._to_delayed_forwarder = StandingNotices[WaitingOpened]()
        self.run = 0
        """A number of this opening of the directory, once there is a waiting partition."""
        self._launched = 0
        """Partitions that were launched since other tasks were let run."""
        self.catalog: ActorRef[Any]
        self.losses = CatalogStatistics()

    def attach(
        self,
        catalog: ActorRef[Any],
        topics: Supervisor,
        groups: Supervisor,
        start: Callable[[str], ActorRef[Any] | None],
    ) -> None:
        """Name the supervisors below which topics and coordinators are started, and what starts an actor that works for
        all topics, by its name, the first time that it is needed.
        """
        self.catalog = catalog
        self.schedules.start = partial(self._serve, RECURRING, self.schedules)
        self._topics = topics
        self._groups = groups
        self._start = start

    # -- mirrors

    def say(self, notice: MirrorNotice) -> None:
        """Have all mirrors hear it."""
        notify_all(self.catalog, notice)

    def say_topic(self, live: LiveTopic) -> None:
        """Have all mirrors hear how a topic stands, if that is news."""
        stands = live.stands(self._limits.pending_bytes)
        if stands != live.said:
            live.said = stands
            self.say(stands)

    def say_all(self, say: Callable[[MirrorNotice], object]) -> None:
        """Have mirrors hear, by `say`, of all that there is."""
        for topic in self._by_id.values():
            if topic.said is not None and not topic.deleted:
                say(topic.said)
                say(self.schedules.said_of(topic.topic_id))
                for view in map(self._views.get, topic.all_ports):
                    if view is not None and view.state != "starting":
                        say(view.stands())
        for group in self._live_groups.values():
            if not group.is_over:
                say(group.stands())
        say(self.stands())

    def stands(self) -> CatalogStands:
        """What there is, by its ids."""
        topic_ids = [live.topic_id for live in self._by_id.values() if not live.deleted]
        group_ids = [group_id for group_id, group in self._live_groups.items() if not group.is_over]
        return CatalogStands(frozenset(topic_ids), frozenset(group_ids), self.losses)

    # -- topics

    def find(self, name: str) -> LiveTopic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: str) -> LiveTopic | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Iterable[LiveTopic]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def is_live(self, port: PartitionPort) -> bool:
        """Whether the partition's topic was not deleted."""
        live = self._by_id.get(port.topic_id)
        return live is not None and not live.deleted

    def refusal(self, port: PartitionPort, states: frozenset[str] = REFUSING) -> CallboardError | None:
        """The error for what the state of a partition refuses, when it is one of these."""
        view = self._views.get(port)
        return view.unavailable() if view is not None and view.state in states else None

    def is_live_group(self, group_id: int) -> bool:
        """Whether the group's coordinator was started in this run."""
        return group_id in self._live_groups

    def live_group(self, group_id: int) -> LiveGroup | None:
        """The group, if its coordinator was started in this run."""
        return self._live_groups.get(group_id)

    def route_dead_letters(self, record: GroupRecord) -> None:
        """Have the router look at what the group's partitions keep."""
        if record.settings.dead_letter_topic is None:
            self._to_router.withdraw(record.group_id)
            return
        self._to_router.stand(record.group_id, RouteGroup(record.group_id, tuple(record.topic_ids)))
        self._start_router()

    def _start_router(self) -> None:
        self._serve(ROUTER, self._to_router)

    def _serve(self, name: str, notices: StandingNotices[Any] | Schedules) -> None:
        """Start the actor of that name, the first time, which hears these notices from now on."""
        ref = self._start(name)
        if ref is not None:
            notices.begin(ref)

    def news(self, record: GroupRecord) -> GroupNews:
        """What the catalog says of a group."""
        found = self._group_news.get(record.group_id)
        if found is None:
            found = self._group_news[record.group_id] = GroupNews(record)
        return found

    def read_topics(self, record: GroupRecord) -> list[LiveTopic]:
        """Have a group read the topics that the catalog has decided on, as far as they run.

        Returns those that run on and that it reads no more.
        """
        news = self.news(record)
        before = {topic.topic_id for topic in news.decided.topics}.difference(record.topic_ids)
        news.read([live.for_group() for live in self._running(record.topic_ids)], record.found)
        return self._running(sorted(before))

    def _running(self, topic_ids: Iterable[str]) -> list[LiveTopic]:
        return [live for live in map(self._by_id.get, topic_ids) if live is not None and not live.deleted]

    def ports(self, record: GroupRecord) -> list[PartitionPort]:
        """The partitions of all topics that the group reads."""
        return [port for topic in self._read_by(record) for port in topic.ports]

    def _read_by(self, record: GroupRecord) -> list[LiveTopic]:
        return [self._by_id[topic_id] for topic_id in record.topic_ids if topic_id in self._by_id]

    def alter_delivery(self, record: GroupRecord, settings: DeliverySettings) -> None:
        """Have the partitions that the group reads, and their incarnations to come, know its settings; mirrors, too."""
        if (live := self._live_groups.get(record.group_id)) is not None:
            self.say(live.stands())
        for port in self.ports(record):
            self._have_known(port, record.group_id, AlterDelivery(record.group_id, settings))

    def alter_topic(self, live: LiveTopic, settings: TopicSettings) -> None:
        """The same for the settings of a topic."""
        live.settings = settings
        self.say_topic(live)
        for port in live.ports:
            self._have_known(port, None, Alter(settings))

    def _have_known(self, port: PartitionPort, key: int | None, notice: Alter | AlterDelivery) -> None:
        if (notices := self._to_partitions.get(port)) is None:
            notices = self._to_partitions[port] = StandingNotices()
            notices.begin(port.ref)
        notices.stand(key, notice)

    def is_launchable(self, record: TopicRecord) -> bool:
        """Whether the topic runs, or can be launched: no earlier topic of its name is still being stopped."""
        return record.topic_id in self._by_id or record.name not in self._topics

    async def turn_to_launch(self, record: TopicRecord) -> None:
        """At an opening: let other tasks run when many partitions were launched since they last did."""
        self._launched += record.settings.partitions
        if self._launched >= LAUNCHED_AT_ONCE:
            self._launched = 0
            await trio.lowlevel.checkpoint()

    def launch_topic(self, record: TopicRecord, groups: ReadingGroups) -> LiveTopic:
        """Start the partitions of a topic that is not live, which these groups read. They recover in their turn."""
        partitions = tuple(
            attrs.evolve(
                self._spec(record, index, record.settings),
                router=ROUTER,
                forwarder=FORWARDER,
                groups=groups,
            )
            for index in range(record.settings.partitions)
        )
        children = [self._child(spec, str(spec.index)) for spec in partitions]
        supervisor = self._topics.add_child(
            SupervisorSpec(
                name=record.name,
                intensity=PARTITION_INTENSITY,
                period=PARTITION_PERIOD_S,
                children=children,
                awaited=False,
            )
        )
        ports = tuple(self._port(spec, supervisor.child(str(spec.index))) for spec in partitions)
        live = LiveTopic(record.name, record.topic_id, record.settings, ports)
        self._by_id[record.topic_id] = self._by_name[record.name] = live
        if record.takes_dead_letters:
            self._start_router()  # the topic may know sources that have ended
        return live

    def _spec(
        self, record: TopicRecord, index: int, settings: TopicSettings, holds: str = "", folder: str = ""
    ) -> PartitionSpec:
        return PartitionSpec(
            record.name,
            record.topic_id,
            index,
            settings,
            self.wheel,
            holds=holds,
            is_made=holds in record.made,
            folder=folder,
        )

    def _port(self, spec: PartitionSpec, ref: ActorRef[Any]) -> PartitionPort:
        """Where a partition that was started now is found; what it says is heard from now on."""
        port = PartitionPort(
            spec.topic, spec.topic_id, spec.index, ref, spec.holds, self._limits.pending_bytes
        )
        self._views[port] = PartitionView(port, self.say)
        return port

    def _beside(
        self, record: TopicRecord, index: int, settings: TopicSettings, holds: str, folder: str
    ) -> PartitionPort:
        """Start a partition beside those of the topic."""
        spec = self._spec(record, index, settings, holds, folder)
        supervisor = self._topics.supervisor(record.name)
        return self._port(spec, supervisor.add_child(self._child(spec, folder)))

    def _child(self, spec: PartitionSpec, name: str) -> ChildSpec:
        return ChildSpec(
            name=name,
            start=partial(Partition, spec),
            mailbox=MailboxSpec(capacity=self._limits.partition_mailbox),
            significant=False,
            awaited=False,
            backoff=PARTITION_BACKOFF,
            shutdown_grace=30.0,
            on_failed=partial(_partition_failed, spec),
        )

    def launch_waiting(self, live: LiveTopic, record: TopicRecord) -> None:
        """Start the waiting partitions of a topic, unless they run, and the mover of their records."""
        if live.waiting:
            return
        settings = waiting_settings(live.settings)
        ports = []
        for target in live.ports:
            ports.append(self._beside(record, target.index, settings, DELAYED, waiting_folder(target.index)))
            opened = WaitingOpened(live.topic_id, target.index)
            self._to_delayed_forwarder.stand(opened, opened)
        live.waiting, live.run = tuple(ports), self.run
        self._serve(DELAYED_FORWARDER, self._to_delayed_forwarder)

    def launch_outboxes(self, live: LiveTopic, record: TopicRecord) -> None:
        """Start the outbox partitions of a topic, unless they run, and the actor that forwards what is in them."""
        if live.outboxes:
            return
        settings, found = companion_settings(live.settings), []
        for source in live.ports:
            port = self._beside(record, source.index, settings, OUTBOX, outbox_folder(source.index))
            found.append(Outbox(port, source))
            opened = OutboxOpened(live.topic_id, source.index)
            self._to_forwarder.stand(opened, opened)
        live.outboxes = tuple(found)
        self._serve(FORWARDER, self._to_forwarder)

    async def made(self, live: LiveTopic) -> frozenset[str]:
        """Wait until each of the topic's partitions, and of those beside, runs or has failed: of which all have files.

        Raises `ActorStopped`.
        """
        found: list[PartitionView] = []
        for port in live.all_ports:
            if live.deleted:  # also before the first one, or between two
                raise stopped(port.ref.path)
            found.append(self._views[port])
            await self._topics.supervisor(live.name).settled(port.ref.path.rpartition("/")[2])
        lacking = {view.port.holds for view in found if not view.has_files}
        return frozenset({view.port.holds for view in found} - lacking)

    async def opened(self, live: LiveTopic) -> StorageError | None:
        """Wait until each of the topic's partitions runs, or has failed, or one finds no space: returns what that met.

        Raises `ActorStopped`.
        """
        supervisor = self._topics.supervisor(live.name)
        views = [self._views[port] for port in live.ports if port in self._views]
        lacks: list[StorageError] = []
        with trio.CancelScope() as waiting:

            def note(lack: StorageError) -> None:
                lacks.append(lack)
                waiting.cancel()

            with ExitStack() as noting:
                for view in views:
                    noting.enter_context(view.noting(note))
                for port in live.ports:
                    await supervisor.settled(str(port.index))
        return lacks[0] if lacks else None

    def withdraw_topic(self, record: TopicRecord) -> None:
        """The topic is deleted: those that have heard of it hear that, before its partitions are stopped."""
        live = self._by_id.get(record.topic_id)
        if live is None or live.deleted:
            return
        live.deleted = True
        for port in live.ports:
            self._to_delayed_forwarder.withdraw(WaitingOpened(live.topic_id, port.index))
            self._to_forwarder.withdraw(OutboxOpened(live.topic_id, port.index))
        for port in live.all_ports:
            if (view := self._views.pop(port, None)) is not None:
                view.close()
            self._to_partitions.pop(port, None)
        self.say(TopicDeleted(record.topic_id))
        self.schedules.retire(record.topic_id)
        if self._by_name.get(live.name) is live:
            del self._by_name[live.name]

    async def stop_topic(self, record: TopicRecord) -> None:
        """Stop the partitions of a topic that was withdrawn, if they run."""
        if (
            record.name in self._topics and record.name not in self._by_name
        ):  # else the name is another topic's by now
            await self._topics.stop_child(record.name)
        self._by_id.pop(record.topic_id, None)
        self._tell_ending()

    async def launch_coordinator(self, record: GroupRecord) -> LiveGroup:
        """Start the group's coordinator unless it is there."""
        live = self._live_groups.get(record.group_id)
        if live is None:
            if record.name in self._groups:
                await self._groups.stop_child(record.name)  # a retirement that was broken off
            news = self.news(record)
            spec = CoordinatorSpec(
                record.name,
                record.group_id,
                record.birth,
                news.decided,
                self.wheel,
                record.idle_since_us,
                record.idle_noticed,
            )
            start, mailbox = partial(Coordinator, spec), MailboxSpec(self._limits.mailbox)
            ref = self._groups.add_child(
                ChildSpec(name=record.name, start=start, mailbox=mailbox, awaited=False)
            )
            live = self._live_groups[record.group_id] = LiveGroup(ref, spec, news)
            self.say(live.stands())
            news.begin(ref)
            self.route_dead_letters(record)
        return live

    async def retire_coordinator(self, group_id: int) -> None:
        """Stop the group's coordinator, if it runs."""
        if (live := self._live_groups.get(group_id)) is not None:
            live.is_over = True
            self.say(GroupEnded(group_id))
            if live.spec.name in self._groups:
                await self._groups.stop_child(live.spec.name)
            del self._live_groups[group_id]
        self._group_news.pop(group_id, None)
        for notices in self._to_partitions.values():
            notices.withdraw(group_id)
        self._to_router.withdraw(group_id)
        self._tell_ending()

    async def retire_coordinators_but(self, groups: Container[int]) -> None:
        """Stop the coordinators of all other groups: an incarnation of the catalog that crashed has ended these."""
        for group_id in self.live_groups():
            if group_id not in groups:
                await self.retire_coordinator(group_id)

    def _tell_ending(self) -> None:
        self._to_router.say(SourcesEnded())
        self._to_forwarder.say(SourcesEnded())

    def live_groups(self) -> Iterable[int]:
        """The ids of the groups whose coordinators were started in this run."""
        return list(self._live_groups)


def _partition_failed(spec: PartitionSpec, path: str, cause: BaseException | None) -> CallboardError:
    return unavailable(spec.topic, spec.index, spec.label, "failed", cause)
