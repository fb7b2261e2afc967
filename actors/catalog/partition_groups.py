"""What partitions know of groups: the catalog sees to it that they know those that read them, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.actors.notices import OperationFailed
from callboard.actors.partition import commands as c
from callboard.actors.partition.spec import ReadingGroups
from callboard.log.errors import ActorCrashed, ActorStopped, CallboardError, DeadLettersKept, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callboard.actors.catalog.commands import GroupRecord
    from callboard.actors.catalog.decisions import Decisions
    from callboard.actors.catalog.directory import Directory, LiveTopic
    from callboard.actors.clients.calls import PartitionCalls
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import Context


FAILED: Final = frozenset({"failed"})
"""One that is stuck answers all the same: it needs no disk to count."""
COUNT_TIMEOUT_S: Final = 5.0
"""A group can be deleted when a partition does not answer in this time what it keeps of it."""
PLACES_TOLD: Final = 5


class PartitionGroups:
    """Opens and closes groups in partitions for the catalog, so that each partition knows the groups that read it."""

    def __init__(
        self, context: Context[Any], directory: Directory, decisions: Decisions, calls: PartitionCalls
    ) -> None:
        self._context = context
        self._directory = directory
        self._decisions = decisions
        self._calls = calls

    def reading(self, topic_id: str) -> ReadingGroups:
        """The groups that read a topic which is to be launched."""
        groups = [each for each in self._decisions.state.groups.values() if topic_id in each.topic_ids]
        openings = [self._directory.news(each).opening(each, topic_id) for each in groups]
        readers = tuple([each for each in openings if each.durable or each.is_implied])
        keep_expired = [each.group_id for each in groups if each.settings.dead_letter_expired]
        return ReadingGroups(readers, frozenset(keep_expired))

    async def check_dead_letters(self, record: GroupRecord) -> None:
        """Raise `DeadLettersKept` if partitions keep dead letters of the group."""
        if kept := await self.kept_letters(record):
            raise _dead_letters_kept(record, kept)

    async def kept_letters(self, record: GroupRecord) -> dict[str, int]:
        """The dead letters that partitions keep of the group, by their labels, as far as they answer in time."""
        kept: dict[str, int] = {}
        with trio.move_on_after(COUNT_TIMEOUT_S):
            await _count_kept(self._calls, self._directory.ports(record), record.group_id, kept)
        return kept

    async def close(self, record: GroupRecord) -> None:
        """Have every partition of its topics forget the group."""
        async with trio.open_nursery() as nursery:
            for port in self._directory.ports(record):
                nursery.start_soon(self.close_at, port, record.group_id, record.name)

    async def close_at(self, port: PartitionPort, group_id: int, name: str = "") -> None:
        """Have a partition forget a group. One that cannot do it now does it at the next start."""
        while True:
            try:
                await port.ref.ask(c.CloseGroup(group_id, name))
            except ActorCrashed:
                continue
            except ActorStopped:
                return  # its topic was deleted, or the runtime closes: the next opening sees to it
            except CallboardError as error:
                subject = f"forgetting group {group_id} at {port.label}"
                self._context.emit(OperationFailed(subject, str(error)))
            return

    async def close_forgotten(self, live: LiveTopic) -> None:
        """Delivery states of groups that do not read the topic any more would hold retention back for ever."""
        async with trio.open_nursery() as nursery:
            for port in live.ports:
                nursery.start_soon(self._close_forgotten_at, port)

    async def _close_forgotten_at(self, port: PartitionPort) -> None:
        """Once the partition has recovered."""
        try:
            statistics = await port.ref.ask(c.Describe())
        except CallboardError:
            return
        for group in statistics.groups:
            record = self._decisions.state.groups.get(group.group_id)
            is_read = record is not None and (record.pattern is None or port.topic_id in record.topic_ids)
            if not is_read:
                await self.close_at(port, group.group_id)


def _dead_letters_kept(record: GroupRecord, kept: dict[str, int]) -> DeadLettersKept:
    """The error for a group that is not deleted, with what may be done."""
    name, count, topic = record.name, sum(kept.values()), record.settings.dead_letter_topic
    places = ", ".join([f"{number:,} in {label}" for label, number in sorted(kept.items())][:PLACES_TOLD])
    more = f" and {len(kept) - PLACES_TOLD:,} other partitions" if len(kept) > PLACES_TOLD else ""
    if topic is None:
        remedy = (
            f"Look at them with `topic.dead_letters({name!r})`, or have them forwarded to a topic:"
            f" runtime.group({name!r}).alter(dead_letter_topic=...)."
        )
    else:
        remedy = f"They are forwarded to {topic!r}: wait until they are there; `stats()` tells what holds them back."
    return DeadLettersKept(
        f"group {name!r} keeps {count:,} dead letter{'' if count == 1 else 's'} that would go with it: {places}{more}."
        f" Nothing was deleted. {remedy} To delete the group with them:"
        f" runtime.group({name!r}).delete(drop_dead_letters=True).",
        group=name,
        dead_letters=count,
    )


async def _count_kept(
    calls: PartitionCalls, ports: Iterable[PartitionPort], group_id: int, found: dict[str, int]
) -> None:
    """Note in `found`, by the label of each partition that keeps dead letters of the group, how many.

    One that has failed is passed: if the group is deleted, it tells what it drops when it forgets the group.
    """

    async def count_at(port: PartitionPort) -> None:
        try:
            count = await calls.ask(port, c.CountDead(group_id), unless=FAILED)
        except InternalError:
            raise
        except CallboardError:
            return  # it has failed, or its topic is deleted
        if count:
            found[port.label] = count

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(count_at, port)
