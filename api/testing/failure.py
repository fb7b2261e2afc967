"""What a failing simulated test says: its body's error, with a note of the seed, the story and the way back."""

from __future__ import annotations

import shlex

from callboard.simulations.search.shrink import Case
from callboard.simulations.world import Run
from callboard.testing.session import Asked
from callboard.testing.shrinking import Small

__all__ = ["account", "way_back", "without_machinery"]

STORY_LINES_MAX = 60
"""Lines of a story; of a longer one, those in the middle are left out."""


def way_back(asked: Asked, seed: int) -> str:
    """The command that runs this test under this seed only."""
    return f"pytest {shlex.quote(asked.node or 'path::test')} --callboard-seed={seed}"


def account(seed: int, case: Case, run: Run, small: Small, command: str) -> str:
    """All that is known about a failure, in words."""
    lines = ["", f"Seed {seed} failed, with scheduler {run.scheduler!r}. {_shrunk(case, small)}"]
    if small.case.workload is not None:
        lines += ["", f"Workload: {small.case.workload!r}"]
    if small.case.plan.faults:
        lines += ["", "Faults:", *(f"  {fault.words()}" for fault in small.case.plan.faults)]
    if len(small.run.history):
        lines += ["", "Story:", *(f"  {line}" for line in _story(small.run))]
    return "\n".join([*lines, "", f"Run it again: {command}"])


def _shrunk(case: Case, small: Small) -> str:
    before, after = len(case.plan.faults), len(small.case.plan.faults)
    choices = small.case.tape.choices if small.case.tape is not None else 0
    parts = [f"faults {before} to {after}"] if before else []
    parts.append(f"tasks out of turn in {choices} ticks" if choices else "every task in its turn")
    return f"Shrunk by {small.runs} more runs: {', '.join(parts)}."


def _story(run: Run) -> list[str]:
    lines = run.history.story()
    if len(lines) <= STORY_LINES_MAX:
        return lines
    head, tail = STORY_LINES_MAX // 4, STORY_LINES_MAX - STORY_LINES_MAX // 4
    return [*lines[:head], f"... {len(lines) - STORY_LINES_MAX} lines ...", *lines[-tail:]]


def without_machinery(failure: BaseException, file: str) -> BaseException:
    """The failure with a traceback that begins in `file`: how trio and the simulator led there helps nobody."""
    traceback = failure.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename != file:
        traceback = traceback.tb_next
    return failure.with_traceback(traceback or failure.__traceback__)
