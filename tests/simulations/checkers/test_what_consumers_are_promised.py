"""Checkers of what holds at once: who waits is handed what there is, with time left, and keeps it while a body runs."""

from __future__ import annotations

import pytest

from callboard.simulations.checkers import (
    CHECKERS,
    Terms,
    attempts,
    batch_parts,
    freshness,
    in_flight,
    late_acks,
    lazy_acks,
    lost_leases,
    one_holder,
    patience,
    promptness,
)
from callboard.simulations.checkers.calm import Calm
from callboard.simulations.history.entry import BATCH, LAZY, RECEIVING

TERMS = Terms(groups=("billing",), visibility_s={"billing": 10.0})


@pytest.fixture
def healthy(script):
    """A history in which nothing goes wrong, with one consumer."""
    script.history.healed()
    return script.member("joined", 900).at(1.0)


def test_it_is_calm_while_nothing_is_disturbed(script):
    """Neither while a fault lasts, nor before what crashed has come back."""
    script.event("fault lasts", "Stall", delay=2.0)
    script.at(3.0).event("IncarnationCrashed", "topics/orders/0").at(4.0).event(
        "ActorStarted", "topics/orders/0"
    )
    calm = Calm(script.history)
    assert [calm.since(time) for time in (1.0, 2.5, 3.5, 9.0)] == [2.0, 2.0, float("inf"), 4.0]


# -- waiting


def test_timeouts_are_kept(script, left):
    """`get(timeout=)` comes back empty neither before nor much later; one of 0 may look for a moment."""
    script.at(2.0).give_up(1.0, "1.0").give_up(1.95, "0.0").give_up(0.0)
    assert patience.check(script.history, left()) == []
    script.give_up(1.5, "1.0").give_up(1.8, "0.1")
    assert len(patience.check(script.history, left())) == 2


def test_nobody_is_woken_while_the_loop_is_busy(script, left):
    """Who gives up when the loop is free again is in time; who gives up later, or after another fault, is not."""
    script.at(2.0).history.note("fault", "the loop is busy for 0.7 s", who="BusyLoop")
    script.give_up(1.0, "0.5")
    assert patience.check(script.history, left()) == []
    script.at(2.1).history.note("fault", "a disk is slow", who="SlowDisk")
    script.give_up(1.0, "0.5")
    assert len(patience.check(script.history, left())) == 1


def test_what_was_tried_in_vain_takes_room(script, left):
    """A consumer that may have settled what it has, and is not told so, waits for room until the lease is over."""
    terms = Terms(groups=("billing",), max_in_flight=1)
    script.history.healed()
    script.publish(0, 0).publish(1, 1).member("joined", 900).ask().deliver(0, 0, until=9.0)
    script.settle(0, "ack", "unsure").ask().at(5.0).event("nothing", "")
    assert promptness.check(script.history, left(), terms) == []


def test_an_old_delivery_that_is_settled_gives_no_room(script, left):
    """Only what the consumer has now does."""
    terms = Terms(groups=("billing",), max_in_flight=1)
    script.history.healed()
    script.publish(0, 0).publish(1, 1).member("joined", 900).ask().deliver(0, 0, until=1.0).at(1.0)
    script.deliver(0, 0, attempt=2, until=9.0).settle(0, "ack", "lost", attempt=1).ask()
    script.at(5.0).publish(2, 2)
    assert promptness.check(script.history, left(), terms) == []
    script.settle(0, "ack", "acked", attempt=2).ask().at(6.0).publish(3, 3)
    assert len(promptness.check(script.history, left(), terms)) == 1


@pytest.mark.parametrize("is_busy", [True, False])
def test_who_leaves_may_have_hidden_a_message(script, left, is_busy):
    """What a busy consumer had fetched ahead can be delivered from when it left; who waited hid nothing."""
    script.history.healed()
    script.member("joined", 900).ask().member("joined", 901, "w2").ask(901, "w2").publish(0, 0)
    if is_busy:
        script.deliver(0, 0, who="w2", life=901, until=9.0).publish(1, 1)
    script.at(3.0).member("left", 901, "w2").at(3.1).publish(2, 2)
    assert (promptness.check(script.history, left(), Terms(groups=("billing",))) == []) == is_busy
    script.at(4.0).publish(3, 3)
    assert promptness.check(script.history, left(), Terms(groups=("billing",))) != []


def test_tasks_that_share_a_consumer_take_turns(script, left):
    """One that waits while another fills its batch waits for that, too."""
    script.history.healed()
    script.publish(0, 0).member("joined", 900).ask(until=0.8).ask().at(0.9).publish(1, 1)
    assert promptness.check(script.history, left(), Terms(groups=("billing",))) == []
    script.at(1.4).publish(2, 2)
    assert len(promptness.check(script.history, left(), Terms(groups=("billing",)))) == 1


# -- leases


def test_what_is_handed_over_late_in_its_lease_is_found(healthy, left):
    """A message has half of its lease left, and so has a batch, whatever fails."""
    healthy.deliver(0, 0, until=6.0).at(20.0).deliver(1, 1, until=25.0, detail=BATCH)
    assert freshness.check(healthy.history, left(), TERMS) == []
    healthy.deliver(2, 2, until=24.9)
    assert len(freshness.check(healthy.history, left(), TERMS)) == 1
    healthy.deliver(3, 3, until=24.9, detail=BATCH)
    assert len(freshness.check(healthy.history, left(), TERMS)) == 2


