"""Incarnation: one life of an actor, from `started` to its end, in its own nursery.

Theory of operation
-------------------
The supervisor makes an incarnation and runs `live`. It returns an `Ending` value: here an actor's exception becomes
data. The message loop runs in the nursery's body; the tasks of `Context.start_task` run beside it. The nursery's exit
waits for all of them, shielded disk plans included, so tasks of two incarnations never run at the same time.

Invariants
----------
LI1  `live` returns only when no task of the incarnation runs any more.
LI2  A stop takes effect between two messages, a kill at once; neither waits behind messages.
LI3  When `live` returns, every question that was taken from the mailbox is answered or failed, or back in the mailbox
     for another attempt. A statement that was being handled at a crash is in the dead letters or back in the mailbox.
LI4  Only `Exception` is a crash. `Cancelled` from outside, `KeyboardInterrupt` and `SystemExit` are raised further.
LI5  Ctrl-C is raised only in users' actors and in the task that opened the system: an interrupt in the middle of the
     kernel's or the broker's work would leave it half done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any, Generic, Literal, TypeVar, cast

import attrs
import trio

from callboard.actors.kernel.actor import Actor, Context, check_plain_methods
from callboard.actors.kernel.batch import Batch
from callboard.actors.kernel.cell import Cell, crashed
from callboard.actors.kernel.events import ActorStarted, IncarnationCrashed, call_guarded
from callboard.actors.kernel.failures import describe, place, sort_out
from callboard.actors.kernel.ref import ActorRef
from callboard.actors.kernel.reply import Envelope, Reply
from callboard.actors.kernel.system import ActorSystem
from callboard.log.errors import InvalidArgument
from callboard.log.plain import is_a, is_coroutine_function, shown, text

M = TypeVar("M")

EndingKind = Literal["finished", "crashed", "killed"]
ActorFunction = Callable[[Context[Any]], Awaitable[object]]
ActorStart = Callable[[], Actor[Any]] | ActorFunction
"""A class or function that makes the actor, or an async function that is the actor."""


@attrs.frozen
class Ending:
    """How an incarnation (or a supervisor) ended: "finished" in order, "crashed" by `error`, or "killed"."""

    kind: EndingKind
    error: BaseException | None = None


class ActorIncarnation(Generic[M]):
    """One life of the actor that `ref` leads to."""

    def __init__(
        self, system: ActorSystem, ref: ActorRef[M], start: ActorStart, *, retry_in_hand: int = 0
    ) -> None:
        cell: Cell[M] = ref._cell
        cell.number += 1
        self.cell = cell
        self.number = cell.number
        self.context: Context[M] = Context(system, ref, self)
        self._start = start
        self._retry_in_hand = retry_in_hand
        self._call = _call_interruptibly
        self._is_function = is_coroutine_function(start)
        self._actor: Actor[M] | None = None
        self._nursery: trio.Nursery | None = None
        self._batch: Batch[M] | None = None
        self._items: Iterator[Envelope[M]] | None = None
        self._turn: trio.Lock
        """Of the tasks of a function, one at a time takes a message."""
        self._in_hand: dict[trio.lowlevel.Task, Envelope[M]] = {}
        """What each task of a function took last and has not handled."""
        self._main = trio.CancelScope()
        self._until_stop: trio.CancelScope | None = None
        self._stop_requested = False
        self._killed = False
        self.is_final_stop = False
        self._open: dict[Reply, None] = {}
        """The questions that have no answer yet, in their order."""
        cell.incarnation = self
        cell.state = "starting"

    # -- control --------------------------------------------------------------------------------------------

    def request_stop(self, *, final: bool = False) -> None:
        """End after the current message (LI2); `final` when no incarnation follows."""
        self._stop_requested = True
        self.is_final_stop = self.is_final_stop or final
        self.cell.state = "stopping"
        if self._batch is not None:
            self._batch.halt()
        if self._until_stop is not None:
            self._until_stop.cancel()
        self.cell.mailbox.interrupt()

    def kill(self) -> None:
        """End now: cancel the loop and all tasks (LI2)."""
        self._killed = True
        self._stop_requested = True
        self.cell.state = "stopping"
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # -- life -----------------------------------------------------------------------------------------------

    async def live(self, ready: Callable[[], None] = lambda: None) -> Ending:
        """Run to the end. `ready` is called when the actor has started."""
        ending = Ending("crashed")
        try:
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    if self._killed:
                        nursery.cancel_scope.cancel()
                    await (self._run_function(ready) if self._is_function else self._run_actor(ready))
                    nursery.cancel_scope.cancel()
            except BaseException as error:  # noqa: BLE001 - a crash becomes a value here (LI4)
                passing, crash = sort_out(error)
                ending = Ending("killed" if self._killed else "crashed", passing if crash is None else crash)
                if passing is not None:
                    raise passing from None
            else:
                ending = Ending("killed" if self._killed else "finished")
        finally:
            self.cell.loop, self.cell.is_shared = None, False
            self._settle(ending)
        return ending

    async def _run_actor(self, ready: Callable[[], None]) -> None:
        actor = cast("Callable[[], Actor[M]]", self._start)()
        if not is_a(actor, Actor):
            raise InvalidArgument(f"{shown(self._start)} made {shown(actor)}, which is not an Actor.")
        check_plain_methods(actor, "crashed")
        self._actor = actor
        actor.context = self.context
        self.cell.takes_messages(trio.lowlevel.current_task())
        if actor.defers_interrupts:
            self._call = _call
        await self._call(actor.started)
        self._ready(ready)
        mailbox, limit = self.cell.mailbox, self.cell.services.limits.receive_batch
        while not self._stop_requested:
            if not await mailbox.wait() or self._stop_requested:
                continue
            self._batch = Batch(mailbox, limit)
            if actor.defers_interrupts:
                await actor.receive_batch(self._batch)
            else:
                await _call_interruptibly(actor.receive_batch, self._batch)
            if self._batch.taken == 0 and not self._stop_requested:
                raise InvalidArgument(
                    f"{type(actor).__name__}.receive_batch took no message. Iterate the batch."
                )
            self._finish_batch()
        if not self._killed:
            await self._call(actor.stopping)

    async def _run_function(self, ready: Callable[[], None]) -> None:
        self._turn = trio.Lock()
        running = cast(ActorFunction, self._start)(self.context)  # one that takes no context does not start
        try:
            self._ready(ready)
        except BaseException:  # the task that hears of the start was interrupted: it will not be awaited
            if isinstance(running, Coroutine):
                running.close()
            raise
        with self._main:
            await self._call(lambda: running)

    def _ready(self, ready: Callable[[], None]) -> None:
        cell = self.cell
        if not self._stop_requested:
            cell.state = "running"
        cell.started_at_us = cell.services.clock.wall_us()
        cell.services.events.emit(ActorStarted(cell.path, self.number))
        cell.tell_began()
        ready()

    # -- messages -------------------------------------------------------------------------------------------

    def _finish_batch(self) -> None:
        """Count the batch, also one that a function or a crash leaves behind; keep its replies until they are done."""
        batch, self._batch = self._batch, None
        if batch is not None:
            self.cell.received += batch.taken
            self.cell.rate.note(batch.taken, trio.current_time())
            for reply in batch.replies:
                if not reply.done:
                    reply.keep_in(self._open)

    @trio.lowlevel.enable_ki_protection  # a message that has left the mailbox must not be lost in between
    async def next_envelope(self) -> Envelope[M]:
        """For `Context.next`."""
        if not self._is_function:
            raise InvalidArgument(f"Actor {self.cell.path!r} is not a function. Define receive.")
        task = trio.lowlevel.current_task()
        self._has_handled(task)  # asking for the next message means that the one before is handled
        self.cell.takes_messages(task)
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            envelope = await self._take()
        finally:
            self._turn.release()
        self._in_hand[task] = envelope
        return envelope

    def _has_handled(self, task: trio.lowlevel.Task) -> None:
        """The task has handled what it took last. So have those that ended, unless the incarnation crashes."""
        in_hand, batch = self._in_hand, self._batch
        if in_hand.pop(task, None) is None and self.is_running:
            for other in [other for other in in_hand if getcoroutinestate(other.coro) == CORO_CLOSED]:
                del in_hand[other]
        if batch is not None and not in_hand:
            batch.current = None

    async def _take(self) -> Envelope[M]:
        while True:
            if self._items is not None:
                await trio.lowlevel.checkpoint()
                envelope = next(self._items, None)
                if envelope is not None:
                    return envelope
            self._finish_batch()
            self._items = None
            if self._stop_requested:
                self._main.cancel()
                await trio.sleep_forever()
            mailbox = self.cell.mailbox
            if await mailbox.wait() and not self._stop_requested:
                self._batch = Batch(mailbox, self.cell.services.limits.receive_batch)
                self._items = iter(self._batch)

    def until_stop(self) -> trio.CancelScope:
        """For `Context.until_stop`."""
        scope = self._until_stop = trio.CancelScope()
        if self._stop_requested:
            scope.cancel()
        return scope

    def defer_reply(self) -> Reply:
        """For `Context.defer_reply`."""
        current = None if self._batch is None else self._batch.current
        if self._is_function:
            last = next(reversed(self._in_hand.values()), None)  # by a task beside those that take messages
            current = self._in_hand.get(trio.lowlevel.current_task(), last)
        if current is None:
            raise InvalidArgument(
                f"Actor {self.cell.path!r} is not handling a message. Defer inside receive."
            )
        reply = current.reply or Reply(self.cell)
        reply.deferred = True
        return reply

    @property
    def is_running(self) -> bool:
        """Whether it has begun and is not about to end."""
        return self._nursery is not None and not self._nursery.cancel_scope.cancel_called

    def start_task(
        self, async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...], name: object
    ) -> trio.CancelScope:
        """For `Context.start_task`."""
        if self._nursery is None:
            raise InvalidArgument(
                f"Actor {self.cell.path!r} does not run yet. Start tasks from `started` on."
            )
        if not callable(async_fn):
            raise InvalidArgument(
                f"a task of actor {self.cell.path!r} is {shown(async_fn)}, not an async function. Nothing was started."
                " Give the function, and behind it its arguments."
            )
        scope = trio.CancelScope()

        @trio.lowlevel.enable_ki_protection
        async def task() -> None:
            with scope:
                await self._call(async_fn, *args)
                self._in_hand.pop(trio.lowlevel.current_task(), None)  # it has handled that, too

        try:
            self._nursery.start_soon(task, name=f"{self.cell.path}: {name or _name(async_fn)}")
        except RuntimeError as error:  # its nursery is closed
            raise InvalidArgument(
                f"incarnation {self.number} of actor {self.cell.path!r} has ended, and its tasks with it. Nothing was"
                " started. Start tasks by the context of the incarnation that runs."
            ) from error
        return scope

    # -- the end --------------------------------------------------------------------------------------------

    def _settle(self, ending: Ending) -> None:
        """Answer, fail or put back everything that is open (LI3)."""
        batch, in_hand = self._batch, list(self._in_hand.values())
        if batch is not None and batch.current is not None and not self._is_function:
            in_hand.append(batch.current)
        self._in_hand.clear()
        self._finish_batch()
        try:
            if ending.kind != "finished":
                self._report(ending)
        finally:  # subscribers and the actor's hook are foreign code
            if ending.kind != "finished":
                self._settle_in_hand(in_hand)
            self._fail_open(ending)

    def _fail_open(self, ending: Ending) -> None:
        cell = self.cell
        what = {"crashed": "crashed", "killed": "was killed", "finished": "stopped"}[ending.kind]
        for reply in list(self._open):
            reply.fail(crashed(cell.path, ending.error, what))
        cell.incarnation = None

    def _report(self, ending: Ending) -> None:
        cell = self.cell
        error = ending.error
        cell.last_failure = "killed" if error is None else describe(error)
        events = cell.services.events
        events.emit(
            IncarnationCrashed(
                cell.path,
                self.number,
                cell.last_failure,
                frames=() if error is None else events.trace(error),
                place=None if error is None else place(error),
            )
        )
        actor = self._actor
        if isinstance(actor, Actor):
            reason = crashed(cell.path, None, "was killed") if error is None else error
            call_guarded(lambda: actor.crashed(reason), cell.path, "crashed", events.emit, events.trace)

    def _settle_in_hand(self, in_hand: list[Envelope[M]]) -> None:
        """Put back what may be tried again, in its order; the rest are dead letters, or `_settle` fails them."""
        cell, again = self.cell, []
        for envelope in in_hand:
            message, reply = envelope
            if reply is not None and (reply.done or reply.deferred):
                continue
            tries = cell.tries_of(envelope)
            if tries < self._retry_in_hand:
                again.append((envelope, tries + 1))
                if reply is not None:
                    self._open.pop(reply, None)
            elif reply is None:
                cell.to_dead_letters(message, "crashed")
        cell.put_back(again)


async def _call(async_fn: Callable[..., Awaitable[object]], *args: Any) -> None:
    await async_fn(*args)


@trio.lowlevel.disable_ki_protection
async def _call_interruptibly(async_fn: Callable[..., Awaitable[object]], *args: Any) -> None:
    await async_fn(*args)


def _name(async_fn: Callable[..., object]) -> str:
    """A name without a memory address, so that two runs of one program give their tasks the same names."""
    return text(getattr(async_fn, "__qualname__", None)) or type(async_fn).__qualname__
