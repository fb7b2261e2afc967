"""A consumer that makes every call there is, in any order: what its programs may do, drawn call by call.

It takes messages one by one, with a body around them, or in batches, with and without timeouts, gives up waiting, holds
several at a time, settles them by hand in every way, the messages of a batch in parts, some too late, some never, and
tries again what was cancelled or failed. At last its own body ends: in good order, by an exception, or with all that it
holds. After this many calls, or some time after healing, it only does its work, so that everything is settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.log.errors import (
    CallboardError,
    GroupNotFound,
    InvalidArgument,
    LeaseLost,
    PartitionUnavailable,
    RuntimeClosed,
)
from callboard.simulations.history.clients import ObservedConsumer
from callboard.simulations.scenarios.draws import between, one_of, uniform
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import World

PROMISE: Final = "a message is settled once"
TIMEOUTS_S: Final = (None, 0.0, 0.02, 0.7)
HASTE_S: Final = (0.0, 0.0002, 0.002)
"""After how long a call is cancelled now and then."""
REFUSED_S: Final = 0.25
"""How long a consumer waits after an error."""
HELD_MAX: Final = 8
HOARD_S: Final = 0.02
"""How long a consumer that takes what there is waits for each batch,"""
FILLS_S: Final = (0.0, 0.002)
"""and how long for a batch to be filled."""
WORKED: Final = (0, 0, 2, 3, 5)
"""How many messages a consumer that only works asks for at a time, so that more are fetched ahead; 0: single ones."""


class BodyFailed(Exception):
    """A body's own failure."""


@attrs.define(eq=False)
class Held:
    """What the consumer has not settled: a message, or what is left of a batch."""

    whole: ReceivedMessage | ReceivedBatch
    parts: list[ReceivedMessage]
    """The messages of a batch that were not settled by themselves."""


