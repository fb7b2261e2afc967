"""`Topic.work`: a handler for each message, several at a time, and what becomes of each message."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio

import callboard
from callboard import ReceivedMessage, Reject, Retry
from callboard.actors.groups.commands import Fence
from callboard.consumer.lazy_acks import ACK_LINGER_S

Handle = Callable[[ReceivedMessage], Awaitable[object]]


async def work_for(seconds: float, topic: callboard.Topic, handler: Handle, **options: Any) -> None:
    """Work for so long."""
    with trio.move_on_after(seconds):
        await topic.work(handler, "group", **options)


async def pending_of(world: Any, topic: callboard.Topic) -> int:
    """How many messages of the first partition the group has not settled."""
    count: int = (await world.group_of(topic)).pending
    return count


async def test_what_a_handler_returns_from_is_acked(autojump_clock: Any, world: Any) -> None:
    """Each message comes once; after a power cut they are still settled."""
    seen: list[tuple[int, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.offset, message.attempt))

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 300)
        await work_for(60.0, topic, handle, concurrency=8)
        assert [(offset, 1) for offset in range(300)] == sorted(seen)
        assert 0 == await pending_of(world, topic)
    world.disk.crash()
    async with world.open() as runtime:
        await work_for(60.0, runtime.topic("jobs"), handle)
    assert 300 == len(seen)


async def test_as_many_handlers_run_as_allowed_and_no_more(autojump_clock: Any, world: Any) -> None:
    """Handlers that wait run beside each other; twelve of a second each take three seconds in four places."""
    running = most = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1.0)
        running -= 1

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 12)
        began = trio.current_time()
        with trio.CancelScope() as scope:

            async def last(message: ReceivedMessage) -> None:
                await handle(message)
                if message.offset == 11:
                    scope.cancel()

            await topic.work(last, "group", concurrency=4)
        assert (3.0, 4, 0) == (round(trio.current_time() - began, 2), most, running)
        assert 0 == await pending_of(world, topic)


async def test_what_a_handler_fails_with_comes_again(
    autojump_clock: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the backoff, told as an event with the place; others are not held up."""
    seen: list[tuple[int, int, float]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.offset, message.attempt, trio.current_time() - began))
        if message.offset == 1 and message.attempt < 3:
            raise ValueError("no such\nkettle")

    events: list[Any] = []
    async with world.open() as runtime:
        runtime.subscribe_events(events.append)
        topic = await world.topic_of(runtime, 3)
        began = trio.current_time()
        await work_for(60.0, topic, handle, backoff=2.0, max_backoff=60.0)
        assert 0 == await pending_of(world, topic)
    assert [(0, 1), (1, 1), (2, 1), (1, 2), (1, 3)] == [row[:2] for row in seen]
    assert 1.8 <= seen[3][2] <= 2.1
    assert 5.4 <= seen[4][2] <= 6.2
    failures = [event for event in events if isinstance(event, callboard.events.HandlerFailed)]
    assert [(1, 1), (1, 2)] == [(event.offset, event.attempt) for event in failures]
    assert "ValueError: no such kettle" == failures[0].cause
    assert any("in handle" in frame for frame in failures[0].frames)


async def test_a_handler_says_when_it_wants_a_message_again(autojump_clock: Any, world: Any) -> None:
    """`Retry(after=...)` is no failure that is told; without a time the backoff holds."""
    seen: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(trio.current_time() - began)
        if message.attempt == 1:
            raise Retry(after=7.0, reason="the kettle is cold")
        if message.attempt == 2:
            raise Retry

    events: list[Any] = []
    async with world.open() as runtime:
        runtime.subscribe_events(events.append)
        topic = await world.topic_of(runtime, 1)
        began = trio.current_time()
        await work_for(60.0, topic, handle, backoff=1.0)
        assert 0 == await pending_of(world, topic)
    assert 3 == len(seen)
    assert 7.0 <= seen[1] <= 7.1
    assert 1.8 <= seen[2] - seen[1] <= 2.1
    assert not [event for event in events if isinstance(event, callboard.events.HandlerFailed)]
    for wrong in ({"after": -1.0}, {"after": "soon"}, {"reason": 5}):
        with pytest.raises(callboard.InvalidArgument):
            Retry(**wrong)  # type: ignore[arg-type]


