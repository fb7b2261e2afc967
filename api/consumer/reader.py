"""Reading without a group: nothing is leased, nothing settled, any number of readers.

A reader starts in every partition at the same kind of place (an offset, an instant, the beginning or the end) and ends,
unless it follows, at what was visible when it began. Order holds within a partition.

Retention does not wait for such a reader. One that it overtakes has missed records, and gets an error:
`OffsetOutOfRange`, once; asked again, the reader goes on with the first record kept. With `skip_dropped` it goes on at
once, and counts.

What was read together is handed over in passes of the loop, as a consumer's messages are (`LoopPass`).

Invariants
----------
RD1  Reading goes on: each answer of a partition ends above the offset that it was asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import trio

from callboard.actors.kernel import Question
from callboard.actors.mirror import MirroredTopic
from callboard.actors.partition.commands import Describe, OffsetAt, PartitionStatistics, Read, WaitForVisible
from callboard.actors.settings import Start, checked_start
from callboard.arguments import check_flag
from callboard.asking import ask_again, ended
from callboard.consumer.notices import AwaitedPartitions
from callboard.consumer.passes import LoopPass
from callboard.log.errors import (
    ActorStopped,
    InternalError,
    InvalidArgument,
    OffsetOutOfRange,
)
from callboard.log.limits import READ_BYTES_DEFAULT
from callboard.log.plain import refuse_copy, shown, whole
from callboard.message import Record, RecordBatch, to_us
from callboard.publishing.publisher import publisher_of

if TYPE_CHECKING:
    from callboard.log.format.columns import Columns
    from callboard.session import Session

RECORDS_MAX = 10_000

A = TypeVar("A")


class BatchReader:
    """Asynchronous iterator of `RecordBatch`es. Close it by leaving the loop; it holds nothing.

    Every step is a checkpoint where it can be cancelled, and a cancelled one passes over nothing. It is not always a
    schedule point: of batches that were read together, up to 64 come in one pass of the loop, within a millisecond.
    """

    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        session: Session,
        live: MirroredTopic,
        *,
        start: Start,
        stop: Start | None,
        partition: int | None,
        follow: bool,
        skip_dropped: bool,
    ) -> None:
        start = plain_start("start", start)
        if stop is not None:
            stop = plain_start("stop", stop)
        count, index = len(live.ports), whole(partition)
        if partition is not None and (index is None or not 0 <= index < count):
            raise InvalidArgument(
                f"topic {live.name!r} has no partition {shown(partition, 40)}. Its partitions are 0 to {count - 1}."
            )
        self._session = session
        self._live = live
        self._start = start
        self._stop = stop
        self._partitions = range(count) if index is None else (index,)
        self._follow = check_flag("follow", follow)
        self._skips_dropped = check_flag("skip_dropped", skip_dropped)
        self.dropped = 0
        """Offsets that retention dropped before they were read."""
        self._positions: dict[int, tuple[int, int | None]] | None = None
        self._turn: deque[int] = deque()
        self._awaited = AwaitedPartitions[int]()
        self._found: deque[RecordBatch] = deque()
        """Read, and not asked for yet; at most `RECORDS_MAX`, and about `READ_BYTES_DEFAULT`."""
        self._pass = LoopPass(session.clock)
        self._has_asked = False
        """Whether this step has asked a partition, and waited for it: then other tasks have run."""

    def __aiter__(self) -> BatchReader:
        return self

    async def __anext__(self) -> RecordBatch:
        await self._let_others_run()
        return await self._next_batch()

    async def _let_others_run(self, *, has_records: bool = False) -> None:
        """The checkpoint of a step that has batches, or its caller records: any other asks, and waits for answers."""
        self._session.check_run()
        if has_records or self._found:
            await self._pass.step()

    async def _next_batch(self) -> RecordBatch:
        """The next batch: no checkpoint when it was read before."""
        self._has_asked = False
        if self._positions is None:
            self._positions = {index: await self._range(index) for index in self._partitions}
            self._turn = deque(self._partitions)
        while not self._found:
            if self._turn:
                if not await self._read(self._turn[0]):
                    self._turn.popleft()
            elif self._follow and self._positions:
                await self._awaited.wait()
                self._turn.extend(index for index in self._awaited.take() if index in self._positions)
            else:
                if not self._has_asked:
                    await trio.lowlevel.checkpoint()
                raise StopAsyncIteration
        if self._has_asked:
            self._pass.begin()
        return self._found.popleft()

    async def _read(self, index: int) -> bool:
        """Find the next batches of one partition; False when there is nothing now, or nothing more."""
        positions = self._positions or {}
        offset, end = positions[index]
        if end is not None and offset >= end:
            positions.pop(index)
            return False
        records = RECORDS_MAX if end is None else min(RECORDS_MAX, end - offset)
        answer = await self._ask(index, Read(offset, records, READ_BYTES_DEFAULT))
        if answer is None:
            if self._follow:
                await self._await(index, offset)
            return False
        batches, next_offset, dropped = answer
        dropped = dropped if end is None else min(dropped, end - offset)
        if next_offset <= offset:
            raise InternalError(
                f"reading {self._live.ports[index].label} at {offset} finds no way on", invariant="RD1"
            )
        positions[index] = (next_offset, end)
        if dropped:
            self.dropped += dropped
        for columns in batches:
            trimmed = _below(end, columns)
            if trimmed is not None:
                self._found.append(RecordBatch(self._live.name, index, trimmed))
        if dropped and not self._skips_dropped:
            # What was found behind the dropped records stays for the next call.
            start = batches[0].offset(0) if batches else next_offset
            raise self._overtaken(index, offset, dropped, start, next_offset)
        return True

    def _overtaken(self, index: int, offset: int, dropped: int, start: int, end: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"retention dropped {dropped} offsets of {self._live.ports[index].label}, from {offset} on, before they"
            " were read. Ask again to go on with the first record kept, or read with skip_dropped=True, which counts"
            " them.",
            offset=offset,
            start=start,
            end=end,
        )

    async def _range(self, index: int) -> tuple[int, int | None]:
        statistics: PartitionStatistics = await self._ask(index, Describe())
        start = await self._resolve(index, self._start, statistics)
        if self._stop is not None:
            return start, await self._resolve(index, self._stop, statistics)
        return start, None if self._follow else statistics.visible_end

    async def _resolve(self, index: int, place: Start, statistics: PartitionStatistics) -> int:
        if isinstance(place, datetime):
            found: int = await self._ask(index, OffsetAt(to_us(place)))
            return found
        if place == "beginning":
            return statistics.start_offset
        if place == "end":
            return statistics.visible_end
        return max(int(place), statistics.start_offset)

    async def _await(self, index: int, offset: int) -> None:
        """Have a partition of which all is read say when there is more."""
        port = self._live.ports[index]
        try:
            await self._awaited.ask(port.index, port.ref, WaitForVisible(offset))
        except ActorStopped as error:
            raise ended(f"reading {port.label}") from error

    async def _ask(self, index: int, command: Question[A]) -> A:
        port, self._has_asked = self._live.ports[index], True
        publisher_of(self._session, self._live).account_of(port).want()
        return await ask_again(port.ref, command, f"reading {port.label}")


class RecordReader:
    """Asynchronous iterator of `Record`s over a `BatchReader`.

    Every step is a checkpoint where it can be cancelled, and a cancelled one passes over no record. It is not always a
    schedule point: of records that were read together, up to 64 come in one pass of the loop, within a millisecond.
    """

    __reduce_ex__ = refuse_copy

    def __init__(self, batches: BatchReader) -> None:
        self._batches = batches
        self._records: Iterator[Record] = iter(())
        self._left = 0
        """How many of these there are."""

    @property
    def dropped(self) -> int:
        """Offsets that retention dropped before they were read."""
        return self._batches.dropped

    def __aiter__(self) -> RecordReader:
        return self

    async def __anext__(self) -> Record:
        await self._batches._let_others_run(has_records=self._left > 0)
        while not self._left:
            batch = await self._batches._next_batch()
            self._records, self._left = iter(batch), len(batch)
        self._left -= 1
        return next(self._records)


def _below(end: int | None, columns: Columns) -> Columns | None:
    """What of a batch lies below `end`; None for nothing."""
    if end is None or columns.last_offset < end:
        return columns
    keep = sum([offset < end for offset in columns.offset_list()])
    return columns.select(0, keep) if keep else None


def plain_start(what: str, place: object) -> Start:
    """An offset, an instant, "beginning" or "end", as plain data. Raises `InvalidArgument`."""
    found, problem = checked_start(what, place)
    if problem is not None:
        raise InvalidArgument(f"{problem}. Nothing was read.")
    start: Start = found
    return start
