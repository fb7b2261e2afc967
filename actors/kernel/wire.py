"""Wire: messages and answers as CBOR. A system that has one delivers a copy of everything that its actors send.

Wire mode proves that what actors send each other is data: it is encoded, decoded and delivered as a copy, as in another
process. It does not see what they share besides, in objects that they were started with. A system without a `Wire` has
none of this and pays nothing for it.

Theory of operation
-------------------
A value becomes *plain*, which is what CBOR has itself: None, booleans, numbers, text, bytes. Anything else becomes an
array that begins with a `Code`. Records (frozen attrs classes, named tuples) and enumerations are known by their names;
which are known follows from the types of the commands and of their answers (`known_classes`). Nothing else is made of
what is decoded: no import, no pickle. Errors are Callboard's own and Python's; another one becomes a `DescribedError`,
since its class is the program's.

Vocabulary
----------
roots          the types of commands and answers, from which the known classes are derived

Invariants
----------
WI1  What is delivered is another object than what was sent, and encodes to the same bytes.
WI2  What does not survive is reported by name: the class of the message, and the field.
"""

from __future__ import annotations

import builtins
import enum
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import attrs
import cbor2

from callboard.actors.kernel.failures import DescribedError as DescribedError
from callboard.actors.kernel.failures import describe
from callboard.actors.kernel.party import Began, Failed, Terminated
from callboard.log.errors import CallboardError, InternalError, remade
from callboard.log.limits import WIRE_CAUSES_MAX, WIRE_DEPTH_MAX

V = TypeVar("V")

PLAIN: Final = frozenset({NoneType, bool, int, float, str, bytes})
"""What CBOR has itself."""
BUILTIN_ERRORS: Final[dict[str, type[BaseException]]] = {
    name: found
    for name, found in vars(builtins).items()
    if isinstance(found, type)
    and issubclass(found, BaseException)
    and not issubclass(found, BaseExceptionGroup)
}
PACKAGE: Final = "callboard."
ERRORS_KEPT: Final = 256
"""Names of classes of errors that were looked up."""


class Code(enum.IntEnum):
    """What an array is in which the encoded form of a value begins with it."""

    LIST = 0
    TUPLE = 1
    MAP = 2
    SET = 3
    """Its items in the order of their encoded forms."""
    FROZEN_SET = 4
    ARRAY = 5
    """Type code, bytes."""
    VIEW = 6
    """Of a `memoryview`: format, bytes."""
    BYTEARRAY = 7
    DATETIME = 8
    """In ISO format. The copy has the offset of its zone."""
    RECORD = 9
    """Name of the class, fields."""
    MEMBER = 10
    """Of an enumeration: name of the class, name of the member."""
    ERROR = 11
    """Name of the class, arguments, attributes, cause."""
    READ_ONLY_MAP = 12
    TEXT = 13
    """With surrogates, such as in names of files that are no text: CBOR's own cannot have them."""


