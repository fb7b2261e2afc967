"""The injector: makes the faults of a plan happen in a world, and counts those that had an effect.

Theory of operation
-------------------
Every fault of the plan becomes a *case*. Its moment comes by virtual time, or synchronously when a probe is passed;
then its *action* (`actions.py`) runs. An action attempts at once. Where its target is not there (nothing is up, no such
actor, no file yet) it may *await* the next possibility for a while. What lasts ends after its time. A case is *over*
when nothing more can come of it; when all are over, the world is healed.

Invariants
----------
N1  A case hits only when the world was changed by it: a verb failed, an actor that lived crashed, a task was kept back.
N2  After healing no case does anything, and whatever one had changed for a time is as before.
N3  Nothing here raises into the code whose probe, verb or step it uses, but for the one exception of `CrashInBatch`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.simulations.faults.kinds import CancelTask, CrashInRecovery, Fault, PauseTask
from callboard.simulations.faults.plan import Plan
from callboard.simulations.faults.when import AWAIT, WAKE, After, At

if TYPE_CHECKING:
    from callboard.simulations.world.world import World

AWAIT_S: Final = 10.0
"""Virtual seconds for which a fault whose moment has come waits for its target, or for the verb that it shall fail."""
AFTER_S: Final = 60.0
"""Virtual seconds from the beginning (or twice the last moment of the plan, if that is later) after which passings that
did not come are given up."""
LOOK_EVERY_S: Final = 0.02
LOOK_SLOWER: Final = 1.5


class FaultCase:
    """One fault of the plan, and its progress."""

    def __init__(self, injector: Injector, index: int, fault: Fault) -> None:
        self.injector = injector
        self.world: World = injector.world
        self.index = index
        self.fault = fault
        self.is_over = False
        self._hits = 0
        self._undo: list[Callable[[], object]] = []
        self._awaiting: object = None

    # -- what actions say

    def hit(self) -> None:
        """The fault had an effect (N1). Entered in the history the first time."""
        if not self._hits:
            where = self.world.steps.where
            told = f"{self.fault.happening()} ({where})" if where else self.fault.happening()
            self.world.history.note("fault", told, who=self.fault.label)
        self._hits += 1
        self.world.hit(self.index, self.fault.label)

    def hit_once(self) -> None:
        """The same, for effects that come with every step: the first one counts."""
        if not self._hits:
            self.hit()

    def over(self) -> None:
        """The fault has ended: undo its temporary changes."""
        if self.is_over:
            return
        self.is_over = True
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self.injector.case_over()

    def finally_(self, undo: Callable[[], object]) -> None:
        """Call `undo` when the case is over, for whatever reason (N2)."""
        self._undo.append(undo)

    # -- time

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call `call` after this many virtual seconds, unless the case is over by then."""

        async def wait() -> None:
            await self.world.rest(seconds)
            if not self.is_over:
                call()

        self.injector.task(wait)

    def over_after(self, seconds: float) -> None:
        """The case lasts this many virtual seconds from now, and what it has slowed down a little longer."""
        until = (
            self.world.now
            + seconds
            + getattr(self.fault, "latency_s", 0.0)
            + getattr(self.fault, "delay_s", 0.0)
        )
        self.world.history.record(0, "fault lasts", self.fault.label, until=until)
        self.later(seconds, self.over)

    def when_passed(self, probe: str, about: str, call: Callable[[], None]) -> None:
        """Call `call` at the next passing of a probe, unless the case is over by then."""
        self.finally_(self.world.probes.wait(probe, 1, about, call))

    # -- possibilities

    def attempt(self, act: Callable[[], bool], probe: str = "", about: str = "") -> None:
        """Let `act` do it: now, or at passings of `probe` about `about` (without one: at looks by time), for a while.

        `act` says whether it could; it then has taken over the case.
        """
        if act():
            return
        self.over_after_waiting(act)
        if probe:
            self._attempt_again(act, probe, about)
        else:
            self._look(act, LOOK_EVERY_S)

    def attempt_once(self, do: Callable[[], bool], probe: str = "", about: str = "") -> None:
        """The same for what happens in one stroke: it hits, and is over, as soon as `do` says that it did it."""

        def act() -> bool:
            if not do():
                return False
            self.hit()
            self.over()
            return True

        self.attempt(act, probe, about)

    def over_after_waiting(self, for_what: object) -> None:
        """The case is over when it still waits for this after `AWAIT_S`."""
        self._awaiting = for_what
        self.later(AWAIT_S, lambda: self.over() if self._awaiting is for_what else None)

    def _attempt_again(self, act: Callable[[], bool], probe: str, about: str) -> None:
        def passed() -> None:
            if not self.is_over and not self._succeeded(act):
                self._attempt_again(act, probe, about)

        self.when_passed(probe, about, passed)

    def _look(self, act: Callable[[], bool], pause_s: float) -> None:
        def look() -> None:
            if not self._succeeded(act):
                self._look(act, pause_s * LOOK_SLOWER)

        self.later(pause_s, look)

    def _succeeded(self, act: Callable[[], bool]) -> bool:
        if not act():
            return False
        if self._awaiting is act:
            self._awaiting = None
        return True


