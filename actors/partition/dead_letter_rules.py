"""Dead letters: the part of a partition's core that only groups with failures need. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.delivery.dead_letters import LIMIT_REACHED
from callboard.actors.delivery.receipts import between, merged
from callboard.actors.partition import effects as e

if TYPE_CHECKING:
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.choice.expiry import ExpiryRules
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.group_state import GroupState


class DeadLetterRules:
    """Dead letters that are asked for, made, and forgotten."""

    def __init__(self, deliveries: PartitionDeliveries, expiry: ExpiryRules) -> None:
        self._deliveries = deliveries
        self._expiry = expiry
        self.dropped = 0
        """Those that went with their groups."""

    def judge(self, group: GroupState, now: float, reason: str) -> None:
        """Settle what is proved to fail, for this `reason`."""
        group.delivery.judge(now, reason)
        self._deliveries.died_in(group, now)
        self._deliveries.has_changed(group, now, urgent=False)
        self._deliveries.notify(group, now)

    def list_dead(self, message: c.ListDead, token: Token, now: float) -> None:
        """Answer with what is dead in the group; what a power loss could undo is not reported."""
        group = self._deliveries.groups.get(message.group_id)
        if group is None:
            self._deliveries.refuse_unknown(message.group_id, token)
        else:
            letters = group.delivery.dead_letters(message.limit, message.above)
            self._deliveries.journal.answer(token, letters, must_sync=True)

    def count_dead(self, message: c.CountDead, token: Token, now: float) -> None:
        """Answer with how many dead letters of the group there are."""
        group = self._deliveries.groups.get(message.group_id)
        self._deliveries.effects.append(
            e.Answer([(token, 0 if group is None else group.delivery.dead.count)])
        )

    def drop(self, group: GroupState, name: str) -> None:
        """The group is forgotten, and what is kept of it: that is counted, and reported."""
        if dead := group.delivery.dead.count:
            self.dropped += dead
            self._deliveries.effects.append(e.DroppedDead(name or str(group.group_id), dead))

    def list_unsettled(self, message: c.ListUnsettled, token: Token, now: float) -> None:
        """Answer with what the group has not settled; what a power loss could undo is not reported."""
        group = self._deliveries.groups.get(message.group_id)
        if group is None:
            self._deliveries.refuse_unknown(message.group_id, token)
        else:
            delivery = group.delivery
            end = (
                self._deliveries.visible_end
                if message.stop is None
                else min(message.stop, self._deliveries.visible_end)
            )
            found = delivery.offsets.unsettled_ranges(message.start, end)
            self._deliveries.journal.answer(token, found, must_sync=True)

    def settle_offsets(self, message: c.SettleOffsets, token: Token, now: float) -> None:
        """Somebody has done with these offsets what was to be done."""
        group = self._deliveries.groups.get(message.group_id)
        if group is None:
            self._deliveries.refuse_unknown(message.group_id, token)
            return
        delivery, ranges = group.delivery, message.ranges
        if delivery.offsets.leased:
            ranges = [part for row in ranges for part in between(*row, delivery.offsets.leased_in(*row))]
        delivery.skip_each(ranges)
        self._deliveries.settled_in(group, ranges, now)
        self._deliveries.has_changed(group, now)
        self._deliveries.journal.answer(token, None, must_sync=True)

    def set_aside(self, message: c.SetAside, token: Token, now: float) -> None:
        """Another actor moves these records elsewhere; what a power loss could undo is not reported."""
        group = self._deliveries.groups.get(message.group_id)
        if group is None:
            self._deliveries.refuse_unknown(message.group_id, token)
            return
        delivery = group.delivery
        room = max(0, delivery.dead.limit - delivery.dead.count)
        offsets = [each for each in message.offsets if delivery.offsets.unsettled([(each, each + 1)])][:room]
        if offsets:
            delivery.set_aside(offsets, now)
            group.dead_reported = delivery.dead.total  # the actor that moves them knows: they are no failures
            self._deliveries.settled_in(group, merged([(each, each + 1) for each in sorted(offsets)]), now)
            self._deliveries.has_changed(group, now)
        self._deliveries.journal.answer(token, delivery.dead_letters(), must_sync=True)

    def forget_dead(self, message: c.ForgetDead, token: Token, now: float) -> None:
        """Dead letters are forgotten: there is room for others."""
        group = self._deliveries.groups.get(message.group_id)
        if group is None:
            self._deliveries.refuse_unknown(message.group_id, token)
            return
        is_current = message.numbering == group.delivery.dead.numbering
        count = group.delivery.forget_dead(message.below) if is_current else 0
        self.judge(group, now, LIMIT_REACHED)
        if group.is_expired_full and group.delivery.dead.has_room_for_expired:
            self._expiry.has_room_again(group, now)
        self._deliveries.journal.answer(token, count, must_sync=True)
