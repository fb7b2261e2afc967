"""Groups that read all topics whose names match a pattern: these come and go while consumers run."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.simulations.disk.inodes import lose_unsynced

MODES = pytest.mark.parametrize("mode", ["shared", "exclusive"])


async def taken(consumer: Any, count: int) -> list[tuple[str, bytes]]:
    """So many messages, acked: their topics and values."""
    found = []
    for _ in range(count):
        message = await consumer.get(timeout=30.0)
        assert message is not None
        found.append((message.topic, message.value))
        await message.ack()
    return found


@MODES
async def test_all_topics_that_match_are_read(autojump_clock: Any, world: Any, mode: Any) -> None:
    """Messages of each come once; other topics are left alone; groups tell the pattern and its topics."""
    async with world.open() as runtime:
        for name in ("orders.eu", "orders.us", "orders", "refunds"):
            topic = await runtime.create_topic(name, partitions=2)
            await topic.publish(name.encode())
        async with runtime.subscribe(pattern="orders.*", group="billing", mode=mode) as consumer:
            assert sorted(await taken(consumer, 2)) == [
                ("orders.eu", b"orders.eu"),
                ("orders.us", b"orders.us"),
            ]
            assert await consumer.get(timeout=5.0) is None
            (group,) = await runtime.groups()
            assert (group.pattern, group.topics) == ("orders.*", ("orders.eu", "orders.us"))
            found = await runtime.group("billing").describe()
            assert (found.group.pattern, found.lag, len(found.places)) == ("orders.*", 0, 4)


@MODES
async def test_a_new_topic_is_taken_up_by_running_consumers(
    autojump_clock: Any, world: Any, mode: Any
) -> None:
    """Also by one that waits and has no topic yet; from the first message on, whatever the group's `start`."""
    got: list[tuple[str, bytes]] = []
    async with world.open() as runtime:
        events: list[Any] = []
        runtime.subscribe_events(events.append)
        async with trio.open_nursery() as nursery:

            async def consume() -> None:
                async with runtime.subscribe(
                    pattern="orders.*", group="billing", mode=mode, start="end"
                ) as consumer:
                    async for message in consumer:
                        got.append((message.topic, message.value))
                        await message.ack()

            for _ in range(2):
                nursery.start_soon(consume)
            await trio.sleep(1.0)
            for number, name in enumerate(("orders.eu", "orders.us", "refunds", "orders.asia")):
                topic = await runtime.create_topic(name, partitions=1 + number)
                await topic.publish_batch([b"%d" % each for each in range(20)])
                await trio.sleep(5.0)
                assert len(got) == 20 * {0: 1, 1: 2, 2: 2, 3: 3}[number]
            nursery.cancel_scope.cancel()
        assert len(set(got)) == 60
        told = [event for event in events if isinstance(event, callboard.events.TopicFound)]
        assert [event.topic for event in told] == ["orders.eu", "orders.us", "orders.asia"]


@MODES
async def test_deleted_topics_leave_quietly(autojump_clock: Any, world: Any, mode: Any) -> None:
    """No error, also when the last one goes; one of the same name is another topic, and read from its beginning."""
    async with world.open() as runtime:
        async with runtime.subscribe(pattern="orders.?", group="billing", mode=mode) as consumer:
            for turn in range(3):
                for name in ("orders.a", "orders.b"):
                    topic = await runtime.create_topic(name)
                    await topic.publish(b"%d" % turn)
                assert sorted(await taken(consumer, 2)) == [
                    ("orders.a", b"%d" % turn),
                    ("orders.b", b"%d" % turn),
                ]
                await runtime.delete_topic("orders.a")
                assert await consumer.get(timeout=3.0) is None
                (group,) = await runtime.groups()
                assert group.topics == ("orders.b",)
                await runtime.delete_topic("orders.b")
                assert await consumer.get(timeout=3.0) is None
                (group,) = await runtime.groups()
                assert (group.topics, group.consumers[0].topics) == ((), ())


