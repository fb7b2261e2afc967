"""Acks that publish: the part of a partition's core that only outboxes need. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.delivery.events import PublishEvent
from callboard.actors.delivery.receipts import Settlement
from callboard.actors.partition import effects as e
from callboard.log.errors import OutboxFull

if TYPE_CHECKING:
    from callboard.actors.delivery.receipts import OffsetRange
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.deliveries import PartitionDeliveries


class OutboxRules:
    """Acks with publishes, and the entries that they leave."""

    def __init__(self, deliveries: PartitionDeliveries) -> None:
        self._deliveries = deliveries

    def ack_and_publish(self, message: c.AckAndPublish, token: Token, now: float) -> None:
        """Ack all of it and name the payloads, in one record of the journal; or do nothing, when a lease is lost."""
        group, outbox = self._deliveries.groups.get(message.group_id), self._deliveries.states.outbox
        if group is None:
            self._deliveries.refuse_unknown(message.group_id, token)
            return
        delivery = group.delivery
        lost = [
            (start, stop)
            for lease_id, ranges in message.parts
            for start, stop in ranges
            if not delivery.offsets.holds(lease_id, [(start, stop)])
        ]
        if lost:
            if message.again and outbox.names(message.start):
                lost = []  # the first try has done it
            self._deliveries.journal.answer(token, Settlement((), tuple(lost)), must_sync=True)
            return
        count, limit = message.stop - message.start, self._deliveries.options.limits.outbox
        if len(outbox) + count > limit:
            label = self._deliveries.options.label
            raise OutboxFull(
                f"partition {label} keeps {len(outbox)} messages that acks have published and that"
                f" could not be forwarded yet, {count} are to be added, and {limit} are allowed. Nothing was acked,"
                " and nothing will be published. `stats().outbox` tells which topics hold them up; then ack again.",
                partition=label,
            )
        accepted: list[OffsetRange] = []
        for lease_id, ranges in message.parts:
            accepted += delivery.ack(lease_id, ranges, now).accepted
        lease_id, first = message.parts[0][0], outbox.free
        outbox.add(first, message.group_id, lease_id, message.start, message.stop, delivery.dead.numbering)
        delivery.events.append(PublishEvent("O", first, lease_id, message.start, message.stop))
        if group.choice is not None:
            self._deliveries.settled_in(group, accepted, now)
        self._deliveries.has_changed(group, now)
        self._deliveries.journal.answer(token, Settlement(tuple(accepted), ()), must_sync=True)
        self._deliveries.arm(delivery.offsets.next_deadline())
        self._deliveries.notify(group, now)
        self.look_at_outbox()

    def look_at_outbox(self) -> None:
        """There may be entries to be forwarded."""
        if len(self._deliveries.states.outbox):
            self._deliveries.effects.append(e.OutboxMoved(len(self._deliveries.states.outbox), has_new=True))

    def list_outbox(self, message: c.ListOutbox, token: Token, now: float) -> None:
        """Answer with what is to be forwarded; what a power loss could undo is not reported."""
        outbox = self._deliveries.states.outbox
        after = message.after if message.numbering == outbox.numbering else -1
        self._deliveries.journal.answer(token, outbox.after(after), must_sync=True)

    def forget_outbox(self, message: c.ForgetOutbox, token: Token, now: float) -> None:
        """Entries are forwarded: there is room for others. Forgotten by a power loss, they are forwarded again."""
        is_current = message.numbering == self._deliveries.states.outbox.numbering
        record = self._deliveries.states.forget_sent(message.numbers) if is_current else None
        if record is not None:
            self._deliveries.journal.entries.append(record)
            self._deliveries.effects.append(e.OutboxMoved(len(self._deliveries.states.outbox), has_new=False))
        self._deliveries.journal.answer(token, None, must_sync=False)