class FreeConsumer:
    """One life of it. `may` says whether one more call may be any; it counts them."""

    def __init__(
        self,
        world: World,
        consumer: ObservedConsumer,
        draws: SeededEntropy,
        may: Callable[[], bool],
        visibility_s: float,
        *,
        hoards: bool = False,
    ) -> None:
        self._world = world
        self._consumer = consumer
        self._draws = draws
        self._may = may
        self._visibility_s = visibility_s
        self._hoards = hoards
        self._held: list[Held] = []
        self._failed = False

    async def run(self, tasks: int) -> None:
        """Consume by several tasks until one ends the consumer's body. Raises `BodyFailed` when that failed."""
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(self._task, nursery.cancel_scope)
        if self._failed:
            raise BodyFailed

    async def _task(self, all_tasks: trio.CancelScope) -> None:
        while self._may():
            try:
                if await self._call():
                    all_tasks.cancel()
                    return
            except (PartitionUnavailable, RuntimeClosed, GroupNotFound, InvalidArgument):
                raise
            except LeaseLost:
                pass  # recorded
            except CallboardError:
                await trio.sleep(REFUSED_S)
        await self._work()

    async def _work(self) -> None:
        """From here on only what must be done. What is held runs out, unless it is settled."""
        held, self._held = self._held, []
        for one in held:
            for message in one.parts:
                await self._consumer.ack(message)
        size = one_of(self._draws, WORKED)
        while True:
            following: ReceivedMessage | ReceivedBatch | None
            if size:
                following = await self._consumer.next_batch(max_records=size)
            else:
                following = await self._consumer.get()
            if following is not None and await self._consumer.ack(following) == "unsure":
                await trio.sleep(REFUSED_S)
                await self._consumer.ack(following)

    # -- calls

    async def _call(self) -> bool:
        """Make one call, or a few that belong together; whether the body ends."""
        if self._hoards and self._draws.random() < 0.8:
            await self._hoard()
            return False
        chance = self._draws.random()
        if chance < 0.30 and len(self._held) < HELD_MAX:
            await self._take()
        elif chance < 0.42:
            await self._receive()
        elif chance < 0.82 and self._held:
            await self._settle(self._held.pop(int(self._draws.random() * len(self._held))))
        elif chance < 0.87:
            await self._hastily(self._consumer.flush)
        elif chance < 0.95:
            await self._world.rest(self._visibility_s * one_of(self._draws, (0.001, 0.05, 0.3, 0.6, 1.1)))
        elif chance < 0.97 and self._held:
            self._held.pop()
        elif chance > 0.98:
            self._failed = self._draws.random() < 0.7
            return True
        return False

    async def _hastily(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call, which is cancelled now and then; None then."""
        if self._draws.random() < 0.8:
            return await call()
        with trio.move_on_after(one_of(self._draws, HASTE_S)):
            return await call()
        return None

    async def _take(self, timeouts_s: tuple[float | None, ...] = TIMEOUTS_S) -> None:
        """One more message, or batch."""
        consumer, draws = self._consumer, self._draws
        if draws.random() < 0.5 or None not in timeouts_s:
            timeout = one_of(draws, timeouts_s)
            message = await self._hastily(lambda: consumer.get(timeout=timeout))
            if message is not None:
                self._held.append(Held(message, [message]))
            return
        most, wait_s = between(draws, 1, 12), one_of(draws, (0.0, 0.01, self._visibility_s / 10))
        batch = await self._hastily(lambda: consumer.next_batch(max_records=most, max_wait=wait_s))
        if batch is not None:
            if len(batch) > most or len(batch) == 0:
                words = f"a batch of at most {most} messages has {len(batch)}"
                raise self._world.broken(Violation("a batch is as large as it was asked for", words))
            self._held.append(Held(batch, consumer.messages_of(batch)))

    async def _hoard(self) -> None:
        """Take batches one right after the other, as many as there is room for, and settle them all then."""
        draws, consumer, size = self._draws, self._consumer, between(self._draws, 2, 4)
        batches: list[ReceivedBatch] = []
        for _ in range(between(draws, 1, HELD_MAX)):
            with trio.move_on_after(HOARD_S):
                batches.append(await consumer.next_batch(max_records=size, max_wait=one_of(draws, FILLS_S)))
        for batch in batches:
            await consumer.ack(batch, wait=False)

    # -- settling

    async def _settle(self, held: Held) -> None:
        """Settle all of it, or some messages of a batch and then the rest, now or later."""
        is_batch = isinstance(held.whole, ReceivedBatch)
        if is_batch and self._draws.random() < 0.6:
            for message in list(held.parts):
                if self._draws.random() < 0.4 and await self._settled(message):
                    held.parts.remove(message)
            if self._draws.random() < 0.3:
                self._held.append(held)
                return
        if not held.parts:
            return
        if is_batch and self._draws.random() < 0.2:  # one by one to the end
            held.parts[:] = [message for message in held.parts if not await self._settled(message)]
            if held.parts:
                self._held.append(held)
        elif not await self._settled(held.whole):
            self._held.append(held)

    async def _settled(self, whole: ReceivedMessage | ReceivedBatch) -> bool:
        """Settle in some way; False when that was cancelled, or failed, and is to be tried again."""
        consumer, draws = self._consumer, self._draws
        verb = one_of(
            draws, ("ack", "ack", "ack", "lazy", "lazy", "lazy", "nack", "nack", "release", "extend")
        )
        if verb == "extend":
            if isinstance(whole, ReceivedMessage):
                seconds = self._visibility_s * one_of(draws, (0.2, 1.0, 1.5))
                await self._hastily(lambda: consumer.extend(whole, seconds))
            return False
        delay = one_of(draws, (None, 0.0, 0.2))
        calls: dict[str, Callable[[], Awaitable[str]]] = {
            "ack": lambda: consumer.ack(whole),
            "lazy": lambda: consumer.ack(whole, wait=False),
            "nack": lambda: consumer.nack(whole, delay=delay, reason="drawn"),
            "release": lambda: consumer.release(whole),
        }
        end = await self._hastily(calls[verb])
        is_settled = end is not None and (verb == "lazy" or end != "unsure")
        if is_settled and draws.random() < 0.1:
            await self._settle_again(whole)
        return is_settled

    async def _settle_again(self, whole: ReceivedMessage | ReceivedBatch) -> None:
        """What is settled is not settled once more."""
        wait = self._draws.random() < 0.5
        try:
            await whole.ack(wait=wait)
        except InvalidArgument:
            return
        raise self._world.broken(Violation(PROMISE, f"{whole!r} was settled twice"))

    # -- bodies

    async def _receive(self) -> None:
        """Hold a message while a body runs, which ends in some way."""
        draws = self._draws
        timeout = one_of(draws, TIMEOUTS_S)
        way = one_of(draws, ("ends", "ends", "fails", "is cancelled", "settles"))
        body_s = uniform(draws, 0.0, 1.4) * self._visibility_s * one_of(draws, (0.01, 0.2, 1.0))
        try:
            with trio.CancelScope() as scope:
                if draws.random() < 0.1:
                    scope.deadline = trio.current_time() + one_of(draws, HASTE_S)
                async with self._consumer.receive(timeout=timeout) as message:
                    if message is None:
                        return
                    scope.deadline = trio.current_time() + body_s if way == "is cancelled" else float("inf")
                    if draws.random() < 0.2 and len(self._held) < HELD_MAX:
                        await self._take(TIMEOUTS_S[1:])  # there may be room for no other
                    await trio.sleep(body_s)
                    if way == "fails":
                        raise BodyFailed
                    if way == "settles":
                        await self._settled(message)
                    elif way == "is cancelled":
                        await trio.sleep_forever()
        except BodyFailed:
            pass
