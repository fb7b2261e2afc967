"""The running system: a tree of supervisors inside an `async with`.

Invariants
----------
T1  No task of the tree runs outside the `async with`.
T2  The body's exception is raised unchanged, never in a group, unless the root gave up (T4) or Ctrl-C came (T5); after
    a cancellation, `Cancelled` is raised.
T3  Cancellation from outside does not cancel the tasks of the tree: it ends the body, and then the tree stops in order,
    last first. Each child has its grace and is killed when that is over.
T4  When the root gives up, the body is cancelled and `RestartLimitReached` is raised.
T5  Ctrl-C comes out of the `async with`, whenever it comes: also while a body that was cancelled is closed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

import trio

from callboard.actors.kernel import (
    Actor,
    ActorRef,
    ActorStart,
    ActorSystem,
    Context,
    DeadLetters,
    Ending,
    EventLog,
)
from callboard.actors.kernel.failures import unwrap
from callboard.actors.kernel.wire import Wire
from callboard.log.errors import InvalidArgument
from callboard.log.limits import USUAL, Limits
from callboard.log.plain import is_a, text
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Disk
from callboard.log.seams.entropy import Entropy
from callboard.supervision.child import TreeNode
from callboard.supervision.policies import Backoff
from callboard.supervision.spec import ChildSpec, SupervisorSpec
from callboard.supervision.supervisor import Supervisor

M = TypeVar("M")

USER = "user"
"""Name of the supervisor of the actors that users spawn; the first spawn creates it."""
USER_BACKOFF = Backoff(initial=0.1, maximum=30.0, jitter=0.2)
"""The backoff of a spawned actor that has no specification: it is restarted without limit."""


class System:
    """A tree of supervised actors, made by `open_system`. Use it once, with `async with`."""

    def __init__(
        self,
        spec: SupervisorSpec,
        *,
        clock: Clock,
        entropy: Entropy,
        disk: Disk | None,
        limits: Limits,
        wire: Wire | None = None,
    ) -> None:
        self.kernel = ActorSystem(clock=clock, entropy=entropy, disk=disk, limits=limits, wire=wire)
        self.root = Supervisor(self.kernel, "", spec)
        """The supervisor of the specification."""
        self._ready = trio.Event()
        self._over = trio.Event()
        self._ending = Ending("finished")
        self._passing: BaseException | None = None
        self._body = trio.CancelScope()
        self._deadlines = trio.CancelScope(shield=True)
        self._opened = False
        self._left = False

    # -- inspection -----------------------------------------------------------------------------------------

    def actor(self, path: str) -> ActorRef[Any]:
        """The actor at `path`, such as "topics/orders/2". Raises `InvalidArgument` when there is none."""
        return self.kernel.actor(path)

    def tree(self) -> TreeNode:
        """The supervisors and actors, as a value."""
        return self.root.node()

    @property
    def events(self) -> EventLog:
        """The latest events; subscribe to hear of new ones."""
        return self.kernel.events

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that no actor handled."""
        return self.kernel.dead_letters

    @overload
    async def spawn(self, actor: Callable[[], Actor[M]], *, name: str | None = None) -> ActorRef[M]: ...
    @overload
    async def spawn(
        self, actor: Callable[[Context[M]], Awaitable[object]], *, name: str | None = None
    ) -> ActorRef[M]: ...
    @overload
    async def spawn(self, actor: ChildSpec, *, name: str | None = None) -> ActorRef[Any]: ...
    async def spawn(self, actor: ChildSpec | ActorStart, *, name: str | None = None) -> ActorRef[Any]:
        """Start an actor of your own under the supervisor "user", and wait until it has started.

        `actor` is a class or function that makes the actor, an async function that is the actor, or a `ChildSpec`.
        Without a `ChildSpec`, the actor is called `name` (default: the name of the class or function), is
        insignificant, and is restarted without limit, after 0.1 s, 0.2 s, 0.4 s and so on up to 30 s. A `ChildSpec`
        can set other rules: with an `intensity`, for example, the actor becomes `failed` and stays down when it needs
        more restarts than that within 10 s.

        Raises `ConfigurationError` when the specification does not fit or the name is taken; `ActorStopped`, with the
        failure as its cause, when the actor cannot start the first time (it is gone then, whatever its rules), and when
        the system has ended.
        """
        if is_a(actor, ChildSpec):
            spec = cast(ChildSpec, actor)
        else:
            spec = ChildSpec(
                name=_default_name(cast(ActorStart, actor)) if name is None else name,
                start=cast(ActorStart, actor),
                significant=False,
                intensity=math.inf,
                backoff=USER_BACKOFF,
            )
        if USER not in self.root:
            self.root.add_child(SupervisorSpec(name=USER))
        return await self.root.supervisor(USER).try_child(spec)

    # -- opening and closing --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._opened:
            raise InvalidArgument("A system is opened once. Make another one.")
        self._opened = True
        self.root.begin()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._keep_deadlines, name="callboard: deadlines")
        self._nursery.start_soon(self._run_tree, name="callboard")
        try:
            await self._ready.wait()
        except BaseException:
            await self._shut()
            self._raise_passing()
            raise
        if self._over.is_set():
            await self._shut()
            self._raise_ending()
        self._body.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if not self._opened or self._left:
            return False
        self._left = True
        rest = None
        try:
            absorbed = bool(self._body.__exit__(kind, error, traceback))
        except BaseException as remaining:  # noqa: BLE001 - raised again below
            absorbed, rest = False, remaining
        await self._shut()
        self._raise_passing()
        if not isinstance(error, trio.Cancelled) or absorbed:
            self._raise_ending()
        if rest is not None:
            raise rest
        return absorbed

    @trio.lowlevel.enable_ki_protection
    async def _keep_deadlines(self) -> None:
        """Run as long as the tree: stopping actors may still ask. An exception from a signal handler ends the tree."""
        with self._deadlines:
            while True:
                try:
                    await self.kernel.deadlines.run()
                except trio.Cancelled:
                    raise
                except BaseException as error:  # noqa: BLE001 - raised again by the body's task
                    self._passing = self._passing or unwrap(error)
                    self._body.cancel()
                    self.root.stop(final=True)

    @trio.lowlevel.enable_ki_protection
    async def _run_tree(self) -> None:
        try:
            try:
                with trio.CancelScope(shield=True):
                    self._ending = await self.root.live(self._ready.set)
            except BaseException as error:  # noqa: BLE001 - raised again by the body's task
                self._passing = unwrap(error)
            try:
                self.root.close(self._ending.error)
            finally:
                self.kernel.close(self._passing)
        except BaseException as error:  # noqa: BLE001 - a watcher may raise SystemExit
            self._passing = self._passing or unwrap(error)
        finally:
            self.kernel.deadlines.end()
            self._deadlines.cancel()
            self._over.set()
            self._ready.set()
            self._body.cancel()

    @trio.lowlevel.enable_ki_protection  # an interrupt is raised in the wait, where it is kept
    async def _shut(self) -> None:
        """Stop the tree, wait for it, and leave the nursery (T1), also when an interrupt cuts this short."""
        self._nursery.cancel_scope.shield = True
        end: Callable[[], None] = partial(self.root.stop, final=True)
        try:
            while not self._over.is_set():
                try:
                    end()
                    await self._over.wait()
                except KeyboardInterrupt as interrupt:
                    self._passing, end = interrupt, self._kill
        finally:
            if not self._over.is_set():
                self._kill()
                self._deadlines.cancel()
            try:
                await self._manager.__aexit__(None, None, None)
            except BaseExceptionGroup as group:  # an interrupt in the nursery's own wait
                self._passing = self._passing or unwrap(group)

    def _kill(self) -> None:
        self.root.stop(final=True)
        self.root.kill()

    def _raise_passing(self) -> None:
        """Raise an interrupt, also in the place of a cancellation: otherwise it would be lost."""
        if self._passing is not None and not isinstance(self._passing, Exception | trio.Cancelled):
            raise self._passing

    def _raise_ending(self) -> None:
        """Raise what ended the tree, unless it was asked to end."""
        if self._passing is not None:
            raise self._passing
        if self._ending.error is not None:
            raise self._ending.error


def open_system(
    spec: SupervisorSpec,
    *,
    clock: Clock,
    entropy: Entropy,
    disk: Disk | None = None,
    limits: Limits = USUAL,
    wire: Wire | None = None,
) -> System:
    """A system for `async with`: after entry the children of `spec` have started, after exit all have ended.

    With a `wire`, the actors that it covers get copies of what is sent to them, and so do those that they answer.
    """
    return System(spec, clock=clock, entropy=entropy, disk=disk, limits=limits, wire=wire)


def _default_name(start: Callable[..., Any] | type[Actor[Any]]) -> str:
    name = None
    with suppress(Exception):  # foreign code
        name = text(getattr(start, "__name__", None))
    return name if name is not None and name.isidentifier() else "actor"
