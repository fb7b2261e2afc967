"""ActorRef: the address of an actor, by which others send to it. It stays valid across restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import trio

from callboard.actors.kernel.cell import ActorStatistics, Cell
from callboard.actors.kernel.events import check_callback
from callboard.actors.kernel.party import Terminated
from callboard.actors.kernel.reply import Envelope, Question, Reply, ask_timeout, seconds_of
from callboard.log.errors import InvalidArgument
from callboard.log.plain import is_a, refuse_copy, shown

M_contra = TypeVar("M_contra", contravariant=True)
A = TypeVar("A")


class ActorRef(Generic[M_contra]):
    """The address of one actor.

    All sends raise `ActorStopped` after the actor has ended for good, and the error of its failure while it is failed.
    """

    __slots__ = ("__weakref__", "_cell", "_put", "_reply", "path")

    __reduce_ex__ = refuse_copy

    def __init__(self, cell: Cell[M_contra]) -> None:
        self._cell = cell
        self._put = cell.mailbox.put
        self._reply = cell.new_reply
        self.path = cell.path
        """Where the actor lives in the tree, such as "topics/orders/2"."""

    def __repr__(self) -> str:
        return f"<ActorRef {self.path!r} {self._cell.state}>"

    # -- statements -----------------------------------------------------------------------------------------

    def tell_nowait(self, message: M_contra) -> None:
        """Enqueue `message`. Raises `MailboxFull` when there is no room and the policy is to wait or to fail."""
        if not self._put(Envelope(message, None)):
            raise self._cell.mailbox.full("wait")

    async def tell(self, message: M_contra) -> None:
        """Enqueue `message`, waiting for room if that is the policy. A cancelled call has not enqueued it.

        An actor that sends to itself does not wait: no other makes room. It raises `MailboxFull`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        envelope = Envelope(message, None)
        if self._put(envelope):
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._put_waiting(envelope)

    async def _put_waiting(self, envelope: Envelope[M_contra]) -> None:
        if self._cell.loop is trio.lowlevel.current_task():
            raise self._cell.mailbox.full("wait")
        await self._cell.mailbox.put_waiting(envelope)

    # -- questions ------------------------------------------------------------------------------------------

    def ask_nowait(self, message: M_contra) -> Reply:
        """Enqueue `message` with a reply to wait for: `await reply.wait(timeout)`. Raises like `tell_nowait`."""
        reply = self._reply(self._cell)
        if not self._put(Envelope(message, reply)):
            raise self._cell.mailbox.full("wait")
        return reply

    def send_nowait(self, message: M_contra, reply: Reply) -> None:
        """Enqueue `message` with a reply of the caller's, for other modules of the package. Raises as `tell_nowait`."""
        if not self._put(Envelope(message, reply)):
            raise self._cell.mailbox.full("wait")

    def question(self) -> Reply:
        """A reply for `send`."""
        return self._reply(self._cell)

    async def send(self, message: M_contra, reply: Reply) -> None:
        """Enqueue `message` with a reply of the caller's, waiting for room. Cancelled while waiting: not enqueued.

        Raises like `tell`.
        """
        if not is_a(reply, Reply):
            raise InvalidArgument(f"a reply is what `question` made, not {shown(reply)}. Nothing was sent.")
        envelope = Envelope(message, reply)
        if not self._put(envelope):
            await self._put_waiting(envelope)

    @overload
    async def ask(self, message: Question[A], *, timeout: float | None = None) -> A: ...

    # Where mypy expects another type than the answer's, it passes over the first; without this the last gave it an Any.
    @overload
    async def ask(  # type: ignore[overload-cannot-match]
        self, message: Question[object], *, timeout: float | None = None
    ) -> object: ...

    @overload
    async def ask(self, message: M_contra, *, timeout: float | None = None) -> Any: ...

    async def ask(self, message: Any, *, timeout: float | None = None) -> Any:
        """The actor's answer to `message`; of the type that the message names, when it is a `Question`.

        Raises `AskTimeout` after `timeout` seconds (indefinite, unless the mailbox had no room all the while),
        `ActorCrashed` (indefinite) when the actor crashed before it answered, and the error that the actor passed to
        `Reply.fail`. Cancelling is like a timeout: the actor may still act on the question. `InvalidArgument` for a
        timeout that is no number of seconds from 0; nothing is asked then.
        """
        if self._cell.loop is trio.lowlevel.current_task():
            raise asks_itself(self.path)
        reply = self._reply(self._cell)
        if timeout is None:
            if not self._put(envelope := Envelope(message, reply)):
                await self._cell.mailbox.put_waiting(envelope)
            return await reply.settled()
        seconds = seconds_of(timeout)
        deadlines = self._cell.services.deadlines
        if not deadlines.kept or seconds in (0.0, math.inf):
            return await self._ask_in_scope(message, reply, seconds)
        deadline = trio.current_time() + seconds
        envelope = Envelope(message, reply)
        if not self._put(envelope):
            with trio.CancelScope(deadline=deadline) as scope:
                await self._cell.mailbox.put_waiting(envelope)
            if scope.cancelled_caught:
                raise ask_timeout(self.path, seconds, indefinite=False)
        question = None
        try:
            question = deadlines.add(reply, deadline)
            value = await reply.settled()
        finally:
            if question is not None:
                deadlines.settled(question)
        if reply.abandoned:
            raise ask_timeout(self.path, seconds)
        return value

    async def _ask_in_scope(self, message: M_contra, reply: Reply, seconds: float) -> Any:
        """For a timeout of 0 or infinity, and while `Deadlines` does not run."""
        enqueued = False
        with trio.move_on_after(seconds):
            envelope = Envelope(message, reply)
            if not self._put(envelope):
                await self._cell.mailbox.put_waiting(envelope)
            enqueued = True
            return await reply.settled()
        raise ask_timeout(self.path, seconds, indefinite=enqueued)

    # -- control: overtakes messages ------------------------------------------------------------------------

    def stop(self) -> None:
        """End the incarnation gracefully after the current message. Its supervisor may restart it."""
        if self._cell.incarnation is not None:
            self._cell.incarnation.request_stop()

    def kill(self) -> None:
        """Cancel the incarnation at once, even inside `receive`. Its supervisor may restart it."""
        if self._cell.incarnation is not None:
            self._cell.incarnation.kill()

    def crash(self, error: BaseException) -> bool:
        """Make the incarnation fail with `error` as if its own code had raised it: for drills and tests.

        Returns whether it will: False between two incarnations, and while one is only beginning or just ending.
        """
        if not is_a(error, BaseException):
            raise InvalidArgument(f"an actor fails with an exception, not {shown(error)}. Nothing was done.")
        incarnation = self._cell.incarnation
        if incarnation is None or not incarnation.is_running:
            return False
        try:
            incarnation.start_task(_raise, (error,), "injected crash")
        except InvalidArgument:  # its nursery closes just now
            return False
        return True

    def watch(self, watcher: ActorRef[Any] | Callable[[Terminated], object]) -> Callable[[], None]:
        """Send `watcher` (an actor or a function) a `Terminated` when this actor has ended for good, at once if it has.

        Restarts cause no notice. Returns a function that ends the watch.
        """
        if isinstance(watcher, ActorRef):
            return self._cell.watch(watcher._cell.mailbox.force)
        check_callback("a watcher", watcher)
        return self._cell.watch(watcher)

    # -- inspection -----------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether the actor has ended for good."""
        return self._cell.closed

    def statistics(self) -> ActorStatistics:
        """What the actor has done so far."""
        return self._cell.statistics()


async def _raise(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


def asks_itself(path: str) -> InvalidArgument:
    """The error of an actor that would wait for its own answer."""
    return InvalidArgument(
        f"Actor {path!r} asks itself: it handles one message at a time, and would wait for ever. Nothing was asked."
        " Call a method of your own, tell, or ask in a task: context.start_task."
    )
