"""The account of a simulated replay: what a topic's partitions hold, compared with the recording, record by record.

Each partition has to hold what the replay brings it, in order and once. What it should be is read from the recording
a second time, as far ahead as the log is; so the account takes the same memory for a recording of any size.

Records that the disk lost for good, and of which the log says so, may be missing; those are counted. None may be
altered, come twice, or come from elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from callboard.message import ColumnBatch, RecordBatch
from callboard.replay.merging import Merger
from callboard.replay.sources import ReplayLane, ReplaySource, Timed
from callboard.simulations.violations import Violation

PROMISE: Final = "a replayed topic holds the recording"
LOST_TOGETHER_MAX: Final = 100_000
"""This many records may be missing in one place; more are looked for in vain."""


class _AuditedRows:
    """What there is of each record in a batch, column by column."""

    def __init__(self, batch: ColumnBatch) -> None:
        self._columns: Sequence[Sequence[object]] = (
            batch.values(),
            batch.keys(),
            batch.headers(),
            batch.timestamps(),
        )

    def __len__(self) -> int:
        return len(self._columns[0])

    def are_alike(self, at: int, others: _AuditedRows, other_at: int, count: int) -> bool:
        """Whether `count` records from `at` on are those of the other batch from `other_at` on."""
        return all(
            mine[at : at + count] == theirs[other_at : other_at + count]
            for mine, theirs in zip(self._columns, others._columns, strict=True)
        )


NOTHING: Final = _AuditedRows(ColumnBatch("", 0, ()))


class _Expected:
    """What is to come in one partition."""

    def __init__(self) -> None:
        self.batches: deque[Timed] = deque()
        self.rows = NOTHING
        """Of the first batch."""
        self.at = 0

    def has_rows(self) -> bool:
        """Whether a record is in hand."""
        while self.at >= len(self.rows) and self.batches:
            columns = self.batches.popleft().columns
            self.rows, self.at = _AuditedRows(RecordBatch("", 0, columns)), 0
        return self.at < len(self.rows)

    def take(self, count: int) -> None:
        """This many records have come."""
        self.at += count


class Audit:
    """Compares what comes out of a topic of `partitions` partitions with the recording."""

    def __init__(self, source: ReplaySource, partitions: int, *, is_raw: bool) -> None:
        self.records = 0
        """Found so far, all as they should be."""
        self.missing = 0
        """Passed over because they were not there."""
        self.offsets = [0] * partitions
        """Up to where each partition has been compared."""
        self._expected = [_Expected() for _ in range(partitions)]
        self._readers: Sequence[ReplayLane | Merger]
        """One for each partition, or one for all."""
        if is_raw:
            self._readers = [ReplayLane(source, index, None) for index in range(partitions)]
        else:
            self._readers = [Merger(source, [None] * partitions)]
        self._is_over = [False] * partitions

    async def take(self, batch: ColumnBatch) -> None:
        """The records of a partition from `offsets` on, as its log holds them."""
        found = _AuditedRows(batch)
        done, total = 0, len(batch)
        while done < total:
            expected = await self._ahead(batch.partition)
            if expected is None:
                raise self._wrong(batch, done, "and the recording has no more for this partition")
            count = min(total - done, len(expected.rows) - expected.at)
            if expected.rows.are_alike(expected.at, found, done, count):
                expected.take(count)
                done += count
            else:
                done += await self._take_slowly(batch, found, done)
        self.records += total
        self.offsets[batch.partition] = batch.offsets()[-1] + 1

    async def _take_slowly(self, batch: ColumnBatch, found: _AuditedRows, done: int) -> int:
        """Take one record, and note as missing what should have come before it."""
        missing = 0
        while missing <= LOST_TOGETHER_MAX:
            expected = await self._ahead(batch.partition)
            if expected is None:
                break
            is_it = expected.rows.are_alike(expected.at, found, done, 1)
            expected.take(1)
            if is_it:
                self.missing += missing
                return 1
            missing += 1
        raise self._wrong(batch, done, "which is altered, comes twice, or out of turn")

    def _wrong(self, batch: ColumnBatch, done: int, words: str) -> Violation:
        place = f"{batch.topic}/{batch.partition}@{batch.offsets()[done]}"
        return Violation(PROMISE, f"{place} is {batch.values()[done]!r:.80}, {words}")

    async def remaining(self) -> int:
        """How many records have not come; none are left then."""
        left = 0
        for index, _ in enumerate(self._expected):
            while (expected := await self._ahead(index)) is not None:
                count = len(expected.rows) - expected.at
                left += count
                expected.take(count)
        return left

    async def aclose(self) -> None:
        """Close the files."""
        for reader in self._readers:
            await reader.aclose()

    async def _ahead(self, index: int) -> _Expected | None:
        """What is to come next in a partition; None when nothing is."""
        expected = self._expected[index]
        while not expected.has_rows() and not self._is_over[index]:
            found = await self._readers[index % len(self._readers)].next()
            self._is_over[index] = found is None
            for target, timed in found or ():
                self._expected[target].batches.append(timed)
        return expected if expected.has_rows() else None
