"""What `callboard publish` feeds to a topic, from arguments or lines of standard input, and what becomes of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs

from callboard.actors.partition.commands import Acks
from callboard.cli.answers import CommandAnswer
from callboard.cli.interruption import finished
from callboard.cli.messages import FIELDS, message_from_json
from callboard.cli.output import Advance, counted, say
from callboard.cli.streams import LineReader, is_interactive
from callboard.log.errors import CallboardError, InvalidArgument, MessageTooLarge
from callboard.log.limits import MESSAGE_BYTES_MAX
from callboard.message import Message, Receipt, ScheduledReceipt, check_headers, check_key
from callboard.topic import Topic

BATCH_RECORDS: Final = 1000
FINISH_S: Final = 5.0
"""How long an interrupted command waits for the batch that is under way."""
OF_BATCH: Final = re.compile(r"^message \d+( of the batch)?:? ")
"""How an error names a message; its line says that better."""
JSON_LINE_BYTES_MAX: Final = 4 * MESSAGE_BYTES_MAX
"""Limit of a JSON line: escapes and base64 make it longer than its message."""
DELAYED_SHOWN_MAX: Final = 10
"""Delayed messages that get a line each, at most."""
DELAYED_TOLD_MAX: Final = 10_000
"""Delayed messages that are listed with --json, at most."""
PASSED_OVER: Final = frozenset({"topic", "partition", "offset", "append_time", "attempt"})
"""The other fields that `consume --json` prints; they are ignored, so that its output can be published again."""

Begun = tuple[LineReader, list[bytes]]
"""Standard input, and what was read of it already."""


@attrs.define
class Published:
    """What has become of the messages that a command publishes to a topic."""

    topic: str
    stored: Counter[int] = attrs.Factory(Counter)
    """How many are stored, by partition."""
    delayed: int = 0
    first_delayed: list[ScheduledReceipt] = attrs.Factory(list)
    """The first of those that wait, DELAYED_TOLD_MAX at most."""
    duplicate: Receipt | None = None
    """Where the one VALUE is that was stored before, under the same id."""
    duplicates: int = 0
    """Lines that published nothing: messages with their ids are stored."""
    in_doubt: int = 0
    """Messages that may be stored: the command was interrupted, and did not hear of them in time."""

    @property
    def has_any(self) -> bool:
        """Whether any message is stored, waits, or may be stored."""
        return bool(self.stored or self.delayed or self.in_doubt)

    def note_delayed(self, receipt: ScheduledReceipt) -> None:
        """Another one waits."""
        self.delayed += 1
        if len(self.first_delayed) < DELAYED_TOLD_MAX:
            self.first_delayed.append(receipt)

    def answer(self) -> CommandAnswer:
        """What the command answers."""
        document: dict[str, Any] = {
            "topic": self.topic,
            "published": self.stored.total(),
            "partitions": self.stored,
        }
        if self.delayed:
            document |= {
                "waiting": self.delayed,
                "scheduled": [_scheduled(one) for one in self.first_delayed],
            }
        if self.duplicate is not None:
            document["duplicate"] = {"partition": self.duplicate.partition, "offset": self.duplicate.offset}
        if self.duplicates:
            document["duplicates"] = self.duplicates
        if self.in_doubt:
            document["in_doubt"] = self.in_doubt
        return CommandAnswer(document, said=self._lines())

    def _lines(self) -> Iterator[str]:
        topic = self.topic
        for one in self.first_delayed[:DELAYED_SHOWN_MAX]:
            yield (
                f"a message waits for {topic} in partition {one.partition} with id {one.schedule_id}: it is due"
                f" {one.due.isoformat(timespec='seconds')}"
            )
        more = self.delayed - min(len(self.first_delayed), DELAYED_SHOWN_MAX)
        if more:
            what = counted(more, "other message")
            yield f"{what} {'waits' if more == 1 else 'wait'} for {topic}: see `callboard delayed list {topic}`"
        if self.duplicate is not None:
            yield (
                f"nothing was published: {topic} has a message with this id at offset {self.duplicate.offset} of"
                f" partition {self.duplicate.partition}"
            )
        elif self.stored or not self.delayed:
            counts = ", ".join(
                f"{count:,} in partition {index}" for index, count in sorted(self.stored.items())
            )
            doubt = f"; {self.in_doubt:,} more may be stored" if self.in_doubt else ""
            if self.duplicates:
                doubt += f"; {self.duplicates:,} more were there before"
            what = counted(self.stored.total(), "message")
            yield f"published {what} to {topic}{': ' if counts else ''}{counts}{doubt}"


def _scheduled(one: ScheduledReceipt) -> dict[str, Any]:
    """What cancels it, and when it is due."""
    return {"partition": one.partition, "schedule_id": one.schedule_id, "due": one.due.isoformat()}


@attrs.frozen
class Feed:
    """Publishes batches, and counts what is stored."""

    topic: Topic
    partition: int | None
    acks: Acks
    published: Published
    advance: Advance

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish one batch, if there is anything in it. A command that is interrupted hears of its batch first."""
        self.published.in_doubt = len(messages)
        await finished(partial(self._publish, messages), FINISH_S)

    async def _publish(self, messages: Sequence[Message]) -> None:
        try:
            await self._publish_batch(messages)
        except CallboardError as error:
            if not getattr(error, "indefinite", False):
                self.published.in_doubt = 0
            raise
        self.published.in_doubt = 0

    async def _publish_batch(self, messages: Sequence[Message]) -> None:
        is_delayed = any(message.is_delayed for message in messages)
        may_repeat = not is_delayed and any(message.dedup_id is not None for message in messages)
        receipts = await self.topic.publish_batch(messages, partition=self.partition, acks=self.acks)
        if may_repeat:
            for receipt in receipts:
                if receipt.duplicate:
                    self.published.duplicates += 1
                else:
                    self._count(receipt.partition, 1)
            return
        if is_delayed:
            for message, receipt in zip(messages, receipts, strict=True):
                if message.is_delayed and isinstance(receipt, ScheduledReceipt):
                    self.published.note_delayed(receipt)
                else:
                    self._count(receipt.partition, 1)
            return
        for partition, _, count in receipts.ranges:
            self._count(partition, count)

    async def publish_single(self, message: Message) -> None:
        """Publish one message that may be a duplicate, or refused for its offset."""
        receipt = await self.topic.publish(message, partition=self.partition, acks=self.acks)
        if receipt.duplicate:
            self.published.duplicate = receipt
        else:
            self._count(receipt.partition, 1)

    def _count(self, partition: int, count: int) -> None:
        self.published.stored[partition] += count
        total = self.published.stored.total()
        self.advance(f"{total:,} messages", total, None)


