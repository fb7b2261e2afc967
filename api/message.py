"""What goes in and what comes back: messages to publish, receipts, and records as they are stored.

`ATTRIBUTES` is the one table of what a message carries beside its value: publishing checks, measures and stores by
it, and so does the command line. What is received in a consumer group has types of its own
(`callboard.consumer.messages`), since it can be settled and a record cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import is_not
from typing import Any, Final, TypeVar, overload

import attrs

from callboard.actors.partition.commands import Offsets
from callboard.log import plain
from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import FOREVER, Columns
from callboard.log.limits import DEDUP_ID_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_COUNT_MAX, KEY_BYTES_MAX
from callboard.log.plain import shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
PRIORITY_MAX: Final = 9
USUAL_PRIORITY: Final = 4
TTL_LEAST_S: Final = 0.001
TTL_MOST_S: Final = 100 * 366 * 86_400.0
"""What would live longer lives for ever."""
DELAY_MOST_S: Final = 100 * 366 * 86_400.0
Headers = Mapping[str, bytes | str]
T = TypeVar("T")


@attrs.frozen
class Message:
    """A message to publish, with all that `publish` takes as keywords.

    `value` and `key` are bytes; `headers` map names to bytes or text (stored as UTF-8); `timestamp` is the event's own
    time, a datetime with a time zone; `partition` overrides the choice by key; `dedup_id` (bytes or text) stands for
    the message: the topic stores it once within its `dedup_window`; `ttl` is how many seconds after its append it is
    delivered no more (`math.inf`: never; None: the topic's `default_ttl`); `priority` is 0 (low) to 9 (high), None
    counts as 4. With a `delay` in seconds, or a `deliver_at`, a datetime with a time zone, the message waits before it
    comes to its topic. With an `expected_offset` it is stored only if its partition's next offset is this one.
    """

    value: bytes
    key: bytes | None = None
    headers: Headers | None = None
    timestamp: datetime | None = None
    partition: int | None = None
    dedup_id: bytes | str | None = None
    ttl: float | None = None
    priority: int | None = None
    delay: float | None = None
    deliver_at: datetime | None = None
    expected_offset: int | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether it waits before it comes to its topic."""
        return self.delay is not None or self.deliver_at is not None


@attrs.frozen
class Receipt:
    """Where a record is stored. `offset` is None when it was not waited for (`acks="none"`), and when a producer
    repeats a record that is stored too far back to know where.
    """

    topic: str
    """The topic."""
    partition: int
    """The partition that has the record."""
    offset: int | None
    """Its number there, which identifies it for ever."""
    duplicate: bool = attrs.field(default=False, kw_only=True, eq=False)
    """Whether nothing was stored, as the topic has a message with this `dedup_id` already: the offset is its. For
    a producer, which publishes again after an indefinite error, whether its first try had stored the message."""


def topic_id_field() -> Any:
    """A field for the id of a topic, which later ones of its name do not have; None for what others have made."""
    return attrs.field(default=None, kw_only=True, eq=False, repr=False)


@attrs.frozen
class ScheduledReceipt(Receipt):
    """Where a delayed message waits. It has no offset yet: it gets one when it is due."""

    schedule_id: int
    """What cancels it, with the partition: `topic.delayed().cancel(receipt)`."""
    due: datetime
    """When it is due: of a delay, unless the clock is set anew meanwhile."""
    _topic_id: str | None = topic_id_field()


@attrs.frozen
class StoredRange:
    """Part of a batch in one partition: `indexes` of the batch, stored from `first_offset` on. None: not waited for, or
    not due yet.
    """

    partition: int
    first_offset: int | None
    indexes: Sequence[int]
    duplicates: Set[int] = attrs.field(default=frozenset(), kw_only=True)
    """Those of `indexes` that were stored before."""

    def receipts(self, topic: str) -> Iterator[tuple[int, Receipt]]:
        """The receipt of each of `indexes`."""
        for position, index in enumerate(self.indexes):
            offset = None if self.first_offset is None else self.first_offset + position
            yield index, Receipt(topic, self.partition, offset, duplicate=index in self.duplicates)


@attrs.frozen(kw_only=True)
class WaitingRange(StoredRange):
    """Part of a batch that waits until it is due, and has no offsets yet."""

    first_id: int
    """The schedule id of the first one; the others follow it."""
    dues_us: Sequence[int]
    topic_id: str

    def receipts(self, topic: str) -> Iterator[tuple[int, Receipt]]:
        """The receipt of each of `indexes`."""
        for position, (index, due_us) in enumerate(zip(self.indexes, self.dues_us, strict=True)):
            schedule_id = self.first_id + position
            due = from_us(due_us)
            receipt = ScheduledReceipt(topic, self.partition, None, schedule_id, due, topic_id=self.topic_id)
            yield index, receipt


def stored_ranges(
    partition: int, stored: int | Offsets | None, indexes: Sequence[int]
) -> tuple[StoredRange, ...]:
    """Where `indexes` of a batch are stored, by what the partition answers: the first offset, or each one's."""
    if stored is None or isinstance(stored, int):
        return (StoredRange(partition, stored, indexes),)
    offsets = stored.offsets
    duplicates = frozenset(indexes[place] for place in stored.duplicates)
    ranges, first = [], 0
    for at in range(1, len(offsets) + 1):
        before = offsets[at - 1]
        if at == len(offsets) or before is None or offsets[at] != before + 1:
            ranges.append(StoredRange(partition, offsets[first], indexes[first:at], duplicates=duplicates))
            first = at
    return tuple(ranges)


class Receipts(Sequence[Receipt]):
    """The receipts of a batch, made when looked at; `ranges` says the same without making any."""

    __slots__ = ("_by_index", "_count", "_topic", "stored")

    def __init__(self, topic: str, count: int, stored: Sequence[StoredRange]) -> None:
        self._topic = topic
        self._count = count
        self.stored = stored
        self._by_index: list[Receipt] | None = None

    @property
    def ranges(self) -> tuple[tuple[int, int | None, int], ...]:
        """(partition, first offset, count) of each part."""
        return tuple((part.partition, part.first_offset, len(part.indexes)) for part in self.stored)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Receipt]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"<Receipts of {self._count} records: {self.ranges!r}>"

    def _all(self) -> list[Receipt]:
        if self._by_index is None:
            made = dict(pair for part in self.stored for pair in part.receipts(self._topic))
            self._by_index = [made[index] for index in range(self._count)]
        return self._by_index


