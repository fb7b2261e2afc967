"""`callboard dead-letters`: look at what was forwarded to a topic, have it delivered again, be done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any, Final

import attrs
import click
import trio

from callboard.actors.names import check_name, no_group, no_topic
from callboard.cli.answers import CommandAnswer, answering, listed
from callboard.cli.asking import ask, ask_all, asking
from callboard.cli.command_line import CommandGroup
from callboard.cli.interruption import run
from callboard.cli.options import FiniteFloat, directory_option
from callboard.cli.output import counted, legible, say
from callboard.log.errors import InvalidArgument
from callboard.log.limits import NAME_BYTES_MAX
from callboard.offline import require_directory

Command = Callable[..., Any]
PART: Final = 200
PART_S: Final = 10.0
"""Messages that one request redrives at most, or fewer when this time is over."""
REASON_SHOWN: Final = 200
"""Characters of a reason that are shown beside its count, at most."""
PURGED_AT_A_TIME: Final = 10_000


def choosing(command: Command) -> Command:
    """The options that say which dead letters are meant."""
    for option in (
        click.option("--group", default=None, help="Only what this group gave up."),
        click.option("--from", "origin", default=None, metavar="TOPIC", help="Only what is from this topic."),
        click.option("--reason", default=None, help="Only those whose reason contains this text."),
        click.option(
            "--at",
            multiple=True,
            metavar="TOPIC/PARTITION@OFFSET",
            help="Only the message from this place, as `list` prints it; may be given several times.",
        ),
    ):
        command = option(command)
    return command


def _choice(
    topic: str,
    *,
    group: str | None = None,
    origin: str | None = None,
    reason: str | None = None,
    at: tuple[str, ...] = (),
) -> dict[str, str]:
    """What the options of `choosing` say, as arguments of a request."""
    check_name(topic, "topic")
    given = [("--group", group), ("--from", origin), ("--reason", reason), *(("--at", each) for each in at)]
    for option, said in given:
        if said is not None and not said.strip():  # an unset variable of a script must not mean all
            raise InvalidArgument(f"{option} is empty. Nothing was done. Leave it out to mean all.")
    choice = {"topic": topic, "group": group or "", "origin": origin or "", "reason": reason or ""}
    return choice | ({"at": " ".join(at)} if at else {})


@click.group("dead-letters", cls=CommandGroup)
def dead_letters() -> None:
    """Look at dead letters, redrive and purge them.

    TOPIC is the one that groups name as their dead_letter_topic; of another one, `list` and `count` show what its
    partitions keep, of groups that name none. Also while a runtime has the directory open with control=True.
    """


@dead_letters.command("list")
@click.argument("topic")
@choosing
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Print no more than this."
)
@directory_option
@answering
def list_letters(topic: str, limit: int, directory: str, **chosen: Any) -> CommandAnswer:
    """Print dead letters, a line each. Left out are those that were redriven or purged."""
    choice = _choice(topic, **chosen)
    rest = {**choice, "limit": str(limit)}
    found, kept = ask_all(directory, {"verb": "list_dead", **rest}, {"verb": "list_kept", **rest})
    found = [*found, *(letter for each in kept for letter in each["letters"])][:limit]
    if not found:
        _check_choice(directory, choice, is_kept=bool(kept))
    rows = [
        (
            f"{letter['topic']}/{letter['partition']}@{letter['offset']}",
            legible(letter["group"], NAME_BYTES_MAX),
            str(letter["attempts"]),
            datetime.fromisoformat(letter["failed_at"]).isoformat(timespec="seconds"),
            legible(letter["reason"], 60),
            legible(letter["message"]["value"], 40) if letter["message"] else "(lost)",
        )
        for letter in found
    ]
    heads = ("from", "group", "attempts", "failed", "reason", "value")
    words = ("from", "group", "failed", "reason", "value")
    answer = listed(found, heads, rows, words=words, is_stream=True)
    return attrs.evolve(answer, said=_kept_lines(topic, kept))


def _kept_lines(topic: str, kept: list[dict[str, Any]]) -> Iterator[str]:
    """What partitions keep, by group, and how that is moved on."""
    for each in kept:
        name = legible(each["group"], NAME_BYTES_MAX)
        what = f"{counted(each['messages'], 'dead letter')} of group {name} {'is' if each['messages'] == 1 else 'are'}"
        if each["dead_letter_topic"] is None:
            yield (
                f"{what} kept in the partitions of {topic}, since the group names no dead_letter_topic. To redrive or"
                f" purge, name one: `callboard group alter {name} dead_letter_topic=TOPIC`"
            )
        else:
            yield f"{what} not forwarded yet from {topic} to {each['dead_letter_topic']}"


def _check_choice(directory: str, choice: dict[str, str], *, is_kept: bool) -> None:
    """Nothing was found: tell why. Raises for a group or topic that is not there."""
    found = ask(directory, "stats")
    topics = {partition["topic"] for partition in found["partitions"]}
    groups = {group["name"] for group in found["groups"]}
    for name, known, error in (
        (choice["group"], groups, no_group),
        (choice["origin"], topics, no_topic),
    ):
        if name and name not in known:
            raise error(name, sorted(known))
    topic = choice["topic"]
    is_named = any(group["settings"]["dead_letter_topic"] == topic for group in found["groups"])
    what = "" if is_named or is_kept else ": no group names it as its dead_letter_topic"
    chosen = any(choice.get(each) for each in ("group", "origin", "reason", "at"))
    if is_kept and not chosen:
        return  # more was kept than is listed
    say(f"no {'such ' if chosen else ''}dead letters in {topic}{what}")


@dead_letters.command()
@click.argument("topic")
@choosing
@click.option("--full", is_flag=True, help="Tell reasons apart that differ only in numbers and details.")
@directory_option
@answering
def count(topic: str, full: bool, directory: str, **chosen: Any) -> CommandAnswer:
    """Count dead letters by group, and by what their reasons share."""
    choice = _choice(topic, **chosen)
    rest = {**choice, "full": "yes"} if full else choice
    found, kept = ask_all(directory, {"verb": "count_dead", **rest}, {"verb": "count_kept", **rest})
    rows = found + [
        {"group": of["group"], **each, "kept_of": of["group"]} for of in kept for each in of["reasons"]
    ]
    if not rows:
        _check_choice(directory, choice, is_kept=bool(kept))
    cells = [
        (legible(each["group"], NAME_BYTES_MAX), legible(each["reason"], REASON_SHOWN), each["messages"])
        for each in rows
    ]
    answer = listed(rows, ("group", "reason", "messages"), cells, words=("group", "reason"))
    return attrs.evolve(answer, said=_kept_lines(topic, kept))


@dead_letters.command()
@click.argument("topic")
@choosing
@click.option("--to", default=None, metavar="TOPIC", help="Publish to this topic, for all of its groups.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Redrive no more than this.")
@click.option(
    "--rate", type=FiniteFloat(0, min_open=True), default=None, help="Redrive no more than this a second."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@directory_option
@answering
def redrive(
    topic: str,
    to: str | None,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    directory: str,
    **chosen: Any,
) -> CommandAnswer:
    """Publish dead letters again, for the groups that gave them up.

    Running it twice publishes nothing twice.
    """
    request = {"verb": "redrive_dead", **_choice(topic, **chosen), "to": to or ""}
    request |= {"rate": "" if rate is None else repr(rate), "dry_run": "yes" if dry_run else ""}
    part = PART if rate is None else max(1, min(PART, int(rate * PART_S)))
    if dry_run:
        done = ask_all(directory, request | {"limit": "" if limit is None else str(limit)})
    else:
        done = _in_parts(directory, request, limit, part, 0.0 if rate is None else 1 / rate)
    messages, passed_over = sum(each["messages"] for each in done), done[-1]["passed_over"]
    words = f"{'would redrive' if dry_run else 'redrove'} {counted(messages, 'dead letter')} of {topic}"
    passed = (f"passed over {count:,}: {why}" for why, count in passed_over.items())
    said = chain([words], passed, () if messages else _kept_instead(directory, topic))
    return CommandAnswer({"messages": messages, "passed_over": passed_over, "dry_run": dry_run}, said=said)


def _kept_instead(directory: str, topic: str) -> Iterator[str]:
    """Nothing was found to be done: what partitions of the topic keep, which is no use here."""
    yield from _kept_lines(topic, ask(directory, "count_kept", **_choice(topic)))


def _in_parts(
    directory: str, request: dict[str, str], limit: int | None, part: int, pause_s: float = 0.0
) -> list[Any]:
    """The answers to a request that is made for a part at a time, until nothing is left, or `limit` is reached.

    What comes after the first part was asked for is left out: what is redriven may be there again soon.
    """
    require_directory(directory)

    async def work() -> list[Any]:
        found: list[Any] = []
        left = limit
        async with asking(directory) as ask_one:
            ends = await ask_one("ends_of_dead", topic=request["topic"])
            bound = {"below": " ".join(map(str, ends))}
            while True:
                most = part if left is None else min(left, part)
                answer = await ask_one(**request, **bound, limit=str(most))
                found.append(answer)
                count = answer if isinstance(answer, int) else answer["messages"]
                left = None if left is None else left - count
                if count < most or left == 0:
                    return found
                await trio.sleep(pause_s)

    return run(work)


@dead_letters.command()
@click.argument("topic")
@choosing
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Stop after this many.")
@click.option("--yes", is_flag=True, help="Do it; without, nothing is done.")
@directory_option
@answering
def purge(topic: str, limit: int | None, yes: bool, directory: str, **chosen: Any) -> CommandAnswer:
    """Remove dead letters for good. They are listed and redriven no more."""
    if not yes:
        raise InvalidArgument(
            "purging cannot be undone. Nothing was done. Look with `callboard dead-letters list`, then give --yes."
        )
    request = {"verb": "purge_dead", **_choice(topic, **chosen)}
    done = sum(_in_parts(directory, request, limit, PURGED_AT_A_TIME))
    words = f"purged {counted(done, 'dead letter')} of {topic}"
    return CommandAnswer(
        {"purged": done}, said=chain([words], () if done else _kept_instead(directory, topic))
    )
