"""`callboard demo`: a day of web traffic, failing workers, crashing actors, a SIGKILL, and the account of it all.

Each act runs in a process of its own: act one over the first half of the events, act two over the second half. Act two
is killed in mid-flight; act three opens its directory again and finishes: its handler has no bug any more, and the dead
letters are delivered again. Then the account is computed.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from functools import partial
from typing import Any, Final

import attrs
import click
import trio

from callboard.actors.partition.choice.addressing import FOR_GROUP
from callboard.cli import exits
from callboard.cli.demo.account import DemoHistory, Left, account_table
from callboard.cli.demo.stage import DEAD_TOPIC, ONE, THREE, TOPIC, TWO, Stage
from callboard.cli.demo.work import identify, kept, origin_of, unsettled
from callboard.cli.errors import first_error
from callboard.cli.files import empty_directory, read_record_lines, temporary_directory
from callboard.cli.interruption import run, telling_end
from callboard.cli.output import counted, progress, say, show, to_json
from callboard.cli.processes import spawn_callboard
from callboard.cli.traffic_options import empty_key_option, time_format_option
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.limits import PARTITIONS_MAX
from callboard.message import to_us
from callboard.traffic import Format, Tally, digest_of

EVENTS_MAX: Final = 100_000_000


class DemoFailed(CallboardError):
    """The demo itself could not continue; the message says why."""


def digests_of(stage: Stage, tally: Tally) -> array[int]:
    """A fingerprint of each event. Raises `InvalidArgument` when there are fewer than two."""
    found = array("Q", (event.digest for event in stage.traffic(tally=tally)))
    if len(found) < 2:
        problem = f"{stage.path or '--events'} gives {len(found)} events, and the demo needs two at least."
        raise InvalidArgument(f"{problem} {tally.reasons()}".rstrip())
    return found


async def _all_acts(stage: Stage, history: DemoHistory) -> tuple[list[dict[str, Any]], Left]:
    """Perform the acts and feed the history; what they took, and what is left undone."""
    timings = [await _perform(stage, act) for act in (ONE, TWO, THREE)]
    async with stage.runtime() as runtime:
        topic = runtime.topic(TOPIC)
        for partition in range(topic.partitions):
            async for record in topic.read(partition=partition):
                headers = record.headers
                history.add_stored(
                    partition,
                    record.offset,
                    identify(headers)[0],
                    digest_of(record.key, record.value or b""),
                    None if record.key is None else digest_of(record.key, b""),
                    appended_us=to_us(record.append_time),
                    redriven=FOR_GROUP in headers,
                )
        async for record in runtime.topic(DEAD_TOPIC).read():
            partition, offset = origin_of(record.headers)
            history.add_dead(partition, offset, digest_of(record.key, record.value or b""))
        left_dead = await kept(runtime) + sum((await runtime.dead_letters(DEAD_TOPIC).count()).values())
        left = Left(await unsettled(runtime), await topic.delayed().count(), left_dead)
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
@click.option("--delimiter", help="What separates the fields of CSV; 'tab' for a tab.")
@click.option("--year", type=int, help="The year of syslog lines whose times have none.")
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), default=4, show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), default=4, show_default=True)
@click.option(
    "--directory", type=click.Path(), help="Where to work, new or empty; a temporary one without it."
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
def demo(directory: str | None, keep: bool, as_json: bool, **options: Any) -> None:
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
        digests = digests_of(stage, tally)
        stage = attrs.evolve(stage, total=len(digests))
        if not stage.quiet:
            say(f"{stage.total:,} events over {counted(stage.partitions, 'partition')} in {directory}")
        history = DemoHistory(digests, stage.delayed())
        with first_error():
            timings, left = run(partial(_all_acts, stage, history))
    account = history.account(left)
    source = "a synthetic day" if stage.path is None else stage.path
    if as_json:
        found = {
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
        click.echo(to_json(found))
    else:
        bad = counted(tally.bad, f"bad {tally.unit}")
        show("", account_table(f"Account of {source}, seed {stage.seed}", account, bad, timings))
        show(*tally.reason_lines(tally.named))
        if tally.blank:
            show(f"{counted(tally.blank, f'blank {tally.unit}')} passed over.")
        show(*(f"DOES NOT BALANCE: {problem}" for problem in account.problems))
        if account.balanced:
            show("The account balances.")
    if not account.balanced:
        raise click.exceptions.Exit(exits.UNBALANCED)