def message_of(value: bytes | Message, *, expected_offset: int | None = None, **given: Any) -> Message:
    """The message that `publish` was given, as a `Message` or by its keywords. Raises `InvalidArgument` for both."""
    if not isinstance(value, Message):
        return Message(value, expected_offset=expected_offset, **given)
    if any(item is not None for item in given.values()):
        raise InvalidArgument(
            "publish was given a Message and attributes beside it. Nothing was written. Put them into the Message."
        )
    if expected_offset is None:
        return value
    if value.expected_offset is not None:
        raise InvalidArgument(
            "publish was given an expected_offset and a Message that has one. Nothing was written. Give one."
        )
    held = {field.name: getattr(value, field.name) for field in attrs.fields(Message)}
    return Message(**{**held, "expected_offset": expected_offset})


def values_and_keys(
    values: Sequence[bytes | Message],
) -> tuple[list[bytes], list[bytes | None] | None] | None:
    """What messages that have a value, perhaps a key, and nothing else consist of, not yet checked; None for others."""
    if list(map(type, values)).count(Message) != len(values):
        return None
    messages: Sequence[Message] = values  # type: ignore[assignment]
    for message in messages:
        if (  # by name: looked up by strings, the attributes of a message take four times as long
            message.headers is not None
            or message.timestamp is not None
            or message.partition is not None
            or message.dedup_id is not None
            or message.ttl is not None
            or message.priority is not None
            or message.delay is not None
            or message.deliver_at is not None
            or message.expected_offset is not None
        ):
            return None
    keys = [message.key for message in messages]
    has_keys = any(map(is_not, keys, repeat(None)))
    return [message.value for message in messages], keys if has_keys else None


TIME_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, beyond which no `datetime` goes."""


def from_us(time_us: int) -> datetime:
    """An instant from microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=time_us)


def timestamp_of(columns: Columns, index: int) -> datetime:
    """A record's own time if it was published with one, else its append time."""
    event_us = columns.event_time(index)
    return from_us(columns.append_time(index) if event_us is None else event_us)


def ttl_of(columns: Columns, index: int) -> float | None:
    """How many seconds after its append a record expires; None for never."""
    expiry_us = columns.expiry(index)
    return None if expiry_us is None else (expiry_us - columns.append_time(index)) / 1e6


