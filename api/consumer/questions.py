"""What a consumer has asked partitions for, and has not taken yet: questions for leases.

One question is under way, whose answer is taken next. Others are *late*: they were not answered for a while, or were
asked ahead, and meanwhile other partitions are asked. An answer that is not taken goes back when its lease is half
over, so that a partition does not wait for a caller that is busy (FE4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import Reply
from callboard.actors.partition import commands as c
from callboard.actors.timers.commands import NEVER
from callboard.log.errors import CallboardError

if TYPE_CHECKING:
    from callboard.consumer.leases import ConsumerLease, ConsumerLeases
    from callboard.consumer.member import GroupMember
    from callboard.consumer.turns import PartitionTurns
    from callboard.session import Session

LATE_S: Final = 0.02
"""How long a consumer waits for the answer of one partition before it asks others."""


class Asked(NamedTuple):
    """A question for a lease, until its answer is taken."""

    port: PartitionPort
    reply: Reply
    at: float
    """When it was asked."""
    limit: int
    """For how many messages."""
    number: int
    """How many were asked until then, this among them."""
    is_late: bool = False
    """It was not answered for a while: meanwhile other partitions were asked, and no room was kept for it."""


class LeaseQuestions:
    """Those of one consumer. `watch` is called with the time at which an answer is to be given back."""

    def __init__(
        self,
        session: Session,
        leases: ConsumerLeases,
        member: GroupMember,
        turns: PartitionTurns,
        watch: Callable[[float], None],
    ) -> None:
        self._session = session
        self._leases = leases
        self._member = member
        self._turns = turns
        self._watch = watch
        self.asked: Asked | None = None
        """The question that is under way (FE1)."""
        self.late: dict[PartitionPort, Asked] = {}
        """Questions that were not answered for a while: meanwhile other partitions are asked."""
        self.count = 0
        """How many were asked so far."""
        self.keeps_s = math.inf
        """How long what was leased is kept for the caller, if the lease is not half over before."""
        self._lease_s = math.inf
        """How long the last lease lasted from when it was asked for."""

    # -- asking

    def ask_nowait(self, port: PartitionPort, limit: int) -> None:
        """Ask for this many. Raises as `ActorRef.ask_nowait`."""
        self.asked = self._question(port, limit)

    async def ask(self, port: PartitionPort, limit: int, patience_s: float) -> bool:
        """The same, with patience while its mailbox has no room; whether it was asked."""
        asked = self._prepared(port, port.ref.question(), limit)
        with trio.move_on_after(patience_s) as waiting:
            await port.ref.send(self._fetching(limit), asked.reply)
        if waiting.cancelled_caught:
            return False
        self.asked = asked
        return True

    def take_late(self, port: PartitionPort) -> None:
        """The question to this partition is under way again."""
        self.asked = self.late.pop(port)

    def ask_ahead(self, ports: Iterable[PartitionPort], unit: int) -> None:
        """Ask those whose turns come next, as far as there is room for what they are asked for."""
        room = self.room()
        limit = max(1, min(unit, self._leases.max_in_flight // 4 // self._session.limits.leased_batches))
        for port in ports:
            if port not in self.late and room >= limit:
                with suppress(CallboardError):  # it is asked again in its turn
                    self.late[port] = self._question(port, limit)
                    room -= limit

    def room(self) -> int:
        """How many more messages partitions may be asked for: what they have been asked for has its room. What was not
        answered for a while has none until the consumer waits for it again.
        """
        asked = 0 if self.asked is None else self.asked.limit
        ahead = sum([each.limit for each in self.late.values() if not each.is_late])
        return self._leases.room() - asked - ahead

    def _fetching(self, limit: int) -> c.Fetch:
        limits, member = self._session.limits, self._member
        return c.Fetch(
            self._leases.group_id, member.id, limit, limits.fetch_bytes, member.generation, member.name
        )

    def _question(self, port: PartitionPort, limit: int) -> Asked:
        """Ask for this many. Raises as `ask_nowait`."""
        return self._prepared(port, port.ref.ask_nowait(self._fetching(limit)), limit)

    def _prepared(self, port: PartitionPort, reply: Reply, limit: int) -> Asked:
        reply.is_kept = True
        reply.unawaited = partial(self._answered, port)
        self.count += 1
        return Asked(port, reply, self._session.clock.monotonic(), limit, self.count)

    # -- answers

    async def answer(self, asked: Asked, *, is_single: bool) -> tuple[bool, c.LeasedRecords | None]:
        """Wait for the answer; whether it has come and is wanted, and what was leased.

        No other partition is asked meanwhile if it is the single one. Raises what the partition refuses with.
        """
        reply = asked.reply
        try:
            if is_single or reply.done:
                leased: c.LeasedRecords | None = await reply.settled()
            else:
                with trio.move_on_after(LATE_S) as waiting:
                    leased = await reply.settled()
                if waiting.cancelled_caught:
                    if self.asked is not asked:
                        return False, None
                    if not reply.done:
                        self._set_aside(asked)
                        return False, None
                    leased = reply.value()  # it came in the same moment
        except CallboardError:
            if self.asked is not asked:
                return False, None
            self.asked = None
            raise
        if self.asked is not asked:
            return False, None
        self.asked = None
        return True, leased

    def accepted(self, lease: ConsumerLease, asked: Asked, now: float) -> None:
        """The answer was taken, and is a lease."""
        lease.question = asked.number
        if not asked.is_late:
            self._lease_s = lease.deadline - asked.at
        lease.stale_at = min(lease.deadline - self.lasts_s() / 2, now + self.keeps_s)

    def lasts_s(self) -> float:
        """How long leases last: while the timeout is altered, partitions know of it before consumers do."""
        return min(self._member.settings.visibility_timeout, self._lease_s)

    def stale_at(self) -> list[float]:
        """When each lease that was answered is half over."""
        answers = [*self.late.values(), *([] if self.asked is None else [self.asked])]
        return [self._answer_stale_at(asked) for asked in answers]

    def _answer_stale_at(self, asked: Asked) -> float:
        """When the lease that was answered is half over, or was kept for long; never, if there is none."""
        leased = leased_by(asked.reply)
        if leased is None:
            return NEVER
        lasts_s = self.lasts_s()
        return leased.deadline - max(lasts_s / 2, lasts_s - self.keeps_s)

    def _answered(self, port: PartitionPort) -> None:
        """A partition has answered while no task waits for that."""
        asked = self.late.get(port, self.asked)
        if asked is not None:
            self._watch(self._answer_stale_at(asked))
            if asked.is_late:
                self._turns.awaited.noticed(port)

    def _set_aside(self, asked: Asked) -> None:
        """The partition does not answer for now: it is looked at again when it does."""
        self.asked = None
        self.late[asked.port] = asked._replace(is_late=True)
        self._turns.end(asked.port)

    # -- giving up

    def give_back_answers(self, now: float) -> None:
        """Give back what was answered, and is stale by `now`."""
        asked = self.asked
        if asked is not None and self._answer_stale_at(asked) <= now:
            self._give_up_asked()
        self.give_up_late([port for port, late in self.late.items() if self._answer_stale_at(late) <= now])

    def give_up_unread(self) -> None:
        """Give up what partitions were asked that are another's by now."""
        reads = self._member.reads
        if self.asked is not None and not reads(self.asked.port):
            self._give_up_asked()
        self.give_up_late([port for port in self.late if not reads(port)])

    def give_up_ahead(self) -> None:
        """Give up what was asked ahead."""
        self.give_up_late([port for port, asked in self.late.items() if not asked.is_late])

    def give_up_late(self, ports: Iterable[PartitionPort]) -> None:
        """What these partitions were asked, and did not answer in time, is for others; they are asked again.

        A task that waits for notices is woken for that: no other would come of a question that is gone.
        """
        for port in ports:
            self._give_back_answer(self.late.pop(port))
            self._turns.awaited.noticed(port)

    def drop(self) -> None:
        """What was asked is no longer this consumer's: the partitions release it."""
        asked, self.asked = self.asked, None
        if asked is not None:
            asked.reply.expire()  # a task that waits for it asks anew, or hears that the consumer is closed
            asked.reply.abandon()
        for late in self.late.values():
            late.reply.abandon()
        self.late.clear()

    def _give_up_asked(self) -> None:
        """The task that waits for the answer asks others."""
        asked, self.asked = self.asked, None
        if asked is not None:
            asked.reply.expire()
            self._give_back_answer(asked)

    def _give_back_answer(self, asked: Asked) -> None:
        """The answer is not wanted any more."""
        asked.reply.abandon()
        leased = leased_by(asked.reply)
        lease = None if leased is None else self._leases.accept(asked.port, leased)
        if lease is not None:
            self._leases.give_back([lease.take(lease.untaken)])


def leased_by(reply: Reply) -> c.LeasedRecords | None:
    """What a partition has answered; None for nothing, for no answer, and for an error."""
    if not reply.has_answer:
        return None
    with suppress(CallboardError):
        leased: c.LeasedRecords | None = reply.value()
        return leased
    return None
