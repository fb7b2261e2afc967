"""What names and settings are accepted, and how the rest is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.names import check_name, name_problem
from callboard.actors.settings import LATER, group_settings
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


@pytest.mark.parametrize("name", sorted(LATER["group"]))
def test_settings_of_later_versions_say_so(name: str) -> None:
    """A setting whose feature is not built yet is refused by name."""
    with pytest.raises(NotInThisVersion, match="not in this version"):
        group_settings({name: 3}, "group 'x'")


def test_a_misspelt_mode_is_refused() -> None:
    """The error names the modes that there are."""
    with pytest.raises(ConfigurationError, match="not one of shared, exclusive"):
        group_settings({"mode": "sharde"}, "group 'g'")
