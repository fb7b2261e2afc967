"""JSON that is cut stays JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.simulations.workload.json_values import closed, is_json, quotes_of, wrapped

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), ANY_JSON) | st.lists(ANY_JSON)


@given(OBJECTS, st.booleans(), st.data())
def test_the_beginning_of_json_is_closed(value: object, is_ascii: bool, data: st.DataObject) -> None:
    """Wherever it is cut behind its first bracket; whole JSON stays what it is."""
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert closed(text) == text
    found = closed(text[: data.draw(st.integers(1, len(text)))])
    assert type(json.loads(found)) is type(value)


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ('{"a":1,"b":[1,{"c":2},3', '{"a":1,"b":[1,{"c":2}]}'),
        ('{"a":"},{","b":"]', '{"a":"},{"}'),
        ('{"a":1,"b\\', '{"a":1}'),
        ('{"a', "{}"),
        ("no json, {at all", "no json, {}"),
        ("none", "none"),
    ],
)
def test_only_what_is_whole_is_kept(cut: str, whole: str) -> None:
    """Members that are cut are left out."""
    assert closed(cut) == whole


@given(st.binary(max_size=80))
def test_what_is_wrapped_is_json_of_the_same_length(value: bytes) -> None:
    """Whatever it is, but for nothing."""
    found = wrapped(value)
    assert len(found) == len(value)
    if value:
        json.loads(found)


def test_an_object_stays_an_object() -> None:
    """An array an array; what was in it is still there, in a text."""
    assert json.loads(wrapped(b'{"customer":"Ottokar", "pai')) == {"": "mer : Ottokar ,  pai"}
    assert json.loads(wrapped(b"[12, 13, 14, 1")) == [" 13, 14, 1"]


@pytest.mark.parametrize(("mark", "quotes"), [(b'":"', 2), (b'"', 1), (b'\\"', 0), (b"{", 0), (b'\\\\"', 1)])
def test_quotes_behind_a_backslash_end_no_string(mark: bytes, quotes: int) -> None:
    """Unless that backslash is one itself."""
    assert quotes_of(mark) == quotes


def test_scalars_and_what_only_begins_like_json_are_none() -> None:
    """Objects and arrays are."""
    assert [is_json(value) for value in (b' {"a":1}', b"[]", b"12", b"[x] y", b"{", b"[" * 100_000)] == [
        *(True, True),
        *(False,) * 4,
    ]
