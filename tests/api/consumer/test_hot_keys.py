"""Handlers of `work` that take their time with one key hold up neither its messages nor those of other keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

import callboard
from callboard.consumer.backlog import AHEAD_S
from callboard.log.limits import WITHHELD_MAX

SETTINGS = ({}, {"max_deliveries": 5}, {"ordering": "key"})


class Hanging:
    """A handler that hangs on the first message of key `hot`, until it is let go, and notes when it has had others."""

    def __init__(self) -> None:
        self.hangs = trio.Event()
        self.goes_on = trio.Event()
        self.at: dict[bytes, float] = {}
        self.had: list[int] = []

    async def __call__(self, message: callboard.ReceivedMessage) -> None:
        self.at.setdefault(message.key or b"", trio.current_time())
        self.had.append(message.offset)
        if message.key == b"hot" and not self.hangs.is_set():
            self.hangs.set()
            await self.goes_on.wait()


@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("settings", SETTINGS[:2], ids=repr)
async def test_an_idle_consumer_is_handed_what_waits_for_a_handler(
    autojump_clock: Any, world: Any, settings: Any, priorities: bool
) -> None:
    """While a handler hangs on a key, an idle one is handed its messages after a second, later ones at once."""
    waited: dict[int, float] = {}
    attempts: list[int] = []
    published: dict[int, float] = {}
    handler = Hanging()

    async def receive(topic: Any) -> None:
        async with topic.subscribe("group") as consumer:
            async for message in consumer:
                waited[message.offset] = trio.current_time() - published[message.offset]
                attempts.append(message.attempt)
                await message.ack()

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", priorities=priorities)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.work(handler, "group", concurrency=4, grace=0, **settings))
            await topic.publish(b"", key=b"hot")
            await handler.hangs.wait()
            nursery.start_soon(receive, topic)
            for offset in range(1, 251):
                published[offset] = trio.current_time()
                await topic.publish(b"", key=b"hot")
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert len(waited) == 250
    assert max(waited.values()) < AHEAD_S + 0.1
    assert max(waited[offset] for offset in range(100, 251)) < 0.1
    assert set(attempts) == {1}
    assert handler.had == [0]


@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
async def test_a_key_that_hangs_holds_up_no_other_key(
    autojump_clock: Any, world: Any, settings: Any, priorities: bool
) -> None:
    """Free handlers are called for what lies behind many messages of a key that hangs; these come in order then."""
    handler = Hanging()
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", priorities=priorities)
        messages = [callboard.Message(b"", key=b"hot")] * 300
        await topic.publish_batch([*messages, callboard.Message(b"", key=b"cold")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.work(handler, "group", concurrency=4, grace=0, **settings))
            await handler.hangs.wait()
            begun = trio.current_time()
            await trio.sleep(20 * AHEAD_S)
            assert handler.at[b"cold"] - begun < AHEAD_S + 0.5
            assert handler.had == [0, 300]
            handler.goes_on.set()
            await trio.sleep(AHEAD_S)
            nursery.cancel_scope.cancel()
    assert handler.had == [0, 300, *range(1, 300)]


async def test_more_of_a_key_than_may_be_withheld(autojump_clock: Any, world: Any) -> None:
    """Behind very many messages of a key that hangs nothing is begun, and all is handled once it goes on."""
    handler, count = Hanging(), 3 * WITHHELD_MAX
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        messages = [callboard.Message(b"", key=b"hot")] * count
        await topic.publish_batch([*messages, callboard.Message(b"", key=b"cold")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.work(handler, "group", concurrency=4, grace=0))
            await handler.hangs.wait()
            await trio.sleep(20 * AHEAD_S)
            assert handler.had == [0]
            handler.goes_on.set()
            await trio.sleep(AHEAD_S)
            nursery.cancel_scope.cancel()
    assert [offset for offset in handler.had if offset < count] == [*range(count)]
    assert b"cold" in handler.at


@pytest.mark.parametrize("settles", ["acks", "nacks", "rejects"])
async def test_a_handler_that_goes_on_after_it_has_settled(
    autojump_clock: Any, world: Any, settles: str
) -> None:
    """While a handler runs on that has settled its message, others of its key wait, and are fetched seldom."""
    handled: Counter[int] = Counter()

    async def handle(message: callboard.ReceivedMessage) -> None:
        handled[message.offset] += 1
        if message.offset == 0 and handled[0] == 1:
            await {"acks": message.ack, "nacks": message.nack, "rejects": message.reject}[settles]()
            await trio.sleep(20)

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await topic.publish_batch([callboard.Message(b"", key=b"hot")] * 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.work(handle, "group", concurrency=4, grace=0))
            await trio.sleep(19)
            assert handled == {0: 1}
            (partition,) = await topic.describe()
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    assert partition.commits < 200
    assert set(handled) == {*range(20)}


async def test_slow_handlers_leave_what_they_cannot_begin(autojump_clock: Any, world: Any) -> None:
    """When handlers take seconds, an idle consumer is handed what waits for them after a second, later ones at once."""
    waited: dict[int, float] = {}
    published: dict[int, float] = {}

    async def handle(message: callboard.ReceivedMessage) -> None:
        await trio.sleep(5)

    async def receive(topic: Any) -> None:
        async with topic.subscribe("group") as consumer:
            async for message in consumer:
                waited[message.offset] = trio.current_time() - published[message.offset]
                await message.ack()

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: topic.work(handle, "group", concurrency=4, grace=0))
            await trio.sleep(1)
            nursery.start_soon(receive, topic)
            for offset in range(300):
                published[offset] = trio.current_time()
                await topic.publish(b"", key=b"%d" % offset)
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert max(waited.values()) < AHEAD_S + 0.1
    assert max(waited[offset] for offset in waited if offset > 60) < 0.1
