"""What a partition's core does with dead letters: the part of `core` that only groups with failures need. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.delivery.failing import LIMIT_REACHED
from callboard.actors.delivery.receipts import between, merged
from callboard.actors.partition import effects as e

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callboard.actors.delivery.receipts import OffsetRange
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.group_states import Group
    from callboard.actors.partition.queues import JournalQueue


class DeadLetterRules:
    """Dead letters that come about, are asked for and are forgotten. The rest is the core's."""

    effects: list[e.Effect]
    journal: JournalQueue
    visible_end: int
    dropped_dead: int
    _groups: dict[int, Group]

    if TYPE_CHECKING:

        def _refuse_unknown(self, group_id: int, token: Token) -> None: ...
        def _settled_in(self, group: Group, ranges: Sequence[OffsetRange], now: float) -> None: ...
        def _has_changed(self, group: Group, now: float, *, urgent: bool = True) -> None: ...
        def _notify(self, group: Group, now: float) -> None: ...
        def _has_room_again(self, group: Group, now: float) -> None: ...

    def _judge(self, group: Group, now: float, reason: str) -> None:
        """Settle what is proved to fail, for this `reason`."""
        group.delivery.judge(now, reason)
        self._died_in(group, now)
        self._has_changed(group, now, urgent=False)
        self._notify(group, now)

    def _died_in(self, group: Group, now: float) -> None:
        """Records of `group` may have become dead letters: they are settled."""
        if group.choice is not None and (died := group.delivery.just_died()):
            self._settled_in(group, died, now)
        delivery = group.delivery
        if delivery.dead:
            count, group.dead_told = delivery.dead_lettered - group.dead_told, delivery.dead_lettered
            self.effects.append(e.HasDead(group.group_id, count, delivery.last_dead().reason))

    def list_dead(self, message: c.ListDead, token: Token, now: float) -> None:
        """Answer with what is dead in the group; what a power loss could undo is not reported."""
        group = self._groups.get(message.group_id)
        if group is None:
            self._refuse_unknown(message.group_id, token)
        else:
            letters = group.delivery.dead_letters(message.limit, message.above)
            self.journal.answer(token, letters, must_sync=True)

    def count_dead(self, message: c.CountDead, token: Token, now: float) -> None:
        """Answer with how many dead letters of the group there are."""
        group = self._groups.get(message.group_id)
        self.effects.append(e.Answer([(token, 0 if group is None else group.delivery.dead)]))

    def _drop_dead(self, group: Group, name: str) -> None:
        """The group is forgotten, and what is kept of it: that is counted, and reported."""
        if dead := group.delivery.dead:
            self.dropped_dead += dead
            self.effects.append(e.DroppedDead(name or str(group.group_id), dead))

    def list_unsettled(self, message: c.ListUnsettled, token: Token, now: float) -> None:
        """Answer with what the group has not settled; what a power loss could undo is not reported."""
        group = self._groups.get(message.group_id)
        if group is None:
            self._refuse_unknown(message.group_id, token)
        else:
            delivery = group.delivery
            end = self.visible_end if message.stop is None else min(message.stop, self.visible_end)
            found = delivery.unsettled_ranges(message.start, end)
            self.journal.answer(token, found, must_sync=True)

    def settle_offsets(self, message: c.SettleOffsets, token: Token, now: float) -> None:
        """Somebody has done with these offsets what was to be done."""
        group = self._groups.get(message.group_id)
        if group is None:
            self._refuse_unknown(message.group_id, token)
            return
        delivery, ranges = group.delivery, message.ranges
        if delivery.leased:
            ranges = [part for row in ranges for part in between(*row, delivery.leased_in(*row))]
        delivery.skip_each(ranges)
        self._settled_in(group, ranges, now)
        self._has_changed(group, now)
        self.journal.answer(token, None, must_sync=True)

    def set_aside(self, message: c.SetAside, token: Token, now: float) -> None:
        """Another actor moves these records elsewhere; what a power loss could undo is not reported."""
        group = self._groups.get(message.group_id)
        if group is None:
            self._refuse_unknown(message.group_id, token)
            return
        delivery = group.delivery
        room = max(0, delivery.dead_max - delivery.dead)
        offsets = [each for each in message.offsets if delivery.unsettled([(each, each + 1)])][:room]
        if offsets:
            delivery.set_aside(offsets, now)
            group.dead_told = delivery.dead_lettered  # whoever moves them knows: they are no failures
            self._settled_in(group, merged([(each, each + 1) for each in sorted(offsets)]), now)
            self._has_changed(group, now)
        self.journal.answer(token, delivery.dead_letters(), must_sync=True)

    def forget_dead(self, message: c.ForgetDead, token: Token, now: float) -> None:
        """Dead letters are forgotten: there is room for others."""
        group = self._groups.get(message.group_id)
        if group is None:
            self._refuse_unknown(message.group_id, token)
            return
        is_current = message.numbering == group.delivery.numbering
        count = group.delivery.forget_dead(message.below) if is_current else 0
        self._judge(group, now, LIMIT_REACHED)
        if group.is_expired_full and group.delivery.has_room_for_expired:
            self._has_room_again(group, now)
        self.journal.answer(token, count, must_sync=True)
