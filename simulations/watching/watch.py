"""The watch of one run: it knows which task is being stepped, on which line, and adds to the history what that does."""

from __future__ import annotations

import re
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import trio

from callboard.simulations.history import History, HistoryEntry
from callboard.simulations.watching.tasks import (
    ProgramLine,
    TaskNames,
    WaitingTask,
    frames_here,
    is_of_program,
    place_of,
)

OURS: Final = "callboard.simulations."
WATCHING: Final = "callboard.simulations.watching."
SHOWN_CHARACTERS_MAX: Final = 60
SHOWN_VALUES_MAX: Final = 3
UNPLACED_MAX: Final = 100_000
FAILURES_MAX: Final = 100
"""Of this many failures it is kept where the other tasks waited."""
ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class Watch:
    """What is known of the program in a run. `machine_of` gives the machine of a task, 0 outside of machines; None for
    tasks of which nothing is recorded.
    """

    def __init__(
        self, history: History, names: TaskNames, machine_of: Callable[[trio.lowlevel.Task], int | None]
    ) -> None:
        self.names = names
        self.history = history
        self.machine_of = machine_of
        self.messages = Messages(history.ids)
        self.is_over = False
        """Nothing is recorded any more: the run is being torn down."""
        self.take_waiting: Callable[[trio.lowlevel.Task | None], Sequence[WaitingTask]] = lambda _: ()
        """Looks where all tasks wait now, but for the one that is being stepped."""
        self.busy: dict[trio.lowlevel.Task, int] = {}
        """Tasks in an operation that the history has, and in how many."""
        self.stuck_at: HistoryEntry | None = None
        self.shown = Shown()
        self._failures: list[tuple[BaseException, HistoryEntry, tuple[WaitingTask, ...]]] = []

    # -- which task, and where

    def is_watched(self) -> bool:
        """Whether the task that is being stepped does something for the program, and not for the simulator."""
        task = _current()
        if self.is_over or task is None or self.machine_of(task) is None:
            return False
        modules = (str(frame.f_globals.get("__name__", "")) for frame in frames_here(1))
        caller = next((module for module in modules if not module.startswith(WATCHING)), OURS)
        return not caller.startswith(OURS)

    def here(self) -> tuple[str, ProgramLine | None, int]:
        """The name of the task that is being stepped, the line at which it is, and its machine."""
        task = _current()
        if task is None:
            return "", None, 0
        frames = list(frames_here(1))
        program = [frame for frame in frames if is_of_program(frame)]
        machine = self.machine_of(task) or 0
        name = self.names.of(task, machine, reversed(frames))
        return name, place_of(program[0]) if program else None, machine

    def name(self, task: trio.lowlevel.Task) -> str:
        """The name of a task."""
        frames = list(frames_here(1))[::-1] if task is _current() else ()
        return self.names.of(task, self.machine_of(task) or 0, frames)

    # -- what is recorded

    def record(self, kind: str, **fields: Any) -> None:
        """Add an entry of the task that is being stepped. Fields as in `History.record`."""
        if self.is_over:
            return
        who, place, machine = self.here()
        self.history.tell_of(machine, kind, **{"who": who, "where": str(place or ""), **fields})

    @contextmanager
    def operation(self) -> Iterator[int]:
        """An operation of the task that is being stepped, which goes into the history; gives its number."""
        task = _current()
        if task is None:
            yield self.history.told_operation()
            return
        self.busy[task] = self.busy.get(task, 0) + 1
        try:
            yield self.history.told_operation()
        finally:
            self.busy[task] -= 1
            if not self.busy[task]:
                del self.busy[task]

    def stuck(self, why: str) -> None:
        """The run is ended from outside: nothing more of it is recorded."""
        if not self.is_over:
            self.history.tell_of(0, "stuck", detail=why)
            self.stuck_at = self.history.entries[-1]
            self.is_over = True

    # -- what goes wrong

    def failed(self, error: BaseException, who: str, where: str, machine: int, kind: str = "failed") -> None:
        """Record a failure, once however far it goes, and where all tasks are at the first one."""
        if self.is_over or all(self.entry_of(leaf) is not None for leaf in leaves(error)):
            return
        before = len(self.history)
        self.history.tell_of(
            machine, kind, who, detail=str(error) if kind == "broken" else summary(error), where=where
        )
        if len(self.history) == before:
            return  # its machine is dead
        entry = self.history.entries[-1]
        waiting = tuple(self.take_waiting(_current())) if len(self._failures) < FAILURES_MAX else ()
        self._failures += [(leaf, entry, waiting) for leaf in leaves(error)]

    def entry_of(self, error: BaseException | None) -> HistoryEntry | None:
        """The entry at which this error, or one of its group, showed."""
        found = self._found(error)
        return None if found is None else found[0]

    def waiting_of(self, error: BaseException | None) -> tuple[WaitingTask, ...]:
        """Where the other tasks waited then."""
        found = self._found(error)
        return () if found is None else found[1]

    def _found(self, error: BaseException | None) -> tuple[HistoryEntry, tuple[WaitingTask, ...]] | None:
        mine = [] if error is None else list(leaves(error))
        found = (
            (entry, waiting)
            for failure, entry, waiting in self._failures
            if any(failure is leaf for leaf in mine)
        )
        return next(found, None)


