"""Groups as a runtime reports them: what their coordinators and partitions answer, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.groups.commands import ListMembers, MembersInfo
from callboard.actors.partition.commands import (
    GroupStatistics,
    Holder,
    ListHolders,
    PartitionStatistics,
    Read,
)
from callboard.asking import ask_again
from callboard.log.errors import CallboardError, RuntimeClosed
from callboard.message import from_us
from callboard.reports.figures import (
    DESCRIBE_TIMEOUT_S,
    ConsumerInfo,
    GroupDescription,
    GroupInfo,
    GroupPlace,
)

if TYPE_CHECKING:
    from callboard.actors.catalog.commands import GroupRecord
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import ActorRef
    from callboard.actors.mirror import Mirror

UNKNOWN: Final = GroupStatistics(
    group_id=0,
    durable=False,
    floor=0,
    next_offset=0,
    ready=0,
    leased=0,
    pending=0,
    redelivered=0,
    expired=0,
    waiting_consumers=0,
)
"""Stands for what a partition does not answer."""


async def group_infos(records: Sequence[GroupRecord], mirror: Mirror) -> tuple[GroupInfo, ...]:
    """Groups with their members, by name."""
    described: dict[int, MembersInfo] = {}

    async def describe(group_id: int, coordinator: ActorRef[Any]) -> None:
        with suppress(RuntimeClosed):  # the group has ended, or the runtime closes
            described[group_id] = await ask_again(coordinator, ListMembers(), "describing groups")

    async with trio.open_nursery() as nursery:
        for record in records:
            if (group := mirror.group(record.group_id)) is not None:
                nursery.start_soon(describe, record.group_id, group.ref)
    infos = []
    for record in sorted(records, key=lambda group: group.name):
        lives = [live for live in map(mirror.by_id, record.topic_ids) if live is not None]
        members = described.get(record.group_id, MembersInfo())
        consumers = tuple(
            ConsumerInfo(
                consumer=each.consumer,
                name=each.name,
                generation=each.generation,
                topics=each.topics,
                assigned=each.assigned,
            )
            for each in members.members
        )
        pattern = record.pattern
        infos.append(
            GroupInfo(
                name=record.name,
                group_id=record.group_id,
                topics=tuple(live.name for live in lives),
                members=len(members.members),
                settings=record.settings,
                consumers=consumers,
                pattern=None if pattern is None else pattern.words,
                dead_letters=pattern is not None and pattern.dead_letters,
                rebalances=members.rebalances,
                forced_handovers=members.forced_handovers,
                stalled_members=members.stalled_members,
            )
        )
    return tuple(infos)


async def oldest_unsettled(
    port: PartitionPort, partition: PartitionStatistics, group_id: int
) -> datetime | None:
    """When the first message that a group has not settled was appended."""
    for stands in partition.groups:
        if stands.group_id == group_id and stands.pending:
            with suppress(CallboardError), trio.move_on_after(DESCRIBE_TIMEOUT_S):
                answer = await port.ref.ask(Read(stands.floor, 1, 1))
                return None if answer is None or not answer[0] else from_us(answer[0][0].append_time(0))
    return None


async def holders_of(
    ports: Sequence[PartitionPort], partitions: Sequence[PartitionStatistics], group_id: int
) -> list[Holder]:
    """What consumers of a group have leased, in each of the partitions that answers."""
    holders: list[Holder] = []

    async def ask(port: PartitionPort) -> None:
        with suppress(CallboardError):
            holders.extend(await port.ref.ask(ListHolders(group_id)))

    with trio.move_on_after(DESCRIBE_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            for port, partition in zip(ports, partitions, strict=True):
                if any(stands.group_id == group_id and stands.leased for stands in partition.groups):
                    nursery.start_soon(ask, port)
    return holders


def with_holdings(group: GroupInfo, holders: Iterable[Holder], now_us: int) -> GroupInfo:
    """A group whose members report what they have leased."""
    leased: Counter[int] = Counter()
    ages: dict[int, float] = {}
    for consumer, count, age_s in holders:
        leased[consumer] += count
        ages[consumer] = max(age_s, ages.get(consumer, 0.0))
    consumers = tuple(
        attrs.evolve(
            each,
            in_flight=leased[each.consumer],
            oldest_leased=from_us(now_us - round(ages[each.consumer] * 1e6))
            if each.consumer in ages
            else None,
        )
        for each in group.consumers
    )
    return attrs.evolve(group, consumers=consumers)


def described(
    group: GroupInfo, partitions: Sequence[PartitionStatistics], oldest: Sequence[datetime | None]
) -> GroupDescription:
    """Where a group stands in these partitions."""
    places = []
    for partition, appended in zip(partitions, oldest, strict=True):
        stands = next((each for each in partition.groups if each.group_id == group.group_id), UNKNOWN)
        places.append(
            GroupPlace(
                topic=partition.topic,
                partition=partition.partition,
                state=partition.state,
                floor=stands.floor,
                end=partition.visible_end,
                lag=stands.pending,
                in_flight=stands.leased,
                redelivered=stands.redelivered,
                dead=stands.dead,
                owner=stands.owner,
                oldest_unsettled=appended,
            )
        )
    return GroupDescription(group, tuple(places))
