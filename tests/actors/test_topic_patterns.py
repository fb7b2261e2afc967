"""Patterns of topics: what they match, and what is no pattern."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.topic_patterns import TopicPattern, matches, pattern_problem


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders.*", ["orders.eu", "orders.eu.retail"], ["orders", "orders2", "xorders.eu", "Orders.eu"]),
        ("orders.??", ["orders.eu", "orders.us"], ["orders.e", "orders.asia"]),
        ("*.retail", ["orders.retail", "a.b.retail"], ["retail", "orders.retail.x"]),
        ("*", ["a", "orders.eu"], []),
        ("orders", ["orders"], ["orders.eu", "order"]),
        ("o*s*", ["orders", "os", "ossss"], ["ox", "so"]),
        ("[ab]*", ["[ab]c"], ["a", "b"]),
    ],
)
def test_what_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    """`*` is any number of characters, `?` is one, all else is itself."""
    assert [name for name in matching + others if matches(pattern, name)] == matching


@given(st.text("ab.*?", max_size=12), st.text("ab.", max_size=12))
def test_it_is_what_shells_mean(pattern: str, name: str) -> None:
    """Without brackets the syntax is that of file names."""
    assert matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


@given(st.lists(st.sampled_from("ab*?"), max_size=8), st.data())
def test_a_name_that_is_made_by_a_pattern_matches_it(pattern: list[str], data: st.DataObject) -> None:
    """A name with anything in the places of `*`, and one character in those of `?`, is as the pattern says."""
    filled = {"*": st.text("ab", max_size=4), "?": st.sampled_from("ab")}
    name = "".join(data.draw(filled.get(part, st.just(part))) for part in pattern)
    assert matches("".join(pattern), name)


@given(st.integers(1, 200))
def test_no_pattern_takes_long(stars: int) -> None:
    """What would send a regular expression astray is told at once: steps are bounded by the product of the lengths."""
    assert not matches("*a" * (stars // 2) + "b", "a" * 200)


def test_dead_letters_are_asked_for() -> None:
    """A topic for dead letters matches only a pattern that asks for them."""
    pattern, asking = TopicPattern("*"), TopicPattern("*", dead_letters=True)
    assert pattern.takes("orders", takes_dead_letters=False)
    assert not pattern.takes("orders.dlq", takes_dead_letters=False)
    assert not pattern.takes("failed", takes_dead_letters=True)
    assert asking.takes("orders.dlq", takes_dead_letters=False)
    assert asking.takes("failed", takes_dead_letters=True)


@pytest.mark.parametrize("pattern", ["*", "?", "orders.*", "orders", "*.eu.*", "**", "a?b*"])
def test_patterns(pattern: str) -> None:
    """Names with wildcards are patterns, and so is a name without."""
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern", [None, 3, b"*", "", "a..*", ".*", "-x*", "a b", "a/*", "\ud800*", "x" * 300]
)
def test_no_patterns(pattern: object) -> None:
    """What no name of a topic can match is told, with the reason."""
    assert pattern_problem(pattern)