async def test_a_message_of_a_deleted_topic_tells_so(autojump_clock: Any, world: Any) -> None:
    """What is in hand cannot be settled any more; what was fetched ahead is dropped."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders.a")
        await topic.publish_batch([b"1", b"2", b"3"])
        async with runtime.subscribe(pattern="orders.*", group="billing") as consumer:
            message = await consumer.get()
            await runtime.delete_topic("orders.a")
            with pytest.raises(callboard.TopicNotFound):
                await message.ack()
            assert await consumer.get(timeout=3.0) is None


@pytest.mark.parametrize("is_named_first", [True, False])
async def test_topics_for_dead_letters_do_not_match(
    autojump_clock: Any, world: Any, is_named_first: bool
) -> None:
    """Neither one that ends in `.dlq` nor one that a group names, also when it is named while it is read."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders.eu")
        failed = await runtime.create_topic("orders.failed")
        dlq = await runtime.create_topic("orders.dlq")
        if is_named_first:
            async with orders.subscribe("cooks", dead_letter_topic="orders.failed"):
                pass
        async with runtime.subscribe(pattern="orders.*", group="billing") as consumer:
            if not is_named_first:
                await failed.publish(b"before")
                assert await taken(consumer, 1) == [("orders.failed", b"before")]
                async with orders.subscribe("cooks", dead_letter_topic="orders.failed"):
                    pass
            for topic in (failed, dlq, orders):
                await topic.publish(b"after")
            assert await taken(consumer, 1) == [("orders.eu", b"after")]
            assert await consumer.get(timeout=5.0) is None
        async with runtime.subscribe(pattern="orders.*", group="clerks", dead_letters=True) as consumer:
            assert len(await taken(consumer, 3 + (not is_named_first))) >= 3
        (part,) = await failed.describe()
        names = {group.group_id: group.name for group in await runtime.groups()}
        assert {names[group.group_id] for group in part.groups} == {"clerks"}
        await runtime.delete_topic("orders.failed")
        await runtime.create_topic("orders.failed")
        assert [group.topics for group in await runtime.groups() if group.name == "billing"] == [
            ("orders.eu",)
        ]


async def test_it_goes_on_after_a_power_loss(autojump_clock: Any, world: Any) -> None:
    """The catalog keeps the pattern: topics that come while nobody consumes are read from their beginning."""

    async def begin(runtime: Any) -> None:
        async with runtime.subscribe(pattern="orders.*", group="billing", start="end"):
            pass
        topic = await runtime.create_topic("orders.eu", partitions=2)
        await topic.publish_batch([b"1", b"2", b"3"])
        world.disk.crash(lose_unsynced)

    await world.live(begin)
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders.us")
        await topic.publish(b"4")
        await trio.sleep(1.0)
        (part,) = await topic.describe()
        assert len(part.groups) == 1, (
            "a group without members knows a new topic, so that retention waits for it"
        )
        async with runtime.subscribe(pattern="orders.*", group="billing") as consumer:
            assert sorted(value for _, value in await taken(consumer, 4)) == [b"1", b"2", b"3", b"4"]
            assert (await runtime.group("billing").reset())["orders.us", 0] == 0


@pytest.mark.parametrize("crashes", ["catalog", "groups/billing", "topics/orders.us/0"])
@MODES
async def test_crashes_cost_nothing(autojump_clock: Any, world: Any, crashes: str, mode: Any) -> None:
    """Catalog, coordinator and partition crash while a topic comes and another goes."""
    async with world.open() as runtime:
        await runtime.create_topic("orders.eu")
        async with runtime.subscribe(pattern="orders.*", group="billing", mode=mode) as consumer:
            for turn in range(5):
                topic = await runtime.create_topic("orders.us")
                await topic.publish_batch([b"%d" % number for number in range(5)])
                runtime.crash(crashes, RuntimeError("injected"))
                assert len(set(await taken(consumer, 5))) == 5
                runtime.crash(crashes, RuntimeError("injected"))
                with trio.move_on_after(0.001 * turn):
                    await runtime.delete_topic("orders.us")
                await trio.sleep(1.0)
                assert await consumer.get(timeout=1.0) is None


async def test_work_takes_a_pattern(autojump_clock: Any, world: Any) -> None:
    """Handlers get the messages of topics that come while they run, and a deleted topic is no hindrance."""
    handled: list[tuple[str, bytes]] = []
    hindered: list[Any] = []

    async def handle(message: Any) -> None:
        handled.append((message.topic, message.value))

    async with world.open() as runtime, trio.open_nursery() as nursery:
        runtime.subscribe_events(lambda event: hindered.append(event) if "Hindered" in repr(event) else None)
        nursery.start_soon(
            lambda: runtime.work(pattern="orders.*", handler=handle, group="billing", concurrency=4)
        )
        for name in ("orders.eu", "orders.us"):
            topic = await runtime.create_topic(name)
            await topic.publish_batch([b"1", b"2"])
            await trio.sleep(1.0)
            await runtime.delete_topic(name)
        await trio.sleep(3.0)
        nursery.cancel_scope.cancel()
    assert sorted(handled) == [(name, value) for name in ("orders.eu", "orders.us") for value in (b"1", b"2")]
    assert hindered == []


