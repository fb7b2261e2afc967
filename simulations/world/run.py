"""One deterministic run: the same seed, plan, workload and code give the same trace, byte for byte, in any process."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import attrs
import trio

from callboard.actors.kernel.durable import DurableActor
from callboard.log.errors import CallboardError
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import Generator
from callboard.simulations.faults import NO_FAULTS, Plan
from callboard.simulations.faults.actions import ACTIONS
from callboard.simulations.faults.injector import Injector, tasks_cancelled_by, waits_for_steps
from callboard.simulations.history import History, HistoryEntry
from callboard.simulations.violations import Violation
from callboard.simulations.watching import (
    TaskSteps,
    WaitingTask,
    Watch,
    told,
    unobserved_calls,
    watched_calls,
)
from callboard.simulations.watching.tasks import awaited, described
from callboard.simulations.watching.watch import frames_of, raised_at
from callboard.simulations.world import schedulers
from callboard.simulations.world.computing import StillComputing, limited_computing, wake_for_no_signal
from callboard.simulations.world.driver import MEMBER, Driver, TaskOwner
from callboard.simulations.world.escapes import EscapeMode, guard
from callboard.simulations.world.tape import Tape
from callboard.simulations.world.trace import Trace, TraceMode
from callboard.simulations.world.trio_hooks import (
    VirtualTrioClock,
    abandon_tasks,
    end_shields,
    installed,
    live_async_generators,
    spawned_in_scopes,
    stepped_task,
)
from callboard.simulations.world.world import CURRENT, OUTSIDE, Machine, SimulationStuck, World, machine_of

if TYPE_CHECKING:
    from callboard.simulations.world.schedulers import TaskScheduler

DAY_S: Final = 86_400.0


class _Abandoned(BaseException):
    """Ends trio's loop from outside of all tasks; names the tasks that go on."""


class LiveAsyncGenerator(CallboardError):
    """An async generator was begun and not ended: when it ends is up to the garbage collector."""


@attrs.frozen
class Settings:
    """How to run, apart from what. Limits are virtual seconds and scheduler ticks."""

    scheduler: str | None = None
    """None: drawn from the seed."""
    starvable: tuple[str, ...] = ()
    """Paths of actors of which a drawn scheduler may starve one."""
    trace: TraceMode = "digest"
    sink: Callable[[str], None] | None = None
    """Takes the lines of a full trace instead of `Trace.lines`."""
    record_schedule: bool = False
    virtual_limit_s: float = 30 * DAY_S
    tick_limit: int = 20_000_000
    computing_limit_s: float | None = None
    """Processor time that one step of one task may take; None: `computing.LIMIT_S`."""
    still_ticks: int = 500_000
    """This many ticks at one virtual instant, and the run is ended as one that spins."""
    escapes: EscapeMode = "refuse"
    snapshot_every: int | None = None
    """After how many events durable actors write a snapshot whose classes do not say it; None: as usual."""
    counts_steps: bool = False
    """Passings of the probe `await` are counted even if no fault waits for one."""
    delivers_copies: bool | None = None
    """Wire mode: actors send and answer copies. None: of every third seed (`in_wire_mode`)."""
    watched: bool = False
    """Record in the history what the program does: its tasks, lines, messages. The run takes the same course."""


def in_wire_mode(seed: int) -> bool:
    """Whether the actors of a run of this seed send and answer copies: a third of all seeds."""
    return seed % 3 == 2


@attrs.frozen
class Run:
    """How a run went. `failure` is what its main raised, or the first violation; None when it ended well."""

    seed: int
    plan: Plan
    scheduler: str
    failure: BaseException | None
    history: History
    hits: dict[int, int]
    """Per index in `plan.faults`: how often it had an effect."""
    fault_counts: Counter[str]
    probes: Counter[str]
    trace: Trace
    tape: Tape | None
    virtual_s: float
    ticks: int
    boots: int
    disk: MemoryDisk
    delivers_copies: bool = False
    """It was in wire mode."""
    first: HistoryEntry | None = None
    """The entry at which the failure showed, if one is known."""
    waiting: tuple[WaitingTask, ...] = ()
    """Where the tasks waited then."""


