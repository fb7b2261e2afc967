"""Topics come, change and go: durably, and never halfway."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

import callboard
from callboard.actors.partition.commands import Flush
from callboard.log.limits import Limits
from callboard.simulations.insides import directory_of


async def facts(runtime: Any) -> list[tuple[str, int, int]]:
    """Name, partitions and records of every topic."""
    found = []
    for topic in runtime.topics():
        parts = await topic.describe()
        found.append((topic.name, len(parts), sum(part.visible_end for part in parts)))
    return found


async def test_creating_again_compares_only_what_is_named(autojump_clock: Any, world: Any) -> None:
    """`create_topic` returns a topic that exists, unless a named setting differs: the error names `alter_topic`."""
    async with world.open() as runtime:
        first = await runtime.create_topic("orders", partitions=3, retention_age=3600.0)
        same = await runtime.create_topic("orders")
        assert (same.topic_id, same.settings) == (first.topic_id, first.settings)
        assert (await runtime.create_topic("orders", retention_age=3600.0)).partitions == 3
        with pytest.raises(callboard.TopicExists, match="partitions is 3") as caught:
            await runtime.create_topic("orders", partitions=4, retention_age=3600.0)
        assert "retention_age" not in str(caught.value)
        with pytest.raises(callboard.TopicExists, match=r"retention_age is 3600\.0") as caught:
            await runtime.create_topic("orders", retention_age=60.0)
        assert "runtime.alter_topic('orders', retention_age=60.0)" in str(caught.value)
        assert await facts(runtime) == [("orders", 3, 0)]


async def test_names_that_some_disks_confuse_collide(autojump_clock: Any, world: Any) -> None:
    """A name that differs from another only in case or Unicode form is refused, until that topic is gone."""
    async with world.open() as runtime:
        await runtime.create_topic("Café")
        for twin in ("café", "CAFÉ", "Cafe\u0301"):
            with pytest.raises(callboard.TopicExists, match="differs only in case"):
                await runtime.create_topic(twin)
        await runtime.delete_topic("Café")
        await runtime.create_topic("café")
        assert [topic.name for topic in runtime.topics()] == ["café"]


async def test_topics_are_there_again_after_reopening(autojump_clock: Any, world: Any) -> None:
    """Settings, also altered ones, and messages survive a clean end and a power loss right after."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2, compression="gzip")
        await topic.publish(b"one")
    await world.live(
        lambda runtime: runtime.alter_topic("orders", max_message_bytes=10, retention_age=86_400.0)
    )
    async with world.open() as runtime:
        topic = runtime.topic("orders")
        settings = topic.settings
        assert (settings.compression, settings.max_message_bytes, settings.retention_age) == (
            "gzip",
            10,
            86_400.0,
        )
        with pytest.raises(callboard.MessageTooLarge):
            await topic.publish(b"eleven byte")
        assert await facts(runtime) == [("orders", 2, 1)]


async def test_altering_takes_effect_at_once_and_refuses_nonsense(autojump_clock: Any, world: Any) -> None:
    """Every handle on the topic sees new settings; partitions and contradictions are refused, and change nothing."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await runtime.alter_topic("orders", max_message_bytes=3)
        with pytest.raises(callboard.MessageTooLarge):
            await topic.publish(b"four")
        before = topic.settings
        for wrong in ({"partitions": 2}, {"segment_age": 10.0, "retention_age": 5.0}, {"retention": 1}):
            with pytest.raises(callboard.ConfigurationError, match="Nothing was changed"):
                await runtime.alter_topic("orders", **wrong)
        assert topic.settings == before
        assert (
            await runtime.alter_topic("orders", partitions=1, max_message_bytes=4)
        ).settings.max_message_bytes == 4


async def test_altering_reaches_a_failed_partition_when_it_comes_back(
    autojump_clock: Any, world: Any
) -> None:
    """Altering a topic with a failed partition succeeds; revived, the partition keeps to the new settings."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2, segment_bytes=65_536)
        for _ in range(5):
            await topic.publish(bytes(60_000), partition=1)
        for _ in range(40):
            runtime.crash("topics/orders/1", RuntimeError("a drill"))
            await trio.sleep(0.26)
            if (await topic.describe())[1].state == "failed":
                break
        await runtime.alter_topic("orders", retention_bytes=65_536)
        assert (await topic.describe())[1].state == "failed"
        await runtime.restart("topics/orders/1")
        await trio.sleep(1.0)
        assert (await topic.describe())[1].start_offset >= 3


