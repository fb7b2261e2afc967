"""Deliveries are analysed: each number is the one that the calls of a known client make."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from typing import Any

import pytest
import trio

import callboard
from callboard.log.errors import (
    GroupNotFound,
    InvalidArgument,
    LogCorrupt,
    StorageError,
    TopicNotFound,
)
from callboard.simulations.workload.analysing import analyse
from callboard.simulations.workload.analysis import Deliveries, bin_of, bin_top

SECOND = 1_000_000


def lag_of(story: Any, partitions: set[int], found: Any) -> list[int]:
    """Published and not acked at the end of each bucket."""
    count = (found.to_us - found.from_us) // found.bucket_us + 1
    lags = []
    for number in range(count):
        end_us = found.from_us + (number + 1) * found.bucket_us
        published = {place for place, us in story.published.items() if us < end_us and place[0] in partitions}
        acked = {place for place, us in story.acked.items() if us < end_us and place[0] in partitions}
        lags.append(len(published) - len(acked))
    return lags


def check(each: Deliveries, found: Any, story: Any, partitions: set[int]) -> None:
    """All numbers of one row are those of the story."""
    latencies = [us - story.published[place] for place, us in story.acked.items() if place[0] in partitions]
    waits = [us - story.published[place] for place, us in story.first_came.items() if place[0] in partitions]
    tries = Counter(many for place, many in story.deliveries.items() if place[0] in partitions)
    assert each.fates["acked"] == len(latencies)
    assert each.fates["pending"] == sum(place[0] in partitions for place in story.published) - len(latencies)
    assert dict(each.attempts) == dict(tries)
    assert each.deliveries == sum(tried * many for tried, many in tries.items())
    assert each.redelivered == sum(many for tried, many in tries.items() if tried > 1)
    assert each.latency is not None
    assert each.wait is not None
    assert (each.latency.count, each.latency.most_us) == (len(latencies), max(latencies))
    assert each.latency.mean_us == sum(latencies) // len(latencies)
    # A consumer leases up to so much ahead of what it hands out.
    assert sum(waits) // len(waits) - 3 * SECOND <= each.wait.mean_us <= sum(waits) // len(waits)
    for percent in (50, 90, 99):
        exact = sorted(latencies)[-(-len(latencies) * percent // 100) - 1]
        assert each.latency.quantile(percent, 100) == min(bin_top(bin_of(exact)), max(latencies))
    assert list(each.lag) == lag_of(story, partitions, found)
    assert sum(each.published) == sum(place[0] in partitions for place in story.published)
    assert sum(each.settled) == len(latencies)


def test_known_deliveries_have_their_known_numbers(spark: Any, known: Any) -> None:
    """Attempts, latencies and the lag in every bucket, by partition and in all, are what the client did."""
    found = analyse(spark, known.directory, bucket_us=10 * SECOND)
    assert [(each.topic, each.group) for each in found.topics] == [("orders", "billing")]
    assert [each.partition for each in found.partitions] == [0, 1]
    check(found.topics[0], found, known, {0, 1})
    for each in found.partitions:
        check(each, found, known, {each.partition})
    # Of thirty records two come twice and three three times.
    assert [dict(each.attempts) for each in found.partitions] == [{1: 25, 2: 2, 3: 3}] * 2
    assert known.nacks == 16
    counts = {"delivered": 76, "redelivered": 16, "acked": 60, "nacked": 16}
    assert {name: many for name, many in found.topics[0].counts.items() if many} == counts
    assert found.topics[0].is_whole
    assert found.topics[0].lag[-1] == 1
    assert found.notes == ()
    assert [(each["records"], each["is_whole"], each["lost"]) for each in found.journals] == [
        (30, True, ())
    ] * 1 + [(31, True, ())]


def test_the_division_of_the_work_changes_nothing(spark: Any, known: Any) -> None:
    """One shuffle partition or seven: the document is the same, byte for byte."""
    one = analyse(spark, known.directory)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        assert analyse(spark, known.directory).to_json() == one.to_json()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert json.loads(one.to_json())["topics"][0]["redelivery_ratio"] == 10 / 60


def test_topics_and_groups_can_be_chosen(spark: Any, story: Any) -> None:
    """Of two topics and two groups those are told that are asked for; names that are none are refused."""

    async def client(story: Any, runtime: Any) -> None:
        for name, groups in (("orders", ("billing", "stock")), ("refunds", ("billing",))):
            topic = await runtime.create_topic(name)
            await topic.publish_batch([b"1", b"2", b"3"])
            for group in groups:
                async with topic.subscribe(group) as consumer:
                    await (await consumer.get(timeout=1)).ack()

    story.run(client)

    def told(**wanted: str) -> list[tuple[str, str]]:
        return [(each.topic, each.group) for each in analyse(spark, story.directory, **wanted).topics]

    assert told() == [("orders", "billing"), ("orders", "stock"), ("refunds", "billing")]
    assert told(topic="orders", group="stock") == [("orders", "stock")]
    assert told(topic="refunds", group="stock") == []
    with pytest.raises(TopicNotFound, match=r"there is no topic 'order' .* Did you mean 'orders'"):
        told(topic="order")
    with pytest.raises(GroupNotFound, match=r"no group 'bill'\. There are billing, stock"):
        told(group="bill")
    for bucket_us in (0, 1_500_000):
        with pytest.raises(InvalidArgument, match="whole seconds"):
            analyse(spark, story.directory, bucket_us=bucket_us)


def test_expired_released_and_abandoned_leases_are_told_apart(spark: Any, story: Any) -> None:
    """What ran out counts as an attempt, what was given back does not, and a crash voids what was leased."""

    async def client(story: Any, runtime: Any) -> None:
        topic = await runtime.create_topic("orders")
        for _ in range(4):
            await story.publish(topic, 0)
        async with topic.subscribe("billing", visibility_timeout=5, max_in_flight=1) as consumer:
            message = await consumer.get(timeout=1)
            await story.wait(7)
            while (message := await consumer.get(timeout=6)) is not None and message.offset < 3:
                await story.ack(message)
        # The last one is given back as the consumer leaves.

    story.run(client)
    (found,) = analyse(spark, story.directory).topics
    assert {name: many for name, many in found.counts.items() if many} == {
        "delivered": 5,
        "redelivered": 1,
        "acked": 3,
        "released": 1,
        "expired": 1,
    }
    assert dict(found.attempts) == {1: 3, 2: 1}
    assert (found.fates["acked"], found.fates["pending"]) == (3, 1)


def test_what_retention_removed_is_told(spark: Any, story: Any) -> None:
    """Records that the log has no more have no latency; what is there is analysed, and the page says since when."""

    async def client(story: Any, runtime: Any) -> None:
        topic = await runtime.create_topic("orders", segment_bytes=1 << 20, retention_age=100)
        async with topic.subscribe("billing") as consumer:
            for number in range(6):
                await topic.publish(b"x" * 600_000)
                if number == 3:
                    await story.wait(200)
                await story.ack(await consumer.get(timeout=1))
                await story.wait(10)
            await story.wait(60)

    story.run(client)
    found = analyse(spark, story.directory)
    (topic,) = found.topics
    start = found.journals[0]["log_start"]
    assert start > 0
    assert topic.fates["acked"] + topic.fates["gone"] <= 6
    assert topic.fates["acked"] == 6 - start
    assert topic.lag[-1] == 0
    assert any(f"begins at offset {start}" in note for note in found.notes)


def test_damage_is_named(spark: Any, known: Any) -> None:
    """A journal with a hole tells how far it can be read; a damaged log is refused; a folder without topics, too."""
    (journal,) = pathlib.Path(known.directory).glob("topics/*/0/delivery/*.log")
    data = bytearray(journal.read_bytes())
    middle = len(bytes(data).rstrip(b"\0")) // 2
    data[middle : middle + 400] = b"\xff" * 400
    journal.write_bytes(data)
    found = analyse(spark, known.directory)
    assert len(found.journals[0]["lost"]) == 1
    first, last = found.journals[0]["lost"][0]
    assert found.notes == (
        f"orders/0: The journal's records {first} to {last} cannot be read; what they settled has no time.",
    )
    damaged, whole = found.partitions
    assert 20 <= damaged.fates["acked"] < 30
    assert damaged.fates["acked"] + damaged.fates["pending"] == 30
    assert whole.fates["acked"] == 30
    (log,) = pathlib.Path(known.directory).glob("topics/*/1/*.log")
    log.write_bytes(log.read_bytes()[:200] + b"\xff" + log.read_bytes()[201:])
    with pytest.raises(LogCorrupt, match="orders/1: offsets 0 to"):
        analyse(spark, known.directory)
    with pytest.raises(StorageError, match="there is no directory"):
        analyse(spark, known.directory + "/nowhere")


def test_a_topic_without_groups_has_no_deliveries(spark: Any, story: Any) -> None:
    """Nothing is made up where nobody ever consumed, or nothing was published."""

    async def client(story: Any, runtime: Any) -> None:
        await (await runtime.create_topic("orders")).publish(b"1")
        await runtime.create_topic("empty")

    story.run(client)
    found = analyse(spark, story.directory)
    assert (found.topics, found.partitions) == ((), ())
    never = "No group was ever there, as far as the journal reaches back."
    assert found.notes == (f"empty/0: {never}", f"orders/0: {never}")


NOT_FOUND = 221  # awk -F'\t' 'NR > 1 && $6 == 404' nasa_19950801.tsv | wc -l


@pytest.fixture
def lines(nasa_log: pathlib.Path) -> list[bytes]:
    """A web server's day, a request a line."""
    return nasa_log.read_bytes().splitlines()[1:]


