"""Consumers that wait until a partition is back."""

from __future__ import annotations

from callboard.actors.partition.awaited import PRUNE_AT_LEAST, AwaitedPartitions, RestartWaiters


def test_each_waiter_is_woken_once_and_forgotten() -> None:
    """A wake reaches everybody who was added since the wake before."""
    waiters = RestartWaiters()
    first, second = AwaitedPartitions[int](), AwaitedPartitions[int]()
    waiters.add(first, 3)
    waiters.add(second, 4)
    waiters.wake()
    assert ([3], [4]) == (first.take(), second.take())
    waiters.wake()
    assert ([], []) == (first.take(), second.take())


def test_waiters_that_are_gone_leave_nothing_behind() -> None:
    """However many gave up waiting, only those who still wait take space, and they are woken."""
    waiters, waiting = RestartWaiters(), [AwaitedPartitions[int]() for _ in range(5)]
    for flag in waiting:
        waiters.add(flag, 0)
    for _ in range(10 * PRUNE_AT_LEAST):
        waiters.add(AwaitedPartitions[int](), 0)
    assert len(waiters) <= PRUNE_AT_LEAST
    waiters.wake()
    assert [[0]] * 5 == [awaited.take() for awaited in waiting]
