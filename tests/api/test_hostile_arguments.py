"""Every public argument, given what nobody means: it is refused in words, or taken, and no actor sees its code.

The table `CALLS` says how each public method is called; what is missing there fails a test. Each argument in turn is
replaced by each of the `HOSTILE` values. The outcome is an answer, or a `CallboardError` or `TypeError` with words:
never the error of the value's own code, and no actor crashes.
"""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_type_hints

import attrs
import pytest
import trio

import callboard


class OwnCodeRan(Exception):
    """What the code of a hostile value raises."""


def _raises(*_: object, **__: object) -> Any:
    raise OwnCodeRan("this is the code of an argument")


SPECIAL = (
    *("repr", "str", "format", "eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "len", "iter", "getitem"),
    *("contains", "int", "float", "index", "bytes", "fspath", "call", "await", "enter", "add", "radd", "sub"),
    *("rsub", "mul", "rmul", "truediv", "rtruediv", "mod", "neg", "abs", "round", "trunc", "floor", "ceil"),
    *("reversed", "buffer", "getattr", "copy", "deepcopy", "reduce", "reduce_ex", "next", "set_name", "and"),
)
RAISING: dict[str, Any] = {f"__{name}__": _raises for name in SPECIAL}


def _hostile(base: type, *more: str) -> type:
    """A subclass whose every method raises, the inherited ones too."""
    own = [name for name in dir(base) if not name.startswith("__") and callable(getattr(base, name))]
    return type(f"Hostile{base.__name__.title()}", (base,), RAISING | dict.fromkeys((*own, *more), _raises))


HostileText = _hostile(str)
HostileBytes = _hostile(bytes)
HostileByteArray = _hostile(bytearray)
HostileInt = _hostile(int)
HostileFloat = _hostile(float)
HostileList = _hostile(list)
HostileTuple = _hostile(tuple)
HostileDict = _hostile(dict)
HostileSet = _hostile(set)
HostileInstant = _hostile(datetime)
Hostile = _hostile(object)


class NowhereZone(tzinfo):
    """A time zone that does not know its own offset."""

    utcoffset = dst = tzname = _raises


class Colour(enum.StrEnum):
    """Text that is more than text."""

    RED = "red"


class Number(enum.IntEnum):
    """A number that is more than a number."""

    ONE = 1


def _instant(*given: Any, **named: Any) -> datetime:
    return datetime.__new__(HostileInstant, *given, **named)


def _looped() -> list[Any]:
    looped: list[Any] = []
    looped.append(looped)
    return looped


HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an object": object,
    "a class": lambda: dict,
    "a function": lambda: lambda *_: None,
    "a function that raises": lambda: _raises,
    "a coroutine function": lambda: trio.sleep,
    "not implemented": lambda: NotImplemented,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "1.5": lambda: 1.5,
    "2 ** 31": lambda: 2**31,
    "2 ** 63": lambda: 2**63,
    "2 ** 64": lambda: 2**64,
    "-2 ** 63 - 1": lambda: -(2**63) - 1,
    "a number too long to print": lambda: 10**5000,
    "minus such a number": lambda: -(10**5000),
    "nan": lambda: math.nan,
    "infinity": lambda: math.inf,
    "minus infinity": lambda: -math.inf,
    "1e308": lambda: 1e308,
    "a complex number": lambda: 1j,
    "a decimal": lambda: Decimal("1.5"),
    "a signalling nan": lambda: Decimal("sNaN"),
    "a fraction": lambda: Fraction(3, 2),
    "empty text": lambda: "",
    "text": lambda: "text",
    "a zero byte": lambda: "a\0b",
    "a surrogate": lambda: "a\ud800b",
    "long text": lambda: "long" * 100_000,
    "text of an enum": lambda: Colour.RED,
    "number of an enum": lambda: Number.ONE,
    "bytes": lambda: b"q",
    "empty bytes": lambda: b"",
    "a bytearray": lambda: bytearray(b"q"),
    "an empty bytearray": bytearray,
    "a view": lambda: memoryview(b"q"),
    "a view of every other byte": lambda: memoryview(b"abcdef")[::2],
    "a view of numbers": lambda: memoryview(bytes(16)).cast("d"),
    "a released view": lambda: _released(),
    "an empty list": list,
    "an empty tuple": tuple,
    "an empty dict": dict,
    "a list of None": lambda: [None],
    "a list of lists": lambda: [[]],
    "a list of texts": lambda: ["a", "b"],
    "a list of nans": lambda: [math.nan],
    "a list that holds itself": _looped,
    "a list of hostile objects": lambda: [Hostile()],
    "a dict of hostile objects": lambda: {"a": Hostile()},
    "a dict of numbers": lambda: {1: 2},
    "a set": lambda: {1},
    "a range": lambda: range(10**7),
    "an iterator": lambda: iter([1]),
    "a generator": lambda: (each for each in [1]),
    "a naive instant": lambda: datetime(2026, 1, 1),  # noqa: DTZ001
    "the first instant": lambda: datetime.min.replace(tzinfo=UTC),
    "the last instant": lambda: datetime.max.replace(tzinfo=UTC),
    "an instant nowhere": lambda: datetime(2026, 1, 1, tzinfo=NowhereZone()),
    "a duration": lambda: timedelta(seconds=1),
    "an exception": lambda: ValueError("an argument"),
    "a hostile object": Hostile,
    "hostile text": lambda: HostileText("text"),
    "hostile bytes": lambda: HostileBytes(b"bytes"),
    "a hostile bytearray": lambda: HostileByteArray(b"bytes"),
    "a hostile int": lambda: HostileInt(1),
    "a hostile float": lambda: HostileFloat(1.5),
    "a hostile list": lambda: HostileList([1]),
    "a hostile tuple": lambda: HostileTuple([1]),
    "a hostile dict": lambda: HostileDict(a=1),
    "a hostile set": lambda: HostileSet([1]),
    "a hostile instant": lambda: _instant(2026, 1, 1, tzinfo=UTC),
}


