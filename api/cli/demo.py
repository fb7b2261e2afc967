"""`callboard demo`: a day of web traffic, failing workers, crashing partitions, a SIGKILL, and the account of it all.

Act one runs in this process over the first half of the events, act two in a child process over the second half. The
child is killed in mid-flight; act three opens its directory again and finishes. Then the account is computed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from array import array
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Any

import attrs
import click
import trio

from callboard.cli import exits
from callboard.cli.demo_account import DemoHistory, acknowledged_events, parse_line, table
from callboard.cli.demo_work import TOPIC, Act, FailurePlan, feed_log, plan_failures, unsettled
from callboard.cli.files import (
    RecordFile,
    empty_directory,
    read_lines,
    read_record_lines,
    temporary_directory,
)
from callboard.cli.group import first_error, run
from callboard.cli.output import progress, say, show, to_json
from callboard.cli.processes import spawn_callboard, wait_for_parent_to_go
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.limits import PARTITIONS_MAX
from callboard.recordings.event import Event
from callboard.recordings.lines import LineColumns
from callboard.recordings.profile import load_profile
from callboard.recordings.reading import LINE_BYTES_MAX, Format, Tally, read_events
from callboard.recordings.synthesis import synthesise
from callboard.recordings.times import TimeFormat
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.entropy import SeededEntropy

EVENTS_DEFAULT = 30_000
ONE, TWO, THREE = "act one", "act two", "act three"


class DemoFailed(CallboardError):
    """The demo itself could not continue; the message says why."""


@attrs.frozen(kw_only=True)
class Stage:
    """What all acts share, including the child's. Traffic comes from `path`, or is made from `seed` if it is None."""

    seed: int = 1
    path: str | None = None
    events: int | None = None
    """How many to make, or to take of the file; None takes all."""
    form: str | None = None
    time_column: str | None = None
    key_column: str | None = None
    value_column: str | None = None
    time_format: str = "auto"
    partitions: int = 4
    workers: int = 4
    directory: str = ""
    quiet: bool = True
    total: int = 0
    """How many events there are."""

    def traffic(
        self, *, first: int = 0, last: int | None = None, tally: Tally | None = None
    ) -> Iterator[Event]:
        """The events numbered from `first` to `last` (exclusive): the same whenever they are asked for."""
        if self.path is None:
            entropy = SeededEntropy(self.seed).fork("traffic")
            every = synthesise(load_profile(), self.events or EVENTS_DEFAULT, entropy)
        else:
            columns = LineColumns(
                time=self.time_column,
                key=self.key_column,
                value=self.value_column,
                time_format=TimeFormat(self.time_format),
            )
            lines = read_lines(self.path, line_bytes_max=LINE_BYTES_MAX)
            form = None if self.form is None else Format(self.form)
            every = read_events(lines, form=form, columns=columns, tally=tally)
        return itertools.islice(itertools.islice(every, self.events), first, last)

    def digests(self, tally: Tally) -> array[int]:
        """A fingerprint of each event. Raises `InvalidArgument` when there are fewer than two."""
        found = array("Q", (event.digest for event in self.traffic(tally=tally)))
        if len(found) < 2:
            reasons = "; ".join(f"line {number}: {reason}" for number, reason in tally.named[:3])
            told = f"{self.path or '--events'} gives {len(found)} events, and the demo needs two at least."
            raise InvalidArgument(f"{told} {reasons}".rstrip())
        return found

    def runtime(self) -> Runtime:
        """The runtime of one process."""
        return open_runtime(f"{self.directory}/data")

    def record(self, act: str) -> str:
        """The file in which an act's facts are recorded."""
        return f"{self.directory}/records/{act.replace(' ', '-')}.txt"

    def plan(self, act: str) -> FailurePlan:
        """What goes wrong in act one or two."""
        middle = self.total // 2
        first, last = (0, middle) if act == ONE else (middle, self.total)
        entropy = SeededEntropy(self.seed).fork(act)
        return plan_failures(entropy, first=first, last=last, partitions=self.partitions)

    async def perform(
        self,
        act: str,
        runtime: Runtime,
        plan: FailurePlan,
        report: Callable[[int, int, bool], None],
        *,
        skip: Container[int] = (),
        wait_for_kill: bool = False,
    ) -> None:
        """Perform an act. One that waits for its kill keeps the last tenth unpublished, so that it never finishes."""
        last = plan.last - (max(1, (plan.last - plan.first) // 10) if wait_for_kill else 0)
        numbered = enumerate(self.traffic(first=plan.first, last=last), plan.first)
        events = (pair for pair in numbered if pair[0] not in skip)
        with contextlib.closing(RecordFile(self.record(act))) as file:
            performed = Act(runtime, plan, file.write, report)
            if act == THREE:
                for found in await runtime.topic(TOPIC).describe():
                    performed.note("O", found.partition, found.visible_end)
            await performed.run(events, self.workers, wait_for_kill=wait_for_kill)


@attrs.define
class Timing:
    """How far an act is, and how long it took; called with its progress."""

    act: str
    total: int
    advance: Callable[[str, int, int | None], None]
    started: float = attrs.Factory(trio.current_time)
    published: int = 0
    acknowledged: int = 0

    def __call__(self, published: int, acknowledged: int, is_ripe: bool = False) -> None:
        """Record and show the act's progress."""
        self.published, self.acknowledged = published, acknowledged
        text = f"{published:,} of {self.total:,} published, {acknowledged:,} acknowledged"
        self.advance(text, acknowledged, self.total)

    def row(self) -> dict[str, Any]:
        """For the account."""
        seconds = max(trio.current_time() - self.started, 1e-9)
        counts = {"published": self.published, "acknowledged": self.acknowledged}
        rates = {f"{name}_per_s": round(count / seconds, 1) for name, count in counts.items()}
        return {"act": self.act, "seconds": seconds} | counts | rates


@contextlib.contextmanager
def _timed(stage: Stage, act: str, plan: FailurePlan, rows: list[dict[str, Any]]) -> Iterator[Timing]:
    total = plan.last - plan.first
    if not stage.quiet:
        say(f"{act}: {total:,} events")
    with progress(act, quiet=stage.quiet) as advance:
        timing = Timing(act, total, advance)
        yield timing
        rows.append(timing.row())


async def _all_acts(stage: Stage, history: DemoHistory) -> list[dict[str, Any]]:
    """Perform the acts and feed the history; what they took."""
    rows: list[dict[str, Any]] = []
    plan = stage.plan(ONE)
    with _timed(stage, ONE, plan, rows) as timing:
        async with stage.runtime() as runtime:
            await runtime.create_topic(TOPIC, partitions=stage.partitions)
            await stage.perform(ONE, runtime, plan, timing)
    plan = stage.plan(TWO)
    with _timed(stage, TWO, plan, rows) as timing:
        await _kill_in_mid_flight(stage, timing)
    plan = attrs.evolve(plan, crashes=())
    done = set(acknowledged_events(read_record_lines(stage.record(TWO))))
    with _timed(stage, THREE, plan, rows) as timing:
        async with stage.runtime() as runtime:
            await stage.perform(THREE, runtime, plan, timing, skip=done)
            history.add_unsettled(await unsettled(runtime))
            await feed_log(runtime, history)
    for act in (ONE, TWO, THREE):
        for line in read_record_lines(stage.record(act)):
            try:
                history.add_fact(parse_line(line))
            except ValueError:
                history.add_unreadable(line)
        history.end_process(killed=act == TWO)
    return rows


async def _kill_in_mid_flight(stage: Stage, timing: Timing) -> None:
    """Run act two in a child process and kill it when it is ripe."""
    async with trio.open_nursery() as nursery:
        child = await spawn_callboard(nursery, ["demo-child", json.dumps(attrs.asdict(stage))])
        is_ripe = False
        try:
            while not is_ripe and (line := await child.read_line()) is not None:
                if not timing.published:
                    timing.started = trio.current_time()
                published, acknowledged, is_ripe = json.loads(line)
                timing(published, acknowledged)
        finally:
            with trio.CancelScope(shield=True):
                status = await child.kill()
    if not is_ripe:
        raise DemoFailed(f"The child process ended by itself with status {status}: {child.errors}")
    if not stage.quiet:
        say(f"{TWO}: process {child.pid} was killed after {timing.published:,} publishes")


async def _act_two(stage: Stage) -> None:
    """The child's part."""

    async def leave_with_parent() -> None:
        await wait_for_parent_to_go()
        nursery.cancel_scope.cancel()

    def report(published: int, acknowledged: int, is_ripe: bool) -> None:
        click.echo(json.dumps([published, acknowledged, is_ripe]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_with_parent)
        async with stage.runtime() as runtime:
            await stage.perform(TWO, runtime, stage.plan(TWO), report, wait_for_kill=True)


@click.command("demo")
@click.option(
    "--events", type=click.IntRange(2), help="Events to make (30,000) or to take of the input (all)."
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Fixes what fails and when."
)
@click.option(
    "--input",
    "path",
    type=click.Path(),
    help="Real traffic: an access log, JSON lines, CSV or TSV; gzip too.",
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
@click.option(
    "--time-format",
    type=click.Choice([form.value for form in TimeFormat]),
    default="auto",
    show_default=True,
    help="How times are written.",
)
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), default=4, show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), default=4, show_default=True)
@click.option(
    "--directory", type=click.Path(), help="Where to work, new or empty; a temporary one without it."
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
def demo(directory: str | None, keep: bool, as_json: bool, **options: Any) -> None:
    """Publish a day of web traffic, break things on purpose, and account for every message.

    Act one: publishers and a group of workers that fail now and then, while partitions are made to crash. Act two: the
    same in a child process that is killed. Act three: the directory is opened again and the work is finished.

    Exits with 3 when the account does not balance.
    """
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(temporary_directory(keep=keep))
        else:
            directory = empty_directory(directory)
        tally = Tally()
        stage = Stage(directory=directory, **options)
        digests = stage.digests(tally)
        stage = attrs.evolve(stage, total=len(digests))
        if not stage.quiet:
            say(f"{stage.total:,} events over {stage.partitions} partitions in {directory}")
        history = DemoHistory(digests)
        with first_error():
            timings = run(partial(_all_acts, stage, history))
    account = history.account()
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
            "bad_lines_named": tally.named,
            "timings": timings,
        }
        click.echo(to_json(found))
    else:
        show(table(f"Account of {source}, seed {stage.seed}", account, tally.bad, timings))
        show(*(f"line {number}: {reason}" for number, reason in tally.named))
        show(*(f"DOES NOT BALANCE: {problem}" for problem in account.problems))
        if account.balanced:
            show("The account balances.")
    if not account.balanced:
        raise click.exceptions.Exit(exits.UNBALANCED)


@click.command("demo-child", hidden=True)
@click.argument("stage")
def demo_child(stage: str) -> None:
    """The second act of `callboard demo`; not for people."""
    with first_error():
        run(partial(_act_two, Stage(**json.loads(stage))))
