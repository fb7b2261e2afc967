"""How far a schedule has come, where the clocks are set beside what is stored. The scenario does the rest."""

from __future__ import annotations

import attrs
import pytest

from callboard.actors.recurring.commands import ScheduleBegun, Scheduled
from callboard.actors.recurring.cron import Every
from callboard.actors.recurring.position import JUMP_US, Position
from callboard.actors.recurring.spec import ScheduleRecord, ScheduleSpec

SECOND: int = 1_000_000


def made(missed: str, since_us: int, wall_us: int) -> Scheduled:
    """A schedule that was made now; what is stored says when."""
    spec = ScheduleSpec(name="tick", value=b"", partition=0, every_us=SECOND, missed=missed)
    return Scheduled(ScheduleRecord(1, spec, 0, since_us), ScheduleBegun(0, wall_us), None)


@pytest.mark.parametrize(("missed", "come"), [("latest", 1), ("all", 100), ("skip", 0)])
def test_what_a_clock_leaps_over_while_a_schedule_is_made_was_missed(missed: str, come: int) -> None:
    """The schedule was stored before the clock was set forward, and begins behind that."""
    position = Position(made(missed, SECOND, 201 * SECOND))
    rule, due = Every(SECOND, 0), []
    while found := position.look(rule, 0, 201 * SECOND):
        due += found
        position.fired(found[-1])
    assert due == [each * SECOND for each in range(202 - come, 202)]
    assert position.passed_over == 200 - come


def test_a_schedule_that_is_made_slowly_has_missed_nothing() -> None:
    """What became due while it was stored comes."""
    position = Position(made("skip", 0, JUMP_US))
    assert len(position.look(Every(SECOND, 0), 0, JUMP_US)) == JUMP_US // SECOND


def test_a_later_incarnation_goes_on_where_an_earlier_one_had_come_to() -> None:
    """What was due meanwhile is not missed, and what was passed over stays so and is counted once."""
    schedule = made("skip", 0, 201 * SECOND)
    before, rule = Position(schedule), Every(SECOND, 0)
    assert before.look(rule, 0, 201 * SECOND) == []
    after = Position(attrs.evolve(schedule, stands=before.stands()))
    assert after.look(rule, 2 * SECOND, 203 * SECOND) == [202 * SECOND, 203 * SECOND]
    assert after.stands().passed_over == before.stands().passed_over == 201


def test_a_resumption_that_an_earlier_incarnation_did_not_hear_counts() -> None:
    """Due instants count from there, as the catalog says."""
    schedule = made("all", 0, 0)
    stands = Position(schedule).stands()
    resumed = Scheduled(
        attrs.evolve(schedule.record, since_us=50 * SECOND), ScheduleBegun(0, 50 * SECOND), stands
    )
    assert Position(resumed).look(Every(SECOND, 0), SECOND, 51 * SECOND) == [51 * SECOND]
