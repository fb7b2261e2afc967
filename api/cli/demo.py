"""`callboard demo`: a day of web traffic, failing workers, crashing actors, a SIGKILL, and the account of it all.

Each act runs in a process of its own: act one over the first half of the events, act two over the second half. Act two
is killed in mid-flight; act three opens its directory again and finishes: its handler has no bug any more, and the dead
letters are delivered again. Then the account is computed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs
import click
import trio
from rich.console import RenderableType

from callboard.cli import exits
from callboard.cli.answers import CommandAnswer
from callboard.cli.errors import first_error
from callboard.cli.files import empty_directory, temporary_directory
from callboard.cli.interruption import run, telling_end
from callboard.cli.output import Cell, counted, progress, say, table
from callboard.cli.processes import spawn_callboard, wait_for_parent_to_go
from callboard.cli.traffic_options import empty_key_option, parse_delimiter, time_format_option
from callboard.demo.account import DemoAccount, DemoHistory, Left
from callboard.demo.act import Standing, perform, read_back
from callboard.demo.files import read_record_lines
from callboard.demo.stage import ONE, THREE, TWO, Stage
from callboard.log.errors import CallboardError
from callboard.log.limits import PARTITIONS_MAX
from callboard.traffic import Format, Tally

EVENTS_MAX: Final = 100_000_000


class DemoFailed(CallboardError):
    """The demo itself could not continue; the message says why."""


async def _all_acts(stage: Stage, history: DemoHistory) -> tuple[list[dict[str, Any]], Left]:
    """Perform the acts and feed the history; what they took, and what is left undone."""
    timings = [await _perform(stage, act) for act in (ONE, TWO, THREE)]
    left = await read_back(stage, history)
    for act in (ONE, TWO, THREE):
        history.add_process(read_record_lines(stage.recorded(act)), killed=act == TWO)
    return timings, left


async def _perform(stage: Stage, act: str) -> dict[str, Any]:
    """Run an act in a child process until it is over, and kill what is left of it; returns what it took."""
    first, last = stage.span(act)
    if not stage.quiet:
        of_what = "what is left of the " if act == THREE else ""
        say(f"{act}: {of_what}{last - first:,} events{', with the bug mended' if act == THREE else ''}")
    published = acknowledged = dead = 0
    started, is_over = trio.current_time(), False
    with progress(act, quiet=stage.quiet, keep=True) as advance:
        async with trio.open_nursery() as nursery:
            child = await spawn_callboard(nursery, ["demo-child", act, json.dumps(attrs.asdict(stage))])
            try:
                while not is_over and (line := await child.read_line()) is not None:
                    if not published:
                        started = trio.current_time()
                    published, acknowledged, to_do, dead, is_over = json.loads(line)
                    done = published if act == TWO else to_do if is_over else acknowledged
                    also = f"{dead:,} {'dead letters redriven' if act == THREE else 'met the bug'}"
                    advance(f"{published:,} published, {acknowledged:,} acknowledged, {also}", done, to_do)
            finally:
                with trio.CancelScope(shield=True):
                    status = await child.kill()
    if not is_over:
        raise DemoFailed(f"the process of {act} ended by itself with status {status}: {child.errors}")
    if act == TWO and not stage.quiet:
        say(f"{act}: process {child.pid} was killed after {published:,} of {last - first:,} publishes")
    if act == THREE and not stage.quiet:
        say(f"{act}: {counted(dead, 'dead letter')} delivered again")
    seconds = max(trio.current_time() - started, 1e-9)
    return {
        "act": act,
        "seconds": seconds,
        "published": published,
        "acknowledged": acknowledged,
        "published_per_s": round(published / seconds, 1),
        "acknowledged_per_s": round(acknowledged / seconds, 1),
    }


@click.command("demo")
@click.option(
    "--events",
    type=click.IntRange(2, EVENTS_MAX),
    help="Events to make (30,000) or to take of the input (all).",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 1 << 40),
    default=1,
    show_default=True,
    help="Fixes the events and which of them fail; not the timing.",
)
@click.option(
    "--input",
    "path",
    type=click.Path(),
    help="Real traffic: an access log, syslog, other lines that begin with a time, JSON lines, CSV or TSV; gzip,"
    " bzip2 and Zstandard too.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Format]),
    help="The input's format; detected without it.",
)
@click.option("--time-column", help="Column (name, or number from 1) or field that holds the time.")
@click.option("--key-column", help="Column or field that holds the key; a host column without it.")
@click.option("--value-column", help="Column or field to publish; the whole line without it.")
@time_format_option
@empty_key_option
@click.option(
    "--delimiter", callback=parse_delimiter, help="What separates the fields of CSV; 'tab' for a tab."
)
@click.option("--year", type=int, help="The year of syslog lines whose times have none.")
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), default=4, show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), default=4, show_default=True)
@click.option(
    "--directory", type=click.Path(), help="Where to work, new or empty; a temporary one without it."
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
def demo(directory: str | None, keep: bool, as_json: bool, **options: Any) -> int:
    """Publish a day of web traffic, and break things on purpose. Every message is accounted for.

    Act one: publishers and a group of workers that fail now and then, while actors are made to crash. Some messages are
    delayed, failed ones are retried, and those that the workers' bug meets become dead letters. Act two: the same in a
    process that is killed. Act three: the directory is opened again and the work is finished; with the bug mended, the
    dead letters are delivered again.

    Exits with 3 when the account does not balance.
    """
    with telling_end("the demo"), contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(temporary_directory(keep=keep))
        else:
            directory = empty_directory(directory)
        tally = Tally()
        stage = Stage(directory=directory, **options)
        digests = stage.digests(tally)
        stage = attrs.evolve(stage, total=len(digests))
        if not stage.quiet:
            say(f"{stage.total:,} events over {counted(stage.partitions, 'partition')} in {directory}")
        history = DemoHistory(digests, stage.delayed())
        with first_error():
            timings, left = run(partial(_all_acts, stage, history))
    account = history.account(left)
    source = "a synthetic day" if stage.path is None else stage.path
    document = {
        "account": attrs.asdict(account) | {"balanced": account.balanced},
        "seed": stage.seed,
        "source": source,
        "partitions": stage.partitions,
        "workers": stage.workers,
        "directory": directory,
        "bad_lines": tally.bad,
        "blank_lines": tally.blank,
        "bad_lines_named": tally.named,
        "timings": timings,
    }
    lines = _account_lines(f"Account of {source}, seed {stage.seed}", account, tally, timings)
    code = exits.OK if account.balanced else exits.UNBALANCED
    return CommandAnswer(document, lines, code=code).print(as_json=as_json)


def _account_lines(
    title: str, account: DemoAccount, tally: Tally, timings: Sequence[dict[str, Any]]
) -> Iterator[RenderableType]:
    bad = counted(tally.bad, f"bad {tally.unit}")
    yield from ("", account_table(title, account, bad, timings), *tally.reason_lines(tally.named))
    if tally.blank:
        yield f"{counted(tally.blank, f'blank {tally.unit}')} passed over."
    yield from (f"DOES NOT BALANCE: {problem}" for problem in account.problems)
    if account.balanced:
        yield "The account balances."


def account_table(
    title: str, account: DemoAccount, bad: str, timings: Sequence[dict[str, Any]]
) -> RenderableType:
    """The account for people: three sums, what went wrong, and the times."""
    a = account
    in_doubt = f"{a.publish_errors:,} in doubt after errors, {a.in_doubt_at_kill:,} at the kill"
    tries = f"{a.dead_rejected:,} rejected, {a.dead_failed:,} failed too often"
    first = a.delivered - a.redelivered
    rows: list[tuple[Cell, Cell, Cell]] = [
        ("events in the input", a.events, f"{bad} left out"),
        ("+ stored twice", a.stored_twice, in_doubt),
        ("+ dead letters redriven", a.redriven, "the handler was mended"),
        ("= stored", a.stored, ""),
        ("", None, ""),
        ("handled", a.handled, f"the work was done; ack in doubt: {a.acknowledged_in_doubt:,}"),
        ("+ dead letters", a.dead_lettered, tries),
        ("= stored", a.handled + a.dead_lettered, ""),
        ("", None, ""),
        ("delivered first", first, "to a worker's hands"),
        ("+ after a failure", a.redelivered_after_failure, "retried after 20, 100, then 300 ms"),
        ("+ after being given back", a.redelivered_after_release, "the handler was cancelled"),
        ("+ after the lease ran out", a.redelivered_after_hang, "the handler hung"),
        ("+ after the kill", a.redelivered_after_kill, ""),
        ("+ after crashes", a.redelivered_otherwise, "the ack was late, or lost"),
        ("= delivered", a.delivered, ""),
        ("", None, ""),
        ("published, with a receipt", a.acknowledged_publishes, ""),
        ("of these delayed", a.delayed, f"{a.delayed_at_kill:,} waited while the process was killed"),
        ("lost", a.lost, ""),
        ("altered", a.altered, ""),
        ("out of order within a key", a.out_of_order, "by first appearance in the log"),
        ("came before its time", a.delayed_early, ""),
        ("delivered after its ack", a.delivered_after_acknowledgement, ""),
        ("not settled at the end", a.unsettled + a.still_delayed + a.still_dead, ""),
        ("restarts", a.restarts, f"after {a.crashes:,} crashes of actors"),
        ("", None, ""),
    ]
    for timing in timings:
        rates = f"{timing['published_per_s']:,.0f}/s published, {timing['acknowledged_per_s']:,.0f}/s acknowledged"
        rows.append((timing["act"], f"{timing['seconds']:.2f} s", rates))
    for name, middle, high in (
        ("publish to acknowledged", a.publish_ms_p50, a.publish_ms_p99),
        ("publish to handled", a.handled_ms_p50, a.handled_ms_p99),
        ("delayed, late by", a.late_ms_p50, a.late_ms_p99),
    ):
        rows.append((name, _ms(middle), f"p99 {_ms(high)}"))
    return table(("what", "how many", "note"), rows, words=("what", "note"), title=title)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} ms"


@click.command("demo-child", hidden=True)
@click.argument("act")
@click.argument("stage")
def demo_child(act: str, stage: str) -> None:
    """One act of `callboard demo`; not for people."""

    def tell(standing: Standing) -> None:
        click.echo(json.dumps(standing))

    async def play() -> None:
        async def leave_with_parent() -> None:
            await wait_for_parent_to_go()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave_with_parent)
            await perform(Stage(**json.loads(stage)), act, tell)
            nursery.cancel_scope.cancel()

    with first_error():
        run(play)
