"""After a seek, those who still have messages of before hear of it as a cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import callboard

ONLY_SOUGHT = (
    r"is lost: the group was sent elsewhere by seek or reset after the message had been delivered\."
    r" This \S+ had no effect on it\.$"
)


async def test_an_ack_after_a_seek_names_it(tmp_path: Path) -> None:
    """`LeaseLost` says that the group was sent elsewhere."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish_batch([b"0", b"1"])
        async with topic.subscribe("billing") as consumer:
            message = await consumer.get()
            await runtime.group("billing").seek("end")
            with pytest.raises(callboard.LeaseLost, match=ONLY_SOUGHT):
                await message.ack()


async def test_work_that_a_seek_hinders_names_it(tmp_path: Path) -> None:
    """The event of a handler whose message went with the old place."""
    causes: list[str] = []
    begun, sought, told = trio.Event(), trio.Event(), trio.Event()

    def note(event: object) -> None:
        if isinstance(event, callboard.events.WorkHindered | callboard.events.HandlerFailed):
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
            await runtime.group("billing").seek("end")
            sought.set()
            await told.wait()
            nursery.cancel_scope.cancel()
    assert "sent elsewhere by seek or reset" in causes[0]
    assert "ran out" not in causes[0]


@pytest.mark.parametrize("verb", ["nack", "extend", "ack without waiting", "ack and publish", "the body"])
async def test_whatever_a_seek_has_ended_names_it_alone(tmp_path: Path, verb: str) -> None:
    """And not that leases run out, which a longer timeout would help."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        topic = await runtime.create_topic("orders")
        other = await runtime.create_topic("other")
        await topic.publish_batch([b"0", b"1"])
        async with topic.subscribe("billing") as consumer:
            message = await consumer.get()
            await runtime.group("billing").reset()
            with pytest.raises(callboard.LeaseLost) as caught:
                if verb == "nack":
                    await message.nack()
                elif verb == "extend":
                    await message.extend(30)
                elif verb == "ack without waiting":
                    await message.ack(wait=False)
                    await consumer.flush()
                elif verb == "ack and publish":
                    await message.publish(other.name, b"")
                    await message.ack()
                else:
                    async with consumer.receive():
                        await runtime.group("billing").reset()
    assert "sent elsewhere by seek or reset after the message had been delivered" in str(caught.value)
    assert "ran out" not in str(caught.value)
    assert "Somebody else" not in str(caught.value)


async def test_a_lease_that_ran_out_names_no_seek(autojump_clock: Any, world: Any) -> None:
    """Whatever was sought before: the message of afterwards was leased again."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        async with topic.subscribe("billing", visibility_timeout=1.0) as consumer:
            await runtime.group("billing").seek("beginning")
            message = await consumer.get()
            await trio.sleep(2.0)
            assert (await consumer.get()).offset == message.offset
            with pytest.raises(
                callboard.LeaseLost, match="ran out and the message was leased again"
            ) as caught:
                await message.ack()
    assert "seek" not in str(caught.value)
    assert "use a longer visibility_timeout" in str(caught.value)


async def test_losses_of_both_kinds_name_both(autojump_clock: Any, world: Any) -> None:
    """Of acks that nobody waited for, in one flush."""
    async with world.open() as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"0")
        async with topic.subscribe("billing", visibility_timeout=1.0) as consumer:
            sought = await consumer.get()
            await runtime.group("billing").seek("beginning")
            expired = await consumer.get()
            await trio.sleep(2.0)
            await consumer.get()
            await sought.ack(wait=False)
            await expired.ack(wait=False)
            with pytest.raises(
                callboard.LeaseLost, match="or it was settled, or the group was sent elsewhere"
            ):
                await consumer.flush()
