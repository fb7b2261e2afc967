"""Models of values: what they keep of a sample, and above all what they do not."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.simulations.workload import value_learning
from callboard.simulations.workload.value_learning import Sampled, learn
from callboard.simulations.workload.value_model import read_model
from tests.simulations.workload.values import (
    json_orders,
    learned,
    log_lines,
    long_words,
    packed_records,
    sampled,
)

ANY_VALUES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(str.encode),
        st.from_regex(r"[a-c]{1,3} \d{1,3}( \[x\])?", fullmatch=True).map(str.encode),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=8,
        ).map(lambda value: json.dumps({"some_name": value}).encode()),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("records", [json_orders(400), log_lines(400)])
def test_no_word_of_the_values_is_in_the_model(records: list[tuple[bytes, bytes]]) -> None:
    """But the names of JSON fields that at least half of the values have."""
    text = learned(records).to_json()
    kept = long_words([text.encode()])
    assert not kept & (long_words([value for _, value in records]) - {"order", "customer", "placed"})
    assert kept <= {"customer", "phrases", "shapes", "stretches", "templates", "examples", "placed"}


def test_names_of_fields_are_kept_where_half_of_the_values_have_them() -> None:
    """Others are words as all others: the name of a person is one, where a map has people for its fields."""
    people = ["Ottokar", "Brunhilde", "Sigismund"]
    records = [
        (None, json.dumps({"balances": {people[number % 3]: number}, "kind of": 1}).encode())
        for number in range(99)
    ]
    model = learned(records)
    assert model.names == ("balances",)
    assert "Ottokar" not in model.to_json()
    assert "kind" not in model.to_json()


@given(ANY_VALUES)
@settings(max_examples=150)
def test_any_values_give_a_model_that_is_read_again(values: list[bytes]) -> None:
    """Whatever they are: text, JSON, and neither."""
    model = learn([Sampled(0, [(None, value) for value in values])])
    assert model is not None
    assert read_model(json.loads(model.to_json())) == model
    assert [len(stretch.examples) for stretch in model.stretches] == [len(values)]


def test_the_same_sample_gives_the_same_model_in_any_order_of_hashes() -> None:
    """A model depends on the sample alone; its lists are not in the order of sets."""
    assert learned(json_orders(200)).to_json() == learned(json_orders(200)).to_json()


def test_what_follows_from_the_key_is_bound_to_it() -> None:
    """The customer of an order, and the host of a request; nothing else of them."""
    orders, lines = learned(json_orders(400)), learned(log_lines(400))
    assert {len(template.bound) for template in orders.templates if template.rows} == {1}
    assert {len(template.rows) for template in lines.templates if template.bound} == {12}


def test_without_keys_nothing_is_bound() -> None:
    """However regular the values are."""
    model = learned([(None, value) for _, value in log_lines(100)])
    assert not any(template.bound for template in model.templates)


def test_a_model_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values that have little in common fewer are learned from; the stretches that stay are spread evenly."""
    random_ = random.Random(1)
    records = [
        (None, " ".join(f"{random_.randrange(10**9):x}" for _ in range(20)).encode()) for _ in range(400)
    ]
    whole = learned(records, 8)
    monkeypatch.setattr(value_learning, "MODEL_BYTES_MAX", len(whole.to_json()) // 3)
    part = learned(records, 8)
    assert len(part.to_json()) <= len(whole.to_json()) // 3
    assert [stretch.at_us for stretch in part.stretches] == [0, 4_000_000]
    monkeypatch.setattr(value_learning, "MODEL_BYTES_MAX", len(whole.to_json()) // 40)
    least = learned(records, 8)
    assert len(least.stretches) == 1
    assert len(least.stretches[0].examples) < 50


def test_nothing_gives_no_model() -> None:
    """Neither no stretch nor an empty one."""
    assert learn([]) is None
    assert learn([Sampled(0, [])]) is None


def test_bytes_that_are_no_text_are_learned_from_as_well() -> None:
    """Their zeros are kept; the words are of four bytes."""
    model = learned(packed_records(50))
    assert set("".join(model.marks)) == {"\0"}
    assert "b4" in model.shapes


def test_samples_keep_the_order_of_records() -> None:
    """An example for each, in the stretch that it was in."""
    records = log_lines(10)
    model = learned(records, 2)
    assert [len(stretch.examples) for stretch in model.stretches] == [5, 5]
    assert len(sampled(records, 2)) == 2
