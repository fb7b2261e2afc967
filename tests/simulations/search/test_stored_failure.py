"""Stored failures: there and back, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.simulations.faults import At, Plan, PowerCut
from callboard.simulations.search.stored_failure import StoredFailure, read_stored_failure
from callboard.simulations.world import Tape

STORED = StoredFailure(
    scenario="shop",
    seed=7,
    scheduler="walk",
    workload={"messages": 3, "keys": ["a", "b"], "rate": 0.5},
    plan=Plan((PowerCut(At(1.5)),)),
    tape=Tape(((), (), (1, 0), (2,))),
    hits={0: 1},
    promise="nothing lost",
    words="message 1 is gone",
    version="0.1.0",
    note="found by a sweep",
)


def test_both_forms_come_back_as_they_were() -> None:
    """CBOR and JSON hold the same stored failure."""
    assert STORED == read_stored_failure(STORED.to_cbor())
    assert STORED == read_stored_failure(STORED.to_json().encode())


def test_a_stored_failure_without_a_tape_comes_back() -> None:
    """No tape is not an empty tape."""

    bare = attrs.evolve(STORED, tape=None)
    empty = attrs.evolve(STORED, tape=Tape())
    assert read_stored_failure(bare.to_cbor()).tape is None
    assert read_stored_failure(empty.to_cbor()).tape == Tape()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("callboard-failure", 2),
        ("scenario", 5),
        ("scenario", "x" * 1000),
        ("seed", -1),
        ("seed", "7"),
        ("seed", True),
        ("plan", {"faults": [{"kind": "Meteor"}]}),
        ("plan", 5),
        ("tape", "abc"),
        ("tape", [[0, 0]]),
        ("tape", [-1]),
        ("hits", {"0": 1}),
        ("hits", [[0, "often"]]),
        ("workload", {"rate": float("inf")}),
        ("words", None),
        ("colour", "blue"),
    ],
)
def test_each_part_is_checked(name: str, value: Any) -> None:
    """A part of a wrong type, or one that nobody knows, is refused in both forms."""
    data = json.loads(STORED.to_json())
    data[name] = value
    with pytest.raises(InvalidArgument):
        read_stored_failure(cbor2.dumps(data))
    with pytest.raises(InvalidArgument):
        read_stored_failure(json.dumps(data).encode())


@pytest.mark.parametrize("sign", ["\x1b[2J", "\u202e", "\r", "\0", "\x85", "\u2028"])
@pytest.mark.parametrize("name", ["scenario", "scheduler", "promise", "words", "version", "note", "workload"])
def test_what_cannot_be_printed_is_refused(name: str, sign: str) -> None:
    """No stored text steers a terminal, or turns around the text of a page; the error does not repeat it."""
    data = json.loads(STORED.to_json())
    texts = [f"nothing {sign}lost"] if name != "workload" else [{"a": f"b{sign}"}, {f"a{sign}": 1}, [sign]]
    for text in texts:
        data[name] = text
        for stored in (cbor2.dumps(data), json.dumps(data).encode()):
            with pytest.raises(InvalidArgument, match=f"its {name} has a character that cannot") as caught:
                read_stored_failure(stored)
            assert str(caught.value).isprintable()


def test_words_may_have_lines_and_names_not() -> None:
    """Words are those of any exception; a promise is a name."""
    told = attrs.evolve(STORED, words="two\nlines", note="also\ntwo")
    assert told == read_stored_failure(told.to_cbor())
    with pytest.raises(InvalidArgument, match="promise"):
        read_stored_failure(attrs.evolve(STORED, promise="two\nlines").to_cbor())


@pytest.mark.parametrize("name", ["scenario", "seed", "plan", "tape", "hits", "promise", "workload"])
def test_a_missing_part_is_named(name: str) -> None:
    """A stored failure without one of its parts is none."""
    data = json.loads(STORED.to_json())
    del data[name]
    with pytest.raises(InvalidArgument, match=name):
        read_stored_failure(cbor2.dumps(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_order(stored: bytes) -> None:
    """Foreign bytes raise the one error, and nothing else."""
    with pytest.raises(InvalidArgument):
        read_stored_failure(stored)


@given(st.data())
def test_damaged_bytes_are_refused_or_read(data: st.DataObject) -> None:
    """A stored failure with a byte changed is either refused or a stored failure; nothing else is raised."""
    stored = bytearray(STORED.to_cbor())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] = data.draw(st.integers(0, 255))
    try:
        read_stored_failure(bytes(stored))
    except InvalidArgument:
        pass


def test_nesting_without_end_is_refused() -> None:
    """Deep nesting ends in the error, not in the interpreter's stack."""
    with pytest.raises(InvalidArgument):
        read_stored_failure(b'{"a":' * 100_000)
    with pytest.raises(InvalidArgument):
        read_stored_failure(b"\x81" * 100_000)
