"""Checkers of deliveries: attempts, settled acks, leases, conservation, liveness."""

import pytest

from callboard.actors.notices import DamageFound
from callboard.simulations.checkers import (
    CHECKERS,
    Terms,
    altered_settings,
    attempts,
    check_all,
    closed_well,
    conservation,
    delays,
    enforce,
    in_flight,
    late_acks,
    liveness,
    lost_leases,
    one_holder,
    retention,
    settled_stays_settled,
)
from callboard.simulations.history.surviving import Lost
from callboard.simulations.violations import Violation


def test_attempts_rise_with_failures(script, left):
    """The second delivery after a nack is the second attempt."""
    script.deliver(0, 0).settle(0, "nack", "nacked").deliver(0, 0, attempt=2)
    assert attempts.check(script.history, left()) == []


@pytest.mark.parametrize("attempt", [0, 1, 4])
def test_attempts_that_cannot_be(script, left, attempt):
    """After a nacked first attempt the next is neither 0, nor 1 again, nor 4 within a second."""
    script.deliver(0, 0).settle(0, "nack", "nacked").at(1.0).deliver(0, 0, attempt=attempt)
    (found,) = attempts.check(script.history, left())
    assert found.first.attempts == (attempt,)


def test_leases_that_nobody_saw_count_by_boots_alone(script, left):
    """An attempt may be higher by one per boot, and by none for the time that passed."""
    script.deliver(0, 0).cut().at(30.0).deliver(0, 0, attempt=3)
    assert attempts.check(script.history, left()) == []
    script.at(90.0).deliver(0, 0, attempt=5)
    assert len(attempts.check(script.history, left())) == 1


def test_a_message_has_no_attempts_from_before_it_was_published(script, left):
    """However long the run has lasted: no consumer can have leased it before."""
    script.at(1000.0).publish(0, 0).deliver(0, 0, attempt=2)
    assert len(attempts.check(script.history, left())) == 1
    script.at(1040.0).publish(1, 1).at(1080.0).deliver(1, 1, attempt=2)
    assert len(attempts.check(script.history, left())) == 2


def test_a_runtime_that_ended_may_have_voided_a_lease(script, left):
    """Opened anew on the same machine it voids what it leased before, once per time; other remarks excuse nothing."""
    script.history.note("note", "all is well")
    script.deliver(0, 0, attempt=2)
    assert len(attempts.check(script.history, left())) == 1
    script.history.note("note", "the runtime ended: DiskFull")
    script.deliver(1, 1, attempt=2)
    assert len(attempts.check(script.history, left())) == 1
    script.deliver(2, 2, attempt=3)
    assert len(attempts.check(script.history, left())) == 2


def test_a_nack_of_which_nobody_was_told_may_count_though_the_message_is_given_back(script, left):
    """A nack that was cancelled may be handled before the release that follows it; a release alone never counts."""
    script.deliver(0, 0).settle(0, "nack", None).settle(0, "release", "released").deliver(0, 0, attempt=2)
    assert attempts.check(script.history, left()) == []
    script.deliver(0, 0, attempt=1)
    assert len(attempts.check(script.history, left())) == 1
    script.deliver(1, 1).settle(1, "release", "released").deliver(1, 1, attempt=2)
    assert len(attempts.check(script.history, left())) == 2


@pytest.mark.parametrize(
    ("detail", "may_be"), [("", False), (closed_well.REFUSED, True), (closed_well.CRASHED, True)]
)
def test_a_lease_may_be_void_when_closing_could_not_release_it(script, left, detail, may_be):
    """Closing releases what was fetched ahead; where nobody could write that, opening voids it, which counts once."""
    script.deliver(0, 0).settle(0, "release", "released")
    script.history.record(1, closed_well.CLOSED, "program", detail=detail)
    script.deliver(0, 0, attempt=2)
    assert (attempts.check(script.history, left()) == []) == may_be
    if not may_be:
        return
    script.settle(0, "release", "released").deliver(0, 0, attempt=3)
    assert len(attempts.check(script.history, left())) == 1


def test_a_sync_that_failed_may_take_attempts_for_whoever_reads_the_disk_again(script, left):
    """The number may fall when the runtime was opened again after a failed sync, and not before that."""
    script.deliver(0, 0).settle(0, "nack", "nacked").deliver(0, 0, attempt=2).fault("FailVerb:sync:EIO")
    script.history.note("note", "the runtime ended: StorageError")
    script.deliver(0, 0, attempt=1)
    assert attempts.check(script.history, left()) == []
    script.history.note("note", "the runtime ended: StorageError")
    script.deliver(0, 0, attempt=2).deliver(0, 0, attempt=1)
    assert len(attempts.check(script.history, left())) == 1


