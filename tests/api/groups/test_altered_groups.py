"""Settings of a group that are altered: whom they reach, and when."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard
from callboard.actors.notices import GroupExpired
from callboard.actors.settings import GroupSettings

DAY = 86_400.0


async def held_for(consumer: Any, clock: Any) -> float:
    """How long the lease on the next message lasts; the message is given back."""
    message = await consumer.get(timeout=10.0)
    lasts: float = message.deadline - clock.monotonic()
    await message.release()
    return round(lasts, 1)


async def test_altered_settings_hold_for_members_and_later_consumers(autojump_clock: Any, world: Any) -> None:
    """In every partition of every topic that the group reads, from the next lease on, and in the next process."""
    async with world.open() as runtime:
        topics = [await runtime.create_topic(name, partitions=2) for name in ("first", "second")]
        for topic in topics:
            await topic.publish_batch([b"x"] * 2, partition=0)
            await topic.publish_batch([b"x"] * 2, partition=1)
        first, second = topics
        async with first.subscribe("group", max_in_flight=1) as one, second.subscribe("group") as two:
            assert await held_for(one, world.clock) == 30.0
            altered = await runtime.group("group").alter(
                visibility_timeout=7.0, max_in_flight=2, group_expiry=None
            )
            assert (altered.visibility_timeout, altered.max_in_flight, altered.backoff) == (7.0, 2, 1.0)
            assert one.settings == two.settings == altered
            for consumer in (one, two):
                held = [await consumer.get() for _ in range(2)]
                assert {message.deadline - world.clock.monotonic() for message in held} == {7.0}
                assert await consumer.get(timeout=1.0) is None
                for message in held:
                    await message.release()
        assert [group.settings for group in await runtime.groups()] == [altered]
    async with world.open() as runtime:
        assert [group.settings for group in await runtime.groups()] == [altered]
        async with runtime.topic("first").subscribe("group") as consumer:
            assert await held_for(consumer, world.clock) == 7.0


async def test_a_shorter_timeout_ends_no_lease_early(autojump_clock: Any, world: Any) -> None:
    """A lease that was given under a longer timeout lasts as long as its consumer was told, also over a restart."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", visibility_timeout=10.0) as one, topic.subscribe("group") as two:
            message = await one.get()
            await runtime.group("group").alter(visibility_timeout=1.0)
            assert runtime.crash(f"topics/{topic.name}/0", RuntimeError("crashed by the test"))
            assert await two.get(timeout=9.0) is None
            again = await two.get(timeout=5.0)
            assert again.attempt == 2
            assert again.deadline - world.clock.monotonic() <= 1.0
            assert message.deadline <= trio.current_time()


async def test_who_waits_for_room_gets_it_when_more_is_allowed(autojump_clock: Any, world: Any) -> None:
    """A consumer at its `max_in_flight` goes on as soon as that is raised."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with topic.subscribe("group", max_in_flight=1) as consumer:
            await consumer.get()
            with trio.fail_after(2.0):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(consumer.get)
                    await trio.sleep(1.0)
                    await runtime.group("group").alter(max_in_flight=2)


async def test_settings_that_cannot_be_altered_are_refused_all_at_once(
    autojump_clock: Any, world: Any
) -> None:
    """With every problem in words, and nothing changed; unchanged values of fixed settings are fine."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group"):
            pass
        with pytest.raises(callboard.ConfigurationError) as caught:
            await runtime.group("group").alter(
                durable=False, start="end", visibility_timout=3, backoff=-1, max_in_flight=3
            )
        assert caught.value.problems == (
            "durable cannot be changed once a group exists",
            "start cannot be changed once a group exists",
            "unknown setting 'visibility_timout' (did you mean 'visibility_timeout'?)",
            "backoff is -1, outside 0 to 86,400",
        )
        with pytest.raises(callboard.ConfigurationError, match="longer than max_backoff"):
            await runtime.group("group").alter(backoff=61.0)
        assert await runtime.group("group").alter(durable=True) == GroupSettings()
        for name in ("nobody", 7):
            with pytest.raises(callboard.GroupNotFound):
                await runtime.group(name).alter(backoff=1.0)


