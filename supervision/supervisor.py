"""Supervisor: runs its children in its own nursery and carries out the steps of the roster.

All rules are in `roster.py`; this module runs the tasks. One loop takes steps from the roster and sleeps until
something happens or until the next deadline. Each child's life is a task that reports how it ended.

Invariants
----------
V1  A child's life runs in the nursery of its supervisor's life, so a supervisor ends after all its children.
V2  Only the loop carries out steps, while there is one: a child that is stopped for good while none lives is gone at
    once. The loop sleeps while there are no steps, without a periodic timer.
V3  Only `KeyboardInterrupt`, `SystemExit` and bugs of Callboard leave `live` as an exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, overload

import trio

from callboard.actors.kernel import ActorRef, ActorSystem, Ending
from callboard.actors.kernel.cell import stopped
from callboard.actors.kernel.events import Escalated
from callboard.actors.kernel.failures import describe, place, with_counts
from callboard.log.errors import ActorStopped, InvalidArgument, RestartLimitReached, join_problems
from callboard.log.limits import CHILDREN_MAX
from callboard.log.plain import shown
from callboard.supervision.child import ActorChild, TreeNode
from callboard.supervision.roster import Fail, Gone, Kill, Restarting, RestartTerms, Roster, Start, Step, Stop
from callboard.supervision.spec import ChildSpec, SupervisorSpec

Spec = ChildSpec | SupervisorSpec


class Supervisor:
    """A supervisor in the running tree. It stays the same object across restarts."""

    def __init__(self, system: ActorSystem, path: str, spec: SupervisorSpec) -> None:
        self.path = path
        """ Its path in the tree; empty for the root."""
        self.spec = spec
        self.changed = trio.lowlevel.ParkingLot()
        """As of an `ActorChild`; so are `ended_by` and the methods below "being a child"."""
        self._system = system
        self._children: dict[str, Child] = {}
        self._roster = Roster(spec.strategy, spec.intensity, spec.period)
        self._nursery: trio.Nursery | None = None
        self._sleeper: trio.lowlevel.Task | None = None
        self._woken = False
        self._state = "new"
        self._restarts = 0
        self._last_failure: str | None = None
        self._closed = False
        self.ended_by: BaseException | None = None
        self._add_listed()

    def __repr__(self) -> str:
        return f"<Supervisor {self.path!r} {self._state}>"

    # -- children: what users call --------------------------------------------------------------------------

    @overload
    async def start_child(self, spec: ChildSpec) -> ActorRef[Any]: ...
    @overload
    async def start_child(self, spec: SupervisorSpec) -> Supervisor: ...

    async def start_child(self, spec: Spec) -> ActorRef[Any] | Supervisor:
        """Add a child and wait until it has started, or has failed (which the tree shows).

        Raises `ConfigurationError` for a specification or name that does not fit, `ActorStopped` (with the cause)
        when the child or this supervisor has ended for good instead. After a cancellation the child still starts. Do
        not call this inside `started` of an actor that this supervisor waits for: use `add_child`.
        """
        handle = self.add_child(spec)
        await self.settled(spec.name)
        return handle

    async def try_child(self, spec: ChildSpec) -> ActorRef[Any]:
        """Add a child and wait until it has started; one whose first start fails is gone, and why is raised.

        Raises like `start_child`; `ActorStopped` has the failure as its cause. Once it has started it is supervised.
        """
        handle = self._take_child(spec, on_trial=True)
        name, child = spec.name, self._children[spec.name]
        while self._children.get(name) is child:
            if self._roster.is_proven(name):
                return handle
            await child.changed.park()
        cause = child.ended_by
        if cause is None or self._closed:
            raise stopped(self._path_of(name)) from cause
        where = place(cause)
        raise ActorStopped(
            f"Actor {self._path_of(name)!r} could not start, and is gone: {describe(cause).removesuffix('.')}"
            f"{f', at {where}' if where else ''}. Repair the cause, and spawn it again.",
            path=self._path_of(name),
        ) from cause

    @overload
    def add_child(self, spec: ChildSpec) -> ActorRef[Any]: ...
    @overload
    def add_child(self, spec: SupervisorSpec) -> Supervisor: ...

    def add_child(self, spec: Spec) -> ActorRef[Any] | Supervisor:
        """Like `start_child` without waiting: messages wait in the mailbox until the child has started."""
        return self._take_child(spec)

    @overload
    def _take_child(self, spec: ChildSpec, *, on_trial: bool = False) -> ActorRef[Any]: ...
    @overload
    def _take_child(self, spec: Spec, *, on_trial: bool = False) -> ActorRef[Any] | Supervisor: ...

    def _take_child(self, spec: Spec, *, on_trial: bool = False) -> ActorRef[Any] | Supervisor:
        problems = self.spec.child_problems(spec)
        if spec.name in self._children:
            problems.append(f"a child called {spec.name!r} exists")
        if len(self._children) >= CHILDREN_MAX:
            problems.append(f"there are {CHILDREN_MAX} children already")
        if problems:
            raise join_problems(f"Supervisor {self.path!r}", problems)
        if self._closed:
            raise stopped(self.path)
        handle = self._add(spec, listed=False, on_trial=on_trial)
        self._wake()
        return handle

    async def stop_child(self, name: str) -> None:
        """Stop the child gracefully, for good, and wait until it has ended. Its name is free again.

        Raises `InvalidArgument` when there is no such child, `ActorStopped` when this supervisor has ended for good.
        """
        child = self._living(name)
        if self._roster.phase(name) is not None:  # else it has just ended, and is about to go
            self._roster.remove(name)
            if self._roster.is_down:
                # This supervisor waits or has failed: no loop takes the steps.
                self._take_steps(self._system.clock.monotonic())
            self._wake()
        while self._children.get(name) is child:
            await child.changed.park()

    async def restart_child(self, name: str) -> ActorRef[Any] | Supervisor:
        """Restart a child: revive a failed one, start a waiting one at once, or stop a running one gracefully first.

        Returns when it has started or failed again. Raises `ActorStopped` when it, or this supervisor, has ended for
        good instead, `InvalidArgument` when there is no such child.
        """
        child = self._living(name)
        if self._roster.phase(name) is not None:
            self._roster.restart(name)
            self._wake()
        await self.settled(name)
        return child.handle

    def child(self, name: str) -> ActorRef[Any]:
        """The child actor of that name. Raises `InvalidArgument` when there is none."""
        found = self._named(name)
        if not isinstance(found, ActorChild):
            raise InvalidArgument(f"{name!r} below {self.path!r} is a supervisor. Use `supervisor`.")
        return found.handle

    def supervisor(self, name: str) -> Supervisor:
        """The child supervisor of that name. Raises `InvalidArgument` when there is none."""
        found = self._named(name)
        if not isinstance(found, Supervisor):
            raise InvalidArgument(f"{name!r} below {self.path!r} is an actor. Use `child`.")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def _named(self, name: str) -> Child:
        child = self._children.get(name)
        if child is None:
            raise InvalidArgument(
                f"Supervisor {self.path!r} has no child called {shown(name)}.", path=self.path
            )
        return child

    def _living(self, name: str) -> Child:
        """The child of that name. Raises `ActorStopped` when this supervisor has ended for good."""
        if self._closed:
            raise stopped(self._path_of(name))
        return self._named(name)

    async def settled(self, name: str) -> None:
        """Wait until the child is up or failed. Raises `ActorStopped` when it ended for good instead."""
        child, has_waited = self._named(name), False
        while self._children.get(name) is child:
            if self._roster.phase(name) is not None and self._roster.is_steady(name):
                if not has_waited:
                    await trio.lowlevel.checkpoint()
                return
            has_waited = True
            await child.changed.park()
        error = stopped(self._path_of(name))
        error.__cause__ = child.ended_by
        raise error

    # -- making children ------------------------------------------------------------------------------------

    def _path_of(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def _add(self, spec: Spec, *, listed: bool, on_trial: bool = False) -> ActorRef[Any] | Supervisor:
        path = self._path_of(spec.name)
        child: Child
        if isinstance(spec, ChildSpec):
            child = ActorChild(self._system, path, spec)
            grace_s, restart, intensity = spec.shutdown_grace, spec.restart, spec.intensity
        else:
            child = Supervisor(self._system, path, spec)
            grace_s, restart, intensity = (
                math.inf,
                "permanent",
                None,
            )  # every child below has a grace of its own
        self._children[spec.name] = child
        terms = RestartTerms(restart, spec.significant, grace_s, spec.backoff, intensity, spec.awaited)
        self._roster.add(spec.name, terms, listed=listed, on_trial=on_trial)
        return child.handle

    def _add_listed(self) -> None:
        """Add the children of the specification that do not exist (any more)."""
        for spec in self.spec.children:
            if spec.name not in self._children:
                self._add(spec, listed=True)

    # -- being a child --------------------------------------------------------------------------------------

    @property
    def handle(self) -> Supervisor:
        return self

    def begin(self) -> None:
        """Open the roster, so that a stop before the first step counts."""
        self._add_listed()
        self._roster.open()
        self._state = "starting"

    def stop(self, *, final: bool) -> None:
        """End the life gracefully; a `final` stop is for good."""
        self._state = "stopping"
        self._roster.close(final=final)
        self._wake()

    def kill(self) -> None:
        """Kill every life below, whatever its grace."""
        for child in tuple(self._children.values()):
            child.kill()

    def restarting(self, cause: BaseException | None, delay_s: float) -> None:
        self._restarts += 1

    def fail(self, cause: BaseException | None) -> None:
        """Every actor below refuses messages until this supervisor is revived."""
        self._state = "failed"
        for child in self._children.values():
            child.fail(cause)

    def close(self, cause: BaseException | None) -> None:
        """Every child has ended for good; also the children whose lives an interrupt or `SystemExit` cut off."""
        self._state = "stopped"
        self._closed = True
        self.ended_by = cause
        self._roster.close(final=True)
        for step in self._roster.steps(self._system.clock.monotonic()):
            if isinstance(step, Gone):
                self._perform(step)
        children, self._children = self._children, {}
        for child in children.values():
            child.close(cause)
            child.changed.unpark_all()

    def node(self) -> TreeNode:
        return TreeNode(
            path=self.path,
            name=self.spec.name,
            kind="supervisor",
            state=self._state,
            restarts=self._restarts,
            last_failure=self._last_failure,
            children=tuple(child.node() for child in self._children.values()),
        )

    # -- life -----------------------------------------------------------------------------------------------

    async def live(self, ready: Callable[[], None]) -> Ending:
        """Run the children until the roster is down: "finished" when asked to stop, "crashed" when it gave up."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await self._run(ready)
        finally:
            self._nursery = None
            self._state = "waiting"
        if self._roster.gave_up is None:
            return Ending("finished")
        name, cause = self._roster.gave_up
        spec = self.spec
        counts = self._roster.too_many
        if len(counts) == 1:
            whose, last = f"child {name!r}", "("
        else:
            whose, last = f"children {with_counts(counts.most_common())}", f"(the last one {name!r}: "
        error = RestartLimitReached(
            f"Supervisor {self.path or spec.name!r} gave up: {whose} needed more than {spec.intensity} restarts "
            f"in {spec.period:g} s {last}{describe(cause)}). Repair the cause, or allow more restarts.",
            path=self.path,
            child=self._path_of(name),
            children={self._path_of(each): count for each, count in counts.most_common()},
            restarts=spec.intensity,
        )
        error.__cause__ = cause
        self._last_failure = describe(error)
        return Ending("crashed", error)

    async def _run(self, ready: Callable[[], None]) -> None:
        clock, roster = self._system.clock, self._roster
        told = False
        while True:
            # Both use the same reading of the clock: otherwise a step that falls due in between would be missed.
            now = clock.monotonic()
            self._take_steps(now)
            if roster.is_down:
                return
            if not told and roster.is_settled and not roster.is_closing:
                told, self._state = True, "running"
                ready()
            await self._sleep(roster.wake_at(now))

    def _take_steps(self, now: float) -> None:
        for step in self._roster.steps(now):
            self._perform(step)

    def _perform(self, step: Step) -> None:
        child = self._children[step.name]
        match step:
            case Start(name):
                child.begin()
                if self._nursery is not None:
                    self._nursery.start_soon(self._life_of, name, child, name=self._path_of(name))
            case Stop(_, final):
                child.stop(final=final)
            case Kill(_):
                child.kill()
            case Restarting(_, cause, delay_s):
                child.restarting(cause, delay_s)
            case Fail(_, cause):
                child.fail(cause)
            case Gone(name, cause):
                del self._children[name]
                child.close(cause)
        child.changed.unpark_all()

    @trio.lowlevel.enable_ki_protection
    async def _life_of(self, name: str, child: Child) -> None:
        ending = await child.live(partial(self._child_ready, name, child))
        roster, system = self._roster, self._system
        gave_up = roster.gave_up
        now, chance = system.clock.monotonic(), system.entropy.random()
        roster.ended(name, ending.kind, ending.error, now=now, chance=chance)
        if roster.gave_up is not None and gave_up is None:
            self._state = "stopping"
            counts = tuple((self._path_of(each), count) for each, count in roster.too_many.most_common())
            system.events.emit(Escalated(self.path, self._path_of(name), describe(ending.error), counts))
        self._wake()

    def _child_ready(self, name: str, child: Child) -> None:
        self._roster.ready(name)
        child.changed.unpark_all()
        self._wake()

    # -- sleeping -------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Wake the loop: something happened."""
        self._woken = True
        if self._sleeper is not None:
            task, self._sleeper = self._sleeper, None
            trio.lowlevel.reschedule(task)

    async def _sleep(self, deadline: float) -> None:
        """Sleep until something happens, or until `deadline`."""
        if self._woken:
            await trio.lowlevel.checkpoint()
        elif deadline == math.inf:
            await self._until_woken()
        else:
            with trio.CancelScope(deadline=deadline):
                await self._until_woken()
        self._woken = False

    async def _until_woken(self) -> None:
        self._sleeper = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._awake)

    def _awake(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED


Child = ActorChild | Supervisor
