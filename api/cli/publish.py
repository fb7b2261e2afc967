"""`callboard publish`: from arguments, lines of standard input, or JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import attrs
import click

from callboard.actors.names import check_name
from callboard.actors.partition.commands import Acks
from callboard.cli.answers import CommandAnswer
from callboard.cli.found import find_topic
from callboard.cli.interruption import finished, run
from callboard.cli.messages import FIELDS, message_from_json
from callboard.cli.options import FiniteFloat, bytes_of, directory_option, json_option, zoned
from callboard.cli.output import Advance, counted, progress, say
from callboard.cli.streams import LineReader, is_interactive
from callboard.log.errors import CallboardError, InvalidArgument, MessageTooLarge, TopicNotFound
from callboard.log.limits import BATCH_RECORDS_MAX, MESSAGE_BYTES_MAX
from callboard.message import (
    PRIORITY_MAX,
    Message,
    Receipt,
    ScheduledReceipt,
    check_delay,
    check_headers,
    check_key,
    ttl_us,
)
from callboard.offline import require_directory
from callboard.runtime import Runtime, open_runtime
from callboard.topic import Topic

BATCH_RECORDS: Final = 1000
FINISH_S: Final = 5.0
"""How long an interrupted command waits for the batch that is under way."""
OF_BATCH: Final = re.compile(r"^message \d+( of the batch)?:? ")
"""How an error names a message; its line says that better."""
JSON_LINE_BYTES_MAX: Final = 4 * MESSAGE_BYTES_MAX
"""Limit of a JSON line: escapes and base64 make it longer than its message."""
WAITING_SHOWN_MAX: Final = 10
"""Delayed messages that get a line each, at most."""
WAITING_TOLD_MAX: Final = 10_000
"""Delayed messages that are listed with --json, at most."""
PASSED_OVER: Final = frozenset({"topic", "partition", "offset", "append_time", "attempt"})
"""The other fields that `consume --json` prints; they are ignored, so that its output can be published again."""

Begun = tuple[LineReader, list[bytes]]
"""Standard input, and what was read of it already."""


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("--key", default=None, help="Key of every message.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every message.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    default=None,
    help="The partition, instead of choosing by key.",
)
@click.option(
    "--ttl", type=FiniteFloat(0, min_open=True), default=None, help="Seconds until each message expires."
)
@click.option(
    "--delay", type=FiniteFloat(0), default=None, help="Seconds that each message waits before it is due."
)
@click.option(
    "--deliver-at",
    default=None,
    metavar="TIME",
    help="When each message is due: ISO 8601, UTC without a zone.",
)
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    default=None,
    help="Priority of each message, in a topic with priorities.",
)
@click.option("--dedup-id", default=None, help="Id of the one VALUE: the topic stores it once.")
@click.option(
    "--expected-offset",
    type=click.IntRange(min=0),
    default=None,
    help="Publish the one VALUE only if the partition's next offset is this one.",
)
@click.option("--acks", type=click.Choice(["none", "leader", "all"]), default="all", show_default=True)
@click.option(
    "--json-lines",
    is_flag=True,
    help='Standard input holds JSON: {"value", "key", "headers", "timestamp", "dedup_id", "ttl", "priority",'
    ' "delay", "deliver_at"}, as `consume --json` prints it.',
)
@click.option("--create", is_flag=True, help="Create the topic if it is missing.")
@directory_option
@json_option
def publish(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    ttl: float | None,
    delay: float | None,
    deliver_at: str | None,
    priority: int | None,
    dedup_id: str | None,
    expected_offset: int | None,
    acks: Acks,
    json_lines: bool,
    create: bool,
    directory: str,
    as_json: bool,
) -> None:
    """Publish VALUES or, without any, lines of standard input. Lines are published in batches.

    The first invalid line ends the command, which names it; the lines before it are stored.
    """
    check_name(topic, "topic")
    if delay is not None and deliver_at is not None:
        raise InvalidArgument("--delay and --deliver-at both say when a message is due. Nothing was written.")
    common = Message(
        b"",
        None if key is None else bytes_of(key),
        headers_of(headers),
        ttl=ttl,
        priority=priority,
        delay=None if delay is None else check_delay(delay),
        deliver_at=None if deliver_at is None else _instant(deliver_at),
    )
    is_single = dedup_id is not None or expected_offset is not None
    if is_single and common.is_delayed:
        raise InvalidArgument(
            "--dedup-id and --expected-offset are not for delayed messages. Nothing was written. Leave them out."
        )
    if is_single and len(values) != 1:
        raise InvalidArgument(
            "--dedup-id and --expected-offset are for one VALUE. Nothing was written."
            ' In JSON lines each message has a "dedup_id" of its own.'
        )
    check_key(common.key)
    check_headers(common.headers)
    if ttl is not None:
        ttl_us(ttl)
    if values and json_lines:
        raise InvalidArgument(
            "--json-lines reads standard input: give no VALUES with it. Nothing was written."
        )
    if len(values) > BATCH_RECORDS_MAX:
        raise InvalidArgument(f"more than {BATCH_RECORDS_MAX} VALUES. Nothing was written. Use a pipe.")
    if not create:
        require_directory(directory)
    stored: dict[int, int] = {}
    waiting, fate = DelayedCount(), PublishFate()

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            target, lines = await _topic(runtime, topic, create=create, partition=partition), None
            if target is None:
                if json_lines:
                    lines = await _first_lines(topic, common)
                _check_new(topic, attrs.evolve(common, dedup_id=dedup_id), "the message")
                target = await runtime.create_topic(topic)
            with progress("publishing", quiet=as_json or bool(values) or is_interactive()) as advance:
                feed = Feed(target, partition, acks, stored, waiting, advance, fate)
                if is_single:
                    await feed.publish_single(
                        attrs.evolve(
                            common,
                            value=bytes_of(values[0]),
                            dedup_id=None if dedup_id is None else bytes_of(dedup_id),
                            expected_offset=expected_offset,
                        )
                    )
                elif values:
                    await feed.publish([attrs.evolve(common, value=bytes_of(value)) for value in values])
                else:
                    await _publish_lines(feed, common, json_lines=json_lines, begun=lines)

    is_done = False
    try:
        run(work)
        is_done = True
    finally:
        if (
            is_done or stored or waiting.count or fate.in_doubt or as_json
        ):  # else the error says all there is to say
            _answer(topic, stored, waiting, fate).print(as_json=as_json)


@attrs.define
class DelayedCount:
    """The delayed messages among those that were published."""

    count: int = 0
    first: list[ScheduledReceipt] = attrs.Factory(list)
    """The first of them, WAITING_TOLD_MAX at most."""

    def note(self, receipt: ScheduledReceipt) -> None:
        """Another one is published."""
        self.count += 1
        if len(self.first) < WAITING_TOLD_MAX:
            self.first.append(receipt)


@attrs.define
class PublishFate:
    """What became of messages that are not simply stored."""

    duplicate: Receipt | None = None
    """Where the one VALUE is that was stored before, under the same id."""
    duplicates: int = 0
    """Lines that published nothing: messages with their ids are stored."""
    in_doubt: int = 0
    """Messages that may be stored: the command was interrupted, and did not hear of them in time."""


def _answer(topic: str, stored: dict[int, int], waiting: DelayedCount, fate: PublishFate) -> CommandAnswer:
    document: dict[str, Any] = {"topic": topic, "published": sum(stored.values()), "partitions": stored}
    if waiting.count:
        document |= {"waiting": waiting.count, "scheduled": [_scheduled(one) for one in waiting.first]}
    if fate.duplicate is not None:
        document["duplicate"] = {"partition": fate.duplicate.partition, "offset": fate.duplicate.offset}
    if fate.duplicates:
        document["duplicates"] = fate.duplicates
    if fate.in_doubt:
        document["in_doubt"] = fate.in_doubt
    return CommandAnswer(document, said=_answer_lines(topic, stored, waiting, fate))


def _answer_lines(
    topic: str, stored: dict[int, int], waiting: DelayedCount, fate: PublishFate
) -> Iterator[str]:
    for one in waiting.first[:WAITING_SHOWN_MAX]:
        yield (
            f"a message waits for {topic} in partition {one.partition} with id {one.schedule_id}: it is due"
            f" {one.due.isoformat(timespec='seconds')}"
        )
    more = waiting.count - min(len(waiting.first), WAITING_SHOWN_MAX)
    if more:
        what = counted(more, "other message")
        yield f"{what} {'waits' if more == 1 else 'wait'} for {topic}: see `callboard delayed list {topic}`"
    if fate.duplicate is not None:
        yield (
            f"nothing was published: {topic} has a message with this id at offset {fate.duplicate.offset} of partition"
            f" {fate.duplicate.partition}"
        )
    elif stored or not waiting.count:
        counts = ", ".join(f"{count:,} in partition {index}" for index, count in sorted(stored.items()))
        doubt = f"; {fate.in_doubt:,} more may be stored" if fate.in_doubt else ""
        if fate.duplicates:
            doubt += f"; {fate.duplicates:,} more were there before"
        published = counted(sum(stored.values()), "message")
        yield f"published {published} to {topic}{': ' if counts else ''}{counts}{doubt}"


def _scheduled(one: ScheduledReceipt) -> dict[str, Any]:
    """What cancels it, and when it is due."""
    return {"partition": one.partition, "schedule_id": one.schedule_id, "due": one.due.isoformat()}


async def _topic(runtime: Runtime, name: str, *, create: bool, partition: int | None) -> Topic | None:
    """The topic; None when it is to be created."""
    try:
        return find_topic(runtime, name)
    except TopicNotFound as error:
        if not create:
            raise TopicNotFound(f"{error} Or publish with --create.", topic=name) from None
    if partition:
        raise InvalidArgument(
            f"a new topic has no partition {partition}. Create it with more partitions first."
        )
    return None


def _check_new(topic: str, message: Message, named: str) -> None:
    """Raise `InvalidArgument` for a message that a topic with default settings does not take."""
    settings = [
        setting
        for setting, given in (("priorities=true", message.priority), ("dedup_window=3600", message.dedup_id))
        if given is not None
    ]
    if settings:
        what = "dedup_id" if message.priority is None else "priority"
        raise InvalidArgument(
            f"{named} has a {what}, and the new topic {topic!r} would have no setting for it. Nothing was created."
            f" Create it first: `callboard topic create {topic} {' '.join(settings)}`."
        )


async def _first_lines(topic: str, common: Message) -> Begun:
    """The first lines for a topic that is to be created. Raises `InvalidArgument` when it would not take them."""
    reader = LineReader(line_bytes_max=JSON_LINE_BYTES_MAX)
    lines = await reader.next_lines(BATCH_RECORDS)
    for number, line in enumerate(lines, 1):
        try:
            message = _parsed(line, common)
        except (ValueError, TypeError, RecursionError):
            break  # reported in its turn
        _check_new(topic, message, f"line {number} of standard input")
    return reader, lines


@attrs.frozen
class Feed:
    """Publishes batches and counts what is stored."""

    topic: Topic
    partition: int | None
    acks: Acks
    stored: dict[int, int]
    waiting: DelayedCount
    advance: Advance
    fate: PublishFate

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish one batch, if there is anything in it. A command that is interrupted hears of its batch first."""
        self.fate.in_doubt = len(messages)
        await finished(partial(self._publish, messages), FINISH_S)

    async def _publish(self, messages: Sequence[Message]) -> None:
        try:
            await self._publish_batch(messages)
        except CallboardError as error:
            if not getattr(error, "indefinite", False):
                self.fate.in_doubt = 0
            raise
        self.fate.in_doubt = 0

    async def _publish_batch(self, messages: Sequence[Message]) -> None:
        is_delayed = any(message.is_delayed for message in messages)
        may_repeat = not is_delayed and any(message.dedup_id is not None for message in messages)
        receipts = await self.topic.publish_batch(messages, partition=self.partition, acks=self.acks)
        if may_repeat:
            for receipt in receipts:
                if receipt.duplicate:
                    self.fate.duplicates += 1
                else:
                    self._count(receipt.partition, 1)
            return
        if is_delayed:
            for message, receipt in zip(messages, receipts, strict=True):
                if message.is_delayed and isinstance(receipt, ScheduledReceipt):
                    self.waiting.note(receipt)
                else:
                    self._count(receipt.partition, 1)
            return
        for partition, _, count in receipts.ranges:
            self._count(partition, count)

    async def publish_single(self, message: Message) -> None:
        """Publish one message that may be a duplicate, or refused for its offset."""
        receipt = await self.topic.publish(message, partition=self.partition, acks=self.acks)
        if receipt.duplicate:
            self.fate.duplicate = receipt
        else:
            self._count(receipt.partition, 1)

    def _count(self, partition: int, count: int) -> None:
        self.stored[partition] = self.stored.get(partition, 0) + count
        published = sum(self.stored.values())
        self.advance(f"{published:,} messages", published, None)


async def _publish_lines(
    feed: Feed, common: Message, *, json_lines: bool, begun: Begun | None = None
) -> None:
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


def _instant(text: str) -> datetime:
    try:
        return zoned(text)
    except ValueError as error:
        raise InvalidArgument(
            f"--deliver-at is {text!r:.40}, not a time in ISO 8601. Nothing was written."
        ) from error


def headers_of(given: tuple[str, ...]) -> dict[str, bytes]:
    """Headers as options give them. Raises `InvalidArgument`: which one is wrong."""
    headers: dict[str, bytes] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"header {item!r:.60} is not of the form NAME=VALUE. Nothing was written.")
        if name in headers:
            raise InvalidArgument(f"header {name!r:.60} is given twice. Nothing was written.")
        headers[name] = bytes_of(value)
    return headers


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
