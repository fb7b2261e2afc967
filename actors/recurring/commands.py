"""What the actor of recurring publishes hears and says."""

from __future__ import annotations

from typing import Final

import attrs

from callboard.actors.kernel import Question
from callboard.actors.recurring.spec import ScheduleRecord

RECURRING: Final = "recurring"
"""The actor's name in the tree, directly below the root."""


@attrs.frozen
class ScheduleStands:
    """A notice of the actor to the directory of live topics: how far a schedule is. Mirrors hear it, and a later
    incarnation gets it.
    """

    schedule_id: int
    since_us: int
    """As the record had it (`ScheduleRecord`)."""
    passed_us: int
    """What lies up to here is passed over."""
    fired_us: int | None = None
    """The last due instant that was published, as far as it is known."""
    skew_us: int | None = None
    """Wall time minus monotonic time, when it was looked at last."""
    passed_over: int = 0
    """Firings that were missed and are skipped since the directory was opened, as far as they were counted."""
    fired: int = 0
    """Firings published since the directory was opened."""
    problem: str | None = None
    """Why a firing waits."""

    @property
    def from_us(self) -> int:
        """What is due next is later than this."""
        return self.passed_us if self.fired_us is None else max(self.passed_us, self.fired_us)


@attrs.frozen
class ScheduleBegun:
    """What the clocks said when a schedule was made, or resumed, in this opening of the directory."""

    mono_us: int
    wall_us: int


@attrs.frozen
class Scheduled:
    """A schedule, as the catalog has decided, and how far it was, as the actor has said last."""

    record: ScheduleRecord
    begun: ScheduleBegun | None
    stands: ScheduleStands | None


@attrs.frozen
class TopicSchedules:
    """A notice of the catalog: a topic has these schedules, and no others any more."""

    topic_id: str
    schedules: tuple[Scheduled, ...]


@attrs.frozen
class LookAtSchedules(Question[None]):
    """Where nothing is published: answered once it was said of all schedules how far they are."""


@attrs.frozen
class HearSchedules(Question[None]):
    """Answered once all that the catalog had decided before was heard: from then on the actor publishes by that."""


RecurringCommand = TopicSchedules | LookAtSchedules | HearSchedules
