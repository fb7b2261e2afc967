"""Groups and retention: those that join or seek while it drops records, and those that lose some. Pure.

Invariants
----------
RR1  While retention drops records, a group that it did not ask holds none of them back. One that joins or seeks then is
     answered when they are gone, so that from the answer on nothing unread is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.actors.partition import commands as c
from callboard.actors.partition import effects as e
from callboard.actors.partition.commands import GroupOpened

if TYPE_CHECKING:
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.group_state import GroupState


class RetentionRules:
    """The part of the core that reconciles groups with retention, which drops records that they have not settled."""

    def __init__(self, deliveries: PartitionDeliveries) -> None:
        self._deliveries = deliveries
        self._behind: list[tuple[Token, int | GroupOpened]] | None = None
        """Groups that joined or sought while retention drops, with the answer; None while it drops nothing."""

    @property
    def is_dropping(self) -> bool:
        """Whether it drops records now."""
        return self._behind is not None

    def begin(self) -> None:
        """Retention asks the groups that are open what may go."""
        self._behind, self._deliveries.lost_to_reads = [], []

    def end(self) -> None:
        """What it drops is gone: answer groups that joined or sought meanwhile (RR1)."""
        behind, self._behind = self._behind or (), None
        self._deliveries.lost_to_reads = None
        for token, answer in behind:
            if isinstance(answer, GroupOpened):
                answer = answer._replace(floor=max(answer.floor, self._deliveries.start_offset))
            else:
                answer = max(answer, self._deliveries.start_offset)
            self.answer_behind(token, answer)

    def answer_behind(self, token: Token, answer: int | GroupOpened) -> None:
        """Say where the group goes on, when the journal has that and nothing is being dropped."""
        if self._behind is None:
            self._deliveries.journal.answer(token, answer, must_sync=True)
        else:
            self._behind.append((token, answer))

    def drops_unread(self, group: GroupState) -> bool:
        """Whether the log begins behind what the group has not settled, and that is to be settled now.

        Not in a group of the broker's own, unless it is unknown what it has settled (`OWN_GROUP`).
        """
        is_counted = group.group_id == c.OWN_GROUP and not self._deliveries.states.lost_sequences
        floor = group.delivery.offsets.floor
        is_behind = floor < self._deliveries.start_offset or self._lost_to_reads(group) > 0
        return is_behind and not is_counted

    def _lost_to_reads(self, group: GroupState) -> int:
        """How many records, of those that retention has just dropped, reads of the group have missed and settled."""
        lost, start = self._deliveries.lost_to_reads or (), self._deliveries.start_offset
        return sum([count for group_id, first, count in lost if group_id == group.group_id and first < start])

    def drop_unread(self, group: GroupState, now: float) -> None:
        """Retention has dropped what `group` had not settled, by now or before a crash that hid it."""
        dropped = group.delivery.skip(0, self._deliveries.start_offset)
        group.lost_records += dropped
        self._deliveries.carried.dropped_below[group.group_id] = self._deliveries.start_offset
        self._deliveries.leases_ended(group.group_id)
        self._deliveries.settled_in(group, [(0, self._deliveries.start_offset)], now)
        self._deliveries.has_changed(group, now, urgent=False)
        if not self._deliveries.states.lost_sequences:  # else it is unknown, and that is reported
            all_dropped = dropped + self._lost_to_reads(group)
            self._deliveries.effects.append(e.DroppedUnread(group.group_id, all_dropped))

    def begin_behind_dropped(self, group: GroupState, now: float) -> None:
        """The group was opened, or sought, at records that retention was dropping: it goes on behind them, and has lost
        none.
        """
        group.delivery.skip(0, self._deliveries.start_offset)
        self._deliveries.carried.dropped_below[group.group_id] = self._deliveries.start_offset
        self._deliveries.leases_ended(group.group_id)
        self._deliveries.settled_in(group, [(0, self._deliveries.start_offset)], now)
        self._deliveries.has_changed(group, now, urgent=False)
