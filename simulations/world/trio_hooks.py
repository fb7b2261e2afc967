"""Every private part of trio that a deterministic run needs, and nothing else.

trio has no public way to decide which runnable task steps next. It has one old, stable, private one: with
`_ALLOW_DETERMINISTIC_SCHEDULING` set, each tick sorts the runnable tasks by creation order and gives the batch to
`_r.shuffle`. What that leaves in the list is stepped, last one first; what it takes out is not stepped, and may be put
on the run queue again later. (The same in every release from 0.25 to 0.35; hypothesis and pytest-trio use it too.)

Three more things depend on addresses in memory and are replaced for the length of a run: the hash of tasks (nursery
children and cancellation walk sets of them), the hash of cancel statuses (the same), and the order of deadlines that
tie.

Whatever is missing in another release of trio is named by `SimulatorUnsupported`, before anything runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from heapq import heappush
from itertools import count
from typing import Any, Final

import trio

from callboard.log.errors import CallboardError
from callboard.simulations.entropy import Generator

_run: Any = trio._core._run
_mock_clock: Any = getattr(trio._core, "MockClock", None)
"""`trio.testing.MockClock`; but `trio.testing` imports pytest, where that is installed."""

NEVER: Final = float("inf")
AGES_S: Final = 999_999_999.0
"""What trio is to sleep when only a jump of the clock can wake a task; the jump comes at once."""
POLL_EVERY: Final = 16
"""Ticks from one question to the kernel to the next, while anybody can run."""


class SimulatorUnsupported(CallboardError):
    """This release of trio lacks something that a deterministic run needs."""


class TickingClock:
    """What a `VirtualTrioClock` asks before it jumps. Subclassed by the run."""

    def next_due(self) -> float:
        """The virtual time at which something that is held back is due; infinity if nothing is."""
        return NEVER

    def arrived(self, now: float) -> None:
        """Virtual time has jumped to `now`."""

    def woke(self) -> None:
        """A jump of virtual time is done."""

    def stuck(self, now: float) -> None:
        """No task can run, and no deadline will ever come."""

    def late(self, until: float) -> bool:
        """Whether virtual time must not jump to `until`; then it ends the run by itself."""
        return False


class VirtualTrioClock(trio.abc.Clock):
    """A trio clock that stands still while anybody can run, and then jumps to what comes next."""

    def __init__(self) -> None:
        self.ticking = TickingClock()
        self._now = 0.0

    def start_clock(self) -> None:
        """Called by trio before its first task: the earliest moment at which a run's own state can be changed."""
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        runner.clock_autojump_threshold = 0.0
        runner.deadlines = _ordered_deadlines()()
        runner.io_manager = _RarelyPolled(runner.io_manager, runner.runq)
        if not isinstance(runner.instruments, dict):
            slow: Any = type(runner.instruments)
            runner.instruments = _quick_instruments(slow)(runner.instruments)

    def current_time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Zero for what is due; else as good as for ever."""
        return 0.0 if deadline <= self._now else AGES_S

    def _autojump(self) -> None:
        deadline = _run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        coming = min(deadline, self.ticking.next_due())
        if coming == NEVER:
            self.ticking.stuck(self._now)
        elif not self.ticking.late(coming) and coming > self._now:
            self._now = coming
            self.ticking.arrived(coming)
            self.ticking.woke()

    def pass_time(self, seconds: float) -> None:
        """Go on while tasks can run: deadlines that pass meanwhile expire together, at trio's next pass."""
        self._now += seconds
        self.ticking.arrived(self._now)


# trio only lets its own mock clock jump, which may not be subclassed, and asks with isinstance.
if _mock_clock is not None:
    _mock_clock.register(VirtualTrioClock)


class _RarelyPolled:
    """trio's I/O manager, which asks the kernel at each tick: one in sixteen while anybody is runnable is enough here.

    A run waits for no descriptor but the one by which signals and `TrioToken.run_sync_soon` wake trio up.
    """

    def __init__(self, manager: Any, runnable: Any) -> None:
        self._manager = manager
        self._runnable = runnable
        self._ticks = 0
        self.process_events = manager.process_events

    def get_events(self, timeout: float) -> Any:
        """What the kernel says, or nothing."""
        self._ticks += 1
        if self._runnable and self._ticks % POLL_EVERY:
            return ()
        return self._manager.get_events(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)


class _Decisions(Generator):
    """Stands where trio keeps its source of randomness; `shuffle` is the scheduling decision."""

    def __init__(self, decide: Callable[[list[Any]], None]) -> None:
        super().__init__(0)
        self.decide = decide

    def shuffle(self, x: Any) -> None:
        """trio steps what is left in `x`, from its end to its beginning."""
        self.decide(x)


