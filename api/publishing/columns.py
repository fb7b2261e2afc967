"""What a batch is made of before it is sent: columns by attribute, checked, cut into frames of a size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, repeat
from operator import is_, itemgetter, sub
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.format.columns import Columns
from callboard.log.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, KEY_BYTES_MAX, MIB
from callboard.log.plain import TEXTS, is_a, items, kind
from callboard.message import ATTRIBUTE_OF, ATTRIBUTES, Message, check_bytes, values_and_keys

FRAME_BYTES_TARGET = 8 * MIB
"""A batch larger than this goes into several frames, so that readers need not hold all of it at once."""

Column = Sequence[Any]
T = TypeVar("T")
KEYS: Final = frozenset({bytes, type(None)})
"""The types of plain keys."""


class Checked(NamedTuple):
    """A single message that was checked."""

    value: bytes
    key: bytes | None
    stored: dict[str, Any]
    """What else it carries, as `Columns.build` calls it."""
    size_bytes: int

    def columns(self) -> Columns:
        """The message as a batch of one."""
        keys = None if self.key is None else (self.key,)
        return Columns.build((self.value,), keys, **{name: (item,) for name, item in self.stored.items()})


def checked_message(message: Message) -> Checked:
    """What a message holds but for where it goes, and when. Raises `InvalidArgument`."""
    value, stored = check_bytes("value", message.value), {}
    size_bytes = len(value)
    for attribute in ATTRIBUTES:
        item = getattr(message, attribute.name)
        if item is not None:
            if attribute.size is not None:
                size_bytes += attribute.size(item)
            stored[attribute.column] = item if attribute.stored is None else attribute.stored(item)
    key = stored.pop("keys", None)
    return Checked(value, None if key is None else check_bytes("key", key), stored, size_bytes)


@attrs.frozen
class Unpacked:
    """A batch as columns: its values, what else it carries by the names of `Message`, and its rows with a partition."""

    values: Sequence[bytes]
    given: Mapping[str, Column]
    partitions: Sequence[int | None] | None
    expected: Mapping[int, int] = attrs.Factory(dict)
    """The offsets at which messages are expected, by index."""
    delays: Column | None = None
    deliver_ats: Column | None = None

    @property
    def has_delays(self) -> bool:
        """Whether messages may be delayed."""
        return self.delays is not None or self.deliver_ats is not None

    def is_placed(self, index: int) -> bool:
        """Whether a message has a key or a partition, which decides where it goes."""
        columns = (self.given.get("key"), self.partitions)
        return any(column is not None and column[index] is not None for column in columns)

    def sizes(self, limit: int, too_large: Callable[[int, int], CallboardError]) -> int:
        """The batch's payload bytes; raises for the first message that is too large or of a wrong type."""
        columns = [list(map(len, self.values))]
        for name, column in self.given.items():
            size = ATTRIBUTE_OF[name].size
            if size is not None:
                columns.append(_sizes(column, size))
        total = sum(map(sum, columns))
        if total > limit and sum(map(max, columns)) > limit:
            for index, parts in enumerate(zip(*columns, strict=True)):
                if sum(parts) > limit:
                    raise too_large(sum(parts), index)
        if total > BATCH_BYTES_MAX:
            raise InvalidArgument(
                f"a batch of {total} bytes, and {BATCH_BYTES_MAX} are allowed. Nothing was written. Split it."
            )
        return total

    def placed_by_ids(self, dedup_ids: Column, place_of: Callable[[bytes], int]) -> Unpacked:
        """The same, with messages that have an id, and neither key nor partition, where the id decides."""
        count = len(self.values)
        keys, places = self.given.get("key") or [None] * count, self.partitions or [None] * count
        found = [
            place_of(dedup_id) if dedup_id is not None and key is None and place is None else place
            for dedup_id, key, place in zip(dedup_ids, keys, places, strict=True)
        ]
        return attrs.evolve(self, partitions=found)

    def stored(self) -> dict[str, Column]:
        """The columns as `Columns.build` takes them. Raises `InvalidArgument`."""
        found: dict[str, Column] = {}
        for name, column in self.given.items():
            attribute = ATTRIBUTE_OF[name]
            found[attribute.column] = column if attribute.stored is None else _made(column, attribute.stored)
        return found


