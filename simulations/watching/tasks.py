"""Tasks as their programmer knows them: by name, with the line at which each waits, and what it waits for.

A line is one of the program under test: frames of trio, of the standard library and of Callboard are passed over.
"""

from __future__ import annotations

import gc
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final, NamedTuple

import attrs
import trio

from callboard.simulations.watching.waits import Wait, wait_of

NOT_THE_PROGRAM: Final = frozenset(sys.stdlib_module_names) | {
    "_pytest",
    "anyio",
    "attr",
    "attrs",
    "callboard",
    "hypothesis",
    "outcome",
    "pluggy",
    "pytest",
    "sniffio",
    "trio",
}
"""Roots of modules whose lines say nothing to the programmer."""
CODE_CHARACTERS_MAX: Final = 90
FRAMES_MAX: Final = 200
WAITING_TOLD_MAX: Final = 30
CALLS_TOLD_MAX: Final = 3


class ProgramLine(NamedTuple):
    """A line of the program."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def shown_place(where: str) -> str:
    """A place as people read it: the file without its folders."""
    return where.replace("\\", "/").rpartition("/")[2]


def code_at(where: str) -> str:
    """The text of the line, empty when its file is not there. Reads the file: not for use inside a run."""
    path, _, line = where.rpartition(":")
    text = linecache.getline(path, int(line)).strip() if line.isdigit() else ""
    return text if len(text) <= CODE_CHARACTERS_MAX else f"{text[: CODE_CHARACTERS_MAX - 1]}…"


def is_of_program(frame: FrameType) -> bool:
    """Whether this is a line of the program under test."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in NOT_THE_PROGRAM


def place_of(frame: FrameType) -> ProgramLine:
    """Where a frame is."""
    return ProgramLine(frame.f_code.co_filename, frame.f_lineno)