def _released() -> memoryview:
    view = memoryview(b"q")
    view.release()
    return view


@attrs.frozen
class Stage:
    """Handles of each kind, in one runtime."""

    runtime: Any
    orders: Any
    refunds: Any
    group: str = "billing"


Make = Callable[[Stage], Awaitable[Any]]


@attrs.frozen
class Call:
    """How one method is called: on what, and with which arguments besides the hostile one."""

    given: Mapping[str, Any] = attrs.Factory(dict)
    settings: type | None = None
    """What further keywords it takes."""
    is_message: bool = False
    """The arguments are those of a `Message`."""


async def _runtime(stage: Stage) -> Any:
    return stage.runtime


async def _topic(stage: Stage) -> Any:
    return stage.orders


async def _group(stage: Stage) -> Any:
    return stage.runtime.group(stage.group)


async def _producer(stage: Stage) -> Any:
    return await stage.orders.producer("import").__aenter__()


async def _delayed(stage: Stage) -> Any:
    await stage.orders.publish(b"later", delay=1000)
    return stage.orders.delayed()


async def _schedule(stage: Stage) -> Any:
    return await stage.orders.schedule("daily", every=86_400.0, value=b"tick")


async def _kept(stage: Stage) -> Any:
    return stage.orders.dead_letters(stage.group)


async def _letters(stage: Stage) -> Any:
    return stage.runtime.dead_letters("refunds")


async def _consumer(stage: Stage) -> Any:
    await stage.orders.publish(b"order")
    return await stage.orders.subscribe(stage.group).__aenter__()


async def _message(stage: Stage) -> Any:
    return await (await _consumer(stage)).get()


async def _batch(stage: Stage) -> Any:
    return await (await _consumer(stage)).get_batch(max_records=10, max_wait=0.0)


class Echo(callboard.Actor[Any]):
    """Answers with what it is asked."""

    async def receive(self, message: Any) -> Any:
        """See the class."""
        return message


async def _actor(stage: Stage) -> Any:
    return await stage.runtime.spawn(Echo)


async def _reply(stage: Stage) -> Any:
    return (await _actor(stage)).ask_nowait(1)


async def handle(message: Any) -> None:
    """A handler."""


