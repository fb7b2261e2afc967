"""Those who sleep until a partition is back, and what becomes of those who are gone."""

from __future__ import annotations

from callboard.actors.partition.awaited import SIFT_AT_LEAST, AwaitedPartitions, Sleepers


def test_each_sleeper_is_woken_once_and_forgotten() -> None:
    """A wake reaches everybody who was added since the wake before."""
    sleepers, first, second = Sleepers(), AwaitedPartitions[int](), AwaitedPartitions[int]()
    sleepers.add(first, 3)
    sleepers.add(second, 4)
    sleepers.wake()
    assert ([3], [4]) == (first.take(), second.take())
    sleepers.wake()
    assert ([], []) == (first.take(), second.take())


def test_sleepers_that_are_gone_leave_nothing_behind() -> None:
    """However many gave up waiting, only those who still wait take space, and they are woken."""
    sleepers, waiting = Sleepers(), [AwaitedPartitions[int]() for _ in range(5)]
    for flag in waiting:
        sleepers.add(flag, 0)
    for _ in range(10 * SIFT_AT_LEAST):
        sleepers.add(AwaitedPartitions[int](), 0)
    assert len(sleepers) <= SIFT_AT_LEAST
    sleepers.wake()
    assert [[0]] * 5 == [awaited.take() for awaited in waiting]
