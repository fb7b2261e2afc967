"""Runs a trial under its seeds until one fails, and raises that failure with an explanation."""

from __future__ import annotations

from collections.abc import Iterable

from callboard.simulations.search.coverage import points
from callboard.simulations.search.replay import words_of
from callboard.simulations.search.shrink import Case
from callboard.simulations.search.story import tell
from callboard.simulations.world import Run
from callboard.testing.errors import NotRepeatable
from callboard.testing.failure import account, way_back, without_machinery
from callboard.testing.guard import is_control, is_drawing
from callboard.testing.session import Asked
from callboard.testing.shrinking import smallest
from callboard.testing.trial import Trial

__all__ = ["search"]


def search(trial: Trial, seeds: Iterable[int], asked: Asked) -> None:
    """Run the trial under each seed; raises the first failure, with a note that explains it."""
    __tracebackhide__ = True
    for seed in seeds:
        case = trial.case(seed)
        try:
            run = trial.run(seed, case)
        except KeyboardInterrupt as pressed:  # pytest shows its line: that of an endless loop
            raise without_machinery(pressed, trial.file) from None
        for name, hits in points(run.probes).items():
            asked.points[name] = asked.points.get(name, 0) + hits
        if run.failure is not None:
            asked.points.clear()  # the seeds that were not run say nothing about them
            raise _explained(trial, seed, case, run, run.failure, asked)


def _explained(
    trial: Trial, seed: int, case: Case, run: Run, failure: BaseException, asked: Asked
) -> BaseException:
    """What to raise for this run."""
    if is_control(failure):
        return failure
    if is_drawing():  # Hypothesis runs the test again and again, and shrinks by itself
        story = tell(run, way_back(asked, seed), trial.name).text()
        failure.add_note(f"It failed under seed {seed}, with scheduler {run.scheduler!r}.\n\n{story}")
        return without_machinery(failure, trial.file)
    small = smallest(trial, seed, case, run)
    if small is None or small.run.failure is None:
        unexplained = NotRepeatable(
            f"seed {seed} failed ({words_of(failure)}), and then it did not, or not in the same way. "
            "Something that the simulator does not control decides: sets ordered by identity, threads, state that one "
            f"run leaves to the next in globals or fixtures. To look again: {way_back(asked, seed)}",
            seed=seed,
        )
        unexplained.__cause__ = without_machinery(failure, trial.file)  # all that is known of it
        return unexplained
    small.run.failure.add_note(account(trial.name, case, run, small, way_back(asked, seed)))
    return without_machinery(small.run.failure, trial.file)
