"""The settings of groups in a partition. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.delivery.dead_letters import LIMIT_REACHED
from callboard.actors.partition import effects as e
from callboard.actors.partition.ownership import Ownership

if TYPE_CHECKING:
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.choice.expiry import ExpiryRules
    from callboard.actors.partition.choice.rules import ChoiceRules
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.dead_letter_rules import DeadLetterRules
    from callboard.actors.partition.deliveries import PartitionDeliveries


class SettingsRules:
    """Settings that are set, or altered."""

    def __init__(
        self,
        deliveries: PartitionDeliveries,
        choice: ChoiceRules,
        expiry: ExpiryRules,
        dead_letters: DeadLetterRules,
    ) -> None:
        self._deliveries = deliveries
        self._choice = choice
        self._expiry = expiry
        self._dead_letters = dead_letters

    def alter_delivery(self, message: c.AlterDelivery, token: Token, now: float) -> None:
        """From now on the group has these settings, also when it is not open here yet."""
        self.set(message.group_id, message.settings, now)
        if (group := self._deliveries.groups.get(message.group_id)) is not None:
            self._dead_letters.judge(group, now, LIMIT_REACHED)
        if token is not None:
            self._deliveries.effects.append(e.Answer([(token, None)]))

    def set(self, group_id: int, settings: c.DeliverySettings, now: float) -> None:
        """The group has these settings, unless it has later ones."""
        latest = self._deliveries.carried.set(group_id, settings, now)
        group = self._deliveries.groups.get(group_id)
        if group is not None:
            was_paused, group.settings = group.is_paused, latest
            group.delivery.judge_by(latest.max_deliveries, self._deliveries.options.limits.dead_letters)
            if latest.is_exclusive and group.ownership is None:
                group.ownership = self._deliveries.carried.owners.setdefault(group_id, Ownership())
                group.handing_over = group.handing_over or []
            self._choice.choose_by(group, latest)
            if group.is_expired_full and not latest.keeps_expired:
                self._expiry.has_room_again(group, now)
            if was_paused and not latest.paused:
                self._deliveries.notify(group, now)
