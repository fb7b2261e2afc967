"""Consumers that wait until a partition is back."""

from __future__ import annotations

from callboard.actors.partition.awaited import PRUNE_AT_LEAST, AwaitedPartitions, RestartWaiters


def test_each_waiter_is_woken_once_and_forgotten() -> None:
    """A wake reaches everybody who was added since the wake before."""
    waiters, first, second = RestartWaiters(), AwaitedPartitions(), AwaitedPartitions()
    waiters.add(first)
    waiters.add(second)
    waiters.wake(3)
    assert ([3], [3]) == (first.take(), second.take())
    waiters.wake(4)
    assert ([], []) == (first.take(), second.take())


def test_waiters_that_are_gone_leave_nothing_behind() -> None:
    """However many gave up waiting, only those who still wait take space, and they are woken."""
    waiters, waiting = RestartWaiters(), [AwaitedPartitions() for _ in range(5)]
    for flag in waiting:
        waiters.add(flag)
    for _ in range(10 * PRUNE_AT_LEAST):
        waiters.add(AwaitedPartitions())
    assert len(waiters) <= PRUNE_AT_LEAST
    waiters.wake(0)
    assert [[0]] * 5 == [awaited.take() for awaited in waiting]
