"""The world: everything that one simulated run consists of, as its code sees it.

A run's *main* gets the world. It boots machines in it (`machine_until_done`), in which the programs under test run; its
own tasks, and the fault injector's, are outside of any machine and survive power cuts. A machine is one life of the
simulated computer, from its boot to its end or to a power cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from callboard.actors.kernel.events import HookFailed
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.limits import USUAL
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.history import History, HistoryEntry
from callboard.simulations.violations import Violation
from callboard.simulations.watching import TaskNames, WaitingTask, Watch, waiting_tasks
from callboard.simulations.world.driver import MEMBER, Driver
from callboard.simulations.world.probes import Probes
from callboard.simulations.world.steps import Steps
from callboard.simulations.world.trace import Trace
from callboard.simulations.world.trio_hooks import end_shields, live_tasks

if TYPE_CHECKING:
    from callboard.simulations.faults import Plan

T = TypeVar("T")

SOMETIMES: Final = "sometimes: "
"""What the names of `sometimes` points begin with, among probes."""


class SimulationStuck(CallboardError):
    """The run did not come to an end: everybody waits for ever, or it went past its limits.

    `waiting` says where each task was, and what it waited for. `computes`: one of them never waits at all.
    `abandoned`: some went on after they were asked to end, and were left as they stood.
    """

    waiting: tuple[WaitingTask, ...] = ()
    computes: bool = False
    abandoned: bool = False


class _Outside:
    """The membership of tasks outside of machines."""

    dead = False


OUTSIDE: Final = _Outside()
CURRENT: Final[ContextVar[World | None]] = ContextVar("callboard_world", default=None)
"""The world that a task runs in."""


class World:
    """One simulated run. Made by `run`."""

    scheduler: Driver

    def __init__(self, seed: int, plan: Plan, trace: Trace) -> None:
        self.seed = seed
        self.plan = plan
        self.trace = trace
        self.entropy = SeededEntropy(seed)
        self.clock = VirtualClock(monotonic=trace.now)
        self.disk = MemoryDisk(clock=self.clock)
        self.history = History(
            now=trace.now,
            tell={"off": None, "digest": trace.values, "full": self._tell}[trace.mode],
            full=lambda why: self.scheduler.end(why),
        )
        self.probes = Probes()
        self.machine: Machine | None = None
        """The machine that is up."""
        self.boots = 0
        self.limits = USUAL
        """Of the runtimes that machines open."""
        self.delivers_copies = False
        """Wire mode: their actors send and answer copies."""
        self.judges_snapshots = False
        """Whether a `snapshot` of a durable actor that raises breaks a promise. A runtime only reports it."""
        self.inspect: Callable[[str], None] | None = None
        """Called at each passing of a probe of clients; raises for what it finds broken."""
        self.retry_budget = 0
        """How many more times observed publishers may repeat a publish that may have succeeded."""
        self.consumers: dict[str, Any] = {}
        """Observed consumers by name, for faults that crash them."""
        self.steps = Steps(self.probes, self.probe)
        self.task_scopes: dict[Any, trio.CancelScope] = {}
        """Cancel scopes of the program's tasks that a fault of the plan may cancel."""
        self.hits: Counter[int] = Counter()
        self.fault_counts: Counter[str] = Counter()
        self.healed = trio.Event()
        self.on_heal: list[Callable[[], None]] = []
        self.violation: Violation | None = None
        """The first broken promise, even if its exception was swallowed."""
        self.escape: BaseException | None = None
        """The first call around the seams, even if its exception was swallowed, if no promise was broken before."""
        self.names = TaskNames()
        self.watch: Watch | None = None
        """Records what the program under test does, when the run is watched."""
        self._dead: list[Machine] = []
        self._nursery: trio.Nursery
        self._down_s = 0.0
        self.is_over = False
        """Its outcome is decided, and what is left may end."""
        self.disk.observer = self._verb
        self.disk.halted = self._halted
        self.disk.sleep = self._sleep
        self.disk.is_barred = self._is_called_by_the_dead

    def _tell(self, fields: tuple[Any, ...]) -> None:
        self.trace.line("history", HistoryEntry(*fields).line())

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self.trace.now()

    # -- points that are counted, and promises

    def probe(self, name: str, about: str = "") -> None:
        """A countable point was passed, concerning `about`. Faults may wait for it, and happen now."""
        self.probes.passed(name, about)
        if self.inspect is not None:
            self.inspect(name)

    def sometimes(self, name: str, condition: bool = True) -> None:
        """A situation that a good search meets now and then: counted when `condition` holds, expected of a sweep."""
        point = SOMETIMES + name
        if condition:
            self.probes.passed(point, "")
        elif point not in self.probes.counts:
            self.probes.counts[point] = 0

    def always(self, condition: bool, words: str) -> None:
        """Raise `Violation` with `words` unless `condition` holds."""
        if not condition:
            raise self.broken(Violation("always", words))

    async def rest(self, seconds: float) -> None:
        """Let virtual time pass, as `trio.sleep` does, at less cost."""
        await self.scheduler.rest(seconds)

    async def eventually(self, predicate: Callable[[], bool], *, within: float, words: str) -> None:
        """Wait until `predicate()` holds, at most `within` virtual seconds; then raise `Violation` with `words`."""
        end = self.now + within
        pause = min(0.001, within / 16) or 0.001
        while not predicate():
            if self.now >= end:
                raise self.broken(Violation("eventually", f"{words}: not within {within:g} virtual seconds"))
            await trio.sleep(min(pause, max(end - self.now, 1e-6)))
            pause *= 1.25

    def broken(self, violation: Violation) -> Violation:
        """Keep the first violation of the run, and hand `violation` back to be raised.

        When the run is over its outcome is decided: what dead machines still find is of no account.
        """
        if self.violation is None and not self.is_over:
            self.violation = violation
            self.trace.line("violation", str(violation))
            if self.watch is not None:
                who, place, machine = self.watch.here()
                self.watch.failed(violation, who, str(place or ""), machine, "broken")
        return violation

    def escaped(self, error: BaseException) -> None:
        """Keep the first call that reached around the seams: from there on no seed decides the run."""
        if self.escape is None and self.violation is None and not self.is_over:
            self.escape = error
            if self.watch is not None:
                who, place, machine = self.watch.here()
                self.watch.failed(error, who, str(place or ""), machine)

    def waiting(self, stepped: trio.lowlevel.Task | None = None) -> list[WaitingTask]:
        """Where each live task waits, and for what, in order of creation; without the one that is `stepped`."""
        tasks = [task for task in live_tasks() if machine_of(task) is not None and task is not stepped]
        for task in tasks:  # in this order, so that those of one name are numbered in it
            self._name(task)
        return waiting_tasks(tasks, self._name)

    def _name(self, task: trio.lowlevel.Task) -> str:
        return self.names.of(task, machine_of(task) or 0)

    def note(self, words: str, **fields: object) -> None:
        """A remark in history and trace."""
        more = "".join(f" {name}={value!r}" for name, value in fields.items())
        if self.watch is None:
            self.history.note("note", f"{words}{more}")
        else:
            who, place, machine = self.watch.here()
            self.history.record(machine, "note", who, detail=f"{words}{more}", where=str(place or ""))

    def hit(self, index: int, label: str) -> None:
        """Fault number `index` of the plan had an effect; `label` names its kind for the counts."""
        self.hits[index] += 1
        self.fault_counts[label] += 1
        self.probe("fault", label)

    # -- tasks and machines

    def spawn(self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str | None = None) -> None:
        """Run a task of the world itself: it survives power cuts, and is cancelled when the run ends."""
        before = MEMBER.set(OUTSIDE)
        try:
            self._nursery.start_soon(async_fn, *args, name=name or f"world: {async_fn.__qualname__}")
        finally:
            MEMBER.reset(before)

    async def machine_until_done(self, boot: Callable[[Machine], Awaitable[T]]) -> T:
        """Boot a machine, and again after each power cut, until a boot returns; gives what it returned.

        `boot(machine)` finds what the disk kept. An exception from it ends this call with it. One machine at a time.
        """
        if self.machine is not None:
            raise InvalidArgument("a machine is up already. Boot one after the other.")
        while True:
            self.boots += 1
            machine = self.machine = Machine(self, self.boots)
            outcome: list[T] = []
            errors: list[BaseException] = []
            self.history.booted(machine.number)
            before = MEMBER.set(machine)
            try:
                self._nursery.start_soon(
                    _live, machine, boot, outcome, errors, name=f"machine {machine.number}"
                )
            finally:
                MEMBER.reset(before)
            await machine.over.wait()
            if machine.dead:
                await self.rest(self._down_s)
                continue
            self.machine = None
            self.history.ended(machine.number, "closed")
            if errors:
                raise errors[0]
            return outcome[0]

    def cut_power(self, survival: Survival | None = None, down_s: float = 1.0) -> bool:
        """Cut the machine's power now: what was not synced survives as `survival` says (None: not at all).

        No task of the machine is stepped any more; one that is being stepped runs to its next await, behind the fence
        of the disk. The next boot comes `down_s` virtual seconds later. Returns whether a machine was up.
        """
        topics = {} if self.machine is None else self.machine.topic_names()
        machine = self._end(down_s)
        if machine is None:
            return False
        fates = self.disk.crash((survival or Survival()).choosing(self.disk.damage_budget))
        self.history.ended(machine.number, "power cut", self.disk.left_in_words(topics))
        for fate, count in sorted(fates.items()):
            self.fault_counts[f"at a power cut: {fate}"] += count
        return True

    def kill_process(self, down_s: float = 0.0) -> bool:
        """Kill the machine's process now (SIGKILL): like `cut_power`, but the page cache lives on."""
        machine = self._end(down_s)
        if machine is None:
            return False
        self.history.ended(machine.number, "killed")
        self.disk.kill()
        return True

    def _end(self, down_s: float) -> Machine | None:
        machine = self.machine
        if machine is None or machine.dead:
            return None
        machine.dead = True
        self._dead.append(machine)
        machine.runtime = None
        self.consumers.clear()
        self._down_s = down_s
        self.scheduler.freeze_dead()
        machine.over.set()
        return machine

    def heal(self) -> None:
        """End all faults: waiting ones never happen, and lasting ones end."""
        if self.healed.is_set():
            return
        self.healed.set()
        for end in self.on_heal:
            end()
        self.disk.heal()
        self.scheduler.release_all()
        self.history.healed()

    # -- what the run hears

    def heard(self, machine: Machine, event: Any) -> None:
        """An event of the machine's runtime."""
        if machine.dead:
            return
        self.history.event(machine.number, event)
        if self.judges_snapshots and isinstance(event, HookFailed) and event.hook == "snapshot":
            self.broken(Violation("snapshots are made", f"{event.path}: {event.cause}"))
        self.probe(f"event.{type(event).__name__}", getattr(event, "path", ""))

    def _verb(self, owner: str, verb: str, path: str) -> None:
        if self.trace.on:
            self.trace.line("disk", f"{verb} {path} by {owner}")
        self.probes.passed(f"disk.{verb}", path)

    @staticmethod
    def _is_called_by_the_dead() -> bool:
        member = MEMBER.get()
        return member is not None and member.dead

    async def _sleep(self, seconds: float) -> None:
        await self.scheduler.sleep(seconds)

    async def _halted(self) -> None:
        """Park a task of a dead machine that uses the disk; it never continues."""
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    # -- for `run`

    def begin(self, nursery: trio.Nursery) -> None:
        """Allow tasks to be started."""
        self._nursery = nursery
        self.steps.begin()

    def tear_down(self) -> None:
        """The run is over: what is left of machines is fenced off and may end.

        Whatever wants something of the disk halts, so that no actor crashes, is restarted, and opens a log once more.
        """
        self.is_over = True
        if self.machine is not None and not self.machine.dead:
            self.machine.dead = True
            self._dead.append(self.machine)
            self.disk.kill()
        self.disk.unhang()
        for machine in self._dead:
            machine.scope.cancel()
        self.scheduler.tear_down(self._end_shields_of_the_dead)

    def _end_shields_of_the_dead(self) -> bool:
        """Cancel what dead machines shield; returns whether there was anything."""
        lowered = [end_shields(machine.scope) for machine in self._dead]
        return any(lowered)


