"""How groups begin and end in a partition. Pure.

Where a group begins is a record of the delivery journal, but for one that the catalog says to read the topic from its
beginning: such a group is open in every core from its start on, and joining it waits for no disk.

Invariants
----------
B1  A group that a core begins with is where its journal says or, when that does not tell of it and the catalog does, at
    the log's beginning: no record was dropped since it was opened.
B2  The record of a group's opening is journalled before anything else of the group, before the log's beginning moves,
    and at once where the journal lost records: that leases have ended with those must not be forgotten.
B3  While retention drops records, a group that it did not ask holds none of them back. One that joins or seeks then
    is answered when they are gone, so that from the answer on nothing unread is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callboard.actors.delivery.failing import PROCESS_ENDED
from callboard.actors.partition import effects as e
from callboard.actors.partition.commands import Opened

if TYPE_CHECKING:
    from callboard.actors.partition import commands as c
    from callboard.actors.partition.carried import Carried
    from callboard.actors.partition.commands import DeliverySettings, Token
    from callboard.actors.partition.group_states import Group, GroupStates
    from callboard.actors.partition.queues import JournalQueue


class OpeningRules:
    """Groups that are opened and closed. The rest is the core's."""

    effects: list[e.Effect]
    journal: JournalQueue
    states: GroupStates
    start_offset: int
    visible_end: int
    wall_offset_s: float
    _carried: Carried
    _groups: dict[int, Group]
    _behind_drop: list[tuple[Token, int | Opened]] | None
    """Groups that joined or sought while retention drops, with the answer; None while it drops nothing."""

    if TYPE_CHECKING:

        def _set(self, group_id: int, settings: DeliverySettings, now: float) -> None: ...
        def _judge(self, group: Group, now: float, reason: str) -> None: ...
        def _drop_dead(self, group: Group, name: str) -> None: ...
        def _end_hand_over(self, group: Group) -> None: ...
        def _refuse_unknown(self, group_id: int, token: Token) -> None: ...
        def look_for_expired(self, group: Group, now: float) -> None: ...
        def leases_ended(self, group_id: int) -> None: ...

    def open_implied(self, numbering: int) -> None:
        """Open the groups that the catalog knows and the journal does not (B1); they begin the `numbering`."""
        for group_id, message in self._carried.readers.items():
            birth = message.birth
            if not message.is_implied or self._known(group_id, birth) is not None:
                continue
            group = self.states.add(group_id, message.durable, self.start_offset, numbering, birth, birth)
            if self.states.lost_sequences:
                self._pass_given_leases(group)
                self.journal.open(group)
                self.journal.answer(None, None, must_sync=True)
            if (settings := self._carried.settings.get(group_id)) is not None:
                self._set(group_id, settings, 0.0)

    def open_group(
        self, message: c.OpenGroup, token: Token, now: float, start: int | None = None, *, numbering: int = 0
    ) -> None:
        """Answer with `Opened`; a new group starts where it says, or at `start`, and begins the `numbering`."""
        group_id, durable, birth = message.group_id, message.durable, message.birth
        self._carried.opened(message)
        group = self._known(group_id, birth)
        if group is None:
            start = self._start_offset(message.start) if start is None else start
            since_us = max(0, round((now + self.wall_offset_s) * 1e6))
            group = self.states.add(group_id, durable, start, numbering, birth, since_us)
            self._pass_given_leases(group)
        self._set(group_id, message.settings, now)
        self._judge(group, now, PROCESS_ENDED)
        self.look_for_expired(group, now)
        if not message.is_implied:
            self.journal.open(group)
        floor = group.delivery.floor
        opened = Opened(floor, self.visible_end > floor)
        # Who joins hears what keeps the journal from being healed.
        if not message.is_implied or not self.journal.is_healthy or self._behind_drop is not None:
            self._answer_behind_drop(token, opened)
        elif token is not None:
            self.effects.append(e.Answer([(token, opened)]))

    def begin_drop(self) -> None:
        """Retention asks the groups that are open what may go."""
        self._behind_drop = []

    def end_drop(self) -> None:
        """What it drops is gone: answer groups that joined or sought meanwhile (B3)."""
        behind, self._behind_drop = self._behind_drop or (), None
        for token, answer in behind:
            if isinstance(answer, Opened):
                answer = answer._replace(floor=max(answer.floor, self.start_offset))
            else:
                answer = max(answer, self.start_offset)
            self._answer_behind_drop(token, answer)

    def _answer_behind_drop(self, token: Token, answer: int | Opened) -> None:
        """Say where the group goes on, when the journal has that and nothing is being dropped."""
        if self._behind_drop is None:
            self.journal.answer(token, answer, must_sync=True)
        else:
            self._behind_drop.append((token, answer))

    def _known(self, group_id: int, birth: int) -> Group | None:
        """The group, if it is open; another one that had its id is closed."""
        group = self._groups.get(group_id)
        if group is not None and group.is_of_another(birth):
            self._close(group, "")
            return None
        return group

    def _pass_given_leases(self, group: Group) -> None:
        """The journal may have lost the group in this process: consumers still have receipts of it."""
        given = self._carried.next_leases.get(group.group_id, 0)
        group.delivery.next_lease_id = max(group.delivery.next_lease_id, given)

    def _start_offset(self, start: Any) -> int:
        start = {"beginning": self.start_offset, "end": self.visible_end}.get(start, start)
        return min(max(int(start), self.start_offset), self.visible_end)

    def close_group(self, message: c.CloseGroup, token: Token, now: float) -> None:
        """Forget the group. Whoever waits for it looks again, and hears that it is gone."""
        if (group := self._groups.get(message.group_id)) is not None:
            self._close(group, message.name)
        self._carried.forget(message.group_id)
        self.leases_ended(message.group_id)  # none: clients forget it
        self.journal.answer(token, None, must_sync=True)

    def _close(self, group: Group, name: str) -> None:
        self.journal.close(group)
        self._drop_dead(group, name)
        self.effects.append(e.Answer([(token, True) for token in group.stop_waiting()]))
        self._end_hand_over(group)
        if group.choice is not None:
            for token in group.choice.close():
                self._refuse_unknown(group.group_id, token)
        closed = self.states.close(group.group_id)
        if group.unwritten_since_us is None:
            self.journal.entries.append(closed)
