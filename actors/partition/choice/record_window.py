"""The record window: what a partition knows of a group's unsettled records before it leases them. Pure.

A group that needs no choice leases by offset and has no range here: untouched records cost it nothing. A group with a
choice (`keys`) has one range per partition. It begins at the group's floor and is continuous up to `end`, where
reading goes on; of what lies between, it holds the unsettled records, as columns of numbers and never as objects.

Vocabulary
----------
*Allowance*: the bytes that the ranges of the partition may take together. When more are needed, the partition asks for
more (`window_share`). When it gets less than it needs, or is to give some back, the ranges that were used longest ago
are *evicted*: they are empty again, and what they held is read again before their group's next lease.
*Seen*: the choice has looked at the first `seen` records of the range.
*Full*: the range has its limit of unsettled records, and no more are read until some are settled.
*Uniform*: records are uniform when a choice has no reason to prefer one to another: no key, and one priority. A range
whose unsettled records are all uniform does not hold them: its group leases them by offset, as one without a choice.

Invariants
----------
RW1  Offsets rise strictly, are below `end`, and every column has one value for each.
RW2  `count` is the number of records that are not settled; `dead` that of the others, which `compact` drops.
RW3  The allowance's `size_bytes` is the sum of what its ranges take. It exceeds `bytes_max` only by ranges in use, by
     what one step has added, until that is answered, and by ranges of at most `RECORDS_LEAST` unsettled records.
RW4  What is read to be leased for the first time fits into the allowance, at the most that a record may take, or makes
     no more than `RECORDS_LEAST` records of its range.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import compress, pairwise
from typing import Any, Final, NamedTuple

from callboard.actors.delivery.receipts import OffsetRange, between
from callboard.log.errors import InternalError
from callboard.log.format.columns import NO_TIME, Columns
from callboard.log.limits import KIB, WINDOW_COMPACT_RECORDS

NO_KEY: Final = 0
"""Stands for the hash of no key."""
NEVER_US: Final = 2**63 - 1
"""Stands for no expiry."""
USUAL_PRIORITY: Final = 4
"""That of a message which was published without one."""
DIFFERENT: Final = -1
"""Stands for no value that all records of a batch have."""
BARE_RECORD_BYTES: Final = 9
"""What a record takes besides its columns: its offset, and whether it is settled."""
RECORDS_LEAST: Final = 16
"""Unsettled records that a range may hold even when the allowance is exhausted."""
GRANT_BYTES: Final = 64 * KIB
"""What a partition asks for at a time, at least."""


def key_hash(key: bytes | None) -> int:
    """64 bits that stand for a key, the same in every process; `NO_KEY` for None."""
    return NO_KEY if key is None else int.from_bytes(blake2b(key, digest_size=8).digest(), "little") or 1


def _key_hashes(batch: Columns) -> Sequence[int]:
    keys = batch.key_list()
    known = {key: key_hash(key) for key in keys}
    return [known[key] for key in keys]


def _priorities(batch: Columns) -> Sequence[int]:
    return bytes(batch.count) if batch.priorities is None else bytes(batch.priorities)


def _only_priority(batch: Columns) -> int:
    if batch.priorities is None:
        return USUAL_PRIORITY + 1
    stored = bytes(batch.priorities)
    return (stored[0] or USUAL_PRIORITY + 1) if stored.count(stored[0]) == len(stored) else DIFFERENT


def _append_times(batch: Columns) -> Sequence[int]:
    times = batch.append_times
    return array("q", (batch.append_time_us,)) * batch.count if times is None else times


def _expiries(batch: Columns) -> Sequence[int]:
    if batch.expiries is None:
        return array("q", (NEVER_US,)) * batch.count
    return [NEVER_US if expiry == NO_TIME else expiry for expiry in batch.expiries]


COLUMNS: Final[dict[str, tuple[str, Callable[[Columns], Sequence[int]], Callable[[Columns], int]]]] = {
    "key_hash": ("Q", _key_hashes, lambda batch: NO_KEY if batch.keys is None else DIFFERENT),
    "one_key": ("B", lambda batch: b"\1" * batch.count, lambda _: DIFFERENT),
    "no_key": ("B", lambda batch: bytes(batch.count), lambda _: NO_KEY),
    "priority": ("B", _priorities, _only_priority),
    "append_us": ("q", _append_times, lambda _: 0),  # of one priority the oldest has the lowest offset
    "expiry_us": ("q", _expiries, lambda _: DIFFERENT),
}
"""What a choice may look at besides offsets: how it is stored, how it is read from a batch, and what tells the one
value of a uniform batch, or `DIFFERENT`."""


class WindowRecords(NamedTuple):
    """What a read from `start` to `next_offset` found: the columns of its records, and where there are none."""

    start: int
    next_offset: int
    offsets: array[int]
    columns: dict[str, array[Any]]
    absent: list[OffsetRange]
    """Offsets inside a batch that compaction has removed."""
    lost: list[OffsetRange]
    """Offsets that no batch covers."""
    uniform: tuple[int, ...] | None = None
    """The value in each column that all records have, when they are uniform and their columns were not wanted then."""


def window_records(
    start: int,
    next_offset: int,
    batches: Sequence[Columns],
    names: Sequence[str],
    *,
    unless_uniform: bool = False,
) -> WindowRecords:
    """The records of `batches`, which a read from `start` found, in the columns that are named: `unless_uniform`
    without offsets and columns when they are.
    """
    offsets, columns = array("q"), {name: array(COLUMNS[name][0]) for name in names}
    absent: list[OffsetRange] = []
    covered = [(batch.base_offset, batch.last_offset + 1) for batch in batches]
    uniform = _uniform(batches, names) if unless_uniform else None
    for batch, (first, end) in zip(batches, covered, strict=True):
        if batch.offset_deltas is not None:
            absent += between(first, end, [(offset, offset + 1) for offset in batch.offset_list()])
        if uniform is None:
            offsets.extend(batch.offset_list())
            for name, column in columns.items():
                column.extend(COLUMNS[name][1](batch))
        next_offset = max(next_offset, end)
    lost = between(start, next_offset, covered)
    return WindowRecords(start, next_offset, offsets, columns, absent, lost, uniform)


def _uniform(batches: Sequence[Columns], names: Sequence[str]) -> tuple[int, ...] | None:
    """The value in each column that all records have; None when they differ in one."""
    found = {tuple([COLUMNS[name][2](batch) for name in names]) for batch in batches}
    values = found.pop() if len(found) == 1 else (DIFFERENT,)
    return None if DIFFERENT in values else values


class WindowAllowance:
    """What the ranges of a partition may take together. One with `ask` is to be more when it is needed."""

    def __init__(self, bytes_max: int, ask: Callable[[], object] | None = None) -> None:
        self.bytes_max = bytes_max
        self.ask = ask
        """Has the partition ask for `wanted_bytes`; never waits. None: it stays as it is."""
        self.wanted_bytes = 0
        """What it is to be, until that is answered."""
        self.size_bytes = 0
        self._sizes: dict[RecordRange, int] = {}
        """By range, the one used longest ago first."""

    def charge(self, records: RecordRange, size_bytes: int) -> None:
        """`records` is used, and takes this much now."""
        self.size_bytes += size_bytes - self._sizes.pop(records, 0)
        if size_bytes:
            self._sizes[records] = size_bytes
        if self.may_grow_for(0):
            self.want(0)
        else:
            self._evict(self.bytes_max, records)

    def release(self, records: RecordRange) -> None:
        """`records` takes nothing any more."""
        self.size_bytes -= self._sizes.pop(records, 0)

    def may_grow_for(self, more_bytes: int) -> bool:
        """Whether `more_bytes` do not fit, and more may be asked for."""
        return self.size_bytes + more_bytes > self.bytes_max and self.ask is not None

    def want(self, more_bytes: int) -> None:
        """Ask for `more_bytes` beyond what its ranges take."""
        if self.ask is not None:
            self.wanted_bytes = self.size_bytes + max(more_bytes, GRANT_BYTES)
            self.ask()

    def left_for(self, records: RecordRange, more_bytes: int) -> int:
        """The bytes that are left; other ranges are evicted as far as `more_bytes` need it."""
        self._evict(self.bytes_max - more_bytes, records)
        return self.bytes_max - self.size_bytes

    def allow(self, bytes_max: int) -> None:
        """The answer: it is this much. Ranges that are not in use are evicted as far as they do not fit."""
        self.bytes_max, self.wanted_bytes = bytes_max, 0
        self._evict(bytes_max)

    def give_back(self, size_bytes: int) -> None:
        """Be less by that much, or by as much as the ranges that are not in use leave."""
        least = max(0, self.bytes_max - size_bytes)
        self._evict(least)
        self.bytes_max = min(self.bytes_max, max(least, self.size_bytes))

    def _evict(self, limit: int, used: RecordRange | None = None) -> None:
        """Evict ranges, but for those in use and this one, until the others take no more than this."""
        if self.size_bytes > limit:
            for other in [other for other in self._sizes if other is not used and not other.in_use]:
                other.clear()
                if self.size_bytes <= limit:
                    break


class RecordRange:
    """One group's unsettled records in one partition. See the module."""

    def __init__(
        self,
        allowance: WindowAllowance,
        records_max: int,
        names: Sequence[str],
        compact_at: int = WINDOW_COMPACT_RECORDS,
        beside_bytes: int = 0,
    ) -> None:
        """`beside_bytes` are the most that the choice takes for a record besides its columns."""
        self._allowance = allowance
        self._compact_at = compact_at
        self._records_max = records_max
        self._live = bytearray()
        self.offsets = array("q")
        self.columns = {name: array(COLUMNS[name][0]) for name in names}
        self._record_bytes = BARE_RECORD_BYTES + sum([column.itemsize for column in self.columns.values()])
        self._most_bytes = self._record_bytes + beside_bytes
        self.end = 0
        """Where reading goes on. Below the group's floor, it begins there."""
        self.dead = 0
        self.seen = 0
        self.in_use = False
        """It is being filled for a waiting consumer: not to be evicted now."""
        self.lives = 0
        """Grows when the range loses what it held."""

    @property
    def count(self) -> int:
        """Unsettled records."""
        return len(self.offsets) - self.dead

    @property
    def size_bytes(self) -> int:
        """What its columns take."""
        return len(self.offsets) * self._record_bytes

    def is_full_with(self, count: int) -> bool:
        """Whether so many unsettled records are as many as it may hold."""
        return count >= self._records_max

    def lacks_room(self, count: int) -> bool:
        """Whether `count` more records do not fit into the allowance, and more may be asked for (`want_room`)."""
        count = min(count, self._records_max - self.count)
        return count > 0 and self._allowance.may_grow_for(count * self._most_bytes)

    def want_room(self, count: int) -> None:
        """Ask for room for `count` more records."""
        self._allowance.want(min(count, self._records_max - self.count) * self._most_bytes)

    def room(self, count: int, uniform: int = 0) -> int:
        """How many more records may be read, of `count`; 0 when the range is full. Other ranges of the partition may be
        evicted for it (RW4).

        So many that are `uniform` lie before its end.
        """
        count = min(count, self._records_max - (uniform or self.count))
        if uniform or count <= 0:
            return max(0, count)
        left = self._allowance.left_for(self, count * self._most_bytes)
        return min(count, max(0, left // self._most_bytes, RECORDS_LEAST - self.count))

    def clear(self) -> None:
        """Hold nothing, and begin at the group's floor again."""
        self._allowance.release(self)
        self.lives += 1
        self.restart(0)

    def restart(self, end: int) -> None:
        """Hold nothing, and read on from `end`; what it held is settled, or to be read again."""
        for column in (self.offsets, *self.columns.values()):
            del column[:]
        self._live.clear()
        self.seen = self.dead = 0
        self.end = end

    def charge(self, more_bytes: int) -> None:
        """The range is used, and its choice takes so many bytes besides."""
        self._allowance.charge(self, self.size_bytes + more_bytes)

    def add(self, records: WindowRecords, unsettled: Sequence[OffsetRange]) -> None:
        """Add what of `records` is `unsettled`, from `end` on."""
        offsets = records.offsets
        if offsets and self.offsets and offsets[0] <= self.offsets[-1]:
            raise InternalError(f"offset {offsets[0]} is read again below {self.end}", invariant="RW1")
        for start, stop in unsettled:
            first = bisect_left(offsets, start)
            last = bisect_left(offsets, stop, first)
            self.offsets += offsets[first:last]
            for name, column in self.columns.items():
                column += records.columns[name][first:last]
            self._live += b"\x01" * (last - first)
        self.end = records.next_offset

    def index_of(self, offset: int) -> int:
        """Where an unsettled record is in the columns; -1 for any other offset."""
        index = bisect_left(self.offsets, offset)
        found = index < len(self.offsets) and self.offsets[index] == offset and self._live[index]
        return index if found else -1

    def is_unsettled(self, index: int) -> bool:
        """Whether the record at `index` is not settled."""
        return self._live[index] == 1

    def unsettled(self) -> set[int]:
        """All offsets that are not settled."""
        return set(compress(self.offsets, self._live))

    def settle(self, start: int, stop: int) -> list[int]:
        """Records of `[start, stop)` are settled: the indices of those that were not, until `compact`."""
        offsets, live = self.offsets, self._live
        found = []
        for index in range(bisect_left(offsets, start), len(offsets)):
            if offsets[index] >= stop:
                break
            if live[index]:
                live[index] = 0
                found.append(index)
        self.dead += len(found)
        return found

    def compact(self) -> None:
        """Drop what is settled, when that is more than half of what the columns hold. Indices are others then."""
        if self.dead < self._compact_at or 2 * self.dead < len(self.offsets):
            return
        live = self._live
        self.seen = sum(live[: self.seen])
        self.offsets = array("q", compress(self.offsets, live))
        self.columns = {
            name: array(column.typecode, compress(column, live)) for name, column in self.columns.items()
        }
        self._live = bytearray(b"\x01") * len(self.offsets)
        self.dead = 0

    def check(self) -> None:
        """Raise InternalError when an invariant does not hold. Costs as many steps as records."""
        offsets = self.offsets
        rising = all(first < second for first, second in pairwise(offsets))
        lengths = {len(self._live), *map(len, self.columns.values())}
        if not rising or (offsets and offsets[-1] >= self.end) or lengths != {len(offsets)}:
            raise InternalError("the columns of a range are not whole", invariant="RW1")
        if self.dead != self._live.count(0) or not 0 <= self.seen <= len(offsets):
            raise InternalError("the counts of a range differ from its columns", invariant="RW2")
