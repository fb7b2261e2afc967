"""Checkers of what is in the log: lost, altered, refused, offsets, keys, recovery."""

from datetime import UTC, datetime

import attrs
import pytest

from callboard.simulations.checkers import (
    Terms,
    closed_well,
    conservation,
    definite_failures,
    key_order,
    nothing_altered,
    nothing_lost,
    offsets,
    reading,
    recovery,
)
from callboard.simulations.history.entry import ALTERED
from callboard.simulations.history.surviving import Lost, PartitionLeft, Surviving
from callboard.simulations.scenarios.broker_workload import fingerprints


def test_a_publish_that_returned_is_where_its_receipt_says(script, left):
    """An acknowledged message that is in the log at its offset breaks nothing."""
    script.publish(0, 0).publish(1, 1)
    assert nothing_lost.check(script.history, left({0: 0, 1: 1})) == []


def test_an_acknowledged_message_that_is_missing_is_found(script, left):
    """An acknowledged message that is not in the log is a violation, and its publish is named."""
    script.publish(0, 0).publish(1, 1)
    (found,) = nothing_lost.check(script.history, left({0: 0}))
    assert found.promise == nothing_lost.PROMISE
    assert found.first.ids == (1,)


def test_another_message_at_the_offset_is_a_loss(script, left):
    """A receipt's offset that holds another message is a violation."""
    script.publish(0, 0)
    assert len(nothing_lost.check(script.history, left({0: 7}))) == 1


def test_retention_may_drop_what_lies_below_the_start(script, left):
    """What retention dropped is not lost."""
    script.publish(0, 0).publish(1, 1)
    assert nothing_lost.check(script.history, left({1: 1}, start=1), Terms(drops=True)) == []


def test_without_retention_a_log_begins_where_it_began(script, left):
    """Where nothing may be dropped, a log that begins later has lost what was before; damage must name it."""
    script.publish(0, 0).publish(1, 1)
    (found,) = nothing_lost.check(script.history, left({1: 1}, start=1))
    assert found.first.ids == (0,)
    assert len(nothing_lost.check(script.history, left({1: 1}, start=1), Terms(beyond=True))) == 1
    reported = left({1: 1}, start=1, damaged=(Lost(0, 0, "damaged"),))
    assert nothing_lost.check(script.history, reported, Terms(beyond=True)) == []


def test_leader_records_may_vanish_with_the_power_only(script, left):
    """A record at level leader survives everything but a later power cut."""
    script.publish(0, 0, acks="leader")
    assert len(nothing_lost.check(script.history, left({}))) == 1
    script.cut()
    assert nothing_lost.check(script.history, left({})) == []


@pytest.mark.parametrize("lost_with", [None, "the runtime", "its actor", "another actor"])
def test_a_flush_says_nothing_of_what_an_earlier_life_left(script, left, lost_with):
    """On a disk that failed, what a runtime or an actor could not sync at its end is not what a later one flushes."""
    script.publish(0, 0, acks="leader")
    if lost_with == "the runtime":
        script.history.record(1, closed_well.CLOSED, "program", detail=closed_well.REFUSED)
    elif lost_with is not None:
        partition = 0 if lost_with == "its actor" else 1
        script.history.record(1, "IncarnationCrashed", f"topics/orders/{partition}")
    operation = script.history.operation()
    script.history.record(1, "flush", "p1", operation, "orders")
    script.history.record(1, "flushed", "p1", operation, "orders")
    found = nothing_lost.check(script.history, left({}), Terms(leader_may_vanish=True))
    assert len(found) == (0 if lost_with in ("the runtime", "its actor") else 1)
    assert len(nothing_lost.check(script.history, left({}))) == 1


def test_what_was_flushed_is_stored(script, left):
    """A message that nobody waited for counts from the flush on."""
    script.publish(0, None, end="unsure", acks="none")
    assert nothing_lost.check(script.history, left({})) == []
    script.history.record(1, "flushed", "p1", topic="orders", ids=(0,))
    assert len(nothing_lost.check(script.history, left({}))) == 1
    assert nothing_lost.check(script.history, left({0: 0})) == []