def _sizes(column: Column, size: Callable[[Any], int]) -> list[int]:
    """The bytes of each item; of plain bytes only the longest needs a check."""
    if column and are_bytes(column):
        sizes = list(map(len, column))
        longest = sizes.index(max(sizes))
        of_message(longest, size, column[longest])
        return sizes
    return [0 if item is None else of_message(index, size, item) for index, item in enumerate(column)]


def _made(column: Column, make: Callable[[Any], Any]) -> Column:
    """What is stored of each item."""
    return [None if item is None else of_message(index, make, item) for index, item in enumerate(column)]


def _all_bytes(values: Column) -> Sequence[bytes]:
    """The values of a batch, as bytes."""
    if are_bytes(values):
        return values
    return [of_message(index, check_bytes, "value", value) for index, value in enumerate(values)]


def _plain_keys(keys: Column) -> Column:
    """The keys of a batch, as bytes."""
    if are_bytes(keys) or set(map(type, keys)) <= KEYS:
        return keys
    return [
        None if key is None else of_message(index, check_bytes, "key", key) for index, key in enumerate(keys)
    ]


def of_message(index: int, check: Callable[..., T], *arguments: Any) -> T:
    """What `check` makes of one message of a batch; its `InvalidArgument` says which one that is."""
    try:
        return check(*arguments)
    except InvalidArgument as error:
        fields = {**error.fields, "index": index}
        raise InvalidArgument(f"message {index} of the batch: {error}", **fields) from error


def batch_of(values: object) -> Sequence[Any]:
    """The messages of a batch, not yet checked. Raises `InvalidArgument` unless they are several, and not too many."""
    found = items(values, BATCH_RECORDS_MAX)
    if found is None:
        hint = "Put it in a list, or call publish." if is_a(values, Message, *TEXTS) else "Make it a list."
        raise InvalidArgument(
            f"a batch is {kind(values)}, not a sequence of messages. Nothing was written. {hint}"
        )
    if len(found) > BATCH_RECORDS_MAX:
        raise InvalidArgument(
            f"a batch of more than {BATCH_RECORDS_MAX} messages, and {BATCH_RECORDS_MAX} are allowed. Nothing was"
            " written. Split it."
        )
    return found


def given_columns(**columns: Column | None) -> dict[str, Column]:
    """The columns of a batch that were given, by their plurals."""
    return {name: column for name, column in columns.items() if column is not None}


def column_of(plural: str, column: object, count: int) -> Column:
    """A column, not yet checked. Raises `InvalidArgument` unless it has one item for each of `count` messages."""
    found = items(column, count)
    if found is None:
        raise InvalidArgument(
            f"{plural} are {kind(column)}, not a sequence. Nothing was written. Make a list, with one for each message."
        )
    if len(found) != count:
        raise InvalidArgument(f"{count} values but {len(found)} {plural}. Nothing was written.")
    return found


