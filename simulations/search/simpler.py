"""Simpler faults: for one made of numbers, tuples and frozen attrs classes, those that are a step simpler.

Simpler means: fewer items, smaller numbers, rounder numbers; strings are names, and stay. A field's metadata may say
how far: with `{"least": 1}` numbers go no lower, and tuples get no shorter.

Every step makes a value strictly simpler, so stepping ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import attrs

from callboard.log.errors import CallboardError

V = TypeVar("V")

UNBOUNDED: Final[Mapping[str, Any]] = {}


def variants(value: Any, limits: Mapping[str, Any] = UNBOUNDED) -> Iterator[Any]:
    """Values that are one step simpler, the boldest first."""
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from _integers(value, limits)
    elif isinstance(value, float):
        yield from _floats(value, limits)
    elif isinstance(value, tuple):
        yield from _tuples(value, limits)
    elif attrs.has(type(value)):
        yield from _objects(value)


def _integers(value: int, limits: Mapping[str, Any]) -> Iterator[int]:
    least = math.ceil(limits.get("least", 0))
    if value < least:
        if "least" not in limits:
            yield from (0, -value, -(-value // 2))
        return
    tried = {value}
    for simpler in (least, least + (value - least) // 2, value - (value - least) // 4, value - 1):
        if simpler not in tried and least <= simpler < value:
            tried.add(simpler)
            yield simpler


def _floats(value: float, limits: Mapping[str, Any]) -> Iterator[float]:
    least = float(limits.get("least", 0.0))
    if not math.isfinite(value) or value < least:
        if "least" not in limits and value != 0.0:
            yield 0.0
        return
    tried = {value}
    for simpler in (least, float(int(value)), round(value, 1), round(value, 3), float(int(value) // 2)):
        if simpler not in tried and simpler >= least and _measure(simpler, least) < _measure(value, least):
            tried.add(simpler)
            yield simpler


def _measure(value: float, least: float) -> tuple[int, float]:
    """Smaller is simpler: the least of all first, then by digits, then by size."""
    return (
        0 if value == least else len(f"{value:g}") if value == float(f"{value:g}") else len(repr(value))
    ), value


def _tuples(value: tuple[Any, ...], limits: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    least = int(limits.get("least", 0))
    for first, end in chunks(len(value)):
        if len(value) - (end - first) >= least:
            yield value[:first] + value[end:]
    for at, item in enumerate(value):
        for simpler in variants(item):
            yield (*value[:at], simpler, *value[at + 1 :])


def _objects(value: Any) -> Iterator[Any]:
    for field in attrs.fields(type(value)):
        if not field.init:
            continue
        for simpler in variants(getattr(value, field.name), field.metadata):
            made = _evolved(value, field.alias, simpler)
            if made is not None:
                yield made


def _evolved(value: Any, name: str, simpler: Any) -> Any:
    """The object with one field simpler; None when its class does not allow that."""
    try:
        return attrs.evolve(value, **{name: simpler})
    except (CallboardError, ValueError, TypeError):
        return None


def chunks(count: int) -> Iterator[tuple[int, int]]:
    """Spans of `count` items to leave out: all, halves, quarters, down to single ones; from the end on."""
    size = count
    while size:
        for end in range(count, 0, -size):
            yield max(0, end - size), end
        size //= 2


def greedy(value: V, simpler: Callable[[V], Iterator[V]], holds: Callable[[V], bool]) -> V:
    """Step to simpler values for as long as `holds`, until no single step does; what did not hold is not tried again.

    After a step it continues at the same place, so that a failed simplification is tried again only in the next round.
    """
    failed: set[V] = set()
    while True:
        before, at = value, 0
        while (step := _step(value, at, simpler, holds, failed)) is not None:
            at, value = step
        if value == before:
            return value


def _step(
    value: V, begin: int, simpler: Callable[[V], Iterator[V]], holds: Callable[[V], bool], failed: set[V]
) -> tuple[int, V] | None:
    """The first simpler value that holds from the `begin`-th on, and which one it was."""
    for at, candidate in enumerate(islice(simpler(value), begin, None), begin):
        if candidate in failed:
            continue
        if holds(candidate):
            return at, candidate
        failed.add(candidate)
    return None
