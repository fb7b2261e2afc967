"""Runs a trial under its seeds until one fails, shrinks that failure, and raises it with an explanation.

A failure is shrunk to fewer faults, a smaller workload and a simpler schedule, as long as the same promise breaks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Literal

import attrs

from callboard.actors.kernel.durable import DurableActor
from callboard.simulations.faults import FaultSpace, Plan
from callboard.simulations.search.coverage import points
from callboard.simulations.search.differences import first_difference
from callboard.simulations.search.replay import shown_workload, words_of
from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.search.story import tell
from callboard.simulations.world import Run, Tape
from callboard.testing.beside_hypothesis import is_control, is_in_hypothesis
from callboard.testing.crashes import NO_PASSINGS, Passings, passings_of
from callboard.testing.errors import NotRepeatable
from callboard.testing.failures import exact_kind_of, kind_of, without_machinery
from callboard.testing.reports import write_report
from callboard.testing.session import Hits, RunOptions
from callboard.testing.trial import Trial

UNCONTROLLED: Final = (
    "Something that the simulator does not control decides: sets ordered by identity, threads, real time, state that "
    "one run leaves to the next in globals or fixtures."
)
TICKS_MAX: Final = 2_000_000
"""Scheduler ticks of all attempts at shrinking together, about ten to twenty seconds. This, and not the time, usually
ends them, so that the same failure always shrinks to the same result."""
SHRINK_S: Final = 60.0
"""As `callboard simulate --shrink-seconds`. It ends what takes no ticks: drawing a large workload anew."""
TRACED_TICKS_MAX: Final = 100_000
"""The traces of longer runs are too large to compare."""
LEAST_TICKS: Final = 100_000
"""What another run may take beyond a multiple of the first."""


@attrs.frozen
class FirstRun:
    """A seed of a trial: the case that it drew, and the first run of it."""

    trial: Trial
    case: Case
    run: Run

    @property
    def seed(self) -> int:
        """The seed."""
        return self.run.seed

    @property
    def can_go_wrong(self) -> bool:
        """Whether a fault could have come: time passed, or there was a machine."""
        return bool(self.run.boots or self.run.virtual_s)

    @property
    def is_endless(self) -> bool:
        """Whether another run would take as long as this one, which is too long: usually an endless loop."""
        return self.run.ticks > TICKS_MAX or _computes(self.run) or _was_abandoned(self.run)

    @property
    def tick_limit(self) -> int:
        """Of another run: one that takes much longer is not simpler, and may never end."""
        return 4 * self.run.ticks + LEAST_TICKS

    def again(self, trace: Literal["off", "digest", "full"] = "off") -> Run:
        """Another run of the case."""
        return self.trial.run(self.seed, self.case, trace=trace, tick_limit=self.tick_limit)

    def hits(self) -> Hits:
        """What the run hit: `sometimes` points, and faults of the kinds that the test names."""
        hits = Hits()
        hits.points.update(points(self.run.probes))
        faults = self.trial.settings.faults
        if self.trial.is_aimed:  # the test names none
            return hits
        kinds = hits.planned_faults if isinstance(faults, Plan) else hits.drawn_faults
        if isinstance(faults, FaultSpace):
            kinds.update({kind: 0 for kind, weight in faults.weights if weight > 0})
        for index, fault in enumerate(self.case.plan.faults):
            kinds[type(fault).__name__] += self.run.hits.get(index, 0)
        return hits


@attrs.frozen
class ShrunkRun:
    """The smallest case that fails like a first run, with its schedule, and a run of it that is watched for a story."""

    case: Case
    run: Run
    attempts: int = 0
    """How many smaller cases were run."""
    is_out_of_time: bool = False
    """More would have been tried."""


def search(trial: Trial, seeds: range, options: RunOptions) -> Hits:
    """Run the trial under each seed, and return what they hit together.

    Raises the first failure, with a note that explains it.
    """
    __tracebackhide__ = True
    hits = Hits()
    passings = NO_PASSINGS
    for seed in seeds:
        first = _first_run(trial, seed, passings, options)
        if trial.is_aimed and seed == seeds.start and first.can_go_wrong:
            # It had no faults yet, as seed 0 never has: what that seed passes is where all others have theirs.
            passings = passings_of(first.run if seed == 0 else trial.run(0, trial.case(0)))
            if seed:
                first = _first_run(trial, seed, passings, options)
        if first.run.failure is not None:
            raise _explained(first, first.run.failure, options)
        if options.twice:
            _check_repeats(first, options)
        hits.add(first.hits())
    return hits


def _first_run(trial: Trial, seed: int, passings: Passings, options: RunOptions) -> FirstRun:
    __tracebackhide__ = True
    try:
        case = trial.case(seed, passings)
        return FirstRun(trial, case, trial.run(seed, case, trace="digest" if options.twice else "off"))
    except KeyboardInterrupt as pressed:  # pytest shows its line: that of an endless loop
        raise without_machinery(pressed, trial.file) from None


def _check_repeats(first: FirstRun, options: RunOptions) -> None:
    """Run a seed that passed once more; raises `NotRepeatable` if that run differs."""
    again = first.again(trace="digest")
    if again.trace.digest == first.run.trace.digest and again.failure is None:
        return
    failed = "" if again.failure is None else f", and the second failed ({words_of(again.failure)})"
    raise _not_repeatable(
        first,
        f"two runs of seed {first.seed} differ{failed}",
        f"{options.command(first.seed)} --callboard-check-determinism",
    ) from again.failure


def _explained(first: FirstRun, failure: BaseException, options: RunOptions) -> BaseException:
    """What to raise for a run that failed."""
    trial, run = first.trial, first.run
    if is_control(failure):
        return failure
    if is_in_hypothesis():  # it calls the test again and again, and shrinks by itself
        watched = trial.run(first.seed, first.case, watched=True)
        remark = f"It failed under seed {first.seed}, with scheduler {run.scheduler!r}."
        failure.add_note(_note(trial, watched if watched.failure else run, [remark], options))
        return without_machinery(failure, trial.file)
    if not first.is_endless:
        again = first.again().failure
        if exact_kind_of(again, trial.file) != exact_kind_of(failure, trial.file):
            return _unrepeated(first, failure, again, options)
    shrunk = _shrink(first)
    smaller = shrunk.run.failure
    if smaller is None:
        return _unrepeated(first, failure, None, options)
    found = f"Found with scheduler {run.scheduler!r}. {_shrinking_words(first.case, shrunk)}"
    smaller.add_note(_note(trial, shrunk.run, [*_circumstances(trial, shrunk), found], options))
    return without_machinery(smaller, trial.file)


def _unrepeated(
    first: FirstRun, failure: BaseException, again: BaseException | None, options: RunOptions
) -> BaseException:
    """What to raise for a run that failed, and then passed, or failed with `again`."""
    how = "did not" if again is None else f"failed in another way ({words_of(again)})"
    error = _not_repeatable(
        first,
        f"seed {first.seed} failed ({words_of(failure)}), and when it was run again it {how}",
        options.command(first.seed),
    )
    error.__cause__ = without_machinery(failure, first.trial.file)
    return error


def _not_repeatable(first: FirstRun, words: str, command: str) -> NotRepeatable:
    return NotRepeatable(
        f"{words}. {UNCONTROLLED} To look again: {command}{_difference(first)}", seed=first.seed
    )


def _difference(first: FirstRun) -> str:
    """The first line in which the traces of two more runs differ, in words."""
    if first.run.ticks > TRACED_TICKS_MAX:
        return ""
    one, other = (first.again(trace="full").trace.lines for _ in range(2))
    difference = first_difference(one, other)
    if isinstance(difference, int):
        return "\nThe traces of two more runs of it do not differ."
    return f"\nThe first line in which the traces of two more runs of it differ (A, B):\n{difference.text()}"


def _shrink(first: FirstRun) -> ShrunkRun:
    """Shrink a failed run to one that fails in the same way. An endless one stays as it is: so would every attempt."""
    if first.is_endless:
        return ShrunkRun(first.case, first.run)
    trial = first.trial
    kind = kind_of(first.run.failure, trial.file)
    ticks = 0

    def fails(case: Case, *, record: bool) -> Tape | None:
        nonlocal ticks
        run = trial.run(first.seed, case, record_schedule=record, tick_limit=first.tick_limit)
        ticks += run.ticks
        return (run.tape or Tape()) if kind_of(run.failure, trial.file) == kind else None

    end = time.monotonic() + SHRINK_S
    budget = RunBudget(out_of_time=lambda: ticks > TICKS_MAX or time.monotonic() > end)
    smallest = shrink(first.case, fails, budget, drawing=trial.drawing(first.seed))
    watched = trial.run(first.seed, smallest.case, watched=True)
    return ShrunkRun(smallest.case, watched, smallest.runs, time.monotonic() > end)


def _note(trial: Trial, run: Run, remarks: Sequence[str], options: RunOptions) -> str:
    """The note on a failure: its story, and where its timeline is if one was asked for."""
    story = tell(run, options.command(run.seed), trial.name, remarks)
    lines = ["", story.text()]
    if options.report is not None:
        lines += ["", write_report(options.report, options.node or trial.name, run, story)]
    return "\n".join(lines)


def _circumstances(trial: Trial, shrunk: ShrunkRun) -> list[str]:
    """What the story of a run does not show: what it was to do, and what its seed drew beside."""
    lines = []
    if shrunk.case.workload is not None:
        lines.append(f"Workload: {shown_workload(repr(shrunk.case.workload))}")
    every = trial.snapshot_every(shrunk.run.seed)
    if every is not None and shrunk.run.boots and DurableActor.__subclasses__():
        lines.append(f"Limits: DurableActor.snapshot_every = {every}, for classes that do not say it.")
    return lines


def _shrinking_words(case: Case, shrunk: ShrunkRun) -> str:
    """How far `case` was shrunk, or why it was not."""
    if _computes(shrunk.run):
        return "Not made smaller: every attempt would compute for as long."
    if _was_abandoned(shrunk.run):
        return "Not made smaller: every attempt would have to be abandoned."
    more = f" There was more to try after {SHRINK_S:g} s." if shrunk.is_out_of_time else ""
    if not shrunk.attempts and shrunk.is_out_of_time:
        return f"Not made smaller.{more}"
    if not shrunk.attempts:
        return f"Not made smaller: it took {shrunk.run.ticks:,} scheduler ticks."
    before, after = len(case.plan.faults), len(shrunk.case.plan.faults)
    choices = shrunk.case.tape.choices if shrunk.case.tape is not None else 0
    parts = [f"faults {before} to {after}"] if before else []
    parts.append(f"tasks out of turn in {choices} ticks" if choices else "every task in its turn")
    runs = f"{shrunk.attempts} more run{'' if shrunk.attempts == 1 else 's'}"
    return f"Shrunk by {runs}: {', '.join(parts)}.{more}"


def _computes(run: Run) -> bool:
    """Whether the run was ended in a step that computed for too long."""
    return bool(getattr(run.failure, "computes", False))


def _was_abandoned(run: Run) -> bool:
    """Whether a task went on although the run was to end."""
    return bool(getattr(run.failure, "abandoned", False))
