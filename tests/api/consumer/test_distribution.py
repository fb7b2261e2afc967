"""Which of a shared group's consumers that wait gets the next message."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard


async def served(
    runtime: Any,
    distribution: str,
    messages: int,
    *,
    consumers: int = 3,
    holding: dict[int, int] | None = None,
) -> list[int]:
    """Who gets the messages of a topic with two partitions that come one after the other, while all wait.

    `holding`: so many that a consumer holds unsettled.
    """
    topic = await runtime.create_topic("orders", partitions=2)
    got: list[int] = []

    async def consume(number: int, is_ready: trio.Event) -> None:
        settings = {"distribution": distribution, "visibility_timeout": 1000.0}
        async with topic.subscribe("billing", **settings) as consumer:
            for _ in range((holding or {}).get(number, 0)):
                await topic.publish(b"to be held", partition=0)
                await consumer.get()
            is_ready.set()
            async for message in consumer:
                got.append(number)
                await message.ack()

    async with trio.open_nursery() as nursery:
        for number in range(consumers):
            is_ready = trio.Event()
            nursery.start_soon(consume, number, is_ready)
            await is_ready.wait()
            await trio.sleep(1.0)
            if number < consumers - 1 and (holding or {}).get(number + 1, 0):
                raise AssertionError("those that hold messages come first")
        for step in range(messages):
            await topic.publish(b"tea", partition=step % 2)
            await trio.sleep(1.0)
        nursery.cancel_scope.cancel()
    return got


async def test_round_robin_is_the_default(autojump_clock: Any, world: Any) -> None:
    """Messages that come singly go to the consumers of a group in turn, and each partition has turns of its own."""
    async with world.open() as runtime:
        got = await served(runtime, callboard.GroupSettings().distribution, 12)
    for partition in (0, 1):
        here = got[partition::2]
        assert sorted(here[:3]) == [0, 1, 2]
        assert here == here[:3] * 2


async def test_the_least_busy_consumer_is_served(autojump_clock: Any, world: Any) -> None:
    """Who holds unsettled messages gets none while another waits that holds fewer; those that hold none take turns."""
    async with world.open() as runtime:
        got = await served(runtime, "least-busy", 12, holding={0: 2})
    assert set(got) == {1, 2}
    assert got.count(1) == got.count(2) == 6


async def test_at_random_everybody_has_a_share(autojump_clock: Any, world: Any) -> None:
    """Nobody is left out, and it is no fixed order."""
    async with world.open() as runtime:
        got = await served(runtime, "random", 60)
    assert set(got) == {0, 1, 2}
    assert len({tuple(got[start : start + 3]) for start in range(0, 60, 3)}) > 3


async def test_a_group_can_change_it(autojump_clock: Any, world: Any) -> None:
    """`Group.alter` takes it, and it is stored with the group."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing", distribution="least-busy"):
            pass
        await runtime.group("billing").alter(distribution="random")
    async with world.open() as runtime:
        (group,) = await runtime.groups()
        assert group.settings.distribution == "random"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"distribution": "roundrobin"}, "did you mean 'round-robin'"),
        ({"distribution": "random", "mode": "exclusive"}, "each partition is one consumer's"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    autojump_clock: Any, world: Any, settings: Any, problem: str
) -> None:
    """A misspelt distribution, and one of an exclusive group, are refused with the reason."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        with pytest.raises(callboard.ConfigurationError, match=problem):
            async with topic.subscribe("billing", **settings):
                pass
