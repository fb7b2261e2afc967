"""What names and settings are accepted, and how the rest is refused."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.names import check_name, folded, name_problem
from callboard.actors.settings import group_settings, topic_settings
from callboard.log.errors import ConfigurationError, InvalidArgument, NotInThisVersion
from callboard.log.limits import NAME_BYTES_MAX


@pytest.mark.parametrize(
    "name", ["orders", "orders.eu.retail", "a-b_c", "Ünïcode", "x" * NAME_BYTES_MAX, "1"]
)
def test_portable_names_are_accepted(name: str) -> None:
    """Letters of any script, digits, dots, dashes and underscores are fine."""
    assert check_name(name, "topic") == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a..b", ".a", "a.", "a/b", "a\\b", "a b", "a\n", "a\0b", "-x", "\ud800", "a:b"),
        "x" * (NAME_BYTES_MAX + 1),
    ],
)
def test_names_that_would_hurt_somewhere_are_refused(name: str) -> None:
    """Path separators, empty parts, white space, control characters and over-long names are refused with a reason."""
    with pytest.raises(InvalidArgument, match="cannot be the name of a topic"):
        check_name(name, "topic")


@pytest.mark.parametrize("name", [None, 3, b"orders"])
def test_names_that_are_not_text_are_refused(name: object) -> None:
    """Only str is a name."""
    with pytest.raises(InvalidArgument, match="not str"):
        check_name(name, "group")


@given(st.text(max_size=300))
def test_an_accepted_name_is_a_single_portable_path_component(name: str) -> None:
    """Whatever is accepted holds no separator, is not special, and fits the limit."""
    if name_problem(name) is None:
        assert name not in ("", ".", "..")
        assert not set(name) & set('/\\:*?"<>|\0')
        assert len(name.encode()) <= NAME_BYTES_MAX


def test_names_that_differ_only_in_case_or_unicode_form_fold_to_one() -> None:
    """Two names that a case-insensitive, normalising disk takes for one are recognised as one."""
    assert folded("Orders") == folded("orders")
    assert folded("caf\u00e9") == folded("cafe\u0301")
    assert folded("orders") != folded("order")


def test_all_problems_of_settings_are_told_at_once() -> None:
    """One error lists every unknown name, wrong type and value out of range, with the nearest known name."""
    with pytest.raises(ConfigurationError) as caught:
        given_settings = {
            "partition": 3,
            "segment_bytes": -1,
            "retention_age": float("nan"),
            "drop_unread": "yes",
        }
        topic_settings(given_settings, "topic 'x'")
    assert len(caught.value.problems) == 4
    told = str(caught.value)
    for expected in (
        "did you mean 'partitions'?",
        "segment_bytes",
        "retention_age",
        "drop_unread",
        "topic 'x'",
    ):
        assert expected in told


@pytest.mark.parametrize(
    "given_settings", [{"dead_letter_topic": "x"}, {"default_ttl": 3.0}, {"dedup_window": 1}]
)
def test_settings_of_later_versions_say_so(given_settings: dict[str, object]) -> None:
    """A setting whose feature is not built yet is refused by name."""
    with pytest.raises(NotInThisVersion, match="not in this version"):
        topic_settings(given_settings, "topic 'x'")


def test_exclusive_mode_is_not_in_this_version() -> None:
    """A mode that the design has and this version has not is told apart from a misspelt one."""
    with pytest.raises(NotInThisVersion, match="exclusive"):
        group_settings({"mode": "exclusive"}, "group 'g'")
    with pytest.raises(ConfigurationError, match="not one of shared"):
        group_settings({"mode": "sharde"}, "group 'g'")


@pytest.mark.parametrize(
    "seconds",
    [-1.0, float("nan"), float("inf"), 10**400, pytest.param(-(10**5000), id="enormous"), True, "30", None],
)
def test_durations_are_finite_positive_seconds(seconds: object) -> None:
    """Negative, infinite, NaN and non-numeric durations are refused."""
    with pytest.raises(ConfigurationError):
        group_settings({"visibility_timeout": seconds}, "group 'g'")


@pytest.mark.parametrize("start", ["middle", -1, 1.5, datetime(2026, 1, 1), True])  # noqa: DTZ001 (naive on purpose)
def test_a_group_starts_at_a_known_place(start: object) -> None:
    """`start` is "beginning", "end", an offset or a zoned datetime."""
    with pytest.raises(ConfigurationError):
        group_settings({"start": start}, "group 'g'")


def test_contradictory_settings_are_refused() -> None:
    """Segments that outlive their retention, and a backoff above its maximum, are refused."""
    with pytest.raises(ConfigurationError, match="segment_age"):
        topic_settings({"segment_age": 3600.0, "retention_age": 60.0}, "topic 'x'")
    with pytest.raises(ConfigurationError, match="longer than max_backoff"):
        group_settings({"backoff": 100.0}, "group 'g'")
