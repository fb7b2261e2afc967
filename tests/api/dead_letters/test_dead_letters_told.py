"""That messages became dead letters is told, with how many and why."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

import callboard
from callboard.reports.reporting import Reporter


async def test_each_dead_letter_is_told_once(autojump_clock: Any, world: Any) -> None:
    """Rejected ones, those that failed too often, and those whose process ended; not again at the next opening."""
    events: list[Any] = []

    def told() -> list[tuple[int, str | None]]:
        found = [event for event in events if isinstance(event, callboard.events.DeadLettered)]
        return [(event.records, event.reason) for event in found]

    async with world.open(on_event=events.append) as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"a", b"b", b"c"])
        async with orders.subscribe("billing", max_deliveries=2, retry=0) as consumer:
            await (await consumer.get()).reject(reason="no order\nat all")
            for _ in range(4):
                await (await consumer.get()).nack(reason="closed")
        assert told() == [(1, "no order\nat all"), (1, "closed"), (1, "closed")]
    events.clear()
    async with world.open(on_event=events.append) as runtime, runtime.topic("orders").subscribe("billing"):
        await trio.sleep(10)
    assert told() == []


def test_it_is_a_line_in_the_log(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One line, whatever the reason holds."""

    async def main() -> None:
        async with callboard.open_runtime(tmp_path / "data") as runtime:
            orders = await runtime.create_topic("orders")
            await orders.publish(b"a")
            async with orders.subscribe("billing") as consumer:
                await (await consumer.get()).reject(reason="no order\nat all")

    with caplog.at_level(logging.WARNING, "callboard"):
        trio.run(main)
    (line,) = [record.getMessage() for record in caplog.records if "dead letter" in record.getMessage()]
    assert "1 message of group billing became" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("records", "reason", "said"),
    [
        (1, None, "1 message of group 7 became a dead letter. Look with"),
        (1, "", "1 message of group 7 became a dead letter: ''. Look with"),
        (3, None, "3 messages of group 7 became dead letters. Look with"),
        (
            3,
            "no order",
            "3 messages of group 7 became dead letters, the last one because of: 'no order'. Look with",
        ),
    ],
)
def test_a_reason_is_said_when_there_is_one(
    caplog: pytest.LogCaptureFixture, records: int, reason: str | None, said: str
) -> None:
    """A message that was nacked without a reason until it died became a dead letter, and no more is said."""
    caplog.set_level(logging.WARNING, "callboard")
    Reporter(lambda: 0.0).report(callboard.events.DeadLettered("topics/orders/0", 7, records, reason))
    assert said in caplog.text
