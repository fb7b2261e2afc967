"""Wire mode: what actors send and answer is delivered as a copy, and what cannot be one is reported by name."""

from __future__ import annotations

import enum
import weakref
from array import array
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.kernel import Actor
from callboard.actors.kernel.peer import Peer, notify
from callboard.actors.kernel.wire import DescribedError, Wire, known_classes
from callboard.log.errors import InternalError, LeaseLost, PlanFailed, StorageError
from callboard.log.format.columns import Columns
from callboard.log.limits import WIRE_DEPTH_MAX
from callboard.supervision import ChildSpec, SupervisorSpec, open_system


class Colour(enum.Enum):
    RED = 1


class Item(NamedTuple):
    name: str
    colour: Colour = Colour.RED


@attrs.frozen
class Order:
    items: tuple[Item, ...]
    notes: dict[str, Any] = attrs.field(factory=dict)
    callback: Any = None


@attrs.define(eq=False)
class Rounded:
    amount: Any = attrs.field(converter=lambda found: found + 1)


class Port:
    """A live object."""


@attrs.frozen
class Opened:
    port: Port


WIRE_OF = (Order, Rounded, Columns)


def copied(value: Any, *roots: Any) -> Any:
    return Wire((*WIRE_OF, *roots)).copy(value)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("abc") | st.binary()
VALUES = st.recursive(
    PLAIN | st.datetimes(timezones=st.just(UTC)) | st.builds(Item, st.text("abc")),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text("abc") | st.integers(), inner)
        | st.builds(Order, st.just(()), st.dictionaries(st.text("abc"), inner))
    ),
)


@given(VALUES)
def test_a_copy_equals_what_was_sent(value):
    """A copy equals what was sent, and its parts are of the same classes."""
    found = copied(value)
    assert found == value
    assert repr(found).replace(", fold=1", "") == repr(value).replace(", fold=1", "")


@pytest.mark.parametrize(
    "value",
    [
        frozenset({3, 1, 2}),
        {"b", "a"},
        array("I", [0, 4, 9]),
        bytearray(b"abc"),
        MappingProxyType({"a": 1}),
        datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=2))),
        1 << 90,
        "a\ud800",
        {"é": "\udcff"},
        Colour.RED,
        (1, [2, (3,)]),
    ],
    ids=ascii,
)
def test_other_values_that_messages_contain(value):
    """Sets, arrays, buffers, instants, large numbers and members of enumerations are copied as what they are."""
    found = copied(value)
    assert found == value
    assert type(found) is type(value)


def test_a_view_of_bytes_is_copied():
    """A `memoryview` becomes one of other bytes, with the same items."""
    numbers = array("q", [1, -2, 3])
    found = copied(memoryview(numbers))
    numbers[0] = 7
    assert found.tolist() == [1, -2, 3]


def test_records_are_copied():
    """A batch of records is another batch with the same records."""
    columns = Columns.build([b"a", None], [b"k", None], [{"h": b"v"}, None], priorities=[1, None])
    found = copied(columns)
    columns.base_offset = 9
    assert (found.base_offset, found.value_list(), found.key_list()) == (0, [b"a", None], [b"k", None])
    assert found.headers(0) == {"h": b"v"}


class Sends(NamedTuple):
    """A message that must not be sent, and where it is said to be wrong."""

    message: Any
    place: str


def own_function() -> None:
    """Not data."""


