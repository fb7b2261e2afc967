"""Renewals: keeps the leases of messages whose handler is still running.

`async with consumer.receive()` keeps a lease for as long as its body runs, however long that is. The leases to renew
stand in a registry that consumers write to directly and one actor of the runtime reads: entering and leaving a body
costs a dictionary entry, and the actor wakes only when the earliest renewal is due. When a lease is lost, its body is
cancelled; a lease that cannot be renewed in time is lost too. A body that extends its lease, or shortens it, moves the
next renewal.

All that is due at about the same time is renewed at once, so a partition that does not answer costs its own consumers
their leases and no others. When a mailbox has no room for all, the leases that end first are asked for first, and the
others as soon as the partition has answered those. A lease may cover the messages of several bodies: what renews it for
one of them renews it for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Protocol

import attrs
import trio

from callboard.actors.kernel import Actor, Reply
from callboard.actors.partition.commands import Extend
from callboard.actors.partition.port import PartitionPort
from callboard.actors.timers.commands import NEVER
from callboard.actors.timing import Timers
from callboard.log.errors import ActorStopped, CallboardError, GroupNotFound

RENEW_AT: float = 1 / 3
"""The part of the visibility timeout after which a lease is renewed."""
RETRY_AT: float = 1 / 10
"""The part of a lease's time after which a partition that did not answer is asked again."""
EARLY_AT: float = 1 / 20
"""The part of the visibility timeout by which a hold is renewed early when others are due anyway."""


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

    _lasts_s: float = math.inf
    """For how long it was last given."""

    @property
    def deadline(self) -> float:
        """When it runs out."""
        return self.lease.deadline

    @property
    def patience_s(self) -> float:
        """How long a partition has to answer before it is asked again."""
        return min(self.visibility_timeout, self._lasts_s) * RETRY_AT

    def move(self, asked_at: float, seconds: float) -> None:
        """It lasts for `seconds` from `asked_at` on, and is renewed in time before."""
        self.asked_at, self.lease.deadline, self._lasts_s = asked_at, asked_at + seconds, seconds
        self.due = self.deadline - min(seconds, self.visibility_timeout) * (1 - RENEW_AT)


class RenewedLeases:
    """The registry: what is held now."""

    def __init__(self, timers: Timers) -> None:
        self._leases: dict[RenewedLease, None] = {}
        self._timer = timers.timer()

    def add(self, lease: RenewedLease) -> None:
        """From now on `hold` is renewed when due."""
        self._leases[lease] = None
        if lease.due < self._timer.deadline:
            self._timer.arm(lease.due)

    def remove(self, lease: RenewedLease) -> None:
        self._leases.pop(lease, None)

    def move(
        self, holder: object, port: PartitionPort, lease_id: int, asked_at: float, seconds: float
    ) -> None:
        """`holder` asked at `asked_at` that this lease lasts for `seconds`: what is in use of it is renewed in time."""
        for lease in self._leases:
            is_it = lease.holder is holder and lease.port is port and lease.lease_id == lease_id
            if is_it and lease.due != NEVER and lease.asked_at <= asked_at:
                lease.move(asked_at, seconds)
                if lease.due < self._timer.deadline:
                    self._timer.arm(lease.due)

    def has_any(self, holder: object) -> bool:
        """Whether `holder` has a lease that is renewed."""
        return any(lease.holder is holder for lease in self._leases)

    def lose(self, holder: object, port: PartitionPort) -> None:
        """What `holder` has leased there is its own no more."""
        for lease in [lease for lease in self._leases if lease.holder is holder and lease.port is port]:
            self.end(lease)

    def end(self, lease: RenewedLease) -> None:
        """It is lost."""
        if lease.due == NEVER:
            return
        lease.due = NEVER
        if not lease.lost():
            self.remove(lease)

    def __len__(self) -> int:
        """How many are renewed."""
        return sum(lease.due != NEVER for lease in self._leases)

    def __contains__(self, lease: object) -> bool:
        return lease in self._leases

    async def due(self, now: Callable[[], float]) -> list[RenewedLease]:
        """Sleep until something is due, then return it, and what is due soon after; what ends first is first."""
        while True:
            moment = now()
            first = min([lease.due for lease in self._leases], default=NEVER)
            if first <= moment:
                due = [
                    lease
                    for lease in self._leases
                    if lease.due - lease.visibility_timeout * EARLY_AT <= moment
                ]
                return sorted(due, key=lambda lease: lease.deadline)
            self._timer.arm(first)
            await self._timer.wait()


class Renewals(Actor[None]):
    """The actor that renews. It has no messages of its own."""

    defers_interrupts = True

    def __init__(self, leases: RenewedLeases) -> None:
        self._leases = leases

    async def started(self) -> None:
        """Begin to renew."""
        self.context.start_task(self._renew, name="renewals")

    async def _renew(self) -> None:
        now = self.context.clock.monotonic
        while True:
            due = await self._leases.due(now)
            asked_at = now()
            asked = [(lease, _ask(lease, asked_at)) for lease in due]
            until = asked_at + min(lease.patience_s for lease in due)
            answering = set[PartitionPort]()
            for lease, reply in asked:
                kept = await _kept(reply, until)
                if kept is not None:
                    answering.add(lease.port)
                has_room = reply is None and lease.port in answering  # it had none when it was asked
                self._judge(lease, kept, asked_at, now(), at_once=has_room)

    def _judge(
        self, lease: RenewedLease, kept: bool | None, asked_at: float, now: float, *, at_once: bool
    ) -> None:
        """Go on with a hold, or end it.

        `kept` is None when its partition did not answer, or had no room for the question; with `at_once` it is asked
        again without a pause.
        """
        if lease not in self._leases or lease.due == NEVER:
            return
        if kept:
            if lease.asked_at <= asked_at:  # else its body has moved its end meanwhile
                lease.move(asked_at, lease.visibility_timeout)
                lease.renewed(lease.deadline)
        elif kept is None and now < lease.deadline:
            lease.due = now if at_once else min(now + lease.patience_s, lease.deadline)
        else:
            self._leases.end(lease)


def _ask(lease: RenewedLease, now: float) -> Reply | Literal[False] | None:
    """Ask for a renewal without waiting; None when the partition takes no questions now, False when it is deleted."""
    message = Extend(lease.group_id, lease.lease_id, lease.visibility_timeout)
    lease.asked_at = now
    try:
        return lease.port.ref.ask_nowait(message)
    except ActorStopped:
        return False
    except CallboardError:
        return None


async def _kept(reply: Reply | Literal[False] | None, until: float) -> bool | None:
    """True: renewed; False: the lease is gone; None: no answer before `until`."""
    if not isinstance(reply, Reply):
        await trio.lowlevel.checkpoint()
        return reply
    try:
        if reply.done:
            return bool(await reply.settled())
        with trio.move_on_at(until):
            return bool(await reply.settled())
    except (GroupNotFound, ActorStopped):
        return False
    except CallboardError:
        return None
    return None
