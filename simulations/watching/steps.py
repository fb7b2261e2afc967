"""Records which task of the program starts, waits, ends and fails, and on which line: the schedule, as it matters."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any, Final

import trio

from callboard.simulations.watching.tasks import awaited, described, is_of_program, place_of
from callboard.simulations.watching.watch import Watch, raised_at

STEPS_MAX: Final = 50_000
"""This many entries of steps are recorded of a run, then none."""
ARGUMENTS_CHARACTERS_MAX: Final = 80


class TaskSteps(trio.abc.Instrument):
    """Hears of every step of every task from trio. A step that leaves the program where it was is not recorded."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._count = 0
        self._at: dict[trio.lowlevel.Task, tuple[int, int, Any]] = {}
        """Where a task waited: its frame, the instruction, and what it awaits there."""

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """A task of the program starts."""
        watch = self._watch
        machine = watch.machine_of(task)
        frame = getattr(task.coro, "cr_frame", None)
        if watch.is_over or machine is None or frame is None:
            return
        nursery = task.parent_nursery
        if is_of_program(frame) and nursery is not None:
            parent = watch.name(nursery.parent_task)
            name = watch.name(task)
            arguments = self._arguments(frame)
            detail = f"{name} with {arguments}" if arguments else name
            where = str(place_of(frame))
            watch.history.tell_of(machine, "starts", parent, detail=detail, where=where)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task has gone on, and waits again, or has ended."""
        watch = self._watch
        machine = watch.machine_of(task)
        if watch.is_over or machine is None or task in watch.busy or self._count >= STEPS_MAX:
            return
        chain = list(awaited(task))
        last = max((at for at, (_, frame) in enumerate(chain) if is_of_program(frame)), default=-1)
        if last < 0:
            return
        frame = chain[last][1]
        below = chain[last + 1][0] if last + 1 < len(chain) else None
        before = self._at.get(task)
        if before is not None and before[:2] == (id(frame), frame.f_lasti) and before[2]() is below:
            return
        self._at[task] = id(frame), frame.f_lasti, _reference(below)
        waiting = described(task, [inner for _, inner in chain], watch.name)
        self._record(machine, "waits", waiting.name, waiting.what(), waiting.where)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """A task has ended."""
        watch = self._watch
        machine = watch.machine_of(task)
        if watch.is_over or machine is None:
            return
        was_seen = self._at.pop(task, None) is not None
        watch.busy.pop(task, None)
        error = _error_of_exit()
        name = watch.name(task)
        if error is not None and not _is_cancellation(error):
            watch.failed(error, name, raised_at(error), machine)
        elif was_seen and error is None:
            self._record(machine, "ends", name)
        elif was_seen and error is not None:
            self._record(machine, "is cancelled", name, where=raised_at(error))

    def _arguments(self, frame: FrameType) -> str:
        """The arguments of a function that has not begun."""
        code, given = frame.f_code, frame.f_locals
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        shown = self._watch.shown
        told = [f"{name}={shown(given[name], 30)}" for name in names if name in given and name != "self"]
        text = ", ".join(told)
        return text if len(text) <= ARGUMENTS_CHARACTERS_MAX else f"{text[: ARGUMENTS_CHARACTERS_MAX - 1]}…"

    def _record(self, machine: int, kind: str, who: str, detail: str = "", where: str = "") -> None:
        if self._count < STEPS_MAX:
            self._count += 1
            self._watch.history.tell_of(machine, kind, who, detail=detail, where=where)


def _reference(awaited_object: Any) -> Any:
    try:
        return weakref.ref(awaited_object)
    except TypeError:
        number = id(awaited_object)
        return lambda: awaited_object if awaited_object is None else number


def _is_cancellation(error: BaseException) -> bool:
    """Also that of a task whose nursery was cancelled: a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def _error_of_exit() -> BaseException | None:
    """The error with which the task ended that trio tells of: trio's `task_exited` has it; None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(6):
        if frame is None:
            return None
        if "outcome" in frame.f_locals and frame.f_code.co_name == "task_exited":
            error: BaseException | None = getattr(frame.f_locals["outcome"], "error", None)
            return error
        frame = frame.f_back
    return None
