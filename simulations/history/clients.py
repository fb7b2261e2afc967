"""Observed clients: thin wrappers over the public face that record what they do and see. They change nothing.

Each passes a probe of the world when it acts ("publish", "deliver", "ack", "nack", "release", "flush"), and when it is
told that what it did is done ("published", "acked", "nacked", "released"), so that faults can wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

import trio

from callboard.log.errors import CallboardError, InvalidArgument, LeaseLost, PartialPublish
from callboard.message import Message, Receipt
from callboard.received import ReceivedBatch, ReceivedMessage
from callboard.simulations.history.entry import (
    BACKOFF,
    LAZY,
    MAYBE,
    RECEIVING,
    SETTLEMENTS,
    member_name,
    plain,
)
from callboard.simulations.history.recorder import History

RETRY_AFTER_S = 0.5


class Surroundings(Protocol):
    """What clients need from the world."""

    history: History
    retry_budget: int
    consumers: dict[str, Any]

    def probe(self, name: str, about: str = "") -> None:
        """Count a passing of a point."""


class ObservedTopic:
    """A topic as one publisher uses it. `topic` is a `callboard.Topic`, `machine` the number of the machine."""

    def __init__(self, world: Surroundings, machine: int, topic: Any, who: str) -> None:
        self.topic = topic
        self.who = who
        self._world = world
        self._history = world.history
        self._machine = machine
        self._unawaited: list[int] = []

    async def publish(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: dict[str, bytes] | None = None,
        timestamp: datetime | None = None,
        acks: str = "all",
    ) -> str:
        """Publish; returns how it ended: "published", "refused" or "unsure".

        After an indefinite error it is tried again while the world's `retry_budget` lasts.
        """
        number = self._history.message(value, key, headers, timestamp)
        message = Message(value, key, headers, timestamp)
        while True:
            end = await self._publish(number, message, acks)
            if end != "unsure" or acks == "none" or not await self._may_retry():
                return end

    async def _publish(self, number: int, message: Message, acks: str) -> str:
        operation = self._begin((number,), acks)
        try:
            receipt = await self.topic.publish(message, acks=acks)
        except CallboardError as error:
            return self._failed(operation, (number,), error)
        except trio.Cancelled:
            self._record("unsure", operation, (number,), detail="cancelled")
            raise
        if receipt.offset is None:
            self._unawaited.append(number)
            return self._record("unsure", operation, (number,), detail="not waited for")
        self._history.stored.add(number)
        end = self._record("published", operation, (number,), receipt.partition, (receipt.offset,), acks)
        self._world.probe(end, self.who)
        return end

    async def publish_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[dict[str, bytes] | None] | None = None,
        timestamps: Sequence[datetime | None] | None = None,
        acks: str = "all",
    ) -> str:
        """Publish a batch; "published" or "refused" when that holds for all of it, else "unsure".

        A batch of which nothing is known is tried again while the world's `retry_budget` lasts.
        """
        columns = {"keys": keys, "headers": headers, "timestamps": timestamps}
        while True:
            end = await self._publish_batch(values, columns, acks)
            if end != "doubtful":
                return end
            if not await self._may_retry():
                return "unsure"

    async def _may_retry(self) -> bool:
        """Wait a little and return True if the world allows one more try; else return False at once."""
        if self._world.retry_budget <= 0:
            return False
        self._world.retry_budget -= 1
        self._world.probe("retry", self.who)
        await trio.sleep(RETRY_AFTER_S)
        return True

    async def _publish_batch(self, values: Sequence[bytes], columns: dict[str, Any], acks: str) -> str:
        """One try; "doubtful" when it failed as a whole and may have happened."""
        history = self._history
        beside = [column or [None] * len(values) for column in columns.values()]
        numbers = tuple(map(history.message, values, *beside))
        operation = self._begin(numbers, acks)
        try:
            receipts = await self.topic.publish_batch(values, **columns, acks=acks)
        except PartialPublish as partial:
            self._fates(operation, numbers, partial.receipts, acks)
            return "unsure"
        except CallboardError as error:
            end = self._failed(operation, numbers, error)
            return "doubtful" if end == "unsure" else end
        except trio.Cancelled:
            self._record("unsure", operation, numbers, detail="cancelled")
            raise
        for stored in receipts.stored:
            first = stored.first_offset
            if first is None:
                self._unawaited.extend(numbers)
                return self._record("unsure", operation, numbers, detail="not waited for")
            here = tuple([numbers[index] for index in stored.indexes])
            history.stored.update(here)
            offsets = tuple(range(first, first + len(here)))
            self._record("published", operation, here, stored.partition, offsets, acks)
        self._world.probe("published", self.who)
        return "published"

    def _fates(self, operation: int, numbers: tuple[int, ...], fates: Sequence[Any], acks: str) -> None:
        """A batch that was stored in part: how it ended, message by message."""
        for number, fate in zip(numbers, fates, strict=True):
            if isinstance(fate, CallboardError):
                self._failed(operation, (number,), fate)
            elif isinstance(fate, Receipt) and fate.offset is not None:
                self._history.stored.add(number)
                self._record("published", operation, (number,), fate.partition, (fate.offset,), acks)
            else:
                self._record("unsure", operation, (number,), detail="not waited for")

    async def flush(self) -> None:
        """Wait until everything is synced; only then what was not waited for is known to be stored."""
        unawaited, self._unawaited = tuple(self._unawaited), []
        operation = self._history.operation()
        self._record("flush", operation)
        self._world.probe("flush", self.who)
        try:
            await self.topic.flush()
        except CallboardError as error:
            self._record("flush failed", operation, detail=type(error).__name__)
            return
        self._history.stored.update(unawaited)
        self._record("flushed", operation, unawaited, detail="all")

    def _begin(self, numbers: tuple[int, ...], acks: str) -> int:
        operation = self._history.operation()
        self._record("publish", operation, numbers, detail=acks)
        self._world.probe("publish", self.who)
        return operation

    def _failed(self, operation: int, numbers: tuple[int, ...], error: CallboardError) -> str:
        kind = "unsure" if error.indefinite else "refused"
        return self._record(kind, operation, numbers, detail=type(error).__name__)

    def _record(
        self,
        kind: str,
        operation: int,
        ids: tuple[int, ...] = (),
        partition: int = -1,
        offsets: tuple[int, ...] = (),
        detail: str = "",
    ) -> str:
        topic = self.topic.name
        self._history.record(
            self._machine, kind, self.who, operation, topic, partition, "", ids, offsets, detail=detail
        )
        return kind


class ObservedConsumer:
    """A consumer in its group, for one life. `inner` is an entered `callboard.Consumer`; see `consume`."""

    def __init__(
        self, world: Surroundings, machine: int, inner: Any, topic: str, who: str, life: int
    ) -> None:
        self.inner = inner
        self.who = who
        self.topic = topic
        self.life = life
        self.is_crashed = False
        self._world = world
        self._history = world.history
        self._machine = machine
        self._scope = trio.CancelScope()
        self._lazy: list[tuple[int, ReceivedMessage | ReceivedBatch, tuple[int, ...]]] = []

    def crash(self) -> bool:
        """End the consumer's task now; False when it has ended already."""
        if self.is_crashed:
            return False
        self.is_crashed = True
        self._scope.cancel()
        return True

    # -- receiving

    def __aiter__(self) -> ObservedConsumer:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message: ReceivedMessage = await self._asked(self.inner.__anext__)
        return message

    async def get(self, *, timeout: float | None = None) -> ReceivedMessage | None:
        """The next message, None when there is none within `timeout` seconds."""
        message: ReceivedMessage | None = await self._asked(lambda: self.inner.get(timeout=timeout))
        return message

    def receive(self, *, timeout: float | None = None) -> ObservedReceiving:
        """Keep one message leased while a body runs."""
        return ObservedReceiving(self, self.inner.receive(timeout=timeout))

    async def next_batch(self, *, max_records: int = 100, max_wait: float = 0.01) -> ReceivedBatch:
        """The next batch."""
        batches = self.inner.batches(max_records=max_records, max_wait=max_wait)
        batch: ReceivedBatch = await self._asked(batches.__anext__, fills_s=max_wait)
        return batch

    async def _asked(self, call: Callable[[], Any], *, fills_s: float = 0.0, detail: str = "") -> Any:
        """Ask for what comes next, and record since when it is waited for; None is recorded as given up."""
        until = self._history.now() + fills_s
        self._record("asks", self.life, until=until)
        try:
            held = await call()
        except BaseException:
            self._record("gave up", self.life)
            raise
        if held is None:
            self._record("gave up", self.life)
        else:
            self._delivered(held, detail)
        return held

    def _delivered(self, held: ReceivedMessage | ReceivedBatch, detail: str = "") -> None:
        identify = self._history.identify
        if isinstance(held, ReceivedBatch):
            columns = held.values(), held.keys(), held.headers(), held.timestamps()
            ids = tuple(map(identify, *columns))
            offsets, attempts = tuple(held.offsets()), tuple(held.attempts())
            until = next(iter(held)).deadline
        else:
            ids = (identify(held.value, held.key, held.headers, held.timestamp),)
            offsets, attempts, until = (held.offset,), (held.attempt,), held.deadline
        self._record(
            "delivered", self.life, held, offsets, ids=ids, attempts=attempts, until=until, detail=detail
        )
        self._world.probe("deliver", self.who)

    # -- settling

    async def ack(self, held: ReceivedMessage | ReceivedBatch, *, wait: bool = True) -> str:
        """Ack; returns how it ended. Without `wait` that is "unsure" until `flush`."""
        return await self._settle("ack", held, lambda: held.ack(wait=wait), lazy=not wait)

    async def nack(
        self, held: ReceivedMessage | ReceivedBatch, *, delay: float | None = 0.0, least_s: float = 0.0
    ) -> str:
        """Nack; returns how it ended. Without a `delay` the group's backoff holds, of which `least_s` is the least."""
        until = self._history.now() + (least_s if delay is None else delay)
        detail = BACKOFF if delay is None else ""
        return await self._settle("nack", held, lambda: held.nack(delay=delay), until=until, detail=detail)

    async def release(self, held: ReceivedMessage | ReceivedBatch) -> str:
        """Release; returns how it ended."""
        return await self._settle("release", held, held.release)

    async def extend(self, message: ReceivedMessage, seconds: float) -> str:
        """Extend the lease; returns how it ended."""
        return await self._settle("extend", message, lambda: message.extend(seconds))

    async def _settle(
        self,
        verb: str,
        held: Any,
        call: Callable[[], Any],
        *,
        lazy: bool = False,
        until: float = 0.0,
        detail: str = "",
    ) -> str:
        offsets = tuple(held.offsets()) if isinstance(held, ReceivedBatch) else (held.offset,)
        operation = self._history.operation()
        self._record(verb, operation, held, offsets, until=until, detail=LAZY if lazy else detail)
        self._world.probe(verb, self.who)
        try:
            await call()
        except LeaseLost:
            if not lazy:
                return self._record("lost", operation, held, offsets)
            # An ack that nobody waits for tells of others, which were lost before it; no flush tells of them again.
            for place in (*self._lazy, (operation, held, offsets)):
                self._record("unsure", *place, detail="LeaseLost")
            self._lazy.clear()
            return "unsure"
        except InvalidArgument:
            raise  # nothing that is asked here makes no sense
        except CallboardError as error:
            return self._record("unsure", operation, held, offsets, detail=type(error).__name__)
        except trio.Cancelled:
            self._record("unsure", operation, held, offsets, detail="cancelled")
            raise
        if lazy:
            self._lazy.append((operation, held, offsets))
            return "unsure"
        until = held.deadline if verb == "extend" else 0.0
        end = self._record(SETTLEMENTS[verb], operation, held, offsets, until=until)
        self._world.probe(end, self.who)
        return end

    async def flush(self) -> None:
        """Wait until all acks that nobody waited for are synced. When one failed, none is known to have happened."""
        lazy, self._lazy = self._lazy, []
        self._world.probe("flush", self.who)
        try:
            await self.inner.flush()
        except CallboardError as error:
            for operation, held, offsets in lazy:
                self._record("unsure", operation, held, offsets, detail=type(error).__name__)
            return
        for operation, held, offsets in lazy:
            self._record("acked", operation, held, offsets)

    def _record(
        self,
        kind: str,
        operation: int,
        held: ReceivedMessage | ReceivedBatch | None = None,
        offsets: tuple[int, ...] = (),
        *,
        ids: tuple[int, ...] = (),
        attempts: tuple[int, ...] = (),
        until: float = 0.0,
        detail: str = "",
    ) -> str:
        topic, partition = (self.topic, -1) if held is None else (held.topic, held.partition)
        place = topic, partition, self.inner.group
        self._history.record(
            self._machine, kind, self.who, operation, *place, ids, offsets, attempts, until, detail
        )
        return kind


