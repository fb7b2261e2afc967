"""Bad input: each gets one clear error before anything is written."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.log import limits
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy


class Bench:
    """A runtime on a disk in memory, with a topic of three messages; `refuses` also watches the disk."""

    def __init__(self, disk: MemoryDisk, runtime: Any, topic: Any) -> None:
        self.disk = disk
        self.runtime = runtime
        self.topic = topic

    async def refuses(self, error: type[Exception], operation: Any) -> Any:
        """The operation raises exactly this error, of three parts, and not a byte of any file has changed."""
        with suppress(callboard.CallboardError):
            await self.topic.flush()
        before, verbs = self.disk.files(), self.disk.verbs_executed
        with pytest.raises(error) as caught:
            await operation()
        assert type(caught.value) is error
        assert str(caught.value).count(".") >= 1
        assert (self.disk.files(), self.disk.verbs_executed) == (before, verbs)
        return caught.value


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """See `Bench`."""
    disk = MemoryDisk()
    async with callboard.open_runtime(disk=disk, clock=VirtualClock(), entropy=SeededEntropy(1)) as runtime:
        topic = await runtime.create_topic("orders", partitions=2, max_message_bytes=1000)
        await topic.publish_batch([b"0", b"1", b"2"], partition=0)
        await topic.flush()
        yield Bench(disk, runtime, topic)


# -- names --------------------------------------------------------------------------------------------------------

NAMES = [
    "",
    "x" * (limits.NAME_BYTES_MAX + 1),
    "\N{GREEK SMALL LETTER ALPHA}" * (limits.NAME_BYTES_MAX // 2 + 1),
    "a/b",
    "../up",
    "/etc/passwd",
    "a\\b",
    ".",
    "..",
    ".hidden",
    "a..b",
    "nul\0",
    "new\nline",
    "a b",
    " orders",
    "-rf",
    "tab\t",
    "\ud800",
    "\u202eevil",
    "c:drive",
    "what?",
    "a*",
    7,
    None,
    b"bytes",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_names_that_no_file_system_should_see(bench: Bench, name: Any) -> None:
    """Names of topics and groups: empty, too long, with separators, control characters, white space."""
    await bench.refuses(callboard.InvalidArgument, lambda: bench.runtime.create_topic(name))

    async def subscribe() -> None:
        async with bench.topic.subscribe(name):
            pass

    await bench.refuses(callboard.InvalidArgument, subscribe)


# -- payloads -----------------------------------------------------------------------------------------------------

BATCHES: list[dict[str, Any]] = [
    {"values": "a string"},
    {"values": [b"1", "2"]},
    {"values": [b"1", None]},
    {"values": 7},
    {"values": {b"a set"}},
    {"values": {b"a": b"dict"}},
    {"values": (value for value in [b"a generator"])},
    {"values": [b"1"], "keys": [b"a", b"b"]},
    {"values": [b"1", b"2"], "keys": [b"a", "b"]},
    {"values": [b"1"], "keys": (key for key in [b"a generator"])},
    {"values": [b"1"], "keys": 7},
    {"values": [b"1"], "keys": {b"a set"}, "partition": 0},
    {"values": [b"1"], "keys": 7, "partition": 0},
    {"values": [b"1"], "headers": []},
    {"values": [b"1"], "headers": 7},
    {"values": [b"1"], "timestamps": datetime(2024, 1, 1, tzinfo=UTC)},
    {"values": [b"1"], "headers": [{"a": 1}]},
    {"values": [b"1"], "timestamps": [datetime(2024, 1, 1)]},  # noqa: DTZ001 - that it has no zone is the point
    {"values": [b"1"], "timestamps": [1.5]},
    {"values": [callboard.Message(b"1"), b"2"], "keys": [b"a", b"b"]},
    {"values": [callboard.Message("text")]},  # type: ignore[arg-type]
    {"values": [callboard.Message(b"1", key="text")]},  # type: ignore[arg-type]
    {"values": [b"1"] * (limits.BATCH_RECORDS_MAX + 1)},
    {"values": [b"1"], "partition": 2},
    {"values": [b"1"], "partition": -1},
    {"values": [b"1"], "acks": "some"},
]


@pytest.mark.parametrize("arguments", BATCHES, ids=lambda arguments: ascii(arguments).split(" at 0x")[0][:60])
async def test_batches_that_cannot_be_stored(bench: Bench, arguments: dict[str, Any]) -> None:
    """Columns of different lengths, values that are no bytes, unknown levels: nothing of the batch is stored."""
    values = arguments.pop("values")
    try:
        await bench.refuses(callboard.InvalidArgument, lambda: bench.topic.publish_batch(values, **arguments))
    finally:
        arguments["values"] = values


SINGLES: list[dict[str, Any]] = [
    {"value": "text"},
    {"value": 7},
    {"value": None},
    {"value": [b"list"]},
    {"value": b"1", "key": "text"},
    {"value": b"1", "key": 7},
    {"value": b"1", "key": b"k" * (limits.KEY_BYTES_MAX + 1)},
    {"value": b"1", "headers": {"a": 7}},
    {"value": b"1", "headers": {7: b"a"}},
    {"value": b"1", "headers": [("a", b"b")]},
    {"value": b"1", "headers": {"x": "\ud800"}},
    {"value": b"1", "headers": {f"h{number}": b"" for number in range(limits.HEADERS_COUNT_MAX + 1)}},
    {"value": b"1", "headers": {"h": b"x" * (limits.HEADERS_BYTES_MAX + 1)}},
    {"value": b"1", "timestamp": datetime(2024, 1, 1)},  # noqa: DTZ001 - that it has no zone is the point
    {"value": b"1", "timestamp": 1_700_000_000},
    {"value": b"1", "timestamp": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))},
    {"value": b"1", "timestamp": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))},
    {"value": b"1", "partition": 2},
    {"value": b"1", "partition": -1},
    {"value": b"1", "partition": True},
    {"value": b"1", "partition": 0.0},
    {"value": b"1", "partition": "0"},
    {"value": b"1", "acks": "ALL"},
    {"value": b"1", "acks": 1},
    {"value": b"1", "acks": None},
    {"value": b"1", "acks": ["all"]},
]


@pytest.mark.parametrize("arguments", SINGLES, ids=lambda arguments: ascii(arguments)[:60])
async def test_messages_that_cannot_be_stored(bench: Bench, arguments: dict[str, Any]) -> None:
    """Values, keys and headers that are no bytes or too many, times without a zone, partitions out of range."""
    given = dict(arguments)
    value = given.pop("value")
    await bench.refuses(callboard.InvalidArgument, lambda: bench.topic.publish(value, **given))


@pytest.mark.parametrize(
    ("value", "key", "headers"),
    [(b"x" * 1001, None, None), (b"x" * 999, b"ke", None), (b"x" * 990, None, {"head": b"1234567"})],
)
async def test_messages_beyond_the_topics_limit(bench: Bench, value: bytes, key: Any, headers: Any) -> None:
    """The limit counts value, key and headers; the error names both sizes; just below it, it fits."""
    error = await bench.refuses(
        callboard.MessageTooLarge, lambda: bench.topic.publish(value, key=key, headers=headers)
    )
    assert (error.size_bytes, error.limit_bytes) == (1001, 1000)
    await bench.refuses(
        callboard.MessageTooLarge,
        lambda: bench.topic.publish_batch([b"fits", value], keys=[None, key], headers=[None, headers]),
    )
    await bench.topic.publish(value[1:], key=key, headers=headers)


HINTS: list[tuple[Any, str]] = [
    ("text", "Encode it first: value.encode()."),
    ({"teas": 2}, "Encode it first, e.g. json.dumps(value).encode()."),
    ([b"list"], "Encode it first, e.g. json.dumps(value, default=str).encode()."),
    (
        {"at": datetime(2026, 1, 1, tzinfo=UTC)},
        "Encode it first, e.g. json.dumps(value, default=str).encode().",
    ),
    ({("a", 1): 2}, "Encode it first."),
    (7, "Encode it first, e.g. json.dumps(value).encode()."),
    (None, "An empty value is b''."),
    (callboard.Message(b"inner"), "Give its bytes, e.g. message.value."),
    (object(), "Encode it first."),
]


@pytest.mark.parametrize(("value", "hint"), HINTS, ids=lambda part: type(part).__name__)
async def test_the_hint_fits_what_was_given(bench: Bench, value: Any, hint: str) -> None:
    """Text is encoded, what looks like JSON goes through json; within a Message, and in a batch, it is the same."""
    message = callboard.Message(value)
    refused = [
        lambda: bench.topic.publish(message),
        lambda: bench.topic.publish_batch([b"1", message]),
        lambda: bench.topic.publish_batch([callboard.Message(b"1"), message]),
    ]
    if not isinstance(value, callboard.Message):
        refused += [
            lambda: bench.topic.publish(value),
            lambda: bench.topic.publish_batch([b"1", value]),
        ]
    for operation in refused:
        error = await bench.refuses(callboard.InvalidArgument, operation)
        assert str(error).endswith(f"Nothing was written. {hint}")


async def test_a_record_is_not_published_as_a_value(bench: Bench) -> None:
    """What was read is copied by its bytes."""
    async for record in bench.topic.read():
        error = await bench.refuses(callboard.InvalidArgument, lambda: bench.topic.publish(record))  # noqa: B023
        assert "Give its bytes, e.g. message.value." in str(error)
        break


@pytest.mark.parametrize(
    "batch", ["text", b"bytes", bytearray(b"bytes"), callboard.Message(b"one")], ids=ascii
)
async def test_one_message_is_no_batch(bench: Bench, batch: Any) -> None:
    """Nor are its letters or bytes messages."""
    for topic in (bench.topic, await bench.runtime.create_topic("single")):
        error = await bench.refuses(callboard.InvalidArgument, lambda: topic.publish_batch(batch))  # noqa: B023
        assert f"a batch is {type(batch).__name__}, not a sequence of messages." in str(error)
        assert "Put it in a list, or call publish." in str(error)


@pytest.mark.parametrize("keys", ["ab", b"ab", {"a": 1}], ids=ascii)
async def test_columns_are_lists(bench: Bench, keys: Any) -> None:
    """A text is not a column of its letters."""
    for topic in (bench.topic, await bench.runtime.create_topic("single")):
        error = await bench.refuses(
            callboard.InvalidArgument,
            lambda: topic.publish_batch([b"1", b"2"], keys=keys),  # noqa: B023
        )
        assert str(error).startswith(f"keys are {type(keys).__name__}, not a sequence.")


class Order(callboard.Message):
    """A program's own kind of message."""


