"""Seeking a group elsewhere: which partitions, which offsets, and what is reported when not all of them could."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import trio

from callboard.actors.catalog.commands import GroupRecord, SeekGroup
from callboard.actors.catalog.group_news import GroupNews
from callboard.actors.clients.calls import PartitionCalls
from callboard.actors.clients.port import PartitionPort
from callboard.actors.partition import commands as c
from callboard.actors.settings import Start
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.plain import shown

Places = dict[tuple[str, int], int]
"""Offsets by topic and partition."""


async def seek_group(
    calls: PartitionCalls,
    group: GroupRecord,
    news: GroupNews,
    ports: Sequence[PartitionPort],
    to: Start | None,
) -> Places:
    """Have the group go on from `to` in these partitions, with None from where it began in each.

    Raises what keeps the first of them from it.
    """
    if to is None and isinstance(group.settings.start, int) and group.pattern is None:
        to = group.settings.start
    if isinstance(to, int) and len(ports) != 1:
        raise InvalidArgument(
            f"group {group.name!r} reads {len(ports)} partitions there, and {to} is an offset of one. Nothing was"
            " changed. Say which topic and partition are meant (in commands: --topic and --partition), or seek to a"
            " time."
        )
    places: Places = {}
    failed: list[tuple[PartitionPort, CallboardError]] = []

    async def seek(port: PartitionPort) -> None:
        try:
            opening = news.opening(group, port.topic_id)
            await calls.ask(port, opening)  # a crash may have left it out
            offset, takes_nearest = opening.start if to is None else to, True
            if isinstance(offset, datetime):
                offset = await calls.ask(port, c.OffsetAt(round(offset.timestamp() * 1e6)))
            elif isinstance(offset, str):
                found: c.PartitionStatistics = await calls.ask(port, c.Describe())
                offset = found.start_offset if offset == "beginning" else found.visible_end
            else:
                takes_nearest = to is None
            sought = c.SeekOffset(group.group_id, offset, takes_nearest)
            places[port.topic, port.index] = await calls.ask(port, sought)
        except CallboardError as error:
            failed.append((port, error))

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(seek, port)
    if failed:
        for port, other in failed[1:]:
            failed[0][1].add_note(f"nor could {port.label}: {other}")
        if places:
            done = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(places))
            failed[0][1].add_note(f"these were sought: {done}")
        raise failed[0][1]
    return dict(sorted(places.items()))


def sought_words(message: SeekGroup, topics: Sequence[str]) -> str:
    """What a group that reads `topics` was to seek in, and does not read."""
    names = topics if message.topic is None else [message.topic]
    topic = (
        "topic"
        if not names
        else f"topic {shown(names[0])}"
        if len(names) == 1
        else f"of its {len(names)} topics"
    )
    if message.partition is None:
        return topic
    return f"partition {shown(message.partition)} {topic if topic.startswith('of') else f'of {topic}'}"
