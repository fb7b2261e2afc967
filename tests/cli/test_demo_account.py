"""The demo's account catches what it promises to catch: histories tampered with, one by one."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.demo.account import DemoHistory, Left, acknowledged_events, parse_line, percentiles
from callboard.demo.stage import WorkFailure, plan_act
from callboard.simulations.entropy import SeededEntropy

DIGESTS = array("Q", [100, 101, 102, 103])
KEY_A, KEY_B = 7, 8
STORED = [(0, 0, 0, 100, KEY_A), (0, 1, 1, 101, KEY_A), (0, 2, 3, 103, KEY_A), (1, 0, 2, 102, KEY_B)]
RECORD = """\
S 0 1 2 3
P 0 0 0 1 1 2 3
P 1 0 2
Q 1500
D 0 0 1 2
H 0 0 1 2
L 100 200 300
K 0 0 1 2
D 1 0
H 1 0
K 1 0"""


def _account(
    stored=STORED,
    record=RECORD,
    later="",
    *,
    killed=False,
    left=Left(),
    delayed=(),
    redriven=(),
    dead=(),
):
    history = DemoHistory(DIGESTS, delayed)
    for place in stored:
        history.add_stored(*place, appended_us=1_000_000)
    for place in redriven:
        history.add_stored(*place, redriven=True)
    for letter in dead:
        history.add_dead(*letter)
    history.add_process(record.splitlines(), killed=killed)
    history.add_process(later.splitlines(), killed=False)
    return history.account(left)


def test_an_untouched_history_balances():
    """Everything published, stored, handled and acknowledged: no problem, and the sums are right."""
    account = _account()
    assert account.balanced
    assert (account.events, account.stored, account.acknowledged, account.delivered) == (4, 4, 4, 4)
    assert (account.lost, account.altered, account.out_of_order, account.redelivered) == (0, 0, 0, 0)
    assert account.publish_ms_p50 == 1.5
    assert account.handled_ms_p99 == 0.3


def test_an_acknowledged_event_missing_from_the_log_is_lost():
    """A receipt without its record is a loss, and named."""
    account = _account(stored=STORED[:3])
    assert account.lost >= 1
    assert any("event 2 was acknowledged at 1@0" in problem for problem in account.problems)


def test_an_event_that_is_elsewhere_than_its_receipt_says_is_lost():
    """A record at another place than the receipt's does not fulfil it."""
    account = _account(stored=[*STORED[:3], (1, 1, 2, 102, KEY_B)])
    assert not account.balanced
    assert account.lost >= 1


def test_a_stored_message_that_nobody_handled_is_lost():
    """Stored, and never with a worker to the end."""
    account = _account(record=RECORD.replace("H 1 0\nK 1 0", ""))
    assert account.lost == 1
    assert account.problems == ["DA4: 1@0 was never handled"]


def test_an_altered_record_is_caught_by_its_digest():
    """Other bytes in the log than in the input."""
    account = _account(stored=[(0, 0, 0, 999, KEY_A), *STORED[1:]])
    assert account.altered == 1
    assert not account.balanced


@pytest.mark.parametrize("event", [None, 4, -1])
def test_a_record_that_is_no_event_of_the_input_is_caught(event):
    """A stranger in the log counts as altered."""
    account = _account(stored=[*STORED, (1, 1, event, 1, KEY_B)])
    assert account.altered == 1
    assert not account.balanced


def test_a_message_altered_on_its_way_to_a_worker_is_caught():
    """A worker's own finding counts."""
    account = _account(later="X 0 1")
    assert account.altered == 1
    assert not account.balanced


def test_records_out_of_order_within_a_key_are_caught():
    """A later event of a key before an earlier one."""
    stored = [(0, 0, 1, 101, KEY_A), (0, 1, 0, 100, KEY_A), *STORED[2:]]
    account = _account(stored=stored, record=RECORD.replace("P 0 0 0 1 1 2 3", "P 0 0 1 1 0 2 3"))
    assert account.out_of_order == 1
    assert not account.balanced


def test_a_repeated_publish_is_counted_and_not_judged():
    """An event stored again, by a publish repeated after an indefinite error, is no disorder if it was handled."""
    again = "E 0\nD 0 3\nH 0 3\nK 0 3"
    account = _account(stored=[*STORED[:3], (0, 3, 0, 100, KEY_A), STORED[3]], later=again)
    assert account.balanced
    assert (account.stored, account.stored_twice, account.publish_errors) == (5, 1, 1)