class NotData(Exception):
    """A value cannot be encoded, or is another one when it was decoded. `place` is where, innermost first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.place: list[str] = []

    def at(self, place: str) -> NotData:
        """It is at this place of what contains it."""
        self.place.append(place)
        return self


class WireForm(NamedTuple):
    """How objects of a class are taken apart and made."""

    kind: type
    names: tuple[str, ...]
    """Of its fields."""
    make: Callable[[list[Any]], Any]


def name_of(kind: type) -> str:
    """How a class is known."""
    return f"{kind.__module__.removeprefix(PACKAGE)}.{kind.__qualname__}"


def known_classes(roots: Iterable[Any]) -> frozenset[type]:
    """The records and enumerations that commands and answers of these types consist of, as far as their types say."""
    known: set[type] = set()
    waiting = list(roots)
    while waiting:
        found = waiting.pop()
        if get_origin(found) is not None or isinstance(found, UnionType):
            waiting += get_args(found)
        elif isinstance(found, type) and found not in known:
            if issubclass(found, enum.Enum):
                known.add(found)
            elif attrs.has(found) or _is_named_tuple(found):
                known.add(found)
                waiting += get_type_hints(found).values()
                waiting += getattr(found, "__orig_bases__", ())  # a question names the type of its answer
    return frozenset(known)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


class Wire:
    """Copies what crosses between actors. `covers` says of which actors, by their paths: by default of all."""

    def __init__(
        self,
        roots: Iterable[Any],
        covers: Callable[[str], bool] = lambda _path: True,
    ) -> None:
        self.covers = covers
        self.known = known_classes((*roots, Began, Failed, Terminated))
        self._records = {
            name_of(kind): _record_of(kind) for kind in self.known if not issubclass(kind, enum.Enum)
        }
        self._members = {name_of(kind): kind for kind in self.known if issubclass(kind, enum.Enum)}
        self._encoders: dict[type, Callable[[Any, int], Any]] = {
            list: self._items(Code.LIST),
            tuple: self._items(Code.TUPLE),
            dict: self._map(Code.MAP),
            MappingProxyType: self._map(Code.READ_ONLY_MAP),
            set: self._set(Code.SET),
            frozenset: self._set(Code.FROZEN_SET),
            array: lambda value, _depth: [Code.ARRAY, value.typecode, value.tobytes()],
            memoryview: lambda value, _depth: [Code.VIEW, value.format, value.tobytes()],
            bytearray: lambda value, _depth: [Code.BYTEARRAY, bytes(value)],
            datetime: _datetime,
        }
        for name, record in self._records.items():
            self._encoders[record.kind] = self._record(name, record)
        for name, kind in self._members.items():
            self._encoders[kind] = _member(name)

    def copy(self, value: V, what: str = "a message") -> V:
        """The value as its receiver gets it. Raises `InternalError` for what does not survive (WI2)."""
        try:
            encoded = _bytes_of(plain := self._plain(value, 0))
            found: V = self._value(cbor2.loads(encoded))
            other = self._plain(found, 0)
            if _bytes_of(other) != encoded:
                raise self._difference(plain, other)
        except NotData as problem:
            raise _does_not_survive(value, what, problem) from problem
        return found

    # -- encoding

    def _plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return _text(value) if kind is str and not value.isascii() else value
        if depth > WIRE_DEPTH_MAX:
            raise NotData(f"is nested more than {WIRE_DEPTH_MAX} levels deep")
        encode = self._encoders.get(kind)
        if encode is None:
            encode = self._encoders[kind] = self._encoder_of(kind)
        return encode(value, depth + 1)

    def _encoder_of(self, kind: type) -> Callable[[Any, int], Any]:
        if issubclass(kind, BaseException):
            return self._error
        raise NotData(f"is of class {name_of(kind)}, which no message may contain")

    def _items(self, code: Code) -> Callable[[Any, int], Any]:
        def encode(value: Any, depth: int) -> list[Any]:
            encoded: list[Any] = [int(code)]
            for index, item in enumerate(value):
                try:
                    encoded.append(self._plain(item, depth))
                except NotData as problem:
                    raise problem.at(f"[{index}]") from None
            return encoded

        return encode

    def _map(self, code: Code) -> Callable[[Any, int], Any]:
        def encode(value: Any, depth: int) -> list[Any]:
            encoded: list[Any] = [int(code)]
            for key, item in value.items():
                try:
                    encoded += self._plain(key, depth), self._plain(item, depth)
                except NotData as problem:
                    raise problem.at(f"[{key!r}]") from None
            return encoded

        return encode

    def _set(self, code: Code) -> Callable[[Any, int], Any]:
        def encode(value: Any, depth: int) -> list[Any]:
            items = [self._plain(item, depth) for item in value]
            return [int(code), *sorted(items, key=_bytes_of)]

        return encode

    def _record(self, name: str, record: WireForm) -> Callable[[Any, int], Any]:
        def encode(value: Any, depth: int) -> list[Any]:
            encoded: list[Any] = [int(Code.RECORD), name]
            for field in record.names:
                try:
                    encoded.append(self._plain(getattr(value, field), depth))
                except NotData as problem:
                    raise problem.at(f".{field}") from None
            return encoded

        return encode

    def _error(self, value: BaseException, depth: int, causes: int = 0) -> list[Any]:
        cause: Any = None
        if value.__cause__ is not None and causes < WIRE_CAUSES_MAX:
            cause = self._error(value.__cause__, depth, causes + 1)
        kind = type(value)
        if kind is DescribedError:
            return [int(Code.ERROR), "", str(value), [], cause]
        try:
            if _error_of(name_of(kind)) is kind:
                encoded = [self._plain(item, depth) for item in _parts_of(value)]
                return [int(Code.ERROR), name_of(kind), *encoded, cause]
        except NotData as problem:
            if isinstance(value, CallboardError):
                raise problem.at(f" ({kind.__name__})") from None
        return [int(Code.ERROR), "", describe(value), [], cause]

    # -- decoding

    def _value(self, item: Any) -> Any:
        if type(item) is not list:
            return item
        code = item[0]
        if code == Code.RECORD:
            record = self._records[item[1]]
            return record.make([self._value(each) for each in item[2:]])
        if code == Code.MEMBER:
            return self._members[item[1]][item[2]]
        if code == Code.ERROR:
            return self._decoded_error(item)
        make = _SIMPLE.get(code)
        return _COLLECTIONS[code]([self._value(each) for each in item[1:]]) if make is None else make(item)

    def _decoded_error(self, item: list[Any]) -> BaseException:
        _, name, arguments, attributes, cause = item
        error: BaseException
        kind = _error_of(name)
        if kind is None:
            error = DescribedError(arguments)
        else:
            found, state = self._value(arguments), self._value(attributes)
            if issubclass(kind, CallboardError):
                error = remade(kind, found, state)
            else:
                error = kind(*found)
                error.__dict__.update(state)
        if cause is not None:
            error.__cause__ = self._decoded_error(cause)
        return error

    # -- what did not survive

    def _difference(self, one: Any, other: Any) -> NotData:
        """Where two encoded forms differ."""
        if type(one) is list and type(other) is list and one[:1] == other[:1] and len(one) == len(other):
            is_record = one[:1] == [Code.RECORD] and one[1] == other[1]
            names = self._records[one[1]].names if is_record else ()
            for index, (mine, its) in enumerate(zip(one, other, strict=True)):
                if _bytes_of(mine) != _bytes_of(its):
                    place = f".{names[index - 2]}" if is_record else f"[{index - 1}]"
                    return self._difference(mine, its).at(place)
        return NotData("is another value when it was decoded")


def _bytes_of(plain: Any) -> bytes:
    try:
        return cbor2.dumps(plain)
    except (ValueError, cbor2.CBOREncodeError) as problem:
        raise NotData(f"cannot be encoded: {problem}") from None


def _record_of(kind: type) -> WireForm:
    if not attrs.has(kind):
        return WireForm(kind, kind._fields, kind._make)  # type: ignore[attr-defined]
    fields = attrs.fields(kind)
    given = [(index, field.alias or field.name) for index, field in enumerate(fields) if field.init]
    derived = [(index, field.name) for index, field in enumerate(fields) if not field.init]

    def make(items: list[Any]) -> Any:
        found = kind(**{name: items[index] for index, name in given})
        for index, name in derived:
            object.__setattr__(found, name, items[index])
        return found

    return WireForm(kind, tuple(field.name for field in fields), make)


def _member(name: str) -> Callable[[Any, int], Any]:
    return lambda value, _depth: [int(Code.MEMBER), name, value.name]


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return [int(Code.TEXT), value.encode("utf-8", "surrogatepass")]
    return value


def _datetime(value: datetime, _depth: int) -> list[Any]:
    zone = value.tzinfo
    if zone is not None and type(zone) is not timezone:
        value = value.astimezone(timezone(value.utcoffset() or timedelta()))
    return [int(Code.DATETIME), value.isoformat()]


def _parts_of(error: BaseException) -> tuple[Any, dict[str, Any]]:
    """Arguments and attributes."""
    if not isinstance(error, CallboardError):
        return error.__reduce__()[1], error.__dict__
    if not error.kept_back:
        return error.args, error.__dict__
    state = {name: item for name, item in error.__dict__.items() if name not in error.kept_back}
    state["fields"] = {name: item for name, item in error.fields.items() if name not in error.kept_back}
    return error.args, state


@lru_cache(maxsize=ERRORS_KEPT)
def _error_of(name: str) -> type[Any] | None:
    """The class of errors that is known by a name."""
    module, _, plain_name = name.rpartition(".")
    if module == "builtins":
        return BUILTIN_ERRORS.get(plain_name)
    waiting: list[type[CallboardError]] = [CallboardError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__.startswith(PACKAGE) and name_of(kind) == name:
            return kind
        waiting += kind.__subclasses__()
    return None


def _does_not_survive(value: Any, what: str, problem: NotData) -> InternalError:
    place = type(value).__name__ + "".join(reversed(problem.place))
    return InternalError(
        f"{what} does not survive being encoded, decoded and delivered as a copy: {place} {problem}",
        invariant="WI1",
    )


_SIMPLE: Final[Mapping[int, Callable[[list[Any]], Any]]] = {
    Code.ARRAY: lambda item: array(item[1], item[2]),
    Code.VIEW: lambda item: memoryview(item[2]).cast(item[1]),
    Code.TEXT: lambda item: item[1].decode("utf-8", "surrogatepass"),
    Code.BYTEARRAY: lambda item: bytearray(item[1]),
    Code.DATETIME: lambda item: datetime.fromisoformat(item[1]),
}
_COLLECTIONS: Final[Mapping[int, Callable[[list[Any]], Any]]] = {
    Code.LIST: list,
    Code.TUPLE: tuple,
    Code.MAP: lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    Code.READ_ONLY_MAP: lambda items: MappingProxyType(dict(zip(items[::2], items[1::2], strict=True))),
    Code.SET: set,
    Code.FROZEN_SET: frozenset,
}
