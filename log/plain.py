"""What users give, as plain data: values of exactly Python's own types, and words for whatever else was given.

An argument may be of a subclass of `str`, `int` or `datetime`, or of any class at all: any of its methods may raise, or
answer something else the next time. At the edge of the public interface it becomes plain data, by the methods of the
base class, or is refused in words. No actor sees anything else, so no code of an argument runs inside one.

Each function returns None for what is not of its kind, and calls no code of it but what gives its items. Exactly
Python's own types come back as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from itertools import islice
from typing import Any, Final, Never, TypeVar, cast

from callboard.log.errors import InvalidArgument

SHOWN_CHARACTERS: Final = 60
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
EARLIEST_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
TEXTS: Final = (str, bytes, bytearray, memoryview)
"""Sequences that are one item, not several."""
_FIELDS: Final[tuple[Any, ...]] = (
    *(datetime.year, datetime.month, datetime.day),
    *(datetime.hour, datetime.minute, datetime.second, datetime.microsecond, datetime.tzinfo),
)
T = TypeVar("T")


def kind(value: object) -> str:
    """The name of its type."""
    return type(value).__name__


def is_a(value: object, *kinds: type) -> bool:
    """As `isinstance`, without asking the value what it is."""
    return issubclass(type(value), kinds)


def shown(value: object, most: int = SHOWN_CHARACTERS) -> str:
    """How a message shows what was given, in at most `most` characters; never raises."""
    if type(value) is str or type(value) is bytes:
        value = value[:most]
    try:
        words = repr(value)
    except Exception as error:  # noqa: BLE001 - the code of the value's author
        if type(value) is int:
            return "an enormous number"
        return f"<{kind(value)}, whose repr raises {kind(error)}>"[:most]
    return str.__str__(words)[:most].encode("utf-8", "backslashreplace").decode()


def text(value: object) -> str | None:
    """Text."""
    if type(value) is str:
        return value
    return str.__str__(cast(str, value)) if is_a(value, str) else None


def octets(value: object) -> bytes | None:
    """Bytes, copied from a buffer that may change."""
    if type(value) is bytes:
        return value
    if is_a(value, bytes):
        return bytes.__getitem__(cast(bytes, value), slice(None))
    if is_a(value, bytearray):
        return bytes(bytearray.__getitem__(cast(bytearray, value), slice(None)))
    if type(value) is memoryview:
        try:
            return bytes(value)
        except ValueError:  # it was released
            return None
    return None


def whole(value: object) -> int | None:
    """A whole number; True and False are none."""
    if type(value) is int:
        return value
    return int.__int__(cast(int, value)) if is_a(value, int) and type(value) is not bool else None


def number(value: object) -> int | float | None:
    """A number, also one that is infinite or none at all; True and False are none."""
    if type(value) is float:
        return value
    return float.__float__(cast(float, value)) if is_a(value, float) else whole(value)


def make_plain(made: object, *names: str) -> None:
    """Text and numbers among these attributes become plain data; what is something else stays, to be refused."""
    for name in names:
        value = getattr(made, name)
        word, found = text(value), number(value)
        if word is not None or found is not None:
            object.__setattr__(made, name, found if word is None else word)


def is_plain_function(value: object) -> bool:
    """Whether it can be called, and is done when it returns: the result of a coroutine function is never awaited."""
    return callable(value) and not is_coroutine_function(value)


def is_coroutine_function(value: object) -> bool:
    """Whether calling it only begins a coroutine; also of a method, a partial, and an object that can be called."""
    while type(value) is partial:
        value = value.func
    return any(_is_async(each) for each in (value, getattr(type(value), "__call__", None)))  # noqa: B004


def _is_async(function: object) -> bool:
    try:
        return iscoroutinefunction(function) or isasyncgenfunction(function)
    except Exception:  # noqa: BLE001 - code of the value
        return False


def instant(value: object) -> datetime | None:
    """A datetime, with whatever time zone it has."""
    if type(value) is datetime:
        return value
    if not issubclass(type(value), datetime):
        return None
    fields = [field.__get__(value) for field in _FIELDS]
    return datetime(*fields, fold=cast("Any", datetime.fold).__get__(value))  # noqa: DTZ001 - it is the last field


def utc_us(given: datetime) -> int | str:
    """Microseconds of an instant since 1970 in UTC, or what is wrong with it: no time zone, or no such year."""
    if given.tzinfo is UTC:
        return (given - EPOCH) // MICROSECOND
    try:
        offset = given.utcoffset()
        if offset is None:
            return "has no time zone"
        found = (given.replace(tzinfo=UTC) - EPOCH) // MICROSECOND - offset // MICROSECOND
    except Exception as error:  # noqa: BLE001 - the code of a time zone
        return f"has a time zone that cannot say what it is in UTC ({kind(error)})"
    return found if EARLIEST_US <= found <= LATEST_US else "in UTC is no datetime of the years 1 to 9999"


def wall(given: datetime) -> str:
    """The date and time as a message shows them, without their time zone."""
    return given.replace(tzinfo=None).isoformat()


def items(value: object, most: int) -> list[Any] | tuple[Any, ...] | None:
    """The items of a sequence, at most `most` and one more. Raises `InvalidArgument` when its own code raises."""
    if type(value) is list or type(value) is tuple:
        return value
    if is_a(value, *TEXTS) or not is_a(value, Sequence):
        return None
    return _read(value, lambda: list(islice(cast("Sequence[Any]", value), most + 1)))


def pairs(value: object, most: int) -> list[tuple[Any, Any]] | None:
    """The items of a mapping, at most `most` and one more. Raises as `items` does."""
    if type(value) is dict:
        return list(value.items())
    if not is_a(value, Mapping):
        return None
    mapping = cast("Mapping[Any, Any]", value)
    return _read(value, lambda: [(key, mapping[key]) for key in islice(mapping, most + 1)])


def each_of(value: object) -> list[Any] | None:
    """All that something yields which can be iterated. Raises as `items` does."""
    if not is_a(value, Iterable) or is_a(value, *TEXTS):
        return None
    return _read(value, lambda: list(cast("Iterable[Any]", value)))


def _read(value: object, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception as error:
        raise InvalidArgument(
            f"a {kind(value)} does not give its items: its own code raised {kind(error)}. Nothing was done."
        ) from error


def refuse_copy(handle: object, protocol: object) -> Never:
    """`__reduce_ex__` of what belongs to one runtime: pickle and copy call it."""
    raise TypeError(
        f"a {kind(handle)} belongs to the runtime that made it, and can neither be pickled nor copied. Hand on what it"
        " names, such as a topic's name or a message's value, and ask a runtime for it there."
    )