def missing_hooks() -> list[str]:
    """What this release of trio lacks; empty when a deterministic run is possible."""
    found = {
        "trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING": hasattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING"),
        "trio._core._run._r": isinstance(getattr(_run, "_r", None), Generator),
        "trio._core._run.GLOBAL_RUN_CONTEXT": hasattr(_run, "GLOBAL_RUN_CONTEXT"),
        "trio._core._run.Deadlines.add": hasattr(getattr(_run, "Deadlines", None), "add"),
        "trio._core._run.CancelStatus": isinstance(getattr(_run, "CancelStatus", None), type),
        "trio._core._run.CancelStatus._children": hasattr(getattr(_run, "CancelStatus", None), "_children"),
        "trio._core._run.CancelStatus._scope": hasattr(getattr(_run, "CancelStatus", None), "_scope"),
        "trio.CancelScope._might_change_registered_deadline": hasattr(
            trio.CancelScope, "_might_change_registered_deadline"
        ),
        **{
            f"trio.CancelScope.{name}": hasattr(trio.CancelScope, name)
            for name in ("_cancel_status", "_deadline", "_registered_deadline")
        },
        "trio._core._run.Task._counter": "_counter" in getattr(_run.Task, "__slots__", ())
        or hasattr(_run.Task, "_counter"),
        "trio._core._run.Runner.clock_autojump_threshold": hasattr(_run.Runner, "clock_autojump_threshold"),
        "trio._core._run.Runner.io_manager": hasattr(_run.Runner, "io_manager"),
        "trio._core._run.Runner.spawn_impl": hasattr(_run.Runner, "spawn_impl"),
        "trio._core._run.Runner.instruments": hasattr(_run.Runner, "instruments"),
        "trio._core.MockClock._autojump": hasattr(_mock_clock, "_autojump"),
    }
    return [name for name, there in found.items() if not there]


@contextmanager
def installed(decide: Callable[[list[Any]], None]) -> Iterator[None]:
    """For one `trio.run` inside: `decide(batch)` orders, and thins out, each tick's runnable tasks.

    Not reentrant, and for the whole process: no other trio run may happen meanwhile, in any thread.
    """
    missing = missing_hooks()
    if missing:
        raise SimulatorUnsupported(
            f"trio {trio.__version__} has no {', '.join(missing)}. Nothing was run. A simulation needs them: "
            "use a release of trio that callboard was tested with (0.25 to 0.35)."
        )
    if isinstance(_run._r, _Decisions):
        raise SimulatorUnsupported("a simulation runs in this process already. Run one after the other.")
    before = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r, _run.CancelStatus
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    _run._r = _Decisions(decide)
    _run.CancelStatus = _numbered_cancel_status()
    _born[:] = [count(1)]
    _run.Task.__hash__ = task_number
    _first.clear()
    scopes: Any = trio.CancelScope
    section = scopes._might_change_registered_deadline
    _quicken(section)
    try:
        yield
    finally:
        scopes._might_change_registered_deadline = section
        _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r, _run.CancelStatus = before
        del _run.Task.__hash__


@contextmanager
def spawned_in_scopes(names: tuple[str, ...], scopes: dict[Any, trio.CancelScope]) -> Iterator[None]:
    """While inside, tasks of the program run in cancel scopes of their own, kept in `scopes`: those so named in part.

    A cancelled one ends as if its function had returned None.
    """
    if not names:
        yield
        return
    original = _run.Runner.spawn_impl

    def spawn_impl(runner: Any, async_fn: Any, args: Any, nursery: Any, name: Any, **options: Any) -> Any:
        named = async_fn if name is None else name
        called, function = (
            given.func if isinstance(given, partial) else given for given in (named, async_fn)
        )
        label = called if isinstance(called, str) else f"{called.__module__}.{called.__qualname__}"
        if (
            not options.get("system_task")
            and not _is_machinery(function)
            and any(meant in label for meant in names)
        ):
            return original(runner, _in_scope, (scopes, async_fn, *args), nursery, label, **options)
        return original(runner, async_fn, args, nursery, name, **options)

    _run.Runner.spawn_impl = spawn_impl
    try:
        yield
    finally:
        _run.Runner.spawn_impl = original


def _is_machinery(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] in ("trio", "callboard")


async def _in_scope(
    scopes: dict[Any, trio.CancelScope], async_fn: Callable[..., Awaitable[Any]], *args: Any
) -> Any:
    task = trio.lowlevel.current_task()
    with trio.CancelScope() as scope:
        scopes[task] = scope
        try:
            return await async_fn(*args)
        finally:
            del scopes[task]


class _Section:
    """What trio does around a change of a cancel scope, which is nothing unless the scope has, or had, a deadline."""

    __slots__ = ("_scope", "_steps")

    def __init__(self, scope: Any, steps: Any) -> None:
        self._scope = scope
        self._steps = steps

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        scope = self._scope
        if scope._deadline != NEVER or scope._registered_deadline != NEVER:
            for _ in self._steps(scope):  # what is done is at the end
                pass


