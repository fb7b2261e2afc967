"""`callboard delayed`: look at the messages that wait until they are due, and cancel them; also beside a runtime that
has the directory open with control=True.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import click

from callboard.actors.names import check_name
from callboard.cli.answers import CommandAnswer, answering, listed
from callboard.cli.asking import ask_all, asking
from callboard.cli.command_line import CommandGroup
from callboard.cli.interruption import run
from callboard.cli.options import directory_option, json_option
from callboard.cli.output import counted, legible, say
from callboard.offline import require_directory

IDS_AT_A_TIME: Final = 1000
"""Ids that one request cancels: it has room for them."""
PAGE: Final = 1000
"""Messages of `--all` in one request."""
ID_MAX: Final = 2**63 - 1
NUMBER_MAX: Final = 999_999_999
"""The control socket takes no larger partition or limit."""


@click.group(cls=CommandGroup)
def delayed() -> None:
    """Look at messages that wait until they are due; cancel them.

    Also while a runtime has the directory open with control=True. `list` and `count` only read the directory; `cancel`
    opens it otherwise, which delivers what is due meanwhile, as any opening does.
    """


@delayed.command("list")
@click.argument("topic")
@click.option(
    "--limit",
    type=click.IntRange(1, NUMBER_MAX),
    default=100,
    show_default=True,
    help="Print no more than this, those that are due first.",
)
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="All of them instead, partition by partition, in the order in which they were published.",
)
@directory_option
@json_option
def list_delayed(topic: str, limit: int, is_all: bool, directory: str, as_json: bool) -> None:
    """Print the messages that wait, a line each. What is due next comes first."""
    check_name(topic, "topic")
    if is_all:
        require_directory(directory)
        run(partial(_print_all, directory, topic, as_json=as_json))
        return
    request = {"verb": "list_delayed", "topic": topic, "count": str(limit)}
    found, statistics = ask_all(directory, request, {"verb": "stats"})
    _listed(found, topic).print(as_json=as_json)
    _say_damages(statistics, topic)


async def _print_all(directory: str, topic: str, *, as_json: bool) -> None:
    """Page by page, however many there are."""
    after = ""
    async with asking(directory) as ask:
        while True:
            page = await ask("page_delayed", topic=topic, after=after, count=str(PAGE))
            if page or not after:
                _listed(page, topic).print(as_json=as_json)
            if not page:
                break
            after = f"{page[-1]['partition']} {page[-1]['schedule_id']}"
        _say_damages(await ask("stats"), topic)


def _say_damages(statistics: dict[str, Any], topic: str) -> None:
    """Name what the topic's waiting partitions have lost: that is missing in what was printed."""
    for each in statistics["delayed"]:
        for damage in each["damages"] if each["topic"] == topic else ():
            say(f"{topic}/{each['partition']} (delayed): {damage}")


def _listed(found: Sequence[dict[str, Any]], topic: str) -> CommandAnswer:
    rows = [
        (
            str(message["partition"]),
            str(message["schedule_id"]),
            datetime.fromisoformat(message["due"]).isoformat(timespec="seconds"),
            legible(message["key"], 20),
            legible(message["value"], 40),
        )
        for message in found
    ]
    heads = ("partition", "id", "due", "key", "value")
    words = ("due", "key", "value")
    return listed(found, heads, rows, words=words, nothing=f"no delayed messages of {topic}", is_stream=True)


@delayed.command()
@click.argument("topic")
@directory_option
@answering
def count(topic: str, directory: str) -> CommandAnswer:
    """Count the messages that wait."""
    check_name(topic, "topic")
    request = {"verb": "count_delayed", "topic": topic}
    messages, statistics = ask_all(directory, request, {"verb": "stats"})
    _say_damages(statistics, topic)
    words = f"{counted(messages, 'message')} of {topic} {'waits' if messages == 1 else 'wait'}"
    return CommandAnswer({"topic": topic, "messages": messages}, [words])


@delayed.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0, NUMBER_MAX))
@click.argument("ids", type=click.IntRange(0, ID_MAX), nargs=-1, required=True)
@directory_option
@answering
def cancel(topic: str, partition: int, ids: tuple[int, ...], directory: str) -> CommandAnswer:
    """Have messages never come to TOPIC. Those with these IDS in PARTITION are meant, as `list` prints them."""
    check_name(topic, "topic")
    request = {"verb": "cancel_delayed", "topic": topic, "partition": str(partition)}
    requests = [
        request | {"ids": " ".join(map(str, ids[start : start + IDS_AT_A_TIME]))}
        for start in range(0, len(ids), IDS_AT_A_TIME)
    ]
    done = [each for found in ask_all(directory, *requests) for each in found]
    others = "" if len(done) == len(ids) else "; the others do not wait"
    said = f"cancelled {len(done):,} of {counted(len(ids), 'message')}{others}"
    return CommandAnswer({"topic": topic, "partition": partition, "cancelled": done}, said=[said])
