"""Topics that are read-only: nothing is stored, however it comes, and nothing that was accepted is lost."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

import callboard


async def values_in(topic: Any) -> list[bytes]:
    """What the topic holds."""
    return [record.value async for record in topic.read()]


async def test_every_way_to_publish_is_refused_before_anything_is_written(
    autojump_clock: Any, world: Any
) -> None:
    """At every level, single and in batches, delayed, by a producer and at an expected offset; also what is empty."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs", partitions=2, dedup_window=60.0)
        await topic.publish(b"first", key=b"k")
        async with topic.producer("importer") as producer:
            await runtime.alter_topic("jobs", read_only=True)
            message = callboard.Message(b"x", delay=1.0)
            ways = [
                *(lambda acks=acks: topic.publish(b"x", acks=acks) for acks in ("none", "leader", "all")),
                lambda: topic.publish(b""),
                lambda: topic.publish(b"x", delay=1.0),
                lambda: topic.publish(b"x", dedup_id=b"1"),
                lambda: topic.publish(b"x", expected_offset=1, partition=0),
                lambda: topic.publish_batch([b"", b""]),
                lambda: topic.publish_batch([b"x"] * 100, acks="none", partition=0),
                lambda: topic.publish_batch([message, b"y"]),
                lambda: producer.publish(b"x"),
                lambda: producer.publish_batch([b"x", b"y"]),
            ]
            for way in ways:
                with pytest.raises(callboard.TopicReadOnly, match="Nothing was written") as caught:
                    await way()
                assert (caught.value.topic, caught.value.indefinite) == ("jobs", False)
            await trio.sleep(5.0)
            assert await values_in(topic) == [b"first"]
            assert (await runtime.stats()).delayed == ()
            await runtime.alter_topic("jobs", read_only=False)
            await producer.publish(b"second", key=b"k")
        assert sorted(await values_in(topic)) == [b"first", b"second"]


async def test_a_topic_stays_read_only_over_restarts(autojump_clock: Any, world: Any) -> None:
    """Also for those who do not know yet: the partition itself refuses, and returns their credit."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        await runtime.alter_topic("jobs", read_only=True)
        live = runtime._session.mirror.find("jobs")
        outdated = attrs.evolve(live.stands, settings=callboard.TopicSettings())
        live.heard(outdated)  # as a client that has not heard of it
        for _ in range(2):
            for acks in ("leader", "all"):
                with pytest.raises(callboard.TopicReadOnly):
                    await topic.publish(b"x" * 1000, acks=acks)
            await topic.publish(b"x", acks="none")
            with pytest.raises(callboard.PublishFailed, match="read-only"):
                await topic.flush()
            await trio.sleep(0.1)
            assert runtime._session.publishers[live].accounts()[0].credit.waiting_bytes == 0
            assert runtime.crash("topics/jobs/0", RuntimeError("a drill"))
    async with world.open() as runtime:
        topic = runtime.topic("jobs")
        with pytest.raises(callboard.TopicReadOnly):
            await topic.publish(b"x")
        assert await values_in(topic) == [b"0"]
        assert topic.settings.read_only


async def test_nothing_is_stored_after_the_topic_was_made_read_only(autojump_clock: Any, world: Any) -> None:
    """What came before is stored when `alter_topic` returns: its end moves no more."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 0)
        ends: list[int] = []
        async with trio.open_nursery() as nursery:

            async def publish() -> None:
                with pytest.raises(callboard.TopicReadOnly):
                    while True:
                        await topic.publish(b"x")
                        await trio.sleep(0.01)

            for _ in range(5):
                nursery.start_soon(publish)
            await trio.sleep(0.5)
            await runtime.alter_topic("jobs", read_only=True)
            ends.append((await topic.describe())[0].next_offset)
        await trio.sleep(1.0)
        assert ends == [(await topic.describe())[0].visible_end]
        assert ends[0] > 5


async def test_what_was_accepted_waits_until_the_topic_takes_messages_again(
    autojump_clock: Any, world: Any
) -> None:
    """Delayed messages, firings of schedules, what acks published, and dead letters; all come afterwards, once."""
    async with world.open() as runtime:
        source = await runtime.create_topic("source")
        target = await runtime.create_topic("target")
        await source.publish_batch([b"handled", b"failed", b"later"])
        await target.publish(b"delayed", delay=5.0)
        await target.schedule("tick", value=b"tick", every=20.0)
        async with source.subscribe("group", dead_letter_topic="target") as consumer:
            handled, failed, later = [await consumer.get() for _ in range(3)]
            await handled.publish("target", b"late", delay=5.0)
            await handled.ack()
            await later.publish("target", b"published")
            await runtime.alter_topic("target", read_only=True)
            with pytest.raises(callboard.TopicReadOnly):
                await later.ack()
            with pytest.raises(callboard.TopicReadOnly):
                await failed.publish("target", b"published")
            await failed.reject(reason="no use")
            await trio.sleep(60.0)
            assert await values_in(target) == []
            assert (await world.group_of(source)).dead == 1
            held = {type(logged.event).__name__ for logged in runtime.events()}
            assert {"DeadLettersHeld", "DelayedHeld", "ScheduleHeld", "TopicWritable"} <= held
            await runtime.alter_topic("target", read_only=False)
            await trio.sleep(35.0)
        found = await values_in(target)
        assert {b"delayed", b"late", b"failed"} <= set(found)
        assert (found.count(b"delayed"), found.count(b"late"), found.count(b"failed")) == (1, 1, 1)
        assert found.count(b"tick") >= 1


async def test_dead_letters_are_not_redriven_into_a_read_only_topic(autojump_clock: Any, world: Any) -> None:
    """They stay, and the redrive counts them; a topic that is named is refused."""
    async with world.open() as runtime:
        jobs = await world.topic_of(runtime, 2)
        await runtime.create_topic("dead")
        await runtime.create_topic("other", read_only=True)
        async with jobs.subscribe("group", dead_letter_topic="dead") as consumer:
            for _ in range(2):
                await (await consumer.get()).reject(reason="no use")
        await trio.sleep(1.0)
        await runtime.alter_topic("jobs", read_only=True)
        letters = runtime.dead_letters("dead")
        redriven = await letters.redrive()
        assert (redriven.messages, redriven.passed_over) == (0, {"topic 'jobs' is read-only": 2})
        with pytest.raises(callboard.TopicReadOnly):
            await letters.redrive(to="other")
        await runtime.alter_topic("jobs", read_only=False)
        assert (await letters.redrive()).messages == 2
        assert sorted(await values_in(jobs)) == [b"0", b"0", b"1", b"1"]


async def test_groups_and_retention_of_a_read_only_topic_go_on(autojump_clock: Any, world: Any) -> None:
    """It is consumed, sought, and drops what is too old; it is deleted like any."""
    async with world.open() as runtime:
        jobs = await world.topic_of(runtime, 3)
        await runtime.alter_topic("jobs", read_only=True)
        async with jobs.subscribe("group") as consumer:
            for _ in range(3):
                await (await consumer.get()).ack()
            await runtime.group("group").seek("beginning")
            for _ in range(3):
                await (await consumer.get()).ack()
        await runtime.alter_topic("jobs", retention_age=60.0, segment_age=10.0)
        await trio.sleep(300.0)
        assert await values_in(jobs) == []
        await runtime.delete_topic("jobs")