def flush(script, number):
    """A message that nobody waited for, and a flush that returned after it."""
    script.publish(number, None, end="unsure", acks="none")
    script.history.record(1, "flushed", "p1", topic="orders", ids=(number,))


def test_what_was_flushed_may_be_dropped_where_it_lay(script, left):
    """Retention excuses a flushed message below the start of its partition; above it nothing does."""
    terms = Terms(drops=True, groups=("billing",))
    script.member("joined", 900)
    flush(script, 0)
    flush(script, 1)
    script.deliver(0, 0).deliver(5, 1)
    assert nothing_lost.check(script.history, left({6: 7}, start=6), terms) == []
    (found,) = nothing_lost.check(script.history, left({6: 7}, start=5), terms)
    assert found.first.ids == (1,)
    assert len(nothing_lost.check(script.history, left({6: 7}, start=6))) == 2


def test_what_was_flushed_and_handed_to_nobody_may_be_dropped_unread_only(script, left):
    """A group that waits keeps a message from being dropped; without one, or where it may be dropped unread, it may."""
    script.member("joined", 900)
    flush(script, 0)
    gone = left({6: 7}, start=6)
    waiting = Terms(drops=True, groups=("billing",))
    assert len(nothing_lost.check(script.history, gone, waiting)) == 1
    assert nothing_lost.check(script.history, gone, Terms(drops=True)) == []
    assert nothing_lost.check(script.history, gone, Terms(drops=True, drops_unread=True)) == []
    assert len(nothing_lost.check(script.history, left({0: 7}), Terms(drops=True, drops_unread=True))) == 1


def test_what_a_reader_met_may_be_dropped_where_it_lay(script, left):
    """Also when no consumer was handed it: who reads knows the place as well."""
    terms = Terms(drops=True, groups=("billing",))
    script.member("joined", 900)
    flush(script, 0)
    script.read(3, 0)
    assert nothing_lost.check(script.history, left({6: 7}, start=6), terms) == []
    assert len(nothing_lost.check(script.history, left({6: 7}, start=3), terms)) == 1


def test_what_was_published_before_a_group_had_joined_may_be_dropped(script, left):
    """In the same life of the machine: the partition may not have heard of the group when retention came by."""
    terms = Terms(drops=True, groups=("billing",))
    flush(script, 0)
    script.publish(1, 0)
    script.member("joined", 900)
    gone = left({6: 7}, start=6, group={"floor": 6, "pending": 1})
    assert nothing_lost.check(script.history, gone, terms) == []
    assert conservation.check(script.history, gone, terms) == []
    flush(script, 2)
    script.publish(3, 5)
    assert [found.first.ids for found in nothing_lost.check(script.history, gone, terms)] == [(2,)]
    (found,) = conservation.check(script.history, gone, terms)
    assert "offset 5 was dropped unread" in found.words


def test_what_was_flushed_lies_with_its_key(script, left):
    """A partition that has dropped something excuses only keys that were seen there."""
    terms = Terms(drops=True, drops_unread=True)
    script.publish(1, 3, key=b"here")
    operation = script.begin(0, key=b"here", acks="none")
    script.end(operation, 0, None, end="unsure", acks="none")
    script.history.record(1, "flushed", "p1", topic="orders", ids=(0,))
    here = left({3: 1}).partitions[0]
    other = PartitionLeft("orders", 1, start=9, end=9)
    assert len(nothing_lost.check(script.history, Surviving((here, other)), terms)) == 1
    assert nothing_lost.check(script.history, Surviving((attrs.evolve(here, start=3), other)), terms) == []


def test_beyond_the_promise_a_loss_must_be_reported(script, left):
    """Where more is damaged than promised, a lost message is fine if verify names it."""
    script.publish(0, 0).publish(1, 1)
    reported = left({1: 1}, damaged=(Lost(0, 0, "damage"),))
    assert len(nothing_lost.check(script.history, reported)) == 1
    assert nothing_lost.check(script.history, reported, Terms(beyond=True)) == []


