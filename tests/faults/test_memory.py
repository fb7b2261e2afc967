"""What memory grows with, and what it does not."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("stream_child.py")
PENDING = 1_000_000


async def test_a_million_pending_messages_cost_a_group_a_few_kilobytes(
    autojump_clock: Any, world: Any
) -> None:
    """What a group has not touched is one range, however long."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for _ in range(PENDING // 100_000):
            await topic.publish_batch([b"x"] * 100_000)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            async with topic.subscribe("group") as consumer:
                (part,) = await topic.describe()
                gc.collect()
                assert (part.groups[0].pending, part.groups[0].ready) == (PENDING, PENDING)
                assert tracemalloc.get_traced_memory()[0] - before < 64 * 1024
                assert await consumer.get() is not None
        finally:
            tracemalloc.stop()
        snapshots = [world.disk.files()[path].rstrip(b"\0") for path in world.journals()]
        assert sum(map(len, snapshots)) < 4 * 1024


async def test_a_million_settled_out_of_order_cost_ranges_only(autojump_clock: Any, world: Any) -> None:
    """A hole at the floor, and all else settled: two ranges."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        for _ in range(3):
            await topic.publish_batch([b"x"] * 100_000)
        async with topic.subscribe("group", max_in_flight=300_000) as consumer:
            held = await consumer.get()
            tracemalloc.start()
            try:
                gc.collect()
                before = tracemalloc.get_traced_memory()[0]
                done = 1
                async for batch in consumer.batches(max_records=100_000, max_wait=0.0):
                    await batch.ack()
                    done += len(batch)
                    del batch
                    if done == 300_000:
                        break
                gc.collect()
                (part,) = await topic.describe()
                assert (part.groups[0].floor, part.groups[0].pending) == (0, 1)
                assert tracemalloc.get_traced_memory()[0] - before < 16 * 1024 * 1024
            finally:
                tracemalloc.stop()
            await held.ack()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc/self/status")
def test_resident_memory_stays_flat_while_a_million_messages_stream(tmp_path: Path) -> None:
    """After the first fifth, what the process holds grows by no more than a few megabytes."""
    done = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path / "data"), str(PENDING)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    samples = [int(line) for line in done.stdout.split()]
    assert len(samples) == 20
    assert max(samples[4:]) - min(samples[4:]) < 24 * 1024, samples