async def test_subclasses_of_message_are_messages(bench: Bench) -> None:
    """Alone and in a batch, with what else they carry."""
    await bench.topic.publish(Order(b"a", b"key", partition=1))
    await bench.topic.publish_batch([Order(b"b", b"key", partition=1)])
    stored = [(record.value, record.key) async for record in bench.topic.read() if record.partition == 1]
    assert stored == [(b"a", b"key"), (b"b", b"key")]


AT_TWO: list[dict[str, Any]] = [
    {"values": [b"1", bytearray(b"2"), "three"]},
    {"values": [callboard.Message(b"1"), b"2", callboard.Message(None)]},  # type: ignore[arg-type]
    {"values": [b"1", b"2", callboard.Message(b"3", key="key")]},  # type: ignore[arg-type]
    {"values": [b"1", b"2", callboard.Message(b"3", partition=2)]},
    {"values": [b"1", b"2", callboard.Message(b"3", headers={"a": 7})]},  # type: ignore[dict-item]
    {"values": [b"1"] * 3, "keys": [b"a", None, "key"]},
    {"values": [b"1"] * 3, "keys": [b"a", b"b", b"k" * (limits.KEY_BYTES_MAX + 1)]},
    {"values": [b"1"] * 3, "headers": [{}, None, {"a": 7}]},
    {"values": [b"1"] * 3, "timestamps": [None, datetime(2024, 1, 1, tzinfo=UTC), 1_700_000_000]},
    {"values": [b"1", b"2", b"x" * 1001]},
]


