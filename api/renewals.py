"""Renewals: the leases of messages whose bodies run, which are kept for as long as these run.

`async with consumer.receive()` keeps a lease for as long as its body runs, and `work` for as long as the handler does.
The handles of a runtime are one client, which alone writes the registry of these leases: entering and leaving a body
costs a dictionary entry. One timer comes when the earliest renewal is due; then each lease that is due, or nearly so,
is asked for (`Extend`) without waiting, and the partition's answer is acted on as it comes. When a lease is lost, its
body is cancelled. A body that extends its lease, or shortens it, moves the next renewal.

A partition answers each question that it takes, also after a restart, or the kernel refuses it. So one is asked again
only when it has refused: after a pause or, where its mailbox had no room, as soon as it has answered for another lease.
A lease that ends before the answer comes is lost. What ends first is asked for first, and a partition that does not
answer costs its own consumers their leases and no others. A lease may cover the messages of
several bodies: what renews it for one of them renews it for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs

from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import Reply
from callboard.actors.partition.commands import Extend
from callboard.actors.timers.commands import NEVER
from callboard.actors.timing import Callback, Timers
from callboard.log.errors import ActorStopped, CallboardError, GroupNotFound, MailboxFull

RENEW_AT: float = 1 / 3
"""The part of the visibility timeout after which a lease is renewed."""
RETRY_AT: float = 1 / 10
"""The part of a lease's time after which a partition that has refused is asked again."""
EARLY_AT: float = 1 / 20
"""The part of the visibility timeout by which a lease is renewed early when others are due anyway."""


class TimedLease(Protocol):
    """A lease, as far as its time is concerned."""

    deadline: float
    """When it runs out."""


@attrs.define(eq=False)
class RenewedLease:
    """One lease in use, for one message. `lost` is called, once, when it is the consumer's no more; `renewed` with a
    new deadline.

    `lost` returns True when its user goes on, since the message is settled: then it is renewed no more, and
    counts as in use until it is removed.
    """

    port: PartitionPort
    group_id: int
    lease_id: int
    offset: int
    visibility_timeout: float
    lease: TimedLease
    """All that is leased together runs out together."""
    due: float
    lost: Callable[[], bool | None]
    renewed: Callable[[float], None]
    holder: object = None
    """Whose it is."""
    asked_at: float = 0.0
    """When its time was last asked for: an answer to an earlier question says nothing any more."""
    question: Reply | None = None
    """The renewal that was asked for last, while its answer counts."""

    _lasts_s: float = math.inf
    """For how long it was last given."""

    @property
    def deadline(self) -> float:
        """When it runs out."""
        return self.lease.deadline

    @property
    def pause_s(self) -> float:
        """How long to pause before a partition that has refused is asked again."""
        return min(self.visibility_timeout, self._lasts_s) * RETRY_AT

    def move(self, asked_at: float, seconds: float) -> None:
        """It lasts for `seconds` from `asked_at` on, and is renewed in time before."""
        self.asked_at, self.lease.deadline, self._lasts_s = asked_at, asked_at + seconds, seconds
        self.question = None
        self.due = self.deadline - min(seconds, self.visibility_timeout) * (1 - RENEW_AT)


