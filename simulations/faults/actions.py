"""What each kind of fault does when its moment has come.

An action gets its case and fault. It says `hit` for an effect and `over` when nothing more comes; see `injector.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from callboard.simulations.disk.disk_faults import PlantedFault
from callboard.simulations.faults import kinds
from callboard.simulations.faults.injector import Action, FaultCase
from callboard.simulations.faults.reaching import cell_of, crash, is_alive, is_up, life_of
from callboard.simulations.faults.traps import MessageObserver, Trap
from callboard.simulations.faults.when import AWAIT

if TYPE_CHECKING:
    from callboard.actors.kernel.cell import Cell

STARTED: Final = "event.ActorStarted"
FAILED: Final = "event.ActorFailed"
UNTIL_DOWN_S: Final = 12.0
"""So long an actor is made to crash at most; a partition fails within that."""
LOOKS: Final = 40
"""How often a mailbox that shall fill is looked at."""
DELAY_S_MIN: Final = 1e-6


# -- actors -------------------------------------------------------------------------------------------------


def crash_actor(case: FaultCase, fault: kinds.CrashActor) -> None:
    """At once, or as soon as it has started."""
    case.attempt_once(
        lambda: crash(case.world, cell_of(case.world, fault.path), "crashed by a fault"), STARTED, fault.path
    )


def crash_in_batch(case: FaultCase, fault: kinds.CrashInBatch) -> None:
    """At once when it has messages in hand; else a trap waits in its mailbox, and in that of each next life."""

    def sprung() -> None:
        case.hit()
        case.over()

    def act() -> bool:
        cell = cell_of(case.world, fault.path)
        life = None if cell is None else life_of(cell)
        if cell is None or life is None:
            return False
        if life._batch is None:
            trap = cell.mailbox.trap
            if not isinstance(trap, Trap) or not trap.is_set:
                trap = Trap(case, cell, sprung)
                case.finally_(lambda: _leave(trap, cell))
            return False
        if not crash(case.world, cell, "crashed with messages in hand"):
            return False
        sprung()
        return True

    case.attempt(act, STARTED, fault.path)


def _leave(trap: Trap | MessageObserver, cell: Any) -> None:
    """Take a trap away, unless a batch is being taken from it: a trap whose case is over is a plain deque."""
    life = cell.incarnation
    if life is None or life._batch is None:
        trap.open()


def crash_in_recovery(case: FaultCase, fault: kinds.CrashInRecovery) -> None:
    """Crash it twice: the second time in the recovery after the first."""

    def act() -> bool:
        cell = cell_of(case.world, fault.path)
        if cell is None or not crash(case.world, cell, "crashed by a fault"):
            return False
        crashed = cell.number
        verbs = 0

        def verb() -> None:
            nonlocal verbs
            again = cell_of(case.world, fault.path)
            if again is None or (again is cell and again.number == crashed) or again.state != "starting":
                return
            verbs += 1
            if verbs >= fault.verbs and crash(case.world, again, "crashed in its recovery"):
                case.hit()
                case.over()

        case.injector.recoveries.watch(fault.path, case, verb)
        case.over_after_waiting(verb)
        return True

    case.attempt(act, STARTED, fault.path)


def crash_on_message(case: FaultCase, fault: kinds.CrashOnMessage) -> None:
    """It crashes when the step is over in which it has handled the message: what was to follow that does not."""
    left = fault.count

    def taken(cell: Cell[Any], message: object) -> None:
        nonlocal left
        if fault.message not in ("", type(message).__name__):
            return
        left -= 1
        if left == 0:
            case.injector.task(strike, cell)

    async def strike(cell: Cell[Any]) -> None:
        if crash(case.world, cell, f"crashed on a message {fault.message}"):
            case.hit()
        case.over()

    def act() -> bool:
        cell = cell_of(case.world, fault.path)
        if cell is not None and cell.mailbox.trap is None:
            trap = cell.mailbox.trap = MessageObserver(cell, taken)
            case.finally_(lambda: _leave(trap, cell))
        return False

    case.attempt(act, STARTED, fault.path)


def crash_until_down(case: FaultCase, fault: kinds.CrashUntilDown) -> None:
    """Crash it in each of its lives, until it has failed, or an infinite intensity has shown to be one."""

    def again() -> None:
        crash(case.world, cell_of(case.world, fault.path), "crashed once more")
        case.when_passed(STARTED, fault.path, again)

    def act() -> bool:
        if not crash(case.world, cell_of(case.world, fault.path), "crashed by a fault"):
            return False
        case.hit()
        case.when_passed(STARTED, fault.path, again)
        case.when_passed(FAILED, fault.path, case.over)
        case.over_after(UNTIL_DOWN_S)
        return True

    case.attempt(act, STARTED, fault.path)


def pause_actor(case: FaultCase, fault: kinds.PauseActor) -> None:
    """None of the actor's tasks runs."""
    scheduler = case.world.scheduler
    case.injector.held_actors.take(fault.path, case, lambda: scheduler.hold(fault.path, told=case.hit_once))
    case.over_after(fault.for_s)


