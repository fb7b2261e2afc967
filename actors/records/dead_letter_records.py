"""What a dead letter becomes in the topic it is forwarded to, and what keeps it from coming there twice. Pure.

The message is forwarded as it was published: value, key, headers, its own time. Headers of ours (`OURS`) say where it
is from and why it is dead. It is published by a source (`producers`): a producer of the origin partition, group and
numbering, with the number of the dead letter as its sequence. Numbers rise in the order of failure, so the partition
that takes them keeps that order, and knows what it has already however often it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs

from callboard.actors.delivery.dead_letters import StoredLetter
from callboard.actors.source_ids import FOR_GROUP, SOURCE_EPOCH, of_dead_letters
from callboard.log.format.columns import Columns

TOPIC: Final = "callboard-topic"
PARTITION: Final = "callboard-partition"
OFFSET: Final = "callboard-offset"
GROUP: Final = "callboard-group"
ATTEMPTS: Final = "callboard-attempts"
FIRST_FAILED_AT: Final = "callboard-first-failed-at"
FAILED_AT: Final = "callboard-failed-at"
CONSUMER: Final = "callboard-consumer"
CONSUMERS: Final = "callboard-consumers"
"""All that it failed in, the first ones if they are many; no name has a space."""
REASON: Final = "callboard-reason"
NUMBER: Final = "callboard-number"
LOST: Final = "callboard-lost"
"""There when the message itself was gone: dropped by retention, or damaged."""
OURS: Final = frozenset(
    {
        TOPIC,
        PARTITION,
        OFFSET,
        GROUP,
        ATTEMPTS,
        FIRST_FAILED_AT,
        FAILED_AT,
        CONSUMER,
        CONSUMERS,
        REASON,
        NUMBER,
        LOST,
        FOR_GROUP,
    }
)
"""What forwarding and redriving add. Those of an earlier failure are not the message's own."""


@attrs.frozen
class Origin:
    """Where dead letters come from."""

    topic: str
    topic_id: str
    partition: int
    group: str
    group_id: int

    def producer_id(self, numbering: int) -> int:
        """Who publishes those of a numbering."""
        return of_dead_letters(self.topic_id, self.partition, self.group_id, numbering)


@attrs.frozen
class Found:
    """A dead letter with its record: the columns and the index of it, or None when it is gone."""

    letter: StoredLetter
    consumer: str | None
    """The name of the consumer that failed, else its id; None when neither is known."""
    columns: Columns | None = None
    index: int = 0


def forwarded(origin: Origin, found: Sequence[Found], wall_offset_s: float) -> Columns:
    """The batch to publish; `wall_offset_s` is wall time minus monotonic time."""
    parts = [(each.columns, each.index) for each in found]
    batch = Columns.build(
        [b"" if columns is None else columns.value(index) for columns, index in parts],
        [None if columns is None else columns.key(index) for columns, index in parts],
        [headers_of(origin, each, wall_offset_s) for each in found],
        [None if columns is None else time_of(columns, index) for columns, index in parts],
        priorities=[0 if columns is None else columns.priority(index) for columns, index in parts],
        producers=[
            (1, origin.producer_id(each.letter.numbering), SOURCE_EPOCH, each.letter.number) for each in found
        ],
    )
    return batch


def time_of(columns: Columns, index: int) -> int:
    """The event's own time, or when it was appended first."""
    event_us = columns.event_time(index)
    return columns.append_time(index) if event_us is None else event_us


def headers_of(origin: Origin, found: Found, wall_offset_s: float) -> dict[str, bytes]:
    """The message's own headers, and ours."""
    letter, columns = found.letter, found.columns
    own = {} if columns is None else columns.headers(found.index)
    first = letter.first_failed_at
    ours: dict[str, object] = {
        TOPIC: origin.topic,
        PARTITION: origin.partition,
        OFFSET: letter.offset,
        GROUP: origin.group,
        NUMBER: letter.number,
        ATTEMPTS: letter.attempts,
        FIRST_FAILED_AT: None if first is None else _instant(first + wall_offset_s),
        FAILED_AT: _instant(letter.failed_at + wall_offset_s),
        CONSUMER: found.consumer,
        CONSUMERS: " ".join(letter.consumers) or None,
        REASON: letter.reason,
        LOST: "1" if columns is None else None,
    }
    told = {name: str(value).encode() for name, value in ours.items() if value is not None}
    return {**own_headers(own), **told}


def own_headers(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those that a message was published with, be they named like ours."""
    return {name: value for name, value in headers.items() if name not in OURS}


def _instant(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="microseconds")
