"""Checkers of those who wait: what can be delivered is delivered, what is asked is answered."""

import pytest

from callboard.simulations.checkers import Terms, promptness, retention

KEYED = Terms(keyed=("billing",))
ONE = Terms(max_in_flight=1)


@pytest.fixture
def waiting(script):
    """A consumer that was handed message 0 at once, acked it, and waits."""
    script.member("joined", 900).ask().publish(0, 0).deliver(0, 0, until=2.0)
    return script


def found(script, left, terms=None):
    """What is broken when nothing more happens for a long time, in words."""
    script.at(script.time + 1000.0).event("ActorStarted", "elsewhere")
    return [violation.words for violation in promptness.check(script.history, left(), terms or Terms())]


def test_who_waits_is_handed_what_is_published(script, left):
    """A message that is synced is to be delivered while the only consumer waits; one that is delivered is not late."""
    script.member("joined", 900).ask().publish(0, 0).deliver(0, 0).settle(0)
    assert found(script, left) == []
    script.ask(life=900).publish(1, 1)
    (words,) = found(script, left)
    assert "orders/0@1 could be delivered" in words


def test_a_group_does_not_wait_for_what_was_dropped_before_it(script, left):
    """Retention drops what no group has to settle: a group that is made later finds the rest only."""
    script.publish(0, 0).publish(1, 1)
    script.history.record(0, retention.DROPPED, "retention", 0, "orders", 0, offsets=(0,), attempts=(9, 0, 0))
    script.member("joined", 900).ask()
    (words,) = found(script, left)
    assert "orders/0@1" in words


def test_what_was_dropped_before_its_publisher_heard_of_it_is_not_due(script, left):
    """A record that another publisher's makes too old in the same commit is told as stored when it is gone."""
    script.history.record(0, retention.DROPPED, "retention", 0, "orders", 0, offsets=(0,), attempts=(9, 0, 0))
    script.publish(0, 0).member("joined", 900).ask()
    assert found(script, left) == []


def test_an_ack_of_one_of_two_deliveries_frees_the_room_of_one(script, left):
    """A message that came back with the same attempt is held twice: nobody can say which delivery an ack settles."""
    script.member("joined", 900).publish(0, 0).publish(1, 1).publish(2, 2)
    script.ask(life=900).deliver(0, 0, until=1e6).ask(life=900).deliver(0, 0, until=1e6)
    script.ask(life=900).deliver(1, 1, until=1e6).settle(0).ask(life=900)
    assert found(script, left, Terms(max_in_flight=2)) == []


def test_a_busy_consumer_may_have_fetched_ahead(waiting, left):
    """Nobody sees what lies fetched with a consumer that is busy, unless it may have one message at a time."""
    waiting.member("joined", 901, "w2").ask(901, "w2").publish(1, 1)
    assert found(waiting, left) == []


def test_a_consumer_whose_hands_are_full_hides_nothing(waiting, left):
    """When one of two is busy with the only message that it may have, the other is to be handed the next."""
    waiting.member("joined", 901, "w2").ask(901, "w2").publish(1, 1)
    assert any("orders/0@1" in words for words in found(waiting, left, ONE))


@pytest.mark.parametrize(
    ("verb", "end", "until"),
    [("release", "released", 0.0), ("nack", "nacked", 3.0), ("extend", "extended", 1.0)],
)
def test_what_comes_back_is_handed_to_who_waits(waiting, left, verb, end, until):
    """What is given back, nacked with a delay that is over, or shortened, the other is to be handed."""
    waiting.member("joined", 901, "w2").ask(901, "w2").settle(0, verb, end, until=until)
    assert any("orders/0@0" in words for words in found(waiting, left, ONE))


@pytest.mark.parametrize(("settled", "is_late"), [(None, False), (1, True), (2, True)])
def test_a_message_that_is_held_twice_takes_room_twice(script, left, settled, is_late):
    """Who does not know that it gave a message back, and is handed it again, has it twice until it settles either."""
    script.member("joined", 900).ask().publish(0, 0).deliver(0, 0, until=9.0)
    script.settle(0, "nack", "unsure", attempt=1).ask().deliver(0, 0, attempt=2, until=9.0).publish(1, 1)
    if settled is not None:
        script.settle(0, "ack", "lost", attempt=settled)
    script.ask().at(3.0).event("ActorStarted", "elsewhere")
    late = promptness.check(script.history, left(), Terms(max_in_flight=2))
    assert any("orders/0@1" in violation.words for violation in late) == is_late


def test_a_busy_consumer_may_have_room_for_what_nobody_sees(waiting, left):
    """What it may have settled takes room for certain only until it knows that: it may have fetched ahead."""
    waiting.at(1.9).settle(0, "ack", "unsure").ask().publish(1, 1).deliver(1, 1, until=9.0)
    waiting.member("joined", 901, "w2").ask(901, "w2").publish(2, 2).at(3.5).event(
        "ActorStarted", "elsewhere"
    )
    assert promptness.check(waiting.history, left(), Terms(max_in_flight=2)) == []


def test_what_comes_back_in_time_is_not_late(waiting, left):
    """The other is handed it within the slack, also after a delay."""
    waiting.member("joined", 901, "w2").ask(901, "w2").settle(0, "nack", "nacked", until=3.0)
    waiting.at(3.1).deliver(0, 0, attempt=2, who="w2", life=901)
    assert found(waiting, left, ONE) == []


def test_an_ack_that_may_have_counted_makes_nothing_ready(waiting, left):
    """Nobody demands what may be settled; what a dead consumer held comes back, also when it was given back."""
    waiting.settle(0, "ack", "unsure").member("left", 900).member("joined", 901, "w2").ask(901, "w2")
    assert found(waiting, left) == []


