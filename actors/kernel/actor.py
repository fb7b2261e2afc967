"""Actor: the class users subclass, and Context: what an actor may reach.

An actor is one task with a mailbox. Its state lives in the instance; a restart makes a new instance. Messages are
handled one after the other, so nothing inside an actor needs a lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, TypeVarTuple

import trio

from callboard.log.errors import InvalidArgument

if TYPE_CHECKING:
    from callboard.actors.kernel.batch import Batch
    from callboard.actors.kernel.incarnation import Incarnation
    from callboard.actors.kernel.ref import ActorRef
    from callboard.actors.kernel.reply import Envelope, Reply
    from callboard.actors.kernel.statistics import ActorStatistics
    from callboard.actors.kernel.system import ActorSystem

M = TypeVar("M")
Ts = TypeVarTuple("Ts")


class Context(Generic[M]):
    """One incarnation's view of its surroundings."""

    def __init__(self, incarnation: Incarnation[M]) -> None:
        self._incarnation = incarnation
        cell = incarnation.cell
        self.system: ActorSystem = cell.system
        self.ref: ActorRef[M] = cell.ref
        """The actor's own reference."""
        self.path = cell.path
        self.incarnation = incarnation.number
        """1 for the first incarnation, 2 after the first restart, ..."""
        self.clock = cell.system.clock
        self.entropy = cell.system.entropy
        self.disk = cell.system.disk
        """The Disk seam, None in a system without one."""
        self.limits = cell.system.limits

    def start_task(
        self, async_fn: Callable[[*Ts], Awaitable[object]], *args: *Ts, name: object = None
    ) -> trio.CancelScope:
        """Run `async_fn(*args)` beside the message loop, as a task of this incarnation.

        If it raises, the actor crashes with that error. When the incarnation stops or crashes, the task is
        cancelled and waited for. Returns a scope that cancels this one task.
        """
        return self._incarnation.start_task(async_fn, args, name)

    def defer_reply(self) -> Reply:
        """Take over the answer to the question in hand: what `receive` returns will not answer it.

        Keep the reply and settle it later, from a message or a task of this incarnation. Left open when the incarnation
        ends, it fails with `ActorCrashed`. For a message that was told, nobody waits for the reply.
        """
        return self._incarnation.defer_reply()

    def stop(self) -> None:
        """End this incarnation gracefully after the message in hand."""
        self._incarnation.request_stop()

    async def next(self) -> Envelope[M]:
        """The next message and its reply, for actors that are plain async functions.

        When the actor is asked to stop, this raises `trio.Cancelled`: let it pass.
        """
        return await self._incarnation.next_envelope()

    async def checkpoint(self) -> None:
        """Let other tasks run; the place for kill to take effect in a long computation."""
        await trio.lowlevel.checkpoint()

    async def sleep_until(self, deadline: float) -> None:
        """Sleep until `clock.monotonic()` reads `deadline` (seconds)."""
        await trio.sleep_until(deadline)

    def actor(self, path: str) -> ActorRef[Any]:
        """The actor at `path`."""
        return self.system.actor(path)

    def emit(self, event: object) -> None:
        """Put an event of your own into the system's event log."""
        self.system.events.emit(event)

    def statistics(self) -> ActorStatistics:
        """This actor's numbers."""
        return self.ref.statistics()


class Actor(Generic[M]):
    """Subclass it, keep the state in attributes, override `receive` (or `receive_batch`).

    Hooks and handlers run one at a time. What any of them raises is a crash of this incarnation.
    """

    context: Context[M]
    """Set by the kernel before `started`."""
    defers_interrupts: ClassVar[bool] = False
    """Ctrl-C is not raised in the code of this actor, but in the task that opened the system, at its next checkpoint.

    For actors whose state an interrupt must not leave half changed, and that never compute for long.
    """

    async def started(self) -> None:
        """Called once in each incarnation, before any message."""

    async def receive(self, message: M) -> object:
        """Handle one message. The returned value answers a question."""
        raise InvalidArgument(f"{type(self).__name__} has no receive method. Define one, or receive_batch.")

    async def receive_batch(self, batch: Batch[M]) -> None:
        """Handle all that waits. Override it to handle many messages at the cost of one.

        An exception is blamed on the item yielded last; items not reached stay in the mailbox. Settle the reply of
        every question: `for message, reply in batch: ... reply.answer(value)`; you may keep replies and settle them
        later.
        """
        receive = self.receive
        for message, reply in batch:
            value = await receive(message)
            if reply is not None and not reply.deferred:
                reply.answer(value)

    async def stopping(self) -> None:
        """Called at a graceful stop, within the shutdown grace; not after a crash or kill."""

    def crashed(self, error: BaseException) -> None:
        """Called when this incarnation has crashed or was killed, after its tasks have ended.

        For what only this incarnation knows: to fail questions it kept, say. Must not block; the kernel then
        fails what is still open.
        """
