"""How rows and queues of two recordings are judged."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attrs

from callboard.simulations.workload.behaviour import KINDS, QUEUES, ROWS, Behaviour, QueueFacts, judge
from callboard.simulations.workload.verdicts import Verdict

ONE = QueueFacts(100, ((0, 90), (200, 10)), ((0, 95), (3, 5)), False)


def behaviour(**other: Any) -> Behaviour:
    """All rows are a half, and in all queues a tenth of the events wait for two service times."""
    fields: dict[str, Any] = {
        "events": 5_000,
        "rate": Fraction(10),
        "rows": dict.fromkeys(ROWS, Fraction(1, 2)),
        "queues": dict.fromkeys(QUEUES, ONE),
    }
    return Behaviour(**fields | other)


def row(name: str, one: Fraction | None, two: Fraction | None, **other: Any) -> tuple[Verdict, str]:
    """What is said of a row with these values."""
    sides = (behaviour(rows=dict.fromkeys(ROWS, value), **other) for value in (one, two))
    found = {each.name: each for each in judge(*sides, {})[0]}
    return found[name].verdict, found[name].note


def queue(facts: QueueFacts, **other: Any) -> Any:
    """What is said of a queue with these facts beside the usual ones."""
    _, queues = judge(behaviour(**other), behaviour(queues=dict.fromkeys(QUEUES, facts), **other), {})
    return queues[0]


def test_equal_behaviours_are_alike() -> None:
    """Of every row and queue."""
    rows, queues = judge(behaviour(), behaviour(), {})
    assert [each.verdict for each in (*rows, *queues)] == [Verdict.ALIKE] * (len(ROWS) + len(QUEUES))
    assert len(QUEUES) == 2 * len(KINDS)


def test_a_row_may_be_a_fifth_apart() -> None:
    """And compression a quarter; what is more is a difference, with its size."""
    assert row("same_key", Fraction(1, 2), Fraction(2, 5)) == (Verdict.ALIKE, "")
    assert row("same_key", Fraction(1, 2), Fraction(39, 100)) == (
        Verdict.DIFFERENT,
        "apart by 22% of the larger one",
    )
    assert row("compression", Fraction(4), Fraction(3)) == (Verdict.ALIKE, "")
    assert row("compression", Fraction(4), Fraction(29, 10))[0] is Verdict.DIFFERENT
    assert row("autocorrelation", Fraction(-1, 2), Fraction(1, 2))[0] is Verdict.DIFFERENT


def test_what_is_nearly_nothing_is_alike() -> None:
    """A hundredth and three hundredths of the events are both few; a dispersion has no such floor."""
    assert row("short_lives", Fraction(1, 100), Fraction(3, 100))[0] is Verdict.ALIKE
    assert row("dispersion", Fraction(1, 100), Fraction(3, 100))[0] is Verdict.DIFFERENT


def test_a_row_without_a_meaning_is_not_judged() -> None:
    """On one side or on both, and so are neighbours at another rate."""
    assert row("same_key", None, None)[0] is Verdict.NOT_JUDGED
    assert row("same_key", None, Fraction(1))[1] == "it has a meaning for the second recording only"
    slow, fast = behaviour(), behaviour(rate=Fraction(100), rows=dict.fromkeys(ROWS, Fraction(1)))
    verdicts = {each.name: each.verdict for each in judge(slow, fast, {})[0]}
    assert verdicts["same_key"] is Verdict.NOT_JUDGED
    assert verdicts["drift"] is Verdict.DIFFERENT


def test_few_events_are_not_judged() -> None:
    """Chance alone makes such differences of less than a thousand events."""
    assert row("drift", Fraction(1), Fraction(1, 2), events=999)[0] is Verdict.TOO_FEW
    late = attrs.evolve(ONE, waits=((0, 10), (900, 90)))
    assert queue(late, events=999).verdict is Verdict.TOO_FEW


def test_waits_may_be_half_as_long_again() -> None:
    """The time that an event takes in all is compared, and how many wait before it: the largest ratio decides."""
    near = attrs.evolve(ONE, waits=((0, 90), (350, 10)))
    assert (queue(near).verdict, queue(near).factor) == (Verdict.ALIKE, Fraction(3, 2))
    far = attrs.evolve(ONE, waits=((0, 90), (3_200, 10)))
    found = queue(far)
    assert (found.verdict, found.factor, found.note) == (Verdict.DIFFERENT, 11, "11 times apart")
    deep = attrs.evolve(ONE, depths=((0, 95), (7, 5)))
    assert queue(deep).factor == 2


def test_an_overloaded_queue_is_like_another_one_only() -> None:
    """Its waits are not known to the end."""
    given_up = attrs.evolve(ONE, is_overloaded=True)
    assert (queue(given_up).verdict, queue(given_up).note) == (Verdict.DIFFERENT, "only one is overloaded")
    both = judge(*[behaviour(queues=dict.fromkeys(QUEUES, given_up))] * 2, {})[1][0]
    assert (both.verdict, both.note) == (Verdict.ALIKE, "both are overloaded")


def test_a_recording_of_one_instant_has_no_queues() -> None:
    """And none is judged; nor is what the user ignores."""
    _, queues = judge(behaviour(), behaviour(queues={}), {})
    assert {each.verdict for each in queues} == {Verdict.NOT_JUDGED}
    rows, queues = judge(behaviour(), behaviour(rows=dict.fromkeys(ROWS, Fraction(3))), {"drift": "ignored"})
    assert [each.note for each in rows if each.name == "drift"] == ["ignored"]


def test_n_times_the_servers_may_have_n_times_as_many_waiting() -> None:
    """For as long: at ten times the rate, ten times the depth is alike."""
    ten = attrs.evolve(ONE, depths=((0, 95), (30, 5)), times=10)
    assert (queue(ten).verdict, queue(ten).factor) == (Verdict.ALIKE, 1)
    assert queue(attrs.evolve(ten, times=1)).factor == Fraction(31, 4)
