"""The handle of a consumer group: look at it and change it, with or without a consumer."""

from __future__ import annotations

from typing import Unpack

from callboard import arguments
from callboard.actors.catalog.commands import AlterGroup, DeleteGroup, ListGroups, SeekGroup
from callboard.actors.names import no_group
from callboard.actors.settings import GroupChanges, GroupSettings, Start, check_group, checked_start
from callboard.dead_letters.kept import KeptLetters, check_drops
from callboard.log.errors import InvalidArgument
from callboard.log.plain import refuse_copy
from callboard.message import Record
from callboard.reports.figures import GroupDescription
from callboard.reports.group_figures import (
    described,
    group_infos,
    holders_of,
    oldest_unsettled,
    with_holdings,
)
from callboard.session import Session


class Group:
    """A consumer group. Made by `Runtime.group`; each call finds out whether there is such a group."""

    __reduce_ex__ = refuse_copy

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self.name = name

    def __repr__(self) -> str:
        return f"<Group {self.name!r}>"

    async def alter(self, **settings: Unpack[GroupChanges]) -> GroupSettings:
        """Change settings of the group, in all topics that it reads; returns them all.

        All but `mode`, `ordering`, `durable`, `start`, `priority_window` and `starvation_after` can be changed. They
        hold for what is leased and nacked from now on; a partition that does not run now takes note when it does.
        Raises `GroupNotFound`, `ConfigurationError` with all problems of the settings.
        """
        name = arguments.changed_group(self.name)
        given = check_group(name, settings, self._session.mirror.settings_of_group(name))
        altered: GroupSettings = await self._session.ask_catalog(AlterGroup(name, given))
        return altered

    async def pause(self) -> None:
        """Hand no further message over to consumers of the group, until `resume`: also after a restart.

        It is the setting `paused`, so `alter` and `subscribe` take it too. When this has returned no partition leases
        anything to the group, and what consumers had fetched ahead was given back, without counting an attempt. `get`
        waits, or returns None after its timeout; iterating, `batches` and `work` wait. What consumers hold is not
        touched: handlers that run end, and messages can be settled and extended. Leases still run out, a nack's delay
        passes, and so does the time to live of messages; what expires or fails too often becomes a dead letter as
        usual. Pausing twice is pausing once.

        Raises `GroupNotFound`.
        """
        await self.alter(paused=True)

    async def resume(self) -> None:
        """Have a paused group go on: its consumers get messages at once. Raises `GroupNotFound`."""
        await self.alter(paused=False)

    def dead_letters(self, topic: str) -> KeptLetters:
        """The messages of a topic that the group has given up on: `Topic.dead_letters` of it. Raises `TopicNotFound`.

        What was forwarded to the group's `dead_letter_topic` is there: `Runtime.dead_letters`.
        """
        self._session.check_open()
        return KeptLetters(self._session, self._session.find(topic), self.name)

    async def describe(self) -> GroupDescription:
        """The group with its members, what each has in flight and since when, and where the group stands in each
        partition: lag, messages in flight, the oldest one.

        Raises `GroupNotFound`.
        """
        session = self._session
        groups = {
            each.name: each
            for each in await group_infos(await session.ask_catalog(ListGroups()), session.mirror)
        }
        group = groups.get(self.name)
        if group is None:
            raise no_group(self.name, groups)
        ports = [port for topic in group.topics for port in session.find(topic).ports]
        found = await session.partition_statistics(ports)
        holders = await holders_of(ports, found, group.group_id)
        oldest = [
            await oldest_unsettled(port, each, group.group_id)
            for port, each in zip(ports, found, strict=True)
        ]
        return described(with_holdings(group, holders, session.clock.wall_us()), found, oldest)

    async def seek(
        self, to: Start | Record, *, topic: str | None = None, partition: int | None = None
    ) -> dict[tuple[str, int], int]:
        """Have the group go on from elsewhere with the consumers that it has; returns offsets by (topic, partition).

        `to` is "beginning", "end", a zoned datetime (the first message appended then or later), a message or record, or
        an offset, for which `topic` and `partition` say of what unless the group reads one partition only. Without
        them it is sought everywhere. What lies before is settled then, and all that follows is delivered, again or for
        the first time. Leases that were given before are over: settling such a message raises `LeaseLost`.

        Raises `GroupNotFound`; `OffsetOutOfRange` for an offset that the partition does not have, and is not its next;
        `InvalidArgument`; and what keeps a partition from it: notes of the error name the others.
        """
        if isinstance(to, Record):
            topic, partition, to = to.topic, to.partition, to.offset
        place, problem = checked_start("to", to)
        if problem is not None:
            raise InvalidArgument(f"{problem}. Nothing was changed.")
        return await self._seek(place, topic, partition)

    async def reset(
        self, *, topic: str | None = None, partition: int | None = None
    ) -> dict[tuple[str, int], int]:
        """Have the group begin anew, where its setting `start` says; otherwise as `seek`."""
        return await self._seek(None, topic, partition)

    async def _seek(
        self, to: Start | None, topic: str | None, partition: int | None
    ) -> dict[tuple[str, int], int]:
        name = arguments.changed_group(self.name)
        word, index = arguments.part_of(name, topic, partition)
        sought: dict[tuple[str, int], int] = await self._session.ask_catalog(SeekGroup(name, to, word, index))
        return sought

    async def delete(self, *, drop_dead_letters: bool = False) -> None:
        """Forget the group: its place in every topic is lost.

        Raises `GroupNotFound`; `DeadLettersKept` while partitions keep dead letters of it, unless these may be dropped.
        """
        name = arguments.changed_group(self.name)
        await self._session.ask_catalog(DeleteGroup(name, check_drops(drop_dead_letters)))
