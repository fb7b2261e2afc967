"""Arguments that cannot be meant are refused at once, in words that name them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import callboard

Call = Callable[[callboard.Runtime, callboard.Topic], Any]

WRONG: dict[str, tuple[Call, str]] = {
    "no group": (lambda runtime, _: runtime.subscribe(["orders"]), "no group is named"),  # type: ignore[call-overload]
    "a bad name": (lambda _, orders: orders.subscribe("a/b"), "'a/b' cannot be the name of a group"),
    "a misspelt argument": (
        lambda _, orders: orders.work(print, "billing", conncurrency=2),
        "work takes no argument 'conncurrency' (did you mean 'concurrency'?)",
    ),
    "the same of several": (
        lambda runtime, _: runtime.work(["orders"], print, "billing", conncurrency=2),
        "(did you mean 'concurrency'?)",
    ),
    "nothing to alter": (
        lambda runtime, _: runtime.group("billing").alter(),
        "none is named that is to change",
    ),
    "no choice": (
        lambda runtime, _: runtime.dead_letters("orders").redrive("x"),
        "choose is 'x', not a plain function",
    ),  # type: ignore[arg-type]
    "a delayed id": (
        lambda _, orders: orders.publish(b"1", delay=5, dedup_id="1"),
        "a delayed message has a dedup_id",
    ),
    "no topic there": (
        lambda runtime, _: runtime.group("billing").seek("end", topic="refunds"),
        "group 'billing' reads no topic 'refunds'",
    ),
}


@pytest.mark.parametrize("which", WRONG)
async def test_what_cannot_be_meant_is_refused(world: Any, which: str) -> None:
    """Without a trace of what is inside: a few frames, and one line that says what to do."""
    call, words = WRONG[which]
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        async with orders.subscribe("billing"):
            with pytest.raises(callboard.InvalidArgument, match=re.escape(words)) as caught:
                found = call(runtime, orders)
                if isinstance(found, Awaitable):
                    await found
    if which == "a bad name":
        assert len(caught.traceback) <= 5


@pytest.mark.parametrize("given", [(0, 1), (True, 1), ("1", 1), (100_001, 1), (1, -1), (1, "1")])
async def test_the_size_of_a_batch_is_checked(world: Any, given: tuple[Any, Any]) -> None:
    """Before anything is leased, for `get_batch` as for `batches`."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        async with orders.subscribe("billing") as consumer:
            with pytest.raises(callboard.InvalidArgument, match=r"max_records|max_wait"):
                await consumer.get_batch(max_records=given[0], max_wait=given[1])
            with pytest.raises(callboard.InvalidArgument, match=r"max_records|max_wait"):
                consumer.batches(max_records=given[0], max_wait=given[1])


def test_what_a_handler_raises_names_its_own_argument() -> None:
    """`Retry` takes `after`."""
    with pytest.raises(callboard.InvalidArgument, match="after is '5'"):
        callboard.Retry("5")  # type: ignore[arg-type]


def test_a_runtime_without_a_directory() -> None:
    """Whether none or both were given is said."""
    with pytest.raises(callboard.InvalidArgument, match="neither was given"):
        callboard.open_runtime(None)


async def test_an_ack_after_the_consumer_was_left_says_so(world: Any) -> None:
    """It is one of the causes that `LeaseLost` names."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish(b"tea")
        async with orders.subscribe("billing", start="beginning") as consumer:
            message = await consumer.get()
        with pytest.raises(callboard.LeaseLost, match="its consumer was left"):
            await message.ack()


async def test_a_start_past_the_end_is_the_end(world: Any) -> None:
    """An offset holds in every partition, and each has its own: the nearest that there is counts."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        await orders.publish_batch([b"0", b"1", b"2"])
        async with orders.subscribe("billing", start=99) as consumer:
            await orders.publish(b"3")
            assert (await consumer.get()).offset == 3


async def test_the_receipt_of_a_delayed_publish(world: Any) -> None:
    """It is a `ScheduledReceipt`, as type checkers are told."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        for given in ({"delay": 5.0}, {"deliver_at": datetime(2100, 1, 1, tzinfo=UTC)}):
            assert isinstance(await orders.publish(b"tea", **given), callboard.hints.ScheduledReceipt)


@pytest.mark.parametrize(
    "start",
    [
        datetime.min.replace(tzinfo=ZoneInfo("Europe/Berlin")),
        datetime.max.replace(tzinfo=ZoneInfo("America/Lima")),
    ],
    ids=["before the first", "after the last"],
)
async def test_an_instant_that_utc_does_not_have_is_refused(world: Any, start: datetime) -> None:
    """Before it comes to the catalog, which stores it in UTC."""
    async with world.open() as runtime:
        orders = await runtime.create_topic("orders")
        with pytest.raises(
            callboard.ConfigurationError, match="in UTC is no datetime of the years 1 to 9999"
        ):
            async with orders.subscribe("billing", start=start):
                pass
        assert await runtime.groups() == ()
