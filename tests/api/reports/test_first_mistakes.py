"""What a new user is told of the first mistakes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio

import callboard


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged for people."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def of_death(died: trio.Event) -> Callable[[object], None]:
    """A listener that sets the event when a message becomes a dead letter."""
    return lambda event: died.set() if isinstance(event, callboard.events.DeadLettered) else None


def test_a_runtime_outside_trio_says_how_to_begin(tmp_path: Any) -> None:
    """Under asyncio nothing is opened, and the error names `trio.run`."""

    async def main() -> None:
        async with callboard.open_runtime(tmp_path / "data"):
            pass

    with pytest.raises(callboard.WrongRun, match=r"Begin with trio\.run"):
        asyncio.run(main())
    assert not (tmp_path / "data").exists()


def test_a_second_runtime_of_one_process_is_not_told_to_stop_it(tmp_path: Any) -> None:
    """It is the process that reads this."""

    async def main() -> None:
        async with callboard.open_runtime(tmp_path), callboard.open_runtime(tmp_path):
            pass

    with pytest.raises(callboard.DirectoryLocked, match="Use the runtime that has it open") as caught:
        trio.run(main)
    assert "Stop that process" not in str(caught.value)


def test_a_handler_that_always_fails_is_reported(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The line has the cause, promises no other attempt after the last one, and the group has a name."""

    died = trio.Event()

    async def handler(message: callboard.ReceivedMessage) -> None:
        raise LookupError("no tea")

    async def main() -> None:
        async with callboard.open_runtime(tmp_path / "data", on_event=of_death(died)) as runtime:
            orders = await runtime.create_topic("orders")
            await orders.publish(b"tea")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    lambda: orders.work(handler, "kitchen", max_deliveries=2, retry=0, dead_letter_topic=None)
                )
                await died.wait()
                nursery.cancel_scope.cancel()

    with caplog.at_level(logging.WARNING, "callboard"):
        trio.run(main)
    failed = [line for line in lines_of(caplog) if "the handler failed" in line]
    assert failed
    assert all(
        "LookupError: no tea" in line and line.endswith((" again.", " last attempt.")) for line in failed
    )
    assert any(
        "1 message of group kitchen became a dead letter: 'LookupError" in line for line in lines_of(caplog)
    )


def test_a_cause_that_ends_with_a_full_stop_has_one(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Callboard's own errors end with one, and so do the lines."""

    died = trio.Event()

    async def handler(message: callboard.ReceivedMessage) -> None:
        raise ValueError("no such table.")

    async def main() -> None:
        async with callboard.open_runtime(tmp_path / "data", on_event=of_death(died)) as runtime:
            orders = await runtime.create_topic("orders")
            await orders.publish(b"tea")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: orders.work(handler, "kitchen", max_deliveries=1))
                await died.wait()
                nursery.cancel_scope.cancel()

    with caplog.at_level(logging.WARNING, "callboard"):
        trio.run(main)
    (line,) = [line for line in lines_of(caplog) if "the handler failed" in line]
    assert "ValueError: no such table, at test_first_mistakes.py:" in line
    assert " in handler. This was its last attempt." in line


async def test_bounds_are_told_with_their_digits(autojump_clock: Any, world: Any) -> None:
    """No number in a message has an exponent."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        with pytest.raises(callboard.ConfigurationError, match="outside 1 to 1,000,000"):
            async with orders.subscribe("kitchen", max_deliveries=0):
                pass
        with pytest.raises(callboard.InvalidArgument, match=r"0 to 3,\d{3},\d{3},\d{3} \(100 years\)"):
            await orders.publish(b"tea", delay=-1)


async def test_a_misspelt_name_is_told_with_what_was_meant(tmp_path: Any) -> None:
    """Of a topic and of a group; a name that resembles none is told with how to go on."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"value")
        async with orders.subscribe("billing", start="beginning") as consumer, consumer.receive():
            pass
        with pytest.raises(callboard.TopicNotFound, match=r"'order' \(did you mean 'orders'\?\)\. Create it"):
            runtime.topic("order")
        with pytest.raises(callboard.TopicNotFound, match=r"'order' \(did you mean 'orders'\?\)\. Create it"):
            await runtime.alter_topic("order", retention_age=5)
        for ask in (
            callboard.Group.describe,
            callboard.Group.reset,
            callboard.Group.delete,
            callboard.Group.alter,
        ):
            with pytest.raises(
                callboard.GroupNotFound, match=r"'biling' \(did you mean 'billing'\?\)\. A group"
            ):
                await ask(runtime.group("biling"))
            with pytest.raises(
                callboard.GroupNotFound, match=r"no group 'x'\. A group begins with its first"
            ):
                await ask(runtime.group("x"))


async def test_a_header_that_is_no_text_is_told_how_to_encode_it(tmp_path: Any) -> None:
    """As values and keys are."""
    async with callboard.open_runtime(tmp_path / "data") as runtime:
        orders = await runtime.create_topic("orders")
        with pytest.raises(callboard.InvalidArgument, match=r"dict, not bytes or str.* Encode it first"):
            await orders.publish(b"value", headers={"trace": {"id": 1}})  # type: ignore[dict-item]
