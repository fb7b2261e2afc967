"""Made-up values: as long as they are to be, as compressible as the recorded ones, and without a word of theirs."""

from __future__ import annotations

import hashlib
import json
import math
import pathlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from callboard.simulations.workload.value_learning import Sampled, learn
from tests.simulations.workload.test_value_learning import ANY_VALUES
from tests.simulations.workload.values import (
    json_notices,
    json_orders,
    learned,
    log_lines,
    long_words,
    made,
    packed_records,
    ratio,
    sampled,
)

KINDS = [json_orders, log_lines, packed_records]
DIGEST = "7b57cbdc5e379eedc4883590636ab1abc1c1677f0d539e123bed2e5a440c6e55"
"""SHA-256 of some made-up values: on any machine, with any version of Python and NumPy."""


@pytest.fixture(scope="module")
def value_library(spark_packages: None) -> Any:
    """`callboard.simulations.workload.value_library`, which needs numpy."""
    return import_module("callboard.simulations.workload.value_library")


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_as_long_as_they_are_to_be(value_library: Any, kind: Callable[[int], Any]) -> None:
    """Also where no value of the recording was as short or as long."""
    sizes = [*range(700), 5_000, 100_000, 1, 0]
    values = made(value_library, learned(kind(300)), sizes, range(len(sizes)))
    assert [len(value) for value in values] == sizes


@given(ANY_VALUES, st.lists(st.integers(0, 300), max_size=20))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_model_makes_values_of_any_size(
    value_library: Any, values: list[bytes], sizes: list[int]
) -> None:
    """Whatever it was learned from."""
    model = learn([Sampled(0, [(b"%d" % (len(value) % 3), value) for value in values])])
    assert model is not None
    assert [len(value) for value in made(value_library, model, sizes, [0] * len(sizes))] == sizes


@pytest.mark.parametrize("kind", KINDS)
def test_values_compress_as_the_recorded_ones(value_library: Any, kind: Callable[[int], Any]) -> None:
    """Within a quarter, with sizes and keys of the recording."""
    records = kind(2_000)
    keys = sorted({key for key, _ in records}, key=str)
    values = made(
        value_library,
        learned(records),
        [len(value) for _, value in records],
        [keys.index(key) for key, _ in records],
    )
    assert 0.8 < ratio(values) / ratio([value for _, value in records]) < 1.25


@pytest.mark.parametrize("kind", [json_orders, log_lines])
def test_no_word_of_the_recording_is_made_up_again(value_library: Any, kind: Callable[[int], Any]) -> None:
    """But names of JSON fields."""
    records = kind(1_000)
    values = made(value_library, learned(records), [len(value) for _, value in records], range(len(records)))
    assert long_words(values) & long_words([value for _, value in records]) <= {"customer", "placed"}


def test_json_stays_json(value_library: Any) -> None:
    """With the fields that it had, where sizes are those of the recording."""
    records = json_orders(1_000)
    values = made(value_library, learned(records), [len(value) for _, value in records], range(len(records)))
    parsed = [json.loads(value) for value in values]
    assert {tuple(each) for each in parsed} == {
        ("order_id", "customer", "placed_at", "paid", "note", "total")
    }
    assert {type(each["paid"]) for each in parsed} == {bool}


def test_json_stays_json_where_what_follows_from_the_key_is_long(value_library: Any) -> None:
    """Each source has a text of its own, up to 200 bytes: other keys have it where the recorded sizes lie."""
    records = json_notices(600)
    values = made(value_library, learned(records), [len(value) for _, value in records], range(600))
    assert {tuple(json.loads(value)) for value in values} == {("source", "about", "code", "is_known")}


def earthquakes() -> list[tuple[bytes, bytes]]:
    """Reports of earthquakes as JSON; the key is the network of seismometers. See `traffic/README.md`."""
    lines = (pathlib.Path(__file__).parent / "traffic" / "earthquakes.jsonl").read_bytes().splitlines()
    return [(json.loads(line)["properties"]["net"].encode(), line) for line in lines]