def test_a_delivery_after_the_awaited_acknowledgement_is_caught():
    """What was acknowledged for sure must never come again."""
    account = _account(later="D 0 1\nH 0 1\nK 0 1")
    assert account.delivered_after_acknowledgement == 1
    assert account.redelivered == 1
    assert not account.balanced


def test_a_redelivery_before_the_acknowledgement_is_no_problem():
    """At least once is what is promised."""
    account = _account(record=RECORD.replace("D 1 0\n", "D 1 0\nD 1 0\n"))
    assert account.redelivered == 1
    assert account.balanced


def test_what_is_not_settled_does_not_balance():
    """The group must have nothing left, nothing may wait, and no dead letter stay."""
    assert _account().balanced
    assert not _account(left=Left(unsettled=1)).balanced
    assert not _account(left=Left(delayed=1)).balanced
    assert not _account(left=Left(dead=1)).balanced


def test_an_event_never_acknowledged_to_its_publisher_does_not_balance():
    """Stored is not enough: somebody must have been told."""
    account = _account(record=RECORD.replace("P 1 0 2\n", ""))
    assert account.problems == ["DA1: 1 events were never acknowledged to their publisher"]


def test_crashes_without_a_restart_do_not_balance():
    """A supervisor that does nothing is noticed; a restart satisfies."""
    assert not _account(later="C 0").balanced
    assert _account(later="C 0\nR 0").balanced


def test_what_was_under_way_at_the_kill_is_in_doubt():
    """Sent without a receipt at the kill: in doubt; found below the reopened end: stored."""
    killed = RECORD.replace("P 0 0 0 1 1 2 3\n", "P 0 0 0\n").replace("P 1 0 2\n", "")
    later = "O 0 2\nO 1 0\nS 1 2 3\nP 0 1 1\nP 0 2 3\nP 1 0 2"
    account = _account(record=killed, later=later, killed=True)
    assert account.balanced
    assert (account.in_doubt_at_kill, account.in_doubt_stored, account.published_before_kill) == (3, 1, 1)


DIED = RECORD.replace("H 1 0\nK 1 0", "J 1 0\nN 1 0")
AGAIN = "D 1 1\nH 1 1\nK 1 1"
REDRIVEN = [(1, 1, 2, 102, KEY_B)]
DEAD = [(1, 0, 102)]


def test_a_dead_letter_that_was_redriven_and_handled_balances():
    """It is stored once more; the sums add up."""
    account = _account(record=DIED, later=AGAIN, redriven=REDRIVEN, dead=DEAD)
    assert account.balanced
    assert (account.stored, account.handled, account.dead_lettered, account.redriven) == (5, 4, 1, 1)
    assert (account.dead_rejected, account.dead_failed, account.stored_twice) == (1, 0, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dead": []}, "was never handled"),
        ({"dead": DEAD * 2}, "was forwarded twice"),
        ({"dead": [(1, 0, 1)]}, "is not what event 2 was"),
        ({"dead": [*DEAD, (1, 9, 102)]}, "is of no event"),
        ({"dead": [*DEAD, (0, 0, 100)]}, "is a dead letter and was acknowledged"),
        ({"redriven": [], "later": ""}, "became a dead letter 1 times, was redriven 0 times"),
        (
            {"redriven": [*REDRIVEN, (1, 2, 2, 102, KEY_B)]},
            "became a dead letter 1 times, was redriven 2 times",
        ),
        ({"later": AGAIN + "\nD 1 0"}, "DA5: 1@0 was delivered after it was settled"),
    ],
)
def test_dead_letters_that_are_lost_doubled_or_altered_are_caught(change, words):
    """Whatever goes wrong between a rejection and its redrive."""
    account = _account(**({"record": DIED, "later": AGAIN, "redriven": REDRIVEN, "dead": DEAD} | change))
    assert any(words in problem for problem in account.problems), account.problems


def _delayed(due_us, **more):
    return _account(record=RECORD.replace("P 1 0 2", f"W 2 {due_us}"), delayed={2}, **more)


def test_delayed_events_must_not_come_early_or_twice():
    """When they are due, and as often as they were published."""
    account = _delayed(990_000)
    assert account.balanced
    assert (account.delayed, account.late_ms_p50) == (1, 10.0)
    assert "DA6: event 2 came 100 ms too early" in _delayed(1_100_000).problems
    twice = [*STORED, (1, 1, 2, 102, KEY_B)]
    assert (
        "DA6: event 2 was delayed and stored 2 times" in _delayed(990_000, stored=twice, later=AGAIN).problems
    )
    assert _delayed(990_000, later="S 2\nW 2 990000", stored=twice).stored_twice == 1
    missing = _delayed(990_000, stored=STORED[:3])
    assert "DA1: 1 events are not in the log" in missing.problems


