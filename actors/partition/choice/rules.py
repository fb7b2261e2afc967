"""What a partition's core does for groups that look at records before they lease them (`keys`). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.partition import effects as e
from callboard.actors.partition.choice.priorities import choice_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from callboard.actors.partition import commands as c
    from callboard.actors.partition.choice.keys import KeyOrder
    from callboard.actors.partition.choice.record_window import WindowRecords
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.group_state import GroupState
    from callboard.log.errors import CallboardError


class ChoiceRules:
    """Records that are read before they are leased."""

    def __init__(
        self, deliveries: PartitionDeliveries, fetch: Callable[[c.Fetch, Token, float], object]
    ) -> None:
        self._deliveries = deliveries
        self._fetch = fetch

    def choose_by(self, group: GroupState, settings: c.DeliverySettings) -> None:
        """Give the group the choice that its settings, and the topic, want."""
        if group.choice is None:
            options = self._deliveries.options
            group.choice = choice_of(
                settings,
                group.delivery,
                options.windows,
                options.limits,
                has_priorities=options.has_priorities,
            )

    def window_read(self, group_id: int, records: WindowRecords, now: float) -> None:
        """Records were read before anybody leases them: answer the fetches that waited for them."""
        group = self._deliveries.groups.get(group_id)
        if group is None or group.choice is None:
            return
        for start, stop in records.lost:
            self._deliveries.records_lost(start, stop, now)
        group.choice.add(records)
        self._deliveries.has_changed(group, now, urgent=False)
        self._go_on(group, group.choice, now)

    def room_answered(self, group_id: int, now: float) -> None:
        """There is more room, or none: read what fits, or choose of what is there."""
        group = self._deliveries.groups.get(group_id)
        if group is not None and group.choice is not None and group.choice.awaits_room:
            self._go_on(group, group.choice, now)

    def _go_on(self, group: GroupState, choice: KeyOrder, now: float) -> None:
        for message, token in choice.take_fetches():
            if self._deliveries.options.is_abandoned(token):
                self._deliveries.effects.append(e.Answer([(token, None)]))
            else:
                self._fetch(message, token, now)
        self._deliveries.notify(group, now)

    def window_not_read(self, group_id: int, error: CallboardError, now: float) -> None:
        """The records cannot be read now. Waiting consumers fetch, and hear why."""
        group = self._deliveries.groups.get(group_id)
        if group is not None and group.choice is not None:
            tokens = [token for _, token in group.choice.take_fetches()]
            self._deliveries.effects.append(e.Refuse(tokens, error))
            self._deliveries.effects.append(e.Answer([(token, True) for token in group.stop_waiting()]))
