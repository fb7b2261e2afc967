"""After a seek, those who still have messages of before hear of it as a cause."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import callboard


async def test_an_ack_after_a_seek_names_it(tmp_path: Path) -> None:
    """`LeaseLost` says that the group was sent elsewhere."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"0", b"1"])
        async with topic.subscribe("billing") as consumer:
            message = await consumer.get()
            await runtime.seek_group("billing", "end")
            with pytest.raises(callboard.LeaseLost, match="sent elsewhere by seek or reset"):
                await message.ack()


async def test_work_that_a_seek_hinders_names_it(tmp_path: Path) -> None:
    """The event of a handler whose message went with the old place."""
    causes: list[str] = []
    begun, sought, told = trio.Event(), trio.Event(), trio.Event()

    def note(event: object) -> None:
        if isinstance(event, callboard.WorkHindered | callboard.HandlerFailed):
            causes.append(event.cause)
            told.set()

    async def handle(message: callboard.ReceivedMessage) -> None:
        begun.set()
        await sought.wait()

    async with callboard.open_runtime(tmp_path / "data") as runtime:
        runtime.subscribe_events(note)
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(topic.work, handle, "billing")
            await begun.wait()
            await runtime.seek_group("billing", "end")
            sought.set()
            await told.wait()
            nursery.cancel_scope.cancel()
    assert "sent elsewhere by seek or reset" in causes[0]
