"""Seldom calls of publishers, readers and consumers."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import trio
import trio.lowlevel

from callboard import Message
from callboard.log.errors import (
    CallboardError,
    ConfigurationError,
    GroupNotFound,
    InvalidArgument,
    LeaseLost,
    MessageTooLarge,
    RuntimeClosed,
    TopicNotFound,
)
from callboard.log.limits import KIB, MIB
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.rare_crash_turns import begin_through_a_crash

if TYPE_CHECKING:
    from callboard.simulations.scenarios.rare_client import RareClient

WAIT_S: Final = 3.0
"""How long a message is waited for that is there."""
SOON_S: Final = 0.05
COUNT: Final = 7
NO_SECONDS: Final = (-1, float("nan"), float("inf"), "1", True, None.__class__)
NO_COUNTS: Final = (0, -1, True, 1.5, 10**6, "many")
BEFORE_YEAR_1: Final = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))


# -- publishing


async def publish_other_bytes(at: RareClient) -> None:
    """Bytes of every kind, headers and keys in other scripts, large values, and what is read back is what was given."""
    topic = await at.new_topic(compression=one_of(at.draws, ("none", "gzip", "zstd")))
    large = bytes(70 * KIB)
    values: list[Any] = [b"plain", bytearray(b"array"), memoryview(b"view"), b"", large]
    for value in values:
        await topic.publish(value, key=one_of(at.draws, (None, bytearray(b"key"), memoryview(b"k"))))
    await topic.publish(Message(b"message", headers={"größe": "große", "plain": b""}))
    await topic.publish_batch([memoryview(b"a"), bytearray(b"b")], keys=[memoryview(b"k"), None])
    await topic.publish_batch([b"c", b"d"], keys=[memoryview(b"wide").cast("H"), b"k"])
    await topic.publish_batch([large, large + b"1"], headers=[{"naïve": b"1"}, None])
    found = [record.value async for record in topic.read()]
    at.expect(len(found), len(values) + 7, "reading")
    at.expect(found[: len(values)], [bytes(value) for value in values], "reading")


async def publish_nothing(at: RareClient) -> None:
    """A batch of nothing has receipts for nothing; those of others can be taken by index and by slice."""
    topic = await at.new_topic(partitions=between(at.draws, 1, 3))
    none = await topic.publish_batch([])
    at.expect(list(none), [], "receipts of nothing")
    receipts = await topic.publish_batch([b"1", b"2", b"3"], keys=[b"a", None, b"b"])
    at.expect(receipts[0:2], [receipts[0], receipts[1]], "a slice of receipts")
    repr(receipts)
    repr(topic)


async def publish_by_partitioner(at: RareClient) -> None:
    """A partitioner of one's own decides, as long as it gives a partition, and stays."""
    topic = await at.new_topic(partitions=3, partitioner=last_of)
    receipt = await topic.publish(b"1", key=b"key")
    at.expect(receipt.partition, 2, "a partitioner that chooses the last")
    receipts = await topic.publish_batch([b"1", b"2", b"3"], keys=[b"a", None, b"b"])
    at.expect([receipts[0].partition, receipts[2].partition], [2, 2], "a partitioner that chooses the last")
    receipts = await topic.publish_batch([b"1", b"2"], keys=[b"a", b"b"])
    at.expect([receipt.partition for receipt in receipts], [2, 2], "a partitioner that chooses the last")
    await at.refused(InvalidArgument, at.runtime.topic, topic.name, partitioner=first_of)
    at.runtime.topic(topic.name, partitioner=last_of)
    wrong = await at.new_topic(partitions=2, partitioner=beyond)
    await at.refused(InvalidArgument, wrong.publish, b"1", key=b"key")
    await at.refused(InvalidArgument, wrong.publish_batch, [b"1"], keys=[b"key"])
    keyless = await at.new_topic(partitions=2)
    await keyless.publish_batch([b"1", b"2"], keys=[None, None])
    await keyless.publish_batch([b"1", b"2"], keys=[b"a", None])
    await keyless.publish_batch([b"1", b"2"], keys=[b"a", b"b"])
    later = at.runtime.topic(keyless.name)
    await at.refused(InvalidArgument, at.runtime.topic, later.name, partitioner=last_of)