async def test_a_crash_may_meet_an_actor_at_any_moment(autojump_clock: Any, world: Any) -> None:
    """A drill while a partition starts, ends or waits for its restart has no effect, and says so."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        effects = set()
        for _ in range(2_000):
            effects.add(runtime.crash("topics/orders/0", RuntimeError("a drill")))
            autojump_clock.jump(0.001)
            await trio.lowlevel.checkpoint()
        assert effects == {True, False}
        await runtime.restart("topics/orders/0")
        assert (await topic.publish(b"x")).offset == 0


async def test_a_topic_that_is_created_again_inherits_nothing(autojump_clock: Any, world: Any) -> None:
    """Neither messages nor settings nor any group's place; and nothing of the old one is left on the disk."""
    async with world.open() as runtime:
        old = await runtime.create_topic("orders", partitions=2)
        await old.publish_batch([b"old"] * 10, partition=1)
        async with old.subscribe("group") as consumer:
            for _ in range(5):
                await (await consumer.get()).ack()
        await runtime.delete_topic("orders")
        assert not [path for path in world.disk.files() if old.topic_id in path]
        with pytest.raises(callboard.TopicNotFound):
            runtime.topic("orders")
        with pytest.raises(callboard.TopicNotFound):
            await old.publish(b"too late")
        with pytest.raises(callboard.TopicNotFound):
            async with old.subscribe("group"):
                pass
        new = await runtime.create_topic("orders")
        assert new.topic_id != old.topic_id
        await new.publish(b"new")
        async with new.subscribe("group") as consumer:
            message = await consumer.get()
            assert (message.value, message.attempt) == (b"new", 1)
            await message.ack()
        assert [group.topics for group in await runtime.groups()] == [("orders",)]
    async with world.open() as runtime:
        assert await facts(runtime) == [("orders", 1, 1)]


async def test_power_loss_at_any_verb_of_creating_leaves_a_topic_or_none(
    autojump_clock: Any, world: Any
) -> None:
    """Whatever verb of `create_topic` is the last: the topic is whole, or not there and free to be created."""
    async with world.open() as runtime:
        await runtime.create_topic("before")
    start, before = world.disk.snapshot(), world.disk.verbs_executed
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=3)
        verbs = world.disk.verbs_executed - before
    outcomes = set()
    for verb in range(verbs):
        world.disk.restore(start)
        await world.live(lambda runtime: runtime.create_topic("orders", partitions=3), verb)
        async with world.open() as runtime:
            names = [topic.name for topic in runtime.topics()]
            outcomes.add(tuple(names))
            topic = await runtime.create_topic("orders", partitions=3)
            await topic.publish_batch([b"a", b"b"], partition=2)
            assert await facts(runtime) == [("before", 1, 0), ("orders", 3, 2)]
    assert outcomes == {("before",), ("before", "orders")}


async def test_power_loss_while_deleting_is_mended_at_the_next_start(autojump_clock: Any, world: Any) -> None:
    """Whatever verb of `delete_topic` is the last: the topic is whole, or gone with all its files after the start."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        await topic.publish_batch([b"x"] * 4, partition=0)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    start, before = world.disk.snapshot(), world.disk.verbs_executed
    async with world.open() as runtime:
        await runtime.delete_topic("orders")
        verbs = world.disk.verbs_executed - before
    outcomes = set()
    for verb in range(verbs):
        world.disk.restore(start)
        await world.live(lambda runtime: runtime.delete_topic("orders"), verb)
        async with world.open() as runtime:
            found = await facts(runtime)
            outcomes.add(tuple(found))
            if not found:
                await trio.sleep(0.1)  # what was decided is carried out while the runtime is open
                assert not [path for path in world.disk.files() if topic.topic_id in path]
                again = await runtime.create_topic("orders")
                async with again.subscribe("group") as consumer:
                    await again.publish(b"fresh")
                    assert (await consumer.get()).offset == 0
    assert outcomes == {(), (("orders", 2, 4),)}


async def test_a_topic_whose_files_cannot_be_removed_is_deleted(autojump_clock: Any, world: Any) -> None:
    """The error is indefinite, the topic is gone, and its files go when the directory is opened again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"x")
        world.disk.fail_next("unlink", "EIO", path_contains=topic.topic_id)
        with pytest.raises(callboard.StorageError, match="is deleted, and files of it are left") as caught:
            await runtime.delete_topic("orders")
        assert caught.value.indefinite
        with pytest.raises(callboard.TopicNotFound):
            await runtime.delete_topic("orders")
        again = await runtime.create_topic("orders")
        await again.publish(b"fresh")
    async with world.open() as runtime:
        await trio.sleep(0.1)  # what was decided is carried out while the runtime is open
        assert not [path for path in world.disk.files() if topic.topic_id in path]
        assert await facts(runtime) == [("orders", 1, 1)]