@pytest.mark.parametrize("arguments", AT_TWO, ids=lambda arguments: ascii(arguments)[:60])
async def test_errors_in_a_batch_name_the_message(bench: Bench, arguments: dict[str, Any]) -> None:
    """In the text and as `index`; whether the topic has one partition or several."""
    given = dict(arguments)
    values = given.pop("values")
    single = await bench.runtime.create_topic("single", max_message_bytes=1000)
    for topic in (bench.topic, single):
        with pytest.raises(callboard.InvalidArgument) as caught:
            await topic.publish_batch(values, **given)
        assert str(caught.value).startswith("message 2 of the batch")
        assert caught.value.index == 2


async def test_a_partitioner_that_chooses_no_partition_in_a_batch(bench: Bench) -> None:
    """The error names the message, also where others have chosen their partitions themselves."""
    topic = await bench.runtime.create_topic(
        "chosen", partitions=2, partitioner=lambda key, partitions: 7 if key == b"bad" else 0
    )
    batch = [
        callboard.Message(b"1", partition=1),
        callboard.Message(b"2", b"good"),
        callboard.Message(b"3", b"bad"),
    ]
    for operation in (
        lambda: topic.publish_batch(batch),
        lambda: topic.publish_batch([b"1", b"2", b"3"], keys=[None, b"good", b"bad"]),
    ):
        error = await bench.refuses(callboard.InvalidArgument, operation)
        assert (error.index, error.chosen) == (2, 7)