class Messages:
    """Numbers for messages, of topics and of actors: those that come back are known by where they lie.

    `observed`: those of messages that observed clients have published, by their bytes.
    """

    def __init__(self, observed: Mapping[bytes, int]) -> None:
        self._observed = observed
        self._count = 0
        self._places: dict[tuple[str, int, int], int] = {}
        self._placed: set[int] = set()
        self._unplaced: dict[tuple[str, bytes | None, bytes | None], deque[int]] = {}
        self._sent: dict[str, deque[tuple[Any, int]]] = {}

    def _next(self) -> int:
        self._count += 1
        return self._count

    def published(self, topic: str, value: bytes | None, key: bytes | None) -> int:
        """The number of a message that is being published."""
        number = self._next()
        self._unplaced.setdefault((topic, value, key), deque(maxlen=UNPLACED_MAX)).append(number)
        return number

    def stored(self, number: int, topic: str, partition: int, offset: int) -> None:
        """Its publisher knows where it is."""
        self._places[topic, partition, offset] = number
        self._placed.add(number)

    def found(self, topic: str, partition: int, offset: int, value: bytes | None, key: bytes | None) -> int:
        """The number of a message that came back."""
        place = topic, partition, offset
        if place not in self._places:
            candidates = self._unplaced.get((topic, value, key), deque())
            free = next((number for number in candidates if number not in self._placed), None)
            if free is None:
                free = self._observed.get(value) if value is not None else None
            self.stored(self._next() if free is None else free, *place)
        return self._places[place]

    def sent(self, path: str, message: Any) -> int:
        """The number of a message to an actor."""
        number = self._next()
        self._sent.setdefault(path, deque(maxlen=UNPLACED_MAX)).append((message, number))
        return number

    def taken(self, path: str, message: Any) -> int | None:
        """The number of a message that an actor takes from its mailbox; None for one whose sending was not seen."""
        waiting = self._sent.get(path, deque())
        for at, (sent, number) in enumerate(waiting):
            if sent is message:
                del waiting[at]
                return number
        return None


def _current() -> trio.lowlevel.Task | None:
    try:
        return trio.lowlevel.current_task()
    except RuntimeError:
        return None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group; the error itself, when it is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def frames_of(error: BaseException) -> list[FrameType]:
    """The frames that an error went through, outermost first."""
    found, traceback = [], error.__traceback__
    while traceback is not None:
        found.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return found


def raised_at(error: BaseException) -> str:
    """The line of the program where an error was raised, or the last one that it went through."""
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        if is_of_program(traceback.tb_frame):
            found = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    if not found and isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(raised_at, error.exceptions)), "")
    return found


def summary(error: BaseException) -> str:
    """An error in one short line."""
    found = list(leaves(error))
    if not found or found[0] is not error:
        return "; ".join(summary(leaf) for leaf in found[:SHOWN_VALUES_MAX])
    try:
        said = str(error).partition("\n")[0]
    except Exception as worse:  # noqa: BLE001 - its __str__ is the user's
        said = f"(its __str__ raised {type(worse).__name__})"
    return f"{type(error).__name__}: {said}"[:200] if said else type(error).__name__


class Shown:
    """Values of the program in words, the same in each run. Objects that show an address are numbered: `Account #2`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._objects: dict[int, tuple[Any, str]] = {}

    def __call__(self, value: Any, characters: int = SHOWN_CHARACTERS_MAX) -> str:
        """A value in one short line."""
        try:
            text = value.decode("utf-8") if isinstance(value, bytes) else ""
            text = repr(value) if not text.isprintable() or not isinstance(value, bytes) else f"b{text!r}"
        except Exception:  # noqa: BLE001 - its __repr__ is the user's; and not all bytes are text
            text = repr(value) if isinstance(value, bytes) else f"a {type(value).__name__}"
        if ADDRESS.search(text) and text.startswith("<"):
            return self._numbered(value)
        text = " ".join(ADDRESS.sub("", text).split())
        return text if len(text) <= characters else f"{text[: characters - 1]}…"

    def several(self, values: Sequence[Any]) -> str:
        """The first few of several values."""
        more = f" and {len(values) - SHOWN_VALUES_MAX} more" if len(values) > SHOWN_VALUES_MAX else ""
        return ", ".join(map(self, values[:SHOWN_VALUES_MAX])) + more

    def _numbered(self, value: Any) -> str:
        kept, name = self._objects.get(id(value), (None, ""))
        if not name or kept() is not value:
            kind = type(value).__name__
            try:
                kept = weakref.ref(value)
            except TypeError:
                return kind
            self._counts[kind] += 1
            name = f"{kind} #{self._counts[kind]}"
            self._objects[id(value)] = kept, name
        return name
