"""Runs a trial under its seeds until one fails, shrinks that failure, and raises it with an explanation.

A failure is shrunk to fewer faults, a smaller workload and a simpler schedule, as long as the same promise breaks.
"""

from __future__ import annotations

import re
import shlex
import time
import traceback
from collections.abc import Iterable, Sequence
from types import TracebackType

import attrs

from callboard.actors.kernel.durable import DurableActor
from callboard.simulations.faults import Plan
from callboard.simulations.search.coverage import points
from callboard.simulations.search.differences import first_difference
from callboard.simulations.search.replay import shown_workload, words_of
from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.search.story import tell
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run, Tape
from callboard.simulations.world.trace import clean
from callboard.testing.errors import NotRepeatable
from callboard.testing.guard import is_control, is_drawing
from callboard.testing.reports import write_report
from callboard.testing.session import RequestedRun
from callboard.testing.trial import Trial, points_passed

MACHINERY = ("trio.", "outcome", "callboard.simulations.", "callboard.testing.")
UNCONTROLLED = (
    "Something that the simulator does not control decides: sets ordered by identity, threads, real time, state that "
    "one run leaves to the next in globals or fixtures. "
)
NUMBER = re.compile(r"\d+(\.\d+)?")
TICKS_MAX = 2_000_000
"""Scheduler ticks of all attempts together, about ten to twenty seconds: the usual end, so that the same failure always
shrinks to the same result."""
SHRINK_S = 60.0
"""As `callboard simulate --shrink-seconds`. What takes no ticks counts here: a large workload that is drawn anew."""
TRACED_TICKS_MAX = 100_000
"""Of a run that took more the traces of two runs are not compared: they are large."""
LEAST_TICKS = 100_000
"""The minimum of an attempt's limit."""


def search(trial: Trial, seeds: Iterable[int], asked: RequestedRun) -> None:
    """Run the trial under each seed; raises the first failure, with a note that explains it."""
    __tracebackhide__ = True
    passed: dict[str, int] = {}
    asked.is_planned = isinstance(trial.faults, Plan)
    is_first = True
    for seed in seeds:
        try:
            case = trial.case(seed, passed)
            run = trial.run(seed, case, trace="digest" if asked.twice else "off")
            if is_first and trial.is_aimed and (run.boots or run.virtual_s):
                # It had no faults yet, as seed 0 never has: from what that seed passes all others draw theirs.
                passed = points_passed(run if seed == 0 else trial.run(0, trial.case(0)))
                if seed:
                    case = trial.case(seed, passed)
                    run = trial.run(seed, case, trace="digest" if asked.twice else "off")
            is_first = False
        except KeyboardInterrupt as pressed:  # pytest shows its line: that of an endless loop
            raise without_machinery(pressed, trial.file) from None
        for name, hits in trial.faults_met(case, run).items():
            asked.faults[name] = asked.faults.get(name, 0) + hits
        for name, hits in points(run.probes).items():
            asked.points[name] = asked.points.get(name, 0) + hits
        if run.failure is not None:
            asked.points.clear()  # the seeds that were not run say nothing about them
            asked.faults.clear()
            raise _explained(trial, seed, case, run, run.failure, asked)
        if asked.twice:
            _compare(trial, seed, case, run, asked)


def _compare(trial: Trial, seed: int, case: Case, run: Run, asked: RequestedRun) -> None:
    """Run a seed that passed once more; raises `NotRepeatable` when that takes another course."""
    again = trial.run(seed, case, trace="digest", tick_limit=_limit(run))
    if again.trace.digest == run.trace.digest and again.failure is None:
        return
    failed = "" if again.failure is None else f", and the second failed ({words_of(again.failure)})"
    raise NotRepeatable(
        f"two runs of seed {seed} differ{failed}. {UNCONTROLLED}To look again: {way_back(asked, seed)} "
        f"--callboard-check-determinism{_two_runs(trial, seed, case, run.ticks)}",
        seed=seed,
    ) from again.failure


