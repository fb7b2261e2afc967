"""The due index: which delayed records are pending on one clock, and which of them are due. Pure.

It is an index of stored records by tick, and no timer: nothing waits in it, and nothing is called. The delayed
forwarder has one for each clock; it arms one timer of its own with `next_look` and takes what is due then. The timer
wheel has an object for each timer; a record takes 20 bytes here, in columns of numbers, since a million of them may be
pending (docs/decisions/0021-an-index-beside-the-wheel.md).

Ticks (whole milliseconds of that clock) come in as arguments, and nothing is remembered of the present: what is due is
given in order of tick, then of delayed id. A clock that jumps therefore changes what is due, never what is kept.
Payloads are not here: an id is the offset of the stored record.

Records lie in columns, in order of id, which is the order in which they are added; buckets of columns' places order
them by tick, as those of the timer wheel do: nine levels of 64, by the highest group of six bits in which a tick
differs from the *cursor*.

Vocabulary
----------
cursor     no record in a bucket lies before it. It only moves when something is taken, and never past the time given.
earlier    records before the cursor: a clock went back, or a record came that was due already.
spread     what becomes of a bucket of many ticks whose time has come: its records go to buckets of lower levels, a part
           of them at a time (`spread`), and what comes meanwhile goes behind them.
moving     taken, and not yet known to be stored in the main log: it cannot be cancelled any more.
gone       moved or cancelled: its place in the columns is empty until they are compacted.

Invariants
----------
DI1  No record is taken before its tick.
DI2  Each call takes the first of what is due, in order of tick, and of id within a tick: buckets are in order of id.
DI3  Each record is pending, moving or gone. Cancelling says True only for a pending one, which is then never taken.
DI4  No call, and no step of `compact_in_steps`, looks at more than `STEP_RECORDS` records besides those that it names.
DI5  Memory is bounded by the number of pending and moving records: the columns hold at most as many that are gone, once
     they are compacted. The caller that cancels, moves or adds compacts them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import compress, islice
from operator import lt
from typing import Final, NamedTuple

from callboard.actors.timers.commands import TICK_MAX
from callboard.log.errors import InternalError
from callboard.log.limits import STEP_ITEMS

BITS: Final = 6
LEVELS: Final = TICK_MAX.bit_length() // BITS
"""Records at a later tick than `TICK_MAX` come at that one."""
LEVEL_OF_BITS: Final = tuple([max(bits - 1, 0) // BITS for bits in range(BITS * LEVELS + 1)])
"""The level of a tick, by the length in bits of its difference from the cursor."""
GONE: Final = -1
"""The tick of what is gone."""
SPARE: Final = 1024
"""Places that are gone, or records that are earlier, which are not worth a pass over everything."""
EARLIER_PART: Final = 8
"""The buckets are made anew when more than this part of the records is earlier than the cursor."""
STEP_RECORDS: Final = 8 * STEP_ITEMS
"""Records that one call of `spread` moves to other buckets (DI4): each costs much less than other items."""


class Taken(NamedTuple):
    """A record that is due."""

    tick: int
    delayed_id: int


class DueIndex:
    """Pending records by tick. Ids only grow. See the module."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._ticks = array("q")
        self._buckets: dict[int, array[int]] = {}
        """Indexes into the columns, by level * 64 + digit; none that is empty."""
        self._occupied = [0] * LEVELS
        """By level: a bit for each bucket."""
        self._cursor = 0
        self._earlier: list[tuple[int, int]] = []
        """A heap of (tick, id)."""
        self._moving: set[int] = set()
        self._kept = 0
        self._spreading = array("I")
        """Places of records that are in no bucket yet, in order of id."""
        self._spread_to = 0
        """So many of these are in their buckets, or need none."""

    def __len__(self) -> int:
        """How many records are pending."""
        return self._kept - len(self._moving)

    @property
    def moving(self) -> int:
        """How many records are moving."""
        return len(self._moving)

    def __contains__(self, delayed_id: int) -> bool:
        """Whether it is pending."""
        return self._kept > 0 and delayed_id not in self._moving and self._find(delayed_id) is not None

    def found(self, delayed_ids: Iterable[int]) -> list[int]:
        """Those of these ids that are pending."""
        if not self._kept:
            return []
        find, moving = self._find, self._moving
        return [each for each in delayed_ids if each not in moving and find(each) is not None]

    def is_moving(self, delayed_id: int) -> bool:
        """Whether it was taken, and nothing is known of it since."""
        return delayed_id in self._moving

    def pending(self, after: int = -1) -> Iterator[Taken]:
        """What is pending above the id `after`, in order of id. Nothing may change meanwhile."""
        for index in range(bisect_right(self._ids, after), len(self._ids)):
            tick, delayed_id = self._ticks[index], self._ids[index]
            if tick != GONE and delayed_id not in self._moving:
                yield Taken(tick, delayed_id)

    # -- what comes and goes ------------------------------------------------------------------------------------

    def add(self, rows: Sequence[tuple[int, int]]) -> None:
        """Have records come, given as (id, tick). Ids rise, and are above all that came before."""
        if not rows:
            return
        if not self._kept:
            self._cursor = min(max(rows[0][1], 0), TICK_MAX)
            self._clear()  # whatever lay in the buckets is gone
        ids, first = self._ids, len(self._ids)
        new_ids = [row[0] for row in rows]
        last = ids[-1] if ids else -1
        if new_ids[0] <= last or not all(map(lt, new_ids, islice(new_ids, 1, None))):
            raise InternalError(
                f"of the delayed ids {new_ids[0]} to {new_ids[-1]} one does not follow the one before, the first"
                f" {last}; this is a bug in Callboard, please report",
                invariant="DI2",
            )
        ticks = [0 if row[1] < 0 else min(TICK_MAX, row[1]) for row in rows]
        ids.extend(new_ids)
        self._ticks.extend(ticks)
        if self._spreading:
            self._wait_behind(range(first, len(ids)), ticks)
        else:
            self._file(range(first, len(ids)), ticks)
        self._kept += len(rows)

    def cancel(self, delayed_ids: Iterable[int]) -> list[bool]:
        """Take records out; whether each was pending until now."""
        find, moving, ticks = self._find, self._moving, self._ticks
        answers = []
        for delayed_id in delayed_ids:
            index = None if delayed_id in moving else find(delayed_id)
            if index is not None:
                ticks[index] = GONE
            answers.append(index is not None)
        self._kept -= answers.count(True)
        return answers

    def spread(self, now: int) -> bool:
        """Do a part of what `take` would have to do first; whether there is more of it. To call this until there is not
        keeps each step short.
        """
        if not self._spreading:
            number = self._first_bucket()
            if number is None or not number >> BITS or self._start(number) > now:
                return False
            self._spread(number)
        self._spread_part()
        return True

    def take(self, now: int, limit: int) -> list[Taken]:
        """At most `limit` records that are due at `now`; they are moving from now on. There may be fewer than are due,
        or none, when the next one takes another step: then `next_look` is not after `now`.
        """
        taken: list[Taken] = []
        if self._spreading:
            self._spread_part()
        if self._spreading:
            return taken
        for _ in range(STEP_RECORDS):
            if len(taken) == limit or not self._earlier or self._earlier[0][0] > now:
                break
            tick, delayed_id = heappop(self._earlier)
            index = self._find(delayed_id)
            if index is not None:
                taken.append(Taken(tick, delayed_id))
        is_done = bool(self._earlier) and self._earlier[0][0] <= now
        while len(taken) < limit and not is_done:
            number = self._first_bucket()
            if number is None or self._start(number) > now:
                break
            if number >> BITS:
                self._spread(number)
                self._spread_part()
                is_done = bool(self._spreading)
            else:
                is_done = not self._take_bucket(number, taken, limit)
        self._moving.update(record.delayed_id for record in taken)
        return taken

    def moved(self, delayed_ids: Iterable[int]) -> None:
        """These are stored in the main log: they are gone."""
        for delayed_id in delayed_ids:
            if delayed_id not in self._moving:
                raise InternalError(
                    f"delayed id {delayed_id} is not moving; this is a bug in Callboard, please report",
                    invariant="DI3",
                )
            self._moving.remove(delayed_id)
            index = self._find(delayed_id)
            if index is not None:
                self._ticks[index] = GONE
                self._kept -= 1

    def next_look(self) -> int | None:
        """The tick at which to look again: never after the first pending record, and sometimes before it."""
        earlier = self._earlier[0][0] if self._earlier else None
        if self._spreading:
            return self._cursor if earlier is None else min(self._cursor, earlier)
        number = self._first_bucket()
        if number is None:
            return earlier
        start = self._start(number)
        return start if earlier is None else min(start, earlier)

    # -- buckets ------------------------------------------------------------------------------------------------

    def _file(self, indexes: Iterable[int], ticks: Iterable[int]) -> None:
        """Put records into their buckets; those that are earlier among these."""
        cursor, buckets, occupied = self._cursor, self._buckets, self._occupied
        for index, tick in zip(indexes, ticks, strict=True):
            if tick < cursor:
                heappush(self._earlier, (tick, self._ids[index]))
                continue
            level = LEVEL_OF_BITS[(tick ^ cursor).bit_length()]
            number = level << BITS | tick >> level * BITS & 63
            bucket = buckets.get(number)
            if bucket is None:
                buckets[number] = bucket = array("I")
                occupied[level] |= 1 << (number & 63)
            bucket.append(index)

    def _first_bucket(self) -> int | None:
        """The one with the earliest ticks: the lowest digit of the lowest level."""
        for level, occupied in enumerate(self._occupied):
            if occupied:
                return level << BITS | ((occupied & -occupied).bit_length() - 1)
        return None

    def _start(self, number: int) -> int:
        """The first tick of a bucket."""
        level, digit = number >> BITS, number & 63
        above = (level + 1) * BITS
        return self._cursor >> above << above | digit << level * BITS

    def _drop(self, number: int) -> array[int]:
        level, digit = number >> BITS, number & 63
        self._occupied[level] &= ~(1 << digit)
        return self._buckets.pop(number)

    def _spread(self, number: int) -> None:
        """Move the cursor to the start of the first bucket; its records are to be spread."""
        self._cursor = self._start(number)
        self._spreading, self._spread_to = self._drop(number), 0

    def _spread_part(self) -> None:
        """Put some of the records that are to be spread into their buckets."""
        ids, ticks, moving = self._ids, self._ticks, self._moving
        stop = self._spread_to + STEP_RECORDS
        part = self._spreading[self._spread_to : stop]
        kept = [index for index in part if ticks[index] != GONE and ids[index] not in moving]
        self._file(kept, [ticks[index] for index in kept])
        if stop < len(self._spreading):
            self._spread_to = stop
        else:
            self._spreading, self._spread_to = array("I"), 0

    def _wait_behind(self, indexes: Iterable[int], ticks: Iterable[int]) -> None:
        """Records that come while others are spread go to their buckets behind them, in order of id."""
        for index, tick in zip(indexes, ticks, strict=True):
            if tick < self._cursor:
                heappush(self._earlier, (tick, self._ids[index]))
            else:
                self._spreading.append(index)

    def _take_bucket(self, number: int, taken: list[Taken], limit: int) -> bool:
        """Take from a bucket of one tick; what does not fit, or takes another step, stays. Whether nothing is left."""
        self._cursor = self._start(number)
        bucket = self._buckets[number]
        for seen, index in enumerate(bucket):
            if len(taken) == limit or seen == STEP_RECORDS:
                del bucket[:seen]
                return False
            if self._ticks[index] != GONE:
                taken.append(Taken(self._ticks[index], self._ids[index]))
        self._drop(number)
        return True

    # -- columns ------------------------------------------------------------------------------------------------

    def _find(self, delayed_id: int) -> int | None:
        """The index of a record that is not gone."""
        ids = self._ids
        count = len(ids)
        if not count or not ids[0] <= delayed_id <= ids[-1]:
            return None
        # Ids rise, so one is no more places away from either end than they differ: without holes only one is left.
        first, behind = count - 1 - ids[-1] + delayed_id, delayed_id - ids[0] + 1
        index = bisect_left(ids, delayed_id, max(0, first), min(count, behind))
        return index if ids[index] == delayed_id and self._ticks[index] != GONE else None

    def compact_in_steps(self) -> Generator[None, None, None]:
        """Leave out what is gone, when that is more than what is kept (DI5), and make the buckets anew, also when
        many records are earlier. Yields between two steps; ask for nothing else until its end.
        """
        is_sparse = len(self._ids) - self._kept > max(SPARE, self._kept)
        if not is_sparse and len(self._earlier) <= max(SPARE, self._kept // EARLIER_PART):
            return
        ids, ticks, places = array("q"), array("q"), array("I")
        for at in range(0, len(self._ids), STEP_RECORDS):
            if at:
                yield
            some = self._ticks[at : at + STEP_RECORDS]
            kept = bytes(map(GONE.__ne__, some))
            ids.extend(compress(self._ids[at : at + STEP_RECORDS], kept))
            ticks.extend(compress(some, kept))
            places.extend(range(len(places), len(ids)))
        cursor = self._earlier[0][0] if self._earlier else self._cursor
        self._clear()
        self._ids, self._ticks, self._spreading, self._cursor = ids, ticks, places, cursor

    def _clear(self) -> None:
        """Begin with empty columns and buckets."""
        self._ids, self._ticks = array("q"), array("q")
        self._buckets.clear()
        self._occupied = [0] * LEVELS
        self._earlier.clear()
        self._spreading, self._spread_to = array("I"), 0