async def test_errors_of_one_message_have_no_index(bench: Bench) -> None:
    """There is nothing to look for."""
    for value in ("text", b"x" * 1001):
        with pytest.raises(callboard.InvalidArgument) as caught:
            await bench.topic.publish(value)
        assert caught.value.index is None


# -- settings -----------------------------------------------------------------------------------------------------


MEANT: list[tuple[dict[str, Any], str]] = [
    (
        {"max_delivery": 3},
        "unknown setting 'max_delivery' (did you mean 'max_deliveries'?)",
    ),
    ({"sesion_timeout": 3}, "(did you mean 'session_timeout'?)"),
    ({"retri": 3}, "(did you mean 'retry'?)"),
    ({"visibilty_timeout": 3}, "(did you mean 'visibility_timeout'?)"),
    ({"mode": "exclusiv"}, "(did you mean 'exclusive'?)"),
    ({"mode": "share"}, "(did you mean 'shared'?)"),
    ({"ordering": "partitions"}, "(did you mean 'partition'?)"),
    ({"ordering": "keys"}, "(did you mean 'key'?)"),
    ({"start": "begining"}, "(did you mean 'beginning'?)"),
]


@pytest.mark.parametrize(("settings", "meant"), MEANT, ids=ascii)
async def test_misspelt_settings_of_groups(bench: Bench, settings: dict[str, Any], meant: str) -> None:
    """Names and words, also of later versions: the error says what was probably meant."""

    async def subscribe() -> None:
        async with bench.topic.subscribe("billing", **settings):
            pass

    assert meant in str(await bench.refuses(callboard.ConfigurationError, subscribe))


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        ({"default_tl": 3}, "(did you mean 'default_ttl'?)"),
        ({"retention": 3}, "(did you mean 'retention_age'?)"),
        ({"compression": "zst"}, "(did you mean 'zstd'?)"),
    ],
    ids=ascii,
)
async def test_misspelt_settings_of_topics(bench: Bench, settings: dict[str, Any], meant: str) -> None:
    """The same."""
    error = await bench.refuses(
        callboard.ConfigurationError, lambda: bench.runtime.create_topic("new", **settings)
    )
    assert meant in str(error)


