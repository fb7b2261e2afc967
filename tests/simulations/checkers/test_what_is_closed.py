"""Checkers of what a flush or a closed runtime promises, and of damage that is told."""

import pytest

from callboard.simulations.checkers import Terms, closed_well, false_damage, nothing_lost
from callboard.simulations.checkers.closed_well import CLOSED, REFUSED


def flush(script, end="flushed"):
    """A flush from its beginning to its end."""
    operation = script.history.operation()
    for kind in ("flush", end):
        script.history.record(script.machine, kind, "p1", operation, "orders")


def test_a_flush_makes_leader_records_durable(script, left):
    """A record at level leader that was told before a flush began survives every power cut after it."""
    script.publish(0, 0, acks="leader")
    flush(script)
    script.cut()
    (found,) = nothing_lost.check(script.history, left({}))
    assert found.first.ids == (0,)
    assert nothing_lost.check(script.history, left({0: 0})) == []


def test_a_flush_promises_nothing_of_what_comes_later_or_was_lost_before(script, left):
    """A flush that failed, one before the record, and one after a power cut had taken it prove nothing."""
    flush(script)
    script.publish(0, 0, acks="leader")
    flush(script, "flush failed")
    script.cut()
    flush(script)
    script.cut()
    assert nothing_lost.check(script.history, left({})) == []


@pytest.mark.parametrize("kind", ["DamageFound", "JournalSalvaged"])
def test_damage_that_nobody_did_is_found(script, left, kind):
    """Within the promise no actor tells of damage; beyond it one may."""
    assert false_damage.check(script.history, left()) == []
    script.event(kind, "topics/orders/0")
    (found,) = false_damage.check(script.history, left())
    assert found.promise == false_damage.PROMISE
    assert false_damage.check(script.history, left(), Terms(beyond=True)) == []


def test_a_closed_runtime_leaves_nothing_unsynced(script, left):
    """Files that are not synced when the runtime is closed are named, unless the disk had refused something."""
    script.history.record(1, CLOSED, "program")
    script.history.record(1, CLOSED, "program", detail=REFUSED)
    assert closed_well.check(script.history, left()) == []
    script.history.record(1, CLOSED, "program", detail="topics/1/0/x.log")
    (found,) = closed_well.check(script.history, left())
    assert "topics/1/0/x.log" in found.words
    assert closed_well.check(script.history, left(), Terms(beyond=True)) == []
