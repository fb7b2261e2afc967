"""Notices a task that computes without ever waiting: then no other task is stepped, and no limit of the driver is met.

A timer of the process counts the processor time of the program, so that a busy machine makes no difference. When that
has been spent within one step of one task, the program is interrupted by an exception at the line where it is.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from callboard.log.errors import CallboardError
from callboard.simulations.watching.tasks import is_of_program, place_of

LIMIT_S: Final = 5.0
"""Processor time that one step of a task may take."""
LOOKS: Final = 10
"""How often it is looked within the limit."""
OUTERMOST: Final = "callboard.simulations.world.run"
"""The module below which all frames of a run are."""


class EndlessWorkload(CallboardError):
    """The function that draws a workload did not end."""


class StillComputing(BaseException):
    """Interrupts a task that has caught the error by which it was interrupted before, and computes on."""


@contextmanager
def limited_computing(
    limit_s: float | None,
    step: Callable[[], object],
    over: Callable[[str, float, list[FrameType]], BaseException],
) -> Iterator[None]:
    """Inside this context a step may take `limit_s` (None: `LIMIT_S`).

    `step()` distinguishes steps. `over(where, seconds, frames)` is called in a signal handler, and gives what is to be
    raised there; the frames are those of the program, outermost first. Outside the main thread, and where another
    uses the timer, nothing is limited.
    """
    limit_s = LIMIT_S if limit_s is None else limit_s
    last: object = None
    looks = 0

    def look(_number: int, frame: FrameType | None) -> None:
        nonlocal last, looks
        now = step()
        looks = looks + 1 if now == last else 0
        last = now
        if looks >= LOOKS and (frames := _program_frames(frame)):
            looks = 0
            raise over(str(place_of(frames[-1])), limit_s, frames)

    is_free = signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL
    try:
        if is_free:
            signal.signal(signal.SIGVTALRM, look)
    except ValueError:  # not the main thread
        is_free = False
    if not is_free:
        yield
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s / LOOKS, limit_s / LOOKS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def wake_for_no_signal() -> None:
    """Called in a run, which never sleeps: trio is woken by no signal. Each look would be one more tick of the run."""
    with suppress(ValueError):  # not in the main thread, which alone is woken
        signal.set_wakeup_fd(-1)


@contextmanager
def limited_drawing(what: str) -> Iterator[None]:
    """Inside this context the program draws a workload, which may take as long as a step.

    Raises `EndlessWorkload` where it is then. `what` names the function.
    """
    is_over = False

    def over(where: str, seconds: float, _: list[FrameType]) -> BaseException:
        nonlocal is_over
        if is_over:
            return StillComputing()
        is_over = True
        return EndlessWorkload(
            f"{what} computes without end: for {seconds:g} s of processor time, and is at {where}. "
            "Let it draw fewer things, or end."
        )

    try:
        with limited_computing(None, lambda: None, over):
            yield
    except StillComputing as error:
        raise EndlessWorkload(f"{what} computes without end, and catches the error that says so.") from error


def _program_frames(frame: FrameType | None) -> list[FrameType]:
    """Frames of the program that is being stepped, outermost first; none between two steps."""
    found = []
    while frame is not None and frame.f_globals.get("__name__") != OUTERMOST:
        if is_of_program(frame):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]
