"""Copying records into a recording: which ones, what is hidden of them, and in which order.

What is copied whole keeps its batches. What is picked record by record is gathered into new batches of
`GATHERED_RECORDS`; every record keeps its time.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import attrs

from callboard.log.errors import InvalidArgument, RecordingInvalid
from callboard.log.format.columns import NO_TIME, Columns
from callboard.log.limits import MIB
from callboard.recordings.reader import READ_RECORDS, RecordedBatches, Recording
from callboard.recordings.tally import times_of

GATHERED_RECORDS: Final = 1_000
GATHERED_BYTES: Final = 1 * MIB
HASH_BYTES: Final = 16


@attrs.frozen(kw_only=True)
class Privacy:
    """What a copy hides. Sizes, times and order stay; equal keys stay equal.

    Keys become keyed hashes of 32 hexadecimal digits: without `salt` names cannot be tried. Payloads, and the values of
    headers, become as many zeros.
    """

    salt: bytes | None = None
    """Hash the keys with this; None: keep them."""
    scrub_payloads: bool = False

    def __attrs_post_init__(self) -> None:
        if self.salt is not None and len(self.salt) > hashlib.blake2b.MAX_KEY_SIZE:
            raise InvalidArgument(f"a salt has at most {hashlib.blake2b.MAX_KEY_SIZE} bytes.")

    def hide(self, columns: Columns) -> Columns:
        """The batch without what is to be hidden."""
        if self.scrub_payloads:
            columns = attrs.evolve(columns, values=bytes(len(columns.values)))
            if columns.header_values is not None:
                columns.header_values = bytes(len(columns.header_values))
        if self.salt is None or columns.keys is None:
            return columns
        hashed = Columns.build([b""] * columns.count, [self._hashed(key) for key in columns.key_list()])
        return attrs.evolve(columns, keys=hashed.keys, key_ends=hashed.key_ends, key_nulls=hashed.key_nulls)

    def _hashed(self, key: bytes | None) -> bytes | None:
        if key is None:
            return None
        return hashlib.blake2b(key, digest_size=HASH_BYTES, key=self.salt or b"").hexdigest().encode()


class RecordFilter(Protocol):
    """Says which records of a batch are kept."""

    def parts(self, columns: Columns) -> list[tuple[int, int]]:
        """The runs of records that are kept, as (start, stop)."""


class KeyFilter:
    """Keeps the records whose key matches one of the patterns (`*`, `?`, `[...]`), as UTF-8 text."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._matches = _matcher(patterns)
        self._known: dict[bytes, bool] = {}

    def parts(self, columns: Columns) -> list[tuple[int, int]]:
        """The runs of records that are kept, as (start, stop)."""
        return runs_of_kept(key is not None and self._keeps(key) for key in columns.key_list())

    def _keeps(self, key: bytes) -> bool:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= READ_RECORDS:
                self._known.clear()
            found = self._known[key] = self._matches(key)
        return found


