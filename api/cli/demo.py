"""`callboard demo`: a day of web traffic, failing workers, crashing partitions, a SIGKILL, and the account of it all.

Act one runs in this process over the first half of the events, act two in a child process over the second half. The
child is killed while it works; act three opens its directory again and finishes. Then the account is computed.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs
import click
import trio

from callboard.cli import exits
from callboard.cli.demo_account import History
from callboard.cli.demo_act import TOPIC, Act, feed_log, perform, record_ends, unsettled
from callboard.cli.demo_plan import FailurePlan, plan_failures
from callboard.cli.demo_record import Recorder, acknowledged_events, parse_line
from callboard.cli.demo_report import (
    Summary,
    Timing,
    print_summary,
    progress_stage,
    say,
    summary_to_dict,
)
from callboard.cli.demo_source import Source
from callboard.cli.files import (
    RecordFile,
    empty_directory,
    read_record_lines,
    temporary_directory,
)
from callboard.cli.group import first_error
from callboard.cli.processes import Child, spawn_callboard, wait_for_parent_to_go
from callboard.log.errors import CallboardError
from callboard.log.limits import PARTITIONS_MAX
from callboard.recordings import Columns, Format, Tally, TimeFormat
from callboard.runtime import open_runtime
from callboard.simulations.entropy import SeededEntropy

__all__ = ["demo", "demo_child"]

_ACTS = ("act one", "act two", "act three")

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R")


class DemoFailed(CallboardError):
    """The demo could not continue; the message says why."""


@attrs.frozen(kw_only=True)
class Stage:
    """What all acts share."""

    source: Source
    events: int
    partitions: int
    workers: int
    directory: str
    quiet: bool

    @property
    def data(self) -> str:
        """The runtime's directory."""
        return f"{self.directory}/data"

    def record(self, act: str) -> str:
        """The file in which an act's facts are recorded."""
        return f"{self.directory}/records/{act.replace(' ', '-')}.txt"

    def plan(self, act: str) -> FailurePlan:
        """What goes wrong in act one or two."""
        middle = self.events // 2
        first, last = (0, middle) if act == _ACTS[0] else (middle, self.events)
        entropy = SeededEntropy(self.source.seed).fork(act)
        return plan_failures(entropy, first=first, last=last, partitions=self.partitions)


# -- the acts


async def _act_in_process(stage: Stage, act: str) -> Timing:
    plan = stage.plan(act)
    async with open_runtime(stage.data) as runtime:
        await runtime.create_topic(TOPIC, partitions=stage.partitions)
        timing = await _perform(
            stage, act, runtime, Act(source=stage.source, plan=plan, workers=stage.workers)
        )
    return timing


async def _perform(stage: Stage, act: str, runtime: Any, script: Act) -> Timing:
    published = acknowledged = 0

    def keep(now_published: int, now_acknowledged: int, _under_way: int) -> None:
        nonlocal published, acknowledged
        published, acknowledged = now_published, now_acknowledged
        show(published, acknowledged)

    total = script.plan.last - script.plan.first
    started = trio.current_time()
    with (
        contextlib.closing(RecordFile(stage.record(act))) as file,
        progress_stage(act, total, quiet=stage.quiet) as show,
    ):
        await perform(runtime, script, Recorder(file.write), keep)
    seconds = trio.current_time() - started
    return Timing(act=act, seconds=seconds, published=published, acknowledged=acknowledged)


async def _act_in_child(stage: Stage) -> Timing:
    """Run act two in a child process and kill it while it works."""
    act = _ACTS[1]
    plan = stage.plan(act)
    arguments = ["demo-child", *stage.source.arguments(), f"--total={stage.events}"]
    arguments += [f"--partitions={stage.partitions}", f"--workers={stage.workers}"]
    arguments.append(f"--directory={stage.directory}")
    async with trio.open_nursery() as nursery:
        child = await spawn_callboard(nursery, arguments)
        try:
            timing = await _watch(stage, child, plan)
        finally:
            with trio.CancelScope(shield=True):
                status = await child.kill()
    if timing is None:
        raise DemoFailed(f"The child process ended by itself with status {status}: {child.errors}")
    say(f"{act}: process {child.pid} was killed after {timing.published:,} publishes", quiet=stage.quiet)
    return timing


async def _watch(stage: Stage, child: Child, plan: FailurePlan) -> Timing | None:
    """Follow the child's progress until it is to be killed; None when it ended before."""
    started: float | None = None
    with progress_stage(_ACTS[1], plan.last - plan.first, quiet=stage.quiet) as show:
        while (line := await child.read_line()) is not None:
            if started is None:
                started = trio.current_time()
            published, acknowledged, under_way = map(int, line.split())
            show(published, acknowledged)
            if published >= plan.kill_after and acknowledged and under_way:
                seconds = trio.current_time() - started
                return Timing(act=_ACTS[1], seconds=seconds, published=published, acknowledged=acknowledged)
    return None


async def _finish(stage: Stage, history: History) -> Timing:
    """Open the killed process's directory, publish what has no receipt, settle all messages, and read the log."""
    act = _ACTS[2]
    done = set(acknowledged_events(read_record_lines(stage.record(_ACTS[1]))))
    plan = attrs.evolve(stage.plan(_ACTS[1]), crashes=())
    async with open_runtime(stage.data) as runtime:
        with contextlib.closing(RecordFile(stage.record(act))) as file:
            await record_ends(runtime, Recorder(file.write))
        script = Act(source=stage.source, plan=plan, workers=stage.workers, skip=done)
        timing = await _perform(stage, act, runtime, script)
        history.add_unsettled(await unsettled(runtime))
        await feed_log(runtime, history)
    return timing


