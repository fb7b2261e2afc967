"""`callboard rehearse`: would today's handler have done with what was published then?"""

from __future__ import annotations

import contextlib
import inspect
from functools import partial
from typing import Any

import click

from callboard.actors.kernel.failures import describe
from callboard.cli import exits
from callboard.cli.answers import CommandAnswer
from callboard.cli.errors import first_error
from callboard.cli.files import empty_directory, temporary_directory
from callboard.cli.interruption import run
from callboard.cli.named import find_named
from callboard.cli.options import FiniteFloat, json_option
from callboard.cli.output import progress, table
from callboard.cli.replay import speed_option
from callboard.consumer.work import CONCURRENCY_MAX
from callboard.log.errors import InvalidArgument
from callboard.offline import require_directory
from callboard.reports.reporting import mute_groups
from callboard.simulations.workload.rehearsing import Rehearsal, rehearse


def handler_named(name: str) -> Any:
    """The async function of that name, "package.module:function". Raises `InvalidArgument`."""
    found = find_named(name, "function", describe)
    if not inspect.iscoroutinefunction(found):
        raise InvalidArgument(
            f"{name!r:.200} is no async function of one message. Nothing was run. Name one."
        )
    return found


@click.command("rehearse")
@click.argument("directory", metavar="DIR")
@click.option("--topic", required=True, metavar="NAME", help="What was published to this topic.")
@click.option("--group", required=True, metavar="NAME", help="As this group took it.")
@click.option(
    "--handler", required=True, metavar="MODULE:FUNCTION", help="What takes it today: as given to `work`."
)
@speed_option
@click.option(
    "--concurrency",
    type=click.IntRange(1, CONCURRENCY_MAX),
    default=1,
    show_default=True,
    help="How many messages are handled at once.",
)
@click.option(
    "--patience",
    type=FiniteFloat(0.1, 86_400.0),
    default=60.0,
    show_default=True,
    help="End when nothing was settled for this many seconds.",
)
@click.option("--keep", metavar="PATH", help="Work in this folder, new or empty, and leave it there.")
@json_option
def rehearse_command(
    directory: str,
    topic: str,
    group: str,
    handler: str,
    speed: float,
    concurrency: int,
    patience: float,
    keep: str | None,
    as_json: bool,
) -> int:
    """Try a handler on what was published to a topic. It is compared with how its group went then.

    DIR is a runtime's directory, or a copy of one. It is only read, and may be open elsewhere. What is compared comes
    from delivery journals: lag, redeliveries, dead letters, and how long messages took. Exits with 13 when something is
    worse now.
    """
    require_directory(directory)
    function = handler_named(handler)
    mute_groups()  # it shows in figures how often the handler fails
    with contextlib.ExitStack() as stack:
        if keep is None:
            into = stack.enter_context(temporary_directory(keep=False))
        else:
            into = empty_directory(keep)
        with progress("rehearsing", quiet=as_json) as advance, first_error():
            found = run(
                partial(
                    rehearse,
                    directory,
                    topic,
                    group,
                    function,
                    into=into,
                    speed=speed,
                    concurrency=concurrency,
                    patience=patience,
                    on_progress=lambda words: advance(words, 0, None),
                )
            )
    code = exits.WORSE if "worse" in found.verdict().values() else exits.OK
    return CommandAnswer(found.document(), _shown(found, directory), code=code).print(as_json=as_json)


def _shown(found: Rehearsal, directory: str) -> list[Any]:
    verdict = found.verdict()
    rows = [
        (name, _number(then, unit), _number(now, unit), verdict.get(name, ""))
        for name, then, now, unit in found.rows()
    ]
    title = f"{found.topic} to {found.group} in {directory}, then and now"
    lines: list[Any] = [table(("what", "then", "now", ""), rows, words=("what", ""), title=title)]
    lines += [f"then: {note}" for note in found.then.notes]
    lines += [f"now: {note}" for note in found.now.notes]
    if not found.is_finished:
        left = found.now.messages - found.now.settled
        lines.append(f"Now {left:,} messages were not settled when the patience was over.")
    if not found.has_its_pace:
        lines.append("At another speed lags and times are those of another load, and are not judged.")
    worse = dict.fromkeys(name.split(",")[0] for name, word in verdict.items() if word == "worse")
    lines.append(f"Worse now: {', '.join(worse)}." if worse else "Nothing is worse now.")
    return lines


def _number(number: int | None, unit: str) -> str:
    if number is None:
        return "-"
    return f"{number / 1000:,.1f} ms" if unit else f"{number:,}"