HANDLES: dict[type, Make] = {
    callboard.Runtime: _runtime,
    callboard.Topic: _topic,
    callboard.Group: _group,
    callboard.Producer: _producer,
    callboard.hints.DelayedMessages: _delayed,
    callboard.Schedule: _schedule,
    callboard.hints.KeptLetters: _kept,
    callboard.DeadLetterTopic: _letters,
    callboard.Consumer: _consumer,
    callboard.ReceivedMessage: _message,
    callboard.ReceivedBatch: _batch,
    callboard.ActorRef: _actor,
    callboard.Reply: _reply,
}
PUBLISH = {"value": b"value"}
BATCH = {"values": [b"value"]}
WORK = {"handler": handle, "group": "billing"}
CALLS: dict[str, Call] = {
    "Runtime.create_topic": Call({"name": "fresh"}, callboard.hints.TopicOptions),
    "Runtime.topic": Call({"name": "orders"}),
    "Runtime.dead_letters": Call({"topic": "orders"}),
    "Runtime.alter_topic": Call({"name": "orders"}, callboard.hints.TopicChanges),
    "Runtime.delete_topic": Call({"name": "refunds"}),
    "Runtime.group": Call({"name": "billing"}),
    "Runtime.alter_group": Call({"name": "billing"}, callboard.hints.GroupChanges),
    "Runtime.describe_group": Call({"name": "billing"}),
    "Runtime.seek_group": Call({"name": "billing", "to": "end"}),
    "Runtime.reset_group": Call({"name": "billing"}),
    "Runtime.delete_group": Call({"name": "billing"}),
    "Group.alter": Call({}, callboard.hints.GroupChanges),
    "Group.dead_letters": Call({"topic": "orders"}),
    "Group.describe": Call({}),
    "Group.seek": Call({"to": "end"}),
    "Group.reset": Call({}),
    "Group.delete": Call({}),
    "Runtime.subscribe": Call({"topics": ["orders"], "group": "billing"}, callboard.hints.GroupOptions),
    "Runtime.subscribe by pattern": Call(
        {"pattern": "or*", "group": "pattern"}, callboard.hints.GroupOptions
    ),
    "Runtime.work": Call({"topics": ["orders"], **WORK}, callboard.hints.GroupOptions),
    "Runtime.spawn": Call({"actor": Echo}),
    "Runtime.restart": Call({"path": "topics/orders/0"}),
    "Runtime.crash": Call({"path": "topics/none/0", "error": ValueError("a drill")}),
    "Runtime.subscribe_events": Call({"callback": print}),
    "Topic.publish": Call(PUBLISH),
    "Topic.publish a message": Call(is_message=True),
    "Topic.publish_batch": Call(BATCH),
    "Topic.publish_batch of messages": Call(is_message=True),
    "Topic.schedule": Call({"name": "hourly", "value": b"tick", "every": 3600.0}),
    "Topic.schedule by cron": Call({"name": "hourly", "value": b"tick", "cron": "0 * * * *"}),
    "Topic.producer": Call({"name": "import"}),
    "Topic.subscribe": Call({"group": "billing"}, callboard.hints.GroupOptions),
    "Topic.work": Call(WORK, callboard.hints.GroupOptions),
    "Topic.read": Call({}),
    "Topic.read_batches": Call({}),
    "Topic.dead_letters": Call({"group": "billing"}),
    "Producer.publish": Call(PUBLISH),
    "Producer.publish a message": Call(is_message=True),
    "Producer.publish_batch": Call(BATCH),
    "Producer.next_sequence": Call({}),
    "DelayedMessages.list": Call({}),
    "DelayedMessages.next": Call({}),
    "DelayedMessages.cancel": Call({"receipts": []}),
    "DelayedMessages.cancel_ids": Call({"partition": 0, "schedule_ids": [0]}),
    "Schedule.next": Call({}),
    "KeptLetters.list": Call({}),
    "KeptLetters.count": Call({}),
    "KeptLetters.forget": Call({"letter": None}),
    "DeadLetterTopic.list": Call({}),
    "DeadLetterTopic.count": Call({}),
    "DeadLetterTopic.redrive": Call({}),
    "DeadLetterTopic.purge": Call({}),
    "Consumer.get": Call({}),
    "Consumer.receive": Call({}),
    "Consumer.batches": Call({}),
    "Consumer.get_batch": Call({"max_records": 1, "max_wait": 0.0}),
    "ReceivedMessage.ack": Call({}),
    "ReceivedMessage.nack": Call({}),
    "ReceivedMessage.reject": Call({}),
    "ReceivedMessage.extend": Call({"seconds": 1.0}),
    "ReceivedMessage.publish": Call({"topic": "refunds", **PUBLISH}),
    "ReceivedMessage.publish a message": Call({"topic": "refunds"}, is_message=True),
    "ReceivedBatch.ack": Call({}),
    "ReceivedBatch.nack": Call({}),
    "ReceivedBatch.reject": Call({}),
    "ReceivedBatch.publish": Call({"topic": "refunds", **PUBLISH}),
    "ActorRef.tell": Call({"message": 1}),
    "ActorRef.tell_nowait": Call({"message": 1}),
    "ActorRef.ask": Call({"message": 1, "timeout": 1.0}),
    "ActorRef.ask_nowait": Call({"message": 1}),
    "ActorRef.send": Call({"message": 1, "reply": None}),
    "ActorRef.crash": Call({"error": ValueError("a drill")}),
    "ActorRef.watch": Call({"watcher": print}),
    "Reply.wait": Call({}),
    "Reply.answer": Call({}),
    "Reply.fail": Call({"error": ValueError("refused")}),
}
NOT_ARGUMENTS = {"self", "task_status"}
NOT_PUBLIC = {"keep_in"}
"""Of the kernel, for the modules beside it."""


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        if name.startswith("_") or name in NOT_PUBLIC or not inspect.isfunction(found):
            continue
        if "other modules of the package" in " ".join((found.__doc__ or "").split()):
            continue
        if set(inspect.signature(found).parameters) - NOT_ARGUMENTS:
            yield name, found


