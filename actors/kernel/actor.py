"""Actor, the class that users subclass, and Context, what an actor can use.

An actor is one task with a mailbox. Its state is in the instance; a restart makes a new instance. It handles messages
one after the other, so its state needs no lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, TypeVarTuple

import trio

from callboard.log.errors import InvalidArgument
from callboard.log.plain import is_coroutine_function, refuse_copy

if TYPE_CHECKING:
    from callboard.actors.kernel.batch import Batch
    from callboard.actors.kernel.cell import ActorStatistics
    from callboard.actors.kernel.life import ActorLife
    from callboard.actors.kernel.ref import ActorRef
    from callboard.actors.kernel.reply import Envelope, Reply
    from callboard.actors.kernel.system import ActorSystem

M = TypeVar("M")
Ts = TypeVarTuple("Ts")


class Context(Generic[M]):
    """What one incarnation can use: its reference, the seams, tasks, and the rest of the system."""

    __reduce_ex__ = refuse_copy

    def __init__(self, system: ActorSystem, ref: ActorRef[M], incarnation: ActorLife[M]) -> None:
        self._incarnation = incarnation
        self.system = system
        self.ref = ref
        """The actor's own reference."""
        self.path = ref.path
        self.incarnation = incarnation.number
        """1 for the first incarnation, 2 after the first restart, ..."""
        self.clock = system.clock
        self.entropy = system.entropy
        self.disk = system.disk
        """The Disk seam, None in a system without one."""
        self.limits = system.limits

    def start_task(
        self, async_fn: Callable[[*Ts], Awaitable[object]], *args: *Ts, name: object = None
    ) -> trio.CancelScope:
        """Run `async_fn(*args)` beside the message loop, as a task of this incarnation.

        If it raises, the actor crashes with that error. When the incarnation stops or crashes, the task is
        cancelled and waited for. Returns a scope that cancels this one task.
        """
        return self._incarnation.start_task(async_fn, args, name)

    def defer_reply(self) -> Reply:
        """The reply to the current question, to be answered later; the return value of `receive` is then ignored.

        Answer or fail it from a later message or a task of this incarnation. A reply that is still open when the
        incarnation ends fails with `ActorCrashed`. The reply to a message that was sent with `tell` has no asker.
        """
        return self._incarnation.defer_reply()

    def until_stop(self) -> trio.CancelScope:
        """A scope that a request to stop cancels: for waiting in `started` that is not worth its shutdown grace.

        There is one at a time: the last counts. Return from `started` when it caught something.
        """
        return self._incarnation.until_stop()

    @property
    def has_notices(self) -> bool:
        """Whether notices of peers wait, which come before the messages of its mailbox: for the broker's own actors."""
        return self.ref._cell.mailbox.notices > 0

    @property
    def is_final_stop(self) -> bool:
        """Whether it was asked to stop for good, and no incarnation follows: for the broker's own actors."""
        return self._incarnation.is_final_stop

    def stop(self) -> None:
        """End this incarnation gracefully after the current message."""
        self._incarnation.request_stop()

    async def next(self) -> Envelope[M]:
        """The next message and its reply, for actors that are plain async functions.

        When the actor is asked to stop, this raises `trio.Cancelled`: let it pass.
        """
        return await self._incarnation.next_envelope()

    async def checkpoint(self) -> None:
        """Let other tasks run. In a long computation, a kill takes effect here."""
        await trio.lowlevel.checkpoint()

    async def sleep_until(self, deadline: float) -> None:
        """Sleep until `clock.monotonic()` reads `deadline` (seconds)."""
        await trio.sleep_until(deadline)

    def actor(self, path: str) -> ActorRef[Any]:
        """The actor at `path`."""
        return self.system.actor(path)

    def emit(self, event: object) -> None:
        """Add an event of your own to the system's event log."""
        self.system.events.emit(event)

    def statistics(self) -> ActorStatistics:
        """What this actor has done so far."""
        return self.ref.statistics()


def check_plain_methods(actor: Actor[Any], *names: str) -> None:
    """Raise `InvalidArgument` where one of these only begins a coroutine, which would never be awaited."""
    for name in names:
        if is_coroutine_function(getattr(actor, name)):
            raise InvalidArgument(
                f"{type(actor).__name__}.{name} is async, and is called where nothing can wait. Make it a plain `def`;"
                " what waits belongs into receive, or a task."
            )


class Actor(Generic[M]):
    """Subclass it, keep the state in attributes, override `receive` (or `receive_batch`).

    Hooks and handlers run one at a time. What any of them raises is a crash of this incarnation.
    """

    context: Context[M]
    """Set by the kernel before `started`."""
    defers_interrupts: ClassVar[bool] = False
    """True: Ctrl-C is not raised in this actor's code, but in the task that opened the system, at its next checkpoint.

    For actors whose state an interrupt must not leave half changed, and that never compute for long.
    """

    async def started(self) -> None:
        """Called once in each incarnation, before any message."""

    async def receive(self, message: M) -> object:
        """Handle one message. The returned value answers a question."""
        raise InvalidArgument(f"{type(self).__name__} has no receive method. Define one, or receive_batch.")

    async def receive_batch(self, batch: Batch[M]) -> None:
        """Handle all waiting messages. Override it to handle many messages at the cost of one.

        The item yielded last counts as the cause of an exception; items that were not yielded stay in the mailbox.
        Answer every question: `for message, reply in batch: ... reply.answer(value)`. You may keep replies and answer
        them later.
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

        Use it for what only this incarnation knows, for example to fail questions that it kept. It must not block. The
        kernel then fails every reply that is still open.
        """