class Machine:
    """One life of the computer. Programs under test run in its tasks, on its seams."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        """From 1 on."""
        self.dead = False
        """Its power was cut, or its process killed: none of its tasks is stepped any more."""
        self.over = trio.Event()
        self.scope = trio.CancelScope()
        """Around its boot, and all that it starts in nurseries of its own."""
        self.runtime: Runtime | None = None
        """The runtime that is open, or opening."""
        self.entropy: SeededEntropy = world.entropy.fork(f"machine {number}")

    def __repr__(self) -> str:
        return f"<Machine {self.number}{', dead' if self.dead else ''}>"

    @property
    def disk(self) -> MemoryDisk:
        """The computer's disk, the same in all lives."""
        return self.world.disk

    @property
    def clock(self) -> VirtualClock:
        """The computer's clock, the same in all lives."""
        return self.world.clock

    def open_runtime(self) -> OpenRuntime:
        """The production runtime on this machine: `async with machine.open_runtime() as runtime`."""
        return OpenRuntime(self)

    def topic_names(self) -> dict[str, str]:
        """Names of the topics of the runtime that is open, by id."""
        try:
            return (
                {}
                if self.runtime is None
                else {topic.topic_id: topic.name for topic in self.runtime.topics()}
            )
        except CallboardError:
            return {}

    def crash(self, path: str, error: BaseException) -> bool:
        """Let the actor at `path` fail with `error`; whether there was one."""
        if self.runtime is None or self.dead:
            return False
        with suppress(CallboardError):
            self.runtime.crash(path, error)
            return True
        return False