async def test_a_handler_gives_a_message_up(autojump_clock: Any, world: Any) -> None:
    """`Reject` makes it a dead letter at once; so does the last failure that `max_deliveries` allows."""
    seen: list[tuple[int, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.offset, message.attempt))
        if message.offset == 0:
            raise Reject("no such customer")
        if message.offset == 1:
            raise ValueError("no kettle")

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        await work_for(60.0, topic, handle, max_deliveries=3, backoff=1.0)
        letters = await topic.dead_letters("group").list()
        assert 0 == await pending_of(world, topic)
    assert [(0, 1), (1, 1), (2, 1), (1, 2), (1, 3)] == seen
    assert [(0, "no such customer"), (1, "ValueError: no kettle, at test_working.py:141 in handle")] == [
        (letter.record.offset, letter.reason) for letter in letters
    ]
    with pytest.raises(callboard.InvalidArgument):
        Reject(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_messages_of_a_key_come_one_after_the_other(
    autojump_clock: Any, world: Any, ordering: str
) -> None:
    """Whatever time each takes: no two at once, and in order; other keys go on meanwhile."""
    source = random.Random(5)
    keys = [b"key %d" % source.randrange(5) for _ in range(200)]
    running: set[bytes] = set()
    most, order = 0, list[tuple[bytes, bytes]]()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal most
        assert message.key is not None
        assert message.key not in running
        running.add(message.key)
        most = max(most, len(running))
        order.append((message.key, message.value))
        await trio.sleep(source.choice((0.0, 0.01, 0.5)))
        running.remove(message.key)

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await topic.publish_batch([b"%03d" % number for number in range(200)], keys=keys)
        await work_for(600.0, topic, handle, concurrency=16, ordering=ordering)
        assert 0 == await pending_of(world, topic)
    for key in set(keys):
        values = [value for of, value in order if of == key]
        assert sorted(values) == values
        assert keys.count(key) == len(values)
    assert most > 1


@pytest.mark.parametrize("grace", [5.0, 0.5, 0.0])
async def test_cancelled_work_ends_what_is_in_hand(autojump_clock: Any, world: Any, grace: float) -> None:
    """Nothing new is begun; what runs has the grace period, what waits is at once for others, as a first attempt."""
    begun: list[int] = []
    ended: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.offset)
        await trio.sleep(2.0)
        ended.append(message.offset)

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 20)
        began = trio.current_time()
        await work_for(1.0, topic, handle, concurrency=3, grace=grace)
        done = [0, 1, 2] if grace > 1.0 else []
        assert (done, [0, 1, 2]) == (sorted(ended), begun)
        assert round(1.0 + min(grace, 1.0), 2) == round(trio.current_time() - began, 2)
        async with topic.subscribe("group") as other:
            messages = [await other.get(timeout=0.1) for _ in range(20 - len(done))]
            assert [(offset, 1) for offset in range(len(done), 20)] == sorted(
                (message.offset, message.attempt) for message in messages if message is not None
            )


async def test_what_a_handler_raises_when_its_grace_is_over_is_told(autojump_clock: Any, world: Any) -> None:
    """Also out of a nursery of its own: who has cancelled `work` is not to hear of it."""

    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    async def handle(message: ReceivedMessage) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean_up)
            nursery.start_soon(trio.sleep_forever)

    events: list[Any] = []
    async with world.open() as runtime:
        runtime.subscribe_events(events.append)
        topic = await world.topic_of(runtime, 1)
        await work_for(1.0, topic, handle, grace=0.5)
        (failed,) = [event for event in events if type(event).__name__ == "HandlerFailed"]
        assert "while cleaning up" in failed.cause
        async with topic.subscribe("group") as other:
            assert (await other.get()).attempt == 1


