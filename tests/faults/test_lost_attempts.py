"""Attempts that the delivery journal loses with a failed sync: they count while the process lives."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

import callboard
from callboard.log.seams.disk import Create, Sync

BROKEN = OSError(errno.EIO, "Input/output error")
VISIBILITY_S = 5.0


@pytest.mark.parametrize("is_nacked", [False, True])
async def test_an_attempt_counts_though_the_journal_lost_it_and_the_partition_crashed(
    autojump_clock: Any, world: Any, is_nacked: bool
) -> None:
    """A lease ran out, a sync failed and took that along, the partition crashed: the next attempt is the next."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2)
        async with topic.subscribe("group", visibility_timeout=VISIBILITY_S, backoff=0.0) as consumer:
            first = await consumer.get()
            assert (first.offset, first.attempt) == (0, 1)
            await trio.sleep(2 * VISIBILITY_S)
            second = await consumer.get()
            assert (second.offset, second.attempt) == (0, 2)
            for verb in (Sync, Create):
                world.disk.fail_next(verb, BROKEN, path_contains="/delivery/", pages="reverted")
            other = await consumer.get()
            with pytest.raises(callboard.StorageError):
                await other.ack()
            runtime.crash(f"topics/{topic.name}/0", RuntimeError("a drill"))
            if is_nacked:
                await second.nack(delay=0.0)
            else:
                await trio.sleep(2 * VISIBILITY_S)
            third = await consumer.get(timeout=1.0)
            assert (third.offset, third.attempt) == (0, 3)