class OpenRuntime:
    """Opens a runtime and reports its events to the world."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._runtime = open_runtime(
            disk=machine.disk,
            clock=machine.clock,
            entropy=machine.entropy,
            on_event=self._heard,
            limits=machine.world.limits,
        )
        self._runtime._delivers_copies = machine.world.delivers_copies

    def _heard(self, event: Any) -> None:
        self._machine.world.heard(self._machine, event)

    async def __aenter__(self) -> Runtime:
        self._machine.runtime = self._runtime
        return await self._runtime.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await self._runtime.__aexit__(kind, error, traceback)
        finally:
            if self._machine.runtime is self._runtime:
                self._machine.runtime = None


def machine_of(task: trio.lowlevel.Task) -> int | None:
    """The number of a task's machine, 0 outside of machines; None for trio's own tasks, and those of dead machines."""
    member = task.context.get(MEMBER)
    if member is None or member.dead:
        return None
    return member.number if isinstance(member, Machine) else 0


async def _live(
    machine: Machine, boot: Callable[[Machine], Awaitable[T]], outcome: list[T], errors: list[BaseException]
) -> None:
    try:
        with machine.scope:
            outcome.append(await boot(machine))
    except trio.Cancelled:
        raise
    except BaseException as error:  # noqa: BLE001 - handed to the caller that booted the machine
        if machine.dead:
            return
        errors.append(error)
    finally:
        if not machine.dead:
            machine.over.set()
