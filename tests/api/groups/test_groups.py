"""Consumer groups: where they start, what outlives whom, how they end."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import GroupExpired

DAY = 86_400.0


async def names(runtime: Any) -> list[str]:
    """The groups there are."""
    return [group.name for group in await runtime.groups()]


def told(runtime: Any, kind: type) -> list[Any]:
    """The events of that kind."""
    return [logged.event for logged in runtime.events() if isinstance(logged.event, kind)]


async def offsets(consumer: Any) -> list[int]:
    """What the consumer is given now; all of it acked."""
    found = []
    while (message := await consumer.get(timeout=1.0)) is not None:
        found.append(message.offset)
        await message.ack()
    return found


async def test_a_durable_group_outlives_consumers_and_process_and_an_ephemeral_one_neither(
    autojump_clock: Any, world: Any
) -> None:
    """The place of a durable group is kept; an ephemeral one ends with its last consumer, or with the process."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"x"] * 4)
        for group, durable in (("lasting", True), ("passing", False)):
            async with topic.subscribe(group, durable=durable) as consumer:
                await (await consumer.get()).ack()
            await trio.sleep(1.0)
        assert await names(runtime) == ["lasting"]

    async def be_killed(runtime: Any) -> None:
        consumer = runtime.topic("orders").subscribe("passing", durable=False)
        await consumer.__aenter__()
        assert await offsets(consumer) == [0, 1, 2, 3]

    await world.live(be_killed)
    async with world.open() as runtime:
        assert await names(runtime) == ["lasting"]
        async with runtime.topic("orders").subscribe("lasting") as consumer:
            assert await offsets(consumer) == [1, 2, 3]
        (part,) = await runtime.topic("orders").describe()
        assert len(part.groups) == 1


@pytest.mark.parametrize("durable", [True, False])
async def test_a_group_whose_topic_goes_while_it_is_made_ends(
    autojump_clock: Any, world: Any, durable: bool
) -> None:
    """It was decided, and then nobody could join: a durable one expires, an ephemeral one ends after a while."""
    world.disk.latency_s = 0.05
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")

        async def subscribe() -> None:
            with pytest.raises(callboard.TopicNotFound):
                async with topic.subscribe("group", durable=durable, group_expiry=2.0):
                    pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.create_topic, "other")
            await trio.sleep(0.01)  # what comes now is decided together
            nursery.start_soon(subscribe)
            await trio.sleep(0.01)
            nursery.start_soon(runtime.delete_topic, "orders")
        assert await names(runtime) == ["group"]
        await trio.sleep(20.0)
        assert await names(runtime) == []


async def test_a_group_that_is_altered_while_it_expires_has_its_new_time(
    autojump_clock: Any, world: Any
) -> None:
    """What `Group.alter` has answered holds, also when the group was to end the moment after."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group", group_expiry=1.0):
            pass
        world.disk.latency_s = 0.2
        await trio.sleep(0.9)
        await runtime.group("group").alter(group_expiry=5.0)
        await trio.sleep(2.0)
        assert await names(runtime) == ["group"]
        assert not told(runtime, GroupExpired)
        await trio.sleep(5.0)
        assert await names(runtime) == []
        assert told(runtime, GroupExpired)


async def test_an_ephemeral_group_that_nobody_joined_ends(autojump_clock: Any, world: Any) -> None:
    """Whoever it was made for gave up before joining, so it has no last consumer to end with."""
    world.disk.latency_s = 0.05
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        with trio.move_on_after(0.01):
            async with topic.subscribe("group", durable=False):
                pass
        await trio.sleep(1.0)
        assert await names(runtime) == ["group"]
        await trio.sleep(20.0)
        assert await names(runtime) == []


@pytest.mark.parametrize(
    ("start", "expected"),
    [("beginning", [0, 1, 2, 3, 4, 5]), ("end", [5]), (3, [3, 4, 5]), (99, [5]), ("instant", [2, 3, 4, 5])],
)
async def test_a_new_group_starts_where_it_is_told(
    autojump_clock: Any, world: Any, start: Any, expected: list[int]
) -> None:
    """At the beginning, the end, an offset (clamped to what is there), an instant; later subscribers change nothing."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        began = datetime.fromtimestamp(world.clock.wall_us() / 1e6, UTC)
        for _ in range(5):
            await topic.publish(b"x")
            await trio.sleep(10.0)
        place = began + timedelta(seconds=15) if start == "instant" else start
        async with topic.subscribe("group", start=place) as consumer:
            await topic.publish(b"x")
            assert await offsets(consumer) == expected
        async with topic.subscribe("group", start="beginning") as consumer:
            assert await offsets(consumer) == []