@pytest.mark.parametrize("ticks", range(12))
async def test_work_may_be_cancelled_while_it_begins(autojump_clock: Any, world: Any, ticks: int) -> None:
    """At any moment of that it ends at once, and holds nothing."""

    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(topic.work, handle, "group", grace=1.0))
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert trio.current_time() <= 1.1
        async with topic.subscribe("group") as other:
            assert 0 == (await other.get()).offset


async def test_slow_handlers_leave_what_waits_to_others(autojump_clock: Any, world: Any) -> None:
    """Who has time gets what somebody else has fetched and not begun."""
    by: dict[str, list[int]] = {"slow": [], "quick": []}

    async def handle(who: str, seconds: float, message: ReceivedMessage) -> None:
        await trio.sleep(seconds)
        by[who].append(message.offset)

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 40)
        async with trio.open_nursery() as nursery:
            slow = partial(work_for, 100.0, topic, partial(handle, "slow", 60.0), concurrency=2)
            nursery.start_soon(partial(slow, visibility_timeout=10.0))
            await trio.sleep(0.1)
            await work_for(20.0, topic, partial(handle, "quick", 0.01), concurrency=2)
            assert 38 == len(by["quick"])
        assert 2 == len(by["slow"])
        assert 0 == await pending_of(world, topic)


async def _left() -> None:
    await trio.sleep_forever()


async def _returns() -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        return


async def _raises() -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise ValueError("instead") from None


async def _raises_beside_it() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_left)
        nursery.start_soon(_raises)


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("end", [_left, _raises, _raises_beside_it, _returns])
async def test_a_handler_that_loses_its_lease_is_cancelled(
    end: Callable[[], Awaitable[None]], concurrency: int, autojump_clock: Any, world: Any
) -> None:
    """It is told once, however the handler takes it; the work goes on, and is not cancelled with it."""
    begun: list[int] = []
    ended: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.offset)
        if begun.count(0) == 1 and message.offset == 0:
            await end()
            return
        await trio.sleep(1.0)
        ended.append(message.offset)

    events: list[Any] = []
    async with world.open() as runtime:
        runtime.subscribe_events(events.append)
        topic = await world.topic_of(runtime, 4)
        work = partial(work_for, 60.0, topic, handle, concurrency=concurrency, visibility_timeout=5.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.sleep(0.5)
            (group,) = await runtime.groups()
            await runtime._session.system.actor("groups/group").ask(Fence(group.consumers[0].consumer))
        assert 0 == await pending_of(world, topic)
    assert [0, 1, 2, 3] == sorted(set(ended))
    told = [
        event.cause
        for event in events
        if isinstance(event, callboard.events.HandlerFailed) and event.offset == 0
    ]
    assert 1 == len([cause for cause in told if "lease was lost" in cause])


async def test_a_handler_may_settle_its_message_itself(autojump_clock: Any, world: Any) -> None:
    """What it has settled is not settled again; that it fails afterwards is told."""
    seen: list[tuple[int, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.offset, message.attempt))
        if message.offset == 0 and message.attempt == 1:
            await message.nack(delay=1.0)
        elif message.offset == 1:
            await message.ack()
            raise ValueError("too late")

    events: list[Any] = []
    async with world.open() as runtime:
        runtime.subscribe_events(events.append)
        topic = await world.topic_of(runtime, 2)
        await work_for(30.0, topic, handle)
        assert 0 == await pending_of(world, topic)
    assert [(0, 1), (1, 1), (0, 2)] == seen
    assert [("ValueError: too late", "The handler had settled the message before, which holds.")] == [
        (event.cause, event.outcome) for event in events if isinstance(event, callboard.events.HandlerFailed)
    ]


async def test_work_goes_on_through_crashes_of_its_partition(autojump_clock: Any, world: Any) -> None:
    """What was handled before is settled, or comes again; in the end all is settled."""
    seen: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        seen.add(message.offset)
        await trio.sleep(0.01)
        if message.offset % 50 == 49 and message.attempt == 1:
            runtime._session.system.actor("topics/jobs/0").crash(RuntimeError("a drill"))

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 200)
        await work_for(120.0, topic, handle, concurrency=8, visibility_timeout=10.0)
        assert set(range(200)) == seen
        assert 0 == await pending_of(world, topic)