async def publish_too_much(at: RareClient) -> None:
    """What one message may have counts for key, headers and value together, and each for itself."""
    topic = await at.new_topic(max_message_bytes=2 * KIB)
    value, key = bytes(1_500), b"k" * 900
    await topic.publish_batch([value, b""], keys=[b"", key])
    await at.refused(MessageTooLarge, topic.publish_batch, [value, b""], keys=[key, b""])
    await at.refused(MessageTooLarge, topic.publish, value, key=key)
    await at.refused(MessageTooLarge, topic.publish_batch, [b"", value], headers=[None, {"a": key}])
    await at.refused(InvalidArgument, topic.publish, b"1", timestamp=BEFORE_YEAR_1)
    await at.refused(InvalidArgument, topic.publish_batch, [b"1"], headers=[{"a": "\ud800"}])


async def publish_several_frames(at: RareClient) -> None:
    """A batch that is larger than a frame should be, stored in several."""
    topic = await at.new_topic(partitions=between(at.draws, 1, 2), compression="zstd")
    value = bytes(900 * KIB)
    await topic.publish_batch([value] * 10)
    await topic.publish_batch([b"x" * (64 * KIB), b"y", b"z"])
    at.expect(sum([1 async for _ in topic.read()]), 13, "reading a large batch")


async def publish_to_deleted(at: RareClient) -> None:
    """Nobody publishes to a topic that is deleted, also when he waits already."""
    topic = await at.filled(2)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(_publish_until_gone, topic)
        await trio.sleep(SOON_S)
        await at.runtime.delete_topic(topic.name)
    await at.refused(TopicNotFound, topic.publish, b"1")
    await at.refused(TopicNotFound, topic.publish_batch, [b"1"])
    await at.refused((TopicNotFound, RuntimeClosed), _read_first, topic.read())
    await at.refused((TopicNotFound, RuntimeClosed), _enter, topic.subscribe(at.new_name()))


async def publish_much_at_once(at: RareClient) -> None:
    """Many publishers at once, of all levels; some give up, and then everything is flushed."""
    topic = await at.new_topic(partitions=between(at.draws, 1, 2), segment_bytes=MIB)
    async with trio.open_nursery() as nursery:
        for number in range(12):
            patience_s = one_of(at.draws, (0.0, 0.001, 0.01, 5.0))
            nursery.start_soon(
                _publish_patiently, topic, number, one_of(at.draws, ("all", "leader", "none")), patience_s
            )
    await topic.flush()


def first_of(key: bytes, partitions: int, /) -> int:
    """The first partition."""
    return 0


def last_of(key: bytes, partitions: int, /) -> int:
    """The last partition."""
    return partitions - 1


def beyond(key: bytes, partitions: int, /) -> int:
    """No partition."""
    return partitions


async def _publish_until_gone(topic: Any) -> None:
    while True:
        try:
            await topic.publish(b"more")
            await trio.sleep(0.005)
        except TopicNotFound:
            return


async def _publish_patiently(topic: Any, number: int, acks: str, patience_s: float) -> None:
    with trio.move_on_after(patience_s):
        await topic.publish(b"%d" % number + bytes(700), acks=acks)
        await topic.publish_batch([bytes(300)] * 4, acks=acks)


async def _enter(consumer: Any) -> None:
    async with consumer:
        pass


async def _read_first(reader: Any) -> None:
    async for _ in reader:
        return


# -- reading


