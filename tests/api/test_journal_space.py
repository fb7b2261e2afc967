"""The delivery journals' share of the disk: bounded by what the log keeps."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

import callboard
from callboard.log.limits import Limits

KIB = 1024


def journal_bases(directory: Path) -> list[int]:
    """The first sequence numbers of the delivery journal's segments."""
    return sorted(int(path.stem) for path in directory.glob("topics/*/0/delivery/*.log"))


def journal_bytes(directory: Path) -> int:
    """What the delivery journal takes of the disk."""
    return sum(path.stat().st_size for path in directory.glob("topics/*/0/delivery/*"))


async def stream(topic: callboard.Topic, consumer: callboard.Consumer, messages: int) -> None:
    """Publish and settle so many messages, each ack an event of its own."""
    for _ in range(messages // 100):
        await topic.publish_batch([bytes(KIB)] * 100)
        for _ in range(100):
            message = await consumer.get()
            assert message is not None
            await message.ack(wait=False)
        await consumer.flush()


FREQUENT_SNAPSHOTS = Limits(snapshot_every_bytes=2 * KIB)
"""Snapshots after 2 KiB of journal instead of 1 MiB."""


async def test_journal_segments_go_with_the_log_segments_that_they_tell_of(tmp_path: Path) -> None:
    """Retention drops the journal's oldest segments too, and what is left opens to the same delivery state."""
    async with callboard.open_runtime(tmp_path, limits=FREQUENT_SNAPSHOTS) as runtime:
        topic = await runtime.create_topic("stream", segment_bytes=64 * KIB, retention_bytes=128 * KIB)
        async with topic.subscribe("group") as consumer:
            await stream(topic, consumer, 1000)
            bases = journal_bases(tmp_path)
            assert bases[0] > 0
            await stream(topic, consumer, 1000)
        later = journal_bases(tmp_path)
        assert later[0] > bases[0]
        assert len(later) <= len(bases) + 3
    async with callboard.open_runtime(tmp_path, limits=FREQUENT_SNAPSHOTS) as runtime:
        async with runtime.topic("stream").subscribe("group") as consumer:
            assert await consumer.get(timeout=0.01) is None
            receipt = await runtime.topic("stream").publish(b"next")
            message = await consumer.get()
            assert (receipt.offset, message.offset, message.value) == (2000, 2000, b"next")


async def test_without_retention_journal_segments_stay(tmp_path: Path) -> None:
    """As long as the log keeps its records, what became of them can be told from the journal."""
    async with callboard.open_runtime(tmp_path, limits=FREQUENT_SNAPSHOTS) as runtime:
        topic = await runtime.create_topic("stream", segment_bytes=64 * KIB)
        async with topic.subscribe("group") as consumer:
            await stream(topic, consumer, 1000)
            bases = journal_bases(tmp_path)
    assert bases[0] == 0
    assert len(bases) > 1


LITTLE_HISTORY = attrs.evolve(
    FREQUENT_SNAPSHOTS, journal_history_bytes=64 * KIB, journal_reserve_bytes=4 * KIB
)


@pytest.mark.parametrize("retention_bytes", [None, 128 * KIB])
async def test_a_message_that_comes_back_for_ever_does_not_fill_the_disk(
    tmp_path: Path, retention_bytes: int | None
) -> None:
    """The journal's history is bounded by a size, also while the log does not move; what is dropped is counted."""
    async with callboard.open_runtime(tmp_path, limits=LITTLE_HISTORY) as runtime:
        topic = await runtime.create_topic("loop", segment_bytes=64 * KIB, retention_bytes=retention_bytes)
        await topic.publish(bytes(KIB) if retention_bytes is None else bytes(100 * KIB))
        async with topic.subscribe("group") as consumer:
            for _ in range(1500):
                message = await consumer.get()
                assert message is not None
                await message.nack(delay=0, reason="again and again, for the same reason each time")
        (partition,) = (await runtime.stats()).partitions
        attempt = message.attempt
    history = 64 * KIB if retention_bytes is None else 28 * KIB
    assert 0 < partition.history_bytes <= history
    assert partition.dropped_history_bytes > 100 * KIB
    assert journal_bytes(tmp_path) < history + 24 * KIB
    async with callboard.open_runtime(tmp_path, limits=LITTLE_HISTORY) as runtime:
        async with runtime.topic("loop").subscribe("group") as consumer:
            message = await consumer.get()
            assert message is not None
            assert message.attempt == attempt + 1