@pytest.mark.parametrize("is_down", ["failed", "crashed", "hung"])
async def test_a_partition_that_is_down_takes_note_when_it_runs(
    autojump_clock: Any, world: Any, is_down: str
) -> None:
    """Altering does not wait for it for long, and no lease of the old settings is given after its restart."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2, partitions=2)
        async with topic.subscribe("group") as consumer:
            assert await held_for(consumer, world.clock) == 30.0
            path = "topics/jobs/0"
            if is_down == "failed":
                while (await topic.describe())[0].state != "failed":
                    runtime.crash(path, RuntimeError("a drill"))
                    await trio.sleep(0.26)
            elif is_down == "crashed":
                runtime.crash(path, RuntimeError("a drill"))
            else:
                world.disk.hang(f"{topic.topic_id}/0")
                runtime.crash(path, RuntimeError("a drill"))
            with trio.fail_after(6.0):
                await runtime.group("group").alter(visibility_timeout=7.0)
            world.disk.unhang()
            if is_down == "failed":
                await runtime.restart(path)
            assert await held_for(consumer, world.clock) == 7.0


async def test_a_shorter_expiry_counts_from_when_the_group_became_idle(
    autojump_clock: Any, world: Any
) -> None:
    """A group that has been without members for longer than that expires at once."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", group_expiry=None):
            pass
        await trio.sleep(9 * DAY)
        await runtime.group("group").alter(group_expiry=8 * DAY)
        await trio.sleep(1.0)
        assert await runtime.groups() == ()
        expired = [logged.event for logged in runtime.events() if isinstance(logged.event, GroupExpired)]
        assert expired == [GroupExpired("group", 8 * DAY)]


async def test_power_loss_at_any_verb_of_altering_a_group(autojump_clock: Any, world: Any) -> None:
    """The group has its old settings everywhere or the new ones, and the new ones once altering has returned."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2, partitions=2)
        async with topic.subscribe("group") as consumer:
            await (await consumer.get()).ack()
    returned: list[bool] = []

    async def alter(runtime: Any) -> None:
        async with runtime.topic("jobs").subscribe("group"):
            await runtime.group("group").alter(visibility_timeout=7.0)
            returned.append(True)

    start, before = world.disk.snapshot(), world.disk.verbs_executed
    async with world.open() as runtime:
        await alter(runtime)
        verbs = world.disk.verbs_executed - before
    outcomes = set()
    for verb in range(verbs):
        world.disk.restore(start)
        returned.clear()
        await world.live(alter, verb)
        async with world.open() as runtime:
            (group,) = await runtime.groups()
            async with runtime.topic("jobs").subscribe("group") as consumer:
                assert await held_for(consumer, world.clock) == group.settings.visibility_timeout
        outcomes.add((bool(returned), group.settings.visibility_timeout))
    assert (True, 30.0) not in outcomes
    assert {timeout for _, timeout in outcomes} == {7.0, 30.0}


async def test_the_catalog_crashes_while_a_group_is_altered(autojump_clock: Any, world: Any) -> None:
    """Wherever it is broken off: what the catalog has decided reaches partitions and members once it is back."""
    world.disk.latency_s = 0.001
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2, partitions=2)
        async with topic.subscribe("group") as consumer:
            for turn in range(40):
                wanted = 10.0 + turn
                async with trio.open_nursery() as nursery:

                    async def alter(wanted: float = wanted) -> None:
                        try:
                            await runtime.group("group").alter(visibility_timeout=wanted)
                        except callboard.ActorCrashed:
                            pass

                    nursery.start_soon(alter)
                    for _ in range(turn):
                        await trio.lowlevel.checkpoint()
                    await trio.sleep(0.0003 * (turn % 7))
                    runtime.crash("catalog", RuntimeError("a drill"))
                await trio.sleep(60.0)
                (group,) = await runtime.groups()
                assert consumer.settings == group.settings
                assert await held_for(consumer, world.clock) == group.settings.visibility_timeout
