"""What the consumers of one group know of one partition, and the rules that every delivery and answer must keep.

The ledger gets what consumers see (a lease delivered, a settlement answered) and what the journal holds by then;
it knows nothing of how the delivery works. Per offset, in flat arrays, so that a range costs one slice:

- *asked*     a consumer asked to settle it, or the log has lost it and said so.
- *settled*   an ack of it was answered: synced.
- *holder*    the lease by which a consumer may believe to hold it; 0 for none.
- *expected*  the number of its next attempt. Below 0 when what the power took with it leaves that open: then at most
              so many, without the sign.

The promises are those of the checkers, which judge the histories of whole runs; here each is kept in a form that costs
a few comparisons per input: no delivery after a settled ack, one holder at a time until the lease runs out, attempts
numbered, conservation. To these comes "delays": nothing is delivered before its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import attrs

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.receipts import Lease, OffsetRange
from callboard.simulations.checkers import attempts, conservation, offsets, one_holder, settled_stays_settled
from callboard.simulations.violations import Violation

Claim = tuple[float, tuple[tuple[int, int, int], ...], int]
"""Until when a consumer may believe in its lease, what was handed over, and to whom."""

TOLERANCE_S = 1e-3
"""Delays are kept as wall time in between."""


@attrs.define(eq=False)
class Ledger:
    """The rules of one group in one partition."""

    asked: bytearray = attrs.field(factory=bytearray)
    settled: bytearray = attrs.field(factory=bytearray)
    holder: list[int] = attrs.field(factory=list)
    expected: list[int] = attrs.field(factory=list)
    claims: dict[int, Claim] = attrs.field(factory=dict)
    """Leases that a consumer has."""
    uncounted: dict[int, list[OffsetRange]] = attrs.field(factory=dict)
    """What consumers held when their process ended; it counts once the next one has written so."""
    delayed: dict[int, float] = attrs.field(factory=dict)
    """Offsets that are not to be handed over before an instant."""

    def grow(self, end: int) -> None:
        """The log reaches `end` now."""
        more = end - len(self.asked)
        if more > 0:
            self.asked += bytes(more)
            self.settled += bytes(more)
            self.holder += [0] * more
            self.expected += [1] * more

    # -- what consumers see ---------------------------------------------------------------------------------

    def deliver(self, lease: Lease, now: float) -> None:
        """A consumer gets these offsets."""
        lease_id, ranges, consumer, deadline = lease
        holder, expected = self.holder, self.expected
        for start, stop, attempt in ranges:
            span = stop - start
            again = self.settled.find(1, start, stop)
            if again >= 0:
                words = f"offset {again} was handed over under lease {lease_id} after its ack was answered"
                raise Violation(settled_stays_settled.PROMISE, words)
            if any(holder[start:stop]):
                self._check_free(start, stop, lease_id, now)
            if expected[start:stop].count(attempt) != span:
                self._check_attempts(start, stop, attempt)
            holder[start:stop] = [lease_id] * span
        self.claims[lease_id] = (deadline, ranges, consumer)
        if self.delayed:
            self._check_delays(ranges, now)

    def extended(self, lease_id: int, deadline: float) -> None:
        """The consumer heard that its lease lasts until `deadline`."""
        claim = self.claims.get(lease_id)
        if claim is not None:
            self.claims[lease_id] = (deadline, claim[1], claim[2])

    def asks(self, lease_id: int, ranges: Iterable[OffsetRange], *, settles: bool = False) -> None:
        """The consumer hands `ranges` back, with `settles` as done: it believes no more that it holds them."""
        holder = self.holder
        for start, stop in ranges:
            span = stop - start
            if settles:
                self.asked[start:stop] = b"\1" * span
            if span == 1:
                if holder[start] == lease_id:
                    holder[start] = 0
                continue
            held = holder[start:stop].count(lease_id)
            if held == span:
                holder[start:stop] = [0] * span
            elif held:
                holder[start:stop] = [0 if found == lease_id else found for found in holder[start:stop]]

    def refused(self, lease_id: int, ranges: Sequence[OffsetRange], now: float) -> None:
        """The consumer hears, before it gave anything back, that `ranges` are no longer its own."""
        claim = self.claims.get(lease_id)
        if claim is None or claim[0] <= now:
            return
        for start, stop in ranges:
            for offset in range(start, stop):
                if self.holder[offset] == lease_id:
                    raise Violation(
                        one_holder.PROMISE,
                        f"the lease {lease_id} of offset {offset} was lost at {now:.3f} s; it was to last until "
                        f"{claim[0]:.3f} s",
                    )

    def gives_up(self, lease_id: int) -> None:
        """The consumer is gone, or believes no more in this lease."""
        claim = self.claims.pop(lease_id, None)
        if claim is not None:
            self.asks(lease_id, [row[:2] for row in claim[1]])

    # -- what the journal holds -----------------------------------------------------------------------------

    def attempts_counted(self, ranges: Iterable[Sequence[int]]) -> None:
        """An attempt at `ranges` failed, and that is written."""
        expected = self.expected
        for row in ranges:
            for offset in range(row[0], row[1]):
                number = expected[offset]
                expected[offset] = number + 1 if number > 0 else number - 1

    def loosen(self, ranges: Iterable[Sequence[int]], more: int) -> None:
        """Something about `ranges` may or may not be written: up to `more` attempts more, or fewer."""
        expected = self.expected
        for row in ranges:
            for offset in range(row[0], row[1]):
                expected[offset] = -(abs(expected[offset]) + more)

    def synced(self, ranges: Iterable[OffsetRange]) -> None:
        """An ack of `ranges` was answered."""
        for start, stop in ranges:
            self.settled[start:stop] = b"\1" * (stop - start)

    def lost(self, start: int, stop: int) -> None:
        """The log says that it has no record at these offsets."""
        self.asked[start:stop] = b"\1" * (stop - start)

    def ran_out(self, lease: Lease) -> None:
        """It is written that the lease ran out: each offset that was left in it has had its attempt."""
        claim = self.claims.get(lease.lease_id)
        if claim is not None and claim[0] > lease.deadline:
            raise Violation(
                one_holder.PROMISE,
                f"lease {lease.lease_id} ran out at {lease.deadline:.3f} s; its consumer heard {claim[0]:.3f} s",
            )
        self.uncounted.pop(lease.lease_id, None)
        self.gives_up(lease.lease_id)
        self.attempts_counted(lease.ranges)

    def voided(self) -> None:
        """It is written that all leases of an earlier process are void."""
        for held in self.uncounted.values():
            self.attempts_counted(held)
        self.uncounted.clear()

    def ended(self, unwritten: Collection[int]) -> None:
        """The process is gone, and with it every consumer: what they held counts as an attempt.

        Leases in `unwritten` are unknown to the next process: their attempts do not count.
        """
        holder = self.holder
        for lease_id, (_, ranges, _) in self.claims.items():
            if lease_id not in unwritten:
                self.uncounted[lease_id] = [
                    (offset, offset + 1)
                    for start, stop, _ in ranges
                    for offset in range(start, stop)
                    if holder[offset] == lease_id
                ]
        self.claims.clear()
        self.delayed.clear()
        self.holder = [0] * len(holder)

    def cut(self, end: int) -> None:
        """The log ends at `end` now: offsets from there on will belong to other records."""
        settled = self.settled.find(1, end)
        if settled >= 0:
            raise Violation(offsets.PROMISE, f"offset {settled} was settled, and the log goes on at {end}")
        for row in (self.asked, self.settled, self.holder, self.expected):
            del row[end:]

    def prune(self) -> None:
        """Forget empty claims. Time ends none: a lease may have been renewed without an answer."""
        holder, kept = self.holder, {}
        for lease_id, claim in self.claims.items():
            for start, stop, _ in claim[1]:
                if lease_id in holder[start:stop]:
                    kept[lease_id] = claim
                    break
        self.claims = kept

    # -- judging --------------------------------------------------------------------------------------------

    def _check_free(self, start: int, stop: int, lease_id: int, now: float) -> None:
        for offset in range(start, stop):
            earlier = self.holder[offset]
            claim = self.claims.get(earlier)
            if claim is not None and claim[0] > now:
                raise Violation(
                    one_holder.PROMISE,
                    f"offset {offset} was handed over under lease {lease_id} at {now:.3f} s while lease {earlier} "
                    f"lasts until {claim[0]:.3f} s",
                )

    def _check_attempts(self, start: int, stop: int, attempt: int) -> None:
        for offset in range(start, stop):
            number = self.expected[offset]
            if number == attempt or (number < 0 and 1 <= attempt <= -number):
                self.expected[offset] = attempt
                continue
            most = "at most " if number < 0 else ""
            raise Violation(
                attempts.PROMISE,
                f"offset {offset} came as attempt {attempt}; it was to be {most}{abs(number)}",
            )

    def _check_delays(self, ranges: Iterable[tuple[int, int, int]], now: float) -> None:
        for start, stop, _ in ranges:
            for offset in range(start, stop):
                due = self.delayed.pop(offset, now)
                if due > now + TOLERANCE_S:
                    raise Violation(
                        "delays", f"offset {offset} came at {now:.3f} s, not to come before {due:.3f} s"
                    )

    def check(self, delivery: Delivery, visible_end: int) -> None:
        """Conservation: everything published is settled, leased, ready or delayed; settled only what was asked for."""
        pending = delivery.offsets.pending_count(visible_end)
        known = (
            delivery.offsets.leased
            + delivery.offsets.ready_count(visible_end)
            + delivery.offsets.delayed.count
        )
        if known != pending:
            raise Violation(
                conservation.PROMISE,
                f"{pending} of {visible_end} offsets are not settled, but {known} are to be had",
            )
        unasked = self.asked.find(0, 0, min(delivery.offsets.floor, visible_end))
        for start, stop in list(delivery.offsets.settled):
            if unasked >= 0:
                break
            unasked = self.asked.find(0, start, min(stop, visible_end))
        if unasked >= 0:
            raise Violation(
                conservation.PROMISE, f"offset {unasked} is settled, and no consumer asked for that"
            )