def run(
    main: Callable[[World], Awaitable[object]],
    *,
    seed: int,
    plan: Plan = NO_FAULTS,
    tape: Tape | None = None,
    settings: Settings = Settings(),
) -> Run:
    """Run `main(world)` in a trio run of its own, and tell how it went; what it raises is in `Run.failure`.

    `tape` replays a schedule, and overrules the scheduler; when it does not fit, the failure is a `StaleTape`. Not
    reentrant: one simulation at a time in a process, and no other trio run beside it. Raises `SimulatorUnsupported` for
    a release of trio that it cannot steer, and lets `KeyboardInterrupt` and `SystemExit` pass.
    """
    return _Running(main, seed, plan, tape, settings).go()


class _Running:
    """A run in the making."""

    def __init__(
        self,
        main: Callable[[World], Awaitable[object]],
        seed: int,
        plan: Plan,
        tape: Tape | None,
        settings: Settings,
    ) -> None:
        self._main = main
        self._settings = settings
        scheduler: TaskScheduler
        source = Generator(f"{seed}/scheduler")
        if tape is not None:
            scheduler = schedulers.Player(tape)
        else:
            starved = schedulers.draw_starved(Generator(f"{seed}/starved"), settings.starvable)
            name = settings.scheduler or starved or schedulers.draw_name(source)
            scheduler = schedulers.make(name, source)
        self._clock = VirtualTrioClock()
        self._trace = Trace(settings.trace, self._clock.current_time, settings.sink)
        self._world = world = World(seed, plan, self._trace)
        copies = settings.delivers_copies
        world.delivers_copies = in_wire_mode(seed) if copies is None else copies
        if settings.watched:
            world.watch = Watch(world.history, world.names, machine_of)
            world.watch.take_waiting = world.waiting
        self._driver = self._world.scheduler = Driver(
            scheduler,
            self._trace,
            record=settings.record_schedule,
            virtual_limit_s=settings.virtual_limit_s,
            tick_limit=settings.tick_limit,
            still_ticks=settings.still_ticks,
            ended=self._stop,
            told=self._told,
            pass_time=self._clock.pass_time,
        )
        self._clock.ticking = self._driver
        if settings.counts_steps or waits_for_steps(plan):
            self._world.steps.counts = settings.counts_steps
            self._driver.steps = self._world.steps
        self._scope = trio.CancelScope()
        self._stopped: SimulationStuck | None = None
        self._computing = ""
        """What computes without waiting, and where."""
        self._forced = False
        self._failure: BaseException | None = None
        self._interruption: BaseException | None = None
        self._virtual_s = 0.0
        self._begun_by: WeakKeyDictionary[AsyncGenerator[Any, Any], TaskOwner | None] = WeakKeyDictionary()

    def go(self) -> Run:
        world, driver = self._world, self._driver
        library = Generator(f"{world.seed}/library")
        with (
            installed(driver.decide),
            guard(
                self._settings.escapes, library, world.clock.wall_us, self._clock.current_time, world.escaped
            ),
            spawned_in_scopes(tasks_cancelled_by(world.plan), world.task_scopes),
            _no_collection(),
            _snapshots_every(self._settings.snapshot_every),
            nullcontext() if world.watch is None else watched_calls(world.watch),
            unobserved_calls(world.history.unobserved),
            limited_computing(self._settings.computing_limit_s, self._step, self._computes),
        ):
            try:
                trio.run(self._run, clock=self._clock)
            except trio.TrioInternalError as error:
                if not isinstance(error.__cause__, _Abandoned):
                    raise
                self._failure = self._abandoned(str(error.__cause__))
        if self._interruption is not None:
            raise self._interruption
        broken = world.escape or world.violation
        failure = getattr(driver.scheduler, "stale", None) or broken or self._failure
        first = failure.first if isinstance(failure, Violation) else None
        waiting = getattr(failure, "waiting", ())
        if world.watch is not None:
            first = first or world.watch.entry_of(failure) or world.watch.stuck_at
            waiting = waiting or world.watch.waiting_of(failure)
        return Run(
            seed=world.seed,
            plan=world.plan,
            scheduler=driver.scheduler.name,
            failure=failure,
            history=world.history,
            hits=dict(world.hits),
            fault_counts=world.fault_counts,
            probes=world.probes.counts,
            trace=self._trace,
            tape=driver.tape,
            virtual_s=self._virtual_s,
            ticks=driver.ticks,
            boots=world.boots,
            disk=world.disk,
            delivers_copies=world.delivers_copies,
            first=first,
            waiting=waiting,
        )

    async def _run(self) -> None:
        wake_for_no_signal()
        world = self._world
        CURRENT.set(world)
        MEMBER.set(OUTSIDE)
        self._watch_generators()
        if world.watch is not None:
            trio.lowlevel.add_instrument(TaskSteps(world.watch))
        try:
            async with trio.open_nursery() as nursery:
                world.begin(nursery)
                Injector(world, ACTIONS).install()
                try:
                    with self._scope:
                        await self._main(world)
                        self._check_generators()
                except BaseException as error:  # noqa: BLE001 - the run's outcome
                    if world.watch is not None and not isinstance(error, trio.Cancelled):
                        who = world.names.of(trio.lowlevel.current_task(), 0, frames_of(error))
                        world.watch.failed(error, who, raised_at(error), 0)
                    self._fail(error)
                if world.watch is not None:
                    world.watch.is_over = True
                self._virtual_s = self._now()
                end = self._stopped or world.escape or world.violation or self._failure
                self._trace.line("end", "well" if end is None else type(end).__name__)
                self._trace.close()
                world.tear_down()
                nursery.cancel_scope.cancel()
        except BaseException as error:  # noqa: BLE001 - a task of the world failed, and so the run
            self._fail(error)
        self._failure = self._stopped or self._failure

    def _fail(self, error: BaseException) -> None:
        if self._interruption is None:
            self._interruption = _interruption(error)
        if self._failure is None and not isinstance(error, trio.Cancelled):
            self._failure = _plain(error)

    def _stop(self, why: str, waits: bool) -> None:
        """End the run from outside of all tasks. `waits`: because of what tasks wait for."""
        world = self._world
        if self._stopped is not None or (world.is_over and not waits):
            if self._forced:
                going_on = self._driver.going_on()
                abandon_tasks()
                raise _Abandoned(going_on)
            self._forced = True
            end_shields()
            return
        waiting = world.waiting()
        lines = "".join(f"\n  {line}" for line in told(waiting, with_code=False)) if waits else ""
        self._stopped = SimulationStuck(
            f"{why}. It is at virtual second {self._now():,.15g}, boot {world.boots}.{lines}",
            waiting=tuple(waiting),
        )
        if world.watch is not None:
            world.watch.stuck(why)
        self._end()

    def _told(self, task: trio.lowlevel.Task) -> str:
        """A task with its line, in words."""
        member = task.context.get(MEMBER)
        number = member.number if isinstance(member, Machine) else 0
        frames = [frame for _, frame in awaited(task)]
        found = described(task, frames, lambda named: self._world.names.of(named, number))
        return f"{found.name} at {found.where}" if found.where else found.name

    def _abandoned(self, going_on: str) -> BaseException:
        """The failure of a run whose tasks did not end when they were asked to."""
        if self._stopped is None:
            begins = "The run was over"
        else:
            begins = f"{str(self._stopped).rstrip('.')}. The run was asked to end"
            if not self._world.is_over:
                self._virtual_s = self._now()
        stuck = SimulationStuck(
            f"{begins}, and {going_on or 'one of these tasks'} goes on all the same: it swallows trio.Cancelled. "
            "The run was abandoned as it stood. Let Cancelled pass: catch other exceptions, or raise it again",
            waiting=() if self._stopped is None else self._stopped.waiting,
            abandoned=True,
        )
        if self._stopped is None and self._failure is not None:  # the failure of the test comes first
            self._failure.add_note(str(stuck))
            return self._failure
        self._stopped = stuck
        return stuck

    def _now(self) -> float:
        """Virtual time: the clock stands still before a jump past the limit, which is reached all the same."""
        return max(self._world.now, self._driver.reached_s)

    def _step(self) -> tuple[int, int]:
        """Which step is under way: distinguishes it from the one before and the one after."""
        return self._driver.ticks, id(stepped_task())

    def _computes(self, where: str, seconds: float, frames: list[FrameType]) -> BaseException:
        """A step of the program computes for ever at this line. Called in a signal handler: ends the run soon."""
        if self._stopped is not None:
            return StillComputing()
        task = stepped_task()
        name = self._world.names.of(task, machine_of(task) or 0, frames)
        self._computing = (
            f"{name} computes without ever waiting: for {seconds:g} s of processor time, and is at {where}"
        )
        self._stopped = SimulationStuck(
            f"{self._computing}. Meanwhile nothing else can run. Let it wait, with `await trio.lowlevel.checkpoint()`, "
            "or end",
            waiting=(),
            computes=True,
        )
        trio.lowlevel.current_trio_token().run_sync_soon(self._end)
        return self._stopped

    def _end(self) -> None:
        """Cancel what is under way."""
        if self._world.watch is not None and self._computing:
            self._world.watch.stuck(self._computing)
        self._scope.cancel()
        if self._world.machine is not None:
            self._world.machine.over.set()

    def _watch_generators(self) -> None:
        """Remember the task that begins each async generator. When the run ends trio puts the hooks back."""
        hooks = sys.get_asyncgen_hooks()

        def begun(generator: AsyncGenerator[Any, Any]) -> None:
            self._begun_by[generator] = MEMBER.get()
            if hooks.firstiter is not None:
                hooks.firstiter(generator)

        sys.set_asyncgen_hooks(firstiter=begun)

    def _check_generators(self) -> None:
        """Those of dead machines are left as they stand, as all is there; their tasks still hold them."""
        found = [(generator, self._begun_by.get(generator)) for generator in live_async_generators()]
        alive = [generator.__qualname__ for generator, member in found if member is None or not member.dead]
        if alive:
            raise LiveAsyncGenerator(
                f"the run ended with live async generators: {', '.join(sorted(alive))}. When they end is up to the "
                "garbage collector, so runs would differ. Close each in the task that began it (contextlib.aclosing)."
            )