async def test_all_problems_of_settings_come_in_one_error(bench: Bench) -> None:
    """Unknown names (with what was probably meant), values out of range, wrong types: all at once."""
    error = await bench.refuses(
        callboard.ConfigurationError,
        lambda: bench.runtime.create_topic(
            "new",
            partitons=3,
            partitions=0,
            segment_bytes=1,
            segment_age=math.nan,
            retention_age=-1.0,
            compression="rar",
            drop_unread="yes",
            max_message_bytes=None,
        ),
    )
    assert len(error.problems) == 8
    assert "did you mean 'partitions'" in str(error)
    assert all(problem in str(error) for problem in error.problems)


@pytest.mark.parametrize(
    "seconds", [-1, -0.001, math.nan, math.inf, -math.inf, "5", None, True, 10**12, 10**400]
)
async def test_durations_that_are_none(bench: Bench, seconds: Any) -> None:
    """Negative, NaN, infinite, text: wherever a duration is taken."""
    names = ["visibility_timeout", "backoff", "max_backoff"]
    if seconds is not None:
        names.append("group_expiry")
        await bench.refuses(
            callboard.ConfigurationError, lambda: bench.runtime.create_topic("new", segment_age=seconds)
        )
        await bench.refuses(
            callboard.ConfigurationError, lambda: bench.runtime.alter_topic("orders", retention_age=seconds)
        )
    for name in names:

        async def subscribe(setting: str = name) -> None:
            async with bench.topic.subscribe("new", **{setting: seconds}):
                pass

        await bench.refuses(callboard.ConfigurationError, subscribe)
    async with bench.topic.subscribe("group") as consumer:
        message = await consumer.get()
        await bench.topic.flush()
        await bench.refuses(callboard.InvalidArgument, lambda: message.extend(seconds))
        await bench.refuses(
            callboard.InvalidArgument, lambda: message.nack(delay="soon" if seconds is None else seconds)
        )
        with pytest.raises(callboard.InvalidArgument):
            consumer.batches(max_wait=seconds)
        if seconds is not None and seconds != math.inf:
            await bench.refuses(callboard.InvalidArgument, lambda: consumer.get(timeout=seconds))
        await message.ack()


async def test_settings_that_contradict(bench: Bench) -> None:
    """Each is fine alone, and together they are refused; so is another setting for what exists already."""
    await bench.refuses(
        callboard.ConfigurationError,
        lambda: bench.runtime.create_topic("new", segment_age=100.0, retention_age=10.0),
    )
    await bench.refuses(callboard.TopicExists, lambda: bench.runtime.create_topic("orders", partitions=3))
    await bench.refuses(
        callboard.ConfigurationError, lambda: bench.runtime.alter_topic("orders", partitions=3)
    )

    async def subscribe() -> None:
        async with bench.topic.subscribe("new", backoff=10.0, max_backoff=1.0, start="beginning"):
            pass

    await bench.refuses(callboard.ConfigurationError, subscribe)


@pytest.mark.parametrize("start", [-1, 2**63, "middle", 1.5, True, datetime(2024, 1, 1)])  # noqa: DTZ001 - no zone
async def test_places_to_start_that_are_none(bench: Bench, start: Any) -> None:
    """Negative offsets, unknown words, times without a zone: for readers and for groups."""
    with pytest.raises(callboard.InvalidArgument):
        bench.topic.read(start)
    with pytest.raises(callboard.InvalidArgument):
        bench.topic.read(stop=start)

    async def subscribe() -> None:
        async with bench.topic.subscribe("new", start=start):
            pass

    await bench.refuses(callboard.ConfigurationError, subscribe)


async def test_limits_of_consumers(bench: Bench) -> None:
    """Sizes of batches and of what is in flight, and a partition to read that does not exist."""
    async with bench.topic.subscribe("group") as consumer:
        for wrong in (0, -1, 100_001, 1.5, None, True):
            with pytest.raises(callboard.InvalidArgument):
                consumer.batches(max_records=wrong)
    for wrong in (2, -1, True, "0"):
        with pytest.raises(callboard.InvalidArgument):
            bench.topic.read(partition=wrong)
    for wrong in (0, -5, 1.5, None):

        async def subscribe(value: Any = wrong) -> None:
            async with bench.topic.subscribe("new", max_in_flight=value):
                pass

        await bench.refuses(callboard.ConfigurationError, subscribe)


