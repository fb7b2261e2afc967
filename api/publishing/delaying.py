"""Publishing what is not due yet: checked as any message is, then stored beside its topic until it is due.

What of a batch is not delayed goes to its partitions directly, in the same call, as parts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.actors.catalog.commands import EnableDelays
from callboard.actors.partition.beside.delayed_records import DueTime, check_no_due, waiting_columns
from callboard.actors.partition.commands import PublishMany
from callboard.log.errors import CallboardError, InvalidArgument, TopicNotFound
from callboard.log.limits import HEADERS_COUNT_MAX, YEAR_MAX
from callboard.log.plain import shown
from callboard.message import Message, Receipt, Receipts, WaitingRange, check_delay, delayed_among, to_us
from callboard.publishing.columns import Part, batch_of, check_alone, column_of, of_message

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveTopic
    from callboard.publishing.publisher import Outcome, Publisher
    from callboard.session import Session

NO_IDS: Final = "a delayed message has a dedup_id, and the window of ids begins only when it is due"
NO_OFFSETS: Final = "a delayed message has an expected_offset, and its offset is decided when it is due"
DELIVER_AT_MOST: Final = datetime(YEAR_MAX, 1, 1, tzinfo=UTC)
DELIVER_AT_MOST_US: Final = to_us(DELIVER_AT_MOST, "deliver_at")
Column = Sequence[Any]


def has_delays(values: object) -> bool:
    """Whether a `Message` of a batch is delayed."""
    if type(values) is not list and type(values) is not tuple:
        return False
    if not any(issubclass(kind, Message) for kind in set(map(type, values))):
        return False
    return bool(delayed_among([value for value in values if isinstance(value, Message)]))


class DelayedPublisher:
    """Publishes delayed messages to one topic."""

    def __init__(self, session: Session, publisher: Publisher) -> None:
        self._session = session
        self._publisher = publisher

    async def publish(
        self,
        value: bytes | Message,
        given: Mapping[str, Any],
        partition: int | None,
        acks: str,
        delay: float | None,
        deliver_at: datetime | None,
    ) -> Receipt:
        """See `Topic.publish`; `given` are the attributes, also the key, that are not None."""
        if isinstance(value, Message):
            check_alone(given or None, delay, deliver_at)
            found = {
                name: getattr(value, name) for name in ("headers", "timestamp", "dedup_id", "ttl", "priority")
            }
            given = {name: item for name, item in found.items() if item is not None}
            if value.key is not None:
                given = {"key": value.key, **given}
            partition = partition if value.partition is None else value.partition
            if value.expected_offset is not None:
                raise InvalidArgument(f"{NO_OFFSETS}. Nothing was written. Leave one of the two out.")
            delay, deliver_at = value.delay, value.deliver_at
            value = value.value
        if "dedup_id" in given:
            raise InvalidArgument(f"{NO_IDS}. Nothing was written. Leave one of the two out.")
        others = {name: item for name, item in given.items() if name != "key"}
        self._publisher.check_one(value, given.get("key"), others)
        due = self._due(delay, deliver_at)
        columns = {name: (item,) for name, item in given.items()}
        return (await self._publish((value,), columns, partition, acks, (due,)))[0]

    async def publish_batch(
        self,
        values: Sequence[bytes | Message],
        given: Mapping[str, Column],
        partition: int | None,
        acks: str,
        delays: Column | None,
        deliver_ats: Column | None,
    ) -> Receipts:
        """See `Topic.publish_batch`; `given` are the columns of attributes, also the key."""
        values = batch_of(values)
        if has_delays(values):
            messages = [value if isinstance(value, Message) else Message(value) for value in values]
            if delays is not None or deliver_ats is not None:
                raise InvalidArgument(
                    "a batch holds Message objects and separate columns of their attributes. Nothing was written. Use"
                    " one form."
                )
            delays = [message.delay for message in messages]
            deliver_ats = [message.deliver_at for message in messages]
            values = [attrs.evolve(message, delay=None, deliver_at=None) for message in messages]
        count = len(values)
        delays = None if delays is None else column_of("delays", delays, count)
        deliver_ats = None if deliver_ats is None else column_of("deliver_ats", deliver_ats, count)
        if not count:
            return await self._publisher.publish_batch(values, None, given, partition, acks)
        rows = zip(delays or [None] * count, deliver_ats or [None] * count, strict=True)
        dues = [of_message(index, self._due, *row) for index, row in enumerate(rows)]
        return await self._publish(values, given, partition, acks, dues)

    def opened(
        self, value: bytes | Message, delay: float | None, deliver_at: datetime | None
    ) -> tuple[bytes | Message, DueTime | None]:
        """What of it is published with an ack, and when it is due."""
        if isinstance(value, Message):
            check_alone(delay, deliver_at)
            delay, deliver_at = value.delay, value.deliver_at
            value = attrs.evolve(value, delay=None, deliver_at=None)
        return value, self._due(delay, deliver_at)

    def _due(self, delay: float | None, deliver_at: datetime | None) -> DueTime | None:
        """When a message is due; None for one that is not delayed."""
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

    async def _publish(
        self,
        values: Sequence[bytes | Message],
        given: Mapping[str, Column],
        partition: int | None,
        acks: str,
        dues: Sequence[DueTime | None],
    ) -> Receipts:
        publisher = self._publisher
        waits = [due is not None for due in dues]
        level, parts = publisher.parted(
            values, given, partition, acks, by=NO_IDS, expected_by=NO_OFFSETS, waits=waits
        )
        for part in parts:
            if waits[part.chunk[0]]:
                _check_headers(part)
        live = await self.ready() if any(waits) else publisher.live
        sendings = []
        for part in parts:
            waiting = [due for due in map(dues.__getitem__, part.chunk) if due is not None]
            if waiting:
                stored = waiting_columns(part.columns, waiting, live.run)
                message = PublishMany(stored, level, stored.size_bytes)
                sendings.append((live.waiting[part.partition], part.chunk, message))
            else:
                sendings.append((live.ports[part.partition], part.chunk, part.message(level)))
        outcomes = [
            _waiting(outcome, dues, live.topic_id) if waits[part.chunk[0]] else outcome
            for part, outcome in zip(parts, await publisher.outcomes(sendings), strict=True)
        ]
        return publisher.summed_up(outcomes, [part.chunk for part in parts], len(values))

    async def ready(self) -> LiveTopic:
        """The topic, once it takes delayed messages."""
        live = self._publisher.live
        if not live.takes_delayed:
            found = await self._session.ask_catalog(EnableDelays(live.name))
            if found != live.topic_id:
                raise TopicNotFound(f"topic {live.name!r} was deleted. Nothing was written.", topic=live.name)
        return live


def _check_headers(part: Part) -> None:
    """Raise `InvalidArgument` where there is no room for the header that says when a message is due, or another of its
    name.
    """
    if part.columns.header_ends is not None:
        for index, headers in zip(part.chunk, part.columns.header_list(), strict=True):
            if len(headers) >= HEADERS_COUNT_MAX:
                raise InvalidArgument(
                    f"message {index} has {len(headers)} headers, and a delayed message may have"
                    f" {HEADERS_COUNT_MAX - 1}. Nothing was written.",
                    index=index,
                )
            check_no_due(headers, index)


def _waiting(outcome: Outcome, dues: Sequence[DueTime | None], topic_id: str) -> Outcome:
    """What came of a part that waits: it was given ids, and has no offsets yet."""
    if isinstance(outcome, CallboardError):
        return outcome
    return [
        WaitingRange(
            part.partition,
            None,
            part.indexes,
            first_id=part.first_offset or 0,
            dues_us=[due.due_us for due in map(dues.__getitem__, part.indexes) if due is not None],
            topic_id=topic_id,
        )
        for part in outcome
    ]