def slow_actor(case: FaultCase, fault: kinds.SlowActor | kinds.DelayMailbox) -> None:
    """All of the actor's tasks run later, or only its main task, which looks into the mailbox."""
    # For a delay that the clock cannot tell from none time would stand still, and the task wait for ever.
    delay_s = max(fault.delay_s, DELAY_S_MIN)
    mailbox_only = isinstance(fault, kinds.DelayMailbox)
    slow = partial(
        case.world.scheduler.slow, fault.path, delay_s, mailbox_only=mailbox_only, told=case.hit_once
    )
    case.injector.held_actors.take(fault.path, case, slow)
    case.over_after(fault.for_s)


def fill_mailbox(case: FaultCase, fault: kinds.FillMailbox) -> None:
    """The actor stands still with a smaller mailbox; the fault hits when that is full."""

    def act() -> bool:
        cell = cell_of(case.world, fault.path)
        if cell is None:
            return False
        mailbox = cell.mailbox
        capacity = mailbox.capacity
        mailbox.resize(min(capacity, fault.capacity))

        def is_full() -> bool:
            if len(mailbox) >= mailbox.capacity:
                case.hit_once()
                return True
            return False

        def widen() -> None:
            is_full()
            mailbox.resize(max(capacity, mailbox.capacity))

        def look() -> None:
            if not is_full():
                case.later(max(fault.for_s / LOOKS, 0.001), look)

        case.finally_(widen)
        scheduler = case.world.scheduler
        case.injector.held_actors.take(fault.path, case, lambda: scheduler.hold(fault.path))
        case.over_after(fault.for_s)
        look()
        return True

    case.attempt(act, STARTED, fault.path)


# -- the machine, its clock, and clients ---------------------------------------------------------------------


def end_machine(case: FaultCase, fault: kinds.PowerCut | kinds.KillProcess) -> None:
    """Cut the power, or kill the process: waits for a machine that is up; over when one is up again."""

    def act() -> bool:
        if not is_up(case.world):
            return False
        case.hit()
        if isinstance(fault, kinds.PowerCut):
            case.world.cut_power(fault.survival, fault.down_s)
        else:
            case.world.kill_process(fault.down_s)
        case.over_after(fault.down_s)
        return True

    case.attempt(act)


def jump_clock(case: FaultCase, fault: kinds.JumpClock) -> None:
    """At once."""
    case.world.clock.shift(fault.seconds)
    case.hit()
    case.over()


def crash_consumer(case: FaultCase, fault: kinds.CrashConsumer) -> None:
    """When it is there."""

    def do() -> bool:
        consumer = case.world.consumers.get(fault.consumer)
        return consumer is not None and consumer.crash()

    case.attempt_once(do)


def retry_indefinite(case: FaultCase, fault: kinds.RetryIndefinite) -> None:
    """Publishers may from now on; each time that one does is a hit. That continues after healing: it is no failure."""
    case.world.retry_budget += fault.times
    left = fault.times

    def retried() -> None:
        nonlocal left
        left -= 1
        case.hit()
        if left:
            case.world.probes.wait("retry", 1, "", retried)

    case.world.probes.wait("retry", 1, "", retried)
    case.over()


def busy_loop(case: FaultCase, fault: kinds.BusyLoop) -> None:
    """At once."""
    case.world.scheduler.pass_time(fault.for_s)
    case.hit()
    case.over()


# -- tasks of the program ------------------------------------------------------------------------------------


def cancel_task(case: FaultCase, fault: kinds.CancelTask) -> None:
    """The task that is about to be stepped, if it is one of these; else one of those that there are."""
    world = case.world

    def do() -> bool:
        scopes = {
            task: scope
            for task, scope in world.task_scopes.items()
            if fault.task in task.name and is_alive(task)
        }
        if not scopes:
            return False
        chosen = world.steps.task
        if chosen not in scopes:
            chosen = list(scopes)[fault.draw % len(scopes)]
        scopes[chosen].cancel()
        return True

    case.attempt_once(do, AWAIT, fault.task)


