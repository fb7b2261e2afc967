"""What the log, and the reasons of dead letters, tell of failures in users' code: their cause and their place."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.consumer.messages import ReceivedMessage


class NoCustomer(Exception):
    """What a shop raises."""


def deep(customer: str) -> None:
    """The innermost frame of a user's code."""
    raise NoCustomer(customer)


async def find(customer: str) -> None:
    """A task of a handler."""
    deep(customer)


async def in_a_nursery(message: ReceivedMessage) -> None:
    """A handler whose failure a nursery wraps."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(find, "4711")


async def in_nurseries(message: ReceivedMessage) -> None:
    """A handler of which five tasks fail."""
    async with trio.open_nursery() as outer:
        outer.start_soon(in_a_nursery, message)
        for customer in "abcd":
            outer.start_soon(find, customer)


async def in_a_library(message: ReceivedMessage) -> None:
    """A handler whose innermost frame is not the user's own."""
    json.loads("{")


def lines_of(caplog: Any, logger: str) -> list[str]:
    """The warnings of a logger."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == f"callboard.{logger}" and record.levelno == logging.WARNING
    ]


async def letters_of(path: Path, handle: Any, count: int = 1) -> tuple[list[str | None], list[Any]]:
    """The reasons of the dead letters when each of `count` messages is tried once, and the events `HandlerFailed`."""
    events: list[Any] = []
    done = trio.Event()

    def hear(event: Any) -> None:
        events.append(event)
        if (
            sum(event.records for event in events if isinstance(event, callboard.events.DeadLettered))
            == count
        ):
            done.set()

    async with callboard.open_runtime(path / "data", on_event=hear) as runtime:
        orders = await runtime.create_topic("orders")
        for number in range(count):
            await orders.publish(str(number).encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(orders.work, handle, "billing", max_deliveries=1, start="beginning"))
            await done.wait()
            nursery.cancel_scope.cancel()
        reasons = [letter.reason for letter in await orders.dead_letters("billing").list()]
    return reasons, [event for event in events if isinstance(event, callboard.events.HandlerFailed)]


async def test_a_nursery_hides_no_cause(tmp_path: Path, caplog: Any) -> None:
    """A handler's group of one is told as the exception in it, with its place, in the line and in the dead letter."""
    (reason,), (failed,) = await letters_of(tmp_path, in_a_nursery)
    assert failed.cause == "NoCustomer: 4711"
    assert reason == "NoCustomer: 4711, at test_failures_told.py:24 in deep"
    (line,) = (line for line in lines_of(caplog, "groups") if "handler failed" in line)
    assert f"{reason}. This was its last attempt." in line


async def test_a_group_is_told_by_its_leaves(tmp_path: Path) -> None:
    """Of five failures three are named, and the others counted."""
    _, (failed,) = await letters_of(tmp_path, in_nurseries)
    cause = failed.cause
    assert cause.startswith("ExceptionGroup (5 errors): NoCustomer: ")
    assert cause.count("NoCustomer") == 3
    assert cause.endswith("; and 2 more")


async def test_the_place_is_the_users_own_code(tmp_path: Path) -> None:
    """What a library raises is told where the user called it."""
    (reason,), _ = await letters_of(tmp_path, in_a_library)
    assert reason is not None
    assert reason.startswith("JSONDecodeError: ")
    assert reason.endswith(" in in_a_library")


async def test_a_new_kind_of_failure_is_told_at_once(tmp_path: Path, caplog: Any) -> None:
    """However many fail with one exception, another one is told; closing names the group of what was left out."""

    async def handle(message: ReceivedMessage) -> None:
        if message.value == b"8":
            raise KeyError("a NEW bug")
        raise ConnectionError

    await letters_of(tmp_path, handle, 9)
    failed = [line for line in lines_of(caplog, "groups") if "handler failed" in line]
    assert [line.count("ConnectionError, at ") for line in failed] == [1] * 5 + [0]
    assert "KeyError: 'a NEW bug', at test_failures_told.py:" in failed[-1]
    assert "3 of group billing" in caplog.records[-1].getMessage()


async def test_a_crash_is_told_with_its_place(tmp_path: Path, caplog: Any) -> None:
    """An actor's crash line names the line of its code, whether it starts or runs."""

    class Bad(callboard.Actor[int]):
        def __init__(self) -> None:
            raise KeyError("no DATABASE_URL")

        async def receive(self, message: int) -> None:
            pass

    async with callboard.open_runtime(tmp_path / "data") as runtime:
        with pytest.raises(
            callboard.ActorStopped, match=r"no DATABASE_URL', at test_failures_told\.py:\d+ in __init__"
        ):
            await runtime.spawn(Bad, name="bad")
    (line,) = lines_of(caplog, "actors")
    assert line.startswith("user/bad crashed (KeyError: 'no DATABASE_URL', at test_failures_told.py:")


@pytest.mark.parametrize("by_name", [False, True])
async def test_a_broken_subscriber_is_told(tmp_path: Path, caplog: Any, by_name: bool) -> None:
    """What a subscriber raises is a warning with its place, a few times a minute; other subscribers hear of it too."""
    others: list[Any] = []

    def broken(event: Any) -> None:
        raise LookupError("no such gauge")

    async with callboard.open_runtime(tmp_path / "data", on_event=broken if by_name else None) as runtime:
        runtime.subscribe_events(others.append)
        if not by_name:
            runtime.subscribe_events(broken)
            runtime.subscribe_events(broken)  # two that fail of each other's failures
        for number in range(9):
            await runtime.create_topic(f"orders-{number}")
    lines = lines_of(caplog, "actors")
    assert len(lines) == 5
    assert lines[0].startswith(
        "a subscriber to events raised LookupError: no such gauge, at test_failures_told.py:"
    )
    assert any(isinstance(event, callboard.events.HookFailed) for event in others)
    assert "of subscribers to events" in caplog.records[-1].getMessage()