def frames_here(depth: int) -> Iterator[FrameType]:
    """Frames of the task that is being stepped, innermost first, from `depth` calls above the caller on."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_name != "unrolled_run":
        yield frame
        frame = frame.f_back


def awaited(task: trio.lowlevel.Task) -> Iterator[tuple[Any, FrameType]]:
    """What a task that waits is inside of, outermost first: each coroutine, or the like, with its frame."""
    found: Any = task.coro
    for _ in range(FRAMES_MAX):
        if hasattr(found, "cr_frame"):
            frame, inner = found.cr_frame, found.cr_await
        elif hasattr(found, "gi_frame"):
            frame, inner = found.gi_frame, found.gi_yieldfrom
        elif hasattr(found, "ag_frame"):
            frame, inner = found.ag_frame, found.ag_await
        elif type(found).__name__ in ("async_generator_asend", "async_generator_athrow"):
            found = next((held for held in gc.get_referents(found) if hasattr(held, "ag_frame")), None)
            continue
        else:
            return
        if frame is not None:
            yield found, frame
        found = inner


class TaskNames:
    """Gives each task the name by which a story calls it: that of its function, or of its actor.

    Tasks of one machine that have the same name are numbered: `worker`, `worker #2`.
    """

    def __init__(self) -> None:
        self._names: dict[trio.lowlevel.Task, str] = {}
        self._counts: Counter[tuple[str, int]] = Counter()

    def of(self, task: trio.lowlevel.Task, machine: int, frames: Iterable[FrameType] = ()) -> str:
        """The name of a task on `machine`. `frames` are its own, outermost first, when it is being stepped."""
        name = self._names.get(task)
        if name is None:
            name = _plain_name(task, frames)
            if "/" not in name or ": " in name:  # an actor's is its path, which nobody shares
                self._counts[name, machine] += 1
                count = self._counts[name, machine]
                name = name if count == 1 else f"{name} #{count}"
            self._names[task] = name
        return name


def _plain_name(task: trio.lowlevel.Task, frames: Iterable[FrameType]) -> str:
    coro: Any = task.coro
    frame: FrameType | None = getattr(coro, "cr_frame", None)
    module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    name = task.name
    if frame is not None and module.startswith(
        "callboard.simulations.world"
    ):  # its own tasks run functions of ours
        boot = frame.f_locals.get("boot")
        if boot is not None:
            return _short(getattr(boot, "__qualname__", name))
        outermost = next(filter(is_of_program, frames), None)
        if outermost is None:
            outermost = next((inner for _, inner in awaited(task) if is_of_program(inner)), None)
        if outermost is not None:
            return outermost.f_code.co_name
    return _short(name.removeprefix(f"{module}."))


def _short(name: str) -> str:
    """A qualified name without the functions around it, and without addresses."""
    return name.rpartition("<locals>.")[2].partition(" at 0x")[0]


@attrs.frozen
class WaitingTask:
    """A task that waits: where, in the program if it is there, and for what."""

    name: str
    where: str = ""
    wait: Wait = Wait("")
    on: tuple[str, ...] = ()
    """Tasks that it waits for."""
    calls: tuple[str, ...] = ()
    """The lines of the program that led there, the nearest first."""

    def what(self) -> str:
        """What it waits for, and the calls that led there: what stands behind its line."""
        wait = self.wait.words
        if self.on:
            wait = wait.replace("{}", " and ".join(self.on))
        called = (
            f" (called at {', '.join(map(shown_place, self.calls[:CALLS_TOLD_MAX]))})" if self.calls else ""
        )
        return f"{f' for {wait}' if wait else ''}{called}"

    def words(self, *, with_code: bool = True) -> str:
        """A line of a story. The code is read from its file, which no simulated run may do."""
        place = f" at {shown_place(self.where)}" if self.where else ""
        waits = f" waits{place}{self.what()}"
        code = code_at(self.where) if self.where and with_code else ""
        return f"{self.name}{waits}{f': {code}' if code else ''}"


def waiting_tasks(
    tasks: Iterable[trio.lowlevel.Task], name_of: Callable[[trio.lowlevel.Task], str]
) -> list[WaitingTask]:
    """Where each of `tasks` waits. Of those that are at no line of the program only its actors are told, unless all are
    such.
    """
    tasks = list(tasks)
    by_actor = {task.name: task for task in tasks if "/" in task.name and ": " not in task.name}
    told: list[WaitingTask] = []
    others: list[WaitingTask] = []
    for task in tasks:
        frames = [frame for _, frame in awaited(task)]
        found = described(task, frames, name_of, by_actor)
        (told if found.where or found.name.startswith("user/") else others).append(found)
    return told or others


def described(
    task: trio.lowlevel.Task,
    frames: list[FrameType],
    name_of: Callable[[trio.lowlevel.Task], str],
    by_actor: Mapping[str, trio.lowlevel.Task] = {},
) -> WaitingTask:
    """Where a task with these frames, outermost first, waits, and for what."""
    last = max((at for at, frame in enumerate(frames) if is_of_program(frame)), default=-1)
    where = str(place_of(frames[last])) if last >= 0 else ""
    calls = tuple(
        [str(place_of(frame)) for frame in reversed(frames[: max(last, 0)]) if is_of_program(frame)]
    )
    wait = wait_of(task, frames[last + 1 :])
    on = [*wait.tasks, *(by_actor[path] for path in wait.actors if path in by_actor)]
    names = sorted(map(name_of, on), key=lambda name: (len(name), name))
    return WaitingTask(name_of(task), where, wait, tuple(names), calls)


def told(waiting: Sequence[WaitingTask], *, with_code: bool = True) -> list[str]:
    """A line for each task that waits, at most `WAITING_TOLD_MAX`, and one for a circle of those that wait."""
    lines = [each.words(with_code=with_code) for each in waiting[:WAITING_TOLD_MAX]]
    if len(waiting) > WAITING_TOLD_MAX:
        lines.append(f"{len(waiting) - WAITING_TOLD_MAX} more tasks wait")
    ring = circle(waiting)
    if ring:
        lines.append(f"They wait for each other in a circle: {' -> '.join(ring)}")
    return lines


def circle(waiting: Iterable[WaitingTask]) -> tuple[str, ...]:
    """Names of tasks that wait for each other in a circle, the first again as the last; empty when there is none."""
    on = {each.name: each.on for each in waiting}
    for begin in on:
        path: list[str] = [begin]
        while (after := on.get(path[-1], ())) and len(after) == 1:
            if after[0] in path:
                return (*path[path.index(after[0]) :], after[0])
            path.append(after[0])
    return ()