def _explained(
    trial: Trial, seed: int, case: Case, run: Run, failure: BaseException, asked: RequestedRun
) -> BaseException:
    """What to raise for this run."""
    if is_control(failure):
        return failure
    if is_drawing():  # Hypothesis runs the test again and again, and shrinks by itself
        watched = trial.run(seed, case, watched=True)
        found = f"It failed under seed {seed}, with scheduler {run.scheduler!r}."
        failure.add_note(account(trial.name, watched if watched.failure else run, [found], asked))
        return without_machinery(failure, trial.file)
    if not _is_endless(run):
        again = trial.run(seed, case, tick_limit=_limit(run)).failure
        if _said(again, trial.file) != _said(failure, trial.file):
            return _unrepeated(trial, seed, case, run, again, asked)
    small = smallest(trial, seed, case, run)
    if small.run.failure is None:
        return _unrepeated(trial, seed, case, run, None, asked)
    workload = (
        [] if small.case.workload is None else [f"Workload: {shown_workload(repr(small.case.workload))}"]
    )
    every = trial.snapshot_every(seed)
    if every is not None and small.run.boots and DurableActor.__subclasses__():
        workload.append(f"Limits: DurableActor.snapshot_every = {every}, for classes that do not say it.")
    found = f"Found with scheduler {run.scheduler!r}. {_shrunk(case, small)}"
    small.run.failure.add_note(account(trial.name, small.run, [*workload, found], asked))
    return without_machinery(small.run.failure, trial.file)


def _unrepeated(
    trial: Trial, seed: int, case: Case, run: Run, again: BaseException | None, asked: RequestedRun
) -> BaseException:
    """What to raise for a run that failed, and then did not, or with `again`."""
    failure = run.failure
    assert failure is not None  # noqa: S101 - it is what is explained
    unexplained = NotRepeatable(
        f"seed {seed} failed ({words_of(failure)}), and when it was run again it "
        f"{'did not' if again is None else f'failed in another way ({words_of(again)})'}. "
        f"{UNCONTROLLED}To look again: {way_back(asked, seed)}"
        f"{_two_runs(trial, seed, case, run.ticks)}",
        seed=seed,
    )
    unexplained.__cause__ = without_machinery(failure, trial.file)  # all that is known of it
    return unexplained


def _is_endless(run: Run) -> bool:
    """Whether another run would take as long as this one, which is too long: usually an endless loop."""
    return (
        run.ticks > TICKS_MAX
        or getattr(run.failure, "computes", False)
        or getattr(run.failure, "abandoned", False)
    )


def _limit(run: Run) -> int:
    """Ticks for another attempt: one that takes much longer is not simpler, and may never end."""
    return 4 * run.ticks + LEAST_TICKS


def _said(failure: BaseException | None, file: str) -> object:
    """What two runs of one seed have in common: where it fails, and all that it says."""
    return _kind(failure, file), "" if failure is None else clean(words_of(failure))


@attrs.frozen
class Small:
    """A shrunk failure: the smaller case with its schedule, and a run of it."""

    case: Case
    run: Run
    runs: int
    is_unfinished: bool = False
    """The time was up before all had been tried."""


def smallest(trial: Trial, seed: int, case: Case, run: Run) -> Small:
    """Shrink this failed run, which fails again in the same way.

    A run that alone takes more ticks than all attempts may take, usually an endless loop, is not shrunk; nor is one
    that computes for ever or does not end when it is asked to, as every attempt would.
    """
    if _is_endless(run):
        return Small(case, run, 0)
    failure = run.failure
    wanted = _kind(failure, trial.file)
    limit = _limit(run)
    ticks = 0

    def fails(tried: Case, *, record: bool) -> Tape | None:
        nonlocal ticks
        went = trial.run(seed, tried, record_schedule=record, tick_limit=limit)
        ticks += went.ticks
        if _kind(went.failure, trial.file) != wanted:
            return None
        return went.tape or Tape()

    end = time.monotonic() + SHRINK_S
    budget = RunBudget(out_of_time=lambda: ticks > TICKS_MAX or time.monotonic() > end)
    found = shrink(case, fails, budget, drawing=trial.drawing(seed))
    return Small(found.case, trial.run(seed, found.case, watched=True), found.runs, time.monotonic() > end)


