"""The section of values in a profile: read as it was written, and refused with a reason when it is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.workload.profile_format import profile_from_json
from callboard.simulations.workload.value_model import read_model


@pytest.fixture
def document() -> dict[str, Any]:
    """Two values of one form, `Abc: 1x`, whose first word follows from the key."""
    return {
        "names": ["true"],
        "marks": [": "],
        "shapes": ["A1a2", "e1"],
        "words": [[0, 0, 3, 0], [0, 1, 0, 0]],
        "phrases": [[0], [3]],
        "templates": [{"items": [-1, 1, -1], "bound": [0], "rows": [[0]]}],
        "stretches": [{"at_us": 0, "examples": [[0, 1], [0, 1]]}],
    }


def test_a_profile_keeps_its_values(small_profile: dict[str, Any], document: dict[str, Any]) -> None:
    """They survive its file; a profile without them is written without them."""
    profile = profile_from_json(json.dumps(small_profile | {"values": document}))
    assert profile.values == read_model(document)
    assert profile_from_json(profile.to_json()) == profile
    assert json.loads(profile.to_json())["values"] == document
    assert "values" not in json.loads(profile_from_json(json.dumps(small_profile)).to_json())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"names": ["Otto Meier"]}, "a name is not one"),
        ({"marks": ["Otto: "]}, "a mark holds a letter"),
        ({"marks": ["\u00e9"]}, "a mark holds a letter"),
        ({"shapes": ["A1a2", "Otto"]}, "a shape is not one"),
        ({"shapes": ["A1a2", "e0"]}, "a shape is not one"),
        ({"words": [[0, 0, 3, 0], [0, 2, 0, 0]]}, "a shape that is not there"),
        ({"words": [[0, 0, 3, 2], [0, 1, 0, 0]]}, "neither linked nor not"),
        ({"words": [[1, 0, 3, 0], [0, 1, 0, 0]]}, "begins with more"),
        ({"words": [[0, 0, 4, 0], [0, 1, 0, 0]]}, "begins with more"),
        ({"words": [[0, 0, 3], [0, 1, 0, 0]]}, "not four numbers"),
        ({"phrases": [[0], [6]]}, "a phrase has a symbol"),
        ({"phrases": [[0], [-1]]}, "a phrase has a symbol"),
        ({"phrases": [[0], [1.5]]}, "not a whole number"),
        ({"phrases": [[0], [True]]}, "not a whole number"),
        ({"templates": [{"items": [-1, 4, -1], "bound": [0], "rows": [[0]]}]}, "a template has a symbol"),
        ({"templates": [{"items": [-1, 1, -1], "bound": [2], "rows": [[0]]}]}, "not slots of it"),
        ({"templates": [{"items": [-1, 1, -1], "bound": [1, 0], "rows": [[0, 0]]}]}, "not slots of it"),
        ({"templates": [{"items": [-1, 1, -1], "bound": [0], "rows": []}]}, "without rows"),
        ({"templates": [{"items": [-1, 1, -1], "bound": [0], "rows": [[2]]}]}, "a row does not fill"),
        ({"templates": [{"items": [-1, 1, -1], "bound": [0]}]}, "lacks `rows`"),
        ({"stretches": []}, "there is no stretch"),
        ({"stretches": [{"at_us": 0, "examples": []}]}, "one without an example"),
        ({"stretches": [{"at_us": -1, "examples": [[0, 1]]}]}, "order of time"),
        (
            {"stretches": [{"at_us": 9, "examples": [[0, 1]]}, {"at_us": 8, "examples": [[0, 1]]}]},
            "order of time",
        ),
        ({"stretches": [{"at_us": 0, "examples": [[0]]}]}, "does not fill its template"),
        ({"stretches": [{"at_us": 0, "examples": [[]]}]}, "does not fill its template"),
        ({"stretches": [{"at_us": 0, "examples": [[1, 1]]}]}, "does not fill its template"),
        ({"stretches": {}}, "not a list"),
        ({"shapes": ["A1a2", "d999999" * 100]}, "bytes, more than"),
    ],
)
def test_what_is_no_model_is_refused(
    small_profile: dict[str, Any], document: dict[str, Any], change: dict[str, Any], problem: str
) -> None:
    """With the reason, before anything is made of it."""
    with pytest.raises(InvalidArgument, match=problem):
        profile_from_json(json.dumps(small_profile | {"values": document | change}))


@pytest.mark.parametrize("value", [None, 7, [], "values", {}])
def test_what_is_no_object_is_refused(value: Any) -> None:
    """In words."""
    with pytest.raises(ValueError, match="lacks `names`"):
        read_model(value)
