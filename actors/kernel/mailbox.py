"""Mailbox: a backlog with one reader and any number of writers that wait.

Why not a memory channel: one call must drain all that waits, stop and kill must overtake, a crash must put
messages back at the front, and a policy may drop the oldest. A channel does none of these.

Invariants
----------
M1  A writer waits only while the backlog is full; room that appears goes to the writer that waits longest.
M2  A writer that is cancelled while waiting has not enqueued its message.
M3  A refusing mailbox (closed, or of a failed actor) takes nothing and keeps no writer waiting.
M4  The reader sleeps only while the backlog is empty: nothing ticks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from callboard.actors.kernel.backlog import Backlog, MailboxSpec, Overflow
from callboard.actors.kernel.reply import Envelope
from callboard.log.errors import CallboardError, MailboxFull

M = TypeVar("M")

Refusal = Callable[[], CallboardError]


class _Writer(Generic[M]):
    """A task waiting for room with its message."""

    __slots__ = ("accepted", "envelope")

    def __init__(self, envelope: Envelope[M]) -> None:
        self.envelope = envelope
        self.accepted = False


class Mailbox(Generic[M]):
    """Where an actor's messages wait. It belongs to the actor's cell and survives restarts."""

    __slots__ = ("_dropped", "_path", "_reader", "_refusal", "_writers", "backlog")

    def __init__(
        self, path: str, spec: MailboxSpec, dropped: Callable[[Envelope[M], MailboxFull], None]
    ) -> None:
        self.backlog: Backlog[Envelope[M]] = Backlog(spec)
        self._path = path
        self._dropped = dropped
        self._reader: trio.lowlevel.Task | None = None
        self._writers: OrderedDict[trio.lowlevel.Task, _Writer[M]] = OrderedDict()
        self._refusal: Refusal | None = None

    # -- writers --------------------------------------------------------------------------------------------

    def put(self, envelope: Envelope[M]) -> bool:
        """Enqueue without waiting. False when the caller must wait for room (`put_waiting`).

        Raises `MailboxFull` when the policy is to fail, or an ask is dropped as the newest; raises the refusal of a
        stopped or failed actor.
        """
        if self._refusal is not None:
            raise self._refusal()
        overflow = self.backlog.offer(envelope)
        if overflow is not None:
            return self._overflowed(overflow)
        reader = self._reader
        if reader is not None:
            self._reader = None
            trio.lowlevel.reschedule(reader)
        return True

    def _overflowed(self, overflow: Overflow[Envelope[M]]) -> bool:
        policy, envelope = overflow.policy, overflow.item
        if policy == "wait":
            return False
        if policy == "fail":
            raise self.full()
        self._dropped(envelope, self.full(policy))
        if policy == "drop_newest" and envelope.reply is not None:
            raise self.full(policy)
        return True

    async def put_waiting(self, envelope: Envelope[M]) -> None:
        """Wait for room, then enqueue. A cancelled wait has not enqueued (M2)."""
        task = trio.lowlevel.current_task()
        writer = self._writers[task] = _Writer(envelope)

        def give_up(_raise_cancel: Any) -> trio.lowlevel.Abort:
            del self._writers[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)
        if not writer.accepted:
            raise self._refusal() if self._refusal is not None else self.full()

    def force(self, message: M) -> None:
        """Enqueue a notice of the kernel's own, room or not; dropped silently by a mailbox that refuses."""
        if self._refusal is None:
            self.backlog.force(Envelope(message, None))
            self.interrupt()

    def full(self, policy: str = "fail") -> MailboxFull:
        """The error for one message too many."""
        capacity = self.backlog.capacity
        return MailboxFull(
            f"The mailbox of actor {self._path!r} is full ({capacity} messages wait, policy {policy}). "
            "Slow down and try again, or give it a larger mailbox.",
            path=self._path,
            capacity=capacity,
        )

    # -- the reader -----------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """A checkpoint that returns when something waits, or when interrupted."""
        if self.backlog.items:
            await trio.lowlevel.checkpoint()
            return
        self._reader = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._reader_cancelled)

    def _reader_cancelled(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    def interrupt(self) -> None:
        """Wake the reader, with or without a message."""
        reader = self._reader
        if reader is not None:
            self._reader = None
            trio.lowlevel.reschedule(reader)

    @property
    def writers(self) -> OrderedDict[trio.lowlevel.Task, _Writer[M]]:
        """The tasks that wait for room; true in a condition when there are any."""
        return self._writers

    def admit(self) -> None:
        """Give the room that appeared to the writers that wait longest (M1)."""
        backlog, writers = self.backlog, self._writers
        while writers and len(backlog) < backlog.capacity:
            task, writer = writers.popitem(last=False)
            backlog.force(writer.envelope)
            writer.accepted = True
            trio.lowlevel.reschedule(task)

    # -- refusing -------------------------------------------------------------------------------------------

    def refuse(self, refusal: Refusal | None) -> None:
        """From now on every message meets `refusal()`, and so does every writer that waits (M3). None reopens."""
        self._refusal = refusal
        if refusal is not None:
            waiting = list(self._writers)
            self._writers.clear()
            for task in waiting:
                trio.lowlevel.reschedule(task)
