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
    from callboard.actors.partition.group_states import Group
    from callboard.actors.partition.opening_rules import OpeningRules


class SeekRules:
    """A group goes on from another offset."""

    def __init__(
        self,
        deliveries: PartitionDeliveries,
        choice: ChoiceRules,
        expiry: ExpiryRules,
        openings: OpeningRules,
    ) -> None:
        self._deliveries = deliveries
        self._choice = choice
        self._expiry = expiry
        self._openings = openings

    def seek_group(self, message: c.SeekGroup, token: Token, now: float) -> None:
        """Go on from an offset; leases that were given before are over, also those that no consumer has heard of."""
        group_id, offset = message.group_id, message.offset
        group = self._deliveries.groups.get(group_id)
        if group is None:
            self._deliveries.refuse_unknown(group_id, token)
            return
        label, start, end = (
            self._deliveries.label,
            self._deliveries.start_offset,
            self._deliveries.visible_end,
        )
        if message.takes_nearest:
            offset = min(max(offset, start), end)
        elif not start <= offset <= end:
            raise OffsetOutOfRange(
                f"partition {label} has the offsets {start} to {end - 1}, and {end} comes next: the group cannot go on"
                f" from {offset}. Nothing was changed.",
                offset=offset,
                start=start,
                end=end,
            )
        delivery = group.delivery
        self._deliveries.states.salvaged_end = max(self._deliveries.states.salvaged_end, delivery.next)
        self._deliveries.carried.first_sought[group_id] = delivery.next_lease_id
        self._deliveries.leases_ended(group_id)
        delivery.seek(offset)
        tokens = [pending.token for pending in group.pending.values()]
        if group.choice is not None and group.settings is not None:
            tokens += group.choice.close()
            group.choice = None
            self._choice.choose_by(group, group.settings)
        self._deliveries.effects.append(e.Answer([(waiting, None) for waiting in tokens]))
        self._deliveries.is_handed_over(group)
        self._deliveries.has_changed(group, now)
        self._expiry.look_for_expired(group, now)
        self._deliveries.notify(group, now)
        self._openings.answer_behind_drop(token, offset)

    def begin_behind_dropped(self, group: Group, now: float) -> None:
        """The group was opened, or sought, at records that retention was dropping: it goes on behind them, and has lost
        none.
        """
        group.delivery.skip(0, self._deliveries.start_offset)
        self._deliveries.carried.dropped_below[group.group_id] = self._deliveries.start_offset
        self._deliveries.leases_ended(group.group_id)
        self._deliveries.settled_in(group, [(0, self._deliveries.start_offset)], now)
        self._deliveries.has_changed(group, now, urgent=False)
