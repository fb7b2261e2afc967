"""Consumers that wait until a partition is back."""

from __future__ import annotations

import gc

import pytest

from callboard.actors.clients.account import Account
from callboard.actors.clients.port import PartitionPort
from callboard.actors.kernel import ActorSystem, MailboxSpec, notify_all
from callboard.actors.partition.commands import StateChanged
from callboard.consumer.notices import AwaitedPartitions
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


@pytest.mark.parametrize("is_deleted", [False, True])
def test_each_waiter_is_woken_once_and_forgotten(is_deleted: bool) -> None:
    """A wake reaches everybody who was added since the wake before, and is still there."""
    system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
    port = PartitionPort("orders", "t1", 0, system.register("orders/0", MailboxSpec(1)))
    account = Account(port)

    def wake() -> None:
        account.topic_deleted() if is_deleted else notify_all(port.ref, StateChanged("running"))

    first, second = AwaitedPartitions[PartitionPort](), AwaitedPartitions[PartitionPort]()
    gone = AwaitedPartitions[PartitionPort]()
    for waiter in (first, second, first, gone):
        account.wait_until_back(waiter)
    notify_all(port.ref, StateChanged("recovering"))
    assert ([], []) == (first.take(), second.take())
    del waiter, gone
    gc.collect()
    wake()
    assert ([port], [port]) == (first.take(), second.take())
    wake()
    assert ([], []) == (first.take(), second.take())
    assert account.is_deleted == account.ended_some == is_deleted
