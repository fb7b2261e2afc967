"""Looking inside a runtime: what is as it should be is passed, and what is not is told."""

from __future__ import annotations

from heapq import heapify
from types import SimpleNamespace
from typing import Any

import pytest
import trio.testing

from callboard.actors.timers.commands import Cancel
from callboard.simulations.world import bounds


class Life:
    """A machine as far as it is looked at."""

    dead = False

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime


@pytest.fixture
async def busy(autojump_clock: Any, world: Any) -> Any:
    """A runtime with a topic, and two groups of which one keeps order per key; some messages are leased."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for number in range(6):
            await topic.publish(b"%d" % number, key=b"%d" % (number % 2))
        async with (
            topic.subscribe("group") as consumer,
            topic.subscribe("keyed", ordering="key") as keyed,
        ):
            held = await consumer.get(), await keyed.get()
            partition = runtime._session.mirror.topics()
            (port,) = next(iter(partition)).ports
            core = port.ref._cell.incarnation._actor._core
            yield SimpleNamespace(life=Life(runtime), port=port, core=core, consumer=consumer, held=held)


async def test_a_runtime_that_works_is_passed(busy: Any) -> None:
    """Nothing is found; a dead machine, and one without a runtime, is not looked at."""
    assert bounds.inside(busy.life, 100) is None
    assert bounds.left_in_hand(busy.life.runtime, ("orders",)) is None
    assert bounds.of_consumer(busy.consumer) is None
    assert bounds.inside(Life(None), 100) is None


async def test_bytes_that_nobody_has_are_told(busy: Any) -> None:
    """A client has taken credit, and no commit and no mailbox has the bytes; other topics' are not looked at."""
    (account,) = busy.life.runtime.topic("orders")._publisher.accounts()
    account.credit.waiting_bytes += 10
    assert "10 bytes of credit are taken at orders/0" in bounds.left_in_hand(busy.life.runtime, ("orders",))
    assert bounds.left_in_hand(busy.life.runtime, ("refunds",)) is None
    account.credit.waiting_bytes = account.credit._limit + 1
    assert "bytes of credit are taken" in bounds.inside(busy.life, 100)
    account.credit.waiting_bytes = 0


async def test_a_lease_that_runs_out_unnoticed_is_told(busy: Any) -> None:
    """A deadline that is in no heap breaks an invariant of the delivery; one that no alarm watches is due."""
    (group, _) = busy.core.states
    expiry, group.delivery.offsets.deadlines = group.delivery.offsets.deadlines, []
    assert "run out unnoticed" in bounds.inside(busy.life, 100)
    group.delivery.offsets.deadlines = expiry
    heapify(expiry)
    armed, busy.core.deliveries.armed = busy.core.deliveries.armed, 1e9
    alarm = busy.port.ref._cell.incarnation._actor._due
    deadline, alarm.deadline = alarm.deadline, 1e9
    assert "nothing is watched" in bounds.inside(busy.life, 100)
    busy.core.deliveries.armed, alarm.deadline = armed, deadline


async def test_a_timer_that_never_comes_is_told(busy: Any) -> None:
    """The wheel knows of an armed timer, or a notice is on its way; and it does not sleep past it."""
    await trio.testing.wait_all_tasks_blocked()
    wheel = busy.life.runtime._session.system.actor("timer-wheel")._cell.incarnation._actor
    partition = busy.port.ref._cell.incarnation._actor
    alarm, owner = partition._due, partition._timers._peer
    wakes_at, wheel._wakes_at = wheel._wakes_at, alarm.deadline + 0.1
    assert "the wheel sleeps until" in bounds.inside(busy.life, 100)
    wheel._wakes_at = wakes_at
    wheel._armed.cancel(Cancel(owner.number, alarm.number))
    assert "and the wheel knows of inf" in bounds.inside(busy.life, 100)
    partition._timers.tell(alarm)
    assert bounds.inside(busy.life, 100) is None


async def test_a_wheel_that_has_crashed_is_not_looked_at(busy: Any) -> None:
    """Until its tasks have ended it may sleep past what reached it last: owners arm again at the next one."""
    await trio.testing.wait_all_tasks_blocked()
    life = busy.life.runtime._session.system.actor("timer-wheel")._cell.incarnation
    life._actor._wakes_at = busy.port.ref._cell.incarnation._actor._due.deadline + 0.1
    assert "the wheel sleeps until" in bounds.inside(busy.life, 100)
    life._nursery.cancel_scope.cancel()
    assert bounds.inside(busy.life, 100) is None


async def test_a_runtime_that_gives_up_is_not_looked_at(autojump_clock: Any, world: Any) -> None:
    """Its actors are gone one after the other, while programs still have it."""
    async with world.open() as runtime:
        await runtime.create_topic("orders")
        life = Life(runtime)
    assert bounds.inside(life, 100) is None


async def test_a_consumer_that_is_not_notified_is_told(busy: Any) -> None:
    """A consumer waits, messages are ready, and nobody is notified."""
    (group, _) = busy.core.states
    group.delivery.release(group.delivery.offsets.next_lease_id - 1, [(0, 6)], 0.0)
    group.waiting[77] = None
    assert "consumer 77 waits and 0 are notified" in bounds.inside(busy.life, 100)
    del group.waiting[77]


async def test_a_key_that_is_out_twice_is_told(busy: Any) -> None:
    """Of the records of a key that were seen, only the first unsettled one is out."""
    (_, keyed) = busy.core.states
    key, offset = next(iter(keyed.choice._heads.items()))
    keyed.choice._heads[key] = offset + 2
    assert "(KO1)" in bounds.inside(busy.life, 100)
    keyed.choice._heads[key] = offset


async def test_counts_of_a_consumer_are_told(busy: Any) -> None:
    """A consumer that counts more in flight than it has."""
    busy.consumer._fetcher.leases.in_flight += 1
    assert "(LE1)" in bounds.of_consumer(busy.consumer)
    busy.consumer._fetcher.leases.in_flight -= 1
