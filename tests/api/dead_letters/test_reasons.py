"""What reasons of dead letters share, and how they are counted."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.dead_letters import reasons as dead_letter_reasons
from callboard.dead_letters.reasons import OTHERS, ReasonCounts, shared_part


@pytest.mark.parametrize(
    ("reason", "shared"),
    [
        ("KeyError: 'abc', at shop.py:41 in price", "KeyError, at shop.py:41 in price"),
        ("KeyError, at shop.py:41 in price", "KeyError, at shop.py:41 in price"),
        ("shop.NoStock: tea, at noon, at shop.py:7 in sell", "shop.NoStock, at shop.py:7 in sell"),
        ("ValueError: two\nlines, at shop.py:41 in price", "ValueError, at shop.py:41 in price"),
        ("order 17 of a3f9-77 can't be priced", "order N of N-N can't be priced"),
        ("no customer 'al ice' and \"b\"", "no customer '…' and \"…\""),
        ("too late", "too late"),
        ("", ""),
    ],
)
def test_what_a_reason_shares(reason: str, shared: str) -> None:
    """Of a handler the exception's type and place; of other texts what is neither quoted nor numbered."""
    assert shared_part(reason) == shared


WORDS = st.sampled_from(
    ["KeyError", ": ", ", at ", "a.py:4", " in f", "'", "x", "7", '"', "…", "#", "\n", " "]
)


@example('""0"')
@example("'a\"'b\"'")
@given(st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=12).map("".join)))
def test_the_shared_part_shares_itself(reason: str) -> None:
    """So a text that is told for several is never told for others."""
    assert shared_part(shared_part(reason)) == shared_part(reason)


@given(st.lists(st.one_of(st.none(), st.lists(WORDS, max_size=6).map("".join))), st.booleans())
def test_counts_add_up(reasons: list[str | None], full: bool) -> None:
    """Nothing is counted twice, or not at all, and the most frequent come first."""
    counted = ReasonCounts(full=full)
    for reason in reasons:
        counted.add(reason)
    counts = counted.counts()
    assert sum(counts.values()) == len(reasons)
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    if full:
        assert counts == {reason: reasons.count(reason) for reason in reasons}


def test_reasons_that_differ_are_told_by_what_they_share() -> None:
    """Those that are all the same are told in full."""
    counted = ReasonCounts()
    for reason in (
        "KeyError: 'a', at s.py:4 in f",
        "KeyError: 'b', at s.py:4 in f",
        "order 7",
        "order 7",
        None,
    ):
        counted.add(reason)
    assert counted.counts() == {"KeyError, at s.py:4 in f": 2, "order 7": 2, None: 1}


def test_no_more_reasons_are_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are counted together, and come last (RN1)."""
    monkeypatch.setattr(dead_letter_reasons, "REASONS_COUNTED_MAX", 2)
    counted = ReasonCounts()
    for reason in ("a", "b", "c", "d", "c", "a"):
        counted.add(reason)
    assert list(counted.counts().items()) == [("a", 2), ("b", 1), (OTHERS, 3)]
