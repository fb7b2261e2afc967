"""The router and those it hears of: notices, crashes of each side, and what it has counted."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest
import trio

from callboard.actors.catalog.commands import RouteGroup
from callboard.actors.forwarding.commands import Forwarded
from callboard.actors.kernel import ActorSystem, Batch, MailboxSpec
from callboard.actors.partition import effects as e
from callboard.actors.partition.commands import DeadLettersWait
from callboard.actors.partition.kept_letters import DeadLetterNotices
from callboard.simulations.clock import VirtualClock
from callboard.simulations.entropy import SeededEntropy


@attrs.define
class Place:
    """What the notices need of a partition."""

    system: ActorSystem
    router: str = "dead-letters"
    topic_id: str = "t1"
    index: int = 3
    path: str = "topics/orders/3"
    events: list[Any] = attrs.Factory(list)

    def emit(self, event: Any) -> None:
        """An event."""
        self.events.append(event)


def taken(cell: Any) -> list[Any]:
    """What the router takes now."""
    return [message for message, _ in Batch(cell.mailbox, 100)]


def test_a_partition_says_once_until_it_is_asked_that_dead_letters_wait() -> None:
    """However many come about; of each group for itself; and nothing before there is a router."""
    system = ActorSystem(clock=VirtualClock(monotonic=lambda: 0.0), entropy=SeededEntropy(1))
    place = Place(system)
    notices: Any = DeadLetterNotices(place, place)  # type: ignore[arg-type]
    has_dead = notices.has_dead
    has_dead(e.HasDead(1, 1, "r"))
    cell = system.register("dead-letters", MailboxSpec(1))._cell
    for group_id in [1, 2] * 50:
        has_dead(e.HasDead(group_id, 1, "r"))
    assert taken(cell) == [DeadLettersWait("t1", 3, 1), DeadLettersWait("t1", 3, 2)]
    has_dead(e.HasDead(1, 1, "r"))
    assert taken(cell) == []
    notices.asked(1)
    has_dead(e.HasDead(1, 0, "r"))
    has_dead(e.HasDead(2, 1, "r"))
    assert taken(cell) == [DeadLettersWait("t1", 3, 1)]
    assert len(place.events) == 103


async def reject(topic: Any, group: str, count: int, **settings: Any) -> None:
    """Publish and reject."""
    await topic.publish_batch([b"%d" % number for number in range(count)])
    async with topic.subscribe(group, **settings) as consumer:
        for _ in range(count):
            await (await anext(aiter(consumer))).reject(reason="no")


async def values(topic: Any) -> list[bytes]:
    """What is in a topic."""
    return sorted([record.value async for record in topic.read(start=0, follow=False)])


@pytest.mark.parametrize("crashing", ["dead-letters", "topics/orders/0", "topics/dead/0", "catalog"])
async def test_dead_letters_arrive_whatever_crashes(
    autojump_clock: Any, in_memory: Any, crashing: str
) -> None:
    """Router, origin, target and catalog crash while dead letters come about: each is forwarded once, and counted."""
    async with in_memory.open() as runtime:
        orders, dead = await runtime.create_topic("orders"), await runtime.create_topic("dead")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: reject(orders, "group", 60, dead_letter_topic="dead"))
            for _ in range(3):
                await trio.sleep(0.01)
                runtime.crash(crashing, RuntimeError("a drill"))
        await trio.sleep(5.0)
        assert await values(dead) == sorted(b"%d" % number for number in range(60))
        (found,) = (await runtime.stats()).forwarding
        assert (found.topic, found.kept) == ("dead", 0)
        if crashing != "topics/orders/0":
            assert found.forwarded == 60


async def test_what_waited_before_its_group_named_a_topic_is_forwarded(
    autojump_clock: Any, in_memory: Any
) -> None:
    """The partition has said nothing, since there was no router; the catalog tells the router to ask."""
    async with in_memory.open() as runtime:
        orders, dead = await runtime.create_topic("orders"), await runtime.create_topic("dead")
        await reject(orders, "group", 5)
        runtime.crash("topics/orders/0", RuntimeError("a drill"))
        await trio.sleep(1.0)
        await runtime.group("group").alter(dead_letter_topic="dead")
        await trio.sleep(1.0)
        assert len(await values(dead)) == 5


async def test_a_topic_that_is_made_anew_counts_anew(autojump_clock: Any, in_memory: Any) -> None:
    """What was forwarded to a deleted topic of the same name does not count."""
    async with in_memory.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("dead")
        await reject(orders, "group", 5, dead_letter_topic="dead")
        await trio.sleep(1.0)
        await runtime.delete_topic("dead")
        await runtime.create_topic("dead")
        await reject(orders, "group", 2)
        await trio.sleep(60.0)
        (found,) = (await runtime.stats()).forwarding
        assert found.forwarded == 2


@pytest.mark.parametrize(
    "message",
    [DeadLettersWait("t", 1, 2), RouteGroup(1, ("t", "u")), Forwarded({"dead": 3}, {"dead": "full"})],
    ids=lambda message: type(message).__name__,
)
def test_messages_are_data(message: Any) -> None:
    """What the router hears and answers survives CBOR."""
    kinds = {list: tuple, dict: dict}
    fields = cbor2.loads(cbor2.dumps(attrs.astuple(message)))
    assert type(message)(*[kinds.get(type(each), lambda it: it)(each) for each in fields]) == message