def test_foreign_bytes_are_found(script, left):
    """Bytes that nobody published are a violation, delivered or stored."""
    script.publish(0, 0).deliver(0, 0)
    assert nothing_altered.check(script.history, left({0: 0})) == []
    script.deliver(0, -1)
    assert len(nothing_altered.check(script.history, left({0: -1}))) == 2


def test_bytes_under_another_key_are_foreign(script):
    """A message under a key that is not its own is altered."""
    number = script.history.message(b"value", b"key")
    assert script.history.identify(b"value", b"key") == number
    assert script.history.identify(b"value", b"other") == -1


def test_a_refused_message_is_never_stored(script, left):
    """What was refused definitely must not be in the log."""
    script.publish(0, None, end="refused")
    assert definite_failures.check(script.history, left({})) == []
    assert len(definite_failures.check(script.history, left({0: 0}))) == 1


def test_an_indefinite_message_may_be_stored_once_per_try(script, left):
    """After an indefinite error the message may be there or not; repeated, it may be there twice, not thrice."""
    script.publish(0, None, end="unsure").publish(0, 1)
    assert definite_failures.check(script.history, left({1: 0})) == []
    assert definite_failures.check(script.history, left({0: 0, 1: 0})) == []
    assert len(definite_failures.check(script.history, left({0: 0, 1: 0, 2: 0}))) == 1


def test_an_offset_shows_one_message_for_ever(script, left):
    """An offset that was seen with one message and shows another is a violation."""
    script.publish(0, 0).deliver(0, 0)
    assert offsets.check(script.history, left({0: 0})) == []
    script.deliver(0, 5)
    assert len(offsets.check(script.history, left({0: 0}))) == 1
    assert len(offsets.check(script.history, left({0: 5}))) == 2


def test_later_publishes_lie_behind(script, left):
    """A publish that began after another had returned has a higher offset."""
    script.publish(0, 4)
    script.publish(1, 3)
    (found,) = offsets.check(script.history, left({3: 1, 4: 0}, start=3))
    assert found.first.offsets == (3,)


def test_an_offset_that_readers_could_see_is_not_given_anew(script, left):
    """What is published after an opening lies behind all that readers could see before it, and so does the end."""
    script.publish(0, 0)
    script.history.record(0, "shown", topic="orders", partition=0, offsets=(2,))
    script.publish(1, 2)
    assert offsets.check(script.history, left({0: 0, 2: 1}, explained=(Lost(1, 1, "unsynced"),))) == []
    script.publish(2, 1)
    (found, *_) = offsets.check(script.history, left({0: 0, 1: 2, 2: 1}))
    assert found.first.offsets == (1,)


def test_a_log_that_ends_before_what_readers_could_see_is_found(script, left):
    """An opening that takes back an end that readers could see is found although nothing is published any more."""
    script.publish(0, 0)
    script.history.record(0, "shown", topic="orders", partition=0, offsets=(2,))
    assert [each.first for each in offsets.check(script.history, left({0: 0}))] == [None]
    assert offsets.check(script.history, left({0: 0}), Terms(beyond=True)) == []


def test_what_readers_saw_may_vanish_with_the_power_before_recovery_has_synced_it(script, left):
    """A power cut takes what was not synced, with its offsets, if it comes before the partition has recovered."""
    script.publish(0, 0)
    script.history.record(0, "shown", topic="orders", partition=0, offsets=(2,))
    script.event("ActorStarted", "topics/orders/1").cut()
    script.publish(2, 1)
    assert offsets.check(script.history, left({0: 0, 1: 2})) == []


def test_what_readers_saw_may_vanish_while_recovery_lacks_space(script, left):
    """A partition that is open without the space to recover has synced nothing of what readers saw."""
    script.publish(0, 0)
    script.history.record(0, "shown", topic="orders", partition=0, offsets=(2,))
    script.event("OpeningLacksSpace", "topics/orders/0").event("ActorStarted", "topics/orders/0").cut()
    assert offsets.check(script.history, left({0: 0})) == []


