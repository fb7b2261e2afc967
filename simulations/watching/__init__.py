"""Watching: what a program under test does in a run, seen from outside, for the story of its failure.

A watched run takes the same course as one that is not watched: nothing here waits, starts a task or draws a number. It
costs time, so a search watches only the run that it tells of. `tasks.py` names tasks and says where each waits and for
what; `steps.py` records which task goes on when; `calls.py` records what the program publishes, consumes and asks.
"""

from callboard.simulations.watching.calls import watched_calls
from callboard.simulations.watching.steps import TaskSteps
from callboard.simulations.watching.tasks import (
    TaskNames,
    WaitingTask,
    code_at,
    shown_place,
    told,
    waiting_tasks,
)
from callboard.simulations.watching.unobserved_calls import unobserved_calls
from callboard.simulations.watching.watch import Watch

__all__ = [
    "TaskNames",
    "TaskSteps",
    "WaitingTask",
    "Watch",
    "code_at",
    "shown_place",
    "told",
    "unobserved_calls",
    "waiting_tasks",
    "watched_calls",
]