async def test_a_later_subscriber_names_the_settings_of_the_group_or_none(
    autojump_clock: Any, world: Any
) -> None:
    """Other settings than the group's are refused, with the call that alters them when there is one."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("group", visibility_timeout=60.0, max_in_flight=5):
            async with topic.subscribe("group", max_in_flight=5) as second:
                assert (second.settings.visibility_timeout, second.settings.max_in_flight) == (60.0, 5)
            with pytest.raises(callboard.GroupExists, match=r"visibility_timeout is 60\.0") as caught:
                async with topic.subscribe("group", visibility_timeout=1.0, max_in_flight=5):
                    pass
            assert "runtime.group('group').alter(visibility_timeout=1.0)" in str(caught.value)
            assert (caught.value.group, caught.value.problems) == ("group", ("visibility_timeout",))
            with pytest.raises(callboard.GroupExists, match="cannot be changed") as caught:
                async with topic.subscribe("group", durable=False, max_in_flight=7):
                    pass
            assert caught.value.problems == ("durable", "max_in_flight")
        (group,) = await runtime.groups()
        assert (group.members, group.settings.visibility_timeout) == (0, 60.0)
        await runtime.group("group").alter(visibility_timeout=1.0)
        async with topic.subscribe("group", visibility_timeout=1.0) as later:
            assert later.settings.visibility_timeout == 1.0


async def test_a_group_reads_several_topics_each_from_its_own_place(autojump_clock: Any, world: Any) -> None:
    """One group, a consumer per topic: deliveries and acks do not mix."""
    async with world.open() as runtime:
        first, second = [await runtime.create_topic(name) for name in ("first", "second")]
        await first.publish_batch([b"x"] * 3)
        await second.publish_batch([b"x"] * 2)
        async with first.subscribe("group") as one, second.subscribe("group") as two:
            assert await offsets(one) == [0, 1, 2]
            assert await offsets(two) == [0, 1]
            (group,) = await runtime.groups()
            assert (group.topics, group.members) == (("first", "second"), 2)
        await runtime.delete_topic("first")
        assert (await runtime.groups())[0].topics == ("second",)


async def test_an_expired_group_is_told_and_holds_nothing_back(autojump_clock: Any, world: Any) -> None:
    """Seven days without a consumer: a GroupExpired event, and the group's state is gone from every partition."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=3)
        for partition in range(3):
            await topic.publish(b"x", partition=partition)
        async with topic.subscribe("group"):
            await trio.sleep(30 * DAY)
        await trio.sleep(7 * DAY - 1.0)
        assert await names(runtime) == ["group"]
        await trio.sleep(2.0)
        assert await names(runtime) == []
        events = [logged.event for logged in runtime.events()]
        assert [event for event in events if isinstance(event, GroupExpired)] == [
            GroupExpired("group", 7 * DAY)
        ]
        assert [part.groups for part in await topic.describe()] == [(), (), ()]