Action = Callable[[FaultCase, Any], None]
"""What a kind of fault does when its moment has come."""


class HeldActors:
    """Which cases hold which actors. The latest hold on an actor counts, then the one before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[str, list[tuple[FaultCase, Callable[[], None]]]] = {}

    def take(self, path: str, case: FaultCase, apply: Callable[[], None]) -> None:
        """Let `apply` hold or slow the actor until the case is over."""
        held = self._held.setdefault(path, [])
        self._world.scheduler.release(path)
        held.append((case, apply))
        apply()
        case.finally_(lambda: self._let_go(path, case))

    def _let_go(self, path: str, case: FaultCase) -> None:
        left = self._held[path] = [hold for hold in self._held[path] if hold[0] is not case]
        self._world.scheduler.release(path)
        if left:
            left[-1][1]()


class Recoveries:
    """Counts the disk verbs of actors that recover."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._watched: dict[FaultCase, tuple[str, Callable[[], None]]] = {}

    def install(self) -> None:
        """Begin to observe every verb."""
        disk = self._world.disk
        first = disk.observer

        def observe(owner: str, verb: str, path: str) -> None:
            if first is not None:
                first(owner, verb, path)
            if self._watched:
                self._see()

        disk.observer = observe

    def watch(self, path: str, case: FaultCase, call: Callable[[], None]) -> None:
        """Call `call` before each disk verb of the actor at `path`, until the case is over."""
        self._watched[case] = (path, call)
        case.finally_(lambda: self._watched.pop(case, None))

    def _see(self) -> None:
        name = trio.lowlevel.current_task().name
        for path, call in tuple(self._watched.values()):
            if name == path or name.startswith(f"{path}:"):
                call()


class Injector:
    """Wires a plan into a world. `actions` is what each kind of fault does (`actions.ACTIONS`)."""

    def __init__(self, world: World, actions: Mapping[type[Fault], Action]) -> None:
        self.world = world
        self._actions = actions
        self.held_actors = HeldActors(world)
        self.recoveries = Recoveries(world)
        self.full_by: FaultCase | None = None
        """The case that last made the disk full."""
        self.cases = [FaultCase(self, index, fault) for index, fault in enumerate(world.plan.faults)]
        self._left = len(self.cases)
        self._scopes: dict[trio.CancelScope, None] = {}

    def install(self) -> None:
        """From now on the plan's faults happen. Called once, when tasks of the world may be started."""
        world, timed = self.world, []
        if not self.cases:
            world.heal()
            return
        world.on_heal.append(self._healed)
        if any(isinstance(case.fault, CrashInRecovery) for case in self.cases):
            self.recoveries.install()
        waiting: list[FaultCase] = []
        for case in self.cases:
            when = case.fault.when
            if isinstance(when, At):
                timed.append((when.seconds, case))
            else:
                waiting.append(case)
                forget = world.probes.wait(when.probe, when.count, when.about, self._beginning(case, waiting))
                case.finally_(forget)
        if timed:
            timed.sort(key=lambda pair: pair[0])
            self.task(self._timeline, timed)
        if waiting:
            last = max((seconds for seconds, _ in timed), default=0.0)
            self.task(self._give_up, waiting, max(AFTER_S, 2.0 * last))

    def task(self, async_fn: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task of the world that ends, wherever it is, at healing."""

        async def until_healed() -> None:
            with trio.CancelScope() as scope:
                self._scopes[scope] = None
                try:
                    await async_fn(*args)
                finally:
                    del self._scopes[scope]

        self.world.spawn(until_healed, name="world: injector")

    async def _timeline(self, timed: list[tuple[float, FaultCase]]) -> None:
        start = trio.current_time()
        for seconds, case in timed:
            await trio.sleep_until(start + seconds)
            self._begin(case)

    def _begin(self, case: FaultCase) -> None:
        """Run the action: the fault's moment has come."""
        if not case.is_over:
            self._actions[type(case.fault)](case, case.fault)

    def _beginning(self, case: FaultCase, waiting: list[FaultCase]) -> Callable[[], None]:
        def passed() -> None:
            waiting.remove(case)
            self._begin(case)

        return passed

    async def _give_up(self, waiting: list[FaultCase], seconds: float) -> None:
        await self.world.rest(seconds)
        for case in tuple(waiting):
            case.over()

    def case_over(self) -> None:
        """One case is over; after the last one the world is healed."""
        self._left -= 1
        if self._left == 0:
            self.world.heal()

    def _healed(self) -> None:
        """Stop all faults (N2)."""
        for case in self.cases:
            case.over()
        for scope in tuple(self._scopes):
            scope.cancel()


def tasks_cancelled_by(plan: Plan) -> tuple[str, ...]:
    """Parts of the names of the tasks that the plan may cancel."""
    return tuple(dict.fromkeys(fault.task for fault in plan.faults if isinstance(fault, CancelTask)))


def waits_for_steps(plan: Plan) -> bool:
    """Whether some fault of the plan may wait for a step of the program's tasks, or a wake-up of the loop."""
    return any(
        isinstance(fault, CancelTask | PauseTask)
        or (isinstance(fault.when, After) and fault.when.probe in (AWAIT, WAKE))
        for fault in plan.faults
    )
