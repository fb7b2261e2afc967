"""The catalog actor: creates, alters and deletes topics and groups, durably, and keeps their actors in being.

Everything it does is decided by a journalled event first (`catalog_state`), then carried out; carrying out is
idempotent, and a start carries out whatever the journal has decided, so a crash between the two loses nothing and
leaves nothing half done.

Its loop never waits. Each operation is a task (`operations.py`): those on one topic, or one group, run one after
the other, and those on different ones side by side, so a topic whose disk hangs delays only itself. Only
decisions queue up, for the catalog's own journal; those that wait together share one sync.

Directions: users ask the catalog; the catalog starts and stops topics and coordinators through their supervisors and
asks partitions. Coordinators ask it from tasks of their own.

Invariants
----------
K2  The state changes only when the journal has what changes it: decisions are tried on a copy, in the order in which
    they came, and the copy becomes the state when they are synced. All of them succeed or fail together, but for those
    that were refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import trio

from callboard.actors import notices
from callboard.actors.catalog import state
from callboard.actors.catalog.commands import (
    AddSchedule,
    Admission,
    AlterGroup,
    AlterTopic,
    CatalogCommand,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EnableDelays,
    EnableOutbox,
    EndGroup,
    EnsureGroup,
    GroupIdle,
    IsTopic,
    ListGroups,
    ListTopics,
    PauseSchedule,
    RemoveSchedule,
    SeekGroup,
)
from callboard.actors.catalog.dead_letter_topics import check_dead_letter_topic
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.catalog.finding import FindsTopics
from callboard.actors.catalog.folders import folders_of
from callboard.actors.catalog.forgetting import ForgetsGroups
from callboard.actors.catalog.losses import store_losses, tell_losses
from callboard.actors.catalog.making import MadeFolders
from callboard.actors.catalog.operations import Afterwards, CatalogOperations
from callboard.actors.catalog.patterns import after, check_pattern_of, left_out, matching, passed_over
from callboard.actors.catalog.schedule_changes import ChangesSchedules
from callboard.actors.catalog.seeking import Places, seek_group, sought_words
from callboard.actors.catalog.state import CatalogState, GroupRecord, TopicRecord
from callboard.actors.kernel import Actor
from callboard.actors.names import check_name, check_not_own, no_group, no_topic
from callboard.actors.partition import commands as c
from callboard.actors.partition.beside.delayed import OPEN_WAITING
from callboard.actors.partition.beside.outbox import OPEN_OUTBOX
from callboard.actors.partition.calls import PartitionCalls
from callboard.actors.partition.port import PartitionPort
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
    CallboardError,
    DiskFull,
    GroupExists,
    InternalError,
    InvalidArgument,
    LogCorrupt,
    MailboxFull,
    StorageError,
    TopicExists,
)
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_recovery import Owner
from callboard.log.limits import GROUPS_MAX, TOPICS_MAX
from callboard.log.removal import remove_tree
from callboard.log.seams.disk import Disk, Incarnation, MakeDirectory, SyncDirectory
from callboard.log.segments.damage_record import DamageRecord

Decide = Callable[[CatalogState], Sequence[state.Event]]
"""What a decision makes of a state, as events; raises its refusal."""
DECISIONS_AT_ONCE = 100
"""How many decisions share a sync at most: what they write should find room in the journal's reserve on a full disk."""
ALTER_TIMEOUT_S = 5.0
"""How long altering waits for a partition to take note; one that recovers takes note when it has."""


@attrs.define(eq=False)
class _Decision:
    """A decision that is asked for."""

    decide: Decide
    is_taken: bool = False
    """It has been tried."""
    is_stored: bool = False
    error: CallboardError | None = None


