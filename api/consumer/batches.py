"""How a consumer makes batches: of what one partition has, or of what several have (`mixed`).

A batch waits for company only while no partition has anything more for it: one of a single partition is handed over at
once when another partition has, or may have, something; a mixed one takes that too. Leases of partitions whose turn
comes are asked for ahead, several at a time, while the caller is quick.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import trio

from callboard.consumer.arguments import check_batch_size, patience_of
from callboard.consumer.messages import ReceivedBatch
from callboard.consumer.mixed_batch import MixedBatch

if TYPE_CHECKING:
    from callboard.actors.partition.port import PartitionPort
    from callboard.actors.settings import GroupSettings
    from callboard.consumer.leases import Asked, ConsumerLease, ConsumerLeases, LeasedPart
    from callboard.consumer.messages import ReceivedMessage
    from callboard.consumer.notices import AwaitedPartitions
    from callboard.consumer.settlements import Settlements
    from callboard.session import Session

FILL_AT: Final = 1 / 3
"""The part of a lease after which a batch is filled no longer."""


class TakesBatches:
    """The part of a consumer that makes batches."""

    session: Session
    leases: ConsumerLeases
    settlements: Settlements
    settings: GroupSettings
    _awaited: AwaitedPartitions[PartitionPort]
    _turns: dict[str, dict[PartitionPort, None]]
    _buffer: deque[ReceivedMessage]
    _untaken: ConsumerLease | None
    _filling: list[LeasedPart]
    _asked: Asked | None
    _late: dict[PartitionPort, Asked]
    _turn: trio.Lock
    _open: bool
    _given_at: float | None
    _took_s: float

    if TYPE_CHECKING:
        give_back_buffer: Callable[[], None]
        is_fresh: Callable[[ConsumerLease], bool]

        def _check_taking(self) -> None: ...
        def _give_up_late(self, ports: Iterable[PartitionPort]) -> None: ...
        def _is_wanted(self, lease: ConsumerLease) -> bool: ...
        def _lasts_s(self) -> float: ...
        def _look_at(self, ports: Iterable[PartitionPort]) -> None: ...
        async def _answer(self) -> ConsumerLease | None: ...
        async def _ask(
            self, unit: int, port: PartitionPort | None = None, *, can_wait: bool = True
        ) -> bool: ...
        async def _first(self, unit: int, until: float) -> ConsumerLease | None: ...
        async def _pass(self) -> None: ...

    async def get_batch(
        self, max_records: int, max_wait: float, *, mixed: bool, timeout: float | None
    ) -> ReceivedBatch | MixedBatch | None:
        """See `Consumer.get_batch`."""
        max_records, max_wait = check_batch_size(max_records, max_wait)
        timeout = patience_of(timeout)
        until = math.inf if timeout is None else trio.current_time() + timeout
        parts = await self._take_parts(max_records, max_wait, until, mixed=mixed)
        if not parts:
            return None
        if not mixed:
            return ReceivedBatch(self.settlements, parts)
        by_port: dict[PartitionPort, list[LeasedPart]] = {}
        for part in parts:
            by_port.setdefault(part.lease.port, []).append(part)
        return MixedBatch([ReceivedBatch(self.settlements, parts) for parts in by_port.values()])

    async def _take_parts(
        self, max_records: int, max_wait: float, until: float, *, mixed: bool
    ) -> list[LeasedPart]:
        """What the next batch has; nothing when nothing was ready by `until`."""
        self.session.check_open()
        self._check_taking()
        if self._given_at is not None:
            self._took_s = self.session.clock.monotonic() - self._given_at
        is_quick = self._took_s < min(0.1, self.settings.visibility_timeout / 8)
        if self._turn.locked():
            with trio.move_on_at(until) as waiting:
                await self._turn.acquire()
            if waiting.cancelled_caught:
                return []
        else:
            self._turn.acquire_nowait()
        try:
            parts: list[LeasedPart] = []
            if not is_quick and self._late:
                self._give_up_late([port for port, asked in self._late.items() if not asked.is_late])
            while not parts:
                if self._untaken is not None:
                    await self._pass()
                untaken = self._untaken
                if self._buffer or (untaken is not None and not (is_quick and self.is_fresh(untaken))):
                    # Fetched one by one, it comes again as part of a batch. And others get what is slow to be taken.
                    self.give_back_buffer()
                lease = self._untaken or await self._first(max_records, until)
                if lease is None:
                    return []
                parts.append(lease.take(max_records))
                self._untaken = lease if lease.untaken else None
                count = parts[0].size
                if count < max_records and max_wait > 0:
                    self._filling = parts
                    try:
                        count = await self._fill(parts, max_records, max_wait, mixed=mixed)
                    except BaseException:
                        self.leases.give_back(parts)
                        raise
                    finally:
                        self._filling = []
                    self._drop_stale(parts)
            if is_quick and self._untaken is None and self._asked is None and count >= max_records:
                # The next lease is then journalled together with the coming ack.
                await self._ask(max_records, can_wait=False)
        finally:
            self._turn.release()
        self._given_at = self.session.clock.monotonic()
        return parts

    def _drop_stale(self, parts: list[LeasedPart]) -> None:
        """Give back the parts that are not fresh: filling a batch may take long."""
        stale = [part for part in parts if not self.is_fresh(part.lease)]
        if stale:
            parts[:] = [part for part in parts if part not in stale]
            self.leases.give_back(stale)

    async def _fill(self, parts: list[LeasedPart], max_records: int, max_wait: float, *, mixed: bool) -> int:
        """Add to `parts` until they are `max_records`, or `max_wait` is over; returns how many they are.

        What a partition has been asked for by then, and does not answer, belongs to the next call.
        """
        count, lease = parts[0].size, parts[0].lease
        port = self._if_it_has_more(lease.port)
        """Where there may be more; None: with the partition whose turn it is."""
        left_s = lease.stale_at - self.session.clock.monotonic() - (1 / 2 - FILL_AT) * self._lasts_s()
        with trio.move_on_after(min(max_wait, max(0.0, left_s))):
            while count < max_records and self._open:
                if port is None and not mixed:
                    if self._turns:
                        break
                elif await self._ask(max_records if port is None else max_records - count, port):
                    more = await self._answer()
                    if more is None:
                        port = None
                    elif self._is_wanted(more):
                        parts.append(more.take(max_records - count))
                        self._untaken = more if more.untaken else None
                        count, port = count + parts[-1].size, self._if_it_has_more(more.port)
                    else:
                        self.leases.give_back([more.take(more.untaken)])
                    if more is not None or (mixed and self._turns):
                        continue
                    if self._turns:
                        break
                elif not mixed or self.leases.room() <= 0:
                    break
                elif port is not None:
                    port = None
                    continue
                await self._awaited.wait()
                self._look_at(self._awaited.take())
                if not mixed and (port := self._if_it_has_more(lease.port)) is None:
                    break
        if not self._open:
            self._check_taking()
        return count

    def _if_it_has_more(self, port: PartitionPort) -> PartitionPort | None:
        """The partition, if there may be more in it."""
        return port if port in self._turns.get(port.topic, ()) else None
