"""A group whose partitions keep dead letters: it goes only with them when somebody says so."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.groups.coordinator import KEPT_LOOK_S


async def give_up(topic: Any, group: str = "billing", **settings: Any) -> None:
    """A group that rejects all there is."""
    async with topic.subscribe(group, **settings) as consumer:
        while (message := await consumer.get(timeout=0.2)) is not None:
            await message.reject(reason="no")


async def names(runtime: Any) -> list[str]:
    """The groups there are."""
    return [group.name for group in await runtime.groups()]


async def test_a_group_that_keeps_dead_letters_is_not_deleted(autojump_clock: Any, world: Any) -> None:
    """The error says how many are where, and what may be done; when all are forgotten, it is deleted."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders", partitions=2)
        for number in range(3):
            await orders.publish(b"%d" % number, partition=number % 2)
        await give_up(orders)
        with pytest.raises(callboard.DeadLettersKept) as refused:
            await runtime.group("billing").delete()
        told = str(refused.value)
        assert "keeps 3 dead letters that would go with it: 2 in orders/0, 1 in orders/1. Nothing was" in told
        assert ".group('billing').alter(dead_letter_topic=...)" in told
        assert (refused.value.group, refused.value.dead_letters) == ("billing", 3)
        letters = orders.dead_letters("billing")
        for letter in await letters.list():
            await letters.forget(letter)
        await runtime.group("billing").delete()
        assert await names(runtime) == []
        assert [part.dropped_dead_letters for part in await orders.describe()] == [0, 0]


async def test_what_goes_with_a_group_is_told_and_counted(autojump_clock: Any, world: Any) -> None:
    """By each partition that kept some; nothing of it comes back."""
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders", partitions=3)
        for number in range(3):
            await orders.publish(b"%d" % number, partition=number % 2)
        await give_up(orders)
        await runtime.group("billing").delete(drop_dead_letters=True)
        dropped = [each for each in events if isinstance(each, callboard.events.DeadLettersDropped)]
        assert sorted((each.path, each.group, each.records) for each in dropped) == [
            ("topics/orders/0", "billing", 2),
            ("topics/orders/1", "billing", 1),
        ]
        assert [part.dropped_dead_letters for part in await orders.describe()] == [2, 1, 0]
    events.clear()
    async with world.open(on_event=events.append) as runtime:
        await trio.sleep(1)
        assert await names(runtime) == []
        assert not [each for each in events if isinstance(each, callboard.events.DeadLettersDropped)]


async def test_what_a_failed_partition_drops_is_told_at_the_next_opening(
    autojump_clock: Any, world: Any
) -> None:
    """It keeps nobody from deleting the group."""
    events: list[Any] = []
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"one")
        await give_up(orders)
        for _ in range(30):
            runtime.crash("topics/orders/0", RuntimeError("a drill"))
            await trio.sleep(0.3)
        assert [part.state for part in await orders.describe()] == ["failed"]
        await runtime.group("billing").delete()
    async with world.open(on_event=events.append) as runtime:
        await trio.sleep(1)
        assert [part.groups for part in await runtime.topic("orders").describe()] == [()]
    assert [each.records for each in events if isinstance(each, callboard.events.DeadLettersDropped)] == [1]


async def test_a_group_that_keeps_dead_letters_does_not_expire(autojump_clock: Any, world: Any) -> None:
    """That is told once; it expires when they are forgotten, and the directory may be closed in between."""
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"one")
        await give_up(orders, group_expiry=10.0)
        await trio.sleep(500)
        assert [each for each in events if isinstance(each, callboard.events.GroupKept)] == [
            callboard.events.GroupKept("billing", 10.0, 1)
        ]
    async with world.open(on_event=events.append) as runtime:
        await trio.sleep(100)
        assert await names(runtime) == ["billing"]
        assert not [each for each in events if isinstance(each, callboard.events.GroupExpired)]
        letters = runtime.topic("orders").dead_letters("billing")
        await letters.forget((await letters.list())[0])
        await trio.sleep(KEPT_LOOK_S + 1)
        assert await names(runtime) == []
    assert len([each for each in events if isinstance(each, callboard.events.GroupExpired)]) == 1


async def test_it_is_told_again_after_somebody_has_joined(autojump_clock: Any, world: Any) -> None:
    """A consumer that comes back begins the time anew."""
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"one")
        for _ in range(2):
            await give_up(orders, group_expiry=10.0)
            await trio.sleep(100)
        assert len([each for each in events if isinstance(each, callboard.events.GroupKept)]) == 2
        assert await names(runtime) == ["billing"]


async def test_an_ephemeral_group_tells_what_goes_with_it(autojump_clock: Any, world: Any) -> None:
    """It ends with its last consumer all the same."""
    events: list[Any] = []
    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"one")
        await give_up(orders, durable=False)
        await trio.sleep(1)
        assert await names(runtime) == []
        assert [each.records for each in events if isinstance(each, callboard.events.DeadLettersDropped)] == [
            1
        ]


async def test_a_group_whose_letters_are_forwarded_is_deleted(autojump_clock: Any, world: Any) -> None:
    """What waits for a topic that is gone keeps the group, and the error says where it was to go."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders")
        await orders.publish(b"one")
        await give_up(orders, dead_letter_topic="dead")
        await trio.sleep(1)
        await runtime.delete_topic("dead")
        await orders.publish(b"two")
        await give_up(orders)
        with pytest.raises(
            callboard.DeadLettersKept, match=r"keeps 1 dead letter .*forwarded to 'dead': wait"
        ):
            await runtime.group("billing").delete()
        await runtime.create_topic("dead")
        await trio.sleep(60)
        await runtime.group("billing").delete()
        assert await names(runtime) == []


@pytest.mark.parametrize("given", [1, "yes", None])
async def test_what_is_no_truth_value_is_refused(autojump_clock: Any, world: Any, given: Any) -> None:
    """Nothing is deleted."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        async with orders.subscribe("billing"):
            pass
        with pytest.raises(callboard.InvalidArgument, match="drop_dead_letters is"):
            await runtime.group("billing").delete(drop_dead_letters=given)
        assert await names(runtime) == ["billing"]