def test_what_a_consumer_held_that_left_is_ready(waiting, left):
    """It died with a message in its hands: who waits is to be handed that."""
    waiting.member("left", 900).member("joined", 901, "w2").ask(901, "w2")
    assert any("orders/0@0" in words for words in found(waiting, left))


def test_a_lease_that_is_renewed_does_not_run_out(waiting, left):
    """A message that is held while a body runs is nobody else's."""
    waiting.settle(0).ask().publish(1, 1).deliver(1, 1, until=3.0, detail="receive")
    waiting.member("joined", 901, "w2").ask(901, "w2")
    assert found(waiting, left, ONE) == []


def test_what_was_leased_with_a_message_that_is_held_is_held_too(waiting, left):
    """While a body runs its lease is renewed, with all that it has; it ends a whole lease after the body at most."""
    waiting.settle(0).publish(1, 1).publish(2, 2).ask().deliver(1, 1, until=2.0).ask()
    waiting.deliver(2, 2, until=2.0, detail="receive").at(50.0).settle(2).ask()
    assert promptness.check(waiting.at(51.9).event("ActorStarted", "elsewhere").history, left()) == []
    assert any("orders/0@1" in words for words in found(waiting, left))


def test_a_body_that_ends_does_not_cut_short_an_extension(waiting, left):
    """What was extended while a body ran is its consumer's until then, with all that was leased together."""
    waiting.settle(0).publish(1, 1).publish(2, 2).publish(3, 3).ask().deliver(1, 1, until=2.0).ask()
    waiting.deliver(2, 2, until=2.0).ask().deliver(3, 3, until=2.0, detail="receive")
    waiting.settle(1, "extend", "extended", until=80.0).at(50.0).settle(3).ask()
    assert promptness.check(waiting.at(79.9).event("ActorStarted", "elsewhere").history, left()) == []
    late = found(waiting, left)
    assert any("orders/0@1 could be delivered to billing from 80.000 s" in words for words in late)


def test_an_extension_does_not_cut_short_what_a_body_runs_with(waiting, left):
    """Who extends one message has another, with which a body runs, for as long as that takes: it has no more room."""
    waiting.settle(0).ask().publish(1, 1).deliver(1, 1, until=9.0, detail="receive").ask().publish(2, 2)
    waiting.deliver(2, 2, until=9.0).settle(2, "extend", "extended", until=2.0).settle(2).ask()
    waiting.publish(3, 3).deliver(3, 3, until=9.0).ask().publish(4, 4).at(5.0).event(
        "ActorStarted", "elsewhere"
    )
    assert promptness.check(waiting.history, left(), Terms(max_in_flight=2)) == []


@pytest.mark.parametrize("kind", ["fault lasts", "IncarnationCrashed"])
def test_what_is_disturbed_may_be_late(waiting, left, kind):
    """While a fault lasts, or an actor is down, nothing is demanded."""
    waiting.settle(0).ask().publish(1, 1).event(kind, "topics/orders/0", delay=2000.0)
    assert found(waiting, left) == []


def test_after_a_disturbance_everything_is_due(waiting, left):
    """An actor that has started again delivers."""
    waiting.settle(0).ask().publish(1, 1).event("IncarnationCrashed", "topics/orders/0")
    waiting.event("ActorRestarted", "topics/orders/0", delay=0.1).at(0.2).event(
        "ActorStarted", "topics/orders/0"
    )
    assert any("orders/0@1" in words for words in found(waiting, left))


def test_a_crash_of_the_partition_gives_leases_new_time(script, left):
    """A lease that was forgotten ends its whole time after the partition is back, and no later."""
    script.member("joined", 900).ask().publish(0, 0).deliver(0, 0, until=2.0).ask().at(1.5)
    script.event("IncarnationCrashed", "topics/orders/0").event("ActorStarted", "topics/orders/0")
    assert promptness.check(script.at(3.4).event("ActorStarted", "elsewhere").history, left()) == []
    assert any("orders/0@0" in words for words in found(script, left))


def test_with_order_per_key_only_the_first_unsettled_message_is_due(waiting, left):
    """What lies behind a message that is not settled may wait for it."""
    waiting.publish(1, 1).settle(0, "nack", "nacked", until=1e6).ask()
    assert found(waiting, left, KEYED) == []
    waiting.deliver(0, 0, attempt=2).settle(0).ask()
    (words,) = found(waiting, left, KEYED)
    assert "orders/0@1" in words


def test_unsynced_records_may_vanish_with_the_power(waiting, left):
    """What nobody was told to be synced is not demanded after a power cut."""
    waiting.settle(0).publish(1, 1, acks="leader").cut()
    waiting.member("joined", 901, "w2").ask(901, "w2")
    assert found(waiting, left) == []


def test_who_asks_is_answered(script, left):
    """A publish and a settlement that nobody answers, with nothing disturbed, is broken; a lazy ack has no answer."""
    script.begin(0)
    script.settle(0, "ack", None, detail="lazy").settle(1, "nack", None)
    words = found(script, left)
    assert len(words) == 1
    assert "began to publish" in words[0]
    script.publish(3, 3)
    assert len(found(script, left)) == 2


def test_giving_up_and_asking_again_is_waiting(waiting, left):
    """A consumer that asks with short timeouts, one after the other, is one that waits."""
    waiting.settle(0).publish(1, 1)
    for tenth in range(1, 20):
        waiting.at(tenth / 10).ask().at(tenth / 10 + 0.1).member("gave up", 900)
    assert any("orders/0@1" in words for words in found(waiting, left))
