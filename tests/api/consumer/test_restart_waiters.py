"""Consumers that wait until a partition is back."""

from __future__ import annotations

import gc

import pytest

from callboard.actors.kernel import ActorSystem, MailboxSpec, notify_all
from callboard.actors.partition.account import Account
from callboard.actors.partition.commands import StateChanged, TopicDeleted
from callboard.actors.partition.port import PartitionPort
from callboard.consumer.notices import AwaitedPartitions
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


@pytest.mark.parametrize("notice", [StateChanged("running"), TopicDeleted()])
def test_each_waiter_is_woken_once_and_forgotten(notice: object) -> None:
    """A wake reaches everybody who was added since the wake before, and is still there."""
    system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
    port = PartitionPort("orders", "t1", 0, system.register("orders/0", MailboxSpec(1)).ref)
    account = Account(port)
    first, second = AwaitedPartitions[PartitionPort](), AwaitedPartitions[PartitionPort]()
    gone = AwaitedPartitions[PartitionPort]()
    for waiter in (first, second, first, gone):
        account.wait_until_back(waiter)
    notify_all(port.ref, StateChanged("recovering"))
    assert ([], []) == (first.take(), second.take())
    del waiter, gone
    gc.collect()
    notify_all(port.ref, notice)
    assert ([port], [port]) == (first.take(), second.take())
    notify_all(port.ref, notice)
    assert ([], []) == (first.take(), second.take())
    assert account.is_deleted == account.ended_some == isinstance(notice, TopicDeleted)
