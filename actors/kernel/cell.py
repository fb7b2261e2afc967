"""Cell: the part of an actor that survives restarts: its path, mailbox, counters and watchers.

A reference points to the cell, so it stays valid across restarts.

Invariants
----------
CL1  A cell has at most one incarnation at a time.
CL2  A closed cell stays closed: its mailbox refuses messages, those that waited there were answered or went to the dead
     letters, and every watcher was notified once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, TypeVar, cast

import attrs
import trio

from callboard.actors.kernel.copying import CopyingMailbox, CopyingReply
from callboard.actors.kernel.events import ActorEnded, ActorFailed, HookFailed, MessageDropped, call_guarded
from callboard.actors.kernel.failures import describe, place, text_of
from callboard.actors.kernel.life import ActorLife
from callboard.actors.kernel.mailbox import Mailbox
from callboard.actors.kernel.mailbox_spec import MailboxSpec
from callboard.actors.kernel.party import Began, Failed, OpenPeer, Terminated
from callboard.actors.kernel.rate import Rate
from callboard.actors.kernel.reply import Envelope, LateReplies, Reply
from callboard.actors.kernel.system_services import SystemServices
from callboard.log import errors
from callboard.log.plain import is_a, shown

M = TypeVar("M")

OnFailed = Callable[[str, BaseException], errors.CallboardError]


@attrs.frozen(kw_only=True)
class ActorStatistics:
    """A snapshot of one actor. Counters cover all its incarnations."""

    path: str
    """Its place in the tree, such as `user/clerk`."""
    state: str
    """new, starting, running, waiting (for a restart), stopping, failed or stopped."""
    incarnation: int
    """Number of the current or last incarnation; 0 before the first."""
    restarts: int
    """How often it was restarted."""
    mailbox_depth: int
    """Messages in its mailbox."""
    mailbox_capacity: int
    """How many its mailbox takes."""
    received: int
    """Messages taken out of the mailbox."""
    rate_per_s: float
    """Messages taken per second, an average that decays with `RATE_WINDOW_S`."""
    dropped: int
    """Messages that the full mailbox's policy dropped."""
    late_replies: int
    """Answers that came after the asker had stopped waiting."""
    dead_letters: int
    """Messages that went to the dead letters, including dropped ones."""
    last_failure: str | None
    """The exception that ended its last incarnation, in words."""
    started_at_us: int | None
    """Wall time at which the current incarnation began."""


