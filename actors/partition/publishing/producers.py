"""Producers: which of a producer's records a partition has already. Pure.

A record of a producer carries (producer id, epoch, sequence). The id names the publisher, over any number of lives. The
sequence numbers its records in this partition, one after the other, and goes on over all its lives. The epoch says
which life: beginning a new one *fences* those before it, whose records are refused from then on.

The table follows the log: what it says of a producer was read from its records, in their order. It is bounded. A
producer that has published nothing for `PRODUCER_AGE_S`, or the one that has been silent longest when there are too
many, is forgotten; a record that it published before would be taken for a new one then, and its next one is refused
unless the sequence is 0 or the publish `rises`. Not so a *source*: a producer of epoch `SOURCE_EPOCH`, behind which
stands another part of the broker, or of epoch `SCHEDULE_EPOCH`, which is a schedule. There is only one life of each,
and it stays until `remove`, or `keep_schedules` without it.

Power loss may take a record that was not synced and keep a later one. Then the window *lacks* a sequence, and that
record may still be published.

Vocabulary
----------
run        neighbouring records of a producer: sequences and offsets both rise by one
window     the last `RUNS_KEPT` runs of a producer: the duplicates whose original offset can be told
begun      the epochs given out in this process, and to which publisher, which no record may show yet
open       of a producer id: it may still be used in this process

Invariants
----------
PR1  `last` is the highest sequence of the producer in the log, and that record is in the last run.
PR2  A sequence up to `last` is a duplicate unless the window lacks it, `last + 1` is next, all else is out of order.
PR3  At most `limit` producers are known, sources not counted; those heard of last.
PR4  No record is accepted whose epoch is below the highest known for its producer. What began is known as long as its
     id is open.
PR5  No epoch is given out twice to one producer in a process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Final

import attrs

from callboard.actors.source_ids import REDRIVE_EPOCH, SCHEDULE_EPOCH
from callboard.log.errors import InvalidArgument, ProducerFenced, SequenceOutOfOrder
from callboard.log.format.columns import ProducerRun
from callboard.log.format.stamps import Stamps

RUNS_KEPT: Final = 8
SEQUENCE_END: Final = 2**64
"""One above the highest sequence."""
EPOCH_MAX: Final = REDRIVE_EPOCH - 1
PRODUCER_AGE_S: Final = 7 * 86_400
MICROSECONDS: Final = 1_000_000

LOOKED_AT_ONCE: Final = 64
"""Lives that may be forgotten are looked for a few with each new one: no commit pays for all of them."""

Run = tuple[int, int, int]
"""(First sequence, count, first offset)."""


@attrs.frozen
class KnownProducer:
    """What is known of one producer."""

    epoch: int
    last: int
    time_us: int
    """When the log took its last record."""
    runs: tuple[Run, ...]
    """Oldest first."""

    def offset_of(self, sequence: int) -> int | None:
        """Where the record of `sequence` is; None when that is too long ago."""
        for first, count, offset in reversed(self.runs):
            if first <= sequence < first + count:
                return offset + sequence - first
        return None

    def lacks(self, sequence: int) -> bool:
        """Whether the record of `sequence`, which lies before others, is not there."""
        return self.runs[0][0] <= sequence <= self.last and self.offset_of(sequence) is None

    @property
    def has_gaps(self) -> bool:
        """Whether it lacks any."""
        return any(one[0] + one[1] != other[0] for one, other in pairwise(self.runs))

    def with_run(self, epoch: int, run: Run, time_us: int) -> KnownProducer:
        """The same after further records. Whatever they say counts: the log is right."""
        first, count, offset = run
        runs, last = self.runs, first + count - 1
        start, length, at = runs[-1]
        if first == self.last + 1 and at + length == offset:
            runs = (*runs[:-1], (start, length + count, at))
        elif first > self.last:
            runs = (*runs, run)
        elif self.lacks(first):
            runs, last = tuple(sorted((*runs, run))), max(last, self.last)
        else:
            runs = (run,)  # it was forgotten meanwhile, and began anew
        return KnownProducer(max(epoch, self.epoch), last, time_us, runs[-RUNS_KEPT:])


@attrs.define(eq=False)
class Begun:
    """The lives that began in this process: `limit` of those that are out of use, and all others."""

    floor: int = 0
    """The highest epoch of those that were forgotten."""
    _lives: OrderedDict[int, tuple[int, int]] = attrs.Factory(OrderedDict)
    """By producer id: the latest epoch, and its owner. (`OrderedDict` finds the first key at once; see `dedup`.)"""
    _open: dict[int, int] = attrs.Factory(dict)
    """By producer id: how many may publish under it."""

    def __len__(self) -> int:
        return len(self._lives)

    def follow(self, changes: Iterable[tuple[int, bool]]) -> None:
        """Producers of these ids are entered (True) or left (False), in this order."""
        for producer_id, is_entered in changes:
            count = self._open.pop(producer_id, 0) + (1 if is_entered else -1)
            if count > 0:
                self._open[producer_id] = count

    def latest(self, producer_id: int) -> tuple[int, int]:
        """The latest epoch of a producer, and its owner; (0, 0) when none is known."""
        return self._lives.get(producer_id, (0, 0))

    def add(self, producer_id: int, life: tuple[int, int], limit: int) -> None:
        """A life began, with this epoch and owner."""
        lives = self._lives
        lives.pop(producer_id, None)
        for _ in range(min(LOOKED_AT_ONCE, len(lives))):
            if len(lives) < limit:
                break
            oldest, found = lives.popitem(last=False)
            if oldest in self._open:
                lives[oldest] = found  # those it fenced may publish yet
            else:
                self.floor = max(self.floor, found[0])
        lives[producer_id] = life

    def remove(self, producer_id: int) -> None:
        """The producer is no more."""
        self._lives.pop(producer_id, None)


class ProducerTable:
    """What one partition has stored of each producer. `begun` is shared with later tables of this partition, as long as
    the process lives.
    """

    def __init__(self, limit: int, begun: Begun | None = None, stamps: Stamps | None = None) -> None:
        self._limit = limit
        self._stamps = Stamps() if stamps is None else stamps
        self._begun = Begun() if begun is None else begun
        self._others: OrderedDict[int, KnownProducer] = OrderedDict()
        """By id, in the order in which they were heard of last."""
        self._sources: dict[int, KnownProducer] = {}
        self.forgotten: list[tuple[int, str]] = []
        """Producers that were forgotten, and why, until they are taken away."""

    def __len__(self) -> int:
        return len(self._others) + len(self._sources)

    def __iter__(self) -> Iterator[tuple[int, KnownProducer]]:
        """All that are known, those heard of longest ago first, sources before them."""
        yield from self._sources.items()
        yield from self._others.items()

    def get(self, producer_id: int) -> KnownProducer | None:
        """What is known of a producer."""
        found = self._others.get(producer_id)
        return self._sources.get(producer_id) if found is None else found

    # -- deciding -------------------------------------------------------------------------------------------

    def begin(
        self, producer_id: int, known: KnownProducer | None, *, owner: int = 0, epoch: int | None = None
    ) -> tuple[int, int]:
        """Begin another life, which continues that of `epoch`: its epoch, above all others, and the next sequence.

        Whoever owns the latest life may continue it although it has not heard of it. Raises `ProducerFenced`,
        `InvalidArgument`.
        """
        begun, latest = self._begun, self._latest(producer_id, known)
        last = begun.latest(producer_id)
        is_own = last == (latest, owner)
        if epoch is not None and epoch < latest and not is_own:
            raise _fenced(producer_id, epoch, latest)
        if not last[0]:
            latest = max(latest, begun.floor)  # it may be one of those whose epochs were forgotten
        if latest >= EPOCH_MAX:
            raise InvalidArgument(
                f"producer {producer_id:#x} has begun as often as epochs can count, or is a source of the broker."
                " Nothing was written. Publish under another name."
            )
        begun.add(producer_id, (latest + 1, owner), self._limit)
        return latest + 1, 0 if known is None else known.last + 1

    def _latest(self, producer_id: int, known: KnownProducer | None) -> int:
        return max(self._begun.latest(producer_id)[0], 0 if known is None else known.epoch)

    def duplicates(self, run: ProducerRun, known: KnownProducer | None, *, rises: bool) -> int:
        """How many records at the front of `run` the log has already, or lacks; all others come next.

        Raises `ProducerFenced`, `SequenceOutOfOrder`, `InvalidArgument`.
        """
        count, producer_id, epoch, sequence = run
        if sequence + count > SEQUENCE_END:
            raise InvalidArgument(
                f"producer {producer_id:#x}: {count} records from sequence {sequence} on end beyond 64 bits."
                " Nothing was written."
            )
        latest = self._latest(producer_id, known)
        if epoch < latest:
            raise _fenced(producer_id, epoch, latest)
        expected = 0 if known is None else known.last + 1
        if rises and sequence > expected:
            return 0
        if sequence > expected:
            raise SequenceOutOfOrder(
                f"producer {producer_id:#x} publishes sequence {sequence}, and {expected} comes next: what lies"
                " between is not stored. Nothing was written. Publish that first, or begin again if the producer was"
                " forgotten.",
                producer_id=producer_id,
                sequence=sequence,
                expected=expected,
            )
        return min(count, expected - sequence)

    # -- following the log ----------------------------------------------------------------------------------

    def put(self, producer_id: int, producer: KnownProducer, now_us: int | None) -> None:
        """This is known of a producer from now on. None: as of `DedupTable.put`."""
        others = self._others
        others.pop(producer_id, None)
        if producer.epoch >= SCHEDULE_EPOCH:
            self._sources[producer_id] = producer
            return
        self._sources.pop(producer_id, None)
        others[producer_id] = producer
        if len(others) > self._limit:
            self._forget(next(iter(others)), f"more than {self._limit} producers publish to the partition")
        if now_us is not None:
            self.forget_old(now_us)

    def forget_old(self, now_us: int) -> None:
        """Forget producers that have published nothing for too long."""
        others = self._others
        while others:
            producer_id, producer = next(iter(others.items()))
            heard_us = self._stamps.believed(producer.time_us, now_us)
            if now_us - heard_us <= PRODUCER_AGE_S * MICROSECONDS:
                return
            self._forget(producer_id, f"it has published nothing for {PRODUCER_AGE_S // 86_400} days")

    def _forget(self, producer_id: int, reason: str) -> None:
        del self._others[producer_id]
        self.forgotten.append((producer_id, reason))

    def remove(self, producer_id: int) -> None:
        """The producer is no more: a source whose end is known."""
        self._sources.pop(producer_id, None)
        self._others.pop(producer_id, None)
        self._begun.remove(producer_id)

    def lower(self, schedule_id: int, last: int) -> None:
        """The due instants of a schedule up to `last` were fired, and none after that: the log's last one, which is
        later, was due by a clock that was ahead.
        """
        known = self._sources[schedule_id]
        offset = known.offset_of(known.last) or 0
        self._sources[schedule_id] = attrs.evolve(known, last=last, runs=((last, 1, offset),))

    def keep_schedules(self, schedule_ids: Collection[int]) -> None:
        """Of the sources that are schedules there are these, and no others any more."""
        for producer_id, producer in list(self._sources.items()):
            if producer.epoch == SCHEDULE_EPOCH and producer_id not in schedule_ids:
                del self._sources[producer_id]


def heard(known: KnownProducer | None, producer_run: ProducerRun, offset: int, time_us: int) -> KnownProducer:
    """What is known of the producer after the records of `producer_run`, stored from `offset` on."""
    count, _, epoch, sequence = producer_run
    run = sequence, count, offset
    if known is None:
        # Nobody but a source begins elsewhere than at 0: what lies before is lacking.
        before = ((0, 0, offset),) if sequence and epoch < SCHEDULE_EPOCH else ()
        return KnownProducer(epoch, sequence + count - 1, time_us, (*before, run))
    return known.with_run(epoch, run, time_us)


def _fenced(producer_id: int, epoch: int, latest: int) -> ProducerFenced:
    return ProducerFenced(
        f"producer {producer_id:#x} publishes with epoch {epoch}, and epoch {latest} has begun: another one has taken"
        " its place. Nothing was written. Stop this one.",
        producer_id=producer_id,
        epoch=epoch,
        latest=latest,
    )