async def read_ranges(at: RareClient) -> None:
    """Ranges by offset and time, from and to anything."""
    topic = await at.filled(COUNT)
    records = [record async for record in topic.read()]
    times = [record.append_time for record in records]
    if [record.offset for record in records] != list(range(COUNT)) or times != sorted(times):
        return  # something was lost and published again, or the clock was set back
    for _ in range(6):
        places: list[Any] = ["beginning", "end", between(at.draws, 0, COUNT + 2), one_of(at.draws, times)]
        start, stop = one_of(at.draws, places), one_of(at.draws, [None, *places])
        first, last = (_offset_of(place, times) for place in (start, "end" if stop is None else stop))
        found = [record.offset async for record in topic.read(start, stop=stop)]
        at.expect(found, list(range(first, last)), f"reading from {start} to {stop}")
        batches = [batch async for batch in topic.read_batches(start, stop=stop, partition=0)]
        at.expect(
            [record.offset for batch in batches for record in batch],
            list(range(first, last)),
            "reading batches",
        )
    await topic.publish_batch([b"more"] * COUNT)
    together = [record.offset async for record in topic.read(COUNT, stop=COUNT + 3)]
    at.expect(together, [COUNT, COUNT + 1, COUNT + 2], "reading a part of what was published together")
    future = datetime(2200, 1, 1, tzinfo=UTC)
    at.expect([record async for record in topic.read(future)], [], "reading from an instant to come")
    at.expect(
        [record async for record in topic.read(stop=datetime(1990, 1, 1, tzinfo=UTC))], [], "reading before"
    )
    with trio.move_on_after(WAIT_S):
        followed = [record.offset async for record in topic.read(2, stop=COUNT - 2, follow=True)]
        at.expect(followed, list(range(2, COUNT - 2)), "following to an offset")


def _offset_of(place: Any, times: list[datetime]) -> int:
    if isinstance(place, datetime):
        return next(index for index, instant in enumerate(times) if instant >= place)
    if isinstance(place, str):
        return {"beginning": 0, "end": len(times)}[place]
    return min(int(place), len(times))


async def follow_and_leave(at: RareClient) -> None:
    """Many who follow a topic, and leave before anything comes."""
    topic = await at.new_topic(partitions=2)
    async with trio.open_nursery() as nursery:
        for number in range(one_of(at.draws, (3, 140))):
            nursery.start_soon(_follow, topic, trio.move_on_after(0.001 * number))
        await trio.sleep(SOON_S)
        await topic.publish(b"1")


async def follow_to_the_end(at: RareClient) -> None:
    """One who follows a topic until it is deleted."""
    topic, patience = await at.filled(3, partitions=2), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at.refused, (TopicNotFound, RuntimeClosed), _follow, topic, patience)
        await trio.sleep(SOON_S)
        await at.runtime.delete_topic(topic.name)  # which may take long: a disk does not answer
        patience.deadline = trio.current_time() + WAIT_S * 2


async def _follow(topic: Any, patience: trio.CancelScope) -> None:
    with patience:
        async for _ in topic.read(follow=True):
            pass


# -- consuming


async def begin_anywhere(at: RareClient) -> None:
    """Groups that begin at the beginning, the end, an offset, an instant; some have a crash before they read."""
    topic = await at.filled(COUNT)
    records = [record async for record in topic.read()]
    if [record.offset for record in records] != list(range(COUNT)):
        return
    times = [record.append_time for record in records]
    if times != sorted(times):
        return
    for start in ("beginning", "end", between(at.draws, 1, COUNT + 3), one_of(at.draws, times)):
        async with topic.subscribe(at.new_name(), start=start) as consumer:
            first = _offset_of(start, times)
            message = await consumer.get(timeout=WAIT_S if first < COUNT else 0)
            if message is None and first < COUNT:
                continue  # something is slow
            found = COUNT if message is None else message.offset
            at.expect(found, first, f"the first message of a group that begins at {start}")
    for start, first in (("beginning", 0), ("end", COUNT)):
        await begin_through_a_crash(at, topic, start, first, COUNT)


