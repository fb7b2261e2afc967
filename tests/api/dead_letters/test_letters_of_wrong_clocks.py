"""A wall clock that was a year ahead while messages died, waited or were published by acks: those stamps grow old."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

YEAR_S = 365 * 86_400.0
HOUR_S = 3600.0

Story = Callable[[Any], Awaitable[None]]
"""What is done with a runtime."""


def instant(runtime: Any) -> Any:
    """Now, by the runtime's wall clock."""
    return datetime.fromtimestamp(runtime._session.clock.wall_us() / 1e6, UTC)


async def reject_one(topic: Any, group: str = "billing", **settings: Any) -> None:
    """A message of the topic dies."""
    async with topic.subscribe(group, **settings) as consumer:
        await (await consumer.get()).reject(reason="broken")


async def taken(topic: Any, group: str, timeout: float = 1.0) -> list[bytes]:
    """What a group is delivered that begins now, until nothing comes for so long."""
    found = []
    async with topic.subscribe(group) as consumer:
        while (message := await consumer.get(timeout=timeout)) is not None:
            found.append(message.value)
            await message.ack()
    return found


async def letters(runtime: Any, **dead_settings: Any) -> tuple[Any, Any]:
    """A topic with a message, and another for dead letters; the message dies while the clock is a year ahead."""
    dead = await runtime.create_topic("dead", **dead_settings)
    orders = await runtime.create_topic("orders")
    return orders, dead


async def die_in_a_wrong_year(world: Any, orders: Any) -> None:
    """Published, rejected and forwarded while the clock is a year ahead; then it is set right."""
    world.clock.shift(YEAR_S)
    await orders.publish(b"letter")
    await reject_one(orders, dead_letter_topic="dead")
    await trio.sleep(1)
    world.clock.shift(-YEAR_S)


async def live_and_check(world: Any, ends: str, live: Story, check: Story) -> None:
    """Check at the end of the life in which something was done, or in the next one: after an orderly end, or a kill."""

    async def first_life(runtime: Any) -> None:
        await live(runtime)
        if ends == "no":
            await check(runtime)

    if ends == "kill":
        await world.live(first_life)
    else:
        async with world.open() as runtime:
            await first_life(runtime)
    if ends != "no":
        async with world.open() as runtime:
            await check(runtime)


@pytest.mark.parametrize("reopened", [False, True])
async def test_letters_of_a_wrong_year_are_dropped_by_age(
    autojump_clock: Any, world: Any, reopened: bool
) -> None:
    """The topic of dead letters drops them when they are old, as it drops those that came later."""
    settings = {"retention_age": 2 * HOUR_S, "segment_age": HOUR_S}
    async with world.open() as runtime:
        orders, dead = await letters(runtime, **settings)
        await die_in_a_wrong_year(world, orders)
        assert (await dead.describe())[0].visible_end == 1
        if not reopened:
            await trio.sleep(4 * HOUR_S)
            assert (await dead.describe())[0].start_offset == 1
    if reopened:
        async with world.open() as runtime:
            await trio.sleep(5 * HOUR_S)
            assert (await runtime.topic("dead").describe())[0].start_offset == 1


@pytest.mark.parametrize("reopened", [False, True])
async def test_letters_of_a_wrong_year_expire(autojump_clock: Any, world: Any, reopened: bool) -> None:
    """With a `default_ttl` of the topic of dead letters they are delivered until it is over, and then no more."""
    async with world.open() as runtime:
        orders, dead = await letters(runtime, default_ttl=60)
        await die_in_a_wrong_year(world, orders)
        assert await taken(dead, "early") == [b"letter"]
        if not reopened:
            await trio.sleep(120)
            assert await taken(dead, "late") == []
    if reopened:
        async with world.open() as runtime:
            dead = runtime.topic("dead")
            assert await taken(dead, "again") == [b"letter"]
            await trio.sleep(120)
            assert await taken(dead, "late") == []


@pytest.mark.parametrize("ends", ["no", "in order", "kill"])
async def test_a_kept_letter_of_a_wrong_year_did_not_fail_in_the_time_to_come(
    autojump_clock: Any, world: Any, ends: str
) -> None:
    """Its failures are told as of the right clock, in this process and in the next, and it is forwarded at once."""

    async def check(runtime: Any) -> None:
        now = runtime._session.clock.wall_us() / 1e6
        orders = runtime.topic("orders")
        (letter,) = await orders.dead_letters("billing").list()
        assert letter.failed_at.timestamp() <= now + 1
        assert letter.first_failed_at is not None
        assert letter.first_failed_at <= letter.failed_at
        dead = await runtime.create_topic("dead")
        await runtime.group("billing").alter(dead_letter_topic="dead")
        await trio.sleep(2)
        assert await taken(dead, "reader") == [b"letter"]

    async def die(runtime: Any) -> None:
        orders = await runtime.create_topic("orders")
        world.clock.shift(YEAR_S)
        await orders.publish(b"letter")
        await reject_one(orders)
        world.clock.shift(-YEAR_S)

    await live_and_check(world, ends, die, check)


