"""How far a schedule has come, where the clocks are set beside what is stored. The scenario does the rest."""

from __future__ import annotations

import pytest

from callboard.actors.recurring.cron import Every
from callboard.actors.recurring.position import JUMP_US, Position

SECOND: int = 1_000_000


@pytest.mark.parametrize(("missed", "come"), [("latest", 1), ("all", 100), ("skip", 0)])
def test_what_a_clock_leaps_over_while_a_schedule_is_made_was_missed(missed: str, come: int) -> None:
    """The schedule was stored before the clock was set forward, and begins behind that."""
    position = Position(missed, 0)
    position.begin(SECOND, 0, 201 * SECOND)
    rule, due = Every(SECOND, 0), []
    while found := position.look(rule, 0, 201 * SECOND):
        due += found
        position.fired(found[-1])
    assert due == [each * SECOND for each in range(202 - come, 202)]
    assert position.passed_over == 200 - come


def test_a_schedule_that_is_made_slowly_has_missed_nothing() -> None:
    """What became due while it was stored comes."""
    position = Position("skip", 0)
    position.begin(0, 0, JUMP_US)
    assert len(position.look(Every(SECOND, 0), 0, JUMP_US)) == JUMP_US // SECOND
