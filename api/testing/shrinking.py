"""Shrinks a failure: fewer faults, a smaller workload, a simpler schedule, as long as the same promise breaks."""

from __future__ import annotations

import re
import traceback

import attrs

from callboard.simulations.search.shrink import Case, RunBudget, shrink
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run, Tape
from callboard.testing.trial import Trial

NUMBER = re.compile(r"\d+(\.\d+)?")

__all__ = ["LEAST_TICKS", "TICKS_MAX", "Small", "smallest"]

TICKS_MAX = 2_000_000
"""Scheduler ticks of all attempts together, about ten to twenty seconds. With a limit in seconds, the same failure
would not always shrink to the same result."""
LEAST_TICKS = 100_000
"""The minimum of an attempt's limit."""


@attrs.frozen
class Small:
    """A shrunk failure: the smaller case with its schedule, and a run of it."""

    case: Case
    run: Run
    runs: int


def smallest(trial: Trial, seed: int, case: Case, run: Run) -> Small | None:
    """Shrink this failed run. None if the same seed does not fail in the same way again.

    A run that alone takes more ticks than all attempts may take, usually an endless loop, is not shrunk.
    """
    if run.ticks > TICKS_MAX:
        return Small(case, run, 0)
    failure = run.failure
    wanted = _kind(failure, trial.file)
    limit = 4 * run.ticks + LEAST_TICKS  # a run that takes much longer is not simpler, and may never end
    ticks = 0

    def fails(tried: Case, *, record: bool) -> Tape | None:
        nonlocal ticks
        went = trial.run(seed, tried, record_schedule=record, tick_limit=limit)
        ticks += went.ticks
        if _kind(went.failure, trial.file) != wanted:
            return None
        return went.tape or Tape()

    if fails(case, record=False) is None:
        return None
    found = shrink(case, fails, RunBudget(out_of_time=lambda: ticks > TICKS_MAX))
    return Small(found.case, trial.run(seed, found.case), found.runs)


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
