"""`callboard publish`: from arguments, lines of standard input, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from callboard.cli.files import read_standard_input
from callboard.cli.group import run
from callboard.cli.options import directory_option, json_option, print_json
from callboard.log.errors import InvalidArgument
from callboard.message import Message
from callboard.runtime import open_runtime

BATCH_RECORDS = 1000


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("--key", default=None, help="Key of every message.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every message.")
@click.option("--partition", type=int, default=None, help="Partition, instead of choosing by key.")
@click.option("--acks", type=click.Choice(["none", "leader", "all"]), default="all", show_default=True)
@click.option(
    "--json-lines", is_flag=True, help='Standard input holds JSON: {"value", "key", "headers", "timestamp"}.'
)
@click.option("--create", is_flag=True, help="Create the topic when it is missing.")
@directory_option
@json_option
def publish(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    json_lines: bool,
    create: bool,
    directory: str,
    as_json: bool,
) -> None:
    """Publish VALUES, or without any the lines of standard input, in batches.

    A line that is not acceptable stops the command and is named; the batches before it are stored.
    """
    common = _headers(headers)
    messages = _messages(values, key, common, json_lines)

    async def work() -> dict[str, int]:
        stored: dict[str, int] = {}
        async with open_runtime(directory) as runtime:
            target = await runtime.create_topic(topic) if create else runtime.topic(topic)
            batch: list[Message | bytes] = []
            for message in messages:
                batch.append(message)
                if len(batch) == BATCH_RECORDS:
                    _count(stored, await target.publish_batch(batch, partition=partition, acks=acks))
                    batch = []
            if batch:
                _count(stored, await target.publish_batch(batch, partition=partition, acks=acks))
        return stored

    stored = run(work)
    if as_json:
        print_json({"published": sum(stored.values()), "partitions": stored})
    else:
        click.echo(f"published {sum(stored.values())} messages to {topic}: {stored}", err=True)


def _count(stored: dict[str, int], receipts: Any) -> None:
    for partition, _, count in receipts.ranges:
        stored[str(partition)] = stored.get(str(partition), 0) + count


def _headers(given: tuple[str, ...]) -> dict[str, str] | None:
    headers = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"header {item!r:.60} is not of the form NAME=VALUE. Nothing was written.")
        headers[name] = value
    return headers or None


def _messages(
    values: tuple[str, ...], key: str | None, headers: dict[str, str] | None, json_lines: bool
) -> Iterator[Message]:
    encoded = None if key is None else key.encode()
    if values:
        return (Message(value.encode(), encoded, headers) for value in values)
    lines = read_standard_input()
    if json_lines:
        return (_parsed(number, line, encoded, headers) for number, line in enumerate(lines, 1))
    return (Message(line, encoded, headers) for line in lines)


def _parsed(number: int, line: bytes, key: bytes | None, headers: dict[str, str] | None) -> Message:
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or not isinstance(found.get("value"), str):
            raise ValueError('it is no object with a text "value"')
        unknown = set(found) - {"value", "key", "headers", "timestamp"}
        if unknown:
            raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
        stamp = found.get("timestamp")
        return Message(
            found["value"].encode(),
            found["key"].encode() if found.get("key") is not None else key,
            {**(headers or {}), **(found.get("headers") or {})} or None,
            None if stamp is None else datetime.fromisoformat(stamp),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"line {number} of standard input: {error}. It and what follows was not published."
        ) from error
