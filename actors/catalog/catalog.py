"""The catalog actor: creates, alters and deletes topics and groups, durably, and keeps their actors in being.

Everything it does is decided by a journalled event first (`decisions`), then carried out; carrying out is
idempotent, and a start carries out whatever the journal has decided, so a crash between the two loses nothing and
leaves nothing half done.

Its loop never waits. Each operation is a task (`operations.py`): those on one topic, or one group, run one after
the other, and those on different ones side by side, so a topic whose disk hangs delays only itself. Only
decisions queue up, for the catalog's own journal; those that wait together share one sync.

Directions: users ask the catalog; the catalog starts and stops topics and coordinators through their supervisors and
asks partitions and coordinators. Coordinators ask it from tasks of their own.

Invariants
----------
CA1  It runs in a system that has a disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, assert_never

import trio

from callboard.actors import notices
from callboard.actors.catalog import state
from callboard.actors.catalog.commands import (
    AddSchedule,
    AlterGroup,
    AlterTopic,
    CatalogCommand,
    CatalogOperation,
    ConsumerAdmission,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EnableDelays,
    EnableOutbox,
    EndGroup,
    EnsureGroup,
    FollowCatalog,
    GroupIdle,
    GroupRecord,
    IsTopic,
    ListGroups,
    ListTopics,
    PauseSchedule,
    RemoveSchedule,
    SeekGroup,
    TopicRecord,
)
from callboard.actors.catalog.dead_letter_topics import check_dead_letter_topic
from callboard.actors.catalog.decisions import Decisions
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.catalog.folders import folders_of
from callboard.actors.catalog.making import MadeFolders
from callboard.actors.catalog.operations import Afterwards, CatalogOperations
from callboard.actors.catalog.partition_groups import PartitionGroups
from callboard.actors.catalog.pattern_readers import PatternReaders
from callboard.actors.catalog.patterns import after, check_pattern_of, left_out, matching, passed_over
from callboard.actors.catalog.schedule_changes import ScheduleChanges
from callboard.actors.catalog.seeking import Places, seek_group, sought_words
from callboard.actors.catalog.state import CatalogState
from callboard.actors.clients.calls import PartitionCalls
from callboard.actors.clients.port import PartitionPort
from callboard.actors.companions import OPEN_OWN_GROUP
from callboard.actors.groups.commands import TellMembers
from callboard.actors.kernel import Actor, notify
from callboard.actors.names import check_name, check_not_own, no_group, no_topic
from callboard.actors.partition import commands as c
from callboard.actors.settings import (
    GROUP_FIELDS,
    TOPIC_FIELDS,
    GroupSettings,
    TopicSettings,
    check_order,
    group_settings,
    topic_settings,
)
from callboard.actors.timing import Timers
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    DiskFull,
    GroupExists,
    InternalError,
    InvalidArgument,
    MailboxFull,
    PlanFailed,
    StorageError,
    TopicExists,
)
from callboard.log.limits import GROUPS_MAX, TOPICS_MAX
from callboard.log.removal import remove_tree
from callboard.log.seams.disk import Disk, MakeDirectory, SyncDirectory
from callboard.log.segments.wrong_kind import opening_error

ALTER_TIMEOUT_S = 5.0
"""How long altering waits for a partition to take note; one that recovers takes note when it has."""


class Catalog(Actor[CatalogCommand]):
    """The actor that makes, alters and deletes topics and groups.

    `Decisions` has its durable state, `Directory` what is live, which incarnations hand on.
    """

    defers_interrupts = True

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._calls = PartitionCalls(Timers(directory.wheel), directory.refusal)
        self._made = MadeFolders(directory)
        self._next_consumer = 0
        self._disk: Disk
        self._decisions: Decisions
        self._operations: CatalogOperations
        self._groups: PartitionGroups
        self._patterns: PatternReaders
        self._schedules: ScheduleChanges

    @property
    def _state(self) -> CatalogState:
        """The latest. It is another one after each decision."""
        return self._decisions.state

    async def started(self) -> None:
        """Rebuild the state, then begin to carry out everything it has decided."""
        context = self.context
        if context.disk is None:
            raise InternalError("the catalog was started in a system without a disk", invariant="CA1")
        self._disk = context.disk
        self._operations = CatalogOperations(context, self._operation_failed)
        files = await context.disk.incarnate("catalog")
        try:
            await files.submit((MakeDirectory("topics"), SyncDirectory("topics"), SyncDirectory("")))
        except PlanFailed as error:
            raise opening_error("the folder of topics", error) from error
        directory, decisions = self._directory, await Decisions.open(context, files, self._made)
        self._decisions = decisions
        directory.losses = await decisions.tell_losses()
        await decisions.prove()
        self._groups = PartitionGroups(context, directory, decisions, self._calls)
        self._patterns = PatternReaders(context, directory, decisions, self._groups)
        self._schedules = ScheduleChanges(context, directory, decisions, self._launch)
        self._next_consumer = self._state.consumers_reserved
        await self._end_ephemeral_groups()
        await self._directory.retire_coordinators_but(self._state.groups)
        await self._patterns.find_again()
        for topic in list(self._state.topics.values()):
            await self._directory.turn_to_launch(topic)
            if topic.deleting:
                self._operations.begin(f"topic {topic.name}", partial(self._finish_deleting, topic))
            elif self._directory.is_launchable(topic):
                self._launch(topic)
            else:
                self._operations.begin(f"topic {topic.name}", partial(self._launch_later, topic))
        self._patterns.read(*self._state.topics)
        for group in self._state.groups.values():
            await self._directory.launch_coordinator(group)
            if self._directory.news(group).known != group.settings:
                self._operations.begin(f"group {group.name}", partial(self._tell_settings, group))
        if context.incarnation > 1:
            directory.say_all(directory.say)
        else:
            directory.say(directory.stands())

    async def _end_ephemeral_groups(self) -> None:
        """Those of an earlier run have no members any more."""
        ended = [
            (state.GROUP_DELETED, group.group_id)
            for group in self._state.groups.values()
            if not group.settings.durable and not self._directory.is_live_group(group.group_id)
        ]
        if ended:
            try:
                await self._decisions.decide(lambda _: ended)
            except StorageError as error:
                self._operation_failed("ephemeral groups", error)

    async def stopping(self) -> None:
        """Close the journal, between two decisions; there is none after that."""
        await self._decisions.close()

    async def receive(self, message: CatalogCommand) -> object:
        """Answer at once what needs no other actor, and begin an operation for the rest."""
        match message:
            case ListGroups():
                return tuple(self._state.groups.values())
            case ListTopics():
                return tuple(self._state.topics.values())
            case IsTopic(topic_id):
                record = self._state.topics.get(topic_id)
                return record is not None and not record.deleting
            case FollowCatalog(mirror):
                self._directory.say_all(partial(notify, self.context.ref, mirror))
                return None
            case CreateTopic() | AlterTopic() | DeleteTopic() | EnableDelays() | EnableOutbox():
                subject = f"topic {message.name}"
            case AddSchedule() | RemoveSchedule() | PauseSchedule():
                subject = f"topic {message.name}"
            case EnsureGroup() | AlterGroup() | SeekGroup() | DeleteGroup():
                subject = f"group {message.name}"
            case GroupIdle(group_id) | EndGroup(group_id):
                group = self._state.groups.get(group_id)
                if group is None:
                    return None
                subject = f"group {group.name}"
            case _:
                assert_never(message)
        reply = self.context.defer_reply()
        try:
            self._operations.begin(subject, partial(self._carry_out, message), reply)
        except MailboxFull as error:
            reply.fail(error)
        return None

    async def _carry_out(self, message: CatalogOperation) -> object:
        match message:
            case CreateTopic():
                return await self._create_topic(message)
            case AlterTopic():
                return await self._alter_topic(message)
            case DeleteTopic():
                await self._delete(self._known(message.name))
            case EnableDelays():
                return await self._enable_delays(message)
            case EnableOutbox():
                return await self._enable_outbox(message)
            case AddSchedule():
                return await self._schedules.add(message)
            case RemoveSchedule() | PauseSchedule():
                await self._schedules.change(message)
            case EnsureGroup():
                return await self._ensure_group(message)
            case AlterGroup():
                return await self._alter_group(message)
            case SeekGroup():
                return await self._seek_group(message)
            case GroupIdle():
                await self._group_idle(message)
            case DeleteGroup():
                return await self._delete_group(message)
            case EndGroup():
                return await self._end_group(message)
            case _:
                assert_never(message)
        return None

    def _operation_failed(self, subject: str, error: CallboardError) -> None:
        self.context.emit(notices.OperationFailed(subject, str(error)))

    # -- topics

    async def _create_topic(self, message: CreateTopic) -> str:
        name, given = message.name, message.given
        check_name(name, "topic")
        where = f"topic {name!r}"
        wanted = topic_settings(given, where)
        record = self._state.topic(name)
        if record is not None:
            differing = [key for key in given if getattr(record.settings, key) != getattr(wanted, key)]
            if differing:
                call = f"runtime.alter_topic({name!r}, {_call_of(wanted, differing)})"
                differs = _differs(
                    record.settings,
                    differing,
                    TOPIC_FIELDS,
                    f"{call} changes them; or name no settings.",
                    "Name them as they are, or name no settings.",
                )
                raise TopicExists(f"{where} {differs}", topic=name)
            await self._decisions.confirm()
            return self._launch(record).topic_id
        check_not_own(name, "topic")
        topic_id: str = self.context.entropy.bytes(8).hex()

        def decide(draft: CatalogState) -> list[state.Event]:
            twin = draft.colliding(name)
            if twin is not None:
                raise TopicExists(
                    f"{where} would collide with topic {twin.name!r}, which differs only in case or Unicode form."
                    " Choose a name that differs in more than that.",
                    topic=name,
                )
            if len(draft.topics) >= TOPICS_MAX:
                raise InvalidArgument(
                    f"there are {TOPICS_MAX} topics, and no more are allowed. Delete some first."
                )
            created = (state.TOPIC_CREATED, name, topic_id, state.changed(wanted))
            return after(draft, created, lambda then: [then.topics[topic_id]])

        await self._decisions.decide(decide)
        record = self._state.topics[topic_id]
        self._patterns.tell_found(record)
        live = self._launch(record)
        self._patterns.read()
        lack = await self._directory.opened(live)
        if lack is not None:
            fate = "The topic was deleted again. Free space, then create it."
            try:
                await self._delete(record)
            except StorageError as error:
                if self._state.topic(name) is not None:
                    fate = f"It could not be deleted again ({error}) Its partitions run when there is space."
            raise DiskFull(
                f"there is no space for the files of {where}: {lack} {fate}",
                indefinite=self._state.topic(name) is not None,
            )
        return topic_id

    def _launch(self, record: TopicRecord) -> LiveTopic:
        live = self._directory.by_id(record.topic_id)
        if live is None:
            live = self._directory.launch_topic(record, self._groups.reading(record.topic_id))
            self.context.start_task(self._groups.close_forgotten, live, name=f"groups of {record.name}")
        if record.delays:
            directory = self._directory
            directory.run = directory.run or int.from_bytes(self.context.entropy.bytes(8), "little")
            directory.launch_waiting(live, record)
        if record.outbox:
            self._directory.launch_outboxes(live, record)
        self._directory.say_topic(live)
        self._directory.schedules.follow(live.ports, record.schedules)
        if self._made.must_wait(live, record):
            self.context.start_task(self._made.wait, live, name=f"folders of {record.name}")
        return live

    async def _launch_later(self, record: TopicRecord) -> None:
        """The topic of the same name that was deleted before has ended."""
        self._launch(record)
        self._patterns.read(record.topic_id)
        await trio.lowlevel.checkpoint()

    def _known(self, name: str, found: CatalogState | None = None) -> TopicRecord:
        record = (found or self._state).topic(name)
        if record is None:
            raise no_topic(name, (topic.name for topic in self._state.topics.values()))
        return record

    async def _alter_topic(self, message: AlterTopic) -> str:
        record = self._known(message.name)
        altered = topic_settings(message.given, f"topic {message.name!r}", record.settings)
        await self._decisions.decide(
            lambda _: [(state.TOPIC_ALTERED, record.topic_id, state.stored_settings(record, altered))]
        )
        live = self._launch(record)
        self._directory.alter_topic(live, altered)
        await self._tell(live.ports, c.Alter(altered))
        if altered.read_only != record.settings.read_only:
            self.context.emit(notices.TopicWritable(record.name, not altered.read_only))
        return live.topic_id

    @staticmethod
    async def _tell(ports: Sequence[PartitionPort], news: c.Alter | c.AlterDelivery) -> None:
        """Tell partitions what is altered. One that crashed or failed comes back with that."""

        async def tell(port: PartitionPort) -> None:
            with suppress(CallboardError):
                await port.ref.ask(news)

        with trio.move_on_after(ALTER_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for port in ports:
                    nursery.start_soon(tell, port)

    async def _enable_delays(self, message: EnableDelays) -> str:
        record = self._known(message.name)
        if not record.delays:
            await self._decisions.decide(lambda _: [(state.TOPIC_DELAYS, record.topic_id)])
        await self._decisions.confirm()
        live = self._launch(self._state.topics[record.topic_id])
        for port in live.waiting:
            await self._calls.ask(port, OPEN_OWN_GROUP)
        live.takes_delayed = True
        self._directory.say_topic(live)
        return live.topic_id

    async def _enable_outbox(self, message: EnableOutbox) -> str:
        record = self._known(message.name)
        missing = [] if record.outbox else [(state.TOPIC_OUTBOX, record.topic_id)]
        if message.delays and not record.outbox_delays:
            missing.append((state.TOPIC_OUTBOX_DELAYS, record.topic_id))
        if missing:
            await self._decisions.decide(lambda _: missing)
        await self._decisions.confirm()
        record = self._state.topics[record.topic_id]
        live = self._launch(record)
        try:
            for outbox in live.outboxes:
                await self._calls.ask(outbox.port, OPEN_OWN_GROUP)
                live.is_ready(outbox, delays=record.outbox_delays)
        finally:
            self._directory.say_topic(live)
        return live.topic_id

    async def _delete(self, record: TopicRecord) -> None:
        await self._decisions.decide(lambda _: [(state.TOPIC_DELETING, record.topic_id)])
        try:
            await self._finish_deleting(record)
        except StorageError as error:
            found = StorageError(
                f"topic {record.name!r} is deleted, and files of it are left: {error} They are removed when the"
                " directory is opened again."
            )
            found.indefinite = True
            raise found from error

    async def _finish_deleting(self, record: TopicRecord) -> None:
        self._directory.withdraw_topic(record)
        self._patterns.read(record.topic_id)
        await self._directory.stop_topic(record)
        path = f"topics/{record.topic_id}"
        await remove_tree(await self._disk.incarnate(path), path)
        deleted = (state.TOPIC_DELETED, record.topic_id)
        await self._decisions.decide(lambda draft: after(draft, deleted, left_out))
        self._patterns.read()
        await self._disk.forget(path)
        for folder in folders_of([record]):
            await self._disk.forget(folder.directory)

    # -- groups

    async def _ensure_group(self, message: EnsureGroup) -> ConsumerAdmission:
        check_name(message.name, "group")
        wanted = group_settings(message.given, f"group {message.name!r}")
        while self._joining(message, wanted, self._state):
            await self._decisions.decide(partial(self._joining, message, wanted))
            if (made := self._state.group(message.name)) is not None:
                # Also when a topic was deleted meanwhile, and no consumer joins: the coordinator lets it end.
                self._patterns.read(*made.topic_ids)
                await self._directory.launch_coordinator(made)
                if made.pattern is not None and not made.found:
                    for passed in passed_over(self._state, self._state.topics.values()):
                        if passed.group == made.name:
                            self.context.emit(passed)
        await self._decisions.confirm()
        consumer, self._next_consumer = self._next_consumer, self._next_consumer + 1
        record = self._state.group(message.name)
        if record is None:
            raise InternalError(f"group {message.name!r} went while it was joined", invariant="DE2")
        await self._directory.launch_coordinator(record)
        return ConsumerAdmission(record.group_id, consumer)

    def _joining(self, message: EnsureGroup, wanted: GroupSettings, found: CatalogState) -> list[state.Event]:
        """What has to be decided before another consumer joins the group with its topics; refuses what cannot be."""
        topics = [self._known(name, found) for name in message.topics]
        record = found.group(message.name)
        check_pattern_of(found, message.name, record, message.pattern)
        events: list[state.Event] = []
        if record is None:
            check_not_own(message.name, "group")
            if len(found.groups) >= GROUPS_MAX:
                raise InvalidArgument(
                    f"there are {GROUPS_MAX} groups, and no more are allowed. Delete some first."
                )
            group_id, now_us = found.next_group_id, self.context.clock.wall_us()
            events.append((state.GROUP_OPENED, message.name, group_id, state.changed(wanted), now_us))
            events.append((state.GROUP_BORN, group_id, max(now_us, 1)))
            if (pattern := message.pattern) is not None:
                events.append((state.GROUP_PATTERN, group_id, pattern.words, pattern.dead_letters))
                topics, _ = matching(found, message.name, pattern, wanted, found.topics.values())
        elif differing := _differing(record.settings, wanted, message.given):
            call = f"runtime.group({record.name!r}).alter({_call_of(wanted, differing)})"
            differs = _differs(
                record.settings,
                differing,
                GROUP_FIELDS,
                f"{call} changes them; or subscribe without naming them.",
                "Subscribe without naming them, or delete the group.",
            )
            raise GroupExists(
                f"group {record.name!r} {differs}", group=record.name, problems=tuple(differing)
            )
        else:
            group_id = record.group_id
        settings = wanted if record is None else record.settings
        for topic in topics:
            check_order(message.name, settings, topic.name, topic.settings)
        if record is None or any(topic.topic_id not in record.topic_ids for topic in topics):
            check_dead_letter_topic(found, record, topics, settings)
        events += [
            (state.GROUP_JOINED, group_id, topic.topic_id)
            for topic in topics
            if record is None or topic.topic_id not in record.topic_ids
        ]
        if self._next_consumer >= found.consumers_reserved:
            events.append(
                (state.CONSUMERS_RESERVED, self._next_consumer + self.context.limits.consumer_ids_per_block)
            )
        return events

    async def _alter_group(self, message: AlterGroup) -> GroupSettings:
        record = self._known_group(message.name)
        altered = group_settings(message.given, f"group {message.name!r}", record.settings)
        check_dead_letter_topic(self._state, record, (), altered)
        await self._decisions.decide(
            lambda _: [(state.GROUP_ALTERED, record.group_id, state.stored_settings(record, altered))]
        )
        if "dead_letter_topic" in message.given:
            await self._patterns.find_again()
            self._patterns.read()
        await self._tell_settings(self._known_group(message.name))
        if altered.paused != record.settings.paused:
            self.context.emit(notices.GroupPaused(record.name, altered.paused))
        return altered

    async def _seek_group(self, message: SeekGroup) -> Places:
        record = self._known_group(message.name)
        ports = [
            port
            for port in self._directory.ports(record)
            if message.topic in (None, port.topic) and message.partition in (None, port.index)
        ]
        if not ports:
            topics = sorted({port.topic for port in self._directory.ports(record)})
            raise InvalidArgument(
                f"group {message.name!r} reads no {sought_words(message, topics)}. Nothing was changed."
                " `Group.describe` tells what it reads."
            )
        return await seek_group(self._calls, record, self._directory.news(record), ports, message.to)

    async def _tell_settings(self, record: GroupRecord) -> None:
        """Have partitions and members know a group's settings; members when the partitions have taken note."""
        news = self._directory.news(record)
        altered, ports = news.alter(record.settings), self._directory.ports(record)
        self._directory.alter_delivery(record, altered)
        await self._tell(ports, c.AlterDelivery(record.group_id, altered))
        while (live := self._directory.live_group(record.group_id)) is not None:
            try:
                await live.ref.ask(TellMembers())
            except ActorCrashed:
                continue
            except ActorStopped:
                pass  # the runtime closes
            break
        news.known = record.settings
        self._directory.route_dead_letters(record)

    async def _group_idle(self, message: GroupIdle) -> None:
        group_id, since_us, noticed_us = message.group_id, message.since_us, message.noticed_us
        events: list[state.Event] = [(state.GROUP_IDLE, group_id, since_us)]
        if since_us is not None and noticed_us is not None:
            events.append((state.GROUP_NOTICED, group_id, since_us, noticed_us))
        await self._decisions.decide(lambda draft: events if group_id in draft.groups else [])

    async def _delete_group(self, message: DeleteGroup) -> Afterwards:
        if not message.drop_dead_letters:
            await self._groups.check_dead_letters(self._known_group(message.name))
        return await self._forget_group(self._known_group(message.name))

    async def _end_group(self, message: EndGroup) -> Afterwards | int | None:
        record = self._state.groups.get(message.group_id)
        if record is None:
            return None
        if record.settings.durable:
            if kept := await self._groups.kept_letters(record):
                return sum(kept.values())
            if record.settings.group_expiry != message.expired_after:
                return 0  # it was altered meanwhile, and its coordinator watches for the new time
        news = self._directory.news(record)
        if message.expired_after is not None and not news.is_expiry_reported:
            news.is_expiry_reported = True
            self.context.emit(notices.GroupExpired(record.name, message.expired_after))
        return await self._forget_group(record)

    async def _forget_group(self, record: GroupRecord) -> Afterwards:
        latest = record

        def decide(draft: CatalogState) -> list[state.Event]:
            nonlocal latest
            latest = draft.groups[record.group_id]  # a topic may have been found just now
            return [(state.GROUP_DELETED, record.group_id)]

        await self._decisions.decide(decide)
        # The coordinator first: it would open the group again for its members.
        await self._directory.retire_coordinator(record.group_id)
        return Afterwards(partial(self._groups.close, latest))

    def _known_group(self, name: str) -> GroupRecord:
        record = self._state.group(name)
        if record is None:
            raise no_group(name, (group.name for group in self._state.groups.values()))
        return record


def _differing(stored: GroupSettings, wanted: GroupSettings, given: Mapping[str, Any]) -> list[str]:
    """Settings named by a later subscriber that do not match; `start` only matters to the first."""
    return [
        key
        for key in given
        if key in GROUP_FIELDS and key != "start" and getattr(stored, key) != getattr(wanted, key)
    ]


def _differs(
    stored: TopicSettings | GroupSettings,
    differing: Sequence[str],
    fields: Mapping[str, Any],
    remedy: str,
    remedy_of_fixed: str,
) -> str:
    """That something exists with other settings, and what to do: some can never be changed."""
    named = ", ".join(f"{name} is {getattr(stored, name)!r}" for name in differing)
    exists = f"exists with other settings: {named}"
    if any(fields[key].fixed for key in differing):
        return f"{exists}, which cannot be changed. Nothing was written. {remedy_of_fixed}"
    return f"{exists}. Nothing was changed. {remedy}"


def _call_of(wanted: TopicSettings | GroupSettings, names: Sequence[str]) -> str:
    """The arguments of a call that makes these settings what was wanted."""
    return ", ".join(f"{name}={getattr(wanted, name)!r}" for name in names)