async def test_a_deleted_topic_ends_only_its_own_work(autojump_clock: Any, world: Any) -> None:
    """Work on several topics goes on without it, and says so; without any it ends with the reason."""
    seen: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.topic)

    events: list[Any] = []
    async with world.open() as runtime:
        runtime.subscribe_events(events.append)
        for name in ("teas", "cakes"):
            await runtime.create_topic(name)

        async def work(task_status: trio.TaskStatus[None]) -> None:
            with pytest.raises(callboard.RuntimeClosed, match="deleted"):
                await runtime.work(["teas", "cakes"], handle, "group", task_status=task_status)
            seen.append("the end")

        async with trio.open_nursery() as nursery:
            await nursery.start(work)
            await runtime.delete_topic("teas")
            await trio.sleep(2.0)
            await runtime.topic("cakes").publish(b"scone")
            await trio.sleep(2.0)
            assert ["cakes"] == seen
            await runtime.delete_topic("cakes")
        assert ["cakes", "the end"] == seen
        assert any(
            "'teas' was deleted" in event.cause for event in events if type(event).__name__ == "WorkHindered"
        )


async def test_a_handler_that_is_not_async_ends_the_work_at_its_first_call(
    autojump_clock: Any, world: Any
) -> None:
    """In words; no message spends its attempts on it, and none becomes a dead letter."""
    called: list[int] = []

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 5)
        with pytest.raises(callboard.InvalidArgument, match="async def"):
            await topic.work(
                lambda message: called.append(message.offset),  # type: ignore[arg-type,func-returns-value]
                "group",
                max_deliveries=1,
            )
        assert [0] == called
        attempts: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            attempts.append(message.attempt)

        await work_for(10.0, topic, handle)
        assert [1] * 5 == attempts


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 10**6}, "concurrency"),
        ({"grace": -1.0}, "grace"),
        ({"grace": float("nan")}, "grace"),
        ({"handler": None}, "handler"),
        ({"visibility": 5.0}, "visibility_timeout"),
    ],
)
async def test_what_makes_no_sense_is_refused_at_once(
    autojump_clock: Any, world: Any, options: dict[str, Any], word: str
) -> None:
    """In words, before anybody joins."""

    async def handle(message: ReceivedMessage) -> None:
        pass

    async with world.open() as runtime:
        topic = await world.topic_of(runtime, 1)
        with pytest.raises(callboard.CallboardError, match=word):
            await topic.work(**{"handler": handle, "group": "group", **options})


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("settles_itself", [False, True])
async def test_no_ack_lingers_that_holds_back_the_next_message(
    autojump_clock: Any, world: Any, ordering: str, settles_itself: bool
) -> None:
    """In a group with an order the next message comes as soon as the one before it is acked."""
    times: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        times.append(trio.current_time())
        if settles_itself:
            await message.ack(wait=False)

    async with world.open() as runtime:
        topic = await runtime.create_topic("jobs")
        await topic.publish_batch([b"x"] * 20, keys=[b"alice"] * 20)
        await work_for(10.0, topic, handle, ordering=ordering, concurrency=4)
        assert 0 == await pending_of(world, topic)
    waited = [later - sooner for sooner, later in pairwise(times)]
    assert 19 == len(waited)
    assert max(waited) < ACK_LINGER_S