def _feed_records(stage: Stage, history: History) -> None:
    for act in _ACTS:
        for line in read_record_lines(stage.record(act)):
            try:
                fact = parse_line(line)
            except ValueError:
                history.add_unreadable(line)
                continue
            history.add_fact(fact)
        history.end_process(killed=act == _ACTS[1])


async def _run(stage: Stage, digests: array[int], tally: Tally) -> Summary:
    history = History(digests)
    timings = [
        await _act_in_process(stage, _ACTS[0]),
        await _act_in_child(stage),
        await _finish(stage, history),
    ]
    _feed_records(stage, history)
    source = stage.source
    return Summary(
        account=history.account(),
        seed=source.seed,
        source="a synthetic day" if source.path is None else source.path,
        partitions=stage.partitions,
        workers=stage.workers,
        directory=stage.directory,
        bad_lines=tally.bad,
        bad_lines_named=tuple(tally.named),
        timings=tuple(timings),
    )


async def _run_child(stage: Stage) -> None:
    act = _ACTS[1]
    script = Act(source=stage.source, plan=stage.plan(act), workers=stage.workers, hold_back=True)

    async def leave_with_parent() -> None:
        await wait_for_parent_to_go()
        nursery.cancel_scope.cancel()

    def show(published: int, acknowledged: int, under_way: int) -> None:
        click.echo(f"{published} {acknowledged} {under_way}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_with_parent)
        async with open_runtime(stage.data) as runtime:
            with contextlib.closing(RecordFile(stage.record(act))) as file:
                await perform(runtime, script, Recorder(file.write), show)


# -- the commands


def _source_options(command: C) -> C:
    formats = click.Choice([form.value for form in Format])
    times = click.Choice([form.value for form in TimeFormat])
    options = [
        click.option(
            "--events",
            type=click.IntRange(2),
            help="How many events to generate (30,000) or read (all).",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0),
            default=1,
            show_default=True,
            help="Decides what fails and when.",
        ),
        click.option(
            "--input",
            "path",
            type=click.Path(),
            help="Real traffic: an access log, JSON lines, CSV or TSV; gzip too.",
        ),
        click.option("--format", "form", type=formats, help="The input's format (default: detected)."),
        click.option("--time-column", help="Column (name, or number from 1) or field with the time."),
        click.option("--key-column", help="Column or field with the key (default: a host column)."),
        click.option("--value-column", help="Column or field to publish (default: the whole line)."),
        click.option(
            "--time-format", type=times, default="auto", show_default=True, help="How times are written."
        ),
        click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), default=4, show_default=True),
        click.option("--workers", type=click.IntRange(1, 256), default=4, show_default=True),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _source(options: dict[str, Any]) -> Source:
    columns = Columns(
        time=options.pop("time_column"),
        key=options.pop("key_column"),
        value=options.pop("value_column"),
        time_format=TimeFormat(options.pop("time_format")),
    )
    form, path = options.pop("form"), options.pop("path")
    return Source(
        seed=options.pop("seed"),
        path=path,
        limit=options.pop("events"),
        form=None if form is None else Format(form),
        columns=columns,
    )


@click.command("demo")
@_source_options
@click.option(
    "--directory", type=click.Path(), help="The directory to use, new or empty (default: a temporary one)."
)
@click.option("--keep", is_flag=True, help="Keep the temporary directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def demo(directory: str | None, keep: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Publish a day of web traffic, break things on purpose, and account for every message.

    Act one: publishers and a group of workers that fail now and then, while the demo crashes partitions. Act two: the
    same in a child process, which the demo kills. Act three: the demo opens the directory again and finishes the work.

    Exits with 3 when the account does not balance.
    """
    source = _source(options)
    with _workplace(directory, keep=keep) as place:
        tally = Tally()
        digests = source.digests(tally)
        stage = Stage(source=source, events=len(digests), directory=place, quiet=quiet, **options)
        say(f"{len(digests):,} events over {stage.partitions} partitions in {place}", quiet=quiet)
        summary = _run_trio(_run, stage, digests, tally)
    if as_json:
        click.echo(json.dumps(summary_to_dict(summary), indent=2))
    else:
        print_summary(summary)
    if not summary.account.balanced:
        raise click.exceptions.Exit(exits.UNBALANCED)


@click.command("demo-child", hidden=True)
@_source_options
@click.option("--directory", type=click.Path(), required=True)
@click.option("--total", type=click.IntRange(2), required=True)
def demo_child(directory: str, total: int, **options: Any) -> None:
    """The second act of `callboard demo`; not for people."""
    source = _source(options)
    stage = Stage(source=source, events=total, directory=directory, quiet=True, **options)
    _run_trio(_run_child, stage)


def _workplace(directory: str | None, *, keep: bool) -> contextlib.AbstractContextManager[str]:
    if directory is None:
        return temporary_directory(keep=keep)
    return contextlib.nullcontext(empty_directory(directory))


def _run_trio(function: Callable[..., Coroutine[Any, Any, R]], *arguments: Any) -> R:
    """`trio.run`; from a group of Callboard's errors it raises only the first."""
    try:
        with first_error():
            return trio.run(function, *arguments)
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise
