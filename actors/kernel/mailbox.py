"""Mailbox: a trio memory channel with any number of writers and one reader at a time, and a front queue.

The channel keeps messages in order, bounds them, and gives room to the writer that waits longest. The front queue comes
before the channel. It contains messages that a crash put back, and those that waited when the actor failed or its
mailbox got another capacity. The capacity counts only the channel: messages in the front queue were accepted before.
Notices of peers (`peer`) come between the two; there are no more of them than the peers have marks. Each is composed
when the actor takes it. Behind them, and before the channel, is what has left the channel and was not yielded yet: the
message that woke the reader, and notices of the kernel that came right after a message.

Invariants
----------
MB1  A writer waits only while the channel is full; new room goes to the writer that waits longest.
MB2  A writer that is cancelled while waiting has not enqueued its message.
MB3  A refusing mailbox (closed, or of a failed actor) accepts nothing and keeps no writer waiting.
MB4  The reader sleeps only while no message waits, without a periodic timer.
MB5  Messages leave in the order in which they came, except that those put back at the front come first, notices of
     peers before those that waited in the channel, and "drop_oldest" drops some.
MB6  A message that is not accepted raises an error in its sender or is passed to `dropped`: none disappears.

MB7 and MB8 are in `batch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import trio

from callboard.actors.kernel.mailbox_spec import MailboxSpec, WhenFull
from callboard.actors.kernel.party import OpenPeer
from callboard.actors.kernel.reply import Envelope
from callboard.log.errors import CallboardError, MailboxFull

M = TypeVar("M")

Refusal = Callable[[], CallboardError]

_WAKE: Final[Envelope[Any]] = Envelope(None, None)
"""Wakes a sleeping reader without a message."""


class Mailbox(Generic[M]):
    """The queue of an actor's messages. It belongs to the actor's cell and survives restarts."""

    __slots__ = (
        "_coming",
        "_dropped",
        "_forced",
        "_left",
        "_marked",
        "_path",
        "_peers",
        "_receive",
        "_refusal",
        "_send",
        "capacity",
        "front",
        "notices",
        "trap",
        "when_full",
    )

    def __init__(
        self, path: str, spec: MailboxSpec, dropped: Callable[[Envelope[M], MailboxFull], None]
    ) -> None:
        self.capacity = spec.capacity
        self.when_full: WhenFull = spec.when_full
        self.front: deque[Envelope[M]] = deque()
        """The front queue: its messages come before notices of peers and those in the channel."""
        self._left: list[Envelope[M]] = []
        """What has left the channel and comes next after the notices of peers."""
        self._forced: deque[tuple[int, Envelope[M]]] = deque()
        """Notices that found the channel full. Each has the number of messages in the channel that come before it,
        counted from the notice before it."""
        self.notices = 0
        """How many notices of peers wait."""
        self._peers: deque[OpenPeer[M]] = deque()
        """Those that have marks."""
        self._marked: Callable[[Any], object] | None = None
        """Called with each new mark."""
        self._path = path
        self._dropped = dropped
        self._refusal: Refusal | None = None
        self._coming = 0
        """Messages that were given to the channel and have not left it, those of waiting writers included: while it is
        0, the channel need not be asked, which takes longer than to send and to receive."""
        channel: trio.open_memory_channel[Envelope[M]] = trio.open_memory_channel(spec.capacity)
        self._send, self._receive = channel
        self.trap: Callable[[], object] | None = None
        """Called before each message that a batch takes: fault injection."""

    def __len__(self) -> int:
        """How many messages wait, without those of waiting writers."""
        return self.accepted + len(self._forced)

    @property
    def accepted(self) -> int:
        """How many messages wait in the front queue, as notices of peers, and in the channel or since they left it."""
        waiting = len(self.front) + self.notices + len(self._left)
        return waiting + (self._receive.statistics().current_buffer_used if self._coming else 0)

    # -- writers --------------------------------------------------------------------------------------------

    def put(self, envelope: Envelope[M]) -> bool:
        """Enqueue without waiting. Returns False when the caller must wait for room (`put_waiting`).

        Raises `MailboxFull` when the policy is "fail", or when it is "drop_newest" and the message is a question.
        Raises the refusal of a stopped or failed actor.
        """
        if self._refusal is not None:
            raise self._refusal()
        try:
            self._send.send_nowait(envelope)
        except trio.WouldBlock:
            return self._overflowed(envelope)
        self._coming += 1
        return True

    def _overflowed(self, envelope: Envelope[M]) -> bool:
        policy = self.when_full
        if policy == "wait":
            return False
        if policy == "fail":
            raise self.full()
        if policy == "drop_oldest":
            oldest = self._receive.receive_nowait()
            if self._forced:
                self._move_notices()
            self._send.send_nowait(envelope)
            self._dropped(oldest, self.full(policy))
            return True
        self._dropped(envelope, self.full(policy))
        if envelope.reply is not None:
            raise self.full(policy)
        return True

    async def put_waiting(self, envelope: Envelope[M]) -> None:
        """Wait for room, then enqueue. A cancelled wait has not enqueued (MB2)."""
        while True:
            self._coming += 1
            try:
                await self._send.send(envelope)
            except trio.ClosedResourceError:  # the mailbox refuses now (MB3), or its channel was replaced
                self._coming -= 1
                if self._refusal is not None:
                    raise self._refusal() from None
            except BaseException:
                self._coming -= 1
                raise
            else:
                return

    def force(self, message: M) -> None:
        """Enqueue a notice of the kernel even when there is no room. A refusing mailbox ignores it."""
        if self._refusal is not None:
            return
        envelope: Envelope[M] = Envelope(message, None)
        try:
            self._send.send_nowait(envelope)
        except trio.WouldBlock:
            before = self._receive.statistics().current_buffer_used
            self._forced.append((before - sum([count for count, _ in self._forced]), envelope))
        else:
            self._coming += 1

    def notice(self, peer: OpenPeer[M]) -> None:
        """A peer has one more mark. A refusing mailbox forgets it: the peer hears when that has ended."""
        if self._refusal is not None:
            peer.marks.clear()
            return
        if len(peer.marks) == 1:
            self._peers.append(peer)
        if self._marked is not None:
            self._marked(next(reversed(peer.marks)))
        self.notices += 1
        if self.notices == 1:
            self.interrupt()

    def watch_marks(self, marked: Callable[[Any], object] | None) -> None:
        """For `peer.watch_marks`."""
        self._marked = marked
        if marked is not None:
            for peer in tuple(self._peers):
                for mark in tuple(peer.marks):
                    marked(mark)

    def full(self, policy: str = "fail") -> MailboxFull:
        return MailboxFull(
            f"The mailbox of actor {self._path!r} is full ({self.capacity} messages wait, policy {policy}). "
            "Slow down and try again, or give it a larger mailbox.",
            path=self._path,
            capacity=self.capacity,
        )

    # -- the reader -----------------------------------------------------------------------------------------

    async def wait(self) -> bool:
        """Wait until there is a message, or until interrupted. Whether there is one. A checkpoint."""
        if self.front or self.notices or self._left:
            await trio.lowlevel.checkpoint()
        else:
            try:
                envelope = await self._receive.receive()
            except trio.EndOfChannel:  # the channel was replaced
                pass
            else:
                self._coming -= 1
                if envelope is not _WAKE:
                    # Notices of peers that came while the reader was waking come before it.
                    self._left.append(envelope)
                    if self._forced:
                        self._move_notices()
        return bool(self.front or self.notices or self._left)

    def _move_notices(self) -> None:
        """A message has left the channel: so do the notices that come right after it."""
        forced = self._forced
        forced[0] = (forced[0][0] - 1, forced[0][1])
        while forced and forced[0][0] <= 0:
            self._left.append(forced.popleft()[1])

    def take_notice(self) -> Envelope[M]:
        """The next of the notices that wait."""
        peer = self._peers[0]
        if len(peer.marks) == 1:
            self._peers.popleft()
        self.notices -= 1
        return Envelope(peer.take(), None)

    def interrupt(self) -> None:
        """Wake the reader, with or without a message."""
        if self._receive.statistics().tasks_waiting_receive:
            self._send.send_nowait(_WAKE)
            self._coming += 1

    def put_back(self, envelope: Envelope[M]) -> None:
        """Return a message that was taken; it is the next one again."""
        self.front.appendleft(envelope)

    def drain(self) -> list[Envelope[M]]:
        """Take all messages. Writers that wait for room continue to wait, or enqueue their messages."""
        self._replace_channel()
        taken = list(self.front)
        self.front.clear()
        return taken

    # -- refusing, and another capacity ---------------------------------------------------------------------

    def refuse(self, refusal: Refusal | None) -> None:
        """Refuse every message with `refusal()`, also those of waiting writers (MB3). None ends the refusal."""
        self._refusal = refusal
        if refusal is not None:
            self._replace_channel()
            for peer in self._peers:
                peer.marks.clear()
            self._peers.clear()
            self.notices = 0

    def resize(self, capacity: int) -> None:
        """Let `capacity` messages wait from now on. Waiting messages stay accepted."""
        self.capacity = capacity
        self._replace_channel()

    def _replace_channel(self) -> None:
        """Move the channel's messages to the front queue. Its writers wake, and try again or get the refusal."""
        self._move_left()
        channel = self._receive.statistics()
        in_use = channel.current_buffer_used or channel.tasks_waiting_send or channel.tasks_waiting_receive
        if not in_use and channel.max_buffer_size == self.capacity:
            return  # no task would notice, and a channel takes long to make
        self._send.close()
        while True:
            try:
                self.front.append(self._receive.receive_nowait())
            except trio.EndOfChannel:
                break
            self._coming -= 1
            if self._forced:
                self._move_notices()
                self._move_left()
        self._receive.close()
        self._send, self._receive = trio.open_memory_channel[Envelope[M]](self.capacity)

    def _move_left(self) -> None:
        self.front.extend(self._left)
        self._left.clear()
