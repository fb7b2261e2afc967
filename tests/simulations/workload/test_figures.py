"""Figures of a past in virtual time: times are exact to a bin, and what is not known any more is told."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import trio

from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.log.limits import KIB, Limits
from callboard.simulations.workload.analysis_plan import plan_analysis
from callboard.simulations.workload.figures import figures_of

SECOND_US = 1_000_000
RECORDS = 200


async def _ack_each(story: Any, runtime: Any) -> None:
    topic = await runtime.create_topic("orders")
    async with topic.subscribe("billing") as consumer:
        for _ in range(RECORDS):
            await story.publish(topic, 0)
            await story.ack(await consumer.get(timeout=1))
            await trio.sleep(1)


def _figures(story: Any) -> Any:
    return trio.run(figures_of, story.directory, "orders", "billing")


def test_times_and_lag_are_what_was_lived(story: Any) -> None:
    """Ten messages; each is acked ten seconds after the one before, and the lag falls by one each time."""

    async def client(story: Any, runtime: Any) -> None:
        topic = await runtime.create_topic("orders")
        async with topic.subscribe("billing", visibility_timeout=1_000, max_in_flight=1) as consumer:
            for _ in range(10):
                await story.publish(topic, 0)
            for _ in range(10):
                await story.wait(10)
                await story.ack(await consumer.get(timeout=1))

    story.run(client)
    found = _figures(story)
    assert (found.messages, found.settled, found.lag_max) == (10, 10, 10)
    for percent, seconds in ((50, 50), (90, 90), (100, 100)):
        took_s = found.settling.quantile(percent, 100) / SECOND_US
        assert seconds <= took_s <= (seconds + 2) * 33 / 32
    assert found.lag_p50 in {4, 5, 6}
    assert found.notes == ()


def test_what_retention_removed_is_told(story: Any) -> None:
    """Its redeliveries are counted, and its messages are not there."""

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
    found = _figures(story)
    assert 0 < found.messages < 6
    assert found.settled == found.messages
    assert found.counts["acked"] == 6
    (note,) = found.notes
    assert f"orders/0: {6 - found.messages} messages" in note


def test_what_the_journal_does_not_hold_any_more_is_told(story: Any) -> None:
    """The first segments of it are gone: a snapshot says what was settled, and nobody when."""

    story.run(_ack_each, limits=Limits(snapshot_every_bytes=2 * KIB))
    plan = trio.run(plan_analysis, story.directory, "orders", "billing")
    (place,) = plan.places
    for base in place.journal.bases[:2]:
        os.remove(f"{story.directory}/{place.journal.directory}/{base:020}.log")
    found = _figures(story)
    (start,) = found.starts
    assert 0 < start < RECORDS
    assert (found.messages, found.settled, found.counts["acked"]) == (
        RECORDS - start,
        RECORDS - start,
        RECORDS,
    )
    assert found.settling.count == RECORDS - start
    assert found.notes == (
        f"orders/0: the journal has the group from offset {start} on; the rest is left out",
    )


def test_what_a_lost_part_of_the_journal_told_has_no_time(story: Any) -> None:
    """The snapshot behind it says what was settled, and not when."""
    story.run(_ack_each, limits=Limits(snapshot_every_bytes=2 * KIB))
    plan = trio.run(plan_analysis, story.directory, "orders", "billing")
    (place,) = plan.places
    path = pathlib.Path(story.directory, place.journal.directory, f"{place.journal.bases[1]:020}.log")
    path.write_bytes(b"\xff" * SEGMENT_HEADER_BYTES + path.read_bytes()[SEGMENT_HEADER_BYTES:])
    found = _figures(story)
    assert (found.messages, found.settled) == (RECORDS, RECORDS)
    (note,) = found.notes
    assert f"of {RECORDS - found.settling.count:,} messages the journal does not say any more" in note


def test_a_group_that_never_read_the_topic_has_nothing(story: Any) -> None:
    """All of its messages count as neither settled nor delivered, and that is told."""

    async def client(story: Any, runtime: Any) -> None:
        topic = await runtime.create_topic("orders")
        other = await runtime.create_topic("other")
        await story.publish(topic, 0)
        async with other.subscribe("billing"):
            await story.wait(1)

    story.run(client)
    found = _figures(story)
    assert (found.messages, found.settled, found.delivery, found.settling) == (1, 0, None, None)
    assert found.notes == ("group 'billing' has never read topic 'orders'",)
