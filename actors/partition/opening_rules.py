"""How groups begin and end in a partition. Pure.

Where a group begins is a record of the delivery journal, but for one that the catalog says to read the topic from its
beginning: such a group is open in every core from its start on, and joining it waits for no disk.

Invariants
----------
OG1  A group that a core begins with is where its journal says or, when that does not tell of it and the catalog does,
     at the log's beginning: no record was dropped since it was opened.
OG2  The record of a group's opening is journalled before anything else of the group, before the log's beginning moves,
     and at once where the journal lost records: that leases have ended with those must not be forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors.delivery.dead_letters import PROCESS_ENDED
from callboard.actors.partition import effects as e
from callboard.actors.partition.commands import GroupOpened

if TYPE_CHECKING:
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.choice.expiry import ExpiryRules
    from callboard.actors.partition.commands import Token
    from callboard.actors.partition.dead_letter_rules import DeadLetterRules
    from callboard.actors.partition.deliveries import PartitionDeliveries
    from callboard.actors.partition.group_state import GroupState
    from callboard.actors.partition.member_rules import MemberRules
    from callboard.actors.partition.retention_rules import RetentionRules
    from callboard.actors.partition.settings_rules import SettingsRules


class OpeningRules:
    """Groups that are opened and closed."""

    def __init__(
        self,
        deliveries: PartitionDeliveries,
        settings: SettingsRules,
        dead_letters: DeadLetterRules,
        members: MemberRules,
        expiry: ExpiryRules,
        retention: RetentionRules,
    ) -> None:
        self._deliveries = deliveries
        self._settings = settings
        self._dead_letters = dead_letters
        self._members = members
        self._expiry = expiry
        self._retention = retention

    def open_implied(self, numbering: int) -> None:
        """Open the groups that the catalog knows and the journal does not (OG1); they begin the `numbering`."""
        for group_id, message in self._deliveries.carried.readers.items():
            birth = message.birth
            if not message.is_implied or self._known(group_id, birth) is not None:
                continue
            group = self._deliveries.states.add(
                group_id, message.durable, self._deliveries.start_offset, numbering, birth, birth
            )
            if self._deliveries.states.lost_sequences:
                self._pass_given_leases(group)
                self._deliveries.journal.open(group)
                self._deliveries.journal.answer(None, None, must_sync=True)
            if (settings := self._deliveries.carried.settings.get(group_id)) is not None:
                self._settings.set(group_id, settings, 0.0)

    def open_group(
        self, message: c.OpenGroup, token: Token, now: float, start: int | None = None, *, numbering: int = 0
    ) -> None:
        """Answer with `GroupOpened`; a new group starts where it says, or at `start`, and begins the `numbering`."""
        group_id, durable, birth = message.group_id, message.durable, message.birth
        self._deliveries.carried.opened(message)
        group = self._known(group_id, birth)
        if group is None:
            start = self._start_offset(message.start) if start is None else start
            since_us = max(0, round((now + self._deliveries.wall_offset_s) * 1e6))
            group = self._deliveries.states.add(group_id, durable, start, numbering, birth, since_us)
            self._pass_given_leases(group)
        self._settings.set(group_id, message.settings, now)
        self._dead_letters.judge(group, now, PROCESS_ENDED)
        self._expiry.look_for_expired(group, now)
        if not message.is_implied:
            self._deliveries.journal.open(group)
        floor = group.delivery.offsets.floor
        opened = GroupOpened(floor, self._deliveries.visible_end > floor)
        # A consumer that joins learns what keeps the journal from healing.
        if not message.is_implied or not self._deliveries.journal.is_healthy or self._retention.is_dropping:
            self._retention.answer_behind(token, opened)
        elif token is not None:
            self._deliveries.effects.append(e.Answer([(token, opened)]))

    def _known(self, group_id: int, birth: int) -> GroupState | None:
        """The group, if it is open; another one that had its id is closed."""
        group = self._deliveries.groups.get(group_id)
        if group is not None and group.is_of_another(birth):
            self._close(group, "")
            return None
        return group

    def _pass_given_leases(self, group: GroupState) -> None:
        """The journal may have lost the group in this process: consumers still have receipts of it."""
        given = self._deliveries.carried.next_leases.get(group.group_id, 0)
        group.delivery.offsets.next_lease_id = max(group.delivery.offsets.next_lease_id, given)

    def _start_offset(self, start: Any) -> int:
        begin, end = self._deliveries.start_offset, self._deliveries.visible_end
        start = {"beginning": begin, "end": end}.get(start, start)
        return min(max(int(start), begin), end)

    def close_group(self, message: c.CloseGroup, token: Token, now: float) -> None:
        """Forget the group. Consumers that wait for it ask again, and hear that it is gone."""
        if (group := self._deliveries.groups.get(message.group_id)) is not None:
            self._close(group, message.name)
        self._deliveries.carried.forget(message.group_id)
        self._deliveries.leases_ended(message.group_id)  # none: clients forget it
        self._deliveries.journal.answer(token, None, must_sync=True)

    def _close(self, group: GroupState, name: str) -> None:
        self._deliveries.journal.close(group)
        self._dead_letters.drop(group, name)
        self._deliveries.effects.append(e.Answer([(token, True) for token in group.stop_waiting()]))
        self._members.end_hand_over(group)
        if group.choice is not None:
            for token in group.choice.close():
                self._deliveries.refuse_unknown(group.group_id, token)
        closed = self._deliveries.states.close(group.group_id)
        if group.unwritten_since_us is None:
            self._deliveries.journal.entries.append(closed)
