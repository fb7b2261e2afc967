"""Plan: the faults of a run, in order, and their two written forms, CBOR and JSON.

Both hold the same: `{"callboard_plan": 1, "faults": [{"kind": "PowerCut", "when": {"at": 0.35}, "down_s": 1.0}]}`.
What is written names every field; what is read may leave out those that have a default.

A plan that is read is not trusted: unknown kinds and fields, wrong types, NaN, infinity, doubled names, tags, too many
faults and too many bytes are refused with all problems in one `PlanError`, and nothing else is ever raised.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, Self

import attrs
import cbor2

from callboard.control.frames import load_plain
from callboard.simulations.faults.kinds import KINDS, Fault
from callboard.simulations.faults.shapes import PlanError, plan_error, shapes_of, shown
from callboard.simulations.faults.when import when_from_data, when_to_data

FORMAT: Final = "callboard_plan"
VERSION: Final = 1
FAULTS_MAX: Final = 1_000
PLAN_BYTES_MAX: Final = 4 << 20
_PROBLEMS_MAX: Final = 10


def _faults(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen
class Plan:
    """The faults of a run. Their indexes are how hits are counted. Raises `PlanError` for more than `FAULTS_MAX`."""

    faults: tuple[Fault, ...] = attrs.field(default=(), converter=_faults)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.faults, tuple):
            raise plan_error([f"a plan holds a tuple of faults, not {shown(self.faults)}"])
        if len(self.faults) > FAULTS_MAX:
            raise plan_error([f"a plan holds at most {FAULTS_MAX:,} faults, not {len(self.faults):,}"])
        problems = [
            f"faults[{index}] is no fault but {shown(fault)}"
            for index, fault in enumerate(self.faults)
            if type(fault) not in KINDS.values()
        ]
        if problems:
            raise plan_error(problems[:_PROBLEMS_MAX])

    def words(self) -> str:
        """A line per fault."""
        return "\n".join(fault.words() for fault in self.faults)

    # -- written forms

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {FORMAT: VERSION, "faults": [fault_to_data(fault) for fault in self.faults]}

    @classmethod
    def from_data(cls, data: object) -> Self:
        """What `to_data` made. Raises `PlanError`."""
        if type(data) is not dict or data.keys() != {FORMAT, "faults"}:
            raise plan_error([f'a plan is a map of "{FORMAT}" and "faults", not {shown(data)}'])
        if type(data[FORMAT]) is not int or data[FORMAT] != VERSION:
            raise plan_error(
                [f'"{FORMAT}" must be {VERSION}, the only version there is, not {shown(data[FORMAT])}']
            )
        written = data["faults"]
        if type(written) is not list or len(written) > FAULTS_MAX:
            raise plan_error([f'"faults" must be a list of at most {FAULTS_MAX:,}'])
        faults, problems = [], []
        for index, one in enumerate(written):
            try:
                faults.append(fault_from_data(one))
            except PlanError as error:
                problems += [f"faults[{index}]: {problem}" for problem in error.problems]
        if problems:
            raise plan_error(problems[:_PROBLEMS_MAX])
        return cls(tuple(faults))

    def to_cbor(self) -> bytes:
        """As CBOR in its preferred form, without tags."""
        return cbor2.dumps(self.to_data())

    @classmethod
    def from_cbor(cls, stored: bytes) -> Self:
        """What `to_cbor` made. Raises `PlanError`."""
        _check_size(len(stored))
        try:
            data = load_plain(stored)
            if cbor2.dumps(data) != stored:
                raise ValueError("it is not in its one valid form")
        except ValueError as error:
            raise plan_error([f"these bytes are no plain CBOR: {_cut(error)}"]) from error
        return cls.from_data(data)

    def to_json(self) -> str:
        """As JSON for people: indented."""
        return json.dumps(self.to_data(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` made, or a person wrote. Raises `PlanError`."""
        _check_size(len(text))
        try:
            data = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
        except (ValueError, RecursionError) as error:
            raise plan_error([f"this is no JSON: {_cut(error)}"]) from error
        return cls.from_data(data)


NO_FAULTS: Final = Plan()


def fault_to_data(fault: Fault) -> dict[str, object]:
    """A fault as plain data."""
    data: dict[str, object] = {"kind": type(fault).__name__, "when": when_to_data(fault.when)}
    for name, shape in shapes_of(type(fault)).items():
        data[name] = shape.plain(getattr(fault, name))
    return data


def fault_from_data(data: object) -> Fault:
    """What `fault_to_data` made. Raises `PlanError`."""
    if type(data) is not dict or type(data.get("kind")) is not str:
        raise plan_error([f'a fault is a map with "kind" and "when", not {shown(data)}'])
    made = KINDS.get(data["kind"])
    if made is None:
        raise plan_error([f"there is no kind of fault {shown(data['kind'])}; there are {', '.join(KINDS)}"])
    shapes = shapes_of(made)
    problems = [
        f"{made.__name__} has no field {shown(name)}"
        for name in data
        if name not in {"kind", "when", *shapes}
    ]
    fields: dict[str, Any] = {}
    try:
        fields["when"] = when_from_data(data.get("when"))
    except PlanError as error:
        problems += [f"{made.__name__}.when: {problem}" for problem in error.problems]
    for name, shape in shapes.items():
        if name in data:
            fields[name] = shape.read(data[name])
            problem = shape.problem(fields[name])
            if problem is not None:
                problems.append(f"{made.__name__}.{name} {problem}")
        elif attrs.fields_dict(made)[name].default is attrs.NOTHING:
            problems.append(f"{made.__name__}.{name} is missing")
    if problems:
        raise plan_error(problems)
    return made(**fields)


def _check_size(size: int) -> None:
    if size > PLAN_BYTES_MAX:
        raise plan_error([f"a plan has at most {PLAN_BYTES_MAX:,} bytes, not {size:,}"])


def _cut(error: BaseException) -> str:
    return str(error)[:200]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a name stands twice in {shown(sorted(name for name, _ in pairs))}")
    return found
