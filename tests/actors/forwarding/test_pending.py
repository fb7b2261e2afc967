"""What is pending on the two clocks."""

from __future__ import annotations

from callboard.actors.forwarding.pending import Pending
from callboard.actors.records.delayed_records import DELAY, INSTANT, DueTime
from callboard.actors.timers.commands import NEVER

WALL = 1_700_000_000_000_000


def add(pending: Pending, number: int, due: DueTime, now_s: float, now_us: int) -> None:
    """A record waits."""
    kind = INSTANT if due.is_instant else DELAY
    moment = kind, due.due_us, due.deadline_us or 0, due.run, due.delay_us
    pending.add([number], [moment], now_s=now_s, now_us=now_us)


def delay(seconds: float, *, now_s: float = 0.0, wall_us: int = WALL, run: int = 1) -> DueTime:
    """A delay that was asked for then."""
    us = round(seconds * 1e6)
    return DueTime(wall_us + us, round(now_s * 1e6) + us, run, us)


def test_a_delay_of_this_run_follows_the_monotonic_clock() -> None:
    """However the wall clock jumps before it is read."""
    pending = Pending(1)
    add(pending, 0, delay(5.0), 1.0, WALL + 3_600_000_000)
    assert pending.take(4.999, 9e9, 9) == []
    assert pending.next_deadline() <= 5.0
    assert pending.take(5.0, 0.0, 9) == [0]


def test_what_is_left_of_a_delay_of_an_earlier_run_is_told_by_the_wall_clock() -> None:
    """And never more than all of it, when that clock was set back."""
    pending = Pending(2)
    add(pending, 0, delay(5.0), 100.0, WALL + 2_000_000)
    add(pending, 1, delay(5.0), 100.0, WALL - 3_600_000_000)
    add(pending, 2, delay(5.0), 100.0, WALL + 3_600_000_000)
    assert pending.take(100.0, 0.0, 9) == [2]
    assert pending.take(102.999, 0.0, 9) == []
    assert pending.take(103.0, 0.0, 9) == [0]
    assert pending.take(104.999, 0.0, 9) == []
    assert pending.take(105.0, 0.0, 9) == [1]


def test_an_instant_follows_the_wall_clock() -> None:
    """Not the other one."""
    pending = Pending(1)
    add(pending, 0, DueTime(WALL + 5_000_000), 0.0, WALL)
    assert pending.next_deadline() == NEVER
    assert pending.take(1e6, WALL / 1e6 + 4.999, 9) == []
    assert pending.take(0.0, WALL / 1e6 + 5.0, 9) == [0]


def test_both_clocks_are_listed_in_the_order_of_ids() -> None:
    """From an id on, so many at most, with when each is due by the wall clock."""
    pending = Pending(1)
    for number in range(6):
        due = delay(10.0 + number) if number % 2 else DueTime(WALL + number)
        add(pending, number, due, 0.0, WALL)
    assert [row[0] for row in pending.listed(1, 3, 0.0, WALL)] == [2, 3, 4]
    assert dict(pending.listed(-1, 9, 5.0, WALL + 5_000_000))[1] == WALL + 11_000_000
    pending.cancel([3, 4])
    assert [row[0] for row in pending.listed(-1, 9, 0.0, WALL)] == [0, 1, 2, 5]
    assert (len(pending), pending.found([3, 5])) == (4, [5])


def test_ids_are_found_on_both_clocks_in_the_order_in_which_they_were_asked_for() -> None:
    """What was cancelled, or never waited, is left out."""
    pending = Pending(1)
    for number in range(6):
        due = delay(10.0 + number) if number % 2 else DueTime(WALL + number)
        add(pending, number, due, 0.0, WALL)
    pending.cancel([3, 4])
    assert pending.found([5, 4, 3, 0, 1, 77]) == [5, 0, 1]
