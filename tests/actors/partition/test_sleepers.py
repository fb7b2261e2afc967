"""Flags that partitions set, and what becomes of those whose owners are gone."""

from __future__ import annotations

from callboard.actors.partition.commands import SIFT_AT_LEAST, Flag, Sleepers


def test_each_flag_is_set_once_and_forgotten() -> None:
    """A wake sets every flag that was added since the wake before."""
    sleepers, first, second = Sleepers(), Flag(), Flag()
    sleepers.add(first)
    sleepers.add(second)
    sleepers.wake(3)
    assert ([3], [3]) == (first.take(), second.take())
    sleepers.wake(4)
    assert ([], []) == (first.take(), second.take())


def test_flags_that_nobody_holds_leave_nothing_behind() -> None:
    """However many gave up waiting, only those who still wait take space, and they are woken."""
    sleepers, waiting = Sleepers(), [Flag() for _ in range(5)]
    for flag in waiting:
        sleepers.add(flag)
    for _ in range(10 * SIFT_AT_LEAST):
        sleepers.add(Flag())
    assert len(sleepers) <= SIFT_AT_LEAST
    sleepers.wake(0)
    assert [[0]] * 5 == [flag.take() for flag in waiting]
