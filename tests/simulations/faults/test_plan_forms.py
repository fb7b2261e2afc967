"""Plans keep their meaning in CBOR and JSON, and nothing that is no plan is taken for one."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import CallboardError
from callboard.simulations.faults import (
    KINDS,
    NO_FAULTS,
    After,
    At,
    CrashActor,
    Fault,
    JumpClock,
    Plan,
    PlanError,
    PowerCut,
    Survival,
)
from callboard.simulations.faults.plan import FAULTS_MAX, PLAN_BYTES_MAX
from callboard.simulations.faults.shapes import Boolean, Number, OneOf, Remains, Text, WholeNumber, shapes_of
from callboard.simulations.faults.when import SECONDS_MAX

SHARES = st.floats(0.0, 1.0)
SURVIVALS = st.builds(
    Survival,
    seed=st.integers(0, 2**64 - 1),
    applied=SHARES,
    torn=SHARES,
    trashed=SHARES,
    names=SHARES,
    zeros=st.booleans(),
)


def values(shape: Any) -> st.SearchStrategy[Any]:
    """What a field of that shape may hold."""
    match shape:
        case WholeNumber(low, high):
            return st.integers(low, high)
        case Number(low, high):
            return st.floats(low, high)
        case Text(may_be_empty):
            characters = st.characters(exclude_categories=("C", "Z"))
            return st.text(characters, min_size=0 if may_be_empty else 1, max_size=40)
        case OneOf(words):
            return st.sampled_from(sorted(words))
        case Boolean():
            return st.booleans()
        case Remains():
            return SURVIVALS
    raise AssertionError(shape)


def built(kind: type[Any], **more: Any) -> st.SearchStrategy[Any]:
    """Values of an attrs class whose fields have shapes."""
    return st.builds(kind, **{name: values(shape) for name, shape in shapes_of(kind).items()}, **more)


WHENS = built(At) | built(After)
FAULTS: st.SearchStrategy[Fault] = st.one_of([built(kind, when=WHENS) for kind in KINDS.values()])
PLANS = st.lists(FAULTS, max_size=6).map(Plan)
JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
GOOD: dict[str, Any] = {"kind": "PowerCut", "when": {"at": 0.5}, "down_s": 2.0}


def written(*faults: Any) -> str:
    """A plan as somebody might write it."""
    return json.dumps({"callboard_plan": 1, "faults": list(faults)})


@given(PLANS)
def test_a_plan_comes_back_from_both_forms_as_it_was(plan: Plan) -> None:
    """CBOR and JSON hold all of a plan, to the last bit of a float."""
    assert Plan.from_cbor(plan.to_cbor()) == plan
    assert Plan.from_json(plan.to_json()) == plan


@given(FAULTS)
def test_every_fault_is_a_sentence(fault: Fault) -> None:
    """A fault tells its moment, then what happens, on one line without a full stop."""
    sentence = fault.words()
    assert sentence.startswith(fault.when.words())
    assert len(sentence) > len(fault.when.words()) + 10
    assert "\n" not in sentence
    assert not sentence.endswith(".")


@given(st.binary(max_size=200) | JSON_LIKE.map(cbor2.dumps))
def test_bytes_that_are_no_plan_are_refused(stored: bytes) -> None:
    """Whatever bytes come, they are refused by PlanError and by nothing else."""
    with pytest.raises(PlanError):
        Plan.from_cbor(stored)


@given(PLANS, st.data())
def test_a_damaged_plan_is_refused_or_another_good_plan(plan: Plan, data: st.DataObject) -> None:
    """Bytes changed at random never raise anything but PlanError, and what is taken can be written again."""
    stored = bytearray(plan.to_cbor())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    try:
        other = Plan.from_cbor(bytes(stored))
    except PlanError:
        return
    assert Plan.from_cbor(other.to_cbor()) == other


@given(st.text(max_size=60) | JSON_LIKE.map(json.dumps))
def test_text_that_is_no_plan_is_refused(text: str) -> None:
    """Whatever text comes, it is refused by PlanError and by nothing else."""
    with pytest.raises(PlanError):
        Plan.from_json(text)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_wrong_values_in_fields_are_refused_or_good(kind: str, data: st.DataObject) -> None:
    """Any data in any field makes a fault that can be written again, or a PlanError that names the place."""
    fields = {
        name: data.draw(JSON_LIKE | values(shape)) for name, shape in shapes_of(KINDS[kind]).items() if name
    }
    fields = {
        name: attrs.asdict(value) if isinstance(value, Survival) else value for name, value in fields.items()
    }
    plan = {
        "callboard_plan": 1,
        "faults": [{"kind": kind, "when": data.draw(st.just({"at": 1}) | JSON_LIKE), **fields}],
    }
    try:
        made = Plan.from_data(plan)
    except PlanError as error:
        assert all(problem.startswith("faults[0]: ") for problem in error.problems)
    else:
        assert Plan.from_data(made.to_data()) == made


def test_defaults_may_be_left_out_by_who_writes() -> None:
    """A person writes only what differs, and whole numbers where numbers are meant."""
    plan = Plan.from_json(
        written({"kind": "PowerCut", "when": {"at": 2}}, {"kind": "Rot", "when": {"after": "disk.sync"}})
    )
    cut, rot = plan.faults
    assert cut == PowerCut(At(2.0))
    assert rot.when == After("disk.sync", 1, "")


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({**GOOD, "kind": "Meteor"}, "'Meteor'"),
        ({**GOOD, "down": 1}, "'down'"),
        ({**GOOD, "down_s": "1"}, "down_s must be a number"),
        ({**GOOD, "down_s": True}, "down_s must be a number"),
        ({**GOOD, "down_s": -1}, "down_s must be a number"),
        ({**GOOD, "when": {"at": 1, "after": "x"}}, "when"),
        ({**GOOD, "when": {"at": None}}, "At.seconds"),
        ({**GOOD, "when": {"after": "x", "count": 0}}, "After.count"),
        ({**GOOD, "survival": {"applied": 2}}, "applied must be a number from 0 to 1"),
        ({**GOOD, "survival": {"luck": 1}}, "'luck'"),
        ({"kind": "CrashActor", "when": {"at": 1}}, "path is missing"),
        ({"kind": "CrashActor", "when": {"at": 1}, "path": ""}, "path must be a text"),
        ({"kind": "CrashActor", "when": {"at": 1}, "path": "a" * 257}, "path must be a text"),
        ({"kind": "FailVerb", "when": {"at": 1}, "verb": "read"}, "verb must be one of"),
        (
            {"kind": "FailVerb", "when": {"at": 1}, "verb": "sync", "times": 1.5},
            "times must be a whole number",
        ),
        ({"when": {"at": 1}}, "kind"),
        (7, "7"),
    ],
)
def test_a_problem_is_named_with_its_place(bad: Any, named: str) -> None:
    """The error says which fault, which field, what it wants, and that nothing was run."""
    with pytest.raises(PlanError) as caught:
        Plan.from_json(written(GOOD, bad))
    assert caught.value.problems[0].startswith("faults[1]: ")
    assert named in caught.value.problems[0]
    assert "Nothing was run." in str(caught.value)
    assert isinstance(caught.value, CallboardError)


def test_all_problems_are_in_one_error() -> None:
    """Two bad fields of one fault and one of another are told at once."""
    with pytest.raises(PlanError) as caught:
        Plan.from_json(written({**GOOD, "down_s": -1, "x": 1}, {**GOOD, "when": 3}))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 5000])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    """NaN, infinities and monstrous numbers are refused, however they are written."""
    with pytest.raises(PlanError):
        Plan.from_json(written(GOOD).replace("2.0", text))


@pytest.mark.parametrize("number", [math.nan, math.inf, -0.1, SECONDS_MAX * 2, "1", None])
def test_faults_are_checked_when_they_are_made(number: Any) -> None:
    """Code cannot make a fault that could not be written."""
    with pytest.raises(PlanError):
        At(number)
    with pytest.raises(PlanError):
        PowerCut(At(0.0), down_s=number)


def test_names_that_stand_twice_are_refused() -> None:
    """JSON and CBOR with a doubled name say two things at once."""
    with pytest.raises(PlanError):
        Plan.from_json('{"callboard_plan": 1, "faults": [], "faults": []}')
    doubled = b"\xa3" + cbor2.dumps("faults") + b"\x80" + cbor2.dumps("faults") + b"\x80"
    with pytest.raises(PlanError):
        Plan.from_cbor(doubled + cbor2.dumps("callboard_plan") + b"\x01")


@pytest.mark.parametrize(
    "stored",
    [
        cbor2.dumps(cbor2.CBORTag(28, {"callboard_plan": 1, "faults": []})),
        cbor2.dumps({"callboard_plan": 1, "faults": cbor2.CBORTag(258, [])}),
        NO_FAULTS.to_cbor() + b"\x00",
        NO_FAULTS.to_cbor()[:-1],
        b"\xbf" + NO_FAULTS.to_cbor()[1:] + b"\xff",
        b"\x9f" * 100_000,
        b"\x81" * 100_000,
        b"",
    ],
    ids=["shared", "set", "more", "less", "indefinite", "endless", "deep", "nothing"],
)
def test_unusual_cbor_is_refused(stored: bytes) -> None:
    """Tags, indefinite lengths, deep nests, and bytes too many or too few."""
    with pytest.raises(PlanError):
        Plan.from_cbor(stored)


def test_limits_hold() -> None:
    """A plan has at most this many faults and this many bytes."""
    fault = CrashActor(At(0.0), "a")
    most = Plan((fault,) * FAULTS_MAX)
    assert Plan.from_json(most.to_json()) == most
    with pytest.raises(PlanError):
        Plan((fault,) * (FAULTS_MAX + 1))
    with pytest.raises(PlanError):
        Plan.from_json(written(*[GOOD] * (FAULTS_MAX + 1)))
    for size in (PLAN_BYTES_MAX + 1, PLAN_BYTES_MAX * 2):
        with pytest.raises(PlanError):
            Plan.from_json(" " * size)
        with pytest.raises(PlanError):
            Plan.from_cbor(bytes(size))


@pytest.mark.parametrize("faults", [3, None, "PowerCut", (1,), [JumpClock]])
def test_a_plan_holds_faults_only(faults: Any) -> None:
    """Anything else is refused when the plan is made."""
    with pytest.raises(PlanError):
        Plan(faults)


def test_the_largest_plan_fits_its_own_limit() -> None:
    """Whatever plan can be made can be written and read."""
    widest = max((built for built in KINDS.values()), key=lambda kind: len(shapes_of(kind)))
    text = "\U0001f600" * 256
    texts = {name: text for name, shape in shapes_of(widest).items() if isinstance(shape, Text)}
    others = {"verb": "sync_directory"} if "verb" in shapes_of(widest) else {}
    plan = Plan((widest(After(text, 1, text), **texts, **others),) * FAULTS_MAX)
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_cbor(plan.to_cbor()) == plan
