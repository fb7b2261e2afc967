"""The catalog actor: creates, alters and deletes topics and groups, durably, and keeps their actors in being.

Everything it does is decided by a journalled event first (`catalog_state`), then carried out; carrying out is
idempotent, and a start carries out whatever the journal has decided, so a crash between the two loses nothing and
leaves nothing half done.

Directions: users ask the catalog; the catalog starts and stops topics and coordinators through their supervisors and
asks partitions. Coordinators only ever tell it, and their loops do not wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs

from callboard.actors.catalog import state
from callboard.actors.catalog.commands import (
    AlterTopic,
    CatalogCommand,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EnsureGroup,
    GroupIdle,
    ListGroups,
)
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.catalog.state import CatalogState, GroupRecord, TopicRecord
from callboard.actors.kernel import Actor, ActorRef, Batch
from callboard.actors.kernel.answering import answer_each
from callboard.actors.names import check_name
from callboard.actors.partition import commands as c
from callboard.actors.partition.port import PartitionPort
from callboard.actors.partition.shared_state import partition_directory
from callboard.actors.settings import (
    GROUP_FIELDS,
    TOPIC_FIELDS,
    GroupSettings,
    check,
    contradictions,
    group_settings,
    topic_settings,
)
from callboard.log.errors import (
    ActorCrashed,
    AskTimeout,
    CallboardError,
    ConfigurationError,
    GroupNotFound,
    InternalError,
    InvalidArgument,
    LogCorrupt,
    PartitionUnavailable,
    StorageError,
    TopicExists,
    TopicNotFound,
)
from callboard.log.journal.journal import Journal
from callboard.log.limits import GROUPS_MAX, TOPICS_MAX
from callboard.log.removal import remove_tree
from callboard.log.seams.disk import Incarnation, MakeDirectory, SyncDirectory

ALTER_TIMEOUT_S = 5.0
"""How long altering waits for a partition to take note; one that recovers takes note when it has."""


class Catalog(Actor[CatalogCommand]):
    """See the module. Its durable state is `CatalogState`; what is live is in the shared `Directory`."""

    defers_interrupts = True

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._state = CatalogState()
        self._journal: Journal
        self._files: Incarnation

    async def started(self) -> None:
        """Rebuild the state, then carry out everything it has decided."""
        context = self.context
        if context.disk is None:
            raise InternalError("the catalog was started in a system without a disk", invariant="K1")
        self._files = await context.disk.incarnate("catalog")
        await self._files.submit((MakeDirectory("topics"), SyncDirectory("topics"), SyncDirectory("")))
        self._journal = await Journal.open(
            self._files,
            "catalog",
            clock=context.clock,
            entropy=context.entropy,
            restore=self._state.restore,
            apply=self._state.replay,
            version=state.RECORDS_VERSION,
            versioned=self._state.versioned,
            lost=self._state.lost,
            limits=context.limits,
        )
        for passed_over in self._state.passed_over:
            context.emit(f"the catalog was repaired: {passed_over}")
        await self._check_not_missing()
        if self._journal.needs_healing:
            # What was read may be in the page cache only: nothing is launched on the strength of it.
            await self._journal.heal(self._state.snapshot())
        for group in list(self._state.groups.values()):
            if not group.settings.durable and not self._directory.is_live_group(group.group_id):
                await self._decide((state.GROUP_DELETED, group.group_id))
        for topic in list(self._state.topics.values()):
            if topic.deleting:
                await self._finish_deleting(topic)
            else:
                await self._directory.launch_topic(topic)
        await self._close_forgotten_groups()
        for group in self._state.groups.values():
            await self._directory.launch_coordinator(group)

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
        """Close the journal."""
        await self._journal.close()

    async def receive_batch(self, batch: Batch[CatalogCommand]) -> None:
        """Answers and refusals alike go to whoever asked."""
        await answer_each(batch, self._handle)

    async def _handle(self, message: CatalogCommand) -> object:
        """One command at a time: they are rare, and each waits for its sync."""
        match message:
            case CreateTopic():
                return await self._create_topic(message.name, message.given)
            case AlterTopic():
                return await self._alter_topic(message.name, message.given)
            case DeleteTopic():
                await self._delete_topic(message.name)
                return None
            case EnsureGroup():
                return await self._ensure_group(message)
            case GroupIdle():
                await self._group_idle(message)
                return None
            case DeleteGroup():
                await self._delete_group(message)
                return None
            case ListGroups():
                return tuple(self._state.groups.values())

    async def _decide(self, *events: state.Event) -> None:
        """Journal the events, then apply them: from here on it is decided."""
        if self._journal.needs_healing:
            await self._journal.heal(self._state.snapshot())
        await self._journal.append([state.encode(event) for event in events], sync=True)
        for event in events:
            self._state.apply(event)
        if self._journal.bytes_since_snapshot > self.context.limits.catalog_snapshot_every_bytes:
            await self._shorten_journal()

    async def _shorten_journal(self) -> None:
        """A snapshot, and nothing before it. What the disk refuses now is tried again at the next decision."""
        try:
            await self._journal.snapshot(self._state.snapshot())
            await self._journal.prune()
        except StorageError as error:
            self.context.emit(f"the catalog's journal could not be shortened: {error}")

    # -- topics

    async def _create_topic(self, name: str, given: Mapping[str, Any]) -> LiveTopic:
        check_name(name, "topic")
        where = f"topic {name!r}"
        wanted = topic_settings(given, where)
        record = self._state.topic(name)
        if record is not None:
            differing = [key for key in given if getattr(record.settings, key) != getattr(wanted, key)]
            if differing:
                told = ", ".join(f"{key} is {getattr(record.settings, key)!r}" for key in differing)
                raise TopicExists(
                    f"{where} exists with other settings: {told}. Use alter_topic, or name no settings.",
                    topic=name,
                )
            return await self._directory.launch_topic(record)
        twin = self._state.colliding(name)
        if twin is not None:
            raise TopicExists(
                f"{where} would collide with topic {twin.name!r}, which differs only in case or Unicode form."
                " Choose a name that differs in more than that.",
                topic=name,
            )
        if len(self._state.topics) >= TOPICS_MAX:
            raise InvalidArgument(
                f"there are {TOPICS_MAX} topics, and no more are allowed. Delete some first."
            )
        topic_id = self.context.entropy.bytes(8).hex()
        await self._decide((state.TOPIC_CREATED, name, topic_id, state.changed(wanted)))
        return await self._directory.launch_topic(self._state.topics[topic_id])

    def _known(self, name: str) -> TopicRecord:
        record = self._state.topic(name)
        if record is None:
            raise TopicNotFound(f"there is no topic {name!r}. Create it with create_topic.", topic=name)
        return record

    async def _alter_topic(self, name: str, given: Mapping[str, Any]) -> LiveTopic:
        record = self._known(name)
        where = f"topic {name!r}"
        checked = check("topic", TOPIC_FIELDS, given, where)
        if checked.get("partitions", record.settings.partitions) != record.settings.partitions:
            problem = "partitions cannot be changed once a topic exists"
            raise ConfigurationError(
                f"settings of {where}: {problem}. Nothing was changed.", problems=(problem,)
            )
        altered = attrs.evolve(record.settings, **checked)
        contradictions(altered, where)
        await self._decide((state.TOPIC_ALTERED, record.topic_id, record.stored_settings(altered)))
        live = await self._directory.launch_topic(record)
        live.alter(altered)
        for port in live.ports:
            with suppress(
                ActorCrashed, PartitionUnavailable, AskTimeout
            ):  # it comes back with these settings
                await port.ref.ask(c.Alter(altered), timeout=ALTER_TIMEOUT_S)
        return live

    async def _delete_topic(self, name: str) -> None:
        record = self._known(name)
        await self._decide((state.TOPIC_DELETING, record.topic_id))
        await self._finish_deleting(record)

    async def _finish_deleting(self, record: TopicRecord) -> None:
        await self._directory.retire_topic(record)
        await remove_tree(self._files, f"topics/{record.topic_id}")
        await self._decide((state.TOPIC_DELETED, record.topic_id))
        if self.context.disk is not None:
            for index in range(record.settings.partitions):
                await self.context.disk.forget(partition_directory(record.topic_id, index))

    # -- groups

    async def _ensure_group(self, message: EnsureGroup) -> ActorRef[Any]:
        check_name(message.name, "group")
        topic = self._known(message.topic)
        where = f"group {message.name!r}"
        wanted = group_settings(message.given, where)
        record = self._state.group(message.name)
        if record is None:
            record = await self._open_group(message.name, wanted)
        elif differing := _differing(record.settings, wanted, message.given):
            told = ", ".join(f"{key} is {getattr(record.settings, key)!r}" for key in differing)
            raise ConfigurationError(
                f"{where} exists with other settings: {told}. Subscribe without naming them, or delete the group.",
                problems=tuple(differing),
            )
        if topic.topic_id not in record.topic_ids:
            await self._decide((state.GROUP_JOINED, record.group_id, topic.topic_id))
        return await self._directory.launch_coordinator(record)

    async def _open_group(self, name: str, settings: GroupSettings) -> GroupRecord:
        if len(self._state.groups) >= GROUPS_MAX:
            raise InvalidArgument(
                f"there are {GROUPS_MAX} groups, and no more are allowed. Delete some first."
            )
        group_id = self._state.next_group_id
        now_us = self.context.clock.wall_us()
        await self._decide((state.GROUP_OPENED, name, group_id, state.changed(settings), now_us))
        return self._state.groups[group_id]

    async def _group_idle(self, message: GroupIdle) -> None:
        if message.group_id in self._state.groups:
            try:
                await self._decide((state.GROUP_IDLE, message.group_id, message.since_us))
            except StorageError as error:
                self.context.emit(f"since when group {message.group_id} is idle could not be stored: {error}")

    async def _delete_group(self, message: DeleteGroup) -> None:
        record = self._find_group(message)
        if record is None:
            return
        if message.name is None and self._directory.members_of(record.group_id):
            return  # somebody joined while its coordinator gave it up
        await self._decide((state.GROUP_DELETED, record.group_id))
        await self._directory.retire_coordinator(
            record
        )  # first: it would open the group again for its members
        for topic_id in record.topic_ids:
            topic = self._directory.by_id(topic_id)
            for port in topic.ports if topic is not None else ():
                await self._close_group_at(port, record)

    async def _close_group_at(self, port: PartitionPort, record: GroupRecord) -> None:
        """Have a partition forget the group. One that cannot do it now does it at the next start."""
        while True:
            try:
                await port.ref.ask(c.CloseGroup(record.group_id))
            except ActorCrashed:
                continue
            except CallboardError as error:
                self.context.emit(f"group {record.name} is not forgotten by {port.label} yet: {error}")
            return

    def _find_group(self, message: DeleteGroup) -> GroupRecord | None:
        if message.name is None:
            return self._state.groups.get(message.group_id or 0)
        record = self._state.group(message.name)
        if record is None:
            raise GroupNotFound(f"there is no group {message.name!r}.", group=message.name)
        return record

    async def _close_forgotten_groups(self) -> None:
        """Delivery states of groups that the catalog has deleted would hold retention back for ever."""
        known = set(self._state.groups)
        for topic in self._directory.topics():
            for port in topic.ports:
                try:
                    statistics = await port.ref.ask(c.Describe())
                except CallboardError:
                    continue
                for group in statistics.groups:
                    if group.group_id not in known:
                        await port.ref.ask(c.CloseGroup(group.group_id))


def _differing(stored: GroupSettings, wanted: GroupSettings, given: Mapping[str, Any]) -> list[str]:
    """Settings named by a later subscriber that do not match; `start` only matters to the first."""
    return [
        key
        for key in given
        if key in GROUP_FIELDS and key != "start" and getattr(stored, key) != getattr(wanted, key)
    ]
