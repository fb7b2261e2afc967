"""Values as plain data: frozen attrs classes of numbers, strings, tuples and such classes, to be stored and read back.

What is read back comes from files that people edit and send each other, so it is held to the class's own types: nothing
is imported or made by a name in the data. Plain data is what JSON and CBOR share: mappings, lists, numbers, strings,
booleans and null.
"""

from __future__ import annotations

import math
import types
import typing
from typing import Any, Final

import attrs

from callboard.log.errors import CallboardError, InvalidArgument

DEPTH_MAX: Final = 32
ITEMS_MAX: Final = 1_000_000


def to_plain(value: Any) -> Any:
    """A value as plain data. Raises `InvalidArgument` for one that is not made of the types that can be stored."""
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth < DEPTH_MAX:
        if isinstance(value, tuple):
            return [_plain(item, depth + 1) for item in value]
        if attrs.has(type(value)):
            return {
                field.name: _plain(getattr(value, field.name), depth + 1)
                for field in attrs.fields(type(value))
                if field.init
            }
    raise InvalidArgument(
        f"{type(value).__name__!r} cannot be stored. Use frozen attrs classes of numbers, strings, tuples."
    )


def from_plain(kind: Any, data: Any, where: str = "workload") -> Any:
    """`data` as a value of the type `kind`; raises `InvalidArgument`, naming the place, for what does not fit."""
    return _value(kind, data, where, 0)


def _value(kind: Any, data: Any, where: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise _bad(where, "it is nested too deeply")
    if kind is Any:
        return _untyped(data, where)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(typing.get_args(kind), data, where, depth)
    if origin is typing.Literal:
        if data not in typing.get_args(kind) or isinstance(data, bool):
            raise _bad(where, f"{str(data)[:40]!r} is none of {', '.join(map(repr, typing.get_args(kind)))}")
        return data
    if kind is tuple or origin is tuple:
        return _tuple(typing.get_args(kind), data, where, depth)
    if attrs.has(kind):
        return _object(kind, data, where, depth)
    return _scalar(kind, data, where)


def _scalar(kind: Any, data: Any, where: str) -> Any:
    if kind in (None, types.NoneType) and data is None:
        return None
    if kind is float and type(data) in (int, float):
        try:
            number = float(data)
        except OverflowError:  # an integer larger than any float
            number = math.inf
        if not math.isfinite(number):
            raise _bad(where, "it is not a finite number")
        return number
    if kind in (bool, int, str) and type(data) is kind:
        return data
    raise _bad(where, f"{str(data)[:40]!r} is no {getattr(kind, '__name__', kind)}")


def _untyped(data: Any, where: str) -> Any:
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list) and len(data) <= ITEMS_MAX:
        return tuple(_untyped(item, where) for item in data)
    raise _bad(where, f"{str(data)[:40]!r} is neither a number, a string nor a list of such")


def _one_of(kinds: tuple[Any, ...], data: Any, where: str, depth: int) -> Any:
    for kind in kinds:
        try:
            return _value(kind, data, where, depth)
        except InvalidArgument:
            continue
    raise _bad(where, f"{str(data)[:40]!r} is of none of the types that it may have")


def _tuple(kinds: tuple[Any, ...], data: Any, where: str, depth: int) -> Any:
    if not isinstance(data, list) or len(data) > ITEMS_MAX:
        raise _bad(where, f"{str(data)[:40]!r} is no list")
    if not kinds:
        kinds = (Any, ...)
    if len(kinds) == 2 and kinds[1] is ...:
        return tuple(
            _value(kinds[0], item, f"{where}[{number}]", depth + 1) for number, item in enumerate(data)
        )
    if len(kinds) != len(data):
        raise _bad(where, f"it has {len(data)} items instead of {len(kinds)}")
    return tuple(
        _value(kind, item, f"{where}[{number}]", depth + 1)
        for number, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )


def _object(kind: Any, data: Any, where: str, depth: int) -> Any:
    if not isinstance(data, dict):
        raise _bad(where, f"{str(data)[:40]!r} is no mapping")
    fields = {field.name: field for field in attrs.fields(kind) if field.init}
    unknown = [str(name)[:40] for name in data if name not in fields]
    missing = [name for name, field in fields.items() if name not in data and field.default is attrs.NOTHING]
    if unknown or missing:
        words = [f"unknown: {', '.join(unknown[:5])}"] if unknown else []
        words += [f"missing: {', '.join(missing)}"] if missing else []
        raise _bad(where, f"its fields are not those of {kind.__name__} ({'; '.join(words)})")
    hints = typing.get_type_hints(kind)
    given = {
        fields[name].alias: _value(hints.get(name, Any), item, f"{where}.{name}", depth + 1)
        for name, item in data.items()
    }
    try:
        return kind(**given)
    except (CallboardError, ValueError, TypeError) as error:
        raise _bad(where, str(error)) from None


def _bad(where: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the stored failure's {where} does not fit this version: {why}. Nothing was run. Search again with its seed."
    )