async def misuse_a_consumer(at: RareClient) -> None:
    """A consumer that is entered twice, asked wrongly, and asked when it is closed."""
    topic = await at.filled(COUNT)
    consumer = topic.subscribe(at.new_name(), name="odd")
    async with consumer:
        repr(consumer)
        await at.refused(InvalidArgument, _enter, consumer)
        for count in NO_COUNTS:
            await at.refused(InvalidArgument, consumer.batches, max_records=count)
        for seconds in NO_SECONDS:
            await at.refused(InvalidArgument, consumer.batches, max_wait=seconds)
            if seconds != float("inf"):  # waits for ever
                await at.refused(InvalidArgument, consumer.get, timeout=seconds)
        message = await consumer.get(timeout=WAIT_S)
        other = await consumer.get(timeout=WAIT_S)
        if message is None or other is None:
            return
        repr(message)
        for seconds in NO_SECONDS:
            await at.refused(InvalidArgument, message.extend, seconds)
            await at.refused(InvalidArgument, message.nack, delay=seconds)
        await at.refused(InvalidArgument, message.nack, reason=5)
        await message.ack()
        await at.refused(InvalidArgument, message.extend, 5.0)
        await at.refused(InvalidArgument, message.ack)
        receiving = consumer.receive(timeout=0.0)
        async with receiving:
            pass
        await at.refused(InvalidArgument, receiving.__aenter__)
        late = consumer.batches()
    await at.refused(RuntimeClosed, consumer.get)
    await at.refused(RuntimeClosed, consumer.receive)
    await at.refused(RuntimeClosed, consumer.batches)
    await at.refused(RuntimeClosed, consumer.flush)
    await at.refused(RuntimeClosed, late.__anext__)
    await at.refused((RuntimeClosed, LeaseLost), other.extend, 1.0)
    if at.runtime._session.state != "open":
        return  # what was not released in time may be acked yet
    await at.refused((InvalidArgument, LeaseLost, RuntimeClosed), other.ack)


async def leave_others_waiting(at: RareClient) -> None:
    """A consumer is left while other tasks of it wait for messages and batches: they hear that it is closed."""
    topic = await at.filled(one_of(at.draws, (0, 3)), partitions=between(at.draws, 1, 2))
    async with trio.open_nursery() as nursery:
        async with topic.subscribe(at.new_name()) as consumer:
            for wait in (consumer.get, consumer.batches(max_records=50, max_wait=WAIT_S).__anext__):
                nursery.start_soon(at.refused, RuntimeClosed, _again_and_again, wait)
            await trio.sleep(one_of(at.draws, (0.0, 0.001, SOON_S)))


async def _again_and_again(wait: Any) -> None:
    while True:
        await wait()


async def consume_what_is_deleted(at: RareClient) -> None:
    """Topics that go while somebody waits for them, or holds messages of them; alone, or beside others."""
    topic, other = await at.filled(COUNT), await at.filled(2, partitions=2)
    names = one_of(at.draws, ([topic.name], [topic.name, other.name]))
    gone = at.runtime.subscribe(names, at.new_name(), visibility_timeout=2.0)
    outcome = (TopicNotFound, RuntimeClosed, GroupNotFound)
    is_batch, is_lazy = at.draws.random() < 0.4, at.draws.random() < 0.4
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_delete_later, at, topic.name)
        await at.refused(outcome, _consume_to_the_end, gone, is_batch, is_lazy)
        nursery.cancel_scope.deadline = trio.current_time() + WAIT_S
    late = topic.subscribe(at.new_name())
    await at.refused(outcome, _enter, late)


async def _delete_later(at: RareClient, name: str) -> None:
    await trio.sleep(one_of(at.draws, (0.0, 0.01, SOON_S, 0.3)))
    await at.runtime.delete_topic(name)


async def _consume_to_the_end(consumer: Any, is_batch: bool, is_lazy: bool) -> None:
    """Take what comes, settle it late, until that is refused."""
    async with consumer:
        held: list[Any] = []
        while True:
            if is_batch:
                held.append(await anext(consumer.batches(max_records=3, max_wait=0.1)))
            else:
                held.append(await consumer.get())
            if len(held) > 2:
                await trio.sleep(0.1)
                await held.pop(0).ack(wait=not is_lazy)
                if is_lazy:
                    await consumer.flush()


async def settle_what_is_deleted(at: RareClient) -> None:
    """Messages of a topic that is deleted meanwhile are settled by nobody."""
    topic = await at.filled(COUNT)
    async with at.runtime.subscribe([topic.name, (await at.filled(1)).name], at.new_name()) as consumer:
        held = [await consumer.get(timeout=WAIT_S) for _ in range(4)]
        mine = [message for message in held if message is not None and message.topic == topic.name]
        await at.runtime.delete_topic(topic.name)
        for message, verb in zip(mine, ("ack", "nack", "release"), strict=False):
            await at.refused(TopicNotFound, getattr(message, verb))
        for message in mine[3:]:
            await at.refused(TopicNotFound, message.extend, 1.0)
            await message.ack(wait=False)
            await at.refused(TopicNotFound, consumer.flush)