async def test_the_end_of_the_group_ends_a_consumer_without_topics(autojump_clock: Any, world: Any) -> None:
    """Who waits for a first topic hears that the group is deleted, and that the runtime closes."""
    ended: list[str] = []
    both = trio.Event()
    async with trio.open_nursery() as nursery:
        async with world.open() as runtime:

            async def wait(group: str) -> None:
                try:
                    async with runtime.subscribe(pattern="orders.*", group=group) as consumer:
                        await consumer.get()
                except callboard.CallboardError as error:
                    ended.append(f"{group}: {type(error).__name__}")
                if len(ended) == 2:
                    both.set()

            nursery.start_soon(wait, "first")
            nursery.start_soon(wait, "second")
            await trio.sleep(1.0)
            await runtime.group("first").delete()
            await trio.sleep(1.0)
            assert ended == ["first: GroupNotFound"]
        with trio.fail_after(10.0):
            await both.wait()
    assert ended[1] == "second: RuntimeClosed"


async def test_a_topic_that_cannot_be_read_is_passed_over(autojump_clock: Any, world: Any) -> None:
    """An order that the topic's priorities do not allow is told, and the topic is created all the same."""
    async with world.open() as runtime:
        told: list[Any] = []
        runtime.subscribe_events(
            lambda event: told.append(event) if isinstance(event, callboard.events.TopicPassedOver) else None
        )
        async with runtime.subscribe(pattern="orders.*", group="billing", ordering="partition") as consumer:
            urgent = await runtime.create_topic("orders.urgent", priorities=True)
            await urgent.publish(b"1")
            assert await consumer.get(timeout=3.0) is None
        assert [(event.group, event.topic) for event in told] == [("billing", "orders.urgent")]


async def test_all_consumers_of_a_group_have_one_pattern(autojump_clock: Any, world: Any) -> None:
    """Another pattern, names in place of it, and a pattern in place of names are refused, each with what is right."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders.eu")
        async with runtime.subscribe(pattern="orders.*", group="billing"), topic.subscribe("cooks"):
            for refused in (
                runtime.subscribe(pattern="*", group="billing"),
                runtime.subscribe(pattern="orders.*", group="billing", dead_letters=True),
                topic.subscribe("billing"),
                runtime.subscribe(["orders.eu"], "billing"),
            ):
                with pytest.raises(callboard.ConfigurationError, match="pattern='orders"):
                    async with refused:
                        pass
            with pytest.raises(callboard.ConfigurationError, match="reads topics that are named"):
                async with runtime.subscribe(pattern="orders.*", group="cooks"):
                    pass


@pytest.mark.parametrize(
    "pattern", ["", "orders..*", "orders/*", "a b*", 7, b"orders.*", ["orders.*"], "*" * 300]
)
async def test_what_is_no_pattern_is_refused(autojump_clock: Any, world: Any, pattern: Any) -> None:
    """At the call, in words, before anything is asked of an actor."""
    async with world.open() as runtime:
        with pytest.raises(callboard.InvalidArgument, match="pattern"):
            runtime.subscribe(pattern=pattern, group="billing")


async def test_wrong_calls_are_refused(autojump_clock: Any, world: Any) -> None:
    """Names and a pattern, neither of them, dead letters without a pattern, a pattern among names, no group."""
    async with world.open() as runtime:
        await runtime.create_topic("orders")
        for call in (
            {"topics": ["orders"], "pattern": "orders.*", "group": "billing"},
            {"group": "billing"},
            {"topics": ["orders"], "dead_letters": True, "group": "billing"},
            {"topics": "orders.*", "group": "billing"},
            {"pattern": "orders.*"},
            {"pattern": "orders.*", "dead_letters": 1, "group": "billing"},
        ):
            with pytest.raises(callboard.InvalidArgument):
                runtime.subscribe(**call)


@MODES
async def test_nothing_is_handed_over_of_a_topic_that_became_one_for_dead_letters(
    autojump_clock: Any, world: Any, mode: Any
) -> None:
    """Not even what had been fetched with messages that were."""
    async with world.open() as runtime:
        dead, source = await runtime.create_topic("in.dead"), await runtime.create_topic("source")
        await dead.publish_batch([b"%d" % number for number in range(10)])
        async with source.subscribe("other"):
            pass
        async with runtime.subscribe(pattern="in.*", group="group", mode=mode) as consumer:
            await taken(consumer, 4)
            await runtime.group("other").alter(dead_letter_topic="in.dead")
            await trio.sleep(1.0)
            assert await consumer.get(timeout=1.0) is None
