"""Reading without a group: where it starts, where it ends, what it passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

import callboard


async def test_a_reader_ends_at_what_was_visible_when_it_began(autojump_clock: Any, world: Any) -> None:
    """What is published while it reads is not its business, unless it follows."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log")
        await topic.publish_batch([b"a", b"b"])
        seen = []
        async for record in topic.read():
            seen.append(record.value)
            await topic.publish(b"later")
        assert seen == [b"a", b"b"]


async def test_a_follower_gets_everything_in_order_as_it_comes(autojump_clock: Any, world: Any) -> None:
    """From every partition, each in order, woken by each publish; it ends when it is left, or at its `stop`."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", partitions=3)
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}

        async def follow() -> None:
            async for record in topic.read(follow=True, stop=20):
                seen[record.partition].append(record.offset)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for number in range(20):
                for partition in range(3):
                    await topic.publish(b"x", partition=partition)
                    await trio.sleep(0.0 if number % 3 else 100.0)
                    assert seen[partition][-1:] == [number] or number % 3
            await topic.publish(b"beyond", partition=1)
        assert seen == {partition: list(range(20)) for partition in range(3)}


async def test_start_and_stop_are_offsets_instants_or_ends(autojump_clock: Any, world: Any) -> None:
    """`stop` is exclusive; an instant means the first record appended at it or later."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log")
        began = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        for turn in range(5):
            await topic.publish_batch([b"%d" % turn] * 2)
            await trio.sleep(60.0)

        async def read(**where: Any) -> list[int]:
            return [record.offset async for record in topic.read(**where)]

        def at(seconds: float) -> datetime:
            return began + timedelta(seconds=seconds)

        assert await read(start=3, stop=7) == [3, 4, 5, 6]
        assert await read(start=7, stop=3) == []
        assert await read(start="end") == []
        assert await read(stop="beginning") == []
        assert await read(start=at(-3600)) == list(range(10))
        assert await read(start=at(60)) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert await read(start=at(61), stop=at(180)) == [4, 5]
        assert await read(start=at(9999)) == []
        assert await read(start=8, stop=99) == [8, 9]


async def test_many_small_frames_are_read_in_few_questions(autojump_clock: Any, world: Any) -> None:
    """Messages that were published one by one come back in order, and each is fetched once."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log")
        for number in range(3000):
            await topic.publish(b"%d" % number, acks="leader")
        received = runtime._session.system.actor("topics/log/0").statistics().received
        assert [record.value async for record in topic.read()] == [b"%d" % number for number in range(3000)]
        assert runtime._session.system.actor("topics/log/0").statistics().received - received < 10


async def test_retention_may_overtake_a_reader(autojump_clock: Any, world: Any) -> None:
    """A reader that skips what is dropped goes on at the oldest record that is kept."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log", segment_bytes=65_536, retention_bytes=4 * 65_536)
        reader = topic.read_batches(follow=True, skip_dropped=True)
        await topic.publish(bytes(60_000))
        assert list((await reader.__anext__()).offsets()) == [0]
        for _ in range(12):
            await topic.publish(bytes(60_000))
        await trio.sleep(1.0)
        start = (await topic.describe())[0].start_offset
        assert start > 5
        seen = [offset for _ in range(start, 13) for offset in (await reader.__anext__()).offsets()]
        assert seen == list(range(start, 13))


async def test_a_reader_rides_through_restarts(autojump_clock: Any, world: Any) -> None:
    """A partition that crashes while it is read or followed costs the reader nothing but time."""
    world.disk.latency_s = 0.001
    async with world.open() as runtime:
        topic = await runtime.create_topic("log")
        seen: list[int] = []

        async def follow() -> None:
            seen.extend([record.offset async for record in topic.read(follow=True, stop=200)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            number = 0
            while number < 200:
                number = (await topic.publish(b"x")).offset + 1
                if number % 20 == 0:
                    runtime.crash("topics/log/0", RuntimeError("a drill"))
                    await trio.sleep(1.0)
        assert seen == list(range(200))


async def test_a_place_that_makes_no_sense_is_refused_at_once(autojump_clock: Any, world: Any) -> None:
    """Before anything is read."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("log")
        for start in (-1, 2**63, "middle", None, True, datetime(2024, 1, 1)):  # noqa: DTZ001 - without a zone
            with pytest.raises(callboard.InvalidArgument):
                topic.read(start=start)
        for partition in (-1, 1, True, "0"):
            with pytest.raises(callboard.InvalidArgument):
                topic.read(partition=partition)
