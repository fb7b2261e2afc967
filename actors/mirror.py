"""Mirror: what the catalog has said of the topics, groups and schedules that are live, for one party that uses them.

The handles of a runtime have a mirror, and so has each actor that works for all topics. It is a peer of the catalog
(`callboard.actors.kernel.peer`), and filled by its notices alone, which are data: an actor is named by its path.
Looking something up in it asks no actor.

What the catalog answers is in the mirror when the asker resumes: a notice comes before the answer. Topics, groups and
schedules stay the same objects as long as they live, so a handle can keep one; `deleted` and `is_over` say when it has
ended.

Each incarnation of the catalog says anew all that there is, and `CatalogStands` at the end: the mirror drops what is
not there any more. A mirror that opens while the catalog runs asks for it (`FollowCatalog`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import trio

from callboard.actors.catalog.commands import (
    CATALOG,
    CatalogStands,
    CatalogStatistics,
    FollowCatalog,
    GroupEnded,
    GroupStands,
    MirrorNotice,
    PartitionStands,
    TopicDeleted,
    TopicStands,
)
from callboard.actors.clients.port import REFUSING, PartitionPort, unavailable
from callboard.actors.companions import DELAYED, OUTBOX, Outbox, outbox_folder, waiting_folder
from callboard.actors.kernel import Began, Failed, Peer, Terminated
from callboard.actors.recurring.commands import ScheduleStands, TopicSchedules

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef, Context
    from callboard.actors.recurring.spec import Rule, ScheduleRecord, Zones
    from callboard.actors.settings import GroupSettings, TopicSettings
    from callboard.log.errors import CallboardError


@attrs.define(eq=False)
class MirroredTopic:
    """A topic that is live, and where its partitions are found; each may still be recovering, or have failed."""

    name: str
    topic_id: str
    ports: tuple[PartitionPort, ...]
    stands: TopicStands
    """What was heard of it last."""
    deleted: bool = False
    waiting: tuple[PartitionPort, ...] = ()
    """Of its waiting partitions, for delayed records, if it has some."""
    outboxes: tuple[Outbox, ...] = ()
    """For what its acks publish, if they do."""
    settings: TopicSettings = attrs.field(init=False)
    bytes_max: int = attrs.field(init=False)
    """How large a message may be that is published; negative while the topic is read-only."""

    def __attrs_post_init__(self) -> None:
        self.heard(self.stands)

    def heard(self, stands: TopicStands) -> None:
        """The catalog says this of it."""
        self.settings, self.stands = stands.settings, stands
        self.bytes_max = -1 if stands.settings.read_only else stands.settings.max_message_bytes

    @property
    def all_ports(self) -> tuple[PartitionPort, ...]:
        """Those of its partitions, and of the partitions beside them."""
        return (*self.ports, *self.waiting, *(outbox.port for outbox in self.outboxes))

    def outbox_of(self, partition: int, *, delays: bool) -> Outbox | None:
        """The outbox of a partition, once it takes payloads: with `delays`, delayed ones too."""
        ready = self.stands.outboxes_ready
        if delays:
            ready = min(ready, self.stands.outboxes_with_delays)
        return self.outboxes[partition] if partition < ready else None


@attrs.define(eq=False)
class MirroredGroup:
    """A group whose coordinator was started."""

    group_id: int
    name: str
    settings: GroupSettings
    ref: ActorRef[Any]
    """Of the coordinator."""
    is_over: bool = False
    """The group is gone, or about to go."""


@attrs.define(eq=False)
class MirroredSchedule:
    """One recurring publish."""

    record: ScheduleRecord
    port: PartitionPort
    """Of the partition that it publishes to."""
    stands: ScheduleStands | None = None
    """How far it is, as it was heard last."""
    is_over: bool = False
    """It was removed."""
    _rule: Rule | None = None

    def rule(self, zones: Zones) -> Rule:
        """When it is due. Raises `InvalidArgument` as long as its zone is not known on this machine."""
        if self._rule is None:
            self._rule = self.record.spec.rule(self.record.created_us, zones)
        return self._rule


def _place(schedule: MirroredSchedule) -> tuple[str, str]:
    return schedule.port.topic, schedule.record.spec.name


class Mirror:
    """Live topics by name and id, live groups and schedules by id, and the states of partitions."""

    def __init__(self, deleted: Callable[[MirroredTopic], object] = lambda _: None) -> None:
        """`deleted` is called with each topic that is deleted."""
        self._deleted = deleted
        self._actor: Callable[[str], ActorRef[Any]]
        self._peer: Peer[None, FollowCatalog]
        self._by_id: dict[str, MirroredTopic] = {}
        self._by_name: dict[str, MirroredTopic] = {}
        self._groups: dict[int, MirroredGroup] = {}
        self._schedules: dict[int, MirroredSchedule] = {}
        self._states: dict[str, PartitionStands] = {}
        """By the partition's path: what was heard last."""
        self._have_run: set[str] = set()
        self._is_filled = trio.Event()
        self.losses = CatalogStatistics()
        """What the catalog has lost."""

    def open(self, catalog: ActorRef[Any], actor: Callable[[str], ActorRef[Any]], *, asks: bool) -> None:
        """Hear what the catalog says from now on; `actor` finds one by its path.

        A mirror that opens after the catalog has begun `asks` for what there is.
        """
        self._actor = actor
        self._asks = asks
        self._peer = Peer(catalog, self)
        self._peer.open()
        self._ask()

    async def follow(self, context: Context[Any]) -> None:
        """For an actor that starts: hear the catalog as long as this incarnation lasts. Returns when it is filled."""
        self.open(context.actor(CATALOG), context.actor, asks=True)
        context.start_task(self._close_at_end, name="mirror")
        with context.until_stop():
            await self._is_filled.wait()

    async def _close_at_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._peer.close()

    # -- topics

    def find(self, name: str) -> MirroredTopic | None:
        """The topic of that name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: str) -> MirroredTopic | None:
        """The topic of that id."""
        return self._by_id.get(topic_id)

    def topics(self) -> list[MirroredTopic]:
        """All of them, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def outboxes(self) -> Iterator[Outbox]:
        """Those of all topics."""
        return (outbox for topic in self.topics() for outbox in topic.outboxes)

    # -- partitions

    def ports_of(self, topic_id: str) -> tuple[PartitionPort, ...]:
        """The partitions of a topic, while it is live."""
        topic = self._by_id.get(topic_id)
        return () if topic is None else topic.ports

    def is_live(self, port: PartitionPort) -> bool:
        """Whether the partition's topic was not deleted."""
        return port.topic_id in self._by_id

    def has_run(self, port: PartitionPort) -> bool:
        """Whether the partition was heard to run."""
        return port.ref.path in self._have_run

    def state_of(self, port: PartitionPort) -> str:
        """The state of a partition, as it was heard last."""
        if not self.is_live(port):
            return "stopping"
        heard = self._states.get(port.ref.path)
        return "starting" if heard is None else heard.state

    def refusal(self, port: PartitionPort, states: frozenset[str] = REFUSING) -> CallboardError | None:
        """The error for what the state of a partition refuses, when it is one of these."""
        heard = self._states.get(port.ref.path)
        if heard is None or heard.state not in states or not self.is_live(port):
            return None
        return unavailable(port.topic, port.index, port.label, heard.state, heard.failure)

    # -- groups

    def group(self, group_id: int) -> MirroredGroup | None:
        """The group, if its coordinator was started in this opening of the directory, and it has not ended."""
        return self._groups.get(group_id)

    def group_ids(self) -> Iterable[int]:
        """Those of all such groups."""
        return list(self._groups)

    def name_of_group(self, group_id: int) -> str:
        """For people; its id where its coordinator was not started."""
        found = self._groups.get(group_id)
        return str(group_id) if found is None else found.name

    def settings_of_group(self, name: str) -> GroupSettings | None:
        """Those of a group whose coordinator was started."""
        return next((group.settings for group in self._groups.values() if group.name == name), None)

    # -- schedules

    def schedules(self, topic_id: str | None = None) -> list[MirroredSchedule]:
        """All of them, or those of a topic, by topic and name."""
        found = self._schedules.values()
        return sorted([each for each in found if topic_id in (None, each.port.topic_id)], key=_place)

    # -- to the catalog, and from it

    def compose(self, _: None) -> FollowCatalog:
        """It is to hear of all that there is."""
        return FollowCatalog(self._peer.number)

    def _ask(self) -> None:
        if self._asks:
            self._peer.mark(None)

    def hear(self, message: MirrorNotice | Began | Failed | Terminated) -> None:
        """The catalog says this."""
        match message:
            case TopicStands():
                self._topic_stands(message)
            case TopicDeleted(topic_id):
                self._delete(topic_id)
            case PartitionStands(path, state):
                self._states[path] = message
                if state == "running":
                    self._have_run.add(path)
            case GroupStands():
                self._group_stands(message)
            case GroupEnded(group_id):
                self._end_group(group_id)
            case TopicSchedules():
                self._topic_schedules(message)
            case ScheduleStands(schedule_id):
                if schedule_id in self._schedules:
                    self._schedules[schedule_id].stands = message
            case CatalogStands(topic_ids, group_ids, losses):
                for topic_id in self._by_id.keys() - topic_ids:
                    self._delete(topic_id)
                for group_id in self._groups.keys() - group_ids:
                    self._end_group(group_id)
                self.losses = losses
                self._is_filled.set()
            case Began():
                self._ask()

    def _topic_stands(self, stands: TopicStands) -> None:
        topic = self._by_id.get(stands.topic_id)
        if topic is None:
            ports = self._ports(stands, str, "")
            topic = MirroredTopic(stands.name, stands.topic_id, ports, stands)
            self._by_id[topic.topic_id] = self._by_name[topic.name] = topic
        if stands.has_waiting and not topic.waiting:
            topic.waiting = self._ports(stands, waiting_folder, DELAYED)
        if stands.has_outboxes and not topic.outboxes:
            topic.outboxes = tuple(map(Outbox, self._ports(stands, outbox_folder, OUTBOX), topic.ports))
        topic.heard(stands)

    def _ports(
        self, stands: TopicStands, folder: Callable[[int], str], holds: str
    ) -> tuple[PartitionPort, ...]:
        return tuple(
            PartitionPort(
                stands.name,
                stands.topic_id,
                index,
                self._actor(f"{stands.path}/{folder(index)}"),
                holds,
                stands.pending_bytes,
            )
            for index in range(stands.settings.partitions)
        )

    def _delete(self, topic_id: str) -> None:
        topic = self._by_id.pop(topic_id, None)
        if topic is None:
            return
        topic.deleted = True
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        for port in topic.all_ports:
            self._states.pop(port.ref.path, None)
            self._have_run.discard(port.ref.path)
        self._topic_schedules(TopicSchedules(topic_id, ()))
        self._deleted(topic)

    def _group_stands(self, stands: GroupStands) -> None:
        group = self._groups.get(stands.group_id)
        if group is None:
            ref = self._actor(stands.path)
            self._groups[stands.group_id] = MirroredGroup(stands.group_id, stands.name, stands.settings, ref)
        else:
            group.settings = stands.settings

    def _end_group(self, group_id: int) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.is_over = True

    def _topic_schedules(self, said: TopicSchedules) -> None:
        gone = {each.record.schedule_id for each in self.schedules(said.topic_id)}
        topic = self._by_id.get(said.topic_id)
        for each in said.schedules if topic is not None else ():
            record = each.record
            gone.discard(record.schedule_id)
            known = self._schedules.get(record.schedule_id)
            if known is None and topic is not None:
                known = MirroredSchedule(record, topic.ports[record.spec.partition])
                self._schedules[record.schedule_id] = known
            if known is not None:
                known.record, known.stands = record, each.stands
        for schedule_id in gone:
            self._schedules.pop(schedule_id).is_over = True