# -- what is not there, or no longer ------------------------------------------------------------------------------


async def test_what_does_not_exist(bench: Bench) -> None:
    """Topics, groups and actors of unknown names."""
    with pytest.raises(callboard.TopicNotFound):
        bench.runtime.topic("nothing")
    await bench.refuses(callboard.TopicNotFound, lambda: bench.runtime.delete_topic("nothing"))
    await bench.refuses(
        callboard.TopicNotFound, lambda: bench.runtime.alter_topic("nothing", drop_unread=True)
    )
    await bench.refuses(callboard.GroupNotFound, lambda: bench.runtime.group("nothing").delete())
    for path in ("nothing", "topics/nothing", "topics/orders/7", "", "topics"):
        with pytest.raises(callboard.InvalidArgument):
            bench.runtime.crash(path, ValueError())
    for path in ("nothing", "topics/nothing/0", "topics/orders/7", ""):
        await bench.refuses(callboard.InvalidArgument, lambda path=path: bench.runtime.restart(path))


@pytest.mark.parametrize("name", [None, 7, [], {}, b"orders"])
async def test_names_that_are_no_text(bench: Bench, name: Any) -> None:
    """Names and paths of another type than text name nothing."""
    runtime = bench.runtime
    with pytest.raises(callboard.TopicNotFound):
        runtime.topic(name)
    await bench.refuses(callboard.GroupNotFound, lambda: runtime.group(name).delete())
    await bench.refuses(callboard.InvalidArgument, lambda: runtime.restart(name))
    with pytest.raises(callboard.InvalidArgument):
        runtime.crash(name, ValueError())


async def test_a_subscriber_that_cannot_be_called(bench: Bench) -> None:
    """It is refused at once, and the runtime lives on."""
    with pytest.raises(callboard.InvalidArgument):
        bench.runtime.subscribe_events(7)
    with pytest.raises(callboard.InvalidArgument):
        async with callboard.open_runtime(disk=MemoryDisk(), on_event=7):  # type: ignore[arg-type]
            pass
    await bench.runtime.restart("topics/orders/0")
    assert (await bench.topic.publish(b"3", partition=0)).offset == 3


async def test_a_partitioner_that_cannot_be_called(bench: Bench) -> None:
    """It is refused when it is given, not when a key needs it."""
    with pytest.raises(callboard.InvalidArgument):
        bench.runtime.topic("orders", partitioner=7)
    assert (await bench.topic.publish(b"3", key=b"k")).offset is not None


async def test_settling_twice(bench: Bench) -> None:
    """A message or batch is settled once, in whatever way; the second time says so and has no effect."""
    async with bench.topic.subscribe("group", max_in_flight=10) as consumer:
        message = await consumer.get()
        await message.ack()
        await bench.topic.flush()
        for again in (message.ack, message.nack, message.release, lambda: message.extend(1.0)):
            await bench.refuses(callboard.InvalidArgument, again)
        async for batch in consumer.batches(max_records=2, max_wait=0.0):
            await batch.ack()
            await bench.topic.flush()
            for again in (batch.ack, batch.nack, batch.release):
                await bench.refuses(callboard.InvalidArgument, again)
            break


async def test_settling_what_is_somebody_elses(bench: Bench) -> None:
    """A message that was leased again since, and one of a consumer that left, settle nothing."""
    async with bench.topic.subscribe("group") as second:
        async with bench.topic.subscribe("group") as first:
            foreign = await first.get()
        again = await second.get()
        assert (again.offset, again.attempt) == (foreign.offset, 1)
        with pytest.raises((callboard.RuntimeClosed, callboard.LeaseLost)):
            await foreign.extend(60.0)
        with pytest.raises(callboard.LeaseLost):
            await foreign.ack()
        (part, _) = await bench.topic.describe()
        assert (part.groups[0].leased, part.groups[0].floor) == (1, 0)
        await again.ack()


