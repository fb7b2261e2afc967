"""A client that makes mistakes: it calls the public API with what cannot be right, at any moment of a run.

A wrong call is refused with an error that the documentation names, whatever the broker is doing meanwhile, and changes
nothing: what was wrongly published is stored nowhere, and a topic keeps its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard import Message
from callboard.log import limits
from callboard.log.errors import (
    CallboardError,
    ConfigurationError,
    GroupNotFound,
    InvalidArgument,
    MessageTooLarge,
    OffsetOutOfRange,
    RuntimeClosed,
    TopicExists,
    TopicNotFound,
)
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.world import World

PROMISE: Final = "a wrong call is refused, and changes nothing"
WRONG: Final = b"published by mistake"
"""The payload of every message in a wrong call; in a log it shows that it was stored."""
NAMELESS: Final = datetime(2020, 1, 1)  # noqa: DTZ001 - an instant without a zone is the mistake
PAUSE_S: Final = 0.02
REFUSALS: Final = (InvalidArgument, TopicNotFound, TopicExists, GroupNotFound, OffsetOutOfRange)
"""Errors that say that the call was wrong. Any other that Callboard raises says that it could not be looked at now."""


@attrs.frozen
class Mistake:
    """A wrong call, and the error that it is refused with."""

    name: str
    error: type[CallboardError]
    call: Callable[[Any, Any], Any]
    """Gets the runtime and a topic; what it returns is awaited."""


def _named(
    prefix: str, error: type[CallboardError], calls: Mapping[str, Callable[[Any, Any], Any]]
) -> list[Mistake]:
    return [Mistake(f"{prefix} {name}", error, call) for name, call in calls.items()]


async def _of(value: Any) -> Any:
    """For calls that are no coroutines."""
    return value


async def _entered(consumer: Any) -> None:
    async with consumer:
        pass


async def _first(reader: Any) -> None:
    async for _ in reader:
        return


async def _without_entering(consumer: Any) -> None:
    await consumer.get()


def _create(name: Any) -> Callable[[Any, Any], Any]:
    return lambda runtime, _: runtime.create_topic(name)


def _create_with(**settings: Any) -> Callable[[Any, Any], Any]:
    return lambda runtime, _: runtime.create_topic("never-made", **settings)


def _alter(**settings: Any) -> Callable[[Any, Any], Any]:
    return lambda runtime, topic: runtime.alter_topic(topic.name, **settings)


def _join(**settings: Any) -> Callable[[Any, Any], Any]:
    return lambda _, topic: _entered(topic.subscribe("never-joined", **settings))


def _publish(value: Any = WRONG, **given: Any) -> Callable[[Any, Any], Any]:
    return lambda _, topic: topic.publish(value, **given)


def _batch(values: Any, **given: Any) -> Callable[[Any, Any], Any]:
    return lambda _, topic: topic.publish_batch(values() if callable(values) else values, **given)


def _read(**given: Any) -> Callable[[Any, Any], Any]:
    return lambda _, topic: _first(topic.read(**given))


TWO: Final = [WRONG, WRONG]
MISTAKES: Final = (
    *_named(
        "create a topic whose name",
        InvalidArgument,
        {
            "is empty": _create(""),
            "is a number": _create(5),
            "is long": _create("x" * (limits.NAME_BYTES_MAX + 1)),
            "holds a slash": _create("a/b"),
            "holds a space": _create("a b"),
            "has an empty part": _create("a..b"),
            "begins with a hyphen": _create("-a"),
        },
    ),
    *_named(
        "create a topic with",
        ConfigurationError,
        {
            "no partition": _create_with(partitions=0),
            "half a partition": _create_with(partitions=0.5),
            "partitions None": _create_with(partitions=None),
            "an age that is no number": _create_with(retention_age=float("nan")),
            "an age that is text": _create_with(retention_age="1"),
            "an enormous size": _create_with(retention_bytes=10**30),
            "an unknown compression": _create_with(compression="rar"),
            "a flag that is a number": _create_with(drop_unread=1),
            "a misspelt setting": _create_with(partition=2),
            "a setting like none": _create_with(colour="red"),
            "segments older than what is kept": _create_with(segment_age=10.0, retention_age=1.0),
        },
    ),
    Mistake(
        "create a topic that is there with other settings",
        TopicExists,
        lambda runtime, topic: runtime.create_topic(topic.name, partitions=topic.partitions + 1),
    ),
    Mistake(
        "create a topic that differs in its case",
        TopicExists,
        lambda runtime, topic: runtime.create_topic(topic.name.upper()),
    ),
    Mistake(
        "create a topic with a partitioner that is none",
        InvalidArgument,
        lambda runtime, topic: runtime.create_topic(topic.name, partitioner=5),
    ),
    Mistake(
        "alter the number of partitions",
        ConfigurationError,
        lambda runtime, topic: runtime.alter_topic(topic.name, partitions=topic.partitions + 1),
    ),
    *_named(
        "alter a topic to",
        ConfigurationError,
        {"tiny segments": _alter(segment_bytes=1), "no limit of messages": _alter(max_message_bytes=None)},
    ),
    *_named(
        "name a topic that is not there, to",
        TopicNotFound,
        {
            "alter it": lambda runtime, _: runtime.alter_topic("nobody", drop_unread=True),
            "delete it": lambda runtime, _: runtime.delete_topic("nobody"),
            "find it": lambda runtime, _: _of(runtime.topic("nobody")),
            "find it by number": lambda runtime, _: _of(runtime.topic(5)),
            "subscribe to it": lambda runtime, _: _of(runtime.subscribe(["nobody"], "never-joined")),
        },
    ),
    *_named(
        "name a group that is not there, to",
        GroupNotFound,
        {
            "alter it": lambda runtime, _: runtime.group("nobody").alter(backoff=1.0),
            "alter it by number": lambda runtime, _: runtime.group(5).alter(backoff=1.0),
            "delete it": lambda runtime, _: runtime.group("nobody").delete(),
            "delete it by number": lambda runtime, _: runtime.group(5).delete(),
        },
    ),
    *_named(
        "subscribe to",
        InvalidArgument,
        {
            "nothing": lambda runtime, _: _of(runtime.subscribe([], "never-joined")),
            "text": lambda runtime, topic: _of(runtime.subscribe(topic.name, "never-joined")),
            "one topic twice": lambda runtime, topic: _of(
                runtime.subscribe([topic.name] * 2, "never-joined")
            ),
            "a group without a name": lambda _, topic: _entered(topic.subscribe("")),
        },
    ),
    *_named(
        "join a group with",
        ConfigurationError,
        {
            "a start in words": _join(start="middle"),
            "a start that is a flag": _join(start=True),
            "a start before the first": _join(start=-1),
            "a start without a zone": _join(start=NAMELESS),
            "no time to handle": _join(visibility_timeout=0),
            "an unknown order": _join(ordering="sometimes"),
            "a backoff beyond the longest": _join(backoff=10.0, max_backoff=1.0),
        },
    ),
    Mistake("join a group with two delays", ConfigurationError, _join(retry=3, backoff=3)),
    Mistake(
        "get without entering",
        RuntimeClosed,
        lambda _, topic: _without_entering(topic.subscribe("never-joined")),
    ),
    *_named(
        "publish",
        InvalidArgument,
        {
            "text": _publish("text"),
            "a number": _publish(5),
            "under a key of text": _publish(key="key"),
            "under a long key": _publish(key=b"k" * (limits.KEY_BYTES_MAX + 1)),
            "with a list of headers": _publish(headers=[("a", b"b")]),
            "with too many headers": _publish(
                headers={str(n): b"" for n in range(limits.HEADERS_COUNT_MAX + 1)}
            ),
            "with a nameless header": _publish(headers={"": b"b"}),
            "with a header that is a number": _publish(headers={"a": 5}),
            "with a long header": _publish(headers={"a": b"b" * (limits.HEADERS_BYTES_MAX + 1)}),
            "with a time in words": _publish(timestamp="now"),
            "with a time without a zone": _publish(timestamp=NAMELESS),
            "to a partition before the first": _publish(partition=-1),
            "to a partition after the last": _publish(partition=10_000),
            "to a partition that is a flag": _publish(partition=True),
            "at an unknown level": _publish(acks="some"),
            "a message beside a key": _publish(Message(WRONG), key=b"key"),
        },
    ),
    Mistake(
        "publish too much",
        MessageTooLarge,
        _publish(WRONG * (limits.MESSAGE_BYTES_DEFAULT // len(WRONG) + 1)),
    ),
    *_named(
        "publish a batch",
        InvalidArgument,
        {
            "that is a number": _batch(5),
            "that is a generator": _batch(lambda: (WRONG for _ in range(2))),
            "of text": _batch(["text", "text"]),
            "with one wrong message": _batch([WRONG, 5]),
            "with too few keys": _batch(TWO, keys=[b"key"]),
            "with keys in a set": _batch(TWO, keys={b"key", b"other"}),
            "with keys of text": _batch(TWO, keys=["key", "other"]),
            "with a long key": _batch(TWO, keys=[b"k" * (limits.KEY_BYTES_MAX + 1), None]),
            "with too many headers": _batch(TWO, headers=[None, None, None]),
            "with headers that are none": _batch(TWO, headers=[5, None]),
            "with times in words": _batch(TWO, timestamps=["now", None]),
            "of messages beside keys": _batch([Message(WRONG)] * 2, keys=[b"key", b"other"]),
            "to a partition after the last": _batch(TWO, partition=10_000),
            "of messages for partitions after the last": _batch([Message(WRONG, partition=10_000)] * 2),
            "at an unknown level": _batch(TWO, acks=5),
        },
    ),
    Mistake(
        "publish a batch with one message too large",
        MessageTooLarge,
        _batch([WRONG, WRONG * (limits.MESSAGE_BYTES_DEFAULT // len(WRONG) + 1)]),
    ),
    *_named(
        "read",
        InvalidArgument,
        {
            "from words": _read(start="middle"),
            "from a flag": _read(start=True),
            "from an instant without a zone": _read(start=NAMELESS),
            "to words": _read(stop="middle"),
            "a partition after the last": _read(partition=10_000),
            "a partition that is a flag": _read(partition=True),
        },
    ),
    Mistake(
        "restart an actor that is not there",
        InvalidArgument,
        lambda runtime, _: runtime.restart("topics/nobody/0"),
    ),
    Mistake("restart below an actor", InvalidArgument, lambda runtime, _: runtime.restart("catalog/nobody")),
    Mistake("restart nothing", InvalidArgument, lambda runtime, _: runtime.restart("")),
    Mistake(
        "crash an actor that is not there",
        InvalidArgument,
        lambda runtime, _: _of(runtime.crash("topics/nobody/0", RuntimeError("by mistake"))),
    ),
    Mistake(
        "hear events without a callback", InvalidArgument, lambda runtime, _: _of(runtime.subscribe_events(5))
    ),
)


class MistakenClient:
    """Makes this many mistakes, one after the other."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._entropy = world.entropy.fork("mistakes")
        self._left = count

    async def run(self, runtime: Any, topic: Any) -> None:
        """Make those that are left."""
        while self._left > 0:
            self._left -= 1
            await self.make(one_of(self._entropy, MISTAKES), runtime, topic)
            await trio.sleep(PAUSE_S)

    async def make(self, mistake: Mistake, runtime: Any, topic: Any) -> None:
        """One wrong call, which is refused as it should be, or could not be looked at."""
        before = {each.name: each.settings for each in runtime.topics()}
        try:
            await mistake.call(runtime, topic)
        except mistake.error:
            self._world.probe("mistake", mistake.name)
        except REFUSALS as error:
            raise self._broken(f"to {mistake.name} raised {type(error).__name__}: {error}") from error
        except CallboardError as error:
            self._world.note(f"{mistake.name}: {type(error).__name__}")
            return
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise self._broken(f"to {mistake.name} raised {error!r}") from error
        else:
            raise self._broken(f"to {mistake.name} raised nothing")
        after = {each.name: each.settings for each in runtime.topics()}
        if after.get(topic.name) != before.get(topic.name) or "never-made" in after:
            raise self._broken(f"to {mistake.name} changed topics: from {before} to {after}")

    def _broken(self, words: str) -> Violation:
        return self._world.broken(Violation(PROMISE, words))