def parse_instant(text: str) -> datetime:
    """An instant in ISO 8601; UTC unless it says otherwise. Raises `ValueError`."""
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def to_us(instant: object, what: str = "timestamp") -> int:
    """Microseconds since the epoch. Raises `InvalidArgument` without a time zone, and where UTC has no such year."""
    given = plain.instant(instant)
    if given is None:
        raise InvalidArgument(f"{what} is {shown(instant)}, not a datetime. Nothing was written.")
    found = plain.utc_us(given)
    if isinstance(found, str):
        raise InvalidArgument(
            f"{what} {plain.wall(given)} {found}. Nothing was written. Use e.g. datetime.now(timezone.utc)."
        )
    return found


def check_bytes(what: str, data: object) -> bytes:
    """`data`, if it is bytes."""
    found = plain.octets(data)
    if found is None:
        raise InvalidArgument(
            f"a {what} is {type(data).__name__}, not bytes. Nothing was written. {_hint(what, data)}"
        )
    return found


def _hint(what: str, data: object) -> str:
    """What to give in the place of `data`, which is not bytes."""
    if plain.is_a(data, str):
        return f"Encode it first: {what}.encode()."
    if plain.is_a(data, Message, Record):
        return "Give its bytes, e.g. message.value."
    if data is None:
        return f"An empty {what} is b''."
    if plain.is_a(data, Mapping, list, tuple, int, float):
        return _json_hint(what, data)
    return "Encode it first."


def _json_hint(what: str, data: object) -> str:
    """The call that makes JSON of `data`, with the text of what JSON does not know; none where that raises, too."""
    ways: tuple[tuple[str, Callable[[object], str] | None], ...] = (
        (f"json.dumps({what})", None),
        (f"json.dumps({what}, default=str)", lambda _: ""),
    )
    for call, default in ways:
        with suppress(Exception):  # also what the code of the data raises
            json.dumps(data, default=default)
            return f"Encode it first, e.g. {call}.encode()."
    return "Encode it first."


def check_key(key: object) -> int:
    """The size of a key in bytes (None: 0). Raises `InvalidArgument`."""
    if key is None:
        return 0
    size = len(check_bytes("key", key))
    if size > KEY_BYTES_MAX:
        raise InvalidArgument(
            f"a key has {size} bytes, and {KEY_BYTES_MAX} are allowed. Nothing was written."
        )
    return size


def plain_headers(headers: object) -> dict[str, bytes | str]:
    """Headers as plain data. Raises `InvalidArgument`."""
    found: dict[str, bytes | str] = {}
    pairs = plain.pairs(headers, HEADERS_COUNT_MAX)
    if pairs is None:
        raise InvalidArgument(f"headers are {plain.kind(headers)}, not a mapping. Nothing was written.")
    if len(pairs) > HEADERS_COUNT_MAX:
        raise InvalidArgument(
            f"more than {HEADERS_COUNT_MAX} headers, and {HEADERS_COUNT_MAX} are allowed. Nothing was written."
        )
    for given, item in pairs:
        name = plain.text(given)
        if not name:
            raise InvalidArgument(
                f"a header is named {shown(given)}, not a non-empty str. Nothing was written."
            )
        value = plain.octets(item) if plain.is_a(item, bytes) else plain.text(item)
        if value is None:
            raise InvalidArgument(
                f"header {shown(name)} is {plain.kind(item)}, not bytes or str. Nothing was written."
                f" {_hint('value', item)}"
            )
        found[name] = value
    return found


def check_headers(headers: object) -> int:
    """The size of headers in bytes. Raises `InvalidArgument`."""
    if headers is None:
        return 0
    size = 0
    for name, value in plain_headers(headers).items():
        try:
            size += len(name.encode()) + (len(value) if isinstance(value, bytes) else len(value.encode()))
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"header {shown(name)} has no UTF-8 form: {error}. Nothing was written."
            ) from error
    if size > HEADERS_BYTES_MAX:
        raise InvalidArgument(
            f"headers of {size} bytes, and {HEADERS_BYTES_MAX} are allowed. Nothing was written."
        )
    return size