class ObservedReceiving:
    """`async with consumer.receive() as message`, recorded: how it is settled follows from how the body ends."""

    def __init__(self, consumer: ObservedConsumer, inner: Any) -> None:
        self._consumer = consumer
        self._inner = inner
        self._message: ReceivedMessage | None = None

    async def __aenter__(self) -> ReceivedMessage | None:
        self._message = await self._consumer._asked(self._inner.__aenter__, detail=RECEIVING)
        return self._message

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        consumer, message = self._consumer, self._message
        if message is None or message.settled:
            return bool(await self._inner.__aexit__(kind, error, traceback))
        verb = "ack" if error is None else "nack" if isinstance(error, Exception) else "release"
        operation = consumer._history.operation()
        place = message, (message.offset,)
        consumer._record(verb, operation, *place)
        consumer._world.probe(verb, consumer.who)
        end = "unsure"
        try:
            absorbed = bool(await self._inner.__aexit__(kind, error, traceback))
            end = SETTLEMENTS["ack"] if verb == "ack" else "unsure"
        except LeaseLost:
            end = "lost"
            raise
        finally:
            consumer._record(end, operation, *place)
        return absorbed


async def consume(
    world: Surroundings,
    machine: int,
    topic: Any,
    group: str,
    who: str,
    work: Callable[[ObservedConsumer], Any],
    **settings: Any,
) -> bool:
    """Subscribe, run `work(consumer)`, and leave; True when the consumer was crashed by a fault.

    `topic` is a `callboard.Topic`, or what subscribes to several and has a name for them.

    While it lives, `world.consumers[who]` is the consumer, for faults to crash. Its group knows it as `member_name`.
    """
    life = world.history.operation()
    inner = topic.subscribe(group, name=member_name(who, life), **settings)
    consumer = ObservedConsumer(world, machine, inner, topic.name, who, life)
    how = "Cancelled"
    with consumer._scope:
        try:
            consumer._record("joining", consumer.life, detail=plain(settings))
            async with inner:
                consumer._record("joined", consumer.life)
                world.consumers[who] = consumer
                try:
                    await work(consumer)
                finally:
                    consumer._record("left", consumer.life, detail="crashed" if consumer.is_crashed else "")
            how = ""
        except Exception as error:
            how = f"{type(error).__name__}{MAYBE if getattr(error, 'indefinite', False) else ''}"
            raise
        finally:
            consumer._record("gone", consumer.life, detail=how)
            if world.consumers.get(who) is consumer:
                del world.consumers[who]
    return consumer.is_crashed
