"""What names and settings are accepted, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.names import check_name, name_problem
from callboard.actors.settings import LATER, group_settings, topic_settings
from callboard.log.errors import ConfigurationError, NotInThisVersion
from callboard.log.limits import NAME_BYTES_MAX


@pytest.mark.parametrize(
    "name", ["orders", "orders.eu.retail", "a-b_c", "Ünïcode", "x" * NAME_BYTES_MAX, "1"]
)
def test_portable_names_are_accepted(name: str) -> None:
    """Letters of any script, digits, dots, dashes and underscores are fine."""
    assert check_name(name, "topic") == name


@given(st.text(max_size=300))
def test_an_accepted_name_is_a_single_portable_path_component(name: str) -> None:
    """Whatever is accepted holds no separator, is not special, and fits the limit."""
    if name_problem(name) is None:
        assert name not in ("", ".", "..")
        assert not set(name) & set('/\\:*?"<>|\0')
        assert len(name.encode()) <= NAME_BYTES_MAX


def test_settings_of_later_versions_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting whose feature is not built yet is refused by name."""
    monkeypatch.setitem(LATER, "group", frozenset({"telepathy"}))
    with pytest.raises(NotInThisVersion, match="not in this version"):
        group_settings({"telepathy": 3}, "group 'x'")


@pytest.mark.parametrize(
    ("kind", "name", "misspelt"),
    [("topic", "compaction", "compacton"), ("topic", "archive", "archiv"), ("group", "filter", "filters")],
)
def test_planned_settings_are_known_by_name(kind: str, name: str, misspelt: str) -> None:
    """What is designed and not built says so; a misspelling of it is not taken for another setting."""
    settings: Any = {"topic": topic_settings, "group": group_settings}[kind]
    with pytest.raises(NotInThisVersion, match=f"{name} is not in this version"):
        settings({name: True}, "it")
    with pytest.raises(ConfigurationError, match=f"did you mean '{name}', which is not in this version"):
        settings({misspelt: True}, "it")


@pytest.mark.parametrize(
    "retry", [[], "5", b"5", [1, "x"], [1, None], [-1], -1, [1.0] * 101, float("nan"), True, {}]
)
def test_delays_that_are_none_are_refused(retry: Any) -> None:
    """Each with what is wrong with it."""
    with pytest.raises(ConfigurationError, match="retry"):
        group_settings({"retry": retry}, "group 'g'")


def test_the_last_word_on_delays_counts() -> None:
    """A retry drops the backoff that a group has, and the other way round; both at once are a contradiction."""
    first = group_settings({"backoff": 5.0}, "group 'g'")
    second = group_settings({"retry": [1, 2]}, "group 'g'", first)
    assert (second.retry, second.backoff) == ((1, 2), 1.0)
    third = group_settings({"max_backoff": 90.0}, "group 'g'", second)
    assert (third.retry, third.max_backoff) == (None, 90.0)
    with pytest.raises(ConfigurationError, match="one or the other"):
        group_settings({"retry": 3, "backoff": 3}, "group 'g'")


def test_a_misspelt_mode_is_refused() -> None:
    """The error names the modes that there are."""
    with pytest.raises(ConfigurationError, match="not one of shared, exclusive"):
        group_settings({"mode": "sharde"}, "group 'g'")
