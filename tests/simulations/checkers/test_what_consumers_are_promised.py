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
    promptness,
)
from callboard.simulations.checkers.calm import Calm
from callboard.simulations.history.entry import BATCH, HELD, LAZY

TERMS = Terms(groups=("billing",), visibility_s={"billing": 10.0})


@pytest.fixture
def healthy(script):
    """A history in which nothing goes wrong, with one consumer."""
    script.history.healed()
    return script.member("joined", 900).at(1.0)


def test_it_is_calm_once_nothing_fails_any_more(script):
    """Before healing it never is, and after that not before what crashed has come back."""
    script.at(1.0).history.healed()
    script.at(2.0).event("IncarnationCrashed", "topics/orders/0").at(3.0).event(
        "ActorStarted", "topics/orders/0"
    )
    calm = Calm(script.history)
    assert calm.since(0.5) == float("inf")
    assert calm.since(1.5) == 1.0
    assert calm.since(9.0) == 3.0


# -- waiting


def test_who_waits_beside_a_message_is_found(healthy, left):
    """A message that was published, and that nobody has, does not lie beside a consumer that waits."""
    healthy.publish(0, 0).at(1.4).wait(1.0)
    assert promptness.check(healthy.history, left(), TERMS) == []
    healthy.at(1.6).wait(1.0)
    (found,) = promptness.check(healthy.history, left(), TERMS)
    assert "orders/0@0" in found.words


def test_what_goes_wrong_excuses_waiting(healthy, left):
    """After a crash it takes a moment until a message is handed out again."""
    healthy.publish(0, 0).at(1.3).event("IncarnationCrashed", "topics/orders/0").at(1.6).wait(1.0)
    assert promptness.check(healthy.history, left(), TERMS) == []


def test_a_message_may_have_been_fetched_for_who_does_not_wait(healthy, left):
    """While another consumer of the group is busy the message may be with it; once it has left it may not."""
    healthy.member("joined", 901, "w2").publish(0, 0).at(2.0).wait(1.0)
    assert promptness.check(healthy.history, left(), TERMS) == []
    healthy.member("left", 901, "w2").at(2.4).wait(1.0).at(2.6).wait(1.0)
    assert len(promptness.check(healthy.history, left(), TERMS)) == 1


def test_others_may_wait_too(healthy, left):
    """When both consumers wait neither has the message."""
    healthy.member("joined", 901, "w2").publish(0, 0).at(2.0).wait(1.0).wait(1.2, who="w2", life=901)
    assert len(promptness.check(healthy.history, left(), TERMS)) == 2


@pytest.mark.parametrize(
    ("verb", "end", "until"), [("release", "released", 0.0), ("nack", "nacked", 1.0), ("nack", "nacked", 2.0)]
)
def test_what_was_given_back_is_there_at_once(healthy, left, verb, end, until):
    """What was released is there from then on, what was nacked from the end of its delay on."""
    healthy.publish(0, 0).deliver(0, 0).settle(0, verb, end, until=until)
    late = max(1.0, until) + 0.7
    healthy.at(late - 0.4).wait(1.0)
    assert promptness.check(healthy.history, left(), TERMS) == []
    healthy.at(late).wait(1.0)
    assert len(promptness.check(healthy.history, left(), TERMS)) == 1


def test_what_a_consumer_held_is_there_when_it_leaves_or_its_lease_is_over(healthy, left):
    """However a consumer has left, what it held is handed to others; so is what ran out."""
    healthy.member("joined", 901, "w2").publish(0, 0).deliver(0, 0, who="w2", life=901)
    healthy.member("left", 901, "w2").at(1.6).wait(1.0)
    assert len(promptness.check(healthy.history, left(), TERMS)) == 1
    healthy.deliver(0, 0, until=5.0).at(5.4).wait(1.6)
    assert len(promptness.check(healthy.history, left(), TERMS)) == 1
    healthy.at(5.6).wait(1.6)
    assert len(promptness.check(healthy.history, left(), TERMS)) == 2


def test_what_is_settled_or_may_be_is_not_waited_for(healthy, left):
    """An ack that was begun may count."""
    healthy.publish(0, 0).deliver(0, 0).settle(0).publish(1, 1).deliver(1, 1).settle(1, "ack", "unsure")
    healthy.at(3.0).wait(1.0)
    assert promptness.check(healthy.history, left(), TERMS) == []


