"""`callboard dead-letters`: look at what was forwarded to a topic, have it delivered again, be done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from rich.table import Table

from callboard.cli.found import find_topic
from callboard.cli.group import run
from callboard.cli.messages import record_to_json
from callboard.cli.options import directory_option, json_option
from callboard.cli.output import print_json, say, show
from callboard.dead_letter_topics import Chooses, DeadLetterTopic, ForwardedLetter
from callboard.log.errors import InvalidArgument
from callboard.offline import require_directory
from callboard.runtime import open_runtime

T = TypeVar("T")
Command = Callable[..., Any]


def choosing(command: Command) -> Command:
    """The options that say which dead letters are meant."""
    for option in (
        click.option("--group", default=None, help="Only what this group gave up."),
        click.option("--from", "origin", default=None, metavar="TOPIC", help="Only what is from this topic."),
        click.option("--reason", default=None, help="Only those whose reason contains this text."),
    ):
        command = option(command)
    return command


def chooses(group: str | None, origin: str | None, reason: str | None) -> Chooses:
    """What the options of `choosing` say, as a function."""

    def choose(letter: ForwardedLetter) -> bool:
        return (
            (group is None or letter.group == group)
            and (origin is None or letter.topic == origin)
            and (reason is None or reason in (letter.reason or ""))
        )

    return choose


def _ask(directory: str, topic: str, work: Callable[[DeadLetterTopic], Awaitable[T]]) -> T:
    require_directory(directory)

    async def asked() -> T:
        async with open_runtime(directory) as runtime:
            find_topic(runtime, topic)
            return await work(runtime.dead_letters(topic))

    return run(asked)


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at forwarded dead letters, redrive and purge them.

    TOPIC is the one that groups name as their dead_letter_topic.
    """


@dead_letters.command("list")
@click.argument("topic")
@choosing
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most.")
@directory_option
@json_option
def list_letters(
    topic: str,
    group: str | None,
    origin: str | None,
    reason: str | None,
    limit: int,
    directory: str,
    as_json: bool,
) -> None:
    """Print the dead letters that are neither redriven nor purged, a line each."""
    found = _ask(directory, topic, lambda letters: letters.list(chooses(group, origin, reason), limit=limit))
    if as_json:
        for letter in found:
            print_json(_plain(letter))
        return
    table = Table("from", "group", "attempts", "failed", "reason", "value")
    for letter in found:
        table.add_row(
            _printable(f"{letter.topic}/{letter.partition}@{letter.offset}"),
            _printable(letter.group),
            str(letter.attempts),
            letter.failed_at.isoformat(timespec="seconds"),
            _printable((letter.reason or "")[:60]),
            repr(letter.record.value or b"")[2:-1][:40],
        )
    show(table)


def _printable(text: str) -> str:
    """`text` without what a terminal would obey: reasons often quote what was received."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _plain(letter: ForwardedLetter) -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "group": letter.group,
        "attempts": letter.attempts,
        "first_failed_at": None if letter.first_failed_at is None else letter.first_failed_at.isoformat(),
        "failed_at": letter.failed_at.isoformat(),
        "consumer": letter.consumer,
        "consumers": list(letter.consumers),
        "reason": letter.reason,
        "is_lost": letter.is_lost,
        "message": record_to_json(letter.record),
    }


@dead_letters.command()
@click.argument("topic")
@choosing
@directory_option
@json_option
def count(
    topic: str, group: str | None, origin: str | None, reason: str | None, directory: str, as_json: bool
) -> None:
    """Count dead letters by their reason."""
    found = _ask(directory, topic, lambda letters: letters.count(chooses(group, origin, reason)))
    if as_json:
        print_json([{"reason": each, "messages": messages} for each, messages in found.items()])
        return
    table = Table("reason", "messages")
    for each, messages in found.items():
        table.add_row(_printable(each or ""), f"{messages:,}")
    show(table)


@dead_letters.command()
@click.argument("topic")
@choosing
@click.option("--to", default=None, metavar="TOPIC", help="Publish to this topic, for all of its groups.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="So many at most.")
@click.option("--rate", type=float, default=None, help="So many a second at most.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@directory_option
@json_option
def redrive(
    topic: str,
    group: str | None,
    origin: str | None,
    reason: str | None,
    to: str | None,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    directory: str,
    as_json: bool,
) -> None:
    """Publish dead letters again, for the groups that gave them up.

    Running it twice publishes nothing twice.
    """
    done = _ask(
        directory,
        topic,
        lambda letters: letters.redrive(
            chooses(group, origin, reason), to=to, limit=limit, rate=rate, dry_run=dry_run
        ),
    )
    if as_json:
        print_json({"messages": done.messages, "passed_over": done.passed_over, "dry_run": dry_run})
        return
    say(f"{'would redrive' if dry_run else 'redrove'} {done.messages:,} dead letters of {topic}")
    for why, messages in done.passed_over.items():
        say(f"passed over {messages:,}: {why}")


@dead_letters.command()
@click.argument("topic")
@choosing
@click.option("--limit", type=click.IntRange(min=1), default=None, help="So many at most.")
@click.option("--yes", is_flag=True, help="Do it; without, nothing is done.")
@directory_option
@json_option
def purge(
    topic: str,
    group: str | None,
    origin: str | None,
    reason: str | None,
    limit: int | None,
    yes: bool,
    directory: str,
    as_json: bool,
) -> None:
    """Be done with dead letters: they are not listed, and not redriven, any more."""
    if not yes:
        raise InvalidArgument(
            "purging cannot be undone. Nothing was done. Look with `callboard dead-letters list`, then give --yes."
        )
    done = _ask(directory, topic, lambda letters: letters.purge(chooses(group, origin, reason), limit=limit))
    if as_json:
        print_json({"purged": done})
    else:
        say(f"purged {done:,} dead letters of {topic}")
