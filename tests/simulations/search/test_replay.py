"""What a replay says about a stored failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callboard.log.errors import DiskFull, LeaseLost
from callboard.simulations.faults import At, Plan, PowerCut
from callboard.simulations.search.replay import (
    ReplayVerdict,
    judge,
    promise_of,
    stored_failure_of,
    trial_of,
    words_of,
)
from callboard.simulations.search.shrink import Case
from callboard.simulations.search.stored_failure import StoredFailure, read_stored_failure
from callboard.simulations.violations import Violation
from callboard.simulations.world import StaleTape, Tape

PLAN = Plan((PowerCut(At(1.0)), PowerCut(At(2.0))))
BROKEN = Violation("nothing lost", "message 3 is gone")


@pytest.fixture
def stored(made: Callable[..., Any]) -> StoredFailure:
    """A stored failure whose first fault had an effect, twice."""
    run = made(BROKEN, plan=PLAN, hits={0: 2, 1: 0})
    return stored_failure_of("shop", Case((), PLAN, Tape()), run, version="0.1.0", note="")


def test_a_stored_failure_holds_what_is_expected(stored: StoredFailure) -> None:
    """Promise, words, and the faults that had an effect."""
    assert (stored.promise, stored.words, stored.hits) == ("nothing lost", "message 3 is gone", {0: 2})


def test_the_same_promise_is_reproduced(stored: StoredFailure, made: Callable[..., Any]) -> None:
    """Other words do not matter, and neither do hits while the promise is broken."""
    found = judge(stored, made(Violation("nothing lost", "message 4 is gone")))
    assert found.verdict is ReplayVerdict.REPRODUCED


def test_another_promise_is_another_failure(stored: StoredFailure, made: Callable[..., Any]) -> None:
    """It is told which."""
    found = judge(stored, made(ValueError("no")))
    assert found.verdict is ReplayVerdict.OTHER
    assert "raised: ValueError" in found.words


def test_a_good_end_with_all_faults_is_fixed(stored: StoredFailure, made: Callable[..., Any]) -> None:
    """What failed then ends well now, under faults that still have effects."""
    assert judge(stored, made(plan=PLAN, hits={0: 1})).verdict is ReplayVerdict.FIXED


def test_a_good_end_without_the_faults_is_stale(stored: StoredFailure, made: Callable[..., Any]) -> None:
    """A fault that no longer hits is named: the stored failure proves nothing."""
    found = judge(stored, made(plan=PLAN, hits={1: 1}))
    assert found.verdict is ReplayVerdict.STALE
    assert "0 (PowerCut)" in found.words
    assert "--first-seed 1" in found.words


def test_a_schedule_that_does_not_fit_is_stale(stored: StoredFailure, made: Callable[..., Any]) -> None:
    """It is not taken for a failure of the code."""
    assert judge(stored, made(StaleTape("decision 3 does not fit"))).verdict is ReplayVerdict.STALE


def test_a_trial_knows_only_its_failure(made: Callable[..., Any]) -> None:
    """Shrinking does not slip from one failure to another, and a schedule that does not fit is no failure."""
    failures = iter([BROKEN, Violation("nothing altered", "x"), None, StaleTape("x")])
    trial = trial_of(lambda case, settings: made(next(failures)), BROKEN)
    found = [trial(Case((), PLAN), record=False) for _ in range(4)]
    assert found == [Tape(), None, None, None]


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        (
            Violation("actors crash for reasons only", "topics/orders/0 crashed: KeyError: 17"),
            Violation("actors crash for reasons only", "topics/orders/2 crashed: KeyError: 1"),
            Violation("actors crash for reasons only", "topics/orders/0 crashed: ValueError: no room"),
        ),
        (
            ExceptionGroup("two", [DiskFull("orders/1"), KeyError("b")]),
            ExceptionGroup("three", [KeyError("a"), DiskFull("orders/0"), DiskFull("orders/2")]),
            ExceptionGroup("two", [LeaseLost("orders/1"), KeyError("b")]),
        ),
    ],
)
def test_a_failure_that_names_other_errors_is_another_one(
    made: Callable[..., Any], first: Exception, same: Exception, other: Exception
) -> None:
    """Of one promise, or one kind of group, with the same errors in its words: numbers and places may change."""
    failures = iter([same, other])
    trial = trial_of(lambda case, settings: made(next(failures)), first)
    assert [trial(Case((), PLAN), record=False) for _ in range(2)] == [Tape(), None]


def test_errors_that_are_no_violations_have_names_too() -> None:
    """By type, with what is in a group."""
    assert promise_of(KeyError("x")) == "raised: KeyError"
    group = ExceptionGroup("two tasks failed", [ValueError("a"), KeyError("b")])
    assert "ValueError: a" in words_of(group)
    assert "KeyError" in words_of(group)


def test_an_error_without_words_is_told_all_the_same() -> None:
    """What its __str__ raises does not hide it, alone or in a group."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("no words")

    assert words_of(Mute()) == "Mute: (its __str__ raised KeyError)"
    assert words_of(ExceptionGroup("two", [Mute(), ValueError("3")])) == (
        "two: Mute: (its __str__ raised KeyError); ValueError: 3"
    )


@pytest.mark.parametrize("sign", ["\udc80", "\0", "\x1b", "\u202e", "\t", "\x85"])
def test_what_cannot_be_printed_is_stored_as_an_escape(made: Callable[..., Any], sign: str) -> None:
    """No character in the words of a failure keeps it from being stored, and read, and recognised."""
    failure = Violation(f"nothing{sign}\nlost", f"message {sign} is gone\nfor ever")
    run = made(failure)
    stored = read_stored_failure(
        stored_failure_of("shop", Case((), Plan(), Tape()), run, version="0.1.0", note="").to_cbor()
    )
    escape = sign.encode("unicode_escape").decode()
    assert (stored.promise, stored.words) == (
        f"nothing{escape}\\nlost",
        f"message {escape} is gone\nfor ever",
    )
    assert judge(stored, run).verdict is ReplayVerdict.REPRODUCED
