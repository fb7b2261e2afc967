"""Whatever publishers were told of what is published once holds, or is a violation."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from callboard.simulations.checkers.published_once import CallOutcome, RemainingRecord, check

WINDOW_US = 1_000


def stored(offset: int, value: bytes, **more: Any) -> RemainingRecord:
    """A record of partition 0, whose ids and producers follow from its value."""
    words = value.split()
    dedup_id = words[1] if words[0] == b"id" else None
    producer = (7, int(words[3]), int(words[2])) if words[0] == b"stream" else None
    record = RemainingRecord(0, offset, value, offset, dedup_id, producer)
    return attrs.evolve(record, **more)


def told(kind: str, offset: int, value: bytes = b"", **more: Any) -> CallOutcome:
    """What somebody was told of partition 0, before anything else."""
    return attrs.evolve(CallOutcome(kind, "who", 0, value, offset, begun_us=0, begun=0), **more)


LOG = [stored(0, b"id a"), stored(1, b"stream s 0 1"), stored(2, b"stream s 1 2"), stored(3, b"set x")]
FACTS = [
    told("id", 0, b"id a"),
    told("stream", 1, b"stream s 0 1"),
    told("begun", 1, who="s", life=2),
    told("fenced", -1, b"stream s 1 1"),
    told("stream", 2, b"stream s 1 2"),
    told("set", 3, b"set x", expected=3),
    told("mismatch", 4, b"set y", expected=3, begun=6),
    told("id", 9, b"id gone", is_durable=False),
]


def words(facts: list[CallOutcome], log: list[RemainingRecord], table_ids: int = 100) -> str:
    """What is found."""
    return "; ".join(violation.words for violation in check(facts, log, {0: 4}, WINDOW_US, table_ids))


def test_what_holds_is_no_violation() -> None:
    """Also a receipt at level leader whose record the power took."""
    assert words(FACTS, LOG) == ""


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (stored(4, b"id a", time_us=999), "and at 0@4, 999 us and 0 ids later"),
        (stored(4, b"set y"), "is stored, and who was told that it is not"),
        (stored(4, b"stream s 1 2"), "sequence 1 follows 1"),
        (stored(4, b"stream s 3 2"), "sequence 3 follows 1"),
        (stored(4, b"stream s 2 1"), "epoch 1 follows 2"),
        (stored(4, b"stream s 9 2", producer=(7, 2, 2)), "sequence 2 holds"),
        (stored(4, b"stream s 2 1", producer=(7, 2, 2)), "life 2 had begun at sequence 1"),
        (stored(4, b"stream s 1 1", producer=(8, 1, 0)), "was told that it is fenced"),
    ],
)
def test_a_record_too_many_is_a_violation(record: RemainingRecord, found: str) -> None:
    """Twice, out of order, or by somebody who was refused."""
    assert found in words(FACTS, [*LOG, record])


def test_an_id_may_come_again_when_its_window_is_over() -> None:
    """Exactly then."""
    assert words(FACTS, [*LOG, stored(4, b"id a", time_us=WINDOW_US)]) == ""


@pytest.mark.parametrize(("table_ids", "is_right"), [(3, False), (2, True)])
def test_an_id_may_come_again_when_a_full_table_had_forgotten_it(table_ids: int, is_right: bool) -> None:
    """As many others must have come as the table holds; one that is repeated counts once."""
    others = [stored(4, b"id b"), stored(5, b"id c"), stored(6, b"id c", time_us=2 * WINDOW_US)]
    found = words(FACTS, [*LOG, *others, stored(7, b"id a", time_us=999)], table_ids)
    assert (found == "") is is_right


@pytest.mark.parametrize(
    ("fact", "found"),
    [
        (told("id", 3, b"id a"), "was told 0@3"),
        (told("id", 7, b"id a"), "nothing is there"),
        (told("id", 0, b"id a", begun_us=WINDOW_US), "whose window was over"),
        (told("stream", 2, b"stream s 0 1"), "was told 0@2"),
        (told("set", 3, b"set x", expected=2), "expected 2 and was stored at 3"),
        (told("mismatch", 3, expected=3), "which it had expected"),
        (told("mismatch", 5, expected=3), "the log ends before"),
        (told("mismatch", 3, expected=0, begun=6), "after 3 had been told"),
    ],
)
def test_a_wrong_answer_is_a_violation(fact: CallOutcome, found: str) -> None:
    """A receipt of another record, or of none; a refusal that no order explains."""
    assert found in words([*FACTS, fact], LOG)
