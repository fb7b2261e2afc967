"""What `stats()` tells of forwarders that have failed for good."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import callboard


async def fail_for_good(runtime: Any, path: str) -> None:
    """Crash an actor until its supervisor gives it up."""
    failed = trio.Event()

    def hear(event: object) -> None:
        if isinstance(event, callboard.events.ActorFailed) and event.path == path:
            failed.set()

    unsubscribe = runtime.subscribe_events(hear)
    while not failed.is_set():
        runtime.crash(path, ValueError("on purpose"))
        await trio.sleep(0.2)
    unsubscribe()


@pytest.mark.parametrize(
    ("path", "figure"), [("outbox", "forwarded"), ("scheduler", "moved"), ("dead-letters", "forwarded")]
)
@pytest.mark.parametrize("is_asked_before", [False, True])
async def test_counters_outlive_the_actor(
    autojump_clock: Any, world: Any, path: str, figure: str, *, is_asked_before: bool
) -> None:
    """They stay as they were when it crashed last, whether or not they were asked for before."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await runtime.create_topic("bills")
        await orders.publish(b"later", delay=1)
        await orders.publish_batch([b"good", b"bad"])
        async with orders.subscribe("billing", dead_letter_topic="bills") as consumer:
            async with consumer.receive(timeout=1) as message:
                await message.publish("bills", b"bill")
            await (await consumer.get(timeout=1)).reject()
        await trio.sleep(2)

        async def count() -> int:
            statistics = await runtime.stats()
            rows = {"outbox": statistics.outbox, "scheduler": statistics.delayed}
            (row,) = rows.get(path, statistics.forwarding)
            found: int = getattr(row, figure)
            return found

        if is_asked_before:
            assert await count() == 1
        await fail_for_good(runtime, path)
        assert await count() == 1
        await runtime.restart(path)
        await trio.sleep(1)
        assert await count() == 1