def test_a_delayed_event_has_no_order_within_its_key():
    """It was to come later."""
    stored = [(0, 0, 1, 101, KEY_A), (0, 1, 0, 100, KEY_A), *STORED[2:]]
    record = RECORD.replace("P 0 0 0 1 1 2 3", "W 0 900000\nP 0 0 1 2 3")
    assert _account(stored=stored, record=record, delayed={0}).balanced


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ("F 1 0", "failure"),
        ("G 1 0", "release"),
        ("B 1 0", "hang"),
        ("H 1 0", "otherwise"),
        ("J 1 0", "otherwise"),
    ],
)
def test_each_redelivery_has_a_reason(between, reason):
    """By what was told last of the delivery before; the kill, when that was in a process before."""
    account = _account(record=RECORD.replace("D 1 0\n", f"D 1 0\n{between}\nD 1 0\n"))
    assert account.balanced
    assert account.redelivered == getattr(account, f"redelivered_after_{reason}", None) or (
        reason == "otherwise" and account.redelivered_otherwise == account.redelivered == 1
    )
    killed = RECORD.replace("H 1 0\nK 1 0", "")
    account = _account(record=killed, later="D 1 0\nH 1 0\nK 1 0", killed=True)
    assert account.redelivered == account.redelivered_after_kill == 1


@pytest.mark.parametrize("line", ["D 9 0", "K 0 77", "P 0 77 1", "P 0 0 44", "P 7 0 1"])
def test_records_about_what_is_not_there_do_not_balance(line):
    """Partitions, offsets and events that do not exist are blamed, and never crash the account."""
    assert not _account(later=line).balanced


def test_only_the_first_problems_are_named():
    """A history of ruins ends in a count."""
    account = _account(later="\n".join(["D 0 1"] * 100))
    assert account.delivered_after_acknowledgement == 100
    assert len(account.problems) == 21
    assert account.problems[-1] == "and 80 problems more"


@given(st.text())
def test_any_line_is_a_fact_or_a_value_error(line):
    """A torn or foreign record line is recognised as such."""
    try:
        parse_line(line)
    except ValueError:
        return


@pytest.mark.parametrize("line", ["", "Y 1", "P 1", "D x 1", "K 1 1-9", "S a", "H 1"])
def test_what_is_no_fact_is_a_value_error(line):
    """Unknown tags, missing numbers and absurd ranges are refused."""
    with pytest.raises(ValueError):
        parse_line(line)


def test_acknowledged_events_are_found_in_a_record():
    """What a reopened run skips is what the killed one had receipts for."""
    assert sorted(acknowledged_events(RECORD.splitlines())) == [0, 1, 2, 3]


@given(st.integers(0, 2**32), st.integers(1, 5000), st.integers(1, 64))
def test_the_plan_comes_from_the_seed_and_lies_within_the_act(seed, events, partitions):
    """One seed, one plan; its failures, crashes and kill concern the act's events and partitions."""
    plans = [
        plan_act(SeededEntropy(seed), first=10, last=10 + events, partitions=partitions) for _ in range(2)
    ]
    assert plans[0] == plans[1]
    assert plans[0].failures
    assert all(10 <= event < 10 + events for event in plans[0].failures)
    assert plans[0].delays
    assert all(10 <= event < 10 + events for event in plans[0].delays)
    assert all(0 <= moment < events for moment, _ in plans[0].crashes)
    paths = {f"topics/traffic/{index}" for index in range(partitions)} | {"scheduler", "dead-letters"}
    assert {path for _, path in plans[0].crashes} <= paths
    assert 0 <= plans[0].kill_after < events
    if events >= 500:
        assert set(plans[0].failures.values()) == set(WorkFailure)


def test_a_line_that_is_no_fact_does_not_balance():
    """A foreign line in a record is named."""
    account = _account(later="Y 1")
    assert account.problems == ["a record cannot be read: 'Y 1'"]


def test_percentiles_are_of_the_sorted_values():
    """Half of the values lie below the median; of nothing there is none."""
    assert percentiles(list(range(1000, 0, -1))) == (0.501, 0.991)
    assert percentiles([5000]) == (5.0, 5.0)
    assert percentiles([]) == (None, None)
