"""Consumers that wait until a partition is back."""

from __future__ import annotations

import gc

from callboard.actors.partition.port import PartitionPort
from callboard.consumer.notices import AwaitedPartitions


def test_each_waiter_is_woken_once_and_forgotten() -> None:
    """A wake reaches everybody who was added since the wake before, and is still there."""
    port = PartitionPort("orders", 0)
    first, second = AwaitedPartitions[PartitionPort](), AwaitedPartitions[PartitionPort]()
    for waiter in (first, second, first, AwaitedPartitions[PartitionPort]()):
        port.add_restart_waiter(waiter)
    del waiter
    gc.collect()
    assert len(port._restart_waiters) == 2
    port.wake_restart_waiters()
    assert ([port], [port]) == (first.take(), second.take())
    port.wake_restart_waiters()
    assert ([], []) == (first.take(), second.take())
