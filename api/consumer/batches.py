"""How a consumer makes batches: of what one partition has, or of what several have (`mixed`).

A batch waits for company only while no partition has anything more for it: one of a single partition is handed over at
once when another partition has, or may have, something; a mixed one takes that too. Leases of partitions whose turn
comes are asked for ahead, several at a time, while the caller is quick.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from callboard.consumer.arguments import check_batch_size, patience_of
from callboard.consumer.messages import ReceivedBatch
from callboard.consumer.mixed_batch import MixedBatch

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.consumer.fetcher import Fetcher
    from callboard.consumer.leases import LeasedPart

FILL_AT: Final = 1 / 3
"""The part of a lease after which a batch is filled no longer."""


class BatchTaker:
    """Takes what a consumer fetches as batches."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.group = fetcher.group
        self.topics = fetcher.topics
        self.fetcher = fetcher
        self._leases = fetcher.leases
        self._settlements = fetcher.settlements
        self._turns = fetcher.turns
        self._questions = fetcher.questions
        self._fetched = fetcher.fetched

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
            return ReceivedBatch(self._settlements, parts)
        by_port: dict[PartitionPort, list[LeasedPart]] = {}
        for part in parts:
            by_port.setdefault(part.lease.port, []).append(part)
        return MixedBatch([ReceivedBatch(self._settlements, parts) for parts in by_port.values()])

    async def _take_parts(
        self, max_records: int, max_wait: float, until: float, *, mixed: bool
    ) -> list[LeasedPart]:
        """What the next batch has; nothing when nothing was ready by `until`."""
        fetcher, fetched = self.fetcher, self._fetched
        fetcher.session.check_open()
        fetcher.member.check_taking()
        is_quick = fetcher.pace.batch_wanted(fetcher.settings)
        if fetcher.lock.locked():
            with trio.move_on_at(until) as waiting:
                await fetcher.lock.acquire()
            if waiting.cancelled_caught:
                return []
        else:
            fetcher.lock.acquire_nowait()
        try:
            parts: list[LeasedPart] = []
            if not is_quick:
                self._questions.give_up_ahead()
            while not parts:
                if fetched.untaken is not None:
                    await self._leases.loop_pass.step()
                untaken = fetched.untaken
                if fetched.buffer or (untaken is not None and not (is_quick and fetched.is_fresh(untaken))):
                    # Fetched one by one, it comes again as part of a batch. And others get what is slow to be taken.
                    fetched.give_back_buffer()
                lease = fetched.untaken or await fetcher.first(max_records, until)
                if lease is None:
                    return []
                parts.append(lease.take(max_records))
                fetched.keep(lease)
                count = parts[0].size
                if count < max_records and max_wait > 0:
                    fetched.fills(parts)
                    try:
                        count = await self._fill(parts, max_records, max_wait, mixed=mixed)
                    except BaseException:
                        self._leases.give_back(parts)
                        raise
                    finally:
                        fetched.fills([])
                    fetched.drop_stale(parts)
            if (
                is_quick
                and fetched.untaken is None
                and self._questions.asked is None
                and count >= max_records
            ):
                # The next lease is then journalled together with the coming ack.
                await fetcher.ask(max_records, can_wait=False)
        finally:
            fetcher.lock.release()
        fetcher.pace.batch_given()
        return parts

    async def _fill(self, parts: list[LeasedPart], max_records: int, max_wait: float, *, mixed: bool) -> int:
        """Add to `parts` until they are `max_records`, or `max_wait` is over; returns how many they are.

        What a partition has been asked for by then, and does not answer, belongs to the next call.
        """
        fetcher, member, turns = self.fetcher, self.fetcher.member, self._turns
        count, lease = parts[0].size, parts[0].lease
        port = self._if_it_has_more(lease.port)
        """Where there may be more; None: with the partition whose turn it is."""
        left_s = (
            lease.stale_at - fetcher.session.clock.monotonic() - (1 / 2 - FILL_AT) * self._questions.lasts_s()
        )
        with trio.move_on_after(min(max_wait, max(0.0, left_s))):
            while count < max_records and member.is_open:
                if port is None and not mixed:
                    if turns.are_left:
                        break
                elif await fetcher.ask(max_records if port is None else max_records - count, port):
                    more = await fetcher.answer()
                    if more is None:
                        port = None
                    elif self._fetched.is_wanted(more):
                        parts.append(more.take(max_records - count))
                        self._fetched.keep(more)
                        count, port = count + parts[-1].size, self._if_it_has_more(more.port)
                    else:
                        self._leases.give_back([more.take(more.untaken)])
                    if more is not None or (mixed and turns.are_left):
                        continue
                    if turns.are_left:
                        break
                elif not mixed or self._leases.room() <= 0:
                    break
                elif port is not None:
                    port = None
                    continue
                await turns.awaited.wait()
                turns.look_at(turns.awaited.take())
                if not mixed and (port := self._if_it_has_more(lease.port)) is None:
                    break
        if not member.is_open:
            member.check_taking()
        return count

    def _if_it_has_more(self, port: PartitionPort) -> PartitionPort | None:
        """The partition, if there may be more in it."""
        return port if self._turns.may_have_more(port) else None