class Catalog(ForgetsGroups, FindsTopics, ChangesSchedules, Actor[CatalogCommand]):
    """See the module. Its durable state is `CatalogState`; what is live is in the shared `Directory`."""

    defers_interrupts = True

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._calls = PartitionCalls(Timers(directory.wheel))
        self._state, self._made = CatalogState(), MadeFolders(directory)
        self._deciding = trio.Lock()
        self._undecided: deque[_Decision] = deque()
        self._is_in_doubt = False
        """Whether the journal may hold a decision that failed, and that does not count."""
        self._next_consumer = 0
        self._journal: Journal
        self._losses: DamageRecord
        self._files: Incarnation
        self._disk: Disk
        self._operations: CatalogOperations
        self._handlers: dict[type, Callable[[Any], Awaitable[object]]] = {
            CreateTopic: self._create_topic,
            AlterTopic: self._alter_topic,
            DeleteTopic: self._delete_topic,
            EnableDelays: self._enable_delays,
            EnableOutbox: self._enable_outbox,
            AddSchedule: self._add_schedule,
            RemoveSchedule: self._change_schedule,
            PauseSchedule: self._change_schedule,
            EnsureGroup: self._ensure_group,
            AlterGroup: self._alter_group,
            SeekGroup: self._seek_group,
            GroupIdle: self._group_idle,
            DeleteGroup: self._delete_group,
            EndGroup: self._end_group,
        }

    async def started(self) -> None:
        """Rebuild the state, then begin to carry out everything it has decided."""
        context = self.context
        if context.disk is None:
            raise InternalError("the catalog was started in a system without a disk", invariant="K1")
        self._disk = context.disk
        self._operations = CatalogOperations(context, self._operation_failed)
        self._files = await context.disk.incarnate("catalog")
        await self._files.submit((MakeDirectory("topics"), SyncDirectory("topics"), SyncDirectory("")))
        owner = Owner(
            self._state.restore,
            self._state.replay,
            state.RECORDS_VERSION,
            versioned=self._state.versioned,
            lost=self._state.lost,
        )
        self._journal = await Journal.open(
            self._files,
            "catalog",
            owner,
            clock=context.clock,
            entropy=context.entropy,
            limits=context.limits,
        )
        await self._check_not_missing()
        self._losses = await DamageRecord.load(self._files, "catalog")
        self._directory.catalog_losses = await tell_losses(context, self._files, self._state, self._losses)
        if self._journal.needs_healing:
            # What was read may be in the page cache only: it is written anew before anything else is decided. On a full
            # disk that waits for the next decision if all that was read is proven, and until then only that is used.
            try:
                await store_losses(self._losses)
                await self._journal.heal(self._state.snapshot())
            except DiskFull as error:
                if self._journal.is_read_unproven:
                    raise
                context.emit(notices.CatalogHeld(context.path, str(error)))
        self._next_consumer = self._state.consumers_reserved
        await self._end_ephemeral_groups()
        await self._find_topics_again()
        for topic in list(self._state.topics.values()):
            await self._directory.turn_to_launch(topic)
            if topic.deleting:
                self._operations.begin(f"topic {topic.name}", partial(self._finish_deleting, topic))
            elif self._directory.is_launchable(topic):
                self._launch(topic)
            else:
                self._operations.begin(f"topic {topic.name}", partial(self._launch_later, topic))
        self._read_patterns()
        for group in self._state.groups.values():
            await self._directory.launch_coordinator(group)
            if self._directory.membership(group).told != group.settings:
                self._operations.begin(f"group {group.name}", partial(self._tell_settings, group))

    async def _end_ephemeral_groups(self) -> None:
        """Those of an earlier run have no members any more."""
        ended = [
            (state.GROUP_DELETED, group.group_id)
            for group in self._state.groups.values()
            if not group.settings.durable and not self._directory.is_live_group(group.group_id)
        ]
        if ended:
            try:
                await self._decide(lambda _: ended)
            except StorageError as error:
                self._operation_failed("ephemeral groups", error)

    async def _check_not_missing(self) -> None:
        """Refuse an empty journal beside topics' files: what it said of them, and of the groups, would be lost."""
        if self._journal.next_sequence > 0:
            return
        found = [
            entry.name for entry in await self._files.list("topics") if state.TOPIC_ID.fullmatch(entry.name)
        ]
        if found:
            raise LogCorrupt(
                f"the catalog is empty, and there are files of {len(found)} topics ({found[0]} ...)."
                " They were left alone. Restore the directory `catalog` from a copy, or move `topics` away to begin"
                " anew.",
                path="catalog",
            )

    async def stopping(self) -> None:
        """Close the journal, between two decisions; there is none after that."""
        await self._deciding.acquire()
        with suppress(StorageError):  # what was found is found again, unless a snapshot has it
            await store_losses(self._losses)
        await self._made.close(self._journal, self._state)
        await self._journal.close()

    async def receive(self, message: CatalogCommand) -> object:
        """Answer at once what needs no other actor, and begin an operation for the rest."""
        if isinstance(message, ListGroups):
            return tuple(self._state.groups.values())
        if isinstance(message, ListTopics):
            return tuple(self._state.topics.values())
        if isinstance(message, IsTopic):
            record = self._state.topics.get(message.topic_id)
            return record is not None and not record.deleting
        match message:
            case CreateTopic() | AlterTopic() | DeleteTopic() | EnableDelays() | EnableOutbox():
                subject = f"topic {message.name}"
            case AddSchedule() | RemoveSchedule() | PauseSchedule():
                subject = f"topic {message.name}"
            case GroupIdle(group_id) | EndGroup(group_id):
                group = self._state.groups.get(group_id)
                if group is None:
                    return None
                subject = f"group {group.name}"
            case _:
                subject = f"group {message.name}"
        reply = self.context.defer_reply()
        try:
            self._operations.begin(subject, partial(self._handlers[type(message)], message), reply)
        except MailboxFull as error:
            reply.fail(error)
        return None

    async def _decide(self, decide: Decide) -> None:
        """What `decide` makes of the state is journalled, then applied: from here on it is decided (K2).

        Raises what `decide` raises, and `StorageError`.
        """
        decision = _Decision(decide)
        self._undecided.append(decision)
        async with self._deciding:
            while not decision.is_taken:
                count = min(len(self._undecided), DECISIONS_AT_ONCE)
                await self._decide_together([self._undecided.popleft() for _ in range(count)])
        if decision.error is not None:
            raise decision.error
        if not decision.is_stored:
            raise InternalError("the catalog broke off before it had decided", invariant="K2")

    async def _decide_together(self, decisions: Sequence[_Decision]) -> None:
        draft, records = self._state.copy(), []
        for decision in decisions:
            decision.is_taken = True
            try:
                events = decision.decide(draft)
            except InternalError:
                raise
            except CallboardError as refusal:
                decision.error = refusal
                continue
            for event in events:
                draft.apply(event)
                records.append(state.encode(event))
        try:
            if records:
                await self._store([*records, *self._made.records(draft)])
                self._made.noted()
        except StorageError as error:
            for decision in decisions:
                decision.error = decision.error or error.again()
            return
        self._state = draft
        for decision in decisions:
            decision.is_stored = True
        await self._maintain_journal()

    async def _store(self, records: Sequence[bytes]) -> None:
        await self._heal()
        try:
            await self._journal.append(records, sync=True)
        except StorageError as error:
            self._is_in_doubt = error.indefinite
            raise

    async def _heal(self) -> None:
        if self._journal.needs_healing:
            await store_losses(self._losses)
            await self._journal.heal(self._state.snapshot())
            self._is_in_doubt = False

    async def _confirm(self) -> None:
        """What was decided stays decided, whatever a decision that failed has left in the journal.

        Raises `StorageError` when that cannot be written.
        """
        if self._is_in_doubt:
            async with self._deciding:
                await self._heal()

    async def _maintain_journal(self) -> None:
        """Keep the journal short, and its reserve. What the disk refuses now is tried again at the next decision."""
        journal = self._journal
        try:
            await store_losses(self._losses)
            if journal.bytes_since_snapshot > self.context.limits.catalog_snapshot_every_bytes:
                await journal.snapshot(self._state.snapshot())
                await journal.prune()
            elif journal.needs_maintenance:
                await journal.maintain()
        except StorageError as error:
            self.context.emit(notices.CatalogUnmaintained(self.context.path, str(error)))

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
                told = _kept(
                    record.settings,
                    differing,
                    TOPIC_FIELDS,
                    f"{call} changes them; or name no settings.",
                    "Name them as they are, or name no settings.",
                )
                raise TopicExists(f"{where} {told}", topic=name)
            await self._confirm()
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

        await self._decide(decide)
        record = self._state.topics[topic_id]
        self._tell_found(record)
        live = self._launch(record)
        self._read_patterns()
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
            live = self._directory.launch_topic(record, self._groups_of(record.topic_id))
            self.context.start_task(self._close_forgotten_groups, live, name=f"groups of {record.name}")
        if record.delays:
            waiting = self._directory.waiting
            waiting.run = waiting.run or int.from_bytes(self.context.entropy.bytes(8), "little")
            self._directory.launch_waiting(live)
        if record.outbox:
            self._directory.launch_outboxes(live)
        self._directory.schedules.follow(live.ports, record.schedules)
        if self._made.must_wait(live, record):
            self.context.start_task(self._made.wait, live, name=f"folders of {record.name}")
        return live

    async def _launch_later(self, record: TopicRecord) -> None:
        """The topic of the same name that was deleted before has ended."""
        self._launch(record)
        self._read_patterns()
        await trio.lowlevel.checkpoint()

    def _known(self, name: str, found: CatalogState | None = None) -> TopicRecord:
        record = (found or self._state).topic(name)
        if record is None:
            raise no_topic(name, (topic.name for topic in self._state.topics.values()))
        return record

    async def _alter_topic(self, message: AlterTopic) -> str:
        record = self._known(message.name)
        altered = topic_settings(message.given, f"topic {message.name!r}", record.settings)
        await self._decide(
            lambda _: [(state.TOPIC_ALTERED, record.topic_id, state.stored_settings(record, altered))]
        )
        live = self._launch(record)
        live.alter(altered)
        await self._tell(live.ports, c.Alter(altered))
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
            await self._decide(lambda _: [(state.TOPIC_DELAYS, record.topic_id)])
        await self._confirm()
        live = self._launch(self._state.topics[record.topic_id])
        for port in live.waiting:
            await self._calls.ask(port, OPEN_WAITING)
        live.takes_delayed = True
        return live.topic_id

    async def _enable_outbox(self, message: EnableOutbox) -> str:
        record = self._known(message.name)
        missing = [] if record.outbox else [(state.TOPIC_OUTBOX, record.topic_id)]
        if message.delays and not record.outbox_delays:
            missing.append((state.TOPIC_OUTBOX_DELAYS, record.topic_id))
        if missing:
            await self._decide(lambda _: missing)
        await self._confirm()
        record = self._state.topics[record.topic_id]
        live = self._launch(record)
        for outbox in live.outboxes:
            await self._calls.ask(outbox.port, OPEN_OUTBOX)
            self._directory.outboxes.is_ready(outbox)
            outbox.takes_delayed = record.outbox_delays
        return live.topic_id

    async def _delete_topic(self, message: DeleteTopic) -> None:
        await self._delete(self._known(message.name))

    async def _delete(self, record: TopicRecord) -> None:
        await self._decide(lambda _: [(state.TOPIC_DELETING, record.topic_id)])
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
        live = self._directory.by_id(record.topic_id)
        for outbox in () if live is None else live.outboxes:
            if outbox.pending:
                self.context.emit(notices.OutboxDropped(outbox.source.label, record.topic_id, outbox.pending))
        await self._directory.retire_topic(record)
        self._read_patterns()
        path = f"topics/{record.topic_id}"
        await remove_tree(await self._disk.incarnate(path), path)
        deleted = (state.TOPIC_DELETED, record.topic_id)
        await self._decide(lambda draft: after(draft, deleted, left_out))
        self._read_patterns()
        await self._disk.forget(path)
        for folder in folders_of([record]):
            await self._disk.forget(folder.directory)

    # -- groups

    async def _ensure_group(self, message: EnsureGroup) -> Admission:
        check_name(message.name, "group")
        wanted = group_settings(message.given, f"group {message.name!r}")
        while self._joining(message, wanted, self._state):
            await self._decide(partial(self._joining, message, wanted))
            if (made := self._state.group(message.name)) is not None:
                # Also when a topic was deleted meanwhile, and no consumer joins: the coordinator lets it end.
                self._read_patterns()
                await self._directory.launch_coordinator(made)
                if made.pattern is not None and not made.found:
                    for passed in passed_over(self._state, self._state.topics.values()):
                        if passed.group == made.name:
                            self.context.emit(passed)
        await self._confirm()
        consumer, self._next_consumer = self._next_consumer, self._next_consumer + 1
        record = self._state.group(message.name)
        if record is None:
            raise InternalError(f"group {message.name!r} went while it was joined", invariant="K2")
        await self._directory.launch_coordinator(record)
        return Admission(record.group_id, consumer)

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
            told = _kept(
                record.settings,
                differing,
                GROUP_FIELDS,
                f"{call} changes them; or subscribe without naming them.",
                "Subscribe without naming them, or delete the group.",
            )
            raise GroupExists(f"group {record.name!r} {told}", group=record.name, problems=tuple(differing))
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
        await self._decide(
            lambda _: [(state.GROUP_ALTERED, record.group_id, state.stored_settings(record, altered))]
        )
        if "dead_letter_topic" in message.given:
            await self._find_topics_again()
            self._read_patterns()
        await self._tell_settings(self._known_group(message.name))
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
        membership = self._directory.membership(record)
        return await seek_group(self._calls, record.name, record.group_id, membership, ports, message.to)

    async def _tell_settings(self, record: GroupRecord) -> None:
        """Have partitions and members know a group's settings; members when the partitions have taken note."""
        membership = self._directory.membership(record)
        membership.alter(record.settings)
        altered, ports = membership.delivery_settings(), self._directory.ports(record)
        self._directory.alter_delivery(record, altered)
        await self._tell(ports, c.AlterDelivery(record.group_id, altered))
        if (live := self._directory.live_group(record.group_id)) is not None:
            membership.tell_members(live.ref)
        self._directory.route_dead_letters(record)

    async def _group_idle(self, message: GroupIdle) -> None:
        idle = (state.GROUP_IDLE, message.group_id, message.since_us)
        await self._decide(lambda draft: [idle] if message.group_id in draft.groups else [])

    async def _delete_group(self, message: DeleteGroup) -> Afterwards:
        if not message.drop_dead_letters:
            await self._check_dead_letters(self._known_group(message.name))
        return await self._forget_group(self._known_group(message.name))

    async def _end_group(self, message: EndGroup) -> Afterwards | int | None:
        record = self._ending_group(message)
        if record is not None and record.settings.durable:
            if kept := await self._kept_letters(record):
                return sum(kept.values())
            record = self._ending_group(message)
        if record is None:
            return None
        membership = self._directory.membership(record)
        with membership.closed():
            if message.expired_after is not None and not membership.is_expiry_told:
                membership.is_expiry_told = True
                self.context.emit(notices.GroupExpired(record.name, message.expired_after))
            return await self._forget_group(record)

    def _ending_group(self, message: EndGroup) -> GroupRecord | None:
        """The group that is to end, if it still is."""
        record = self._state.groups.get(message.group_id)
        if record is None:
            return None
        membership = self._directory.membership(record)
        if membership.members or membership.idle_since_us != message.idle_since_us:
            return None  # a consumer joined while its coordinator gave it up
        if record.settings.durable and record.settings.group_expiry != message.expired_after:
            return None  # it was altered meanwhile, and its coordinator watches for the new time
        return record

    async def _forget_group(self, record: GroupRecord) -> Afterwards:
        latest = record

        def decide(draft: CatalogState) -> list[state.Event]:
            nonlocal latest
            latest = draft.groups[record.group_id]  # a topic may have been found just now
            return [(state.GROUP_DELETED, record.group_id)]

        await self._decide(decide)
        # The coordinator first: it would open the group again for its members.
        await self._directory.retire_coordinator(record)
        return Afterwards(partial(self._close_group, latest))

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


def _kept(
    stored: TopicSettings | GroupSettings,
    differing: Sequence[str],
    fields: Mapping[str, Any],
    remedy: str,
    remedy_of_fixed: str,
) -> str:
    """That something exists with other settings, and what to do: some can never be changed."""
    told = f"exists with other settings: {_told(stored, differing)}"
    if any(fields[key].fixed for key in differing):
        return f"{told}, which cannot be changed. Nothing was written. {remedy_of_fixed}"
    return f"{told}. Nothing was changed. {remedy}"


def _call_of(wanted: TopicSettings | GroupSettings, names: Sequence[str]) -> str:
    """The arguments of a call that makes these settings what was wanted."""
    return ", ".join(f"{name}={getattr(wanted, name)!r}" for name in names)


def _told(settings: TopicSettings | GroupSettings, names: Sequence[str]) -> str:
    return ", ".join(f"{name} is {getattr(settings, name)!r}" for name in names)
