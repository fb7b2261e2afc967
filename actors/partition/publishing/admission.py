"""Admission: what of a commit's appends goes into the log, and what is answered to the rest. Pure.

A guarded publish asks that nothing be stored twice, or only at one offset. That is decided when its commit is staged,
part by part in the order of the queue: every earlier commit has ended then, and the log's end is known. So the tables
say what the log holds, plus what the parts before it in the same commit add: the *draft*. When the commit is written,
the draft goes into the tables. When it fails, the draft is dropped, and every answer that was found with its help fails
with the commit.

```
              decide                  stored
  tables  ------------->  draft  --------------->  tables
             ^                |  failed
             +----------------+
```

The tables follow the log once the partition `is_guarded`: from the first guarded publish on that needs them, over all
restarts (`publishing_state` keeps them). From then on they note whatever carries a producer or an id, guarded or not.

Invariants
----------
AD1  The tables never say more than the visible log: `noted_end` is the visible end but for a commit in flight.
AD2  Every guarded part gets one answer, when the commit ends that decided it, and fails if that commit fails.
AD3  A part that is refused changes nothing: neither the log nor what is decided of those behind it.
AD4  A publish at level ALL is answered when everything that the answer rests on is synced.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import pairwise
from typing import Final

import attrs

from callboard.actors.partition.commands import BeginProducer, Guard, Offsets
from callboard.actors.partition.publishing.dedup import DedupTable, Placed
from callboard.actors.partition.publishing.producers import Begun, KnownProducer, ProducerTable, heard
from callboard.actors.partition.queues import Appends, Decided, PublishedBatch, Singles
from callboard.log.errors import CallboardError, InvalidArgument, OffsetMismatch
from callboard.log.format.columns import Columns, ProducerRun
from callboard.log.format.stamps import Stamps
from callboard.log.limits import STEP_ITEMS, USUAL, Limits

RECORD_BYTES: Final = 64
"""What a record takes in the log beside its payload, roughly."""


@attrs.define
class Draft:
    """What a commit, or one part of it, adds to the tables."""

    producers: dict[int, KnownProducer] = attrs.Factory(dict)
    ids: dict[bytes, Placed] = attrs.Factory(dict)

    def add(self, later: Draft) -> None:
        """What `later` adds comes on top."""
        self.producers |= later.producers
        for dedup_id, placed in later.ids.items():
            self.ids.pop(dedup_id, None)
            self.ids[dedup_id] = placed


class Admission:
    """Decides for each append of a commit whether it is stored. `begun` is shared with later tables (`producers`)."""

    def __init__(
        self,
        label: str,
        *,
        begun: Begun | None = None,
        window_us: int | None = None,
        void_below: int = 0,
        limits: Limits = USUAL,
        stamps: Stamps | None = None,
    ) -> None:
        self._label = label
        self.stamps = Stamps() if stamps is None else stamps
        self.producers = ProducerTable(limits.producers, begun, self.stamps)
        self.ids = DedupTable(limits.dedup_ids, window_us, void_below=void_below, stamps=self.stamps)
        self.is_guarded = False
        """Whether the tables follow the log."""
        self.noted_end = 0
        self.noted_bytes = 0
        """Payload bytes, roughly, that the log took since this was set to 0."""
        self.duplicates = 0
        """Records that were not stored again."""
        self._draft = Draft()
        self._draft_bytes = 0
        self._now_us = 0
        self._read_us = 0
        """The stamp of what was read last of the log."""

    def needs_tables(self, columns: Columns) -> bool:
        """Whether a guarded publish of these needs the tables, which follow the log from then on."""
        return columns.producers is not None or (
            columns.dedup_ids is not None and self.ids.window_us is not None
        )

    def statistics(self) -> dict[str, int]:
        """What `PartitionStatistics` says of it."""
        return {
            "duplicates": self.duplicates,
            "producers": len(self.producers),
            "dedup_ids": len(self.ids),
            "dedup_forgotten": self.ids.forgotten_early,
        }

    # -- deciding -------------------------------------------------------------------------------------------

    def decide(self, appends: Appends, next_offset: int, now_us: int) -> None:
        """Leave in `appends` what is to be stored, from `next_offset` on at `now_us`; note what others are answered."""
        self._now_us = now_us
        kept: list[Singles | PublishedBatch] = []
        batches: list[Columns] = []
        for part, columns in zip(appends.parts, appends.batches, strict=True):
            guard = part.guard
            if guard is None:
                kept.append(part)
                batches.append(columns)
                self._draft_batch(columns, next_offset, now_us)
                next_offset += columns.count
                continue
            try:
                pieces = self._decide_part(appends, part, guard, columns, next_offset, now_us)
            except CallboardError as refusal:
                appends.decided.append(Decided(part.tokens[0], None, refusal))
                continue
            for piece in pieces:
                kept.append(PublishedBatch(piece, part.level, 0, []))
                batches.append(piece)
                next_offset += piece.count
        appends.parts, appends.batches = kept, batches
        self._draft_bytes = appends.size_bytes + RECORD_BYTES * appends.records

    def _decide_part(
        self,
        appends: Appends,
        part: Singles | PublishedBatch,
        guard: Guard | BeginProducer,
        columns: Columns,
        next_offset: int,
        now_us: int,
    ) -> list[Columns]:
        """What of a guarded part is to be stored; its answer is noted. Raises what is answered instead (AD3)."""
        if isinstance(guard, BeginProducer):
            known = self._producer(guard.producer_id)
            begun = self.producers.begin(guard.producer_id, known, owner=guard.owner, epoch=guard.epoch)
            appends.decided.append(Decided(part.tokens[0], begun, None))
            return []
        draft = Draft()
        if columns.producers is not None:
            offsets = self._by_producers(draft, columns, guard, next_offset, now_us)
        elif columns.dedup_ids is not None and self.ids.window_us is not None:
            offsets = self._by_ids(draft, columns, next_offset, now_us)
        else:
            offsets = list(range(next_offset, next_offset + columns.count))
        new = [place for place, offset in enumerate(offsets) if offset is not None and offset >= next_offset]
        new = _first_of_each(new, offsets)
        if new and guard.expected_offset is not None and guard.expected_offset != next_offset:
            raise self._mismatch(guard.expected_offset, next_offset)
        self._draft.add(draft)
        self.duplicates += columns.count - len(new)
        duplicates = tuple(sorted(set(range(columns.count)).difference(new)))
        appends.decided.append(Decided(part.tokens[0], Offsets(tuple(offsets), duplicates), None))
        return _pieces(columns, new)

    def _mismatch(self, expected: int, actual: int) -> OffsetMismatch:
        return OffsetMismatch(
            f"the next offset of partition {self._label} is {actual}, and the publish expected {expected}. Nothing was"
            " written. Read what was published meanwhile, decide again, and publish with the new offset.",
            expected_offset=expected,
            next_offset=actual,
        )

    def _by_producers(
        self, draft: Draft, columns: Columns, guard: Guard, next_offset: int, now_us: int
    ) -> list[int | None]:
        """Every record's offset, by its producer and sequence."""
        if columns.dedup_ids is not None:
            raise InvalidArgument(
                "a publish has a producer and deduplication ids. Nothing was written. Give one of them."
            )
        offsets: list[int | None] = []
        for run in columns.producers or ():
            count, producer_id, _, _ = run
            if not producer_id:
                offsets += range(next_offset, next_offset + count)
                next_offset += count
                continue
            found, next_offset = self._of_run(draft, run, guard, next_offset, now_us)
            offsets += found
        return offsets

    def _of_run(
        self, draft: Draft, run: ProducerRun, guard: Guard, next_offset: int, now_us: int
    ) -> tuple[list[int | None], int]:
        """The same of one run; and the next offset behind what of it is to be stored."""
        count, producer_id, epoch, sequence = run
        known = draft.producers.get(producer_id) or self._producer(producer_id)
        stored = self.producers.duplicates(run, known, rises=guard.rises)
        offsets: list[int | None] = [None] * count
        new = []
        if known is not None:
            offsets[:stored] = map(known.offset_of, range(sequence, sequence + stored))
            if known.has_gaps:
                new = [(place, 1) for place in range(stored) if known.lacks(sequence + place)]
        if stored < count:
            new.append((stored, count - stored))
        for place, length in new:
            part = length, producer_id, epoch, sequence + place
            known = draft.producers[producer_id] = heard(known, part, next_offset, now_us)
            offsets[place : place + length] = range(next_offset, next_offset + length)
            next_offset += length
        return offsets, next_offset

    def _by_ids(self, draft: Draft, columns: Columns, next_offset: int, now_us: int) -> list[int | None]:
        """Every record's offset, by its deduplication id; a record without one is new."""
        offsets: list[int | None] = []
        for place in range(columns.count):
            dedup_id, offset = columns.dedup_id(place), None
            if dedup_id is not None:
                drafted = draft.ids.get(dedup_id) or self._draft.ids.get(dedup_id)
                offset = self.ids.find(dedup_id, now_us) if drafted is None else drafted[0]
            if offset is None:
                offset, next_offset = next_offset, next_offset + 1
                if dedup_id is not None:
                    draft.ids[dedup_id] = offset, now_us
            offsets.append(offset)
        return offsets

    def _producer(self, producer_id: int) -> KnownProducer | None:
        return self._draft.producers.get(producer_id) or self.producers.get(producer_id)

    # -- following the log ----------------------------------------------------------------------------------

    def _draft_batch(self, columns: Columns, base: int, time_us: int) -> None:
        """A batch without an asker: what it carries is noted all the same."""
        if not self.is_guarded or (columns.producers is None and columns.dedup_ids is None):
            return
        draft, offset = Draft(), base
        for run in columns.producers or ():
            count, producer_id, _, _ = run
            if producer_id:
                known = draft.producers.get(producer_id) or self._producer(producer_id)
                draft.producers[producer_id] = heard(known, run, offset, time_us)
            offset += count
        if columns.dedup_ids is not None and self.ids.window_us is not None:
            for place in range(columns.count):
                dedup_id = columns.dedup_id(place)
                if dedup_id is not None:
                    draft.ids[dedup_id] = base + place, time_us
        self._draft.add(draft)

    def stored(self, visible_end: int) -> None:
        """The commit is written: what it added is in the log (AD1)."""
        draft, self._draft, now_us = self._draft, Draft(), self._now_us
        for producer_id, producer in draft.producers.items():
            self.producers.put(producer_id, producer, now_us)
        for dedup_id, placed in draft.ids.items():
            self.ids.put(dedup_id, placed, now_us)
        self.noted_end = visible_end
        self.noted_bytes += self._draft_bytes
        self._draft_bytes = 0

    def failed(self) -> None:
        """The commit failed: nothing of it is in the log, as far as any answer before the next start says."""
        self._draft, self._draft_bytes = Draft(), 0

    def forget_old_in_steps(self, now_us: int) -> Generator[None, None, None]:
        """Forget what is too old of that which was put without knowing so. Yields between two steps."""
        self.producers.forget_old(now_us)
        while self.ids.forget_old(now_us, STEP_ITEMS):
            yield

    def read(self, batches: Iterable[Columns], end: int, now_us: int) -> None:
        """The log holds these up to `end`, which the tables did not know.

        Where times go back, the clock was set right: what is ahead was stamped before that.
        """
        for columns in batches:
            self.stamps.notice(self._read_us, columns.append_time_us)
            self._read_us = columns.append_time_us
            if columns.producers is None and columns.dedup_ids is None:
                continue
            for piece in _dense(columns):
                self._draft_batch(piece, piece.base_offset, piece.append_time_us)
        self._draft_bytes, self._now_us = 0, now_us
        self.stored(end)


def _first_of_each(new: list[int], offsets: list[int | None]) -> list[int]:
    """Of records that share an offset, since they are duplicates of one another, the first."""
    seen: set[int | None] = set()
    found = []
    for place in new:
        if offsets[place] not in seen:
            seen.add(offsets[place])
            found.append(place)
    return found


def _pieces(columns: Columns, places: list[int]) -> list[Columns]:
    """The records at `places` as batches of neighbours."""
    if len(places) == columns.count:
        return [columns] if places else []
    cuts = [0, *(at for at, (one, other) in enumerate(pairwise(places), 1) if other != one + 1), len(places)]
    return [columns.select(places[low], places[high - 1] + 1) for low, high in pairwise(cuts) if low < high]


def _dense(columns: Columns) -> Iterable[Columns]:
    """Batches of one append time and without gaps."""
    if columns.offset_deltas is None and columns.append_times is None:
        return (columns,)
    parts = []
    for place in range(columns.count):
        part = columns.select(place, place + 1)
        part.append_time_us = columns.append_time(place)
        parts.append(part)
    return parts
