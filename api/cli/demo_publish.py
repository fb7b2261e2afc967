"""The demo's publishers: batches and single messages, in order within each key, repeated until acknowledged.

Events of one key always go through the same publisher, which has one publish under way at a time and repeats what
failed before it goes on: so the first appearances of a key's events in the log are in the order of the input.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import trio

from callboard.cli.demo_record import Recorder
from callboard.log.errors import (
    ActorCrashed,
    AskTimeout,
    CallboardError,
    PartialPublish,
    PartitionUnavailable,
    PublishFailed,
)
from callboard.message import Message
from callboard.recordings import Event

__all__ = ["HEADER", "Numbered", "Publishers", "identify"]

Numbered = tuple[int, Event]

HEADER = "n"
"""The header that names the event: its number in the input and its digest, as text."""
PUBLISHERS = 2
BATCHES_PER_SINGLES = 8
SINGLES = 10
TRIES_MAX = 100
_PAUSE_S, _PAUSE_MAX_S = 0.005, 0.25
_RETRIED = (ActorCrashed, AskTimeout, PartitionUnavailable, PublishFailed)


def identify(header: bytes | None) -> tuple[int | None, int]:
    """Number and digest that a message's header names; (None, 0) for none."""
    number, _, digest = (header or b"").partition(b" ")
    try:
        return int(number), int(digest, 16)
    except ValueError:
        return None, 0


def message_of(number: int, event: Event) -> Message:
    """The event as a message."""
    return Message(
        event.value, key=event.key, headers={HEADER: b"%d %x" % (number, event.digest)}, timestamp=event.time
    )


class Publishers:
    """Publishes events. `sent` holds when each event was first handed over, for whoever measures latency.

    `under_way` counts the events that are handed over and neither acknowledged nor failed.
    """

    def __init__(
        self,
        topic: Any,
        recorder: Recorder,
        *,
        batch: int,
        sending: Callable[[], None],
        revive: Callable[[PartitionUnavailable], Any],
        acknowledged: Callable[[int], Any],
    ) -> None:
        """`sending()` is called before each publish, `acknowledged(count)` awaited after each success, and
        `revive(error)` when a partition refuses.
        """
        self._topic = topic
        self._recorder = recorder
        self._batch = batch
        self._sending = sending
        self._revive = revive
        self._acknowledged = acknowledged
        self.sent: dict[int, float] = {}
        self.under_way = 0

    async def run(self, events: Iterable[Numbered]) -> None:
        """Publish all of `events`; returns when the last one is acknowledged."""
        async with trio.open_nursery() as nursery:
            channels = []
            for _ in range(PUBLISHERS):
                send, receive = trio.open_memory_channel[list[Numbered]](2)
                channels.append(send)
                nursery.start_soon(self._publisher, receive)
            for index, portion in _portions(events, self._batch):
                await channels[index].send(portion)
            for channel in channels:
                channel.close()

    async def _publisher(self, portions: trio.MemoryReceiveChannel[list[Numbered]]) -> None:
        turn = 0
        async for portion in portions:
            if turn % BATCHES_PER_SINGLES == 0:
                for single in portion[:SINGLES]:
                    await self._publish([single])
                portion = portion[SINGLES:]
            turn += 1
            if portion:
                await self._publish(portion)

    async def _publish(self, pending: Sequence[Numbered]) -> None:
        """Publish these, repeating what failed, until all are acknowledged."""
        problem: CallboardError | None = None
        for attempt in range(TRIES_MAX):
            started = trio.current_time()
            for number, _ in pending:
                self.sent.setdefault(number, started)
            self._recorder.numbers("S", (number for number, _ in pending))
            self.under_way += len(pending)
            self._sending()
            outcomes = await self._attempt(pending)
            self.under_way -= len(pending)
            stored = [
                (number, found)
                for (number, _), found in zip(pending, outcomes, strict=True)
                if not isinstance(found, CallboardError)
            ]
            if stored:
                self._record_stored(stored)
                self._recorder.numbers("Q", [round((trio.current_time() - started) * 1e6)])
                await self._acknowledged(len(stored))
            failed = [
                (numbered, found)
                for numbered, found in zip(pending, outcomes, strict=True)
                if isinstance(found, CallboardError)
            ]
            if not failed:
                return
            doubtful = [number for (number, _), error in failed if error.indefinite]
            if doubtful:
                self._recorder.numbers("E", doubtful)
            problem = failed[0][1]
            if isinstance(problem, PartitionUnavailable):
                await self._revive(problem)
            pending = [numbered for numbered, _ in failed]
            await trio.sleep(min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S))
        raise PublishFailed(f"The demo could not publish in {TRIES_MAX} tries. The last error: {problem}")

    async def _attempt(self, pending: Sequence[Numbered]) -> Sequence[Any]:
        """A receipt or an error for each."""
        messages = [message_of(number, event) for number, event in pending]
        try:
            if len(messages) == 1:
                only = messages[0]
                return [
                    await self._topic.publish(
                        only.value, key=only.key, headers=only.headers, timestamp=only.timestamp
                    )
                ]
            return list(await self._topic.publish_batch(messages))
        except PartialPublish as error:
            return error.receipts
        except _RETRIED as error:
            return [error] * len(messages)

    def _record_stored(self, stored: Sequence[tuple[int, Any]]) -> None:
        """Write down the receipts, a line per run of offsets."""
        by_partition: dict[int, list[tuple[int, int]]] = {}
        for number, receipt in stored:
            by_partition.setdefault(receipt.partition, []).append((receipt.offset, number))
        for partition, places in by_partition.items():
            start = 0
            for index in range(1, len(places) + 1):
                if index == len(places) or places[index][0] != places[index - 1][0] + 1:
                    numbers = [number for _, number in places[start:index]]
                    self._recorder.stored(partition, places[start][0], numbers)
                    start = index


def _portions(events: Iterable[Numbered], size: int) -> Iterator[tuple[int, list[Numbered]]]:
    """The events in portions for each publisher, those of one key always for the same."""
    collected: list[list[Numbered]] = [[] for _ in range(PUBLISHERS)]
    for number, event in events:
        index = (number if event.key is None else zlib.crc32(event.key)) % PUBLISHERS
        collected[index].append((number, event))
        if len(collected[index]) >= size:
            yield index, collected[index]
            collected[index] = []
    for index, rest in enumerate(collected):
        if rest:
            yield index, rest