def test_an_ack_that_nobody_waits_for_is_made(healthy, left):
    """What was acked in time is not handed out again; what was acked late, or may have been given back, may be."""
    healthy.deliver(0, 0, until=2.0).at(1.95).settle(0, detail=LAZY, end=None).at(3.0).deliver(
        0, 0, attempt=2
    )
    healthy.deliver(1, 1, until=9.0).settle(1, "release", "unsure").settle(1, detail=LAZY, end=None)
    healthy.deliver(1, 1)
    healthy.deliver(3, 3, until=9.0).deliver(4, 4, until=9.0).settle(4, "extend", end=None)
    healthy.settle(3, detail=LAZY, end=None).deliver(3, 3, attempt=2)
    assert lazy_acks.check(healthy.history, left()) == []
    healthy.deliver(2, 2, until=9.0).settle(2, detail=LAZY, end=None).member("left", 900)
    healthy.deliver(2, 2, who="w2", attempt=2)
    assert len(lazy_acks.check(healthy.history, left())) == 1


def test_a_body_keeps_its_message(healthy, left):
    """While a body runs nobody else is handed its message, and it does not lose it, unless something goes wrong."""
    healthy.deliver(0, 0, until=2.0, detail=RECEIVING).at(9.0).settle(0, "ack", "lost")
    assert len(lost_leases.check(healthy.history, left())) == 1
    healthy.deliver(1, 1, until=10.0, detail=RECEIVING).at(12.0).deliver(1, 1, who="w2", life=901)
    assert len(one_holder.check(healthy.history, left())) == 1


def test_a_crash_may_take_a_message_from_a_body(healthy, left):
    """Its lease then counts until the deadline that the consumer was told."""
    healthy.deliver(0, 0, until=2.0, detail=RECEIVING).event("IncarnationCrashed", "topics/orders/0").at(9.0)
    healthy.deliver(0, 0, who="w2", life=901).settle(0, "ack", "lost")
    assert lost_leases.check(healthy.history, left()) == []
    assert one_holder.check(healthy.history, left()) == []


def test_extending_may_shorten_a_lease(healthy, left):
    """From then on all that was leased together may be another's at the new end, and counts no longer as in flight."""
    healthy.deliver(0, 0, until=9.0).deliver(1, 1, until=9.0).settle(0, "extend", "extended", until=2.0)
    healthy.at(3.0).deliver(1, 1, who="w2", life=901).deliver(2, 2).settle(0, "ack", "lost")
    assert one_holder.check(healthy.history, left()) == []
    assert lost_leases.check(healthy.history, left()) == []
    assert in_flight.check(healthy.history, left(), Terms(max_in_flight=2)) == []


def test_an_old_delivery_is_settled_in_vain(healthy, left):
    """What a consumer had before, and was handed again since, is lost rightly; what it has now is not."""
    healthy.deliver(0, 0, until=2.0).at(2.0).deliver(0, 0, attempt=2, until=5.0)
    healthy.settle(0, "ack", "lost", attempt=1)
    assert lost_leases.check(healthy.history, left()) == []
    healthy.settle(0, "ack", "lost", attempt=2)
    assert len(lost_leases.check(healthy.history, left())) == 1


def test_a_release_does_not_count(healthy, left):
    """After it comes the same number; who was handed the message before it was told may have nacked it."""
    healthy.deliver(0, 0).settle(0, "release", "released", attempt=1).deliver(0, 0)
    assert attempts.check(healthy.history, left()) == []
    healthy.settle(0, "release", "released", attempt=1).deliver(0, 0, attempt=2)
    assert len(attempts.check(healthy.history, left())) == 1


def test_an_ack_of_several_may_be_late_for_one(healthy, left):
    """Only the messages that another was handed meanwhile are lost."""
    history = healthy.deliver(0, 0, until=2.0).deliver(1, 1, until=2.0).at(3.0).history
    healthy.deliver(1, 1, who="w2", life=901)
    operation = history.operation()
    place = ("orders", 0, "billing")
    history.record(1, "ack", "w1", operation, *place, offsets=(0, 1))
    history.record(1, "acked", "w1", operation, *place, offsets=(0,))
    history.record(1, "lost", "w1", operation, *place, offsets=(1,))
    assert late_acks.check(history, left()) == []
    history.record(1, "acked", "w1", operation, *place, offsets=(1,))
    assert len(late_acks.check(history, left())) == 1


# -- batches that are published


def test_a_batch_out_of_order_is_found(script, left):
    """In its receipts, and in the log; what was published twice may lie anywhere."""
    script.publish_batch((0, 1, 2), (0, 1, 2))
    assert batch_parts.check(script.history, left({0: 0, 1: 1, 2: 2})) == []
    assert len(batch_parts.check(script.history, left({0: 0, 1: 2, 2: 1}))) == 1
    script.publish_batch((3, 4), (4, 3))
    assert len(batch_parts.check(script.history, left({0: 0, 1: 1, 2: 2}))) == 1
    script.publish_batch((0, 1, 2), (5, 6, 7))
    assert len(batch_parts.check(script.history, left({0: 1, 1: 0}))) == 1


def test_a_message_in_another_partition_is_found(script, left):
    """A publisher's choice counts before the key."""
    script.publish(0, 0, key=b"k")
    assert batch_parts.check(script.history, left({0: 0})) == []
    script.history.message(b"chosen", partition=1)
    number = script.history.message(b"chosen", partition=1)
    assert len(batch_parts.check(script.history, left({1: number}))) == 1


def test_they_are_promises():
    """All of these are checked in every run."""
    promises = [checker.PROMISE for checker in (patience, freshness, lazy_acks, batch_parts)]
    assert set(promises) <= set(CHECKERS)
