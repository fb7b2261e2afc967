"""`callboard schedule`: recurring publishes, also beside a runtime that has the directory open with control=True."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from callboard.actors.names import check_name
from callboard.actors.recurring.spec import MISSED, check_cron
from callboard.cli.answers import CommandAnswer, answering, listed
from callboard.cli.asking import ask
from callboard.cli.command_line import CommandGroup
from callboard.cli.options import FiniteFloat, bytes_of, directory_option
from callboard.cli.publish import headers_of
from callboard.control.schedules import settings_text
from callboard.publishing.schedules import NEXT_MAX


@click.group(cls=CommandGroup)
def schedule() -> None:
    """List, add, pause, resume and remove recurring publishes.

    Also while a runtime has the directory open with control=True. `list` and `next` only read the directory; the others
    open it otherwise, which publishes what is due meanwhile, as any opening does.
    """


@schedule.command("list")
@click.argument("topic", default="")
@directory_option
@answering
def list_schedules(topic: str, directory: str) -> CommandAnswer:
    """Print the schedules of TOPIC, or of all topics."""
    found = ask(directory, "schedules", topic=topic)
    rows = [
        (
            f"{each['topic']}/{each['partition']}",
            each["name"],
            _when(each),
            "paused" if each["paused"] else (each["next_due"] or "never")[:19],
            (each["last_due"] or "")[:19],
            each["fired"],
            each["problem"],
        )
        for each in found
    ]
    heads = ("partition", "name", "when", "next (UTC)", "last (UTC)", "fired", "waits because")
    words = ("partition", "name", "when", "next (UTC)", "last (UTC)", "waits because")
    return listed(found, heads, rows, words=words, nothing="no schedules")


def _when(found: dict[str, Any]) -> str:
    return f"every {found['every']:g} s" if found["cron"] is None else f"{found['cron']} {found['zone']}"


@schedule.command()
@click.argument("topic")
@click.argument("name")
@click.argument("value")
@click.option("--cron", default=None, help='Five fields, such as "0 9 * * MON-FRI"; six: seconds first.')
@click.option("--zone", default=None, help="Time zone of --cron, such as Europe/Berlin.  [default: UTC]")
@click.option(
    "--every",
    type=FiniteFloat(0, min_open=True),
    default=None,
    help="Seconds between due instants, in place of --cron.",
)
@click.option(
    "--missed",
    type=click.Choice(MISSED),
    default="latest",
    show_default=True,
    help="What becomes of firings that were missed while the directory was closed.",
)
@click.option("--key", default=None, help="Key of the messages.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of the messages.")
@click.option(
    "--ttl", type=FiniteFloat(0, min_open=True), default=None, help="Seconds until each message expires."
)
@click.option("--priority", type=click.IntRange(0, 9), default=None, help="Priority of the messages.")
@click.option("--partition", type=click.IntRange(min=0), default=None, help="The partition.")
@directory_option
@answering
def add(
    topic: str,
    name: str,
    value: str,
    cron: str | None,
    zone: str | None,
    every: float | None,
    missed: str,
    key: str | None,
    headers: tuple[str, ...],
    ttl: float | None,
    priority: int | None,
    partition: int | None,
    directory: str,
) -> CommandAnswer:
    """Publish VALUE to TOPIC again and again. Nothing is done when NAME is there with these settings."""
    check_name(topic, "topic")
    check_name(name, "schedule")
    given = {
        "value": bytes_of(value),
        "cron": None if cron is None else check_cron(cron),
        "zone": zone,
        "every": every,
        "missed": missed,
        "key": None if key is None else bytes_of(key),
        "headers": headers_of(headers),
        "ttl": ttl,
        "priority": priority,
        "partition": partition,
    }
    found = ask(directory, "add_schedule", topic=topic, name=name, settings=settings_text(given))
    return CommandAnswer(
        found, said=[f"schedule {name} of {topic}: {_when(found)}, next {found['next_due']}"]
    )


@schedule.command("next")
@click.argument("topic")
@click.argument("name")
@click.option(
    "--count", type=click.IntRange(1, NEXT_MAX), default=5, show_default=True, help="How many to print."
)
@directory_option
@answering
def next_due(topic: str, name: str, count: int, directory: str) -> CommandAnswer:
    """Print the next due instants, in the schedule's time zone."""
    found = ask(directory, "next_due", topic=topic, name=name, count=str(count))
    return CommandAnswer({"topic": topic, "name": name, "next": found}, ["\n".join(found)])


def _of_change(command: Callable[..., CommandAnswer]) -> Callable[..., int]:
    """The arguments of a command that changes a schedule."""
    answers = answering(command)
    for part in (directory_option, click.argument("name"), click.argument("topic")):
        answers = part(answers)
    return answers


def _change(change: str, done: str, topic: str, name: str, directory: str) -> CommandAnswer:
    ask(directory, "change_schedule", topic=topic, name=name, change=change)
    return CommandAnswer(
        {"topic": topic, "name": name, done: True}, said=[f"schedule {name} of {topic} is {done}"]
    )


@schedule.command()
@_of_change
def remove(**given: str) -> CommandAnswer:
    """Remove a schedule. What it published stays."""
    return _change("remove", "removed", **given)


@schedule.command()
@_of_change
def pause(**given: str) -> CommandAnswer:
    """Have a schedule publish nothing until it is resumed. What is due meanwhile counts for nothing."""
    return _change("pause", "paused", **given)


@schedule.command()
@_of_change
def resume(**given: str) -> CommandAnswer:
    """Have a paused schedule go on. The first due instant from now on is the next."""
    return _change("resume", "resumed", **given)