def test_a_lease_is_lost_too_early(script, left):
    """Who settles in time is not told that the lease is lost; who is late, or has settled before, may be."""
    script.deliver(0, 0, until=5.0).deliver(1, 1, until=5.0).deliver(2, 2, until=5.0).at(4.0)
    script.settle(1, "ack", "unsure").settle(1, "ack", "lost")
    script.at(6.0).settle(2, "ack", "lost")
    assert lost_leases.check(script.history, left()) == []
    script.at(4.0).settle(0, "ack", "lost")
    assert len(lost_leases.check(script.history, left())) == 1


def test_a_lease_that_was_extended_is_not_lost_before(script, left):
    """The deadline that counts is the last that the consumer was told."""
    script.deliver(0, 0, until=5.0).settle(0, "extend", "extended", until=9.0).at(8.0).settle(
        0, "ack", "lost"
    )
    assert len(lost_leases.check(script.history, left())) == 1


def test_a_failed_sync_takes_no_leases(script, left):
    """What a failed sync took out of the journal is given back after a crash."""
    script.deliver(0, 0, until=5.0).fault("FailVerb:sync:EIO").settle(0, "ack", "lost")
    assert len(lost_leases.check(script.history, left())) == 1


def test_an_ack_counts_after_somebody_else_was_handed_the_message(script, left):
    """It counts when the message was not leased again; after that it must be lost."""
    script.deliver(0, 0, until=1.0).at(2.0).settle(0)
    script.deliver(1, 1, until=3.0).at(4.0).deliver(1, 1, who="w2", life=901).settle(1, "ack", "lost")
    assert late_acks.check(script.history, left()) == []
    script.deliver(2, 2).deliver(2, 2, who="w2", life=901).settle(2)
    assert len(late_acks.check(script.history, left())) == 1


def test_a_consumer_holds_too_much(script, left):
    """What is settled, or has run out, is not in its hands any more."""
    terms = Terms(max_in_flight=2)
    script.deliver(0, 0, until=5.0).deliver(1, 1).settle(1).deliver(2, 2).at(6.0).deliver(3, 3)
    assert in_flight.check(script.history, left(), terms) == []
    script.deliver(4, 4)
    assert len(in_flight.check(script.history, left(), terms)) == 1
    assert in_flight.check(script.history, left()) == []


def test_a_delay_ends_too_early(script, left):
    """A nacked message does not come again before its delay has passed, but for a power cut."""
    script.deliver(0, 0).settle(0, "nack", "nacked", until=2.0).at(2.0).deliver(0, 0, attempt=2)
    script.settle(0, "nack", "nacked", until=4.0).cut().deliver(0, 0, attempt=2)
    assert delays.check(script.history, left()) == []
    script.settle(0, "nack", "nacked", until=6.0).at(5.9).deliver(0, 0, attempt=3)
    assert len(delays.check(script.history, left())) == 1


def test_a_clock_that_jumps_while_a_nack_is_under_way_moves_its_delay(script, left):
    """It may be written before the clock jumps, and answered after that."""
    script.deliver(0, 0)
    operation, place = script.history.operation(), ("orders", 0, "billing")
    script.history.record(1, "nack", "w1", operation, *place, offsets=(0,), until=6.0)
    script.history.record(0, "fault", "JumpClock", detail="wall time jumps forward by 1 s")
    script.history.record(1, "nacked", "w1", operation, *place, offsets=(0,))
    script.deliver(0, 0, attempt=2)
    assert delays.check(script.history, left()) == []
    script.settle(0, "nack", "nacked", until=6.0).at(5.9).deliver(0, 0, attempt=3)
    assert len(delays.check(script.history, left())) == 1


def test_a_release_does_not_count(script, left):
    """After a release the same attempt comes again."""
    script.deliver(0, 0).settle(0, "release", "released").deliver(0, 0, attempt=1)
    assert attempts.check(script.history, left()) == []


def test_nothing_is_delivered_after_its_ack(script, left):
    """Once an ack has returned the group does not see the message again."""
    script.deliver(0, 0).settle(0)
    assert settled_stays_settled.check(script.history, left()) == []
    script.cut().deliver(0, 0, attempt=2)
    (found,) = settled_stays_settled.check(script.history, left())
    assert found.first.attempts == (2,)


