"""Delayed messages on the control socket, where all that is given is text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from callboard.log.errors import InvalidArgument
from callboard.log.limits import MIB
from callboard.log.plain import shown
from callboard.message import EPOCH, ScheduledReceipt
from callboard.publishing.delayed import DelayedMessage
from callboard.topic import Topic

PAGE_BYTES: Final = 8 * MIB
"""A page ends when its values are so large, looked at after each of its parts."""
PAGE_PART: Final = 16


async def page_behind(topic: Topic, after: str, limit: int) -> Sequence[DelayedMessage]:
    """The messages behind the partition and schedule id in `after`, as published; fewer than `limit` if they are large.

    Raises `InvalidArgument`.
    """
    last = _place(topic.name, after)
    found: list[DelayedMessage] = []
    size_bytes = 0
    while True:
        part = await topic.delayed().list(limit=min(PAGE_PART, limit - len(found)), after=last)
        found += part
        size_bytes += sum([len(each.value) for each in part])
        if not part or len(found) >= limit or size_bytes >= PAGE_BYTES:
            return found
        last = part[-1]


def _place(topic: str, after: str) -> ScheduledReceipt | DelayedMessage | None:
    """The message of which `after` has the partition and the id; None at the beginning."""
    numbers = parse_ids(after, "listed")
    if not numbers:
        return None
    if len(numbers) != 2:
        raise InvalidArgument(f"{shown(after)} is no partition with a schedule id. Nothing was listed.")
    return ScheduledReceipt(topic, numbers[0], None, schedule_id=numbers[1], due=EPOCH)


def parse_ids(text: str, done: str = "cancelled") -> list[int]:
    """Schedule ids with spaces between, before anything is `done`. Raises `InvalidArgument`."""
    found = text.split()
    for word in found:
        if not (word.isascii() and word.isdigit() and len(word) < 20):
            raise InvalidArgument(
                f"{shown(word, 40)} is no schedule id, a number from 0 on. Nothing was {done}."
            )
    return [int(word) for word in found]


def plain_delayed(message: DelayedMessage) -> dict[str, Any]:
    """A message that waits, as a map of plain values."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "schedule_id": message.schedule_id,
        "due": message.due.isoformat(),
        "value": message.value,
        "key": message.key,
        "headers": message.headers,
        "timestamp": None if message.timestamp is None else message.timestamp.isoformat(),
        "ttl": "never" if message.ttl == math.inf else message.ttl,
        "priority": message.priority,
    }