def _arguments(kind: type, method: str, call: Call) -> list[str]:
    if call.is_message:
        return [field.name for field in attrs.fields(callboard.Message)]
    found = inspect.signature(getattr(kind, method)).parameters.values()
    names = [
        each.name for each in found if each.name not in NOT_ARGUMENTS and each.kind is not each.VAR_KEYWORD
    ]
    return [*names, *(get_type_hints(call.settings) if call.settings else ())]


def test_every_public_method_with_arguments_is_called() -> None:
    """`CALLS` has them all."""
    missing = [
        f"{kind.__name__}.{name}"
        for kind in HANDLES
        for name, _ in _methods(kind)
        if not any(call.partition(" ")[0] == f"{kind.__name__}.{name}" for call in CALLS)
    ]
    assert missing == []


def _kind_of(call: str) -> type:
    return next(kind for kind in HANDLES if kind.__name__ == call.partition(".")[0])


async def _outcome(function: Callable[..., Any], given: Mapping[str, Any]) -> BaseException | None:
    """What the call raises; of what it returns the first step is taken, too."""
    try:
        with trio.move_on_after(30):
            found = function(**given)
            if inspect.isawaitable(found):
                found = await found
            if hasattr(type(found), "__aenter__"):
                async with found as entered:
                    found = entered
            if hasattr(type(found), "__anext__"):
                with suppress(StopAsyncIteration):
                    await found.__anext__()
    except Exception as error:  # noqa: BLE001 - what it is, is the question
        return error
    return None


def _problem(error: BaseException | None) -> str | None:
    if error is None:
        return None
    if isinstance(error, callboard.InternalError | callboard.ActorCrashed | callboard.RestartLimitReached):
        return repr(error)
    if not isinstance(error, callboard.CallboardError | TypeError) or not str(error):
        return repr(error)[:200]
    is_of_an_actor = isinstance(error, callboard.ActorStopped)  # the user's own, and its failure is named
    if len(str(error)) > 3000 or ("code of an argument" in str(error) and not is_of_an_actor):
        return str(error)[:300]
    return None


def _crashed(runtime: Any) -> list[str]:
    return [
        f"{node.path} crashed: {node.last_failure}"
        for node in runtime.tree().walk()
        if not node.path.startswith("user") and (node.restarts or node.last_failure)
    ]


@pytest.mark.parametrize("call", CALLS)
async def test_whatever_is_given_is_taken_or_refused_in_words(
    autojump_clock: Any, world: Any, call: str
) -> None:
    """And no actor of the broker crashes."""
    kind, recipe = _kind_of(call), CALLS[call]
    method = call.partition(".")[2].partition(" ")[0]
    problems = []
    for argument in _arguments(kind, method, recipe):
        async with world.open() as runtime:
            orders, refunds = await runtime.create_topic("orders"), await runtime.create_topic("refunds")
            async with orders.subscribe("billing", max_deliveries=1):
                pass
            stage = Stage(runtime, orders, refunds)
            handle = await HANDLES[kind](stage)
            for label, make in HOSTILE.items():
                value = make()
                if method == "crash" and argument == "error" and isinstance(value, BaseException):
                    continue
                given = {**recipe.given, argument: value}
                if recipe.is_message:
                    message = callboard.Message(**{"value": b"", argument: value})
                    given = {**recipe.given, "value": message}
                    if method == "publish_batch":
                        given = {**recipe.given, "values": [message]}
                problem = _problem(await _outcome(getattr(handle, method), given))
                crashed = _crashed(runtime)
                if problem or crashed:
                    problems.append(f"{argument}: {label}: {problem or ''} {' '.join(crashed)}")
                if crashed:
                    break
    assert not problems, "\n".join(problems)


MADE: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "Retry": (callboard.Retry, {}),
    "Reject": (callboard.Reject, {}),
    "Backoff": (callboard.Backoff, {}),
    "MailboxSpec": (callboard.MailboxSpec, {}),
    "ChildSpec": (callboard.ChildSpec, {"name": "echo", "start": Echo}),
    "SupervisorSpec": (callboard.SupervisorSpec, {"name": "echoes"}),
    "open_runtime": (callboard.open_runtime, {"directory": "somewhere"}),
}


@pytest.mark.parametrize("made", MADE)
def test_whatever_something_is_made_of_is_taken_or_refused_in_words(made: str) -> None:
    """Before anything is done with it."""
    make, good = MADE[made]
    problems = []
    for argument in inspect.signature(make).parameters:
        for label, value in HOSTILE.items():
            problem = None
            try:
                make(**{**good, argument: value()})
            except Exception as error:  # noqa: BLE001 - what it is, is the question
                problem = _problem(error)
            if problem is not None:
                problems.append(f"{argument}: {label}: {problem}")
    assert not problems, "\n".join(problems)
