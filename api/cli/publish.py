"""`callboard publish`: from arguments, lines of standard input, or JSON lines."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import attrs
import click

from callboard.actors.names import check_name
from callboard.actors.partition.commands import Acks
from callboard.cli.asking import find_topic
from callboard.cli.interruption import run
from callboard.cli.options import FiniteFloat, bytes_of, directory_option, json_option
from callboard.cli.output import progress
from callboard.cli.places import zoned
from callboard.cli.publish_feed import Feed, Published, first_lines, publish_lines
from callboard.cli.streams import is_interactive
from callboard.log.errors import InvalidArgument, TopicNotFound
from callboard.log.limits import BATCH_RECORDS_MAX
from callboard.message import (
    PRIORITY_MAX,
    Message,
    check_delay,
    check_headers,
    check_key,
    ttl_us,
)
from callboard.offline import require_directory
from callboard.runtime import Runtime, open_runtime
from callboard.topic import Topic


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
    published = Published(topic)

    async def work() -> None:
        async with open_runtime(directory) as runtime:
            target, lines = await _topic(runtime, topic, create=create, partition=partition), None
            if target is None:
                if json_lines:
                    lines = await first_lines(partial(_check_new, topic), common)
                _check_new(topic, attrs.evolve(common, dedup_id=dedup_id), "the message")
                target = await runtime.create_topic(topic)
            with progress("publishing", quiet=as_json or bool(values) or is_interactive()) as advance:
                feed = Feed(target, partition, acks, published, advance)
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
                    await publish_lines(feed, common, json_lines=json_lines, begun=lines)

    is_done = False
    try:
        run(work)
        is_done = True
    finally:
        if is_done or published.has_any or as_json:  # else the error says all there is to say
            published.answer().print(as_json=as_json)


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
