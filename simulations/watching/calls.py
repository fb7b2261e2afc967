"""Records what the program does with Callboard: publishes, deliveries, settlements, reads, questions to its actors and
their events. For the length of a watched run the public methods are replaced by ones that record and call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import cbor2
import trio

from callboard.actors.kernel import ActorIncarnation, ActorRef, Batch, DurableActor, Ending
from callboard.consumer.batches import BatchTaker
from callboard.consumer.contexts import Receiving
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.consumer.mixed_batch import MixedBatch
from callboard.consumer.reader import BatchReader
from callboard.log.errors import CallboardError, LeaseLost, PartialPublish
from callboard.message import Message, Receipt
from callboard.simulations.history.entry import SETTLEMENTS
from callboard.simulations.watching.watch import Watch, raised_at
from callboard.topic import Topic

USERS: Final = "user/"
"""What the paths of actors begin with that the program has spawned."""
Original = Callable[..., Any]


@contextmanager
def watched_calls(watch: Watch) -> Iterator[None]:
    """Replace the methods while inside."""
    calls = _Calls(watch)
    made: list[tuple[type, str, Callable[[Original], Original]]] = [
        (Topic, "publish", calls.publish),
        (Topic, "publish_batch", calls.publish_batch),
        (Topic, "flush", calls.flush),
        (Fetcher, "__aenter__", calls.join),
        (Fetcher, "__aexit__", calls.leave),
        (Fetcher, "get", calls.get),
        (BatchTaker, "get_batch", calls.get),
        (Receiving, "__aexit__", calls.end_receiving),
        (BatchReader, "__anext__", calls.read),
        (ActorRef, "ask", calls.ask),
        (ActorRef, "ask_nowait", calls.tell),
        (ActorRef, "tell", calls.tell_waiting),
        (ActorRef, "tell_nowait", calls.tell),
        (Batch, "__iter__", calls.take),
        (ActorIncarnation, "_report", calls.crash),
        (DurableActor, "persist", calls.persist),
        (DurableActor, "started", calls.recover),
        (DurableActor, "_replayed", calls.replay),
        *(
            (owner, verb, calls.settlement(verb))
            for owner in (ReceivedMessage, ReceivedBatch)
            for verb in SETTLEMENTS
            if hasattr(owner, verb)
        ),
    ]
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in made]
    try:
        for (owner, name, make), (_, _, original) in zip(made, originals, strict=True):
            setattr(owner, name, make(original))
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


class _Calls:
    """Makes a method that records and calls the original."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._replayed: dict[str, list[Any]] = {}

    @contextmanager
    def _told(self, fields: dict[str, Any], *, lost: bool = False) -> Iterator[None]:
        """An operation under way: what it raises is recorded with `fields`, and passes."""
        record = self._watch.record
        try:
            yield
        except LeaseLost:
            record("lost" if lost else "refused", **{**fields, "detail": "LeaseLost"})
            raise
        except CallboardError as error:
            kind = "unsure" if error.indefinite else "refused"
            record(kind, **{**fields, "detail": type(error).__name__})
            raise
        except trio.Cancelled:
            record("unsure", **{**fields, "detail": "cancelled"})
            raise

    # -- publishing

    def publish(self, original: Original) -> Original:
        """`Topic.publish`."""
        watch = self._watch

        async def publish(topic: Topic, value: bytes | Message, **given: Any) -> Receipt:
            if not watch.is_watched():
                return await original(topic, value, **given)  # type: ignore[no-any-return]
            payload = value.value if isinstance(value, Message) else value
            key = value.key if isinstance(value, Message) else given.get("key")
            acks = given.get("acks", "all")
            number = watch.messages.published(topic.name, _bytes(payload), _bytes(key))
            with watch.operation() as operation:
                fields = {"operation": operation, "topic": topic.name, "ids": (number,)}
                told = watch.shown(payload) + (f", key {watch.shown(key)}" if key is not None else "")
                told += f", acks={acks!r}" if acks != "all" else ""
                watch.record("publish", **fields, detail=told)
                with self._told(fields):
                    receipt: Receipt = await original(topic, value, **given)
                if receipt.offset is None:
                    watch.record("unsure", **fields, detail="not waited for")
                else:
                    place = receipt.partition, receipt.offset
                    watch.messages.stored(number, topic.name, *place)
                    place_fields = {"partition": receipt.partition, "offsets": (receipt.offset,)}
                    watch.record("published", **fields, **place_fields, detail=acks)
            return receipt

        return publish

    def publish_batch(self, original: Original) -> Original:
        """`Topic.publish_batch`."""
        watch = self._watch

        async def publish_batch(topic: Topic, values: Sequence[Any], **given: Any) -> Any:
            if not watch.is_watched() or not isinstance(values, Sequence):
                return await original(topic, values, **given)
            payloads = [value.value if isinstance(value, Message) else value for value in values]
            keys = given.get("keys") or [
                value.key if isinstance(value, Message) else None for value in values
            ]
            numbers = tuple(
                watch.messages.published(topic.name, _bytes(payload), _bytes(key))
                for payload, key in zip(payloads, keys, strict=False)
            )
            with watch.operation() as operation:
                fields = {"operation": operation, "topic": topic.name}
                watch.record("publish", **fields, ids=numbers, detail=watch.shown.several(payloads))
                try:
                    with self._told({**fields, "ids": numbers}):
                        receipts = await original(topic, values, **given)
                except PartialPublish as partial:
                    self._placed(topic, fields, numbers, partial.receipts)
                    raise
                self._placed(topic, fields, numbers, receipts)
            return receipts

        return publish_batch

    def _placed(
        self, topic: Topic, fields: dict[str, Any], numbers: Sequence[int], receipts: Sequence[Any]
    ) -> None:
        """Record where the messages of a batch are, a partition at a time."""
        places: dict[int, list[tuple[int, int]]] = {}
        for number, receipt in zip(numbers, receipts, strict=False):
            if isinstance(receipt, Receipt) and receipt.offset is not None:
                self._watch.messages.stored(number, topic.name, receipt.partition, receipt.offset)
                places.setdefault(receipt.partition, []).append((number, receipt.offset))
        for partition, stored in places.items():
            ids, offsets = zip(*stored, strict=True)
            self._watch.record(
                "published", **fields, partition=partition, ids=ids, offsets=offsets, detail="all"
            )

    def flush(self, original: Original) -> Original:
        """`Topic.flush`."""
        watch = self._watch

        async def flush(topic: Topic) -> None:
            if not watch.is_watched():
                await original(topic)
                return
            with watch.operation() as operation:
                with self._told({"operation": operation, "topic": topic.name}):
                    await original(topic)
                watch.record("flushed", operation=operation, topic=topic.name)

        return flush

    # -- consuming

    def join(self, original: Original) -> Original:
        """`Consumer.__aenter__`."""
        watch = self._watch

        async def enter(consumer: Fetcher) -> Fetcher:
            if not watch.is_watched():
                return await original(consumer)  # type: ignore[no-any-return]
            with watch.operation():
                entered: Fetcher = await original(consumer)
            watch.record("joined", topic=_topics(consumer), group=consumer.group)
            return entered

        return enter

    def leave(self, original: Original) -> Original:
        """`Consumer.__aexit__`."""
        watch = self._watch

        async def leave(consumer: Fetcher, kind: Any, error: Any, traceback: Any) -> Any:
            if not watch.is_watched():
                return await original(consumer, kind, error, traceback)
            why = "" if error is None else type(error).__name__
            watch.record("left", topic=_topics(consumer), group=consumer.group, detail=why)
            with watch.operation():
                return await original(consumer, kind, error, traceback)

        return leave

    def get(self, original: Original) -> Original:
        """`Fetcher.get` and `get_batch`, which iterating and `receive` call too."""
        watch = self._watch

        async def get(taker: Fetcher | BatchTaker, *args: Any, **given: Any) -> Any:
            given_out = await original(taker, *args, **given)
            if given_out is not None and watch.is_watched():
                for held in given_out.parts if isinstance(given_out, MixedBatch) else (given_out,):
                    watch.record("delivered", **_place(held), group=taker.group, **self._contents(held))
            return given_out

        return get

    def _contents(self, held: ReceivedMessage | ReceivedBatch) -> dict[str, Any]:
        if isinstance(held, ReceivedBatch):
            values, keys, attempts = held.values(), held.keys(), tuple(held.attempts())
        else:
            values, keys, attempts = [held.value], [held.key], (held.attempt,)
        return {**self._known(held, values, keys), "attempts": attempts}

    def _known(self, held: Any, values: Sequence[Any], keys: Sequence[Any]) -> dict[str, Any]:
        columns = zip(_place(held)["offsets"], values, keys, strict=True)
        found = self._watch.messages.found
        ids = tuple(found(held.topic, held.partition, *each) for each in columns)
        return {"ids": ids, "detail": self._watch.shown.several(values)}

    def settlement(self, verb: str) -> Callable[[Original], Original]:
        """`ack`, `nack`, `release` and `extend` of messages and batches."""
        watch = self._watch

        def make(original: Original) -> Original:
            async def settle(held: Any, *args: Any, **given: Any) -> None:
                if not watch.is_watched():
                    await original(held, *args, **given)
                    return
                with watch.operation() as operation:
                    fields = {**_place(held), "operation": operation, "group": held._settlements.leases.group}
                    wait = given.get("wait", True)
                    why = given.get("reason") or ("" if wait else "does not wait")
                    watch.record(verb, **fields, detail=watch.shown(why, 100).strip("'\"") if why else "")
                    with self._told(fields, lost=True):
                        await original(held, *args, **given)
                    if wait:
                        watch.record(SETTLEMENTS[verb], **fields)

            return settle

        return make

    def end_receiving(self, original: Original) -> Original:
        """The end of `async with consumer.receive()`, where it is neither an ack nor a nack, which tell themselves."""
        watch = self._watch

        async def leave(receiving: Receiving[Any], kind: Any, error: Any, traceback: Any) -> Any:
            message = receiving._message
            if message is None or message.settled or not watch.is_watched():
                return await original(receiving, kind, error, traceback)
            fields = {**_place(message), "group": receiving._consumer.group}
            try:
                absorbed = await original(receiving, kind, error, traceback)
            except LeaseLost:
                watch.record("lost", **fields)
                raise
            if error is not None and not isinstance(error, Exception):
                watch.record("release", **fields, detail="its handler was cancelled")
            return absorbed

        return leave

    def read(self, original: Original) -> Original:
        """`BatchReader.__anext__`, by which `Topic.read` goes too."""
        watch = self._watch

        async def read(reader: BatchReader) -> Any:
            found = await original(reader)
            if watch.is_watched():
                watch.record("read", **_place(found), **self._known(found, found.values(), found.keys()))
            return found

        return read

    # -- actors

    def ask(self, original: Original) -> Original:
        """`ActorRef.ask`."""
        watch = self._watch

        async def ask(ref: ActorRef[Any], message: Any, **given: Any) -> Any:
            if not ref.path.startswith(USERS) or not watch.is_watched():
                return await original(ref, message, **given)
            with watch.operation() as operation:
                number = watch.messages.sent(ref.path, message)
                fields = {"operation": operation, "topic": ref.path, "ids": (number,)}
                watch.record("asks actor", **fields, detail=watch.shown(message))
                try:
                    answer = await original(ref, message, **given)
                except trio.Cancelled:
                    watch.record("no answer", **fields, detail="cancelled")
                    raise
                except Exception as error:
                    watch.record("no answer", **fields, detail=type(error).__name__)
                    raise
                watch.record("has the answer", **fields, detail=watch.shown(answer))
            return answer

        return ask

    def tell(self, original: Original) -> Original:
        """`ActorRef.tell_nowait` and `ask_nowait`."""

        def tell(ref: ActorRef[Any], message: Any) -> Any:
            self._record_tell(ref, message)
            return original(ref, message)

        return tell

    def tell_waiting(self, original: Original) -> Original:
        """`ActorRef.tell`."""

        async def tell(ref: ActorRef[Any], message: Any) -> None:
            self._record_tell(ref, message)
            await original(ref, message)

        return tell

    def _record_tell(self, ref: ActorRef[Any], message: Any) -> None:
        watch = self._watch
        if ref.path.startswith(USERS) and watch.is_watched():
            number = watch.messages.sent(ref.path, message)
            watch.record("tells actor", topic=ref.path, ids=(number,), detail=watch.shown(message))

    def take(self, original: Original) -> Original:
        """Iterating a `Batch`, by which every message reaches its actor."""
        watch = self._watch

        def take(batch: Batch[Any]) -> Iterator[Any]:
            path = batch._mailbox._path
            if not path.startswith(USERS):
                yield from original(batch)
                return
            for envelope in original(batch):
                number = watch.messages.taken(path, envelope.message)
                ids = () if number is None else (number,)
                watch.record("takes", who=path, ids=ids, detail=watch.shown(envelope.message))
                yield envelope

        return take

    def crash(self, original: Original) -> Original:
        """The end of an actor by an error."""
        watch = self._watch

        def report(incarnation: ActorIncarnation[Any], ending: Ending) -> None:
            path, error = incarnation.cell.path, ending.error
            if error is not None and path.startswith(USERS):
                watch.failed(error, path, raised_at(error), watch.here()[2])
            original(incarnation, ending)

        return report

    def persist(self, original: Original) -> Original:
        """`DurableActor.persist`."""
        watch = self._watch

        async def persist(actor: DurableActor[Any, Any], *events: Any) -> None:
            with watch.operation() as operation:
                told = watch.shown.several(events)
                watch.record("persists", operation=operation, detail=told)
                await original(actor, *events)
                watch.record("persisted", operation=operation, detail=told)

        return persist

    def recover(self, original: Original) -> Original:
        """`DurableActor.started`."""
        watch = self._watch

        async def started(actor: DurableActor[Any, Any]) -> None:
            path = actor.context.path
            self._replayed[path] = []
            await original(actor)
            events = self._replayed.pop(path, [])
            watch.record("recovered", detail=watch.shown.several(events), attempts=(len(events),))

        return started

    def replay(self, original: Original) -> Original:
        """One event that a `DurableActor` replays."""

        def replayed(actor: DurableActor[Any, Any], data: bytes) -> None:
            self._replayed.setdefault(actor.context.path, []).append(cbor2.loads(data))
            original(actor, data)

        return replayed


def _bytes(value: Any) -> bytes | None:
    return (
        value
        if value is None or isinstance(value, bytes)
        else bytes(value)
        if isinstance(value, bytearray)
        else None
    )


def _place(held: Any) -> dict[str, Any]:
    offsets = tuple(held.offsets()) if hasattr(held, "offsets") else (held.offset,)
    return {"topic": held.topic, "partition": held.partition, "offsets": offsets}


def _topics(consumer: Fetcher) -> str:
    return " and ".join(live.name for live in consumer.topics.lives)
