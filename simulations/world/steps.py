"""Steps of the program under test: from one of its awaits to the next. Faults may come before any of them.

A task is *in the program* when a function of the program waits in it, by whatever functions of trio and Callboard in
between: the clients' tasks, and those of actors while they handle a message. The tasks that Callboard runs for itself
are not. Each step is a passing of the probe `await`; its subject is the task's name and the function that waits. So a
power cut comes between any two awaits of the program, and a cancellation out of any of them.

Each time that virtual time has gone on is a passing of the probe `wake`: a busy loop wakes up later than that.

Steps are looked at only while some fault waits for one.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from callboard.simulations.faults.when import AWAIT, WAKE
from callboard.simulations.world.trace import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from callboard.simulations.world.probes import Probes

MACHINERY: Final = frozenset({"trio", "outcome", "callboard", "contextlib", "functools"})
"""Modules whose functions are not the program's."""


class Steps:
    """Passes the probe before each step of the program, and keeps tasks back that a fault puts off."""

    def __init__(self, probes: Probes, probe: Callable[[str, str], None]) -> None:
        self.task: Any = None
        """The task whose step comes next, while the probe is passed."""
        self.about = ""
        """The subject of that step: the task, and the function that waits."""
        self.where = ""
        """The line of the program that it continues at, in words."""
        self.counts = False
        """Whether passings are counted even if no fault waits for one."""
        self._probes = probes
        self._pass = probe
        self._context: Context
        self._delay_s = 0.0

    def begin(self) -> None:
        """Called by the run's first task: the tasks that faults start have its context."""
        self._context = copy_context()

    @property
    def is_awaited(self) -> bool:
        """Whether anybody wants to hear of steps."""
        return self.counts or self._probes.is_awaited(AWAIT)

    def woke(self) -> None:
        """Virtual time has gone on."""
        if self.counts or self._probes.is_awaited(WAKE):
            self._context.run(self._pass, WAKE, "")

    def put_off(self, seconds: float) -> None:
        """While the probe is passed: let the step come this many virtual seconds late."""
        self._delay_s = max(self._delay_s, seconds)

    def is_due(self, task: Any) -> bool:
        """Whether some fault comes before the step of `task`, if that is the next one."""
        frame = innermost_frame(task)
        return frame is not None and self._probes.is_due(AWAIT, _about(task, frame))

    def passed(self, task: Any) -> float:
        """The task is about to be stepped. Returns for how long it must wait before that; 0 if it need not."""
        frame = innermost_frame(task)
        if frame is None:
            return 0.0
        self.task, self.about, self._delay_s = task, _about(task, frame), 0.0
        self.where = (
            f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}, in {frame.f_code.co_name}"
        )
        try:
            self._context.run(self._pass, AWAIT, self.about)
        finally:
            self.task, self.about, self.where = None, "", ""
        return self._delay_s


def _about(task: Any, frame: FrameType) -> str:
    return f"{clean(task.name)} {frame.f_code.co_qualname}"


def innermost_frame(task: Any) -> FrameType | None:
    """The frame of the program that the task waits in; None when none of the program's functions waits in it."""
    found: FrameType | None = None
    waiting = task.coro
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] not in MACHINERY:
            found = frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return found