@pytest.mark.parametrize("end", ["unsure", "lost", None])
def test_an_ack_that_may_not_have_happened_promises_nothing(script, left, end):
    """After an ack that ended badly, or not at all, the message may come again."""
    script.deliver(0, 0).settle(0, end=end).deliver(0, 0, attempt=2)
    assert settled_stays_settled.check(script.history, left()) == []


def test_two_consumers_never_hold_one_message(script, left):
    """A delivery while somebody else's lease lasts is a violation; after it ended it is none."""
    script.deliver(0, 0, until=30.0).at(10.0).deliver(0, 0, who="w2", life=901)
    assert len(one_holder.check(script.history, left())) == 1


@pytest.mark.parametrize("how", ["runs out", "settles", "leaves", "dies"])
def test_a_lease_that_ended_may_be_given_to_another(script, left, how):
    """A lease ends when it runs out, when its consumer begins to settle or leaves, and with the machine."""
    script.deliver(0, 0, until=30.0)
    if how == "settles":
        script.settle(0, "nack", None)
    elif how == "leaves":
        script.member("left", 900)
    elif how == "dies":
        script.cut()
    script.at(30.0 if how == "runs out" else 10.0).deliver(0, 0, who="w2", life=901)
    assert one_holder.check(script.history, left()) == []


@pytest.mark.parametrize(("time", "until", "broken"), [(10.0, 20.0, 1), (10.0, 15.0, 0), (2.0, 31.0, 0)])
def test_an_altered_visibility_timeout_bounds_later_leases(script, left, time, until, broken):
    """No lease lasts longer than the new timeout, but those that were given before."""
    terms = Terms(visibility_s={"billing": 5.0})
    script.deliver(0, 0, until=30.0).at(1.0)
    script.history.record(
        1, "group altered", "administrator", group="billing", until=31.0 if time < 5.0 else 11.0
    )
    script.cut().at(time).deliver(1, 1, until=until)
    assert len(altered_settings.check(script.history, left(), terms)) == broken


def test_the_sums_add_up(script, left):
    """Acked messages are settled, the others pending."""
    script.publish(0, 0).publish(1, 1).deliver(0, 0).settle(0)
    group = {"floor": 1, "ready": 1, "pending": 1}
    assert conservation.check(script.history, left({0: 0, 1: 1}, group=group)) == []


@pytest.mark.parametrize(
    "group",
    [
        {"floor": 2, "pending": 0},  # the second was never acked
        {"floor": 0, "ready": 2, "pending": 2},  # the first was
        {"floor": 1, "ready": 0, "leased": 1, "pending": 1},  # nobody lives to hold it
        {"floor": 1, "ready": 2, "pending": 1},
    ],
)
def test_sums_that_do_not_add_up(script, left, group):
    """A state of the group that does not follow from what was acked is a violation."""
    script.publish(0, 0).publish(1, 1).deliver(0, 0).settle(0)
    assert len(conservation.check(script.history, left({0: 0, 1: 1}, group=group))) == 1


def test_what_retention_drops_unread_is_reported(script, left):
    """Dropping what was not settled is fine where the topic says so and the group counts it."""
    script.publish(0, 0)
    surviving = left({0: 0}, group={"floor": 1, "pending": 0, "lost_records": 1})
    assert len(conservation.check(script.history, surviving)) == 1
    assert conservation.check(script.history, surviving, Terms(drops_unread=True)) == []


def test_what_retention_dropped_while_a_group_joined_is_nobodys(script, left):
    """Its publisher may hear of it after the consumer; what was dropped later was kept for the group."""
    script.history.record(1, retention.DROPPED, "retention", topic="orders", partition=0, offsets=(0,))
    script.member("joined", 1).publish(0, 0).publish(1, 1)
    group = {"floor": 2, "pending": 0}
    (found,) = conservation.check(script.history, left({}, start=2, group=group))
    assert "offset 1 was dropped unread" in found.words
    assert conservation.check(script.history, left({}, start=1, group={"floor": 1, "pending": 0})) == []