class Cell(Generic[M]):
    """The part of one actor that survives restarts."""

    def __init__(
        self,
        services: SystemServices,
        path: str,
        mailbox: MailboxSpec,
        forget: Callable[[str], object],
    ) -> None:
        """Its system will `forget` the path when the cell closes."""
        self.services = services
        self.path = path
        self._forget = forget
        self.mailbox: Mailbox[M]
        self.new_reply: Callable[[LateReplies], Reply]
        """Makes the reply to a question that an `ActorRef` asks."""
        wire = services.wire if services.wire is not None and services.wire.covers(path) else None
        self.wire = wire
        """With one, what is sent to it, and what it answers and says, is delivered as a copy."""
        if wire is None:
            self.mailbox, self.new_reply = Mailbox(path, mailbox, self._dropped), Reply
        else:
            self.mailbox = CopyingMailbox(path, mailbox, self._dropped, wire)
            self.new_reply = partial(CopyingReply, wire)
        self.incarnation: ActorLife[M] | None = None
        self.state = "new"
        self.number = 0
        self.restarts = 0
        self.received = 0
        self.dropped = 0
        self.late_replies = 0
        self.dead_letters = 0
        self.rate = Rate(services.clock.monotonic())
        self.last_failure: str | None = None
        self.started_at_us: int | None = None
        self.loop: trio.lowlevel.Task | None = None
        """The only task in which its incarnation takes messages."""
        self.is_shared = False
        """Several tasks take them: one may answer what another asks."""
        self.closed = False
        self._retried: list[tuple[Envelope[M], int]] = []
        """The messages that were put back after a crash, and how often that happened to each."""
        self.peers: dict[int, OpenPeer[M]] = {}
        """The peers that hear what the actor says, by number."""
        self._peers_numbered = 0
        self._has_failed: Failed | None = None
        self._watchers: dict[object, Callable[[Terminated], object]] = {}
        self._terminated: Terminated | None = None

    def takes_messages(self, task: trio.lowlevel.Task) -> None:
        """A task of the incarnation takes messages."""
        if task is not self.loop and not self.is_shared:
            self.loop, self.is_shared = (task, False) if self.loop is None else (None, True)

    # -- peers ----------------------------------------------------------------------------------------------

    def number_peer(self) -> int:
        """A number for another peer."""
        self._peers_numbered += 1
        return self._peers_numbered

    def open_peer(self, peer: OpenPeer[M]) -> None:
        """Have the peer hear what the actor says; that it has failed or ended, at once."""
        if self._terminated is not None:
            peer.hear(self._terminated)
            return
        self.peers[peer.number] = peer
        if self._has_failed is not None:
            peer.hear(self._has_failed)

    def tell_began(self) -> None:
        """An incarnation has begun: its peers say again what it is to know."""
        for peer in tuple(self.peers.values()):
            peer.hear(Began())

    # -- messages that are not handled ----------------------------------------------------------------------

    def to_dead_letters(self, message: M, reason: str) -> None:
        """Count `message` and add it to the dead letters."""
        self.dead_letters += 1
        self.services.dead_letters.add(self.path, message, reason)

    def _dropped(self, envelope: Envelope[M], error: errors.MailboxFull) -> None:
        reason = self.mailbox.when_full
        self.dropped += 1
        if envelope.reply is not None:
            envelope.reply.fail(error)
        self.to_dead_letters(envelope.message, reason)
        if self.dropped & (self.dropped - 1) == 0:
            self.services.events.emit(MessageDropped(self.path, reason, self.dropped))

    def _answer_questions(self, error: Callable[[], errors.CallboardError]) -> None:
        """Fail every waiting question; statements stay in the mailbox.

        A question that was put back after a crash fails with `ActorCrashed`, because the actor may have acted on it.
        """
        statements = []
        for envelope in self.mailbox.drain():
            if envelope.reply is None:
                statements.append(envelope)
            elif self.tries_of(envelope):
                envelope.reply.fail(crashed(self.path, error().__cause__))
            else:
                envelope.reply.fail(error())
        for envelope in statements:
            self.mailbox.front.append(envelope)

    def tries_of(self, envelope: Envelope[M]) -> int:
        """How often an incarnation crashed while it was handling the message, which was put back."""
        for retried, tries in self._retried:
            if retried is envelope:
                return tries
        return 0

    def put_back(self, again: list[tuple[Envelope[M], int]]) -> None:
        """Put back what an incarnation was handling when it crashed, with how often that happened to each."""
        front = {id(envelope) for envelope in self.mailbox.front} if self._retried else ()
        self._retried = again + [row for row in self._retried if id(row[0]) in front]
        for envelope, _ in reversed(again):
            self.mailbox.put_back(envelope)

    # -- failing, closing -----------------------------------------------------------------------------------

    def fail(self, cause: BaseException, on_failed: OnFailed | None) -> None:
        """The actor has exceeded its restart intensity: fail its questions and refuse messages until it is revived.

        Statements that wait already stay in the mailbox. New messages are refused with the same error.
        """
        has_reported = False

        def refusal() -> errors.CallboardError:
            nonlocal has_reported
            error: Any = None
            if on_failed is not None:
                try:
                    error = on_failed(self.path, cause)
                    if not is_a(error, Exception):
                        raise errors.InvalidArgument(f"on_failed made {shown(error)}, which is no exception.")
                except Exception as problem:  # noqa: BLE001 - a user's hook: reported, once
                    error = None
                    if not has_reported:
                        has_reported = True
                        self._hook_failed("on_failed", problem)
            if error is None:
                error = self._failed(cause)
            error.__cause__ = cause
            return error  # type: ignore[no-any-return]

        self.state = "failed"
        self.mailbox.refuse(refusal)
        self._answer_questions(refusal)
        self._has_failed = Failed(cause)
        for peer in tuple(self.peers.values()):
            peer.hear(self._has_failed)
        self.services.events.emit(ActorFailed(self.path, describe(cause)))

    def revive(self) -> None:
        """A failed actor is restarted by hand: it takes messages again."""
        self._has_failed = None
        self.mailbox.refuse(None)

    def _hook_failed(self, hook: str, problem: Exception) -> None:
        events = self.services.events
        events.emit(HookFailed(self.path, hook, describe(problem), place(problem), events.trace(problem)))

    def _failed(self, cause: BaseException) -> errors.RestartLimitReached:
        """The error of a failed actor: it went over its own limit, or a supervisor above it gave up."""
        if is_a(cause, errors.RestartLimitReached):
            above = cast(Any, cause).path
            if self.path.startswith(f"{above}/"):
                return errors.RestartLimitReached(
                    f"Actor {self.path!r} is down with its supervisor: {text_of(cause)} Then restart {above!r} by"
                    " hand.",
                    path=above,
                    child=cast(Any, cause).child,
                    children=cast(Any, cause).children,
                    restarts=cast(Any, cause).restarts,
                )
        return errors.RestartLimitReached(
            f"Actor {self.path!r} failed more often than its supervisor allows ({self.restarts} restarts) and"
            " stays down. Repair the cause of its last failure, then restart it by hand.",
            path=self.path,
            restarts=self.restarts,
        )

    def close(self, cause: BaseException | None) -> None:
        """The actor has ended for good (CL2)."""
        if self.closed:
            return
        self.closed = True
        self.state = "stopped"

        def refusal() -> errors.CallboardError:
            error = stopped(self.path)
            error.__cause__ = cause
            return error

        self.mailbox.refuse(refusal)
        self._answer_questions(refusal)
        for envelope in self.mailbox.drain():
            self.to_dead_letters(envelope.message, "crashed" if self.tries_of(envelope) else "stopped")
        self._forget(self.path)
        self._terminated = notice = Terminated(self.path, cause)
        watchers, self._watchers = self._watchers, {}
        peers, self.peers = self.peers, {}
        with ExitStack() as calls:  # of foreign code: each is made, whatever those before it raise
            for tell in reversed(watchers.values()):
                calls.callback(self._tell, tell, notice)
            for peer in peers.values():
                calls.callback(peer.hear, notice)
            ended = ActorEnded(self.path, None if cause is None else describe(cause))
            calls.callback(self.services.events.emit, ended)

    def watch(self, tell: Callable[[Terminated], object]) -> Callable[[], None]:
        """Call `tell` when the cell closes, at once if it is closed. Returns a function that ends the watch."""
        if self._terminated is not None:
            self._tell(tell, self._terminated)
            return lambda: None
        key = object()
        self._watchers[key] = tell
        return lambda: self._watchers.pop(key, None) and None

    def _tell(self, tell: Callable[[Terminated], object], notice: Terminated) -> None:
        events = self.services.events
        call_guarded(lambda: tell(notice), self.path, "watcher", events.emit, events.trace)

    # -- inspection -----------------------------------------------------------------------------------------

    def statistics(self) -> ActorStatistics:
        return ActorStatistics(
            path=self.path,
            state=self.state,
            incarnation=self.number,
            restarts=self.restarts,
            mailbox_depth=len(self.mailbox),
            mailbox_capacity=self.mailbox.capacity,
            received=self.received,
            rate_per_s=self.rate.read(self.services.clock.monotonic()),
            dropped=self.dropped,
            late_replies=self.late_replies,
            dead_letters=self.dead_letters,
            last_failure=self.last_failure,
            started_at_us=self.started_at_us,
        )


def stopped(path: str) -> errors.ActorStopped:
    """The error for a message to an actor that has ended for good."""
    return errors.ActorStopped(
        f"Actor {path!r} has stopped and will not come back; the message was not handled. "
        "Start another one, or drop the reference.",
        path=path,
    )


def crashed(path: str, cause: BaseException | None, what: str = "crashed") -> errors.ActorCrashed:
    """The error for a question that the incarnation was handling, or had deferred, when it ended."""
    error = errors.ActorCrashed(
        f"Actor {path!r} {what} before it answered ({describe(cause)}). It may have acted on the question: "
        "check, or ask again if asking twice is harmless.",
        path=path,
    )
    error.__cause__ = cause
    return error