async def test_publishers_that_are_busy_when_a_topic_goes_hear_of_it(autojump_clock: Any, world: Any) -> None:
    """Publishes under way at a deletion succeed or raise TopicNotFound; none hangs."""
    world.disk.latency_s = 0.001
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders", partitions=2)
        outcomes: list[type] = []

        async def publish() -> None:
            while True:
                try:
                    await topic.publish(b"x" * 100)
                except callboard.CallboardError as error:
                    outcomes.append(type(error))
                    return

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(publish)
            await trio.sleep(0.1)
            await runtime.delete_topic("orders")
        assert outcomes == [callboard.TopicNotFound] * 20


async def test_an_idle_runtime_takes_no_steps(autojump_clock: Any, world: Any) -> None:
    """Over a virtual day with ten topics, groups and waiting consumers nothing runs: what is due sets its own alarm."""
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    async with world.open() as runtime, trio.open_nursery() as nursery:
        for number in range(10):
            topic = await runtime.create_topic(
                f"topic-{number}", partitions=3, segment_age=30 * 86_400.0, retention_age=30 * 86_400.0
            )
            await topic.publish_batch([b"x"] * 10)

            async def consume(topic: Any = topic) -> None:
                async with topic.subscribe("group") as consumer:
                    async for message in consumer:
                        await message.ack()

            nursery.start_soon(consume)
        await trio.sleep(100.0)
        instrument = Steps()
        trio.lowlevel.add_instrument(instrument)
        await trio.sleep(86_400.0)
        trio.lowlevel.remove_instrument(instrument)
        assert steps < 20
        nursery.cancel_scope.cancel()


async def test_statistics_wait_for_room_in_a_busy_mailbox(autojump_clock: Any, world: Any) -> None:
    """A partition with more to do than its mailbox holds is described all the same."""
    async with world.open(limits=Limits(partition_mailbox=1)) as runtime:
        topic = await runtime.create_topic("orders")
        port = runtime._session.mirror.find("orders").ports[0]
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(topic.publish, b"1")
            await trio.testing.wait_all_tasks_blocked()
            port.ref.tell_nowait(Flush())
            (part,) = (await runtime.stats()).partitions
        assert (part.state, part.next_offset) == ("running", 5)


async def test_a_change_that_the_closing_overtakes_may_have_been_made(
    autojump_clock: Any, world: Any
) -> None:
    """A change under way at the closing ends with an indefinite RuntimeClosed; a later one with a definite one."""
    told: list[callboard.RuntimeClosed] = []
    async with trio.open_nursery() as nursery:
        async with world.open() as runtime:
            await runtime.create_topic("orders")
            world.disk.latency_s = 0.01

            async def delete() -> None:
                try:
                    await runtime.delete_topic("orders")
                except callboard.RuntimeClosed as error:
                    told.append(error)

            nursery.start_soon(delete)
            await trio.testing.wait_all_tasks_blocked()
    assert [error.indefinite for error in told] == [True]
    with pytest.raises(callboard.RuntimeClosed) as caught:
        await runtime.create_topic("refunds")
    assert not caught.value.indefinite


async def test_a_topic_that_is_deleted_is_waited_for_no_more(autojump_clock: Any, world: Any) -> None:
    """Also by what began to wait for its partitions when they had gone: the catalog does not crash by that."""
    async with world.open() as runtime:
        await runtime.create_topic("orders", partitions=2)
        directory = directory_of(runtime)
        live = directory.find("orders")
        await runtime.delete_topic("orders")
        with pytest.raises(callboard.ActorStopped):
            await directory.made(live)
