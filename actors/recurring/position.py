"""How far a schedule has come, and what is to be published now. Pure.

Both clocks are arguments. Wall time decides what is due; the monotonic clock only tells whether the wall clock was set.

Vocabulary
----------
fired   the last due instant whose message is in the topic.
passed  what lies up to here is passed over: it was before the schedule began, or was missed and is skipped.
skew    wall time minus monotonic time. It grows when the wall clock is set forward, or the machine sleeps.
missed  what became due while the schedule was not looked at: before the first look, or while the skew grew by more than
        `JUMP_US`.

Invariants
----------
PS1  Nothing is due whose instant is later than the wall clock, or not later than the last one that was fired.
PS2  Due instants come in order, and none is left out that is not passed over.
PS3  What is passed over was missed, and `missed` of the schedule says so; of "all" the latest `CATCH_UP_MAX` come.
"""

from __future__ import annotations

from typing import Final

from callboard.actors.recurring.commands import Scheduled, ScheduleStands
from callboard.actors.recurring.cron import Rule, dues, latest
from callboard.log.format.stamps import is_ahead
from callboard.log.limits import CATCH_UP_MAX

JUMP_US: Final = 60_000_000
"""A wall clock that is set forward by no more has leapt over nothing."""
AT_A_TIME: Final = 64
"""Firings that are published together, at most."""


class Position:
    """How far one schedule has published, and which instant is due next.

    It begins where an earlier incarnation of the actor had come to.
    """

    def __init__(self, schedule: Scheduled) -> None:
        record = schedule.record
        stands = schedule.stands or ScheduleStands(record.schedule_id, record.since_us, record.since_us)
        self._schedule_id = stands.schedule_id
        self._missed = record.spec.missed
        self._since_us = stands.since_us
        self._passed_us = stands.passed_us
        self._fired_us = stands.fired_us
        self._skew_us = stands.skew_us
        self.passed_over = stands.passed_over
        self.count = stands.fired
        """Firings that were published."""
        self.problem = stands.problem
        """Why a firing waits."""
        if schedule.stands is None:
            self._begin(schedule)
        else:
            self.follow(schedule)

    def follow(self, schedule: Scheduled) -> None:
        """It was changed: it may have been resumed."""
        if schedule.record.since_us != self._since_us:
            self._begin(schedule)

    def _begin(self, schedule: Scheduled) -> None:
        """It was made, or resumed: nothing is missed, and only what is due from there on counts.

        Unless the wall clock was set forward while that was stored: what it leapt over was missed.
        """
        self._since_us = self._passed_us = since_us = schedule.record.since_us
        begun = schedule.begun
        if begun is not None:
            has_leapt = begun.wall_us - since_us > JUMP_US
            self._skew_us = None if has_leapt else begun.wall_us - begun.mono_us

    def stands(self) -> ScheduleStands:
        """How far it is."""
        return ScheduleStands(
            self._schedule_id,
            self._since_us,
            self._passed_us,
            self._fired_us,
            self._skew_us,
            self.passed_over,
            self.count,
            self.problem,
        )

    @property
    def from_us(self) -> int:
        """What is due next is later than this."""
        return self.stands().from_us

    def fired(self, due_us: int | None) -> None:
        """The topic has the firing of this due instant, and all before it."""
        if due_us is not None:
            self._fired_us = due_us if self._fired_us is None else max(due_us, self._fired_us)

    def is_ahead(self, wall_us: int) -> bool:
        """Whether the last one was fired by a clock that was ahead: it would be silent until that time comes."""
        return self._fired_us is not None and is_ahead(self._fired_us, wall_us)

    def set_back(self, due_us: int | None) -> None:
        """The partition has come to know that the last one counts as fired at this instant."""
        self._fired_us = due_us

    def begins_ahead(self, wall_us: int) -> bool:
        """Whether it was made, or resumed, by a clock that was ahead."""
        return is_ahead(self._passed_us, wall_us)

    def begins(self, noticed_us: int) -> None:
        """It counts as made, or resumed, when that was noticed."""
        self._passed_us = min(self._passed_us, noticed_us)

    def look(self, rule: Rule, mono_us: int, wall_us: int) -> list[int]:
        """The first due instants that are to be published now, at most `AT_A_TIME`."""
        before, self._skew_us = self._skew_us, wall_us - mono_us
        self._passed_us = min(self._passed_us, wall_us)  # a clock that was set back comes by again
        if before is None or self._skew_us - before > JUMP_US:
            self._pass_over(rule, wall_us)
        return dues(rule, self.from_us, wall_us, AT_A_TIME)

    def _pass_over(self, rule: Rule, wall_us: int) -> None:
        """What is due by now was missed (PS3)."""
        start = self.from_us
        if self._missed == "skip":
            passed = wall_us
        else:
            passed = start
            stop, wanted = wall_us, CATCH_UP_MAX if self._missed == "all" else 1
            for _ in range(wanted):
                due = latest(rule, start, stop)
                if due is None:
                    return  # all that was missed comes
                stop = passed = due - 1
        if passed > start:
            self.passed_over += rule.count(start, passed)
            self._passed_us = passed

    def next_us(self, rule: Rule) -> int | None:
        """The first due instant that was neither published nor passed over."""
        return rule.after(self.from_us)