def test_a_consumer_without_room_waits_for_room(healthy, left):
    """What it holds is settled, or runs out, before it is handed more."""
    terms = Terms(groups=("billing",), max_in_flight=1)
    healthy.publish(0, 0).publish(1, 1).deliver(0, 0, until=3.0).at(3.2).wait(1.0)
    assert promptness.check(healthy.history, left(), terms) == []
    healthy.at(3.6).wait(1.0)
    assert len(promptness.check(healthy.history, left(), terms)) == 1


def test_the_first_of_a_key_waits_for_nothing(healthy, left):
    """In a group with order per key only the first message that is not settled must be handed out."""
    terms = Terms(groups=("billing",), keyed=("billing",))
    healthy.publish(0, 0).publish(1, 1).deliver(0, 0).at(3.0).wait(1.0)
    assert promptness.check(healthy.history, left(), terms) == []
    healthy.settle(0).at(4.0).wait(3.0)
    assert len(promptness.check(healthy.history, left(), terms)) == 1


def test_timeouts_are_kept(healthy, left):
    """`get(timeout=)` comes back empty neither before nor much later; one of 0 may look for a moment."""
    healthy.at(2.0).wait(1.0, kind="came to nothing", detail="1.0")
    healthy.wait(1.95, kind="came to nothing", detail="0.0")
    assert promptness.check(healthy.history, left(), TERMS) == []
    healthy.wait(1.5, kind="came to nothing", detail="1.0")
    healthy.wait(1.8, kind="came to nothing", detail="0.1")
    assert len(promptness.check(healthy.history, left(), TERMS)) == 2


def test_a_look_finds_what_is_there(healthy, left):
    """`get(timeout=0)` does not come back empty while a message has long been there, with nobody."""
    healthy.publish(0, 0).at(2.0).wait(2.0, kind="came to nothing", detail="0.0")
    assert len(promptness.check(healthy.history, left(), TERMS)) == 1


# -- leases


def test_what_is_handed_over_late_in_its_lease_is_found(healthy, left):
    """One message has half of its lease left, and a batch what its wait has left of that."""
    healthy.deliver(0, 0, until=6.0).at(20.0).deliver(1, 1, until=25.0, how=BATCH)
    assert freshness.check(healthy.history, left(), TERMS) == []
    healthy.deliver(2, 2, until=24.9)
    assert len(freshness.check(healthy.history, left(), TERMS)) == 1
    healthy.deliver(3, 3, until=24.9, how=BATCH)
    assert len(freshness.check(healthy.history, left(), TERMS)) == 2


def test_a_batch_may_be_late_while_something_fails(script, left):
    """Then it has some of its lease left, and never none."""
    script.deliver(0, 0, until=0.1, how=BATCH)
    assert freshness.check(script.history, left(), TERMS) == []
    script.deliver(1, 1, until=0.0, how=BATCH)
    assert len(freshness.check(script.history, left(), TERMS)) == 1


def test_an_ack_that_nobody_waits_for_is_made(healthy, left):
    """What was acked in time is not handed out again; what was acked late, or may have been given back, may be."""
    healthy.deliver(0, 0, until=2.0).at(1.95).settle(0, how=LAZY, end=None).at(3.0).deliver(0, 0, attempt=2)
    healthy.deliver(1, 1, until=9.0).settle(1, "release", "unsure").settle(1, how=LAZY, end=None)
    healthy.deliver(1, 1)
    assert lazy_acks.check(healthy.history, left()) == []
    healthy.deliver(2, 2, until=9.0).settle(2, how=LAZY, end=None).member("left", 900)
    healthy.deliver(2, 2, who="w2", attempt=2)
    assert len(lazy_acks.check(healthy.history, left())) == 1


def test_a_body_keeps_its_message(healthy, left):
    """While a body runs nobody else is handed its message, and it does not lose it, unless something goes wrong."""
    healthy.deliver(0, 0, until=2.0, how=HELD).at(9.0).settle(0, "ack", "lost")
    assert len(lost_leases.check(healthy.history, left())) == 1
    healthy.deliver(1, 1, until=10.0, how=HELD).at(12.0).deliver(1, 1, who="w2", life=901)
    assert len(one_holder.check(healthy.history, left())) == 1


def test_a_crash_may_take_a_message_from_a_body(healthy, left):
    """Its lease then counts until the deadline that the consumer was told."""
    healthy.deliver(0, 0, until=2.0, how=HELD).event("IncarnationCrashed", "renewals").at(9.0)
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
    promises = [checker.PROMISE for checker in (promptness, freshness, lazy_acks, batch_parts)]
    assert set(promises) <= set(CHECKERS)