PORT = Port()
REFUSED = {
    "a callback": Sends(Order((), callback=own_function), "Order.callback is of class builtins.function"),
    "a live object": Sends(Order((), {"port": [PORT]}), "Order.notes['port'][0] is of class"),
    "a weak reference": Sends(Order((), callback=weakref.ref(PORT)), "Order.callback is of class weakref"),
    "an event": Sends(Order((), callback=trio.Event()), "Order.callback is of class trio"),
    "a generator": Sends(Order(item for item in ()), "Order.items is of class builtins.generator"),
    "a view": Sends(Order({}.keys()), "Order.items is of class builtins.dict_keys"),
    "an unknown record": Sends(Opened(PORT), "Opened is of class"),
    "another value": Sends(Rounded(1), "Rounded.amount is another value when it was decoded"),
    "a named tuple's item": Sends(Item(own_function), "Item.name is of class builtins.function"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_does_not_survive_is_named(case):
    """A message with a live object, or one that is another value after the copy, is refused by class and field."""
    with pytest.raises(InternalError) as found:
        copied(case.message)
    assert f"does not survive being encoded, decoded and delivered as a copy: {case.place}" in str(
        found.value
    )
    assert found.value.invariant == "WI1"


def test_what_is_nested_too_deep_is_named():
    """A message that contains itself is refused."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InternalError, match=f"nested more than {WIRE_DEPTH_MAX} levels"):
        copied(Order((), {"loop": loop}))


def test_known_classes_follow_from_the_types():
    """Records and enumerations are known when the types of commands lead to them."""
    assert known_classes([Order | None]) == {Order, Item, Colour}
    assert known_classes([Item]) == {Item, Colour}
    assert known_classes([Opened]) == {Opened}
    assert known_classes([tuple[dict[str, Item], ...]]) == {Item, Colour}


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    with pytest.raises(type(error)) as found:
        raise error from cause
    return found.value


def test_an_error_keeps_its_fields_and_causes():
    """An error of Callboard is copied with its message, fields, notes and causes, as far as these are known errors."""
    error = raised(LeaseLost("gone", lost=((1, 2),), index=3), raised(OSError(28, "full", "x.log")))
    error.add_note("see above")
    found = copied(error)
    assert (type(found), found.args, found.lost, found.fields) == (
        LeaseLost,
        ("gone",),
        ((1, 2),),
        error.fields,
    )
    assert found.__notes__ == ["see above"]
    assert (type(found.__cause__), found.__cause__.errno, found.__cause__.filename) == (OSError, 28, "x.log")
    assert found is not error
    assert found.__traceback__ is None


def test_an_error_of_a_program_is_described():
    """An error of a class that is not Callboard's or Python's arrives in words."""

    class Mine(Exception):
        pass

    found = copied(raised(StorageError("no"), raised(Mine("why"))))
    assert type(found) is StorageError
    assert (type(found.__cause__), str(found.__cause__)) == (DescribedError, "Mine: why")
    assert str(copied(found).__cause__) == "Mine: why"


def test_what_an_error_keeps_back_is_not_sent():
    """A failed plan does not send the verb, which has a file's handle in it; its OSError is sent."""
    found = copied(PlanFailed("no", index=2, verb=own_function, error=OSError(5, "io")))
    assert (found.index, found.error.errno, "verb" in found.fields) == (2, 5, False)


def test_an_error_with_a_live_object_is_named():
    """An error of Callboard that contains a live object is refused by its class and field."""
    with pytest.raises(InternalError, match=r"StorageError.*\['port'\] is of class"):
        copied(StorageError("no", port=PORT))


class Keeper(Actor[Any]):
    """Keeps what it gets, and answers with its own list."""

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept

    async def receive(self, message: Any) -> Any:
        self.kept.append(message)
        if message == "port":
            return PORT
        if message == "fail":
            self.context.defer_reply().fail(LeaseLost("gone", lost=()))
        return self.kept


def keeper(seams: dict[str, Any], kept: list[Any], covers: Callable[[str], bool] = lambda _path: True) -> Any:
    spec = SupervisorSpec(name="root", children=[ChildSpec(name="keeper", start=lambda: Keeper(kept))])
    return open_system(spec, **seams, wire=Wire(WIRE_OF, covers=covers))


async def test_a_message_is_delivered_as_a_copy(seams):
    """What the sender changes after sending does not reach the actor, by whichever way it was sent."""
    kept: list[Any] = []
    async with keeper(seams, kept) as system:
        ref = system.actor("keeper")
        sent = [Order((), {"list": []}) for _ in range(3)]
        await ref.tell(sent[0])
        ref.tell_nowait(sent[1])
        await ref.ask(sent[2])
        for order in sent:
            order.notes["list"].append(1)
    assert kept == [Order((), {"list": []})] * 3


async def test_an_answer_is_delivered_as_a_copy(seams):
    """What the asker does with an answer does not reach the actor."""
    kept: list[Any] = []
    async with keeper(seams, kept) as system:
        answer = await system.actor("keeper").ask("a")
        answer.append("b")
        reply = system.actor("keeper").ask_nowait("c")
        assert await reply.wait() is not kept
    assert kept == ["a", "c"]


async def test_an_error_is_delivered_as_a_copy(seams):
    """An actor's refusal is raised in the asker as an error of the same class."""
    async with keeper(seams, []) as system:
        with pytest.raises(LeaseLost, match="gone"):
            await system.actor("keeper").ask("fail")


async def test_a_message_that_does_not_survive_is_not_sent(seams):
    """The sender gets the error, and the actor nothing."""
    kept: list[Any] = []
    async with keeper(seams, kept) as system:
        for send in (system.actor("keeper").ask, system.actor("keeper").tell):
            with pytest.raises(InternalError, match=r"Order\.callback"):
                await send(Order((), callback=own_function))
    assert kept == []


async def test_actors_that_are_not_covered_get_what_was_sent(seams):
    """An actor whose path the wire does not cover gets the very object."""
    kept: list[Any] = []
    async with keeper(seams, kept, lambda path: path != "keeper") as system:
        assert await system.actor("keeper").ask("port") is PORT


class Teller(Actor[Any]):
    """Says what it hears to the peer that said it."""

    async def receive(self, message: Any) -> None:
        notify(self.context.ref, 1, message)


class Marks:
    """A party with one message."""

    def __init__(self) -> None:
        self.message = Order((), {"list": []})
        self.heard: list[Any] = []

    def compose(self, mark: str) -> Any:
        return self.message

    def hear(self, message: Any) -> None:
        self.heard.append(message)


async def test_notices_are_delivered_as_copies(seams):
    """What an actor and its peer say to each other is copied both ways."""
    spec = SupervisorSpec(name="root", children=[ChildSpec(name="teller", start=Teller)])
    party = Marks()
    async with open_system(spec, **seams, wire=Wire(WIRE_OF)) as system:
        peer = Peer(system.actor("teller"), party)
        peer.open()
        peer.mark("news")
        await trio.testing.wait_all_tasks_blocked()
        (heard,) = [message for message in party.heard if isinstance(message, Order)]
    assert heard == party.message
    assert heard.notes is not party.message.notes