def dedup_bytes(dedup_id: object) -> bytes:
    """A deduplication id as it is stored. Raises `InvalidArgument`."""
    word = plain.text(dedup_id)
    try:
        data = check_bytes("dedup_id", dedup_id if word is None else word.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a dedup_id has no UTF-8 form: {error}. Nothing was written.") from error
    if not 0 < len(data) <= DEDUP_ID_BYTES_MAX:
        raise InvalidArgument(
            f"a dedup_id has {len(data)} bytes, not 1 to {DEDUP_ID_BYTES_MAX}. Nothing was written."
            " Hash what is longer."
        )
    return data


def ttl_us(ttl: object) -> int:
    """A time to live in microseconds. Raises `InvalidArgument`."""
    found = plain.number(ttl)
    if found is None or not found >= TTL_LEAST_S:
        raise InvalidArgument(
            f"ttl is {shown(ttl, 40)}, not seconds from {TTL_LEAST_S:g} on. Nothing was written. math.inf means for"
            " ever."
        )
    return FOREVER if found > TTL_MOST_S else round(found * 1_000_000)


def check_delay(delay: object) -> float:
    """A delay in seconds. Raises `InvalidArgument`."""
    found = plain.number(delay)
    if found is None or not 0 <= found <= DELAY_MOST_S:
        raise InvalidArgument(
            f"delay is {shown(delay, 40)}, not seconds from 0 to {DELAY_MOST_S:,.0f} (100 years). Nothing was written."
        )
    return float(found)


def stored_priority(priority: object) -> int:
    """A priority as it is stored, where 0 stands for none. Raises `InvalidArgument`."""
    found = plain.whole(priority)
    if found is None or not 0 <= found <= PRIORITY_MAX:
        raise InvalidArgument(
            f"priority is {shown(priority, 40)}, not 0 (low) to {PRIORITY_MAX} (high). Nothing was written."
        )
    return found + 1


@attrs.frozen
class Attribute:
    """Something that a message carries beside its value."""

    name: str
    """As `Message` and `publish` call it."""
    plural: str
    """As `publish_batch` and batches call it."""
    column: str
    """As `callboard.log.format.columns.Columns.build` calls it."""
    kind: str
    """What it is made of: "bytes", "headers", "instant" or "number"."""
    size: Callable[[Any], int] | None = None
    """Checks one, and gives its bytes, which count towards the largest message; None for what weighs nothing."""
    stored: Callable[[Any], Any] | None = None
    """Checks one, and gives what is stored; None for what is stored as it is."""
    is_rare: bool = False
    """Whether a record without it is shown without it."""


ATTRIBUTES: Final = (
    Attribute("key", "keys", "keys", "bytes", size=check_key),
    Attribute("headers", "headers", "headers", "headers", size=check_headers, stored=plain_headers),
    Attribute("timestamp", "timestamps", "event_times", "instant", stored=to_us),
    Attribute("dedup_id", "dedup_ids", "dedup_ids", "bytes", stored=dedup_bytes, is_rare=True),
    Attribute("ttl", "ttls", "ttls", "number", stored=ttl_us, is_rare=True),
    Attribute("priority", "priorities", "priorities", "number", stored=stored_priority, is_rare=True),
)
ATTRIBUTE_OF: Final = {attribute.name: attribute for attribute in ATTRIBUTES}


class Record:
    """A stored record, as `topic.read` yields it. Its bytes are copied out of the batch when looked at."""

    __slots__ = {
        "_columns": None,
        "_index": None,
        "offset": "Its number in the partition, which identifies it for ever.",
        "partition": "The partition, from 0.",
        "topic": "The topic's name.",
    }

    def __init__(self, topic: str, partition: int, columns: Columns, index: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = columns.offset(index)
        self._columns = columns
        self._index = index

    @property
    def value(self) -> bytes:
        """The payload; empty for a tombstone."""
        return self._columns.value(self._index) or b""

    @property
    def is_tombstone(self) -> bool:
        """Whether there is no payload, not even an empty one. Recordings may hold such records."""
        return self._columns.value(self._index) is None

    @property
    def key(self) -> bytes | None:
        """The key, None without one."""
        return self._columns.key(self._index)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers; text was stored as UTF-8."""
        return self._columns.headers(self._index)

    @property
    def append_time(self) -> datetime:
        """When the log took the record."""
        return from_us(self._columns.append_time(self._index))

    @property
    def timestamp(self) -> datetime:
        """The event's own time if it was published with one, else the append time."""
        return timestamp_of(self._columns, self._index)

    @property
    def dedup_id(self) -> bytes | None:
        """The deduplication id, None without one; text was stored as UTF-8."""
        return self._columns.dedup_id(self._index)

    @property
    def ttl(self) -> float | None:
        """How many seconds after its append it expires, None for never."""
        return ttl_of(self._columns, self._index)

    @property
    def priority(self) -> int | None:
        """0 (low) to 9 (high), None without one, which counts as 4."""
        stored = self._columns.priority(self._index)
        return stored - 1 if stored else None

    @property
    def expires_at(self) -> datetime | None:
        """When it expires, None for never."""
        expiry_us = self._columns.expiry(self._index)
        return None if expiry_us is None else from_us(expiry_us)

    def __repr__(self) -> str:
        size = "tombstone" if self.is_tombstone else f"{len(self.value)} bytes"
        return f"<{type(self).__name__} {self.topic}/{self.partition}@{self.offset} {size}>"


Span = tuple[Columns, int, int]
"""Records of some columns, by index: from, to."""


Recorded = TypeVar("Recorded", bound=Record)


def by_priority(records: list[Recorded], starvation_s: float | None, now_us: int) -> list[Recorded]:
    """What was appended so long ago, or before, first; the rest by priority, the highest first; else in their order."""
    starved = None if starvation_s is None else from_us(now_us - round(starvation_s * 1e6))

    def place(record: Recorded) -> int:
        if starved is not None and record.append_time <= starved:
            return -1
        return PRIORITY_MAX - (USUAL_PRIORITY if record.priority is None else record.priority)

    return sorted(records, key=place)


def _payloads(columns: Columns, start: int, stop: int) -> list[bytes]:
    """A tombstone reads as empty, as in `Record.value`."""
    return [value or b"" for value in columns.value_list(start, stop)]


class ColumnBatch:
    """Records of one partition, as columns."""

    __slots__ = {
        "_spans": None,
        "partition": "The partition, from 0.",
        "topic": "The topic's name.",
    }

    def __init__(self, topic: str, partition: int, spans: Sequence[Span]) -> None:
        self.topic = topic
        self.partition = partition
        self._spans = spans

    def values(self) -> list[bytes]:
        """All payloads; empty for a tombstone."""
        return self._joined(_payloads)

    def keys(self) -> list[bytes | None]:
        """All keys."""
        return self._joined(Columns.key_list)

    def headers(self) -> list[dict[str, bytes]]:
        """All headers; a record without any has an empty dict."""
        return self._joined(Columns.header_list)

    def timestamps(self) -> list[datetime]:
        """The events' own times; the append time of a record that was published without one."""
        return [
            timestamp_of(columns, at) for columns, start, stop in self._spans for at in range(start, stop)
        ]

    def dedup_ids(self) -> list[bytes | None]:
        """All deduplication ids; None for a record without one."""
        return [columns.dedup_id(at) for columns, start, stop in self._spans for at in range(start, stop)]

    def ttls(self) -> list[float | None]:
        """How many seconds after its append each record expires; None for never."""
        return [ttl_of(columns, at) for columns, start, stop in self._spans for at in range(start, stop)]

    def priorities(self) -> list[int | None]:
        """All priorities; None for a record without one."""
        stored = [columns.priority(at) for columns, start, stop in self._spans for at in range(start, stop)]
        return [each - 1 if each else None for each in stored]

    def offsets(self) -> list[int]:
        """All offsets."""
        return [
            offset for columns, start, stop in self._spans for offset in columns.offset_list()[start:stop]
        ]

    def __len__(self) -> int:
        return sum([stop - start for _, start, stop in self._spans])

    def _joined(self, items: Callable[[Columns, int, int], list[T]]) -> list[T]:
        """One column of all spans."""
        if len(self._spans) == 1:
            return items(*self._spans[0])
        return [item for span in self._spans for item in items(*span)]


class RecordBatch(ColumnBatch):
    """Neighbouring records of one partition. Iterating makes `Record`s."""

    __slots__ = ()

    def __init__(self, topic: str, partition: int, columns: Columns) -> None:
        super().__init__(topic, partition, ((columns, 0, columns.count),))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        """The record at an index, or those of a slice, as of a list. Raises `IndexError`."""
        found = range(len(self))[index]
        return self._record(found) if isinstance(found, int) else list(map(self._record, found))

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, range(len(self)))

    def _record(self, index: int) -> Record:
        return Record(self.topic, self.partition, self._spans[0][0], index)
