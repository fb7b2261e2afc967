"""`callboard publish`: from arguments, lines of standard input, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import click

from callboard.actors.names import check_name
from callboard.actors.partition.commands import Acks
from callboard.cli.found import find_topic
from callboard.cli.group import run
from callboard.cli.messages import FIELDS, message_from_json
from callboard.cli.options import FiniteFloat, bytes_of, directory_option, json_option, zoned
from callboard.cli.output import Advance, counted, print_json, progress, say
from callboard.cli.streams import LineReader, is_interactive
from callboard.log.errors import InvalidArgument, MessageTooLarge, TopicNotFound
from callboard.log.limits import BATCH_RECORDS_MAX, MESSAGE_BYTES_MAX
from callboard.message import Message, ScheduledReceipt, check_delay, check_headers, check_key, ttl_us
from callboard.offline import require_directory
from callboard.publishing.delaying import has_delays
from callboard.runtime import Runtime, open_runtime
from callboard.topic import Topic

BATCH_RECORDS: Final = 1000
JSON_LINE_BYTES_MAX: Final = 4 * MESSAGE_BYTES_MAX
"""Limit of a JSON line: escapes and base64 make it longer than its message."""
WAITING_SHOWN_MAX: Final = 10
"""So many delayed messages get a line each."""
WAITING_TOLD_MAX: Final = 10_000
"""So many delayed messages are told with --json."""
PASSED_OVER: Final = frozenset({"topic", "partition", "offset", "append_time", "attempt"})
"""The other fields that `consume --json` prints; they are ignored, so that its output can be published again."""


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
    help='Standard input holds JSON: {"value", "key", "headers", "timestamp", "dedup_id", "ttl", "delay"}, as'
    " `consume --json` prints it.",
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
    dedup_id: str | None,
    expected_offset: int | None,
    acks: Acks,
    json_lines: bool,
    create: bool,
    directory: str,
    as_json: bool,
) -> None:
    """Publish VALUES or, without any, the lines of standard input, in batches.

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
    waiting = Waiting()

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            target = await _topic(runtime, topic, create=create, partition=partition)
            with progress("publishing", quiet=as_json or bool(values) or is_interactive()) as advance:
                feed = Feed(target, partition, acks, stored, waiting, advance)
                if is_single:
                    message = attrs.evolve(common, value=bytes_of(values[0]))
                    await feed.publish_single(message, dedup_id, expected_offset)
                elif values:
                    await feed.publish([attrs.evolve(common, value=bytes_of(value)) for value in values])
                else:
                    await _publish_lines(feed, common, json_lines=json_lines)

    is_done = False
    try:
        run(work)
        is_done = True
    finally:
        if is_done or stored or waiting.count or as_json:  # else the error says all there is to say
            _report(topic, stored, waiting, as_json)


@attrs.define
class Waiting:
    """The delayed messages among those that were published."""

    count: int = 0
    first: list[ScheduledReceipt] = attrs.Factory(list)
    """The first of them, WAITING_TOLD_MAX at most."""

    def note(self, receipt: ScheduledReceipt) -> None:
        """Another one is published."""
        self.count += 1
        if len(self.first) < WAITING_TOLD_MAX:
            self.first.append(receipt)


def _report(topic: str, stored: dict[int, int], waiting: Waiting, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = {
            "topic": topic,
            "published": sum(stored.values()),
            "partitions": stored,
        }
        if waiting.count:
            found |= {"waiting": waiting.count, "scheduled": [_scheduled(one) for one in waiting.first]}
        print_json(found)
        return
    for one in waiting.first[:WAITING_SHOWN_MAX]:
        say(
            f"a message waits for {topic} in partition {one.partition} with id {one.schedule_id}: it is due"
            f" {one.due.isoformat(timespec='seconds')}"
        )
    more = waiting.count - min(len(waiting.first), WAITING_SHOWN_MAX)
    if more:
        what = counted(more, "other message")
        say(f"{what} {'waits' if more == 1 else 'wait'} for {topic}: see `callboard delayed list {topic}`")
    if stored or not waiting.count:
        counts = ", ".join(f"{count:,} in partition {index}" for index, count in sorted(stored.items()))
        say(
            f"published {counted(sum(stored.values()), 'message')} to {topic}{': ' if counts else ''}{counts}"
        )


def _scheduled(one: ScheduledReceipt) -> dict[str, Any]:
    """What cancels it, and when it is due."""
    return {"partition": one.partition, "schedule_id": one.schedule_id, "due": one.due.isoformat()}


async def _topic(runtime: Runtime, name: str, *, create: bool, partition: int | None) -> Topic:
    try:
        return find_topic(runtime, name)
    except TopicNotFound as error:
        if not create:
            raise TopicNotFound(f"{error} Or publish with --create.", topic=name) from None
    if partition:
        raise InvalidArgument(
            f"a new topic has no partition {partition}. Create it with more partitions first."
        )
    return await runtime.create_topic(name)


@attrs.frozen
class Feed:
    """Publishes batches and counts what is stored."""

    topic: Topic
    partition: int | None
    acks: Acks
    stored: dict[int, int]
    waiting: Waiting
    advance: Advance

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish one batch, if there is anything in it."""
        receipts = await self.topic.publish_batch(messages, partition=self.partition, acks=self.acks)
        if has_delays(messages):
            for message, receipt in zip(messages, receipts, strict=True):
                if message.is_delayed and isinstance(receipt, ScheduledReceipt):
                    self.waiting.note(receipt)
                else:
                    self._count(receipt.partition, 1)
            return
        for partition, _, count in receipts.ranges:
            self._count(partition, count)

    async def publish_single(
        self, message: Message, dedup_id: str | None, expected_offset: int | None
    ) -> None:
        """Publish one message that may be a duplicate, or refused for its offset."""
        receipt = await self.topic.publish(
            message.value,
            key=message.key,
            headers=message.headers,
            ttl=message.ttl,
            partition=self.partition,
            dedup_id=None if dedup_id is None else bytes_of(dedup_id),
            expected_offset=expected_offset,
            acks=self.acks,
        )
        self._count(receipt.partition, 1)

    def _count(self, partition: int, count: int) -> None:
        self.stored[partition] = self.stored.get(partition, 0) + count
        published = sum(self.stored.values())
        self.advance(f"{published:,} messages", published, None)


async def _publish_lines(feed: Feed, common: Message, *, json_lines: bool) -> None:
    if is_interactive():
        say("Publishing what you type, a message per line. End with Ctrl-D.")
    limit_bytes = feed.topic.settings.max_message_bytes
    reader = LineReader(line_bytes_max=JSON_LINE_BYTES_MAX if json_lines else limit_bytes)
    number = 1
    while lines := await reader.next_lines(BATCH_RECORDS):
        messages: list[Message] = []
        try:
            for line in lines:
                message = attrs.evolve(common, value=line)
                if json_lines:
                    message = _parsed(line, common)
                messages.append(_checked(message, limit_bytes))
        except (ValueError, TypeError, RecursionError) as error:
            await feed.publish(messages)
            refused = MessageTooLarge if isinstance(error, MessageTooLarge) else InvalidArgument
            place = number + len(messages)
            reason = str(error).partition(" Nothing was written.")[0].rstrip(".")
            raise refused(
                f"line {place} of standard input: {reason}. It and what follows was not published."
            ) from error
        await feed.publish(messages)
        number += len(messages)


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
        delay=common.delay if not message.is_delayed else message.delay,
        deliver_at=common.deliver_at if not message.is_delayed else message.deliver_at,
    )
