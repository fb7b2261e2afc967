"""Leases as their consumer counts them, and the parts of them that are handed over.

Invariants
----------
LE1  `in_flight` is the number of messages that were delivered and neither settled, given back nor, once somebody
     waited for room, found to have run out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from callboard.actors.clients.account import Account, RestartWaiter
from callboard.actors.clients.port import PartitionPort
from callboard.actors.delivery.intervals import IntervalSet
from callboard.actors.delivery.receipts import merged
from callboard.actors.kernel import Gathering
from callboard.actors.partition import commands as c
from callboard.consumer.losses import cannot_settle, causes_of, lease_lost
from callboard.consumer.passes import LoopPass
from callboard.log.errors import ActorCrashed, ActorStopped, RuntimeClosed
from callboard.log.format.columns import first_expiry
from callboard.message import Span
from callboard.publishing.publisher import publisher_of

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic
    from callboard.session import Session

UNSURE_MAX: Final = 100
"""Ranges of a lease whose acks were cut off that are remembered; another ack of more may be reported as lost."""


class LeasedPart(NamedTuple):
    """Records of one lease. `ranges` are (start, stop, attempt), in the order of `spans`."""

    lease: ConsumerLease
    ranges: Sequence[tuple[int, int, int]]
    spans: list[Span]

    @property
    def size(self) -> int:
        """How many records it has."""
        return sum([stop - start for _, start, stop in self.spans])

    def attempts(self) -> Iterator[int]:
        """Which delivery this is of each record."""
        rows = iter(self.ranges)
        _, stop, attempt = next(rows, (0, 0, 0))
        for columns, first, last in self.spans:
            for offset in columns.offset_list()[first:last]:
                while offset >= stop:
                    _, stop, attempt = next(rows)
                yield attempt


class ConsumerLease:
    """A lease as its consumer counts it, with those of its records that the consumer's caller has not taken yet."""

    __slots__ = (
        "_at",
        "_batches",
        "_given_back",
        "_ranges",
        "account",
        "deadline",
        "expires_us",
        "left",
        "lease_id",
        "port",
        "question",
        "stale_at",
        "start",
        "unsure_acks",
        "untaken",
    )

    def __init__(self, account: Account, leased: c.LeasedRecords, count: int) -> None:
        self.account = account
        """With the partition."""
        self.port = account.port
        self.lease_id = leased.lease_id
        self.start = leased.ranges[0][0]
        self.deadline = self.stale_at = leased.deadline
        """When it runs out, and from when on nothing of it is handed over any more."""
        self.question = 0
        """The number of the question that it answers."""
        self.left = self.untaken = count
        """How many messages are in flight, and how many of those were not taken."""
        self.unsure_acks: IntervalSet | None = None
        """What acks were about that were cut off; None for nothing."""
        self._given_back: IntervalSet | None = None
        """What was nacked, rejected or released, or may have been; None for nothing."""
        self.expires_us = first_expiry(leased.batches)
        """When the first of its records expires, None for never."""
        self._ranges, self._batches, self._at = leased.ranges, leased.batches, 0
        """`_at`: records of the first batch that were taken."""

    def acks_cut_off(self, ranges: Sequence[tuple[int, int]]) -> None:
        """It is unknown whether the acks of these counted."""
        if not self.keeps(ranges):
            return
        if self.unsure_acks is None:
            self.unsure_acks = IntervalSet()
        if self.unsure_acks.rows < UNSURE_MAX:
            for start, stop in ranges:
                self.unsure_acks.add(start, stop)

    def gives_back(self, ranges: Sequence[tuple[int, int]]) -> None:
        """These are nacked, rejected or released, or may be: others may be handed them, and ack them."""
        if self._given_back is None:
            self._given_back = IntervalSet()
        for start, stop in ranges:
            self._given_back.add(start, stop)

    def keeps(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether none of these were given back: only then an ack that finds them settled may be its own second try."""
        given_back = self._given_back
        return given_back is None or not any(given_back.count_in(start, stop) for start, stop in ranges)

    def is_outdated(self, group_id: int) -> bool:
        """Whether its topic is deleted, a seek has ended it, or retention has dropped some of it."""
        account = self.account
        is_over = account.is_deleted or account.was_sought(group_id, self.lease_id)
        return is_over or self.start < account.dropped_below(group_id)

    def is_valid(self, now: float, start: int, stop: int) -> bool:
        """Whether the lease has not run out, and these were not given back."""
        return self.left > 0 and self.deadline > now and self.keeps(((start, stop),))

    def were_cut_off(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether an ack of all of these was cut off, so that the next one may be the second."""
        unsure = self.unsure_acks
        return unsure is not None and all(
            unsure.count_in(start, stop) == stop - start for start, stop in ranges
        )

    def parted(self, ranges: Sequence[tuple[int, int]]) -> list[Sequence[tuple[int, int]]]:
        """Those whose acks were cut off apart from the others: of them alone, what is settled is not lost."""
        unsure = self.unsure_acks
        if unsure is None:
            return [ranges]
        seconds = [
            (max(start, first), min(stop, last))
            for start, stop in ranges
            for first, last in unsure.overlapping(start, stop)
        ]
        firsts = [gap for start, stop in ranges for gap in unsure.missing(start, stop)]
        return [part for part in (seconds, firsts) if part]

    def take(self, count: int) -> LeasedPart:
        """The next `count` records; all, if they are fewer."""
        batches, at, place, spans = self._batches, self._at, 0, []
        wanted = min(count, self.untaken)
        self.untaken -= wanted
        while wanted:
            columns = batches[place]
            stop = min(at + wanted, columns.count)
            spans.append((columns, at, stop))
            wanted -= stop - at
            at = stop
            while place < len(batches) and at == batches[place].count:
                place, at = place + 1, 0
        ranges = self._ranges
        if self.untaken:
            self._batches, self._at = batches[place:], at
            end = batches[place].offset(at)
            if len(ranges) == 1:
                ((start, stop, attempt),) = ranges
                self._ranges, ranges = ((end, stop, attempt),), ((start, end, attempt),)
            else:
                self._ranges = tuple([(max(row[0], end), row[1], row[2]) for row in ranges if row[1] > end])
                ranges = tuple([(row[0], min(row[1], end), row[2]) for row in ranges if row[0] < end])
        return LeasedPart(self, ranges, spans)


Settled = Sequence[tuple[ConsumerLease, Sequence[tuple[int, int]]]]
"""Ranges by lease."""


class LeasedMessage(Protocol):
    """A message, as far as its lease is concerned."""

    lease: ConsumerLease
    offset: int


class ConsumerLeases:
    """The leases of one consumer: what is in flight in them, and what becomes of it."""

    def __init__(self, session: Session, group: str, let_go: Callable[[], object]) -> None:
        self.session = session
        self.group = group
        self.group_id = 0
        self.accounts: dict[PartitionPort, Account] = {}
        """With the partitions of the topics that the consumer reads."""
        self.in_flight = 0
        self.max_in_flight = 1
        self.is_over = False
        """The consumer has left: all that it had leased is released."""
        self.loop_pass = LoopPass(session.clock)
        """In which the consumer hands over what it has fetched: another begins when something was settled, and waited
        for."""
        self._let_go = let_go
        """Called when a lease is about to end earlier than was known: what was not handed over goes back before."""
        self._leases: dict[ConsumerLease, None] = {}
        self._freed = trio.Event()
        self._unawaited: dict[PartitionPort, Gathering[c.SettleCommand, c.PartitionCommand]] = {}
        """What the partitions are to settle without being awaited: no more than was in flight."""

    def begin_with(self, live: MirroredTopic) -> None:
        """The consumer is to read the topic: from now on it hears which leases end there."""
        publisher = publisher_of(self.session, live)
        accounts = {port: account for port, account in self.accounts.items() if not account.is_deleted}
        self.accounts = accounts | {port: publisher.account_of(port) for port in live.ports}

    # -- counting

    def accept(self, port: PartitionPort, leased: c.LeasedRecords) -> ConsumerLease | None:
        """Count what was delivered; None when it is nothing, or the topic is gone."""
        count = sum([columns.count for columns in leased.batches])
        account = self.accounts.get(port)
        if count == 0 or account is None:
            return None
        lease = ConsumerLease(account, leased, count)
        self._leases[lease] = None
        self.in_flight += count
        return lease

    def joined(self, group_id: int) -> None:
        """The consumer is a member of its group, which has this id."""
        self.group_id = group_id

    def alter(self, max_in_flight: int) -> None:
        """Allow this many messages in flight."""
        self.max_in_flight = max_in_flight
        self._freed.set()

    def next_stale(self, now: float) -> float:
        """When the next of the leases is half over; infinity for none."""
        return min([lease.stale_at for lease in self._leases if lease.stale_at > now], default=math.inf)

    def room(self) -> int:
        """How many more messages the consumer may have."""
        return self.max_in_flight - self.in_flight

    def await_revival(self, port: PartitionPort, waiter: RestartWaiter) -> bool:
        """Whether the partition has failed for good: then `waiter` looks again when it runs, or is deleted."""
        account = self.accounts.get(port)
        if account is None or account.state != "failed":
            return False
        account.wait_until_back(waiter)
        return True

    async def wait_for_room(self, ports: Iterable[PartitionPort]) -> None:
        """Wait until something in flight is settled, its lease has run out, or the topic of one of `ports` is deleted.

        May also return before.
        """
        now = self.session.clock.monotonic()
        for lease in [lease for lease in self._leases if lease.deadline <= now]:
            self.count_out(lease, lease.left)
        if self.room() > 0 or self.is_over:
            await trio.lowlevel.checkpoint()
            return
        self._freed = trio.Event()
        for port in ports:
            if (account := self.accounts.get(port)) is not None:
                account.wait_until_back(self)
        with trio.move_on_at(min([lease.deadline for lease in self._leases], default=now)):
            await self._freed.wait()

    def noticed(self, _: PartitionPort) -> None:
        """A partition has restarted, or its topic is deleted: tasks that wait for room look again."""
        self._freed.set()

    def end(self) -> None:
        """The consumer leaves."""
        self.is_over = True
        self._freed.set()

    def forget_where(self, is_gone: Callable[[PartitionPort], bool]) -> None:
        """What was leased of these partitions is in flight no more: it is deleted, or another's by now."""
        for lease in [lease for lease in self._leases if is_gone(lease.port)]:
            self.count_out(lease, lease.left)
        for port in [port for port in self._unawaited if is_gone(port)]:
            del self._unawaited[port]  # what it has not taken still comes

    def forget(self) -> None:
        """What was leased is another consumer's by now, or free: its receipts are void."""
        for lease in self._leases:
            lease.left = 0
        self._leases.clear()
        self.in_flight = 0
        self._freed.set()

    def count_out(self, lease: ConsumerLease, count: int) -> bool:
        """Count messages of a lease as no longer in flight; whether any was."""
        left = lease.left
        if not left:
            return False
        if count >= left:
            count = left
            del self._leases[lease]
        lease.left = left - count
        self.in_flight -= count
        self._freed.set()
        return True

    def count_in_again(self, lease: ConsumerLease, count: int) -> None:
        """Count messages of a lease as in flight once more, unless their lease has ended."""
        if count and not self.is_over and not lease.account.is_deleted:
            self._leases[lease] = None
            lease.left += count
            self.in_flight += count

    # -- settling

    async def settle(
        self, port: PartitionPort, message: c.SettleCommand, valid: bool, crashed: bool = False
    ) -> c.Ranges:
        """Settle, through restarts of the partition; returns what was lost.

        `valid`: when this began the lease had not run out, and these were not given back. If the partition crashed in
        between, it may be the first try that has settled them.
        """
        while True:
            if crashed and valid and not message.again:
                message = message._replace(again=True)
            try:
                lost: c.Ranges = (await port.ref.ask(message)).lost
                self.loop_pass.waited()
            except ActorCrashed:
                crashed = True
                continue
            except ActorStopped as error:
                raise cannot_settle(self.session, port) from error
            return lost

    def causes(self, port: PartitionPort, lease_id: int, lost: c.Ranges) -> set[str | None]:
        """Why a receipt does not hold these ranges any more."""
        account = self.accounts.get(port)
        return {None} if account is None else causes_of(account, self.group_id, lease_id, lost)

    def give_back(self, parts: Iterable[LeasedPart]) -> None:
        """Release what did not reach the caller, without waiting."""
        for lease, ranges, _ in parts:
            self.hand_over(lease, c.Release(self.group_id, lease.lease_id, [row[:2] for row in ranges]))

    def give_back_messages(
        self, messages: Iterable[LeasedMessage], behind: LeasedMessage | None = None
    ) -> None:
        """Release messages, without waiting; without effect on those whose lease has run out.

        This consumer is not leased them again as long as it holds the message `behind` which they wait, of the same
        partition.
        """
        first = None if behind is None else (behind.lease.lease_id, behind.offset)
        by_lease: dict[ConsumerLease, list[tuple[int, int]]] = {}
        for message in messages:
            by_lease.setdefault(message.lease, []).append((message.offset, message.offset + 1))
        for lease, offsets in by_lease.items():
            ranges = merged(sorted(offsets))
            self.hand_over(lease, c.Release(self.group_id, lease.lease_id, ranges, behind=first))

    def hand_over(self, lease: ConsumerLease, message: c.SettleCommand) -> None:
        """Settle without waiting, also for room in the mailbox; a release has no effect when the lease has run out."""
        if not isinstance(message, c.Ack):
            lease.gives_back(message.ranges)
        self.count_out(lease, sum([stop - start for start, stop in message.ranges]))
        port = lease.port
        unawaited = self._unawaited.get(port)
        if unawaited is None:
            unawaited = self._unawaited[port] = Gathering(port.ref, c.SettleUnawaited)
        unawaited.add(message)

    # -- leases that go on

    async def extend(self, lease: ConsumerLease, offset: int, seconds: float) -> None:
        """See `ReceivedMessage.extend`. Raises `LeaseLost`."""
        self.session.check_open()
        if self.is_over:
            raise RuntimeClosed("the consumer is closed: it has no leases any more. Subscribe again.")
        while True:
            asked_at = self.session.clock.monotonic()
            # It may end sooner than before, also when the answer does not come.
            if asked_at + seconds < lease.deadline:
                lease.deadline = asked_at + seconds
                lease.stale_at = asked_at  # nothing more of it is handed over: too little may be left
                self.session.renewed_leases.move(self, lease.port, lease.lease_id, asked_at, seconds)
                self._let_go()
            self._freed.set()  # tasks that wait for room wait for the earliest deadline
            try:
                kept = await lease.port.ref.ask(c.Extend(self.group_id, lease.lease_id, seconds))
            except ActorCrashed:
                continue
            except ActorStopped as error:
                raise cannot_settle(self.session, lease.port) from error
            break
        if not kept:
            lost = [(offset, offset + 1)]
            causes = self.causes(lease.port, lease.lease_id, lost)
            raise lease_lost({lease.port: lost}, "extend", self.group, causes)
        lease.deadline = asked_at + seconds
        self.session.renewed_leases.move(self, lease.port, lease.lease_id, asked_at, seconds)
