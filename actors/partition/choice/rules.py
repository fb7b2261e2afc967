"""What a partition's core does for groups that look at records before they lease them (`keys`). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.partition import effects as e
from callboard.actors.partition.choice.lanes import choice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from callboard.actors.delivery.receipts import Lease, OffsetRange
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.choice.record_window import WindowBudget, WindowRecords
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.group_states import Group
    from callboard.log.errors import CallboardError
    from callboard.log.limits import Limits


class ChoiceRules:
    """Records that are read before they are leased. The rest is the core's."""

    effects: list[e.Effect]
    visible_end: int
    _groups: dict[int, Group]
    _has_priorities: bool
    _is_abandoned: Callable[[Token], bool]
    _limits: Limits
    _windows: WindowBudget

    if TYPE_CHECKING:

        def fetch(self, message: c.Fetch, token: Token, now: float) -> Lease | None: ...
        def records_lost(self, start: int, stop: int, now: float) -> None: ...
        def _has_changed(self, group: Group, now: float, *, urgent: bool = True) -> None: ...
        def _notify(self, group: Group, now: float) -> None: ...

    def _choose_by(self, group: Group, settings: c.DeliverySettings) -> None:
        """Give the group the choice that its settings, and the topic, want."""
        if group.choice is None:
            group.choice = choice_of(
                settings,
                group.delivery,
                self._windows,
                self._limits,
                has_priorities=self._has_priorities,
            )

    def _reads_window(self, group: Group) -> bool:
        """Have more records read for the group's choice; False when there are none, or no room for them."""
        choice = group.choice
        if choice is None:
            return False
        span = choice.begin_reading(self.visible_end)
        if span is not None:
            self.effects.append(e.ReadWindow(group.group_id, *span, choice.columns, choice.is_uniform))
        return choice.is_reading

    def window_read(self, group_id: int, records: WindowRecords, now: float) -> None:
        """Records were read before anybody leases them: answer the fetches that waited for them."""
        group = self._groups.get(group_id)
        if group is None or group.choice is None:
            return
        for start, stop in records.lost:
            self.records_lost(start, stop, now)
        group.choice.add(records)
        self._has_changed(group, now, urgent=False)
        for message, token in group.choice.take_fetches():
            if self._is_abandoned(token):
                self.effects.append(e.Answer([(token, None)]))
            else:
                self.fetch(message, token, now)
        self._notify(group, now)

    def window_not_read(self, group_id: int, error: CallboardError, now: float) -> None:
        """The records cannot be read now. Waiting consumers fetch, and hear why."""
        group = self._groups.get(group_id)
        if group is not None and group.choice is not None:
            tokens = [token for _, token in group.choice.take_fetches()]
            self.effects.append(e.Refuse(tokens, error))
            self.effects.append(e.Answer([(token, True) for token in group.stop_waiting()]))

    def _settled_in(self, group: Group, ranges: Sequence[OffsetRange], now: float) -> None:
        """Offsets of a group with a choice are settled: others may be free now."""
        if group.choice is not None:
            group.choice.settled(ranges)
        if group.choice is not None or group.is_handing_over:
            self._notify(group, now)
