"""A consumer, as programs hold it: what they call to take messages of a group. `Fetcher` does the work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, overload

from callboard.actors.settings import GroupSettings
from callboard.arguments import check_flag
from callboard.consumer.arguments import check_batch_size
from callboard.consumer.batches import BatchTaker
from callboard.consumer.contexts import Batches, Receiving
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.consumer.mixed_batch import MixedBatch
from callboard.log.errors import ConsumerDrained
from callboard.log.plain import refuse_copy

MAX_RECORDS = 1000
MAX_WAIT_S = 0.01


class Consumer:
    """Made by `Topic.subscribe` or `Runtime.subscribe`; use it with `async with`. Tasks may share it, or each have one
    of its own.
    """

    __reduce_ex__ = refuse_copy

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._batches = BatchTaker(fetcher)

    def __repr__(self) -> str:
        return repr(self._fetcher)

    @property
    def group(self) -> str:
        """The name of its group."""
        return self._fetcher.group

    @property
    def name(self) -> str | None:
        """Its display name, which `Runtime.groups` shows beside its id; None without one."""
        return self._fetcher.name

    @property
    def settings(self) -> GroupSettings:
        """The settings of its group, as far as it knows them."""
        return self._fetcher.settings

    @property
    def assigned(self) -> tuple[tuple[str, int], ...]:
        """In an exclusive group: the partitions that are this consumer's now, as (topic, partition), sorted."""
        return self._fetcher.assigned

    async def __aenter__(self) -> Self:
        await self._fetcher.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._fetcher.__aexit__(kind, error, traceback)

    # -- one by one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        try:
            return await self._fetcher.get()
        except ConsumerDrained:
            raise StopAsyncIteration from None

    @overload
    async def get(self, *, timeout: None = None) -> ReceivedMessage: ...
    @overload
    async def get(self, *, timeout: float | None) -> ReceivedMessage | None: ...
    async def get(self, *, timeout: float | None = None) -> ReceivedMessage | None:
        """The next message; None when there is none within `timeout` seconds (None, or `math.inf`: wait for ever).

        `timeout=0` looks once: it waits for the partitions' answers, for 50 ms at most, and for nothing else.

        Every call is a checkpoint where it can be cancelled, and a cancelled call loses no message. It is not always a
        schedule point: of messages that were fetched together, up to 64 come in one pass of the loop, within a
        millisecond. So is iterating.
        """
        return await self._fetcher.get(timeout=timeout)

    @overload
    def receive(self, *, timeout: None = None, wait: bool = True) -> Receiving[ReceivedMessage]: ...
    @overload
    def receive(self, *, timeout: float | None, wait: bool = True) -> Receiving[ReceivedMessage | None]: ...
    def receive(self, *, timeout: float | None = None, wait: bool = True) -> Receiving[Any]:
        """`async with consumer.receive() as message:` holds the lease while the body runs.

        A body that ends acks the message, one that raises nacks it (with a growing delay) and lets the exception pass,
        one that is cancelled releases it. When the lease is lost all the same, the body is cancelled and `LeaseLost` is
        raised. With a `timeout`, the message is None when there was none. With `wait=False` the ack is handed over and
        not waited for: `flush`, or leaving the consumer, reports whether it counted.
        """
        self._fetcher.check_open()
        return Receiving(self._fetcher, timeout, wait=check_flag("wait", wait))

    async def flush(self) -> None:
        """Return once every `ack(wait=False)` so far is synced.

        Raises `LeaseLost` when some of those messages had been leased again, and `StorageError` when acks could not be
        written: their messages are delivered again. Raises `TopicNotFound` when the topic of some was deleted.
        """
        await self._fetcher.flush()

    # -- batches

    @overload
    def batches(
        self, *, max_records: int = MAX_RECORDS, max_wait: float = MAX_WAIT_S, mixed: Literal[False] = False
    ) -> Batches: ...
    @overload
    def batches(
        self, *, max_records: int = MAX_RECORDS, max_wait: float = MAX_WAIT_S, mixed: Literal[True]
    ) -> AsyncIterator[MixedBatch]: ...
    def batches(
        self, *, max_records: int = MAX_RECORDS, max_wait: float = MAX_WAIT_S, mixed: bool = False
    ) -> Any:
        """Iterate batches of up to `max_records` messages: the quickest way to consume.

        Each is of one partition; with `mixed`, of any that have something. One that is not full waits for company, for
        `max_wait` seconds at most, or a third of the visibility timeout; one of one partition does not wait while other
        partitions have something.
        """
        self._fetcher.check_open()
        max_records, max_wait = check_batch_size(max_records, max_wait)
        mixed = check_flag("mixed", mixed)
        return Batches(partial(self._batches.get_batch, max_records, max_wait, mixed=mixed, timeout=None))

    @overload
    async def get_batch(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_wait: float = MAX_WAIT_S,
        mixed: Literal[False] = False,
        timeout: None = None,
    ) -> ReceivedBatch: ...
    @overload
    async def get_batch(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_wait: float = MAX_WAIT_S,
        mixed: Literal[False] = False,
        timeout: float | None,
    ) -> ReceivedBatch | None: ...
    @overload
    async def get_batch(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_wait: float = MAX_WAIT_S,
        mixed: Literal[True],
        timeout: None = None,
    ) -> MixedBatch: ...
    @overload
    async def get_batch(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_wait: float = MAX_WAIT_S,
        mixed: Literal[True],
        timeout: float | None,
    ) -> MixedBatch | None: ...
    async def get_batch(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_wait: float = MAX_WAIT_S,
        mixed: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """One batch, as `batches` gives it; None when no message is there within `timeout` seconds, as in `get`.

        `max_wait` begins with the first message of the batch, and `timeout` ends with it.
        """
        mixed = check_flag("mixed", mixed)
        return await self._batches.get_batch(max_records, max_wait, mixed=mixed, timeout=timeout)

    # -- draining

    @property
    def is_draining(self) -> bool:
        """Whether `drain` was called."""
        return self._fetcher.is_draining

    def drain(self) -> None:
        """Take no further message: give back what was fetched ahead, and end every wait for a message.

        `get`, `receive` and a batch raise `ConsumerDrained` from now on, also those that wait; iterating ends. Bodies
        that run, and messages in hand, are not touched: settle them, then leave the consumer. Does not wait.
        """
        self._fetcher.drain()
