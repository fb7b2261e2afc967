"""`callboard delayed`: look at the messages that wait until they are due, and cancel them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from callboard.cli.found import find_topic
from callboard.cli.group import run
from callboard.cli.options import directory_option, json_option
from callboard.cli.output import counted, legible, plain_bytes, print_json, say, show, table
from callboard.delayed import DelayedMessage, DelayedMessages
from callboard.offline import require_directory
from callboard.runtime import open_runtime

T = TypeVar("T")


def _ask(directory: str, topic: str, work: Callable[[DelayedMessages], Awaitable[T]]) -> T:
    require_directory(directory)

    async def asked() -> T:
        async with open_runtime(directory) as runtime:
            return await work(find_topic(runtime, topic).delayed())

    return run(asked)


@click.group()
def delayed() -> None:
    """Look at messages that wait until they are due; cancel them."""


@delayed.command("list")
@click.argument("topic")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="So many at most, those that are due first.",
)
@directory_option
@json_option
def list_delayed(topic: str, limit: int, directory: str, as_json: bool) -> None:
    """Print the messages that wait, a line each. What is due next comes first."""
    found = _ask(directory, topic, lambda waiting: waiting.next(limit=limit))
    if as_json:
        for message in found:
            print_json(_plain(message))
        return
    rows = [
        (
            str(message.partition),
            str(message.schedule_id),
            message.due.isoformat(timespec="seconds"),
            legible(message.key, 20),
            legible(message.value, 40),
        )
        for message in found
    ]
    if rows:
        show(table(("partition", "id", "due", "key", "value"), rows, words=("due", "key", "value")))
    else:
        say(f"no delayed messages of {topic}")


def _plain(message: DelayedMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "schedule_id": message.schedule_id,
        "due": message.due.isoformat(),
        "value": plain_bytes(message.value),
        "key": plain_bytes(message.key),
        "headers": {name: plain_bytes(value) for name, value in message.headers.items()},
        "timestamp": None if message.timestamp is None else message.timestamp.isoformat(),
        "ttl": "never" if message.ttl == math.inf else message.ttl,
        "priority": message.priority,
    }


@delayed.command()
@click.argument("topic")
@directory_option
@json_option
def count(topic: str, directory: str, as_json: bool) -> None:
    """Count the messages that wait."""
    messages = _ask(directory, topic, lambda waiting: waiting.count())
    if as_json:
        print_json({"topic": topic, "messages": messages})
    else:
        show(f"{counted(messages, 'message')} of {topic} {'waits' if messages == 1 else 'wait'}")


@delayed.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("ids", type=click.IntRange(min=0), nargs=-1, required=True)
@directory_option
@json_option
def cancel(topic: str, partition: int, ids: tuple[int, ...], directory: str, as_json: bool) -> None:
    """Have messages never come to TOPIC. Those with these IDS in PARTITION are meant, as `list` prints them."""
    done = _ask(directory, topic, lambda waiting: waiting.cancel_ids(partition, ids))
    if as_json:
        print_json({"topic": topic, "partition": partition, "cancelled": list(done)})
    else:
        others = "" if len(done) == len(ids) else "; the others do not wait"
        say(f"cancelled {len(done):,} of {counted(len(ids), 'message')}{others}")
