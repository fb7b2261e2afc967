"""The demo's workers: one consumer group, three ways to consume, and the failures of the plan.

A worker writes down a delivery when it has it in hand, the work when it is done, and the acknowledgement only after
it was awaited. An acknowledgement that fails is not repeated: the message comes again, to this worker or another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from callboard.cli.demo_plan import Failure
from callboard.cli.demo_publish import HEADER, identify
from callboard.cli.demo_record import Recorder
from callboard.log.errors import ActorCrashed, AskTimeout, LeaseLost, PartitionUnavailable, StorageError
from callboard.recordings import digest_of

__all__ = ["GROUP", "VISIBILITY_S", "WorkerFailed", "Workers"]

GROUP = "workers"
VISIBILITY_S = 1.0
_HANG_S = 1.3 * VISIBILITY_S
_NACK_DELAY_S = 0.02
_REJOIN_PAUSE_S = 0.02
BACKOFF_S, BACKOFF_MAX_S = 0.02, 0.5
BATCH_RECORDS = 64
IN_FLIGHT_MAX = 256
_SETTLEMENT_FAILED = (LeaseLost, ActorCrashed, AskTimeout, PartitionUnavailable, StorageError)


class WorkerFailed(Exception):
    """The failure that the demo's plan asks for."""


class Workers:
    """A group of workers. `busy` counts those that are handling messages."""

    def __init__(
        self,
        topic: Any,
        recorder: Recorder,
        *,
        failures: dict[int, Failure],
        sent: dict[int, float],
        acknowledged: Callable[[int], None],
    ) -> None:
        """`failures` are taken out as they happen, `sent` as messages are handled; `acknowledged(count)` is called."""
        self._topic = topic
        self._recorder = recorder
        self._failures = failures
        self._sent = sent
        self._acknowledged = acknowledged
        self.busy = 0

    async def work(self, index: int) -> None:
        """Run worker number `index`, for ever."""
        style = (self._one_by_one, self._in_batches, self._held, self._in_batches)[index % 4]
        while True:
            try:
                async with self._topic.subscribe(
                    GROUP,
                    visibility_timeout=VISIBILITY_S,
                    max_in_flight=IN_FLIGHT_MAX,
                    backoff=BACKOFF_S,
                    max_backoff=BACKOFF_MAX_S,
                ) as consumer:
                    await style(consumer)
            except _SETTLEMENT_FAILED:
                await trio.sleep(_REJOIN_PAUSE_S)

    # -- batch after batch

    async def _in_batches(self, consumer: Any) -> None:
        async for batch in consumer.batches(max_records=BATCH_RECORDS, max_wait=0.01):
            self.busy += 1
            try:
                await self._batch(consumer, batch)
            except _SETTLEMENT_FAILED:
                continue
            finally:
                self.busy -= 1

    async def _batch(self, consumer: Any, batch: Any) -> None:
        messages = list(batch)
        planned = self._receive(messages)
        if not planned:
            self._handled(messages)
            await self._settle(messages, batch.ack)
            return
        if Failure.HANG in planned.values():
            await trio.sleep(_HANG_S)
        done = []
        for message in messages:
            failure = planned.get(message.offset)
            if failure is Failure.RAISE:
                await message.nack(delay=_NACK_DELAY_S, reason="the demo's worker fails now and then")
            elif failure is Failure.CANCEL:
                await message.release()
            else:
                done.append(message)
        self._handled(done)
        for message in done:
            await message.ack(wait=False)
        await self._settle(done, consumer.flush)

    async def _settle(self, messages: Sequence[Any], settle: Callable[[], Awaitable[None]]) -> None:
        """Await acknowledgements, and record those that took effect."""
        try:
            await settle()
        except LeaseLost as error:
            lost = [range(start, stop) for start, stop in error.fields.get("lost", ())]
            messages = [
                message for message in messages if lost and not any(message.offset in span for span in lost)
            ]
        self._settled(messages)

    # -- message after message, settled by hand

    async def _one_by_one(self, consumer: Any) -> None:
        async for message in consumer:
            self.busy += 1
            try:
                await self._one(message)
            except _SETTLEMENT_FAILED:
                continue
            finally:
                self.busy -= 1

    async def _one(self, message: Any) -> None:
        failure = self._receive([message]).get(message.offset)
        if failure is Failure.RAISE:
            await message.nack(delay=_NACK_DELAY_S, reason="the demo's worker fails now and then")
            return
        if failure is Failure.CANCEL:
            await message.release()
            return
        if failure is Failure.HANG:
            await trio.sleep(_HANG_S)
        self._handled([message])
        await message.ack()
        self._settled([message])

    # -- message after message, each held while a body runs

    async def _held(self, consumer: Any) -> None:
        while True:
            taken: list[Any] = []
            try:
                with trio.CancelScope() as scope:
                    async with consumer.receive() as message:
                        taken.append(message)
                        self.busy += 1
                        await self._body(message, scope)
                if taken and not scope.cancelled_caught:
                    self._settled(taken)
            except (WorkerFailed, *_SETTLEMENT_FAILED):
                continue
            finally:
                self.busy -= len(taken)

    async def _body(self, message: Any, scope: trio.CancelScope) -> None:
        failure = self._receive([message]).get(message.offset)
        if failure is Failure.RAISE:
            raise WorkerFailed("the demo's worker fails now and then")
        if failure is Failure.CANCEL:
            scope.cancel()
            await trio.lowlevel.checkpoint()
        if failure is Failure.HANG:
            await trio.sleep(_HANG_S)
        self._handled([message])

    # -- what is written down

    def _receive(self, messages: Sequence[Any]) -> dict[int, Failure]:
        """Write down the delivery (all of one partition), check each message; the planned failures by offset."""
        self._recorder.offsets("D", messages[0].partition, [message.offset for message in messages])
        planned: dict[int, Failure] = {}
        for message in messages:
            number, digest = identify(message.headers.get(HEADER))
            if number is None or digest != digest_of(message.key, message.value):
                self._recorder.offsets("X", message.partition, [message.offset])
                continue
            failure = self._failures.pop(number, None)
            if failure is not None:
                planned[message.offset] = failure
        return planned

    def _handled(self, messages: Sequence[Any]) -> None:
        if not messages:
            return
        self._recorder.offsets("H", messages[0].partition, [message.offset for message in messages])
        now = trio.current_time()
        numbers = (identify(message.headers.get(HEADER))[0] for message in messages)
        times = [self._sent.pop(number, None) for number in numbers if number is not None]
        waited = [round((now - sent) * 1e6) for sent in times if sent is not None]
        if waited:
            self._recorder.numbers("L", waited)

    def _settled(self, messages: Sequence[Any]) -> None:
        if messages:
            self._recorder.offsets("K", messages[0].partition, [message.offset for message in messages])
            self._acknowledged(len(messages))