def _interruption(error: BaseException | None) -> BaseException | None:
    """Ctrl-C or an exit itself, which knows where it struck, out of the groups of nurseries it went through."""
    while isinstance(error, BaseExceptionGroup):
        found = error.subgroup((KeyboardInterrupt, SystemExit))
        error = None if found is None else found.exceptions[0]
    return error if isinstance(error, (KeyboardInterrupt, SystemExit)) else None


def _plain(error: BaseException) -> BaseException:
    """The first violation in a group of exceptions, or the only exception in it, else the group.

    An exception that was never raised but for the group has no traceback: then the group's is all there is.
    """
    if isinstance(error, BaseExceptionGroup):
        broken, _ = error.split(Violation)
        found: BaseException = error if broken is None else broken
        while isinstance(found, BaseExceptionGroup) and (broken is not None or len(found.exceptions) == 1):
            if broken is None and found.exceptions[0].__traceback__ is None:
                break
            found = found.exceptions[0]
        return found
    return error


@contextmanager
def _snapshots_every(events: int | None) -> Iterator[None]:
    """Inside this context the usual number of events between two snapshots is another; what a class says, holds."""
    usual = DurableActor.snapshot_every
    DurableActor.snapshot_every = usual if events is None else events
    try:
        yield
    finally:
        DurableActor.snapshot_every = usual


@contextmanager
def _no_collection() -> Iterator[None]:
    """When garbage is collected depends on the process: not in a run."""
    was: Any = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