async def test_deleting_a_group_ends_its_consumers(autojump_clock: Any, world: Any) -> None:
    """Waiting consumers and late acks raise GroupNotFound; a group of that name begins anew."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish_batch([b"x"] * 2, partition=0)
        heard: list[str] = []

        async def consume() -> None:
            with pytest.raises(callboard.GroupNotFound):
                async with topic.subscribe("group") as consumer:
                    message = await consumer.get()
                    await consumer.get()
                    await trio.sleep(5.0)
                    with pytest.raises(callboard.GroupNotFound):
                        await message.ack()
                    heard.append("ack")
                    await consumer.get()
            heard.append("get")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await trio.sleep(1.0)
            await runtime.group("group").delete()
            assert await names(runtime) == []
        assert heard == ["ack", "get"]
        assert [part.groups for part in await topic.describe()] == [(), ()]
        with pytest.raises(callboard.GroupNotFound):
            await runtime.group("group").delete()
        async with topic.subscribe("group") as consumer:
            assert await offsets(consumer) == [0, 1]
    async with world.open() as runtime:
        assert await names(runtime) == ["group"]


async def test_a_deleted_group_with_work_in_flight_leaves_a_readable_journal(
    autojump_clock: Any, world: Any
) -> None:
    """Deliveries that were under way when their group was closed are not journalled behind its end."""
    world.disk.latency_s = 0.001
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"x"] * 50)
        for turn in range(40):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def consume() -> None:
                        with suppress(callboard.GroupNotFound):
                            async with topic.subscribe("group") as consumer:
                                while True:
                                    await consumer.get_batch(max_records=5, max_wait=0.0)

                    async def fail(turn: int = turn) -> None:
                        await trio.sleep(0.004 + turn * 0.0003)
                        nursery.start_soon(runtime.group("group").delete)
                        await trio.sleep((turn % 5) * 0.0003)
                        scope.cancel()

                    nursery.start_soon(consume)
                    nursery.start_soon(fail)
            await trio.sleep(1.0)
            if await names(runtime):
                await runtime.group("group").delete()
        runtime.crash("topics/orders/0", RuntimeError("read it again"))
        await trio.sleep(1.0)
        (part,) = await topic.describe()
        assert (part.state, part.groups) == ("running", ())
    async with world.open() as runtime:
        assert (await runtime.topic("orders").describe())[0].state == "running"


async def test_power_loss_at_any_verb_of_deleting_a_group(autojump_clock: Any, world: Any) -> None:
    """The group is whole, with its place, or gone everywhere; never there without its place."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish_batch([b"x"] * 2, partition=0)
        await topic.publish_batch([b"x"] * 2, partition=1)
        async with topic.subscribe("group") as consumer:
            assert len(await offsets(consumer)) == 4
    start, before = world.disk.snapshot(), world.disk.verbs_executed
    async with world.open() as runtime:
        await runtime.group("group").delete()
        verbs = world.disk.verbs_executed - before
    outcomes = set()
    for verb in range(verbs):
        world.disk.restore(start)
        await world.live(lambda runtime: runtime.group("group").delete(), verb)
        async with world.open() as runtime:
            exists = await names(runtime) == ["group"]
            outcomes.add(exists)
            await trio.sleep(0.1)  # what was decided is carried out while the runtime is open
            pending = [
                [group.pending for group in part.groups] for part in await runtime.topic("orders").describe()
            ]
            assert pending == ([[0], [0]] if exists else [[], []])
    assert outcomes == {True, False}


async def test_a_group_joins_although_a_partition_is_down(autojump_clock: Any, world: Any) -> None:
    """Consumers get what the other partitions have, and the failed one's messages once it is revived."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        for partition in range(2):
            await topic.publish(b"x", partition=partition)
        while (await topic.describe())[1].state != "failed":
            runtime.crash("topics/orders/1", RuntimeError("a drill"))
            await trio.sleep(0.26)
        async with topic.subscribe("new") as consumer:
            assert (await consumer.get(timeout=1.0)).partition == 0
            assert await consumer.get(timeout=1.0) is None
            await runtime.restart("topics/orders/1")
            assert (await consumer.get(timeout=1.0)).partition == 1


async def test_a_group_and_its_topic_are_deleted_together(autojump_clock: Any, world: Any) -> None:
    """A topic that goes takes its delivery states with it: that they cannot be closed there is no failure."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=2)
        async with topic.subscribe("workers"):
            pass
        world.disk.latency_s = 0.1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.group("workers").delete)
            nursery.start_soon(runtime.delete_topic, "jobs")
        assert not [logged for logged in runtime.events() if type(logged.event).__name__ == "OperationFailed"]


async def test_a_group_shows_what_it_has_given_up_on(autojump_clock: Any, world: Any) -> None:
    """Topic by topic, as the topics do."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"bad")
        async with orders.subscribe("billing") as consumer:
            message = await consumer.get()
            await message.reject(reason="no price")
        billing = runtime.group("billing")
        (letter,) = await billing.dead_letters("orders").list()
        assert (letter.reason, letter.group) == ("no price", "billing")
        (same,) = await orders.dead_letters("billing").list()
        assert (letter.number, letter.offset) == (same.number, same.offset)
        with pytest.raises(callboard.TopicNotFound):
            billing.dead_letters("refunds")
