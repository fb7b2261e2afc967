"""Seeking a group elsewhere in a partition. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.partition import effects as e
from callboard.log.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.choice.expiry import ExpiryRules
    from callboard.actors.partition.choice.rules import ChoiceRules
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.retention_rules import RetentionRules


class SeekRules:
    """A group goes on from another offset."""

    def __init__(
        self,
        deliveries: PartitionDeliveries,
        choice: ChoiceRules,
        expiry: ExpiryRules,
        retention: RetentionRules,
    ) -> None:
        self._deliveries = deliveries
        self._choice = choice
        self._expiry = expiry
        self._retention = retention

    def seek_group(self, message: c.SeekOffset, token: Token, now: float) -> None:
        """Go on from an offset; leases that were given before are over, also those that no consumer has heard of."""
        group_id, offset = message.group_id, message.offset
        group = self._deliveries.groups.get(group_id)
        if group is None:
            self._deliveries.refuse_unknown(group_id, token)
            return
        deliveries = self._deliveries
        start, end = deliveries.start_offset, deliveries.visible_end
        if message.takes_nearest:
            offset = min(max(offset, start), end)
        elif not start <= offset <= end:
            raise OffsetOutOfRange(
                f"partition {deliveries.options.label} has the offsets {start} to {end - 1}, and {end} comes next: the"
                f" group cannot go on from {offset}. Nothing was changed.",
                offset=offset,
                start=start,
                end=end,
            )
        delivery = group.delivery
        deliveries.states.salvaged_end = max(deliveries.states.salvaged_end, delivery.offsets.next)
        deliveries.carried.first_sought[group_id] = delivery.offsets.next_lease_id
        deliveries.leases_ended(group_id)
        delivery.seek(offset)
        tokens = [pending.token for pending in group.pending.values()]
        if group.choice is not None and group.settings is not None:
            tokens += group.choice.close()
            group.choice = None
            self._choice.choose_by(group, group.settings)
        deliveries.effects.append(e.Answer([(waiting, None) for waiting in tokens]))
        deliveries.is_handed_over(group)
        deliveries.has_changed(group, now)
        self._expiry.look_for_expired(group, now)
        deliveries.notify(group, now)
        self._retention.answer_behind(token, offset)
