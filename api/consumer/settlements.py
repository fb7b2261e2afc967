"""How a consumer's messages and batches are settled: acked, nacked, rejected or released, and waited for."""

from __future__ import annotations

from collections.abc import Callable

import trio

from callboard.actors.partition import commands as c
from callboard.consumer.lazy_acks import LazyAcks
from callboard.consumer.leases import ConsumerLease, ConsumerLeases, Settled
from callboard.consumer.losses import lease_lost
from callboard.consumer.publishing_acks import PublishingAcks


class Settlements:
    """Those of one consumer."""

    def __init__(self, leases: ConsumerLeases) -> None:
        self.session = leases.session
        self.leases = leases
        self.lazy_acks = LazyAcks(leases)
        """Acks that are not awaited."""
        self.publishing_acks = PublishingAcks(leases)

    async def ack(self, settled: Settled) -> None:
        """Ack ranges of leases; what messages and batches call. Raises `LeaseLost`, `TopicNotFound`."""
        group_id = self.leases.group_id
        await self._settle("ack", settled, lambda lease, ranges: c.Ack(group_id, lease.lease_id, ranges))

    async def nack(
        self, settled: Settled, *, delay_s: float | None = None, reason: str | None = None
    ) -> None:
        """Nack ranges of leases. Raises as `ack`."""

        def command(lease: ConsumerLease, ranges: c.Ranges) -> c.Nack:
            return c.Nack(self.leases.group_id, lease.lease_id, ranges, delay_s, reason)

        await self._settle("nack", settled, command)

    async def reject(self, settled: Settled, *, reason: str | None = None) -> None:
        """Reject ranges of leases. Raises as `ack`, and `DeadLettersFull`."""

        def command(lease: ConsumerLease, ranges: c.Ranges) -> c.RejectLeased:
            return c.RejectLeased(self.leases.group_id, lease.lease_id, ranges, reason)

        await self._settle("reject", settled, command)

    async def release(self, settled: Settled) -> None:
        """Release ranges of leases. Raises as `ack`."""
        group_id = self.leases.group_id
        await self._settle(
            "release", settled, lambda lease, ranges: c.Release(group_id, lease.lease_id, ranges)
        )

    async def _settle(
        self,
        verb: str,
        settled: Settled,
        command: Callable[[ConsumerLease, c.Ranges], c.SettleCommand],
    ) -> None:
        """Send what `command` makes of each part; `verb` is for an error's words."""
        self.session.check_open()
        if not settled:
            await trio.lowlevel.checkpoint()
        leases = self.leases
        lost: list[tuple[int, int]] = []
        causes, counted = set[str | None](), list[tuple[ConsumerLease, int]]()
        try:
            for lease, ranges in settled:
                count = min(lease.left, sum([stop - start for start, stop in ranges]))
                counted.append((lease, count))
                valid = leases.count_out(lease, count) and lease.keeps(ranges)
                message = command(lease, ranges)
                if not isinstance(message, c.Ack):
                    lease.gives_back(ranges)
                elif valid and lease.were_cut_off(ranges):
                    message = message._replace(again=True)
                if here := await leases.settle(lease.port, message, valid):
                    lost += here
                    causes |= leases.causes(lease.port, lease.lease_id, here)
        except BaseException:  # it is there to be settled once more
            for (lease, count), (_, ranges) in zip(counted, settled, strict=False):
                if verb == "ack":
                    lease.acks_cut_off(ranges)
                leases.count_in_again(lease, count)
            raise
        if lost:
            raise lease_lost({settled[0][0].port: lost}, verb, leases.group, causes)
