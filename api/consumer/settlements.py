"""How a consumer's messages and batches are settled: acked, nacked, rejected or released, and waited for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from callboard.actors.partition import commands as c
from callboard.consumer.lazy_acks import LazyAcks
from callboard.consumer.leases import ConsumerLease, ConsumerLeases, Settled
from callboard.consumer.losses import lease_lost
from callboard.consumer.publishing_acks import PublishingAcks

if TYPE_CHECKING:
    from callboard.actors.records.outbox_records import Payload

Settle = Callable[[Settled], Awaitable[None]]
"""Settles ranges of leases. Raises `LeaseLost`, `TopicNotFound`."""


class Settlements:
    """Those of one consumer: how its messages and batches are settled."""

    def __init__(self, leases: ConsumerLeases) -> None:
        self.session = leases.session
        self.leases = leases
        self.lazy_acks = LazyAcks(leases)
        """Acks that are not awaited."""
        self.publishing_acks = PublishingAcks(leases)

    def acks(self, payloads: Sequence[Payload] = (), *, wait: bool = True) -> Settle:
        """Ack, and publish these with it. Without `wait`, and when nothing is published, the ack is gathered."""
        if payloads:
            return partial(self.publishing_acks.ack, payloads=payloads)
        return partial(self._settle, "ack", c.Ack) if wait else self.lazy_acks.ack

    def nacks(self, delay_s: float | None, reason: str | None) -> Settle:
        """Have them delivered again, after the delay."""
        return partial(self._settle, "nack", partial(c.Nack, delay_s=delay_s, reason=reason))

    def rejects(self, reason: str | None) -> Settle:
        """Make them dead letters. Raises `DeadLettersFull` too."""
        return partial(self._settle, "reject", partial(c.RejectLeased, reason=reason))

    def releases(self) -> Settle:
        """Give them back."""
        return partial(self._settle, "release", c.Release)

    async def _settle(
        self, verb: str, command: Callable[[int, int, c.Ranges], c.SettleCommand], settled: Settled
    ) -> None:
        """Send what `command` makes of each part; `verb` is for an error's words."""
        self.session.check_open()
        if not settled:
            await trio.lowlevel.checkpoint()
        leases, clock, is_ack = self.leases, self.session.clock, verb == "ack"
        if is_ack:
            settled = [(lease, part) for lease, ranges in settled for part in lease.parted(ranges)]
        lost: list[tuple[int, int]] = []
        causes, counted = set[str | None](), list[tuple[ConsumerLease, int]]()
        try:
            for lease, ranges in settled:
                count = min(lease.left, sum([stop - start for start, stop in ranges]))
                counted.append((lease, count))
                valid = leases.count_out(lease, count) and lease.deadline > clock.monotonic()
                valid = valid and lease.keeps(ranges)
                message = command(leases.group_id, lease.lease_id, ranges)
                if not is_ack:
                    lease.gives_back(ranges)
                elif valid and lease.were_cut_off(ranges):
                    message = message._replace(again=True)
                if here := await leases.settle(lease.port, message, valid):
                    lost += here
                    causes |= leases.causes(lease.port, lease.lease_id, here)
        except BaseException:  # it is there to be settled once more
            for (lease, count), (_, ranges) in zip(counted, settled, strict=False):
                if is_ack:
                    lease.acks_cut_off(ranges)
                leases.count_in_again(lease, count)
            raise
        if lost:
            raise lease_lost({settled[0][0].port: lost}, verb, leases.group, causes)
