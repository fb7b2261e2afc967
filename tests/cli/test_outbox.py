"""Directories with outboxes, through the real entry point."""

from __future__ import annotations

from typing import Any

import trio

import callboard


async def fill(folder: Any) -> None:
    """One order, acked with a bill."""
    async with callboard.open_runtime(folder) as runtime:
        orders = await runtime.create_topic("orders")
        bills = await runtime.create_topic("bills")
        await orders.publish(b"1")
        async with orders.subscribe("billing") as consumer, consumer.receive() as message:
            await message.publish(bills, b"of 1")
        async with bills.subscribe("paying") as consumer, consumer.receive() as message:
            assert message.value == b"of 1"


def test_verify_and_repair_read_outboxes_too(command: Any) -> None:
    """They are partitions as all others are."""
    trio.run(fill, command.folder / "data")
    found = command.run("verify", "--json").json
    assert found["ok"]
    assert "orders/outbox-0" in {log["name"] for log in found["logs"]}
    assert b"nothing is damaged" in command.run("repair").out
    assert b"of 1" in command.run("consume", "bills").out
