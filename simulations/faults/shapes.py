"""Shapes: what a field of a fault may hold, and how it is written as plain data.

A plan may come from an untrusted file. So every field has a shape, every value is checked against it when a
fault is made, and what is read from plain data (numbers, strings, booleans, lists, maps) is never taken for something
else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Protocol

import attrs

from callboard.log.errors import InvalidArgument
from callboard.simulations.disk.survival import Survival

TEXT_MAX: Final = 256
"""Characters in a path or a name."""
_SHOWN: Final = 40


class PlanError(InvalidArgument):
    """A fault, a plan or a fault space is not acceptable; `problems` lists all that is wrong. Nothing was run."""

    problems: tuple[str, ...]


def plan_error(problems: list[str]) -> PlanError:
    """One error for all `problems`, each of which says where it is."""
    return PlanError(
        f"{'; '.join(problems)}. Nothing was run. Correct the plan, or draw one with draw_plan.",
        problems=tuple(problems),
    )


class Shape(Protocol):
    """What a field may hold."""

    def problem(self, value: object) -> str | None:
        """What is wrong with `value`; None when nothing is."""
        ...

    def plain(self, value: Any) -> object:
        """A good value as plain data."""
        ...

    def read(self, data: object) -> object:
        """Plain data as a value, which still has to be checked."""
        ...


def shown(value: object) -> str:
    """A value for a message, cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _Plain:
    """A shape whose values are plain data themselves."""

    def plain(self, value: Any) -> object:
        return value

    def read(self, data: object) -> object:
        return data


@attrs.frozen
class WholeNumber(_Plain):
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def problem(self, value: object) -> str | None:
        if type(value) is int and self.low <= value <= self.high:
            return None
        return f"must be a whole number from {self.low:,} to {self.high:,}, not {shown(value)}"


@attrs.frozen
class Number(_Plain):
    """A number from `low` to `high`; never NaN."""

    low: float
    high: float

    def read(self, data: object) -> object:
        return number(data)

    def problem(self, value: object) -> str | None:
        if type(value) is float and self.low <= value <= self.high:
            return None
        return f"must be a number from {self.low:,g} to {self.high:,g}, not {shown(value)}"


@attrs.frozen
class Text(_Plain):
    """At most `TEXT_MAX` printable characters; `may_be_empty` says whether none will do."""

    may_be_empty: bool = True

    def problem(self, value: object) -> str | None:
        if (
            type(value) is str
            and len(value) <= TEXT_MAX
            and value.isprintable()
            and (value or self.may_be_empty)
        ):
            return None
        least = 0 if self.may_be_empty else 1
        return f"must be a text of {least} to {TEXT_MAX} printable characters, not {shown(value)}"


@attrs.frozen
class OneOf(_Plain):
    """One of a few words."""

    words: Collection[str]

    def problem(self, value: object) -> str | None:
        if type(value) is str and value in self.words:
            return None
        return f"must be one of {', '.join(self.words)}, not {shown(value)}"


@attrs.frozen
class Boolean(_Plain):
    """True or false."""

    def problem(self, value: object) -> str | None:
        return None if type(value) is bool else f"must be true or false, not {shown(value)}"


SHARE: Final = Number(0.0, 1.0)
SURVIVAL: Final[dict[str, Shape]] = {
    "seed": WholeNumber(0, 2**64 - 1),
    "applied": SHARE,
    "torn": SHARE,
    "trashed": SHARE,
    "names": SHARE,
    "zeros": Boolean(),
}
"""The fields of a `Survival`."""


@attrs.frozen
class Remains:
    """A `Survival`: what a power cut leaves."""

    def problem(self, value: object) -> str | None:
        if type(value) is Survival:
            fields: dict[Any, object] = attrs.asdict(value)
        elif type(value) is dict:
            fields = value
        else:
            return f"must be a survival (a map of {', '.join(SURVIVAL)}), not {shown(value)}"
        wrong = [f"no field is called {shown(name)}" for name in fields if name not in SURVIVAL]
        wrong += [
            f"{name} {problem}"
            for name, shape in SURVIVAL.items()
            if name in fields and (problem := shape.problem(fields[name])) is not None
        ]
        return f"is no survival: {', '.join(wrong)}" if wrong else None

    def plain(self, value: Any) -> object:
        return {name: getattr(value, name) for name in SURVIVAL}

    def read(self, data: object) -> object:
        if type(data) is not dict:
            return data
        fields = {
            name: number(found) if SURVIVAL.get(name) is SHARE else found for name, found in data.items()
        }
        return fields if self.problem(fields) is not None else Survival(**fields)


def number(value: Any) -> Any:
    """A whole number as a float, where a float is wanted; anything else as it is."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def field(shape: Shape, default: Any = attrs.NOTHING) -> Any:
    """An attrs field of this shape."""
    if isinstance(shape, Number):
        return attrs.field(default=default, converter=number, metadata={"shape": shape})
    # shrinking reads "least"
    least = {"least": shape.low} if isinstance(shape, WholeNumber) and shape.low > 0 else {}
    return attrs.field(default=default, metadata={"shape": shape, **least})


def shapes_of(kind: type[attrs.AttrsInstance]) -> dict[str, Shape]:
    """The shape of each field of `kind` that has one."""
    return {one.name: one.metadata["shape"] for one in attrs.fields(kind) if "shape" in one.metadata}


def problems_of(value: attrs.AttrsInstance) -> list[str]:
    """What is wrong with those fields of a fault, or of a moment, that have a shape."""
    return [
        f"{type(value).__name__}.{name} {problem}"
        for name, shape in shapes_of(type(value)).items()
        if (problem := shape.problem(getattr(value, name))) is not None
    ]