async def delete_a_group_in_use(at: RareClient) -> None:
    """A group is deleted while its consumers wait, hold and receive messages: they hear of it."""
    topic = await at.filled(COUNT, partitions=between(at.draws, 1, 2))
    group, ordering = at.new_name(), one_of(at.draws, ("none", "key"))
    outcome = (GroupNotFound, LeaseLost, RuntimeClosed)
    async with trio.open_nursery() as nursery:
        for _ in range(between(at.draws, 1, 3)):
            consumer = topic.subscribe(group, visibility_timeout=1.0, ordering=ordering, max_in_flight=3)
            way = one_of(at.draws, (_receive_slowly, _hold, _receive_and_settle, _ack_lazily))
            nursery.start_soon(at.refused, outcome, way, consumer)
        await trio.sleep(one_of(at.draws, (0.0, SOON_S, 0.3, 1.0)))
        await at.runtime.group(group).delete()
        nursery.cancel_scope.deadline = trio.current_time() + 2 * WAIT_S


async def _receive_slowly(consumer: Any) -> None:
    """Bodies that take longer than a lease, one of which starts tasks that fail when they are cancelled."""
    async with consumer:
        while True:
            async with consumer.receive() as message, trio.open_nursery() as nursery:
                if message.offset % 2:
                    nursery.start_soon(_fail_when_cancelled)
                await trio.sleep(1.5)
                nursery.cancel_scope.cancel()


async def _fail_when_cancelled() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise GroupNotFound("the task that was cancelled has failed", group=None)


async def _receive_and_settle(consumer: Any) -> None:
    """Bodies that settle their message themselves and go on."""
    async with consumer:
        while True:
            async with consumer.receive() as message:
                await message.ack(wait=message.offset % 2 == 0)
                await trio.sleep(1.2)


async def _hold(consumer: Any) -> None:
    """Hold a message, let the others wait, and settle it in the end."""
    async with consumer:
        while True:
            message = await consumer.get()
            await trio.sleep(0.4)
            await message.extend(3.0)
            await trio.sleep(0.4)
            await message.nack(delay=0.1)


async def _ack_lazily(consumer: Any) -> None:
    async with consumer:
        while True:
            message = await consumer.get()
            await message.ack(wait=False)
            if message.offset % 3 == 2:
                await consumer.flush()


async def join_a_passing_group(at: RareClient) -> None:
    """Groups that go with their last consumer, or soon after it, and consumers that join just then."""
    topic = await at.filled(2)
    group = at.new_name()
    settings: dict[str, Any] = one_of(at.draws, ({"durable": False}, {"group_expiry": 1.0}))
    for _ in range(3):
        async with topic.subscribe(group, **settings) as consumer:
            message = await consumer.get(timeout=one_of(at.draws, (0, 0.1)))
            if message is not None:
                await message.release()
        await trio.sleep(one_of(at.draws, (0.0, 0.0, 0.001, 1.0)))
        if at.draws.random() < 0.3:
            with suppress(GroupNotFound):
                await at.runtime.group(group).alter(max_in_flight=5)


async def share_keys(at: RareClient) -> None:
    """Order within a key, of several consumers that leave, give up and are cancelled at any moment."""
    topic = await at.new_topic(partitions=1)
    await topic.publish_batch(
        [b"%d" % n for n in range(40)], keys=[one_of(at.draws, (b"a", b"b", None)) for _ in range(40)]
    )
    group = at.new_name()
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(_consume_hastily, at, topic, group, number)


async def _consume_hastily(at: RareClient, topic: Any, group: str, number: int) -> None:
    draws = at.draws.fork(f"{group} {number}")
    for _ in range(3):
        async with topic.subscribe(
            group, ordering="key", visibility_timeout=0.5, max_in_flight=4
        ) as consumer:
            for _ in range(8):
                message = None
                with trio.move_on_after(one_of(draws, (0.0, 0.001, 0.01, 0.2))):
                    message = await consumer.get()
                if message is not None:
                    await one_of(draws, (message.ack, message.ack, message.nack, message.release))()


