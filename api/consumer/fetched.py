"""What a consumer has fetched, and not handed over yet."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.actors.timing import Callback

if TYPE_CHECKING:
    from callboard.consumer.leases import ConsumerLease, ConsumerLeases, LeasedPart
    from callboard.consumer.member import GroupMember
    from callboard.consumer.messages import ReceivedMessage
    from callboard.consumer.questions import LeaseQuestions
    from callboard.session import Session


class FetchedMessages:
    """Messages that a consumer has fetched and not handed over yet.

    It calls `let_go` when some may be stale; that calls `give_back_stale`.
    """

    def __init__(
        self,
        session: Session,
        leases: ConsumerLeases,
        member: GroupMember,
        questions: LeaseQuestions,
        let_go: Callable[[], object],
    ) -> None:
        self._clock = session.clock
        self._leases = leases
        self._member = member
        self._questions = questions
        self._let_go = let_go
        self.buffer: deque[ReceivedMessage] = deque()
        """For one-by-one iteration."""
        self.untaken: ConsumerLease | None = None
        """A lease of which batches are left."""
        self._filling: list[LeasedPart] = []
        """What the batch has that is being filled."""
        self._stale = session.timers.timer(Callback(self._look_for_stale))
        """Comes when the first lease of which something may not be handed over is half over (FE4)."""

    def is_fresh(self, lease: ConsumerLease) -> bool:
        """Whether at least half of it is left, nothing in it has expired, and the topic is there."""
        # Every message comes this way: no call without need.
        if self._member.follows and not self._member.reads(lease.port):
            return False
        if lease.account.ended_some and lease.is_outdated(self._leases.group_id):
            return False
        if lease.expires_us is not None and lease.expires_us <= self._clock.wall_us():
            return False  # its partition settles what has expired, and gives the rest once more
        return self._clock.monotonic() < lease.stale_at

    def is_wanted(self, lease: ConsumerLease) -> bool:
        """Whether what was leased may still be handed over."""
        member = self._member
        is_open = member.is_open and not member.is_draining
        return is_open and not lease.is_outdated(self._leases.group_id) and member.reads(lease.port)

    # -- what the caller takes

    def put(self, messages: list[ReceivedMessage]) -> None:
        """These are next; for an empty buffer."""
        self.buffer += messages

    def take(self) -> ReceivedMessage | None:
        """The next message; None, and the others given back, when it is not fresh, or there is none."""
        buffer = self.buffer
        if buffer:
            if self.is_fresh(buffer[0].lease):
                return buffer.popleft()
            self.give_back_buffer()
        return None

    def keep(self, lease: ConsumerLease) -> None:
        """The next batch begins with what is left of this lease."""
        self.untaken = lease if lease.untaken else None

    def take_untaken(self) -> ConsumerLease | None:
        """The lease of which batches are left, which is not kept any more."""
        lease, self.untaken = self.untaken, None
        return lease

    def fills(self, parts: list[LeasedPart]) -> None:
        """This batch is being filled; nothing: none is."""
        self._filling = parts

    # -- what is stale

    def watch(self, stale_at: float) -> None:
        """Have the timer come then, or before."""
        if stale_at < self._stale.deadline:
            self._stale.arm(stale_at)

    def _look_for_stale(self) -> None:
        """The timer has come."""
        if self._stale.has_come():
            self._let_go()
            first = self._leases.next_stale(self._clock.monotonic())
            self.watch(min([first, *self._questions.stale_at()]))

    # -- giving back

    def give_back_buffer(self) -> None:
        """Release what was fetched and not yet asked for."""
        messages, self.buffer = self.buffer, deque()
        self._leases.give_back_messages(messages)
        if (lease := self.take_untaken()) is not None:
            self._leases.give_back([lease.take(lease.untaken)])

    def give_back(self) -> None:
        """As `give_back_buffer`, with answers that were not taken."""
        self.give_back_buffer()
        self._questions.give_back_answers(math.inf)

    def give_back_stale(self) -> None:
        """As `give_back`, what is not fresh of it (FE4)."""
        lease = self.buffer[0].lease if self.buffer else self.untaken
        if lease is not None and not self.is_fresh(lease):
            self.give_back_buffer()
        if self._filling:
            self.drop_stale(self._filling)
        self._questions.give_back_answers(self._clock.monotonic())

    def drop_stale(self, parts: list[LeasedPart]) -> None:
        """Give back the parts that are not fresh: filling a batch may take long."""
        stale = [part for part in parts if not self.is_fresh(part.lease)]
        if stale:
            parts[:] = [part for part in parts if part not in stale]
            self._leases.give_back(stale)

    def drop(self) -> None:
        """What was fetched, or is being, is no longer this consumer's: the partitions release it."""
        self.buffer.clear()
        self.untaken = None
        self._questions.drop()

    def end(self) -> None:
        """The consumer leaves."""
        self._stale.cancel()
        self.give_back()  # before its leases can run out: a task that leaves may have computed for long (FE4)