class RenewedLeases:
    """The registry: the leases of bodies that run now. `is_live` says whether the topic of a partition is there."""

    def __init__(self, timers: Timers, is_live: Callable[[PartitionPort], bool]) -> None:
        self._leases: dict[RenewedLease, None] = {}
        self._crowded_out: dict[RenewedLease, None] = {}
        """Those for which the mailbox of their partition had no room."""
        self._is_live = is_live
        self._timer = timers.timer(Callback(self._look))

    def add(self, lease: RenewedLease) -> None:
        """Renew it when it is due, until it is removed."""
        self._leases[lease] = None
        self._arm(lease)

    def remove(self, lease: RenewedLease) -> None:
        """Its body has ended."""
        lease.due, lease.question = NEVER, None
        self._forget(lease)

    def move(
        self, holder: object, port: PartitionPort, lease_id: int, asked_at: float, seconds: float
    ) -> None:
        """`holder` asked at `asked_at` that this lease lasts for `seconds`: what is in use of it is renewed in time."""
        for lease in self._leases:
            is_it = lease.holder is holder and lease.port is port and lease.lease_id == lease_id
            if is_it and lease.due != NEVER and lease.asked_at <= asked_at:
                lease.move(asked_at, seconds)
                self._arm(lease)

    def has_any(self, holder: object) -> bool:
        """Whether `holder` has a lease that is renewed."""
        return any(lease.holder is holder for lease in self._leases)

    def lose(self, holder: object, port: PartitionPort) -> None:
        """What `holder` has leased there is its own no more."""
        for lease in [lease for lease in self._leases if lease.holder is holder and lease.port is port]:
            self._end(lease)

    def __len__(self) -> int:
        """How many are renewed."""
        return sum(lease.due != NEVER for lease in self._leases)

    def _arm(self, lease: RenewedLease) -> None:
        if lease.due < self._timer.deadline:
            self._timer.arm(lease.due)

    def _end(self, lease: RenewedLease) -> None:
        if lease.due == NEVER:
            return
        lease.due, lease.question = NEVER, None
        if not lease.lost():
            self._forget(lease)

    def _forget(self, lease: RenewedLease) -> None:
        self._leases.pop(lease, None)
        self._crowded_out.pop(lease, None)

    def _look(self) -> None:
        """The timer has come: ask for what is due, and end what was asked for in vain."""
        if not self._timer.has_come():
            return
        now = self._timer.now()
        for lease in sorted(self._leases, key=lambda lease: lease.deadline):
            if lease.question is not None:
                if lease.due <= now and lease.deadline <= now:
                    self._end(lease)
                lease.due = max(lease.due, lease.deadline)  # another body's renewal may have put it off
            elif lease.due - lease.visibility_timeout * EARLY_AT <= now:
                self._ask(lease, now)
        self._timer.arm(min([lease.due for lease in self._leases], default=NEVER))

    def _ask(self, lease: RenewedLease, now: float) -> None:
        """Ask for a renewal without waiting."""
        lease.asked_at = now
        message = Extend(lease.group_id, lease.lease_id, lease.visibility_timeout)
        try:
            reply = lease.port.ref.ask_nowait(message)
        except CallboardError as error:
            if isinstance(error, MailboxFull):
                self._crowded_out[lease] = None
            self._refused(lease, error, now)
        else:
            lease.question, lease.due = reply, max(lease.deadline, now + lease.pause_s)
            reply.unawaited = partial(self._answered, lease, reply)

    def _answered(self, lease: RenewedLease, reply: Reply) -> None:
        """The partition has answered, or the kernel in its place."""
        now, is_awaited = self._timer.now(), lease.question is reply
        if is_awaited:
            lease.question = None
        try:
            is_kept = reply.value()
        except CallboardError as error:
            if is_awaited:
                self._refused(lease, error, now)
            return
        self._ask_soon(lease.port, now)
        if not is_awaited:  # the body has ended, or moved the end of its lease
            return
        if is_kept:
            lease.move(lease.asked_at, lease.visibility_timeout)
            self._arm(lease)
            lease.renewed(lease.deadline)
        else:
            self._end(lease)

    def _ask_soon(self, port: PartitionPort, now: float) -> None:
        """The partition's mailbox has room again."""
        for lease in [lease for lease in self._crowded_out if lease.port is port]:
            del self._crowded_out[lease]
            if lease.due != NEVER and lease.question is None:
                lease.due = now
                self._arm(lease)

    def _refused(self, lease: RenewedLease, error: CallboardError, now: float) -> None:
        """Ask again after a pause, and at last when the lease ends; then it is lost."""
        is_deleted = isinstance(error, ActorStopped) and not self._is_live(lease.port)
        if is_deleted or isinstance(error, GroupNotFound) or now >= lease.deadline:
            self._end(lease)
        else:
            lease.due = min(now + lease.pause_s, lease.deadline)
            self._arm(lease)