async def first_lines(check: Callable[[Message, str], None], common: Message) -> Begun:
    """The first lines for a topic that is to be created. Raises `InvalidArgument` when it would not take them."""
    reader = LineReader(line_bytes_max=JSON_LINE_BYTES_MAX)
    lines = await reader.next_lines(BATCH_RECORDS)
    for number, line in enumerate(lines, 1):
        try:
            message = _parsed(line, common)
        except (ValueError, TypeError, RecursionError):
            break  # reported in its turn
        check(message, f"line {number} of standard input")
    return reader, lines


async def publish_lines(feed: Feed, common: Message, *, json_lines: bool, begun: Begun | None = None) -> None:
    """Publish the lines of standard input, batch by batch, up to the first that is refused; that is raised."""
    if is_interactive():
        say("Publishing what you type, a message per line. End with Ctrl-D.")
    limit_bytes = feed.topic.settings.max_message_bytes
    if begun is None:
        reader = LineReader(line_bytes_max=JSON_LINE_BYTES_MAX if json_lines else limit_bytes)
        lines = await reader.next_lines(BATCH_RECORDS)
    else:
        reader, lines = begun
    number = 1
    while lines:
        messages: list[Message] = []
        try:
            for line in lines:
                message = attrs.evolve(common, value=line)
                if json_lines:
                    message = _parsed(line, common)
                messages.append(_checked(message, limit_bytes))
        except (ValueError, TypeError, RecursionError) as error:
            await _publish_checked(feed, messages, number)
            raise _refused(number + len(messages), error) from error
        await _publish_checked(feed, messages, number)
        number += len(messages)
        lines = await reader.next_lines(BATCH_RECORDS)


async def _publish_checked(feed: Feed, messages: Sequence[Message], number: int) -> None:
    """Publish the lines from `number` on, up to the first that the topic's settings do not allow; that is raised."""
    try:
        await feed.publish(messages)
    except (InvalidArgument, MessageTooLarge) as error:
        if error.index is None:
            raise
        await _publish_checked(feed, messages[: error.index], number)
        raise _refused(number + error.index, error) from error


def _refused(place: int, error: Exception) -> CallboardError:
    """The error that names a line, for one of what is in it."""
    kind = MessageTooLarge if isinstance(error, MessageTooLarge) else InvalidArgument
    reason = str(error).partition(" Nothing was written.")[0].rstrip(".")
    reason = OF_BATCH.sub(lambda named: "" if ":" in named[0] else "it ", reason)
    return kind(f"line {place} of standard input: {reason}. It and what follows was not published.")


def _checked(message: Message, limit_bytes: int) -> Message:
    size = len(message.value) + check_key(message.key) + check_headers(message.headers)
    if size > limit_bytes:
        raise MessageTooLarge(
            f"the message has {size} bytes with its key and headers, and its topic allows {limit_bytes}",
            size_bytes=size,
            limit_bytes=limit_bytes,
        )
    return message


def _parsed(line: bytes, common: Message) -> Message:
    """A message from one line of JSON. Raises `ValueError` or `RecursionError` for anything else."""
    found = json.loads(line.decode())
    if not isinstance(found, dict) or "value" not in found:
        raise ValueError('it is no object with a "value"')
    unknown = set(found) - FIELDS - PASSED_OVER
    if unknown:
        raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
    message = message_from_json(found)
    return attrs.evolve(
        message,
        key=common.key if message.key is None else message.key,
        headers={**(common.headers or {}), **(message.headers or {})},
        ttl=common.ttl if message.ttl is None else message.ttl,
        priority=common.priority if message.priority is None else message.priority,
        delay=common.delay if not message.is_delayed else message.delay,
        deliver_at=common.deliver_at if not message.is_delayed else message.deliver_at,
    )