def _two_runs(trial: Trial, seed: int, case: Case, ticks: int) -> str:
    """The first line in which the traces of two more runs of the seed differ, in words."""
    if ticks > TRACED_TICKS_MAX:
        return ""
    limit = 4 * ticks + LEAST_TICKS
    runs = [trial.run(seed, case, trace="full", tick_limit=limit) for _ in range(2)]
    found = first_difference(runs[0].trace.lines, runs[1].trace.lines)
    if isinstance(found, int):
        return "\nThe traces of two more runs of it do not differ."
    return f"\nThe first line in which the traces of two more runs of it differ (A, B):\n{found.text()}"


def _kind(failure: BaseException | None, file: str) -> object:
    """What must stay the same: the promise and its words without numbers; for other errors, the type and the line."""
    if failure is None:
        return None
    if isinstance(failure, Violation):
        return failure.promise, NUMBER.sub("0", failure.words)
    if isinstance(failure, BaseExceptionGroup):
        return frozenset(_kind(inner, file) for inner in failure.exceptions)
    lines = [at.lineno for at in traceback.extract_tb(failure.__traceback__) if at.filename == file]
    return type(failure), tuple(lines[-1:])


def way_back(asked: RequestedRun, seed: int) -> str:
    """The command that runs this test under this seed only."""
    return f"pytest {shlex.quote(asked.node or 'path::test')} --callboard-seed={seed}"


def account(name: str, run: Run, remarks: Sequence[str], asked: RequestedRun) -> str:
    """The text about a failure: its story, and where its timeline is if one was asked for."""
    story = tell(run, way_back(asked, run.seed), name, remarks)
    lines = ["", story.text()]
    if asked.report is not None:
        lines += ["", write_report(asked.report, asked.node or name, run, story)]
    return "\n".join(lines)


def _shrunk(case: Case, small: Small) -> str:
    if getattr(small.run.failure, "computes", False):
        return "Not made smaller: every attempt would compute for as long."
    if getattr(small.run.failure, "abandoned", False):
        return "Not made smaller: every attempt would have to be abandoned."
    more = f" There was more to try after {SHRINK_S:g} s." if small.is_unfinished else ""
    if not small.runs and small.is_unfinished:
        return f"Not made smaller.{more}"
    if not small.runs:
        return f"Not made smaller: it took {small.run.ticks:,} scheduler ticks."
    before, after = len(case.plan.faults), len(small.case.plan.faults)
    choices = small.case.tape.choices if small.case.tape is not None else 0
    parts = [f"faults {before} to {after}"] if before else []
    parts.append(f"tasks out of turn in {choices} ticks" if choices else "every task in its turn")
    runs = f"{small.runs} more run{'' if small.runs == 1 else 's'}"
    return f"Shrunk by {runs}: {', '.join(parts)}.{more}"


def without_machinery(failure: BaseException, file: str) -> BaseException:
    """The failure with a traceback that begins in `file` and leaves out frames of trio and the simulator."""
    if isinstance(failure, BaseExceptionGroup):
        for inner in failure.exceptions:
            without_machinery(inner, file)
    steps: list[TracebackType] = []
    step = failure.__traceback__
    while step is not None:
        if steps or step.tb_frame.f_code.co_filename == file:
            steps.append(step)
        step = step.tb_next
    shown: TracebackType | None = None
    for step in reversed(steps):
        if not step.tb_frame.f_globals.get("__name__", "").startswith(MACHINERY):
            shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return failure.with_traceback(shown)
