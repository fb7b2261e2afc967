"""Handlers of `Topic.work`, and bodies of `receive`, that fail oddly: what becomes of the message, and what is told."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Never

import outcome
import pytest
import trio

import callboard
from callboard import ReceivedMessage, Reject, Retry

Handle = Callable[[ReceivedMessage], Awaitable[object]]
Row = tuple[int, int]


class NoCustomer(Exception):
    """Its text cannot be told."""

    def __str__(self) -> str:
        return f"no customer {self.customer}"  # type: ignore[attr-defined]


class Worked:
    """What a handler was called with, and what was told of it."""

    def __init__(self) -> None:
        self.seen: list[Row] = []
        self.events: list[Any] = []
        self.reasons: list[str | None] = []
        self.pending = 0

    @property
    def failures(self) -> list[Any]:
        """The events of failed handlers."""
        return [event for event in self.events if isinstance(event, callboard.events.HandlerFailed)]


async def worked(world: Any, handle: Handle, count: int = 1, **options: Any) -> Worked:
    """Work for a minute on so many messages."""
    found = Worked()

    async def call(message: ReceivedMessage) -> None:
        found.seen.append((message.offset, message.attempt))
        await handle(message)

    async with world.open(on_event=found.events.append) as runtime:
        topic = await world.topic_of(runtime, count)
        with trio.move_on_after(60.0):
            await topic.work(call, "group", backoff=1.0, **options)
        found.pending = (await world.group_of(topic)).pending
        found.reasons = [letter.reason for letter in await topic.dead_letters("group").list()]
        assert all(event.exception is None for event in runtime.events() if hasattr(event, "exception"))
    return found


async def test_an_exception_without_text_is_a_failure_like_others(autojump_clock: Any, world: Any) -> None:
    """It is told by its type, counted, and holds up nothing behind it."""

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 0:
            raise NoCustomer

    found = await worked(world, handle, 2, max_deliveries=2)
    assert [(0, 1), (1, 1), (0, 2)] == found.seen
    assert ["NoCustomer: (its __str__ raised AttributeError)"] * 2 == [told.cause for told in found.failures]
    (reason,) = found.reasons
    assert reason is not None
    assert reason.startswith("NoCustomer: (its __str__ raised AttributeError), at test_odd_failures.py:")


async def test_text_that_has_no_utf8_form_is_told(autojump_clock: Any, world: Any) -> None:
    """Half a surrogate pair is escaped, in the event and in the dead letter."""

    async def handle(message: ReceivedMessage) -> None:
        raise ValueError("\ud800")

    found = await worked(world, handle, max_deliveries=1)
    assert "ValueError: \\ud800" == found.failures[0].cause
    assert str(found.reasons[0]).startswith("ValueError: \\ud800, at ")


async def test_a_body_of_receive_that_fails_without_text_nacks(autojump_clock: Any, world: Any) -> None:
    """The body's own exception is raised, and the attempt counts."""
    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        async with topic.subscribe("group", max_deliveries=2, backoff=0.1) as consumer:
            for attempt in (1, 2):
                with pytest.raises(NoCustomer):
                    async with consumer.receive() as message:
                        assert attempt == message.attempt
                        raise NoCustomer
        (letter,) = await topic.dead_letters("group").list()
        assert "NoCustomer: (its __str__ raised AttributeError)" == letter.reason


async def test_a_subscriber_that_fails_without_text_is_told(autojump_clock: Any, world: Any) -> None:
    """`HookFailed` names its type; others hear of the event."""
    events: list[Any] = []

    def broken(event: Any) -> None:
        raise NoCustomer

    async with world.open() as runtime:
        runtime.subscribe_events(broken)
        runtime.subscribe_events(events.append)
        await runtime.create_topic("orders")
    failed = [event.cause for event in events if isinstance(event, callboard.events.HookFailed)]
    assert "NoCustomer: (its __str__ raised AttributeError)" == failed[0]


async def cancelled_elsewhere() -> outcome.Outcome[None]:
    """What became of a task that was cancelled."""
    with trio.move_on_after(0.01):
        return await outcome.acapture(trio.sleep, 1.0)
    raise AssertionError


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("is_grouped", [False, True])
async def test_the_cancellation_of_another_task_is_a_failure(
    autojump_clock: Any, world: Any, concurrency: int, is_grouped: bool
) -> None:
    """`Cancelled` that no scope around the handler has caused ends nothing: the message comes again."""
    shared = await cancelled_elsewhere()

    async def handle(message: ReceivedMessage) -> None:
        if (message.offset, message.attempt) != (0, 1):
            return
        if not is_grouped:
            shared.unwrap()
        try:
            shared.unwrap()
        except trio.Cancelled as error:
            raise BaseExceptionGroup("", [error, ValueError("no kettle")]) from None

    found = await worked(world, handle, 9, concurrency=concurrency)
    assert [(0, 1), *((offset, 1) for offset in range(1, 9)), (0, 2)] == sorted(
        found.seen, key=lambda row: row[::-1]
    )
    assert 0 == found.pending
    (told,) = found.failures
    assert told.cause.startswith("BaseExceptionGroup (2 errors): Cancelled" if is_grouped else "Cancelled")
    assert is_grouped or told.cause.endswith(" (by a scope that is not around the handler)")