def test_what_readers_saw_outlives_the_power_once_a_publish_shows_that_there_was_space(script, left):
    """A partition that lacked space to recover has recovered when it stores something, and keeps what readers saw."""
    script.publish(0, 0)
    script.history.record(0, "shown", topic="orders", partition=0, offsets=(2,))
    script.event("OpeningLacksSpace", "topics/orders/0").event("ActorStarted", "topics/orders/0")
    script.publish(1, 2).cut()
    assert offsets.check(script.history, left({0: 0, 2: 1}, explained=(Lost(1, 1, "unsynced"),))) == []
    script.publish(2, 1)
    found = offsets.check(script.history, left({0: 0, 1: 2, 2: 1}))
    assert any("readers had seen" in each.words for each in found)


def test_what_was_recovered_outlives_the_power(script, left):
    """What readers saw and the partition has recovered is not given anew after a power cut."""
    script.publish(0, 0)
    script.history.record(0, "shown", topic="orders", partition=0, offsets=(2,))
    script.event("ActorStarted", "topics/orders/0").cut()
    assert len(offsets.check(script.history, left({0: 0}))) == 1
    script.publish(2, 1)
    assert len(offsets.check(script.history, left({0: 0, 1: 2}))) == 1


def test_publishes_that_overlap_may_come_in_any_order(script, left):
    """Of two publishes that were under way together, either may be first."""
    first, second = script.begin(0), script.begin(1)
    script.end(first, 0, 1).end(second, 1, 0)
    assert offsets.check(script.history, left({0: 1, 1: 0})) == []


def test_gaps_are_explained(script, left):
    """An offset without a record needs a reason in the log."""
    gap = {0: 0, 2: 1}
    assert len(offsets.check(script.history, left(gap))) == 1
    assert offsets.check(script.history, left(gap, explained=(Lost(1, 1, "gap"),))) == []
    damaged = left(gap, damaged=(Lost(1, 1, "damage"),))
    assert len(offsets.check(script.history, damaged)) == 1
    assert offsets.check(script.history, damaged, Terms(beyond=True)) == []


def test_offsets_rise_in_the_log(script, left):
    """A log whose offsets come twice, or fall, is a violation."""
    assert len(offsets.check(script.history, left({0: 0, 1: 1}, order=(0, 1, 1)))) == 1


def test_first_deliveries_of_a_key_are_in_order(script, left):
    """A lone consumer sees the messages of a key in order; what it sees again may come later."""
    script.publish(0, 0, key=b"k").publish(1, 1, key=b"k").member("joined", 1)
    script.deliver(0, 0).deliver(1, 1).deliver(0, 0, attempt=2)
    assert key_order.check(script.history, left({0: 0, 1: 1})) == []


def test_a_key_out_of_order_is_found(script, left):
    """A first delivery after that of a later message of its key is a violation."""
    script.publish(0, 0, key=b"k").publish(1, 1, key=b"k").member("joined", 1)
    script.deliver(1, 1).deliver(0, 0)
    assert len(key_order.check(script.history, left({0: 0, 1: 1}))) == 1


def test_consumers_side_by_side_promise_no_order(script, left):
    """Where two consumers share a group, first deliveries may overtake each other."""
    script.publish(0, 0, key=b"k").publish(1, 1, key=b"k").member("joined", 1).member("joined", 2, "w2")
    script.deliver(1, 1).deliver(0, 0, who="w2")
    assert key_order.check(script.history, left({0: 0, 1: 1})) == []


KEYED = Terms(keyed=("billing",))


def test_a_keyed_group_gets_a_message_when_the_earlier_ones_of_its_key_were_acked(script, left):
    """Whoever has it, and again after a power cut: an earlier message that was acked is not in the way."""
    script.publish(0, 0, key=b"k").publish(1, 1, key=b"k").publish(2, 2, key=b"other")
    script.deliver(0, 0).deliver(2, 2, who="w2").settle(0).deliver(1, 1, who="w2")
    script.cut().deliver(1, 1, attempt=2)
    assert key_order.check(script.history, left({0: 0, 1: 1, 2: 2}), KEYED) == []