class HeaderFilter:
    """Keeps the records with a header whose value matches one of its patterns, given as `NAME=PATTERN`.

    Raises `InvalidArgument` for anything else.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        by_name: dict[str, list[str]] = {}
        for text in patterns:
            name, equals, pattern = text.partition("=")
            if not name or not equals:
                raise InvalidArgument(
                    f"header {text!r:.80} is to be NAME=PATTERN, such as 'type=order*'. Nothing was written."
                )
            by_name.setdefault(name, []).append(pattern)
        self._matches = {name: _matcher(found) for name, found in by_name.items()}

    def parts(self, columns: Columns) -> list[tuple[int, int]]:
        """The runs of records that are kept, as (start, stop)."""
        return runs_of_kept(
            any(name in headers and matches(headers[name]) for name, matches in self._matches.items())
            for headers in columns.header_list()
        )


class AllFilters:
    """Keeps the records that every one of some filters keeps."""

    def __init__(self, filters: Sequence[RecordFilter]) -> None:
        self._filters = tuple(filters)

    def parts(self, columns: Columns) -> list[tuple[int, int]]:
        """The runs of records that are kept, as (start, stop)."""
        found = [(0, columns.count)]
        for each in self._filters:
            found = [
                (start + first, start + last)
                for start, stop in found
                for first, last in each.parts(columns.select(start, stop))
            ]
        return found


def _matcher(patterns: Sequence[str]) -> Callable[[bytes], bool]:
    joined = "|".join(fnmatch.translate(pattern) for pattern in patterns)
    match = re.compile(joined.encode("utf-8", "surrogateescape"), re.DOTALL).match
    return lambda text: match(text) is not None


def runs_of_kept(kept: Iterable[bool]) -> list[tuple[int, int]]:
    """The runs of True, as (start, stop)."""
    runs: list[tuple[int, int]] = []
    for index, is_kept in enumerate(kept):
        if is_kept and runs and runs[-1][1] == index:
            runs[-1] = runs[-1][0], index + 1
        elif is_kept:
            runs.append((index, index + 1))
    return runs


class RecordGathering:
    """Makes batches of records that are picked one by one, or run by run. `add` returns those that are full."""

    def __init__(self) -> None:
        self._parts: list[Columns] = []
        self._records = self._bytes = 0

    def add(self, columns: Columns) -> list[Columns]:
        """Gather the records of `columns`."""
        full: list[Columns] = []
        while columns.count:
            room = GATHERED_RECORDS - self._records
            part, columns = (
                columns.select(0, min(room, columns.count)),
                columns.select(min(room, columns.count), columns.count),
            )
            self._parts.append(part)
            self._records += part.count
            self._bytes += part.size_bytes
            if self._records >= GATHERED_RECORDS or self._bytes >= GATHERED_BYTES:
                full += self.rest()
        return full

    def rest(self) -> list[Columns]:
        """What was gathered since the last full batch; nothing, or one batch."""
        parts, self._parts = self._parts, []
        self._records = self._bytes = 0
        return [joined(parts)] if parts else []


def joined(parts: Sequence[Columns]) -> Columns:
    """One dense batch of all records; each has its time as its event time."""
    if len(parts) == 1 and parts[0].event_times is not None and NO_TIME not in parts[0].event_times:
        return parts[0]

    def every(take: Callable[[Columns], Sequence[Any]]) -> list[Any]:
        return [item for part in parts for item in take(part)]

    times = every(times_of)
    runs = [run for part in parts for run in part.producers or ((part.count, 0, 0, 0),)]
    columns = Columns.build(
        every(Columns.value_list),
        every(Columns.key_list),
        every(Columns.header_list),
        times,
        priorities=every(lambda part: [part.priority(index) for index in range(part.count)]),
        expiries=every(lambda part: [part.expiry(index) for index in range(part.count)]),
        dedup_ids=every(lambda part: [part.dedup_id(index) for index in range(part.count)]),
        producers=runs if any(run[1] for run in runs) else None,
    )
    columns.append_time_us = times[0]
    return columns


class Picked(RecordedBatches):
    """What of `batches` the filter keeps (None: all), in batches of one size."""

    def __init__(self, batches: RecordedBatches, chosen: RecordFilter | None) -> None:
        self._batches = batches
        self._chosen = chosen
        self._gathering = RecordGathering()
        self._ready: deque[Columns] = deque()
        self._is_over = False

    async def __anext__(self) -> Columns:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            try:
                columns = await anext(self._batches)
            except StopAsyncIteration:
                self._is_over = True
                self._ready += self._gathering.rest()
            else:
                runs = [(0, columns.count)] if self._chosen is None else self._chosen.parts(columns)
                for start, stop in runs:
                    self._ready += self._gathering.add(columns.select(start, stop))
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Close the files."""
        await self._batches.aclose()


class Merged(RecordedBatches):
    """The records of several by time; of equal times those of the first come first.

    A record whose time is below that of an earlier one of its own comes right behind that.
    """

    def __init__(self, batches: Sequence[RecordedBatches]) -> None:
        self._batches = list(batches)
        self._heads: list[_MergedHead] | None = None
        self._gathering = RecordGathering()
        self._ready: deque[Columns] = deque()
        self._is_over = False

    async def __anext__(self) -> Columns:
        if self._heads is None:
            heads = [_MergedHead(place, batches) for place, batches in enumerate(self._batches)]
            self._heads = [head for head in heads if await head.advance()]
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            if not self._heads:
                self._is_over = True
                self._ready += self._gathering.rest()
                continue
            first = min(self._heads, key=_MergedHead.turn)
            following = min((head.turn() for head in self._heads if head is not first), default=None)
            self._ready += self._gathering.add(first.take(following))
            if first.is_spent and not await first.advance():
                self._heads.remove(first)
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Close the files of all."""
        for batches in self._batches:
            await batches.aclose()


class _MergedHead:
    """How far one of those that are merged has come."""

    def __init__(self, place: int, batches: RecordedBatches) -> None:
        self._place = place
        self._batches = batches
        self._columns = Columns.build([])
        self._times: Sequence[int] = ()
        self._at = 0
        self._time_us = NO_TIME

    def turn(self) -> tuple[int, int]:
        """When the next record comes: by its time, or by an earlier one's that was later; then by place."""
        return self._time_us, self._place

    @property
    def is_spent(self) -> bool:
        """Whether the batch in hand has been taken."""
        return self._at >= self._columns.count

    async def advance(self) -> bool:
        """Go to the next batch; False when there is none."""
        try:
            self._columns = await anext(self._batches)
        except StopAsyncIteration:
            return False
        self._times, self._at = times_of(self._columns), 0
        self._time_us = max(self._time_us, self._times[0])
        return True

    def take(self, following: tuple[int, int] | None) -> Columns:
        """The records up to the first one that comes behind the `following` turn of another."""
        start = self._at
        while not self.is_spent:
            self._time_us = max(self._time_us, self._times[self._at])
            if following is not None and self.turn() > following:
                break
            self._at += 1
        return self._columns.select(start, self._at)


def check_alike(recordings: Sequence[Recording]) -> int:
    """The number of partitions of all of them. Raises `RecordingInvalid` when they differ."""
    counts = {len(recording.manifest.partitions) for recording in recordings}
    if len(counts) != 1:
        named = ", ".join(
            f"{recording.directory} has {len(recording.manifest.partitions)}" for recording in recordings
        )
        raise RecordingInvalid(
            f"recordings with different numbers of partitions cannot be merged: {named}. Nothing was written.",
            path=recordings[0].directory,
        )
    return counts.pop()