async def test_a_handler_that_is_really_cancelled_is_no_failure(autojump_clock: Any, world: Any) -> None:
    """After the grace period its message is released, whether `Cancelled` comes alone or in a group."""

    async def handle(message: ReceivedMessage) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()

    found = await worked(world, handle, 2, concurrency=2, grace=1.0)
    assert [(0, 1), (1, 1)] == sorted(found.seen)
    assert [] == found.failures
    assert 2 == found.pending


async def test_what_is_told_of_a_failure_is_true(autojump_clock: Any, world: Any) -> None:
    """That the message comes again, that this was its last attempt, or that it had been settled before."""

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 1:
            await message.ack()
            await message.ack()
        raise ValueError("no kettle")

    found = await worked(world, handle, 2, max_deliveries=2)
    assert {
        (0, 1): "The message is delivered again.",
        (0, 2): "This was its last attempt.",
        (1, 1): "The handler had settled the message before, which holds.",
    } == {(told.offset, told.attempt): told.outcome for told in found.failures}
    assert {2} == {told.max_deliveries for told in found.failures}
    assert [] == [told for told in found.failures if "after it" in told.cause or not told.exception]


async def test_log_lines_tell_the_attempt_and_what_becomes_of_the_message(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence after the other, and the exception itself is in no record."""
    done = trio.Event()

    def hear(event: Any) -> None:
        if isinstance(event, callboard.events.DeadLettered):
            done.set()

    async def handle(message: ReceivedMessage) -> None:
        await message.extend(-1)

    async with callboard.open_runtime(tmp_path / "data", on_event=hear) as runtime:
        topic = await runtime.create_topic("orders")
        await topic.publish(b"tea")
        with trio.CancelScope() as scope:

            async def end() -> None:
                await done.wait()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(end)
                await topic.work(handle, "group", max_deliveries=2, backoff=0.01)
    records = [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and "the handler failed" in record.getMessage()
    ]
    first, last = [record.getMessage() for record in records]
    assert "with orders/0@0 (attempt 1 of 2): InvalidArgument: seconds is -1, " in first
    assert first.endswith(" in handle. The message is delivered again.")
    assert last.endswith(" in handle. This was its last attempt.")
    assert all("exception" not in record.callboard for record in records)  # type: ignore[attr-defined]


async def test_of_a_deleted_topic_nothing_is_delivered_again(autojump_clock: Any, world: Any) -> None:
    """A handler that ends after its topic was deleted hears of no further delivery."""
    begun, events = trio.Event(), []

    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        await trio.sleep(1.0)
        if message.topic == "jobs":
            raise ValueError("no kettle")

    async with world.open(on_event=events.append) as runtime:
        topic = await world.topic_of(runtime, 1)
        other = await runtime.create_topic("others")
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                with trio.move_on_after(60.0):
                    await runtime.work([topic.name, other.name], handle, "group")

            nursery.start_soon(work)
            await begun.wait()
            await runtime.delete_topic(topic.name)
    told = [
        event
        for event in events
        if isinstance(event, callboard.events.HandlerFailed | callboard.events.WorkHindered)
    ]
    assert told
    assert [] == [event for event in told if "again" in event.outcome]


async def raising(error: BaseException) -> Never:
    """A task of a handler."""
    raise error


async def in_nurseries(*errors: Exception) -> None:
    """Raise each in a task of a nursery in a nursery."""
    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        for number, error in enumerate(errors):
            (inner if number % 2 else outer).start_soon(raising, error)


async def test_retry_and_reject_alone_in_a_handlers_nursery_count(autojump_clock: Any, world: Any) -> None:
    """They mean what they do outside of one; beside another exception they are failures."""
    times: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.offset == 0:
            await in_nurseries(Reject("no such customer"))
        elif message.offset == 1:
            times.append(trio.current_time())
            if len(times) == 1:
                await in_nurseries(Retry(after=7.0))
        elif message.attempt == 1:
            await in_nurseries(Reject("no such customer"), Retry(after=9.0))

    found = await worked(world, handle, 3, concurrency=3)
    assert [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2)] == sorted(found.seen)
    assert 7.0 <= times[1] - times[0] <= 7.2
    assert ["no such customer"] == found.reasons
    (told,) = found.failures
    assert 2 == told.offset


async def test_a_dead_letter_by_retry_tells_what_it_was_raised_from(autojump_clock: Any, world: Any) -> None:
    """Its cause, or what was handled then; a reason of its own comes first."""

    async def handle(message: ReceivedMessage) -> None:
        try:
            raise ValueError("the milk is cold")
        except ValueError as error:
            if message.offset == 0:
                raise Retry(after=1.0) from error
            if message.offset == 1:
                raise Retry(reason="a reason")  # noqa: B904 - it has a context
            if message.offset == 2:
                raise Retry from None
            raise Retry  # noqa: B904 - it has a context

    found = await worked(world, handle, 4, max_deliveries=1)
    reasons = [reason and reason.partition(", at test_odd")[0] for reason in found.reasons]
    told = "ValueError: the milk is cold"
    assert sorted([told, "a reason", None, told], key=str) == sorted(reasons, key=str)


class Alarm(BaseException):
    """Neither an error nor a cancellation."""


@pytest.mark.parametrize("left", [SystemExit(7), KeyboardInterrupt(), Alarm()])
async def test_what_leaves_a_handler_leaves_work_as_it_is(
    autojump_clock: Any, world: Any, left: BaseException
) -> None:
    """Not wrapped by nurseries that the user has not opened; its message is released."""
    cause = KeyError("why")

    async def handle(message: ReceivedMessage) -> None:
        if message.attempt == 1:
            raise left from cause

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        with pytest.raises(type(left)) as raised:
            await topic.work(handle, "group", concurrency=4)
        assert left is raised.value
        assert left.__cause__ is cause
        async with topic.subscribe("group") as consumer:
            message = await consumer.get()
            assert 1 == message.attempt
            await message.ack()


@pytest.mark.parametrize("is_async", [False, True])
async def test_after_an_exception_has_left_no_handler_is_called(
    autojump_clock: Any, world: Any, is_async: bool
) -> None:
    """While another handler ends, what was released and what is published meanwhile is for other consumers."""
    begun, seen = trio.Event(), []

    def handle(message: ReceivedMessage) -> Any:
        seen.append(message.offset)
        if message.offset == 0:
            return clean_up()
        return raising(SystemExit(7)) if is_async else None

    async def clean_up() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5.0)

    async def work(topic: Any) -> None:
        with pytest.raises(SystemExit if is_async else callboard.InvalidArgument):
            await topic.work(handle, "group", concurrency=4)

    async with world.open() as runtime, trio.open_nursery() as nursery:
        topic = await world.topic_of(runtime, 1)
        nursery.start_soon(work, topic)
        await begun.wait()
        await topic.publish(b"tea")
        await trio.sleep(1.0)
        await topic.publish(b"milk")
        await trio.sleep(1.0)
        async with topic.subscribe("group") as consumer:
            with trio.fail_after(1.0):
                got = [await consumer.get(), await consumer.get()]
            assert [(1, 1), (2, 1)] == sorted((message.offset, message.attempt) for message in got)
            for message in got:
                await message.ack()
    assert [0, 1] == seen


async def test_two_exceptions_leave_work_in_one_group(autojump_clock: Any, world: Any) -> None:
    """Those that leave at once are in the group of one nursery."""
    both, arrived = trio.Event(), []

    async def handle(message: ReceivedMessage) -> None:
        arrived.append(message.offset)
        if len(arrived) < 2:
            await both.wait()
        else:  # both go on in the next pass of the loop, whichever is first, and neither is cancelled before
            both.set()
            await trio.lowlevel.cancel_shielded_checkpoint()
        raise SystemExit(message.offset)

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 2)
        with pytest.raises(BaseExceptionGroup) as raised:
            await topic.work(handle, "group", concurrency=2)
    assert {SystemExit} == {type(error) for error in raised.value.exceptions}


async def test_subscribers_have_the_exception(autojump_clock: Any, world: Any) -> None:
    """The event gives it as it was raised; it takes no part in comparisons."""
    error = ValueError("no kettle")

    async def handle(message: ReceivedMessage) -> None:
        if message.attempt == 1:
            raise error

    (told,) = (await worked(world, handle)).failures
    assert error is told.exception
    assert "no kettle" not in repr(told).replace(repr(told.cause), "")


class RateLimited(Retry):
    """A user's own, which does not call the constructor of its base."""

    def __init__(self, status: int) -> None:
        self.status = status


class Gone(Reject):
    """The same."""

    def __init__(self, status: int) -> None:
        self.status = status


async def test_own_kinds_of_retry_and_reject_need_no_constructor(autojump_clock: Any, world: Any) -> None:
    """They have the group's backoff, and no reason of their own."""

    async def handle(message: ReceivedMessage) -> None:
        if message.attempt == 1:
            raise RateLimited(429)
        raise Gone(410)

    found = await worked(world, handle)
    assert found.seen == [(0, 1), (0, 2)]
    assert (found.pending, len(found.reasons)) == (0, 1)
