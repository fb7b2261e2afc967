"""Those who sleep until a partition is back, and what becomes of those who are gone."""

from __future__ import annotations

from callboard.actors.partition.awaited import SIFT_AT_LEAST, AwaitedPartitions, Sleepers


def test_each_sleeper_is_woken_once_and_forgotten() -> None:
    """A wake reaches everybody who was added since the wake before."""
    sleepers, first, second = Sleepers(), AwaitedPartitions(), AwaitedPartitions()
    sleepers.add(first)
    sleepers.add(second)
    sleepers.wake(3)
    assert ([3], [3]) == (first.take(), second.take())
    sleepers.wake(4)
    assert ([], []) == (first.take(), second.take())


def test_sleepers_that_are_gone_leave_nothing_behind() -> None:
    """However many gave up waiting, only those who still wait take space, and they are woken."""
    sleepers, waiting = Sleepers(), [AwaitedPartitions() for _ in range(5)]
    for flag in waiting:
        sleepers.add(flag)
    for _ in range(10 * SIFT_AT_LEAST):
        sleepers.add(AwaitedPartitions())
    assert len(sleepers) <= SIFT_AT_LEAST
    sleepers.wake(0)
    assert [[0]] * 5 == [awaited.take() for awaited in waiting]
