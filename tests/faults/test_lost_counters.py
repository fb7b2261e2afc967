"""A journal that counts is lost, whole or from its beginning on, while others remember the highest of what it counted.

Dead letters, delayed messages and what acks publish are taken elsewhere under numbers, and a target stores nothing
twice under one number. Nothing new may be taken for something that was stored before.
"""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
import trio

import callboard
from callboard.actors.partition.delivery_reset import reset_deliveries
from callboard.actors.partition.group_records import RECORDS_VERSION
from callboard.log.journal.journal import Journal
from callboard.log.journal.journal_walk import Owner, ignore
from callboard.simulations.entropy import SeededEntropy

MESSAGES = 10
NEW = 4
IDLE_S = 1.0
WAYS = ("removed", "garbage", "blank", "reset")


async def lose(world: Any, folder: str, way: str, group_id: int) -> None:
    """What the delivery journal of a partition says is lost."""
    directory = f"{folder}/delivery"
    paths = [path for path in world.disk.files() if path.startswith(f"{directory}/")]
    assert paths
    if way == "reset":
        await set_back(world, directory, group_id)
        return
    for path in paths:
        if way == "removed":
            world.disk.tree.unlink(path)
        elif path.endswith(".log"):
            size = len(world.disk.files()[path])
            world.put(path, bytes(size) if way == "blank" else SeededEntropy(3).bytes(size))


async def set_back(world: Any, directory: str, group_id: int) -> None:
    """Nearly all that the journal says of the group makes no sense, and is forgotten by the way out of that."""
    records: list[bytes] = []
    files = await world.disk.incarnate("drill")
    seams = {"clock": world.clock, "entropy": SeededEntropy(5)}
    journal = await Journal.open(files, directory, Owner(ignore, records.append, RECORDS_VERSION), **seams)
    await journal.close()
    for path in world.disk.files():
        if path.startswith(f"{directory}/"):
            world.disk.tree.unlink(path)
    journal = await Journal.open(files, directory, Owner(ignore, ignore, RECORDS_VERSION), **seams)
    opened, *others = records
    await journal.append([opened, cbor2.dumps([0, group_id, [["A", 7777, [1, 2]]]]), *others])
    await journal.close()
    resets, _ = await reset_deliveries(
        files, directory, groups=[group_id], joined={group_id: True}, dry_run=False, **seams
    )
    assert [reset.group_id for reset in resets] == [group_id]


async def values(runtime: Any, topic: str) -> set[bytes]:
    """All that is in a topic."""
    return {record.value async for record in runtime.topic(topic).read()}


async def work(runtime: Any, new: set[bytes], how: str) -> None:
    """Publish these; a consumer rejects them, or publishes them to the topic "taken" with its acks; ack the rest."""
    orders = runtime.topic("orders")
    await orders.publish_batch(sorted(new))
    options = {"dead_letter_topic": "taken"} if how == "rejected" else {}
    async with orders.subscribe("billing", **options) as consumer:
        while (message := await consumer.get(timeout=IDLE_S)) is not None:
            if message.value not in new:
                await message.ack()
            elif how == "rejected":
                await message.reject()
            else:
                await message.publish("taken", message.value)
                await message.ack()
    await trio.sleep(IDLE_S)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["rejected", "published"])
async def test_what_a_new_journal_counts_is_taken(
    autojump_clock: Any, world: Any, how: str, way: str
) -> None:
    """Dead letters, and what acks publish, come to their topic, once a journal that counts anew takes the place of
    another, and of that one too.
    """
    old = {b"old %d" % number for number in range(MESSAGES)}
    async with world.open() as runtime:
        await runtime.create_topic("taken")
        orders = await runtime.create_topic("orders")
        await work(runtime, old, how)
        assert await values(runtime, "taken") == old
        folder = f"topics/{orders.topic_id}/0"
    expected = set(old)
    for life in range(2):
        await lose(world, folder, way, 1)
        new = {b"new %d in %d" % (number, life) for number in range(NEW)}
        expected |= new
        async with world.open() as runtime:
            await work(runtime, new, how)
            assert await values(runtime, "taken") == expected


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_delayed_after_a_journal_was_lost_comes(
    autojump_clock: Any, world: Any, way: str
) -> None:
    """The topic's partition knows the numbers under which the messages before came."""

    async def delay(runtime: Any, new: set[bytes]) -> None:
        await runtime.topic("orders").publish_batch(
            [callboard.Message(each, delay=1) for each in sorted(new)]
        )
        await trio.sleep(5)

    old = {b"old %d" % number for number in range(MESSAGES)}
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await delay(runtime, old)
        assert await values(runtime, "orders") == old
    expected = set(old)
    for life in range(2):
        await lose(world, f"topics/{orders.topic_id}/delayed-0", way, 0)
        new = {b"new %d in %d" % (number, life) for number in range(NEW)}
        expected |= new
        async with world.open() as runtime:
            await delay(runtime, new)
            assert await values(runtime, "orders") == expected


async def test_what_acks_publish_comes_after_the_journal_was_lost_under_a_running_forwarder(
    autojump_clock: Any, world: Any
) -> None:
    """It remembers the last number that it took, and that number is of another count."""
    async with world.open() as runtime:
        await runtime.create_topic("taken")
        orders = await runtime.create_topic("orders")
        await work(runtime, {b"old %d" % number for number in range(MESSAGES)}, "published")
        await lose(world, f"topics/{orders.topic_id}/0", "removed", 1)
        runtime.crash("topics/orders/0", RuntimeError("drill"))
        await trio.sleep(IDLE_S)
        await work(runtime, {b"new"}, "published")
        assert b"new" in await values(runtime, "taken")


