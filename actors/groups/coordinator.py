"""The coordinator of one consumer group: who its members are, and what becomes of a group that nobody reads.

In `shared` mode leases are kept by the partitions, so a coordinator only opens the group in a topic's partitions when a
member joins, releases a leaving member's leases there, and watches the clock: a durable group without members is
expired after `group_expiry`, because what it has not settled would hold retention back for ever; an ephemeral group
ends with its last member.

Members are shared by all incarnations through `Members`, since a consumer outlives its coordinator's crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from callboard.actors.catalog.commands import DeleteGroup, GroupIdle
from callboard.actors.kernel import Actor, Batch, Reply
from callboard.actors.kernel.answering import answer_each
from callboard.actors.notices import GroupExpired, LeaseReleaseFailed
from callboard.actors.partition import commands as c
from callboard.actors.settings import GroupSettings
from callboard.log.errors import (
    ActorCrashed,
    ActorStopped,
    CallboardError,
    MailboxFull,
    PartitionUnavailable,
)

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import Directory, LiveTopic
    from callboard.actors.partition.port import PartitionPort

EXPIRY_GRACE_S: Final = 3600.0
"""A group that nobody could join, because the directory was closed for so long, is not expired before its consumers
had this long (or its whole `group_expiry`, if that is shorter) to come back."""


@attrs.define(eq=False)
class Join:
    """A consumer joins with a topic. Answered with (group id, settings)."""

    consumer: int
    topic: LiveTopic


@attrs.define(eq=False)
class Leave:
    """A consumer leaves. Answered with None when its leases are released."""

    consumer: int


@attrs.define(eq=False)
class Members:
    """Answered with the members' consumer ids."""


CoordinatorCommand = Join | Leave | Members


class Coordinator(Actor[CoordinatorCommand]):
    """See the module."""

    defers_interrupts = True

    def __init__(
        self,
        directory: Directory,
        name: str,
        group_id: int,
        settings: GroupSettings,
        idle_since_us: int | None,
    ) -> None:
        self._directory = directory
        self._name = name
        self._group_id = group_id
        self._settings = settings
        self._idle_since_us = idle_since_us
        self._members = directory.members_of(group_id)
        self._changed = trio.Event()
        self._news = trio.Event()
        self._ended: str | None = None

    async def started(self) -> None:
        """Begin to watch for expiry. What the first incarnation was told of idleness is stale in later ones."""
        if self._members:
            self._idle_since_us = None
        elif self._idle_since_us is None or self.context.incarnation > 1:
            self._set_idle(self.context.clock.wall_us())
        self.context.start_task(self._expire_when_idle, name="expiry")
        self.context.start_task(self._tell_catalog, name="news")

    async def receive_batch(self, batch: Batch[CoordinatorCommand]) -> None:
        """Answers and refusals alike go to whoever asked."""
        await answer_each(batch, self._handle)

    async def _handle(self, message: CoordinatorCommand) -> object:
        """Join, leave, list."""
        match message:
            case Join():
                return await self._join(message.consumer, message.topic)
            case Leave():
                await self._leave(message.consumer)
                return None
            case Members():
                return tuple(self._members)

    async def _join(self, consumer: int, topic: LiveTopic) -> tuple[int, GroupSettings]:
        self._members[consumer] = topic
        if self._idle_since_us is not None:
            self._set_idle(None)
        opening = c.OpenGroup(self._group_id, self._settings.durable, self._settings.start)
        await self._ask_all(topic, opening)
        return self._group_id, self._settings

    async def _ask_all(self, topic: LiveTopic, command: c.OpenGroup | c.ReleaseConsumer) -> None:
        """Ask every partition at once, through restarts. One that has failed is passed: a consumer that meets it when
        it is revived, and does not know the group, joins again.
        """
        asked: list[tuple[PartitionPort, Reply | None]] = []
        for port in topic.ports:
            try:
                asked.append((port, port.ref.ask_nowait(command)))
            except CallboardError:
                asked.append((port, None))
        for port, reply in asked:
            await _answered(port, command, reply)

    async def _leave(self, consumer: int) -> None:
        topic = self._members.pop(consumer, None)
        if topic is None:
            return
        try:
            await self._ask_all(topic, c.ReleaseConsumer(self._group_id, consumer))
        except ActorStopped:
            pass  # the topic is deleted
        except CallboardError as error:
            self.context.emit(LeaseReleaseFailed(self._name, str(error)))
        if not self._members:
            self._set_idle(self.context.clock.wall_us())
            if not self._settings.durable:
                self._end("its last consumer left")

    def _set_idle(self, since_us: int | None) -> None:
        self._idle_since_us = since_us
        self._changed.set()
        self._news.set()

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._news.set()

    async def _tell_catalog(self) -> None:
        """Tell the catalog the latest, waiting for room in its mailbox; the group's own loop waits for nobody."""
        catalog, group_id = self._directory.catalog, self._group_id
        while True:
            await self._news.wait()
            self._news = trio.Event()
            ended, self._ended = self._ended, None
            try:
                if self._settings.durable:
                    await catalog.tell(GroupIdle(group_id, self._idle_since_us))
                if ended is not None and not self._members:
                    await catalog.tell(DeleteGroup(None, group_id, ended))
            except ActorStopped:
                return

    async def _expire_when_idle(self) -> None:
        expiry = self._settings.group_expiry
        if expiry is None or not self._settings.durable:
            return
        clock = self.context.clock
        earliest = clock.monotonic() + min(expiry, EXPIRY_GRACE_S)
        while True:
            left = float("inf")
            if self._idle_since_us is not None:
                left = expiry - (clock.wall_us() - self._idle_since_us) / 1e6
                left = max(left, earliest - clock.monotonic())
            if left <= 0:
                self.context.emit(GroupExpired(self._name, expiry))
                self._end("expired")
                left = float("inf")
            with trio.move_on_after(left):
                await self._changed.wait()
            self._changed = trio.Event()


async def _answered(
    port: PartitionPort, command: c.OpenGroup | c.ReleaseConsumer, reply: Reply | None
) -> None:
    """Wait for the answer, asking again (both commands may be repeated) while the partition restarts."""
    while True:
        try:
            await (port.ref.ask(command) if reply is None else reply.wait())
        except (ActorCrashed, MailboxFull):
            reply = None
        except PartitionUnavailable:
            return
        else:
            return