async def test_a_closed_runtime_refuses_everything() -> None:
    """Every operation of a closed runtime, its topics, consumers and messages raises `RuntimeClosed`, at once."""
    disk = MemoryDisk()
    async with callboard.open_runtime(disk=disk) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        consumer = topic.subscribe("group")
        async with consumer:
            message = await consumer.get()
    before = disk.files()
    plain = [
        runtime.tree,
        runtime.events,
        runtime.topics,
        topic.read,
        topic.read_batches,
        consumer.receive,
        consumer.batches,
        lambda: runtime.topic("orders"),
        lambda: topic.subscribe("group"),
        lambda: runtime.crash("topics/orders/0", ValueError()),
        lambda: runtime.subscribe_events(print),
    ]
    for operation in plain:
        with pytest.raises(callboard.RuntimeClosed):
            operation()
    awaited = [
        lambda: topic.publish(b"1"),
        lambda: topic.publish(b"1", acks="none"),
        lambda: topic.publish_batch([b"1"]),
        topic.flush,
        topic.describe,
        lambda: message.extend(1.0),
        message.ack,
        consumer.get,
        lambda: consumer.get(timeout=1.0),
        consumer.flush,
        runtime.stats,
        runtime.groups,
        lambda: runtime.create_topic("new"),
        lambda: runtime.delete_topic("orders"),
        lambda: runtime.alter_topic("orders", drop_unread=True),
        lambda: runtime.group("group").delete(),
        lambda: runtime.restart("topics/orders/0"),
    ]
    with trio.fail_after(10.0):
        for operation in awaited:
            with pytest.raises(callboard.RuntimeClosed):
                await operation()
    assert disk.files() == before


async def test_a_runtime_is_opened_once_and_needs_one_place(tmp_path: Path) -> None:
    """Neither a place nor two; and the same object is not entered again."""
    with pytest.raises(callboard.InvalidArgument):
        callboard.open_runtime()
    with pytest.raises(callboard.InvalidArgument):
        callboard.open_runtime(tmp_path, disk=MemoryDisk())
    for place in (7, "", "nul\0", []):
        with pytest.raises(callboard.InvalidArgument):
            callboard.open_runtime(place)  # type: ignore[arg-type]
    runtime = callboard.open_runtime(tmp_path)
    async with runtime:
        with pytest.raises(callboard.InvalidArgument):
            await runtime.__aenter__()
    with pytest.raises(callboard.InvalidArgument):
        await runtime.__aenter__()
    with pytest.raises(callboard.RuntimeClosed):
        runtime.topics()


async def test_a_deleted_topic_refuses_everything(bench: Bench) -> None:
    """Handles on a deleted topic say so, and a new topic of that name is another."""
    old = bench.topic
    await bench.runtime.delete_topic("orders")
    await bench.refuses(callboard.TopicNotFound, lambda: old.publish(b"1"))
    await bench.refuses(callboard.TopicNotFound, lambda: old.publish_batch([b"1", b"2"]))
    new = await bench.runtime.create_topic("orders")
    assert new.topic_id != old.topic_id
    await bench.refuses(callboard.TopicNotFound, lambda: old.publish(b"1"))
    assert [record async for record in new.read()] == []


@pytest.mark.parametrize("wrong", [1, None, {"mailbox": 1}, callboard.log.limits.Limits])
def test_limits_of_another_type_are_refused_before_anything_is_opened(tmp_path: Path, wrong: Any) -> None:
    """The error says what limits are, and the directory is not made."""
    with pytest.raises(callboard.InvalidArgument, match="limits are Limits"):
        callboard.open_runtime(tmp_path / "data", limits=wrong)
    assert list(tmp_path.iterdir()) == []


async def test_leaving_a_runtime_twice_does_nothing(tmp_path: Path) -> None:
    """Nor does leaving one that was never entered; it can be opened afterwards."""
    runtime = callboard.open_runtime(tmp_path / "data")
    assert await runtime.__aexit__(None, None, None) is False
    async with runtime:
        await (await runtime.create_topic("orders")).publish(b"0")
    assert await runtime.__aexit__(None, None, None) is False
    async with callboard.open_runtime(tmp_path / "data") as again:
        assert [topic.name for topic in again.topics()] == ["orders"]
