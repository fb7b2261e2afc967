"""What a partition's core does when a group is sought elsewhere. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.partition import effects as e
from callboard.log.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callboard.actors.delivery.receipts import OffsetRange
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.carried import Carried
    from callboard.actors.partition.commands import DeliverySettings, Token
    from callboard.actors.partition.group_states import Group, GroupStates
    from callboard.actors.partition.queues import JournalQueue


class SeekRules:
    """A group goes on from another offset. The rest is the core's."""

    label: str
    effects: list[e.Effect]
    journal: JournalQueue
    states: GroupStates
    start_offset: int
    visible_end: int
    _carried: Carried
    _groups: dict[int, Group]

    if TYPE_CHECKING:

        def _refuse_unknown(self, group_id: int, token: Token) -> None: ...
        def _has_changed(self, group: Group, now: float, *, urgent: bool = True) -> None: ...
        def _notify(self, group: Group, now: float) -> None: ...
        def _choose_by(self, group: Group, settings: DeliverySettings) -> None: ...
        def _settled_in(self, group: Group, ranges: Sequence[OffsetRange], now: float) -> None: ...
        def _is_handed_over(self, group: Group) -> bool: ...
        def look_for_expired(self, group: Group, now: float) -> None: ...
        def leases_ended(self, group_id: int) -> None: ...
        def _answer_behind_drop(self, token: Token, answer: int) -> None: ...

    def seek_group(self, message: c.SeekGroup, token: Token, now: float) -> None:
        """Go on from an offset; leases that were given before are over, also those that no consumer has heard of."""
        group_id, offset = message.group_id, message.offset
        group = self._groups.get(group_id)
        if group is None:
            self._refuse_unknown(group_id, token)
            return
        if message.takes_nearest:
            offset = min(max(offset, self.start_offset), self.visible_end)
        elif not self.start_offset <= offset <= self.visible_end:
            raise OffsetOutOfRange(
                f"partition {self.label} has the offsets {self.start_offset} to {self.visible_end - 1}, and"
                f" {self.visible_end} comes next: the group cannot go on from {offset}. Nothing was changed.",
                offset=offset,
                start=self.start_offset,
                end=self.visible_end,
            )
        delivery = group.delivery
        self.states.salvaged_end = max(self.states.salvaged_end, delivery.next)
        self._carried.first_sought[group_id] = delivery.next_lease_id
        self.leases_ended(group_id)
        delivery.seek(offset)
        tokens = [pending.token for pending in group.pending.values()]
        if group.choice is not None and group.settings is not None:
            tokens += group.choice.close()
            group.choice = None
            self._choose_by(group, group.settings)
        self.effects.append(e.Answer([(waiting, None) for waiting in tokens]))
        self._is_handed_over(group)
        self._has_changed(group, now)
        self.look_for_expired(group, now)
        self._notify(group, now)
        self._answer_behind_drop(token, offset)

    def begin_behind_dropped(self, group: Group, now: float) -> None:
        """The group was opened, or sought, at records that retention was dropping: it goes on behind them, and has lost
        none.
        """
        group.delivery.skip(0, self.start_offset)
        self._carried.dropped_below[group.group_id] = self.start_offset
        self.leases_ended(group.group_id)
        self._settled_in(group, [(0, self.start_offset)], now)
        self._has_changed(group, now, urgent=False)