@pytest.mark.parametrize("ends", ["no", "in order", "kill"])
async def test_a_nack_of_a_wrong_year_waits_no_longer_than_its_delay(
    autojump_clock: Any, world: Any, ends: str
) -> None:
    """Its message comes again when the delay is over, by the monotonic clock, or counted from the opening."""

    async def comes(runtime: Any) -> None:
        assert await taken(runtime.topic("orders"), "billing", 90) == [b"again"]

    async def nack(runtime: Any) -> None:
        orders = await runtime.create_topic("orders")
        world.clock.shift(YEAR_S)
        await orders.publish(b"again")
        async with orders.subscribe("billing") as consumer:
            await (await consumer.get()).nack(delay=60)
            await consumer.flush()
        await orders.publish(b"more")
        await reject_one(orders)
        world.clock.shift(-YEAR_S)

    await live_and_check(world, ends, nack, comes)


@pytest.mark.parametrize("ends", ["no", "in order", "kill"])
async def test_a_delay_of_a_wrong_year_is_no_longer_than_it_was_asked_to_be(
    autojump_clock: Any, world: Any, ends: str
) -> None:
    """A delayed message comes when its delay is over, and its ttl begins then; one that was named an instant waits."""

    async def comes(runtime: Any) -> None:
        orders = runtime.topic("orders")
        assert await taken(orders, "billing", 90) == [b"later"]
        await trio.sleep(120)
        assert await taken(orders, "late") == []
        assert await orders.delayed().count() == 1

    async def delay(runtime: Any) -> None:
        orders = await runtime.create_topic("orders")
        world.clock.shift(YEAR_S)
        await orders.publish(b"later", delay=60, ttl=60)
        await orders.publish(b"named", deliver_at=instant(runtime) + timedelta(seconds=60))
        world.clock.shift(-YEAR_S)

    await live_and_check(world, ends, delay, comes)


@pytest.mark.parametrize("ends", ["no", "in order", "kill"])
async def test_what_an_ack_published_in_a_wrong_year_grows_old(
    autojump_clock: Any, world: Any, ends: str
) -> None:
    """It is forwarded at once, dropped by its topic's age, and its own time to live ends."""

    async def check(runtime: Any) -> None:
        bills = runtime.topic("bills")
        await trio.sleep(1)
        assert await taken(bills, "early") == [b"bill"]
        await trio.sleep(120)
        assert await taken(bills, "late") == []
        await trio.sleep(5 * HOUR_S)
        assert (await bills.describe())[0].start_offset == 1
        assert sum(outbox.pending for outbox in (await runtime.stats()).outbox) == 0

    async def publish(runtime: Any) -> None:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills", retention_age=2 * HOUR_S, segment_age=HOUR_S)
        world.clock.shift(YEAR_S)
        await orders.publish(b"order")
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            await message.publish(bills, b"bill", ttl=60)
        if ends == "no":
            await trio.sleep(1)
        world.clock.shift(-YEAR_S)

    await live_and_check(world, ends, publish, check)


async def test_a_redriven_letter_of_a_wrong_year_is_delivered_and_grows_old(
    autojump_clock: Any, world: Any
) -> None:
    """It goes back to its topic by the right clock, and the ids of its topic's window are new again in their time."""
    async with world.open() as runtime:
        await runtime.create_topic("dead")
        orders = await runtime.create_topic("orders", dedup_window=60, default_ttl=600)
        world.clock.shift(YEAR_S)
        await orders.publish(b"letter", dedup_id=b"1")
        await reject_one(orders, dead_letter_topic="dead")
        await trio.sleep(1)
        world.clock.shift(-YEAR_S)
        assert (await orders.publish(b"letter", dedup_id=b"1")).duplicate
        await runtime.dead_letters("dead").redrive()
        assert await taken(orders, "billing") == [b"letter"]
        await trio.sleep(700)
        assert await taken(orders, "late") == []
        assert not (await orders.publish(b"letter", dedup_id=b"1")).duplicate


@pytest.mark.parametrize("ends", ["in order", "kill"])
async def test_what_a_wrong_year_stamped_grows_old_however_often_the_directory_is_opened(
    autojump_clock: Any, world: Any, ends: str
) -> None:
    """An id is new again, and a message dropped, when their time is over, though no life lasts as long as that."""

    async def live(story: Any) -> None:
        if ends == "kill":
            await world.live(story)
        else:
            async with world.open() as runtime:
                await story(runtime)

    async def wrong(runtime: Any) -> None:
        settings = {"dedup_window": HOUR_S, "retention_age": 3 * HOUR_S, "segment_age": HOUR_S}
        topic = await runtime.create_topic("orders", **settings)
        world.clock.shift(YEAR_S)
        await topic.publish(b"wrong", dedup_id=b"1")
        world.clock.shift(-YEAR_S)

    async def half_an_hour(runtime: Any) -> None:
        topic = runtime.topic("orders")
        duplicates.append((await topic.publish(b"wrong", dedup_id=b"1")).duplicate)
        await topic.publish(b"right", dedup_id=b"%d" % len(duplicates))
        await trio.sleep(HOUR_S / 2)
        starts.append((await topic.describe())[0].start_offset)

    duplicates: list[bool] = []
    starts: list[int] = []
    await live(wrong)
    for _ in range(12):
        await live(half_an_hour)
    assert duplicates[:2] == [True, True]
    assert False in duplicates[2:4]
    assert starts[0] == 0
    assert starts[-1] >= 1