def test_reports_of_earthquakes_stay_json(value_library: Any) -> None:
    """With all their fields, twenty times as many, as well packed; with no place, address or number of theirs."""
    records = earthquakes()
    assert len(records) == 240
    keys = sorted({key for key, _ in records})
    model = learned(records)
    assert len(model.to_json()) < 200_000
    values = made(
        value_library,
        model,
        [len(value) for _, value in records] * 20,
        [keys.index(key) for key, _ in records] * 20,
    )
    parsed = [json.loads(value) for value in values]
    fields = set(json.loads(records[0][1])["properties"])
    assert {frozenset(each["properties"]) for each in parsed} == {frozenset(fields)}
    assert {type(each["properties"]["tsunami"]) for each in parsed} == {int}
    assert 0.8 < ratio(values[:240]) / ratio([value for _, value in records]) < 1.25
    names = {name.lower() for name in fields} | {"feature", "properties", "geometry", "coordinates"}
    shared = long_words(values) & long_words([value for _, value in records])
    assert shared <= names
    text = model.to_json().lower()
    assert all(word in names for word in ("washington", "earthquake", "geojson", "usgs") if word in text)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 30, 60, 400, 30_000])
def test_json_of_any_size_is_json(value_library: Any, size: int) -> None:
    """Far from all sizes of the recording, too: where nothing else fits, it is one text."""
    values = made(value_library, learned(json_orders(200)), [size] * 50, range(50))
    assert all(json.loads(value) is not None for value in values)
    assert {len(value) for value in values} == {size}


JSON_VALUES = st.lists(
    st.recursive(
        st.dictionaries(st.text(max_size=5), st.integers(), max_size=3) | st.lists(st.integers(), max_size=3),
        lambda inner: (
            st.lists(inner | st.text(max_size=9) | st.floats(), max_size=3)
            | st.dictionaries(st.text(max_size=5), inner | st.text() | st.none() | st.booleans(), max_size=3)
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=30,
)


@example([[-math.inf]], False, [1])
@given(JSON_VALUES, st.booleans(), st.lists(st.integers(1, 300), min_size=1, max_size=20))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_makes_json_of_any_size(
    value_library: Any, recorded: list[Any], is_ascii: bool, sizes: list[int]
) -> None:
    """Escapes, numbers with exponents, empty names and all."""
    values = [json.dumps(value, ensure_ascii=is_ascii).encode(errors="replace") for value in recorded]
    model = learn([Sampled(0, [(b"%d" % (len(value) % 3), value) for value in values])])
    assert model is not None
    for value in made(value_library, model, sizes, [0] * len(sizes)):
        json.loads(value)


def test_what_is_bound_to_the_key_is_the_same_for_a_key(value_library: Any) -> None:
    """Each of twelve keys has a host of its own, or shares it with another."""
    records = log_lines(600)
    values = made(value_library, learned(records), [90] * 240, [number % 12 for number in range(240)])
    hosts = [{value.split()[0] for value in values[key::12]} for key in range(12)]
    assert {len(each) for each in hosts} == {1}
    assert len(set.union(*hosts)) > 4


def test_what_a_single_value_had_is_drawn_anew(value_library: Any) -> None:
    """Numbers of orders never come twice."""
    records = json_orders(300)
    values = made(value_library, learned(records), [len(records[0][1])] * 2_000, [1] * 2_000)
    numbers = [value.split(b",")[0] for value in values]
    assert len(set(numbers)) > 1_990


def test_the_same_seed_makes_the_same_values_on_any_machine(value_library: Any) -> None:
    """And another seed makes others."""
    model = learned(json_orders(200) + log_lines(200))
    sizes = [40 + number % 150 for number in range(1_000)]
    values = made(value_library, model, sizes, range(1_000))
    assert hashlib.sha256(b"\n".join(values)).hexdigest() == DIGEST
    assert made(value_library, model, sizes, range(1_000), seed="8") != values


def test_events_without_end_are_made_in_parts(value_library: Any) -> None:
    """No event makes no value."""
    assert made(value_library, learned(log_lines(10)), [], []) == []
    assert len(sampled([])) == 4