async def test_a_letter_that_was_listed_before_the_journal_was_lost_forgets_nothing(
    autojump_clock: Any, world: Any
) -> None:
    """Its number is one of another count, and those that have it now were not looked at."""
    async with world.open() as runtime:
        await runtime.create_topic("taken")
        orders = await runtime.create_topic("orders")
        async with orders.subscribe("billing") as consumer:
            await orders.publish_batch([b"old"] * MESSAGES)
            for _ in range(MESSAGES):
                await (await consumer.get()).reject()
            last = (await orders.dead_letters("billing").list())[-1]
        await lose(world, f"topics/{orders.topic_id}/0", "removed", 1)
        runtime.crash("topics/orders/0", RuntimeError("drill"))
        async with orders.subscribe("billing") as consumer:
            await (await consumer.get()).reject()
            (letter,) = await orders.dead_letters("billing").list()
            assert await orders.dead_letters("billing").forget(last) == 0
            assert len(await orders.dead_letters("billing").list()) == 1
            assert await orders.dead_letters("billing").forget(letter) == 1


async def test_a_receipt_from_before_a_journal_was_lost_settles_nothing_new(
    autojump_clock: Any, world: Any
) -> None:
    """The ids of leases go on: the same message is leased again, and only who has it now may ack it."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"one")
        async with orders.subscribe("billing") as consumer:
            stale = await consumer.get()
            await lose(world, f"topics/{orders.topic_id}/0", "removed", 1)
            runtime.crash("topics/orders/0", RuntimeError("drill"))
            async with orders.subscribe("billing") as other:
                message = await other.get(timeout=IDLE_S)
                assert message is not None
                with pytest.raises(callboard.LeaseLost):
                    await stale.ack()
                await message.ack()


def copy_of(world: Any, folder: str) -> dict[str, bytes]:
    """All files below a folder."""
    return {path: data for path, data in world.disk.files().items() if path.startswith(f"{folder}/")}


def put_back(world: Any, folder: str, copy: dict[str, bytes]) -> None:
    """The folder holds what it held when the copy was made."""
    for path in copy_of(world, folder):
        world.disk.tree.unlink(path)
    for path, data in copy.items():
        world.put(path, data)


@pytest.mark.parametrize("below", ["/0/delivery", "/0", ""])
@pytest.mark.parametrize("is_first", [True, False], ids=["of nothing", "of something"])
@pytest.mark.parametrize("how", ["rejected", "published"])
async def test_what_an_older_copy_counts_is_taken(
    autojump_clock: Any, world: Any, how: str, is_first: bool, below: str
) -> None:
    """A folder is restored from a copy of a time when less had been counted: what is counted from then on comes."""
    before, after, new = ({b"%s %d" % (word, number) for number in range(NEW)} for word in (b"a", b"b", b"c"))
    async with world.open() as runtime:
        await runtime.create_topic("taken")
        orders = await runtime.create_topic("orders")
        await work(runtime, set() if is_first else before, how)
    folder = f"topics/{orders.topic_id}{below}"
    copy = copy_of(world, folder)
    async with world.open() as runtime:
        await work(runtime, after, how)
    put_back(world, folder, copy)
    async with world.open() as runtime:
        await work(runtime, new, how)
        assert new <= await values(runtime, "taken")


@pytest.mark.parametrize("below", ["/delivery", ""])
async def test_what_is_delayed_after_an_older_copy_was_put_back_comes(
    autojump_clock: Any, world: Any, below: str
) -> None:
    """The same of a waiting partition: its numbers go on above those that the topic has taken."""
    stored, copies = set[bytes](), list[dict[str, bytes]]()
    for life in range(3):
        async with world.open() as runtime:
            orders = runtime.topic("orders") if life else await runtime.create_topic("orders")
            new = {b"%d in %d" % (number, life) for number in range(NEW)}
            await orders.publish_batch([callboard.Message(each, delay=1) for each in sorted(new)])
            await trio.sleep(5)
            stored |= new
            assert await values(runtime, "orders") == stored
        folder = f"topics/{orders.topic_id}/delayed-0{below}"
        copies.append(copy_of(world, folder))
        if life:
            put_back(world, folder, copies[0])


@pytest.mark.parametrize("how", ["rejected", "published"])
async def test_what_is_counted_after_a_copy_from_before_the_first_event_is_taken(
    autojump_clock: Any, world: Any, how: str
) -> None:
    """A journal in which a group that had joined had done nothing is put back: what is counted anew is not taken for
    what was counted since.
    """
    async with world.open() as runtime:
        await runtime.create_topic("taken")
        orders = await runtime.create_topic("orders")
        await work(runtime, set(), how)
        folder = f"topics/{orders.topic_id}/0/delivery/"
    before = {path: bytes(data) for path, data in world.disk.files().items() if path.startswith(folder)}
    old = {b"old %d" % number for number in range(MESSAGES)}
    async with world.open() as runtime:
        await work(runtime, old, how)
        assert await values(runtime, "taken") == old
    for path in [path for path in world.disk.files() if path.startswith(folder)]:
        world.disk.tree.unlink(path)
    for path, data in before.items():
        world.put(path, data)
    new = {b"new %d" % number for number in range(NEW)}
    async with world.open() as runtime:
        await work(runtime, new, how)
        assert await values(runtime, "taken") >= old | new