def unpacked(values: Sequence[bytes | Message], columns: Mapping[str, Column]) -> Unpacked:
    """A batch as columns: of `Message`s, or of values with columns by their plurals. Raises `InvalidArgument`."""
    count = len(values)
    found = {name: column_of(name, column, count) for name, column in columns.items()}
    delays, deliver_ats = found.pop("delays", None), found.pop("deliver_ats", None)
    given: dict[str, Column] = {
        attribute.name: found[attribute.plural] for attribute in ATTRIBUTES if attribute.plural in found
    }
    if "key" in given:
        given["key"] = _plain_keys(given["key"])
    if are_bytes(values):
        return Unpacked(values, given, None, {}, delays, deliver_ats)  # type: ignore[arg-type]
    if not any(issubclass(kind, Message) for kind in set(map(type, values))):
        return Unpacked(_all_bytes(values), given, None, {}, delays, deliver_ats)
    if columns:
        raise InvalidArgument(
            "a batch holds Message objects and separate columns of their attributes. Nothing was written. Use one form."
        )
    plain = values_and_keys(values)
    if plain is not None:
        values, keys = plain
        return Unpacked(_all_bytes(values), {} if keys is None else {"key": _plain_keys(keys)}, None)
    messages = [value if isinstance(value, Message) else Message(value) for value in values]
    given = {
        attribute.name: [getattr(message, attribute.name) for message in messages] for attribute in ATTRIBUTES
    }
    given["key"] = _plain_keys(given["key"])
    offsets = [message.expected_offset for message in messages]
    return Unpacked(
        _all_bytes([message.value for message in messages]),
        {name: column for name, column in given.items() if not _is_empty(column)},
        _unless_empty([message.partition for message in messages]),
        {index: offset for index, offset in enumerate(offsets) if offset is not None},
        _unless_empty([message.delay for message in messages]),
        _unless_empty([message.deliver_at for message in messages]),
    )


def _unless_empty(column: Column) -> Column | None:
    return None if _is_empty(column) else column


def _is_empty(column: Column) -> bool:
    return all(map(is_, column, repeat(None)))


def are_bytes(items: Sequence[object]) -> bool:
    """Whether all items are bytes, and not of a subclass, which may do as it likes."""
    return list(map(type, items)).count(bytes) == len(items)


def plain_columns(
    values: Sequence[bytes | Message], keys: Sequence[bytes | None] | None, limit_bytes: int
) -> Columns | None:
    """The columns of a batch that is nothing but bytes, and within a message's limit in all; None for any other."""
    if not values:
        return None
    if keys is None and type(values[0]) is Message and (plain := values_and_keys(values)) is not None:
        values, keys = plain
    if not are_bytes(values):
        return None
    if keys is not None and (
        type(keys) not in (list, tuple) or not (are_bytes(keys) or set(map(type, keys)) <= KEYS)
    ):
        return None
    try:
        columns = Columns.build(values, keys)  # type: ignore[arg-type]
    except InvalidArgument:
        return None  # checked once more, one by one, for an error that says which
    if columns.size_bytes > limit_bytes:
        return None
    if columns.keys is not None and len(columns.keys) > KEY_BYTES_MAX:
        ends = columns.key_ends or ()
        if max(map(sub, islice(ends, 1, None), ends)) > KEY_BYTES_MAX:
            return None
    return columns


def chunked(indexes: Sequence[int], values: Sequence[bytes], size: int) -> list[Sequence[int]]:
    """`indexes` cut where a frame would grow past its target."""
    if size <= FRAME_BYTES_TARGET:
        return [indexes]
    chunks: list[Sequence[int]] = []
    first = held = 0
    for position, index in enumerate(indexes):
        held += len(values[index])
        if held > FRAME_BYTES_TARGET and position > first:
            chunks.append(indexes[first:position])
            first, held = position, len(values[index])
    chunks.append(indexes[first:])
    return chunks


def columns_of(indexes: Sequence[int], values: Sequence[bytes], stored: Mapping[str, Column]) -> Columns:
    """The columns of the messages at `indexes` of a batch."""
    if len(indexes) == len(values):
        return Columns.build(values, **stored)
    take = taker(indexes)
    return Columns.build(take(values), **{name: take(column) for name, column in stored.items()})


def taker(indexes: Sequence[int]) -> Callable[[Column], Column]:
    """What gives the items of a column at `indexes`, without a step in Python for each."""
    if len(indexes) < 2:  # of one index `itemgetter` makes no tuple
        return lambda column: [column[index] for index in indexes]
    return itemgetter(*indexes)


def halves(indexes: Sequence[int], waits: Sequence[bool]) -> list[Sequence[int]]:
    """Those of `indexes` that do not wait, and those that do; a half without any is left out."""
    found = [[index for index in indexes if waits[index] is is_waiting] for is_waiting in (False, True)]
    return [half for half in found if half]
