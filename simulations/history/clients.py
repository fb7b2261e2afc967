"""Observed clients: thin wrappers over the public face that record what they do and see. They change nothing.

Each passes a probe of the world when it acts ("publish", "deliver", "ack", "nack", "release", "flush"), and when it is
answered that what it did is done ("published", "acked", "nacked", "released"), so that faults can wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import trio

from callboard.actors.partition.commands import JITTER
from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.consumer.mixed_batch import MixedBatch
from callboard.log.errors import CallboardError, GroupExists, InvalidArgument, LeaseLost, PartialPublish
from callboard.message import Message, Receipt
from callboard.simulations.history.entry import (
    BACKOFF,
    BATCH,
    LAZY,
    MAYBE,
    RECEIVING,
    SAME_BATCH,
    SETTLEMENTS,
    member_name,
    plain,
)
from callboard.simulations.history.recorder import History

RETRY_AFTER_S = 0.5
NOT_GIVEN_BACK = "(and "
"""How the notes begin that `receive` adds to an exception when it could not settle the message."""


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
        partition: int | None = None,
        acks: str = "all",
    ) -> str:
        """Publish; returns how it ended: "published", "refused" or "unsure".

        After an indefinite error it is tried again while the world's `retry_budget` lasts.
        """
        number = self._history.message(value, key, headers, timestamp, partition)
        message = Message(value, key, headers, timestamp, partition)
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
        partitions: Sequence[int | None] | None = None,
        acks: str = "all",
    ) -> str:
        """Publish a batch; "published" or "refused" when that holds for all of it, else "unsure".

        As columns, or with `partitions` as `Message`s. A batch of which nothing is known is tried again while the
        world's `retry_budget` lasts.
        """
        columns = {"keys": keys, "headers": headers, "timestamps": timestamps}
        history, count = self._history, len(values)
        beside = [column or [None] * count for column in (*columns.values(), partitions)]
        numbers = tuple(map(history.message, values, *beside))
        batch: Sequence[bytes | Message] = values
        if partitions is not None:
            batch, columns = list(map(Message, values, *beside)), {}
        while True:
            end = await self._publish_batch(numbers, batch, columns, acks)
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

    async def _publish_batch(
        self, numbers: tuple[int, ...], batch: Sequence[bytes | Message], columns: dict[str, Any], acks: str
    ) -> str:
        """One try; "doubtful" when it failed as a whole and may have happened."""
        operation = self._begin(numbers, acks)
        try:
            receipts = await self.topic.publish_batch(batch, **columns, acks=acks)
        except PartialPublish as partial:
            self._fates(operation, numbers, partial.receipts, acks)
            return "unsure"
        except CallboardError as error:
            end = self._failed(operation, numbers, error)
            return "doubtful" if end == "unsure" else end
        except trio.Cancelled:
            self._record("unsure", operation, numbers, detail="cancelled")
            raise
        told: dict[int, list[tuple[int, int]]] = {}
        for number, receipt in zip(numbers, receipts, strict=True):
            if receipt.offset is None:
                self._unawaited.extend(numbers)
                return self._record("unsure", operation, numbers, detail="not waited for")
            told.setdefault(receipt.partition, []).append((number, receipt.offset))
        self._history.stored.update(numbers)
        for partition, part in told.items():
            here, offsets = zip(*part, strict=True)
            self._record("published", operation, here, partition, offsets, acks)
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


def _lost(error: LeaseLost) -> Sequence[tuple[int, int]]:
    """The ranges that an error names."""
    ranges: Sequence[tuple[int, int]] = error.fields["lost"]
    return ranges


def _is_in(offset: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= offset < stop for start, stop in ranges)


_Lazy = tuple[int, ReceivedMessage | ReceivedBatch, tuple[int, ...]]
"""An ack that is not awaited: its operation, what it is of, and the offsets."""


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
        self._lazy: list[_Lazy] = []
        self._flushing: list[list[_Lazy]] = []
        """What tasks that flush just now wait for."""
        self._batch_of: dict[ReceivedMessage, ReceivedBatch] = {}
        self._singly: dict[ReceivedBatch, set[int]] = {}
        """Offsets of a batch that were settled by themselves."""

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
        message: ReceivedMessage | None = await self._asked(
            lambda: self.inner.get(timeout=timeout), timeout=timeout
        )
        return message

    def receive(self, *, timeout: float | None = None) -> ObservedReceiving:
        """Keep one message leased while a body runs."""
        return ObservedReceiving(self, self.inner.receive(timeout=timeout), timeout)

    async def next_batch(self, *, max_records: int = 100, max_wait: float = 0.01) -> ReceivedBatch:
        """The next batch."""
        batches = self.inner.batches(max_records=max_records, max_wait=max_wait)
        batch: ReceivedBatch = await self._asked(batches.__anext__, fills_s=max_wait, detail=BATCH)
        return batch

    async def next_parts(
        self, *, max_records: int = 100, max_wait: float = 0.01
    ) -> tuple[ReceivedBatch, ...]:
        """The parts of the next batch, which may be of several partitions."""
        batches = self.inner.batches(max_records=max_records, max_wait=max_wait, mixed=True)
        batch: MixedBatch = await self._asked(batches.__anext__, fills_s=max_wait, detail=BATCH)
        return batch.parts

    async def _asked(
        self,
        call: Callable[[], Any],
        *,
        timeout: float | None = None,
        fills_s: float = 0.0,
        detail: str = "",
    ) -> Any:
        """Ask for what comes next, and record since when it is waited for; None is recorded as given up."""
        began = self._history.now()
        self._record("asks", self.life, until=began + fills_s)
        try:
            held = await call()
        except BaseException:
            self._record("gave up", self.life)
            raise
        if held is None:
            self._record("gave up", self.life, until=began, detail=repr(timeout))
        else:
            self._delivered(held, detail)
        return held

    def _delivered(self, held: ReceivedMessage | ReceivedBatch | MixedBatch, detail: str = "") -> None:
        if isinstance(held, MixedBatch):
            for each in held.parts:
                self._delivered(each, detail)
            return
        identify = self._history.identify
        if isinstance(held, ReceivedBatch):
            columns = held.values(), held.keys(), held.headers(), held.timestamps()
            ids = tuple(map(identify, *columns))
            rows = [
                (number, message.offset, message.attempt, message.deadline)
                for number, message in zip(ids, held, strict=True)
            ]
        else:
            number = identify(held.value, held.key, held.headers, held.timestamp)
            rows = [(number, held.offset, held.attempt, held.deadline)]
        for until, part in groupby(rows, key=itemgetter(3)):  # a batch may be of several leases
            ids, offsets, attempts, _ = zip(*part, strict=True)
            self._record(
                "delivered", self.life, held, offsets, ids=ids, attempts=attempts, until=until, detail=detail
            )
            detail = SAME_BATCH
        self._world.probe("deliver", self.who)

    # -- settling

    async def ack(self, held: ReceivedMessage | ReceivedBatch, *, wait: bool = True) -> str:
        """Ack; returns how it ended. Without `wait` that is "unsure" until `flush`."""
        return await self._settle("ack", held, lambda: held.ack(wait=wait), lazy=not wait)

    async def nack(
        self,
        held: ReceivedMessage | ReceivedBatch,
        *,
        delay: float | None = 0.0,
        reason: str | None = None,
    ) -> str:
        """Nack; returns how it ended. Without a `delay` the group's backoff holds."""
        until = self._history.now() + (self.backoff_s(held) if delay is None else delay)
        detail = BACKOFF if delay is None else ""
        return await self._settle(
            "nack", held, lambda: held.nack(delay=delay, reason=reason), until=until, detail=detail
        )

    def backoff_s(self, held: ReceivedMessage | ReceivedBatch) -> float:
        """For how long at least a nack without a delay of its own keeps a message back."""
        attempt = min(held.attempts()) if isinstance(held, ReceivedBatch) else held.attempt
        settings = self.inner.settings
        if settings.retry is not None:
            delays = (settings.retry,) if isinstance(settings.retry, (int, float)) else settings.retry
            return float(delays[min(attempt, len(delays)) - 1])
        longest: float = settings.max_backoff
        least: float = settings.backoff * 2.0 ** (attempt - 1)
        return min(longest, least) * (1 - JITTER)

    async def release(self, held: ReceivedMessage | ReceivedBatch) -> str:
        """Release; returns how it ended."""
        return await self._settle("release", held, held.release)

    async def extend(self, message: ReceivedMessage, seconds: float) -> str:
        """Extend the lease; returns how it ended."""
        until = self._history.now() + seconds
        return await self._settle("extend", message, lambda: message.extend(seconds), until=until)

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
        if isinstance(held, ReceivedBatch):
            singly = self._singly.get(held, ())
            pairs = [
                pair for pair in zip(held.offsets(), held.attempts(), strict=True) if pair[0] not in singly
            ]
            offsets, attempts = tuple([pair[0] for pair in pairs]), tuple([pair[1] for pair in pairs])
        else:
            offsets, attempts = (held.offset,), (held.attempt,)
        operation = self._history.operation()
        detail = LAZY if lazy else detail
        self._record(verb, operation, held, offsets, attempts=attempts, until=until, detail=detail)
        self._world.probe(verb, self.who)
        try:
            await call()
        except LeaseLost as error:
            if verb != "extend":
                self._settled_singly(held)
            if lazy:  # it names others, which were lost before; no flush names those again
                self._tell_failed(error)
                self._lazy.append((operation, held, offsets))
                return "unsure"
            lost = tuple([offset for offset in offsets if _is_in(offset, _lost(error))]) or offsets
            self._record_others(SETTLEMENTS[verb], operation, held, offsets, lost)
            return self._record("lost", operation, held, lost)
        except InvalidArgument:
            raise  # nothing that is asked here makes no sense
        except CallboardError as error:
            return self._record("unsure", operation, held, offsets, detail=type(error).__name__)
        except trio.Cancelled:
            self._record("unsure", operation, held, offsets, detail="cancelled")
            raise
        if verb != "extend":
            self._settled_singly(held)
        if lazy:
            self._lazy.append((operation, held, offsets))
            return "unsure"
        until = held.deadline if verb == "extend" else 0.0
        end = self._record(SETTLEMENTS[verb], operation, held, offsets, until=until)
        self._world.probe(end, self.who)
        return end

    def messages_of(self, batch: ReceivedBatch) -> list[ReceivedMessage]:
        """The messages of a batch, to be settled by themselves: settling the batch then leaves them out."""
        messages = list(batch)
        self._batch_of.update(dict.fromkeys(messages, batch))
        return messages

    def _settled_singly(self, held: ReceivedMessage | ReceivedBatch) -> None:
        if isinstance(held, ReceivedMessage) and held in self._batch_of:
            self._singly.setdefault(self._batch_of[held], set()).add(held.offset)

    async def flush(self) -> None:
        """Wait until all acks that were not awaited are synced. When one failed, none is known to have happened.

        Of leases that are lost it is known which: the other acks are synced.
        """
        lazy, self._lazy = self._lazy, []
        self._flushing.append(lazy)
        self._world.probe("flush", self.who)
        try:
            await self.inner.flush()
        except CallboardError as error:
            self._tell_failed(error)
        except trio.Cancelled:
            self._lazy[:0] = lazy
            lazy.clear()
            raise
        finally:
            self._flushing = [other for other in self._flushing if other is not lazy]
        self._tell_acked(lazy)

    def _tell_acked(self, lazy: list[_Lazy]) -> None:
        for operation, held, offsets in lazy:
            self._record("acked", operation, held, offsets)

    def _tell_failed(self, error: CallboardError) -> None:
        """An error is about all acks that were not awaited, whichever task's: which were lost, or that some failed."""
        for lazy in (*self._flushing, self._lazy):
            if isinstance(error, LeaseLost):
                lazy[:] = self._lost_of(lazy, _lost(error))
                continue
            for operation, held, offsets in lazy:
                self._record("unsure", operation, held, offsets, detail=type(error).__name__)
            lazy.clear()

    def _lost_of(self, lazy: list[_Lazy], lost: Sequence[tuple[int, int]]) -> list[_Lazy]:
        """Tell of the acks that were lost; returns the others.

        Ranges name offsets alone: which of two acks of one offset is meant is unknown.
        """
        pools = (*self._flushing, self._lazy)
        acks = Counter(offset for pool in pools for _, _, offsets in pool for offset in offsets)
        others = []
        for operation, held, offsets in lazy:
            named = tuple([offset for offset in offsets if _is_in(offset, lost)])
            if not named:
                others.append((operation, held, offsets))
            elif all(acks[offset] <= 1 for offset in named):
                self._record("lost", operation, held, named)
                self._record_others("unsure", operation, held, offsets, named)
            else:
                self._record("unsure", operation, held, offsets, detail="LeaseLost")
        return others

    def _record_others(
        self, kind: str, operation: int, held: Any, offsets: tuple[int, ...], lost: tuple[int, ...]
    ) -> None:
        """How a settlement ended for those of its messages that were not lost."""
        others = tuple([offset for offset in offsets if offset not in lost])
        if others:
            self._record(kind, operation, held, others)

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

    def __init__(self, consumer: ObservedConsumer, inner: Any, timeout: float | None) -> None:
        self._consumer = consumer
        self._inner = inner
        self._timeout = timeout
        self._message: ReceivedMessage | None = None

    async def __aenter__(self) -> ReceivedMessage | None:
        self._message = await self._consumer._asked(
            self._inner.__aenter__, timeout=self._timeout, detail=RECEIVING
        )
        return self._message

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        consumer, message = self._consumer, self._message
        if message is None or message.settled:
            return bool(await self._inner.__aexit__(kind, error, traceback))
        verb = "ack" if error is None else "nack" if isinstance(error, Exception) else "release"
        operation = consumer._history.operation()
        place = message, (message.offset,)
        is_nack = verb == "nack"
        until = consumer._history.now() + consumer.backoff_s(message) if is_nack else 0.0
        detail = BACKOFF if is_nack else ""
        consumer._record(verb, operation, *place, attempts=(message.attempt,), until=until, detail=detail)
        consumer._world.probe(verb, consumer.who)
        end = "unsure"
        try:
            absorbed = bool(await self._inner.__aexit__(kind, error, traceback))
            notes = getattr(error, "__notes__", ())
            if not any(note.startswith(NOT_GIVEN_BACK) for note in notes):
                end = SETTLEMENTS[verb]
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
    When the group was altered meanwhile, it names no settings.
    """
    try:
        return await _consume(world, machine, topic, group, who, work, **settings)
    except GroupExists:
        return await _consume(world, machine, topic, group, who, work)


async def _consume(
    world: Surroundings,
    machine: int,
    topic: Any,
    group: str,
    who: str,
    work: Callable[[ObservedConsumer], Any],
    **settings: Any,
) -> bool:
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
            consumer._tell_acked(consumer._lazy)  # leaving is the last flush
            how = ""
        except Exception as error:
            if isinstance(error, LeaseLost):
                consumer._tell_failed(error)
                consumer._tell_acked(consumer._lazy)
            how = f"{type(error).__name__}{MAYBE if getattr(error, 'indefinite', False) else ''}"
            raise
        finally:
            consumer._record("gone", consumer.life, detail=how)
            world.probe("gone", who)
            if world.consumers.get(who) is consumer:
                del world.consumers[who]
    return consumer.is_crashed