def test_what_was_told_to_be_lost_may_turn_up(script, left):
    """Beyond the promise a record that an event told to be lost is settled, though the disk shows it again."""
    script.publish(0, 0).publish(1, 1)
    surviving = left({0: 0, 1: 1}, group={"floor": 2, "pending": 0})
    script.history.event(
        1, DamageFound(f"topics/{surviving.partitions[0].label}", "f", 0, 0, "", is_new=True)
    )
    assert len(conservation.check(script.history, surviving, Terms(beyond=True))) == 1
    script.history.event(
        1, DamageFound(f"topics/{surviving.partitions[0].label}", "f", 1, 1, "", is_new=True)
    )
    assert conservation.check(script.history, surviving, Terms(beyond=True)) == []
    assert len(conservation.check(script.history, surviving)) == 1


def test_what_damage_took_from_the_beginning_is_named(script, left):
    """Beyond the promise a log may begin later when damage is named for all that a group had not settled."""
    script.member("joined", 900).publish(0, 0).publish(1, 1)
    group = {"floor": 1, "ready": 1, "pending": 1}
    assert (
        len(conservation.check(script.history, left({1: 1}, start=1, group=group), Terms(beyond=True))) == 1
    )
    reported = left({1: 1}, start=1, group=group, damaged=(Lost(0, 0, "damaged"),))
    assert conservation.check(script.history, reported, Terms(beyond=True)) == []
    assert len(conservation.check(script.history, reported)) == 1


def test_what_a_power_cut_may_have_taken_was_not_dropped_unread(script, left):
    """A record at level `leader` may be gone with the power before retention passes its offset; others were there."""
    script.member("joined", 900).publish(0, 0, acks="leader").publish(1, 1).cut()
    dropped = left({2: 2}, start=2, group={"floor": 2, "pending": 1})
    (found,) = conservation.check(script.history, dropped)
    assert "offset 1 was dropped unread" in found.words


def test_what_a_failing_disk_may_have_taken_was_not_dropped_unread(script, left):
    """A record at level `leader` that no sync took may be gone with the runtime; one at level `all` was there."""
    script.member("joined", 900).publish(0, 0, acks="leader").publish(1, 1)
    dropped = left({2: 2}, start=2, group={"floor": 2, "pending": 1})
    (found,) = conservation.check(script.history, dropped)
    assert "offset 0 was dropped unread" in found.words
    (found,) = conservation.check(script.history, dropped, Terms(leader_may_vanish=True))
    assert "offset 1 was dropped unread" in found.words


def test_a_partition_that_fails_to_recover_is_found(script, left):
    """Nothing can be summed up of it; beyond the promise that is fine where verify says what is damaged."""
    failed = left({}, state="failed")
    assert len(conservation.check(script.history, failed)) == 1
    assert len(conservation.check(script.history, failed, Terms(beyond=True))) == 1
    damaged = left({}, state="failed", problems=("a file: damage",))
    assert conservation.check(script.history, damaged, Terms(beyond=True)) == []
    assert len(conservation.check(script.history, damaged)) == 1


def test_everything_is_settled_in_time(script, left):
    """After healing nothing is pending, and the last ack came in time."""
    terms = Terms(groups=("billing",), liveness_s=60.0)
    script.publish(0, 0).history.healed()
    script.at(50.0).deliver(0, 0).settle(0)
    assert liveness.check(script.history, left({0: 0}, group={"floor": 1, "pending": 0}), terms) == []


def test_what_is_pending_or_late_is_found(script, left):
    """Messages that are pending in the end, groups that are missing, and late acks are violations."""
    terms = Terms(groups=("billing",), liveness_s=60.0)
    script.publish(0, 0).history.healed()
    assert len(liveness.check(script.history, left({0: 0}, group={"floor": 0, "pending": 1}), terms)) == 1
    assert len(liveness.check(script.history, left({0: 0}), terms)) == 1
    script.at(61.0).deliver(0, 0).settle(0)
    assert len(liveness.check(script.history, left({0: 0}, group={"floor": 1, "pending": 0}), terms)) == 1


def test_the_first_violation_is_raised(script, left):
    """`enforce` raises the violation that shows first in the history."""
    script.publish(0, 0).deliver(0, 0).settle(0).deliver(0, 0, attempt=2)
    surviving = left({0: 0}, group={"floor": 1, "pending": 0})
    found = check_all(script.history, surviving)
    assert [violation.promise for violation in found] == [settled_stays_settled.PROMISE]
    with pytest.raises(Violation) as raised:
        enforce(script.history, surviving)
    assert raised.value.promise in CHECKERS