def _quicken(section: Any) -> None:
    """Let cancel scopes, of which a run enters hundreds, come by their sections in less time."""

    steps = getattr(section, "__wrapped__", None)
    if steps is not None:

        def quick(scope: trio.CancelScope) -> _Section:
            return _Section(scope, steps)

        scopes: Any = trio.CancelScope
        scopes._might_change_registered_deadline = quick


_first: list[int] = []
"""The counter of the run's first task. An absolute number would order sets otherwise in a process's second run."""


def task_number(task: Any) -> int:
    """A task's number in order of creation, counted from the run's first task."""
    if not _first:
        _first.append(task._counter)
    return task._counter - _first[0]  # type: ignore[no-any-return]  # asked by each set of tasks, some thousand times


def live_tasks() -> list[Any]:
    """All tasks of the run, in order of creation."""
    return sorted(_run.GLOBAL_RUN_CONTEXT.runner.tasks, key=task_number)


def task_numbers(tasks: list[Any]) -> list[int]:
    """`task_number` of each; `decide` has seen one before."""
    first = _first[0]
    return [task._counter - first for task in tasks]


def put_back(task: Any) -> None:
    """Let a task that `decide` took out of its batch be runnable again."""
    _run.GLOBAL_RUN_CONTEXT.runner.runq.append(task)


def put_back_all(tasks: list[Any]) -> None:
    """The same for several, in this order."""
    _run.GLOBAL_RUN_CONTEXT.runner.runq.extend(tasks)


def end_shields(below: trio.CancelScope | None = None) -> bool:
    """Let cancellation reach everybody: shields of all scopes are lowered, or of an entered scope and those in it.

    Returns whether there was any.
    """
    if below is None:
        top = _run.GLOBAL_RUN_CONTEXT.runner.main_task._cancel_status
        while top._parent is not None:
            top = top._parent
    else:
        top = below._cancel_status
    waiting = [] if top is None else [top]
    was_any = False
    while waiting:
        status = waiting.pop()
        waiting += sorted(status._children, key=hash)
        if status._scope.shield:
            status._scope.shield = False
            was_any = True
    return was_any


def live_async_generators() -> list[Any]:
    """The async generators that were begun and have not ended: garbage collection would end them."""
    return list(_run.GLOBAL_RUN_CONTEXT.runner.asyncgens.alive)


def abandon_tasks() -> None:
    """Keep what the run's tasks are for ever, as it stands: a task that swallows what ends it is not asked to end once
    more.

    Python would end each coroutine with an exception when it is freed, at the latest when the process ends; a task that
    catches that too would run on there, outside of trio, without end.
    """
    for task in _run.GLOBAL_RUN_CONTEXT.runner.tasks:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task.coro))


def stepped_task() -> Any:
    """The task that is being stepped; None between two steps."""
    return getattr(_run.GLOBAL_RUN_CONTEXT, "task", None)


def thread_calls() -> list[tuple[Any, str]]:
    """Where trio has work done in threads, new or kept from before: owner and name."""
    cache = getattr(getattr(trio._core, "_thread_cache", None), "ThreadCache", None)
    return [] if cache is None else [(cache, "start_thread_soon")]


_born: list[count[int]] = []
"""The numbers of the run's cancel statuses.

No attribute of their class: when one changes, Python forgets what it knows of the class, and finds everything slowly.
"""


@cache
def _numbered_cancel_status() -> Any:
    """trio's class with a hash that is the number of the object in order of creation."""

    class NumberedCancelStatus(_run.CancelStatus):  # type: ignore[misc]
        __slots__ = ("number",)
        number: int

        def __hash__(self) -> int:
            # Asked first when it is made, and put among its parent's children.
            try:
                return self.number
            except AttributeError:
                self.number = next(_born[0])
                return self.number

    return NumberedCancelStatus


@cache
def _ordered_deadlines() -> Any:
    """trio's heap of deadlines, in which those that tie keep the order in which they were set."""

    class OrderedDeadlines(_run.Deadlines):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.added = 0

        def add(self, deadline: float, cancel_scope: Any) -> None:
            self.added += 1
            heappush(self._heap, (deadline, self.added, cancel_scope))
            self._active += 1

    return OrderedDeadlines


@cache
def _quick_instruments(slow: Any) -> Any:
    """trio's table of instruments, asked five times a tick, as a `dict`: some releases make it a slow `UserDict`."""

    class QuickInstruments(dict[str, Any]):
        add_instrument = slow.add_instrument
        remove_instrument = slow.remove_instrument
        call = slow.call

        @property
        def data(self) -> Any:
            return self

    return QuickInstruments