def pause_task(case: FaultCase, fault: kinds.PauseTask) -> None:
    """The task that is about to be stepped, if it is one of these; else the next one of them that is."""
    steps = case.world.steps

    def act() -> bool:
        if steps.task is None or fault.task not in steps.about:
            return False
        steps.put_off(max(fault.for_s, DELAY_S_MIN))
        case.hit()
        case.over_after(fault.for_s)
        return True

    case.attempt(act, AWAIT, fault.task)


# -- the disk -----------------------------------------------------------------------------------------------


def planted(case: FaultCase, fault: PlantedFault) -> None:
    """A fault of the disk waits for its verbs: until it struck as often as it should, or for a while."""

    def struck() -> None:
        case.hit()
        if fault.times <= 0:
            case.over()

    fault.on_hit = struck
    case.finally_(lambda: case.world.disk.faults.withdraw(fault))
    case.over_after_waiting(fault)


def fail_verb(case: FaultCase, fault: kinds.FailVerb) -> None:
    """The next verbs of one kind fail."""
    pages: Any = fault.pages
    chosen = {"path_contains": fault.path, "times": fault.times, "pages": pages, "partial": fault.partial}
    planted(case, case.world.disk.fail_next(fault.verb, fault.errno, **chosen))


def full_disk(case: FaultCase, fault: kinds.FullDisk) -> None:
    """No space but for the slack, until its time is over or another fault has made the disk full since."""
    injector, disk = case.injector, case.world.disk
    disk.fill(fault.slack_bytes).on_hit = case.hit
    injector.full_by = case
    case.finally_(lambda: disk.free() if injector.full_by is case else None)
    case.over_after(fault.for_s)


def rot(case: FaultCase, fault: kinds.Rot) -> None:
    """Waits until the disk has a byte that may rot."""
    case.attempt_once(lambda: case.world.disk.rot(fault.path, fault.draw), "disk.sync", fault.path)


def slow_disk(case: FaultCase, fault: kinds.SlowDisk) -> None:
    """For a while."""
    disk = case.world.disk
    slowness = disk.slow(fault.path, fault.latency_s)
    slowness.on_hit = case.hit
    case.finally_(lambda: disk.unslow(slowness))
    case.over_after(fault.for_s)


def stall(case: FaultCase, fault: kinds.Stall) -> None:
    """For a while."""
    disk = case.world.disk
    stalled = disk.hang(fault.path)
    stalled.on_hit = case.hit
    case.finally_(lambda: disk.unhang(stalled))
    case.over_after(fault.for_s)


ACTIONS: Final[dict[type[kinds.Fault], Action]] = {
    kinds.CrashActor: crash_actor,
    kinds.CrashInBatch: crash_in_batch,
    kinds.CrashInRecovery: crash_in_recovery,
    kinds.CrashOnMessage: crash_on_message,
    kinds.CrashUntilDown: crash_until_down,
    kinds.PauseActor: pause_actor,
    kinds.SlowActor: slow_actor,
    kinds.DelayMailbox: slow_actor,
    kinds.FillMailbox: fill_mailbox,
    kinds.PowerCut: end_machine,
    kinds.KillProcess: end_machine,
    kinds.JumpClock: jump_clock,
    kinds.CrashConsumer: crash_consumer,
    kinds.RetryIndefinite: retry_indefinite,
    kinds.CancelTask: cancel_task,
    kinds.PauseTask: pause_task,
    kinds.BusyLoop: busy_loop,
    kinds.FailVerb: fail_verb,
    kinds.FailRead: lambda case, fault: planted(
        case, case.world.disk.fail_read(fault.path, times=fault.times)
    ),
    kinds.ShortRead: lambda case, fault: planted(
        case, case.world.disk.short_read_next(fault.path, times=fault.times)
    ),
    kinds.ShortWrite: lambda case, fault: planted(
        case, case.world.disk.short_write_next(fault.path, fault.draw)
    ),
    kinds.FullDisk: full_disk,
    kinds.Rot: rot,
    kinds.Misdirect: lambda case, fault: planted(
        case, case.world.disk.misdirect_next(fault.path, fault.draw)
    ),
    kinds.SlowDisk: slow_disk,
    kinds.Stall: stall,
}