async def create_wrongly(at: RareClient) -> None:
    """Topics and groups with settings that contradict one another, or are out of bounds."""
    for settings in (
        {"retention_age": 10.0, "segment_age": 20.0},
        {"segment_bytes": 1},
        {"retention_bytes": 0},
        {"max_message_bytes": 1 << 40},
    ):
        await at.refused(ConfigurationError, at.new_topic, **settings)
    topic = await at.new_topic()
    for wrong in (
        {"start": 10**30},
        {"start": -(10**30)},
        {"backoff": 9.0, "max_backoff": 1.0},
        {"group_expiry": 0},
    ):
        await at.refused(ConfigurationError, _enter, topic.subscribe(at.new_name(), **wrong))


async def fail_a_partition(at: RareClient) -> None:
    """A partition crashes until it has failed, under clients of all kinds; then it is revived, or deleted."""
    count = between(at.draws, 1, 2)
    topic, other = await at.filled(COUNT, partitions=count), await at.filled(2)
    path, group = f"topics/{topic.name}/0", at.new_name()
    names = one_of(at.draws, ([topic.name], [topic.name, other.name]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_publish_through, topic, 0)
        nursery.start_soon(_consume_through, at, at.runtime.subscribe(names, group, visibility_timeout=1.0))
        nursery.start_soon(_follow_through, topic)
        for _ in range(30):
            with suppress(InvalidArgument):  # the runtime is closing
                at.runtime.crash(path, OSError("by mistake"))
            await trio.sleep(0.02)
            if (await topic.describe())[0].state == "failed":
                break
            await trio.sleep(0.2)
        else:
            nursery.cancel_scope.cancel()
        with suppress(CallboardError), trio.move_on_after(SOON_S):
            await topic.publish(b"to whichever partition takes it")
        await trio.sleep(one_of(at.draws, (SOON_S, 1.5)))
        if at.draws.random() < 0.3:
            await at.runtime.delete_topic(topic.name)
        else:
            with suppress(InvalidArgument):
                await at.runtime.restart(path)
            await topic.publish(b"again", partition=0)
        await trio.sleep(SOON_S)
        nursery.cancel_scope.cancel()


async def _publish_through(topic: Any, number: int) -> None:
    while True:
        with suppress(CallboardError), trio.move_on_after(0.5):
            await topic.publish_batch([b"1", b"2", b"3"], keys=[b"a", b"b", b"c"])
            await topic.publish_batch([b"1", b"2"])
            await topic.publish(b"%d" % number, acks="none")
            await topic.flush()
        await trio.sleep(0.4)


async def _consume_through(at: RareClient, consumer: Any) -> None:
    draws = at.draws.fork(consumer.group)
    async with consumer:
        while True:
            with suppress(CallboardError):
                message = await consumer.get(timeout=one_of(draws, (0.0, 0.2, 2.0)))
                if message is not None:
                    await one_of(draws, (message.ack, message.nack, message.release))()
                if draws.random() < 0.3:
                    with trio.move_on_after(0.3):
                        batch = await anext(consumer.batches(max_records=4, max_wait=0.1))
                        await batch.ack()
            await trio.sleep(0.2)


async def _follow_through(topic: Any) -> None:
    while True:
        with suppress(CallboardError):
            async for _ in topic.read(follow=True):
                pass
        await trio.sleep(0.4)


async def settle_too_late(at: RareClient) -> None:
    """What is settled after its lease has run out and somebody else has settled it is lost: each way tells of it."""
    topic = await at.filled(COUNT * 2)
    group = at.new_name()
    async with topic.subscribe(group, visibility_timeout=0.3) as slow:
        held = [await slow.get(timeout=WAIT_S) for _ in range(COUNT * 2)]
        late = [message for message in held if message is not None]
        await trio.sleep(0.5)
        settled = set()
        async with topic.subscribe(group) as quick:
            while (message := await quick.get(timeout=0.2)) is not None:
                await message.ack()
                settled.add(message.offset)
        late = [message for message in late if message.offset in settled]
        if len(late) < 4:
            return  # something is slow, or has given the leases more time
        await at.refused(LeaseLost, late[0].extend, 1.0)
        await at.refused(LeaseLost, late[1].ack)
        await at.refused(LeaseLost, late[2].nack)
        await at.refused(LeaseLost, _ack_each_lazily, slow, late[3:])


async def _ack_each_lazily(consumer: Any, messages: list[Any]) -> None:
    for message in messages:
        await message.ack(wait=False)
        await trio.sleep(0.02)
    await consumer.flush()


async def consume_in_many_tasks(at: RareClient) -> None:
    """Tasks that share a consumer: they take messages and batches, ack lazily, flush, and some are cancelled."""
    topic = await at.new_topic(partitions=between(at.draws, 1, 2))
    async with topic.subscribe(
        at.new_name(), visibility_timeout=0.5, max_in_flight=one_of(at.draws, (2, 8, 50))
    ) as consumer:
        with trio.move_on_after(2.0):
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(_consume_as_one_of_many, at, consumer, number)
                for number in range(40):
                    await topic.publish(b"%d" % number, acks="leader")
                    await trio.sleep(0.01)
                await trio.sleep(0.3)
                nursery.cancel_scope.cancel()


async def _consume_as_one_of_many(at: RareClient, consumer: Any, number: int) -> None:
    draws = at.draws.fork(f"{consumer.group} {number}")
    while True:
        with suppress(LeaseLost), trio.move_on_after(one_of(draws, (0.0, 0.01, 0.1, 1.0))):
            if draws.random() < 0.7:
                message = await consumer.get()
                await trio.sleep(one_of(draws, (0.0, 0.0, 0.05)))
                await message.ack(wait=draws.random() < 0.2)
            else:
                batch = await anext(consumer.batches(max_records=5, max_wait=0.05))
                await batch.ack(wait=draws.random() < 0.2)
            if draws.random() < 0.3:
                await consumer.flush()
        await trio.lowlevel.checkpoint()


async def consume_one_at_a_time(at: RareClient) -> None:
    """Many leases of one message each: extended, given up and settled, so that most of what was watched is gone."""
    topic = await at.new_topic()
    await topic.publish_batch([b"%d" % number for number in range(90)])
    async with topic.subscribe(at.new_name(), visibility_timeout=5.0, max_in_flight=1) as consumer:
        with trio.move_on_after(WAIT_S):
            for number in range(170):
                message = await consumer.get(timeout=0.1)
                if message is None:
                    return
                await message.extend(60.0)
                await (message.ack() if number >= 80 else message.nack(delay=0.001))


async def open_many_partitions(at: RareClient) -> None:
    """A topic of many partitions that is deleted, or restarted, while they open."""
    name = at.new_name()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_create_or_not, at, name)
        await trio.sleep(one_of(at.draws, (0.0, 0.001, 0.01)))
        for number in range(3):
            with suppress(InvalidArgument):
                at.runtime.crash(f"topics/{name}/{number * 5}", OSError("by mistake"))
        await at.new_topic()
        nursery.cancel_scope.deadline = trio.current_time() + one_of(at.draws, (0.0, 0.01, WAIT_S))
    with suppress(TopicNotFound):
        await at.runtime.delete_topic(name)


async def _create_or_not(at: RareClient, name: str) -> None:
    topic = await at.runtime.create_topic(name, partitions=16)
    await topic.publish_batch([b"1"] * 16, keys=[b"%d" % n for n in range(16)])


BROKER_TURNS: Final = (
    publish_other_bytes,
    publish_nothing,
    publish_by_partitioner,
    publish_too_much,
    publish_several_frames,
    publish_to_deleted,
    publish_much_at_once,
    read_ranges,
    follow_and_leave,
    follow_to_the_end,
    begin_anywhere,
    misuse_a_consumer,
    leave_others_waiting,
    consume_what_is_deleted,
    settle_what_is_deleted,
    delete_a_group_in_use,
    join_a_passing_group,
    share_keys,
    create_wrongly,
    fail_a_partition,
    settle_too_late,
    consume_in_many_tasks,
    consume_one_at_a_time,
    open_many_partitions,
)
