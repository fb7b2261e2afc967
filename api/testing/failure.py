"""What a failing simulated test shows: its body's error, with a note of the seed, the story and the command."""

from __future__ import annotations

import shlex
from types import TracebackType

from callboard.simulations.search.shrink import Case
from callboard.simulations.search.story import tell
from callboard.simulations.world import Run
from callboard.testing.session import Asked
from callboard.testing.shrinking import Small

MACHINERY = ("trio.", "outcome", "callboard.simulations.", "callboard.testing.")

__all__ = ["account", "way_back", "without_machinery"]


def way_back(asked: Asked, seed: int) -> str:
    """The command that runs this test under this seed only."""
    return f"pytest {shlex.quote(asked.node or 'path::test')} --callboard-seed={seed}"


def account(name: str, case: Case, run: Run, small: Small, command: str) -> str:
    """The text about a failure: how it was found, and the story of its shrunk run."""
    lines = ["", f"Found with scheduler {run.scheduler!r}. {_shrunk(case, small)}"]
    if small.case.workload is not None:
        lines.append(f"Workload: {small.case.workload!r}")
    return "\n".join([*lines, "", tell(small.run, command, name).text()])


def _shrunk(case: Case, small: Small) -> str:
    if not small.runs:
        return f"Not made smaller: it took {small.run.ticks:,} scheduler ticks."
    before, after = len(case.plan.faults), len(small.case.plan.faults)
    choices = small.case.tape.choices if small.case.tape is not None else 0
    parts = [f"faults {before} to {after}"] if before else []
    parts.append(f"tasks out of turn in {choices} ticks" if choices else "every task in its turn")
    runs = f"{small.runs} more run{'' if small.runs == 1 else 's'}"
    return f"Shrunk by {runs}: {', '.join(parts)}."


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