@pytest.mark.parametrize("settled", ["nothing", "nack", "another's ack"])
def test_a_keyed_group_that_gets_a_message_too_early_is_found(script, left, settled):
    """While an earlier message of the key is out, was nacked, or was acked by a former holder only."""
    script.publish(0, 0, key=b"k").publish(1, 1, key=b"k").deliver(0, 0)
    if settled == "nack":
        script.settle(0, "nack", "nacked")
    elif settled == "another's ack":
        script.deliver(0, 0, who="w2", attempt=2).settle(0, "ack", "lost")
    script.deliver(1, 1, who="w2")
    found = left({0: 0, 1: 1})
    assert len(key_order.check(script.history, found, KEYED)) == 1
    assert key_order.check(script.history, found) == []


def test_a_second_recovery_changes_nothing(script, left):
    """Two recoveries in a row leave the same."""
    assert recovery.check(script.history, left(digests=("a", "a"))) == []
    assert len(recovery.check(script.history, left(digests=("a\nb", "a\nc")))) == 1


def test_a_second_recovery_leaves_every_byte_of_topics(script, left):
    """Files of topics that are written anew, appear or go are found, whatever records they hold; the catalog's may."""
    files = {"topics/a/0/1.log": b"records", "quarantine/b": b"torn", "catalog/1.log": b"topics", "lock": b""}
    before = "\n".join(fingerprints(files))
    for changed in (
        {"topics/a/0/1.log": b"Records"},
        {"topics/a/0/2.log": b""},
        {"quarantine/b": b"torn twice"},
    ):
        after = "\n".join(fingerprints(files | changed))
        (found,) = recovery.check(script.history, left(digests=(before, after)))
        assert next(iter(changed)) in found.words
    after = "\n".join(fingerprints(files | {"catalog/1.log": b"more", "lock": b"mine"}))
    assert recovery.check(script.history, left(digests=(before, after))) == []


def test_within_the_promise_nothing_is_damaged_after_recovery(script, left):
    """What verify calls damage is a violation unless more was broken than promised."""
    damaged = left(problems=("a file: damage",))
    assert recovery.check_damage(script.history, left()) == []
    assert len(recovery.check_damage(script.history, damaged)) == 1
    assert recovery.check_damage(script.history, damaged, Terms(beyond=True)) == []


def test_a_partition_that_crashed_promises_no_first_order(script, left):
    """After a crash of the partition a message may come when a lease that nobody had runs out."""
    script.publish(0, 0, key=b"k").publish(1, 1, key=b"k").member("joined", 1)
    script.event("IncarnationCrashed", "topics/orders/0").deliver(1, 1).deliver(0, 0)
    assert key_order.check(script.history, left({0: 0, 1: 1})) == []


def test_readers_see_every_record_in_order(script, left):
    """Nothing that was stored before is passed over, nothing comes twice; what is gone in the end may be missing."""
    for number in range(4):
        script.publish(number, number)
    kept = left({0: 0, 1: 1, 3: 3})
    script.read(0, 0).read(1, 1).read(3, 3)
    assert reading.check(script.history, kept) == []
    script.read(0, 0, life=1).read(3, 3, life=1)
    assert len(reading.check(script.history, kept)) == 1
    script.read(1, 1, life=1)
    assert len(reading.check(script.history, kept)) == 2


def test_headers_and_timestamps_that_come_back_otherwise_are_altered(script):
    """A message is known again only with all that it was published with."""
    then, later = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    number = script.history.message(b"value", b"key", {"a": b"1"}, then)
    identify = script.history.identify
    assert identify(b"value", b"key", {"a": b"1"}, then) == number
    assert identify(b"value", b"key") == number
    assert {
        identify(b"value", b"key", {}, then),
        identify(b"value", b"key", {"a": b"2"}, then),
        identify(b"value", b"key", {"a": b"1"}, later),
        identify(b"value", None, {"a": b"1"}, then),
    } == {ALTERED}
