"""Mailbox: a trio memory channel with one reader and any number of writers, and what a channel does not give.

A channel keeps messages in order, bounds them, and gives room to the writer that waits longest. Beside it stands a
queue in front, for what is next before anything in the channel: a message that a crash put back, what waited when the
actor failed, and the message that woke the reader. Capacity counts the channel only: what stands in front was accepted
before.

Invariants
----------
M1  A writer waits only while the channel is full; room that appears goes to the writer that waits longest.
M2  A writer that is cancelled while waiting has not enqueued its message.
M3  A refusing mailbox (closed, or of a failed actor) takes nothing and keeps no writer waiting.
M4  The reader sleeps only while nothing waits: nothing ticks.
M5  Messages leave in the order in which they came, but for those put back at the front.
M6  Whatever is not accepted is named in the answer, or given to `dropped`: nothing disappears.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar

import attrs
import trio

from callboard.actors.kernel.reply import Envelope
from callboard.log.errors import CallboardError, MailboxFull, join_problems
from callboard.log.limits import MAILBOX_CAPACITY_DEFAULT

M = TypeVar("M")

Refusal = Callable[[], CallboardError]
WhenFull = Literal["wait", "drop_oldest", "drop_newest", "fail"]

WHEN_FULL: Final[dict[str, str]] = {
    "wait": "`tell` and `ask` wait for room (cancellable; `tell_nowait` raises MailboxFull).",
    "drop_oldest": "The message that waits longest gives way; it is counted and goes to the dead letters.",
    "drop_newest": "The new message is dropped, counted and goes to the dead letters.",
    "fail": "`tell` and `ask` raise MailboxFull.",
}
"""What a full mailbox does; the table in the guide is made from this."""

_WAKE: Final[Envelope[Any]] = Envelope(None, None)
"""Sent to a reader that sleeps, to wake it without a message."""


@attrs.frozen
class MailboxSpec:
    """How many messages wait at most, and what happens to one more. See `WHEN_FULL`."""

    capacity: int = MAILBOX_CAPACITY_DEFAULT
    when_full: WhenFull = "wait"

    def __attrs_post_init__(self) -> None:
        problems = mailbox_problems(self)
        if problems:
            raise join_problems("Mailbox", problems)


def mailbox_problems(spec: MailboxSpec) -> list[str]:
    """All that is wrong with `spec`."""
    problems = []
    if isinstance(spec.capacity, bool) or not isinstance(spec.capacity, int) or spec.capacity < 1:
        problems.append(f"capacity must be a whole number from 1, not {spec.capacity!r}")
    if spec.when_full not in WHEN_FULL:
        problems.append(f"when_full must be one of {', '.join(WHEN_FULL)}, not {spec.when_full!r}")
    return problems


class Mailbox(Generic[M]):
    """Where an actor's messages wait. It belongs to the actor's cell and survives restarts."""

    __slots__ = (
        "_dropped",
        "_forced",
        "_path",
        "_receive",
        "_refusal",
        "_send",
        "capacity",
        "front",
        "take",
        "when_full",
    )

    def __init__(
        self, path: str, spec: MailboxSpec, dropped: Callable[[Envelope[M], MailboxFull], None]
    ) -> None:
        self.capacity = spec.capacity
        self.when_full: WhenFull = spec.when_full
        self.front: deque[Envelope[M]] = deque()
        """What is next, before anything in the channel."""
        self._forced: deque[tuple[int, Envelope[M]]] = deque()
        """Notices that found the channel full, each with the number of messages of the channel that come before it,
        counted from the notice before."""
        self._path = path
        self._dropped = dropped
        self._refusal: Refusal | None = None
        self._send, self._receive = trio.open_memory_channel[Envelope[M]](spec.capacity)
        self.take: Callable[[], Envelope[M] | None] = self.take_next
        """`take_next`, unless a test stands in its place."""

    def __len__(self) -> int:
        """How many messages wait, waiting writers not counted."""
        return len(self.front) + len(self._forced) + self._receive.statistics().current_buffer_used

    # -- writers --------------------------------------------------------------------------------------------

    def put(self, envelope: Envelope[M]) -> bool:
        """Enqueue without waiting. False when the caller must wait for room (`put_waiting`).

        Raises `MailboxFull` when the policy is to fail, or an ask is dropped as the newest; raises the refusal of a
        stopped or failed actor.
        """
        if self._refusal is not None:
            raise self._refusal()
        try:
            self._send.send_nowait(envelope)
        except trio.WouldBlock:
            return self._overflowed(envelope)
        return True

    def _overflowed(self, envelope: Envelope[M]) -> bool:
        policy = self.when_full
        if policy == "wait":
            return False
        if policy == "fail":
            raise self.full()
        if policy == "drop_oldest":
            oldest = self._received()
            self._send.send_nowait(envelope)
            if oldest is not None:
                self._dropped(oldest, self.full(policy))
            return True
        self._dropped(envelope, self.full(policy))
        if envelope.reply is not None:
            raise self.full(policy)
        return True

    async def put_waiting(self, envelope: Envelope[M]) -> None:
        """Wait for room, then enqueue. A cancelled wait has not enqueued (M2)."""
        while True:
            try:
                await self._send.send(envelope)
            except trio.ClosedResourceError:  # the mailbox refuses now (M3), or its channel was replaced
                if self._refusal is not None:
                    raise self._refusal() from None
            else:
                return

    def force(self, message: M) -> None:
        """Enqueue a notice of the kernel's own, room or not; dropped silently by a mailbox that refuses."""
        if self._refusal is not None:
            return
        envelope: Envelope[M] = Envelope(message, None)
        try:
            self._send.send_nowait(envelope)
        except trio.WouldBlock:
            before = self._receive.statistics().current_buffer_used
            self._forced.append((before - sum([count for count, _ in self._forced]), envelope))

    def full(self, policy: str = "fail") -> MailboxFull:
        """The error for one message too many."""
        return MailboxFull(
            f"The mailbox of actor {self._path!r} is full ({self.capacity} messages wait, policy {policy}). "
            "Slow down and try again, or give it a larger mailbox.",
            path=self._path,
            capacity=self.capacity,
        )

    # -- the reader -----------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """A checkpoint that returns when something waits, or when interrupted."""
        if self.front:
            await trio.lowlevel.checkpoint()
            return
        try:
            envelope = await self._receive.receive()
        except trio.EndOfChannel:  # the channel was replaced
            return
        if envelope is not _WAKE:
            self.front.append(envelope)
            self._bring_notices()

    def take_next(self) -> Envelope[M] | None:
        """The message that is next, None when nothing waits."""
        if self.front:
            return self.front.popleft()
        return self._received()

    def _received(self) -> Envelope[M] | None:
        """The oldest message of the channel."""
        try:
            envelope = self._receive.receive_nowait()
        except trio.WouldBlock:
            return None
        if self._forced:
            self._bring_notices()
        return envelope

    def _bring_notices(self) -> None:
        """A message has left the channel: the notices right behind it come to the front."""
        forced = self._forced
        if forced:
            forced[0] = (forced[0][0] - 1, forced[0][1])
            while forced and forced[0][0] <= 0:
                self.front.append(forced.popleft()[1])

    def interrupt(self) -> None:
        """Wake the reader, with or without a message."""
        if self._receive.statistics().tasks_waiting_receive:
            self._send.send_nowait(_WAKE)

    def put_back(self, envelope: Envelope[M]) -> None:
        """Return a message that was taken: it is next again."""
        self.front.appendleft(envelope)

    def drain(self) -> list[Envelope[M]]:
        """Take all that waits. Writers that wait for room go on waiting, or are admitted."""
        self._replace_channel()
        taken = list(self.front)
        self.front.clear()
        return taken

    # -- refusing, and another capacity ---------------------------------------------------------------------

    def refuse(self, refusal: Refusal | None) -> None:
        """From now on every message meets `refusal()`, and so does every writer that waits (M3). None reopens."""
        self._refusal = refusal
        if refusal is not None:
            self._replace_channel()

    def resize(self, capacity: int) -> None:
        """Let `capacity` messages wait from now on. What waits stays accepted."""
        self.capacity = capacity
        self._replace_channel()

    def _replace_channel(self) -> None:
        """What waits in the channel moves in front; its writers wake, and try again or meet the refusal."""
        self._send.close()
        while True:
            try:
                self.front.append(self._receive.receive_nowait())
            except trio.EndOfChannel:
                break
            self._bring_notices()
        self._receive.close()
        self._send, self._receive = trio.open_memory_channel[Envelope[M]](self.capacity)
