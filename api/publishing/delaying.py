"""Publishing what is not due yet: checked as any message is, then stored beside its topic until it is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from callboard.actors.catalog.commands import EnableDelays
from callboard.actors.delays.stored import Due, waiting_columns
from callboard.actors.partition.commands import PublishMany
from callboard.log.errors import InvalidArgument, TopicNotFound
from callboard.log.limits import BATCH_RECORDS_MAX, HEADERS_COUNT_MAX
from callboard.message import Message, Receipt, ScheduledReceipts, check_delay, to_us
from callboard.publishing.columns import check_batch, check_column, of_message

if TYPE_CHECKING:
    from datetime import datetime

    from callboard.actors.catalog.directory import LiveTopic
    from callboard.publishing.publisher import Publisher
    from callboard.session import Session

NO_IDS: Final = "a delayed message has a dedup_id, and the window of ids begins only when it is due"
Column = Sequence[Any]


def has_delays(values: object) -> bool:
    """Whether a batch begins with a `Message`, and one of it is delayed."""
    return (
        isinstance(values, Sequence)
        and len(values) > 0
        and isinstance(values[0], Message)
        and any(isinstance(value, Message) and value.is_delayed for value in values)
    )


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
            if given or delay is not None or deliver_at is not None:
                raise InvalidArgument(
                    "publish was given a Message and attributes beside it. Nothing was written. Put them into the"
                    " Message."
                )
            found = {
                name: getattr(value, name) for name in ("headers", "timestamp", "dedup_id", "ttl", "priority")
            }
            given = {name: item for name, item in found.items() if item is not None}
            if value.key is not None:
                given = {"key": value.key, **given}
            partition = partition if value.partition is None else value.partition
            delay, deliver_at = value.delay, value.deliver_at
            value = value.value
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
    ) -> ScheduledReceipts:
        """See `Topic.publish_batch`; `given` are the columns of attributes, also the key."""
        check_batch(values)
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
        for plural, column in (("delays", delays), ("deliver_ats", deliver_ats)):
            if column is not None:
                check_column(plural, column, len(values))
        count = len(values)
        if not count:
            receipts = await self._publisher.publish_batch(values, None, given, partition, acks)
            return ScheduledReceipts(receipts, ())
        if count > BATCH_RECORDS_MAX:
            raise InvalidArgument(
                f"a batch of {count} messages, and {BATCH_RECORDS_MAX} are allowed. Nothing was written. Split it."
            )
        rows = zip(delays or [None] * count, deliver_ats or [None] * count, strict=True)
        dues = [of_message(index, self._due, *row) for index, row in enumerate(rows)]
        return await self._publish(values, given, partition, acks, dues)

    def _due(self, delay: float | None, deliver_at: datetime | None) -> Due:
        """When a message is due; one without either is due at once."""
        if delay is not None and deliver_at is not None:
            raise InvalidArgument(
                "a message has a delay and deliver_at, and either says when it is due. Nothing was written. Give one."
            )
        if deliver_at is not None:
            return Due(to_us(deliver_at, "deliver_at"))
        clock = self._session.clock
        delay_us = round(check_delay(0 if delay is None else delay) * 1e6)
        deadline_us = round(clock.monotonic() * 1e6) + delay_us
        return Due(clock.wall_us() + delay_us, deadline_us, delay_us=delay_us)

    async def _publish(
        self,
        values: Sequence[bytes | Message],
        given: Mapping[str, Column],
        partition: int | None,
        acks: str,
        dues: Sequence[Due],
    ) -> ScheduledReceipts:
        publisher = self._publisher
        level, parts = publisher.parted(values, given, partition, acks, by=NO_IDS)
        for _, chunk, columns in parts:
            if columns.header_ends is not None:
                for index, headers in zip(chunk, columns.header_list(), strict=True):
                    if len(headers) >= HEADERS_COUNT_MAX:
                        raise InvalidArgument(
                            f"message {index} has {len(headers)} headers, and a delayed message may have"
                            f" {HEADERS_COUNT_MAX - 1}. Nothing was written.",
                            index=index,
                        )
        live = await self._ready()
        sendings = []
        for place, chunk, columns in parts:
            stored = waiting_columns(columns, [dues[index] for index in chunk], live.run)
            message = PublishMany(stored, level, stored.size_bytes)
            sendings.append((live.waiting[place], chunk, message))
        receipts = await publisher.send_all(sendings, len(values))
        return ScheduledReceipts(receipts, [due.due_us for due in dues])

    async def _ready(self) -> LiveTopic:
        """The topic, once it takes delayed messages."""
        live = self._publisher.live
        if not live.takes_delayed:
            found = await self._session.ask_catalog(EnableDelays(live.name))
            if found is not live:
                raise TopicNotFound(f"topic {live.name!r} was deleted. Nothing was written.", topic=live.name)
        return live