async def test_a_web_servers_day_is_analysed_beside_its_runtime(
    spark: Any, lines: list[bytes], tmp_path: pathlib.Path
) -> None:
    """Requests for what was not there fail once; the runtime stays open, with its latest request untaken."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("web", partitions=3)
        for start in range(0, len(lines), 1_000):
            batch = lines[start : start + 1_000]
            await topic.publish_batch(batch, keys=[line.split(b"\t")[0] for line in batch])
        left = len(lines)
        async with topic.subscribe("pages", visibility_timeout=600, backoff=0) as consumer:
            async for received in consumer.batches(max_records=500):
                for message in received:
                    assert message.value is not None
                    if message.attempt == 1 and message.value.split(b"\t")[5] == b"404":
                        await message.nack(delay=0)
                left -= len(received) - len(received.settled_singly)
                await received.ack()
                if not left:
                    break
        await topic.publish(b"one more")
        found = await trio.to_thread.run_sync(analyse, spark, str(tmp_path / "data"))
    (web,) = found.topics
    assert web.fates["acked"] == len(lines) == 30_969
    assert web.fates["pending"] == 1
    assert dict(web.attempts) == {1: len(lines) - NOT_FOUND, 2: NOT_FOUND}
    assert (web.redelivered, web.counts["nacked"]) == (NOT_FOUND, NOT_FOUND)
    assert web.lag[-1] == 1
