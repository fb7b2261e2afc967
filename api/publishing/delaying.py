"""Delays: when delayed messages are due, and where they wait until then, beside their topic.

A delayed message is checked and cut into parts as any other is, and sent by the same sender. `put_off` is all that is
different: it turns parts that wait into parts for the partitions beside the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import TYPE_CHECKING, Final

from callboard.actors.catalog.commands import EnableDelays
from callboard.actors.records.delayed_records import (
    DueTime,
    check_no_due,
    waiting_columns,
)
from callboard.log.errors import InvalidArgument, TopicNotFound
from callboard.log.limits import HEADERS_COUNT_MAX, YEAR_MAX
from callboard.log.plain import shown
from callboard.message import check_delay, to_us
from callboard.publishing.allowed import refuse_ids_and_offsets
from callboard.publishing.columns import of_message
from callboard.publishing.parts import Part

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic
    from callboard.publishing.columns import Unpacked
    from callboard.session import Session

NO_IDS: Final = "a delayed message has a dedup_id, and the window of ids begins only when it is due"
NO_OFFSETS: Final = "a delayed message has an expected_offset, and its offset is decided when it is due"
DELIVER_AT_MOST: Final = datetime(YEAR_MAX, 1, 1, tzinfo=UTC)
DELIVER_AT_MOST_US: Final = to_us(DELIVER_AT_MOST, "deliver_at")


class Delays:
    """The delays of one topic."""

    def __init__(self, session: Session, live: MirroredTopic) -> None:
        self._session = session
        self._live = live

    def due(self, delay: float | None, deliver_at: datetime | None) -> DueTime | None:
        """When a message is due; None for one that is not delayed. Raises `InvalidArgument`."""
        if delay is None and deliver_at is None:
            return None
        if delay is not None and deliver_at is not None:
            raise InvalidArgument(
                "a message has a delay and deliver_at, and either says when it is due. Nothing was written. Give one."
            )
        if deliver_at is not None:
            due_us = to_us(deliver_at, "deliver_at")
            if due_us > DELIVER_AT_MOST_US:
                raise InvalidArgument(
                    f"deliver_at is {shown(deliver_at)}, later than the year {DELIVER_AT_MOST.year}. Nothing was"
                    " written."
                )
            return DueTime(due_us)
        clock = self._session.clock
        delay_us = round(check_delay(delay) * 1e6)
        deadline_us = round(clock.monotonic() * 1e6) + delay_us
        return DueTime(clock.wall_us() + delay_us, deadline_us, delay_us=delay_us)

    def dues(self, batch: Unpacked) -> Sequence[DueTime | None] | None:
        """When each message of a batch is due; None when none of them is delayed. Raises `InvalidArgument`."""
        if not batch.has_delays:
            return None
        count = len(batch.values)
        rows = zip(batch.delays or repeat(None, count), batch.deliver_ats or repeat(None, count), strict=True)
        dues = [of_message(index, self.due, *row) for index, row in enumerate(rows)]
        waits = [due is not None for due in dues]
        if not any(waits):
            return None
        refuse_ids_and_offsets(batch, NO_IDS, NO_OFFSETS, waits)
        return dues

    async def put_off(self, parts: Sequence[Part], dues: Sequence[DueTime | None]) -> list[Part]:
        """The parts, of which those that wait go to where they wait; `dues` are by the index of a message."""
        for part in parts:
            if dues[part.indexes[0]] is not None:
                _check_headers(part)
        live = await self.ready()
        found = []
        for part in parts:
            waiting = [due for due in map(dues.__getitem__, part.indexes) if due is not None]
            if waiting:
                stored = waiting_columns(part.columns, waiting, live.stands.run)
                port = live.waiting[part.port.index]
                part = Part(port, part.indexes, stored, stored.size_bytes, dues=waiting)
            found.append(part)
        return found

    async def ready(self) -> MirroredTopic:
        """The topic, once it takes delayed messages."""
        live = self._live
        if not live.stands.takes_delayed:
            found = await self._session.ask_catalog(EnableDelays(live.name))
            if found != live.topic_id:
                raise TopicNotFound(f"topic {live.name!r} was deleted. Nothing was written.", topic=live.name)
        return live


def _check_headers(part: Part) -> None:
    """Raise `InvalidArgument` where there is no room for the header that says when a message is due, or another of its
    name.
    """
    if part.columns.header_ends is not None:
        for index, headers in zip(part.indexes, part.columns.header_list(), strict=True):
            if len(headers) >= HEADERS_COUNT_MAX:
                raise InvalidArgument(
                    f"message {index} has {len(headers)} headers, and a delayed message may have"
                    f" {HEADERS_COUNT_MAX - 1}. Nothing was written.",
                    index=index,
                )
            check_no_due(headers, index)
