"""The file `publishers` of a partition: what its tables of producers and deduplication ids said at one offset.

The tables are a summary of the log, so that it need not be read at opening: the file holds them as they were at some
offset `end`, and what the log has from there on is read and noted. The file is first made, with empty tables, before
the first record that needs them is appended; a partition without the file has none. It is replaced, whole and synced,
whenever the log has grown enough, and when the partition closes.

Invariants
----------
PF1  `end` is never above the durable end of the log when the file is written: the file is never ahead of the log.
PF2  The file and the log from `end` on give the same tables as the ones in memory, but for what was forgotten.
PF3  `end` is never below the first offset that retention has left in the log: the file is written before it would be.
     So one that is below is an older copy, and does not know what is gone.
PF4  The file names its log: one of another partition is not believed.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import attrs
import cbor2

from callboard.actors.kernel import Context
from callboard.actors.kernel.steps import in_steps
from callboard.actors.notices import ProducerForgotten, PublishersLost
from callboard.actors.partition.commands import (
    ForgetProducer,
    ForgetSources,
    KeepSchedules,
    LastSequence,
    ListSources,
)
from callboard.actors.partition.publishing.admission import Admission
from callboard.actors.partition.publishing.producers import KnownProducer, Run
from callboard.actors.partition.queues import Appends, Sequencer
from callboard.actors.partition.spec import PartitionSpec
from callboard.actors.source_ids import SCHEDULE_EPOCH, SOURCE_EPOCH
from callboard.log.errors import DiskFull, LogCorrupt, PublishFailed, StorageError, lacks_space
from callboard.log.format.fields import CBOR_ERRORS, too_new, unknown_fields
from callboard.log.format.segment import UNBOUND, identity_of
from callboard.log.format.stamps import is_ahead
from callboard.log.limits import (
    OFFSET_MAX,
    PUBLISHED_BYTES_MAX,
    READ_BYTES_DEFAULT,
    STEP_ITEMS,
    USUAL,
    Limits,
)
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.clock import Clock
from callboard.log.seams.disk import Entry, Incarnation
from callboard.log.segments.segments import Damage
from callboard.log.segments.small_files import read_whole, replace_whole

PUBLISHERS_NAME: Final = "publishers"
MAGIC: Final = b"CBPU"
VERSION: Final = 1
HEAD_BYTES: Final = 12
"""Magic, version (u32), CRC-32 of both and the body (u32)."""
IDS_FROM: Final = "ids_from"
IDENTITY: Final = "identity"
FIELDS: Final = (
    "end",
    "producers",
    "times",
    "runs",
    "ids",
    "id_lengths",
    "id_offsets",
    "id_times",
    IDS_FROM,
    IDENTITY,
)
WITH_IT: Final = ", and what it knew of records that retention has dropped is forgotten"
SPACING: Final = 4
"""The log grows by at least this multiple of the file's size before the file is written again."""
READ_RECORDS: Final = 10_000
"""Read at a time when the tables catch up with the log."""


@attrs.define(eq=False)
class Publishers:
    """The shell around a partition's `Admission`: keeps its tables, and has them follow the log."""

    _files: Incarnation
    _directory: str
    admission: Admission
    _clock: Clock
    _limits: Limits = USUAL
    _emit: Callable[[object], object] = lambda _: None
    _owner: str = ""
    """The partition's path, for what is emitted."""
    _beyond_bytes: int = 0
    _lost: Damage | None = None
    """What became of the file, when it is no use."""
    _file_end: int = 0
    """What the file's `end` is; 0 when there is none, or it cannot be read."""
    _has_forgotten: bool = False
    """Whether the file, or the log behind it, still names sources or ids that were forgotten."""

    @property
    def path(self) -> str:
        """The file's path."""
        return f"{self._directory}/{PUBLISHERS_NAME}"

    @property
    def identity(self) -> int:
        """What the file names its log by."""
        return identity_of(self._directory)

    def forget(self, message: ForgetProducer) -> None:
        """A producer publishes no more."""
        self.admission.producers.remove(message.producer_id)

    def keep_schedules(self, message: KeepSchedules) -> None:
        """All other schedules publish no more. The file says so with the next commit, or at closing."""
        known = len(self.admission.producers)
        self.admission.producers.keep_schedules(message.schedule_ids)
        self._has_forgotten |= len(self.admission.producers) < known

    def last(self, message: LastSequence) -> int | None:
        """How far a producer has come. Sequences of schedules are due instants: one that is ahead was due by a clock
        that was, and counts as now (`stamps`). The file says so with the next commit, or at closing; what it loses is
        found again.
        """
        admission, now_us = self.admission, self._clock.wall_us()
        known = admission.producers.get(message.producer_id)
        if known is None:
            return None
        if known.epoch == SCHEDULE_EPOCH and is_ahead(known.last, now_us):
            last = admission.stamps.believed(known.last, now_us)
            admission.producers.lower(message.producer_id, last)
            self._has_forgotten = True
            return last
        return known.last

    def list_sources(self, _: ListSources) -> tuple[int, ...]:
        """The ids of all sources."""
        producers = self.admission.producers
        return tuple([each for each, known in producers if known.epoch == SOURCE_EPOCH])

    def forget_sources(self, message: ForgetSources) -> None:
        """They have ended, and all that they sent is decided. The file says so with the next commit, or at closing."""
        for producer_id in message.producer_ids:
            self.admission.producers.remove(producer_id)
        self._has_forgotten |= bool(message.producer_ids)

    def set_window(self, window_us: int | None, log: PartitionLog) -> int:
        """Another `dedup_window` from now on; returns the offset below which ids are forgotten.

        The file says so as soon as the log is synced, at the next commit, or at closing.
        """
        ids = self.admission.ids
        is_other = window_us != ids.window_us
        ids.set_window(window_us, self._clock.wall_us(), log.visible_end)
        self._has_forgotten |= is_other and ids.void_below > 0
        return ids.void_below

    # -- opening --------------------------------------------------------------------------------------------

    async def load(self, entries: Sequence[Entry]) -> int:
        """Take over what the file says, if the directory with `entries` has one; returns the offset it knows up to.

        Raises `FormatTooNew`, `StorageError`.
        """
        size = next((entry.size_bytes for entry in entries if entry.name == PUBLISHERS_NAME), None)
        if size is None:
            return 0
        self.admission.is_guarded = True
        data = await read_whole(self._files, self.path) if size <= PUBLISHED_BYTES_MAX else b""
        try:
            await in_steps(decode_in_steps(data or b"", self.admission, self.identity))
        except CBOR_ERRORS as error:
            self._lose(f"cannot be read ({error})")
            return 0
        self._file_end = self.admission.noted_end
        return self._file_end

    async def compare(self, log: PartitionLog) -> None:
        """Now that the log is open: the file was loaded, or there never was one, or it is gone, which is damage.

        Only now is what the file says judged by its age: the log's last stamp may show that the clock was ahead.
        """
        await in_steps(self.admission.forget_old_in_steps(self._clock.wall_us()))
        if log.had_publishers and not self.admission.is_guarded:
            self._lose("is gone")
        elif self.admission.is_guarded and self._lost is None and self._file_end < log.start_offset:
            self._lose(f"is an older copy, which ends at {self._file_end} before the log begins")
        if self._lost is not None:
            await log.record.note([self._lost], self._clock.wall_us())
        if self.admission.is_guarded:
            log.mark_publishers()

    def _lose(self, why: str) -> None:
        """The file is no use: all of the log is read, and the file is made again of that."""
        self.admission.is_guarded = self._has_forgotten = True
        self.admission.noted_end = 0
        self._emit(PublishersLost(self._owner, f"{self.path} {why}: all of the log was read instead"))
        self._lost = Damage(self.path, 0, 0, 0, -1, f"it {why}{WITH_IT}")

    async def catch_up(self, log: PartitionLog) -> None:
        """Note what the log holds beyond what the tables know. Raises `StorageError`."""
        admission = self.admission
        admission.ids.void_below = min(admission.ids.void_below, log.visible_end)
        while self.is_behind(log):
            offset = max(admission.noted_end, log.start_offset)
            try:
                found = await log.read(offset, max_records=READ_RECORDS, max_bytes=READ_BYTES_DEFAULT)
            except LogCorrupt as error:
                if error.offsets is None:
                    raise
                admission.noted_end = max(offset, error.offsets[1]) + 1
                continue
            end = max(found.next_offset, offset + (not found.batches))
            admission.read(found.batches, end, self._clock.wall_us())
            self._tell()

    def is_behind(self, log: PartitionLog) -> bool:
        """Whether the log holds what the tables do not know."""
        admission = self.admission
        return admission.is_guarded and max(admission.noted_end, log.start_offset) < log.visible_end

    def _tell(self) -> None:
        producers = self.admission.producers
        if producers.forgotten:
            forgotten, producers.forgotten = producers.forgotten, []
            for producer_id, reason in forgotten:
                self._emit(ProducerForgotten(self._owner, producer_id, reason))

    # -- commits --------------------------------------------------------------------------------------------

    def must_prepare(self, sequencer: Sequencer, log: PartitionLog) -> bool:
        """Whether `made_ready` has something to do before what waits can be decided."""
        return self.is_behind(log) or self._must_begin(sequencer)

    def _must_begin(self, sequencer: Sequencer) -> bool:
        admission = self.admission
        return (
            sequencer.guarded > 0
            and not admission.is_guarded
            and any(admission.needs_tables(columns) for columns in sequencer.guarded_batches())
        )

    async def made_ready(self, sequencer: Sequencer, log: PartitionLog) -> StorageError | None:
        """Have the tables know all of the log, and the file be there if it must; the error when the disk refuses."""
        try:
            await self.catch_up(log)
            if self._must_begin(sequencer):
                # What is visible and not synced yet has no producer that anybody asked about (PF1).
                await self._write(log.durable_end)
                log.mark_publishers()
                self.admission.is_guarded, self.admission.noted_end = True, log.visible_end
        except StorageError as error:
            return not_stored(f"who has published what to {log.label} could not be recorded", error)
        return None

    def decide(self, appends: Appends, log: PartitionLog) -> int:
        """Decide what of `appends` is stored; returns the time of the records."""
        now_us = self._clock.wall_us()
        self.admission.decide(appends, log.visible_end, now_us)
        return now_us

    def stored(self, log: PartitionLog) -> bool:
        """A commit is written. Whether the file is to be written between this one and the next."""
        admission = self.admission
        if not admission.is_guarded:
            return False
        admission.stored(log.visible_end)
        self._tell()
        return self._is_due(log)

    def _is_due(self, log: PartitionLog) -> bool:
        beyond_bytes = max(self._limits.publishers_every_bytes, self._beyond_bytes)
        return (
            self.admission.is_guarded
            and (self._has_forgotten or self.admission.noted_bytes > beyond_bytes)
            and not (log.is_dirty or log.needs_healing)
        )

    # -- writing --------------------------------------------------------------------------------------------

    async def keep(self, log: PartitionLog) -> None:
        """Between two commits: write the file when it is time. Raises `StorageError`."""
        if self._is_due(log):
            await self._store(log)

    async def close(self, log: PartitionLog) -> None:
        """The log is closed: write the file unless it says all this. If the disk refuses, the next opening reads more
        of the log.
        """
        if (
            self.admission.is_guarded
            and (self._has_forgotten or self.admission.noted_bytes)
            and not (log.is_dirty or log.needs_healing)
        ):
            with suppress(StorageError):
                await self._store(log)

    async def _store(self, log: PartitionLog) -> None:
        self.admission.noted_bytes, self._has_forgotten = 0, False  # also when it fails: then later
        if not self.is_behind(log):
            await self._write(log.durable_end)

    async def _write(self, end: int) -> None:
        now_us = self._clock.wall_us()
        data = await in_steps(encode_in_steps(self.admission, end, self.identity, now_us=now_us))
        self._beyond_bytes = SPACING * len(data)
        await replace_whole(self._files, self.path, data)
        self._file_end = end

    # -- as a summary of the log --------------------------------------------------------------------------------

    @property
    def covered_end(self) -> int:
        """What the file knows up to; `OFFSET_MAX` while there is nothing to know (PF3)."""
        return self._file_end if self.admission.is_guarded else OFFSET_MAX

    async def cover(self, log: PartitionLog) -> None:
        """Between two commits: have the file know all of the log. Raises `StorageError`."""
        await self.catch_up(log)
        await log.sync()
        self.admission.noted_bytes, self._has_forgotten = 0, False
        await self._write(log.durable_end)


def not_stored(what: str, error: StorageError) -> PublishFailed:
    """The error for publishers of which nothing was stored, since the disk refused something that must come before."""
    is_full = lacks_space(error)
    return (DiskFull if is_full else PublishFailed)(
        f"{what}: {error} Nothing was stored."
        + (" Free space: publishing continues by itself." if is_full else " Publish again."),
        indefinite=False,
    )


def publishers_of(files: Incarnation, spec: PartitionSpec, context: Context[Any]) -> Publishers:
    """Those of a partition; `load` them."""
    admission = Admission(
        spec.label,
        begun=spec.hand_over.producers_begun,
        window_us=spec.settings.dedup_window_us,
        void_below=spec.hand_over.ids_void_below,
        stamps=spec.hand_over.carried.stamps,
        limits=context.limits,
    )
    return Publishers(
        files, spec.journal_directory, admission, context.clock, context.limits, context.emit, context.path
    )


LATEST_US: Final = 2**63 - 1
"""Nothing is ahead of it."""


def encode_in_steps(
    admission: Admission, end: int, identity: int = UNBOUND, *, now_us: int = LATEST_US
) -> Generator[None, None, bytes]:
    """The bytes of the file: a head, then a CBOR map of columns, little-endian. Yields between two steps; later changes
    to the tables are not in it. A time that is ahead of now is written as what it counts for, so that it grows old
    however often the partition is opened.
    """
    believed = admission.stamps.believed
    producers, ids, void_below = list(admission.producers), list(admission.ids), admission.ids.void_below
    rows, times, runs = array("Q"), array("q"), array("Q")
    for place, (producer_id, known) in enumerate(producers):
        if place and not place % STEP_ITEMS:
            yield
        rows.extend((producer_id, known.epoch, known.last, len(known.runs)))
        times.append(believed(known.time_us, now_us))
        runs.extend(chain.from_iterable(known.runs))
    lengths, offsets, id_times = array("I"), array("Q"), array("q")
    for at in range(0, len(ids), STEP_ITEMS):
        if at:
            yield
        some = ids[at : at + STEP_ITEMS]
        lengths.extend([len(dedup_id) for dedup_id, _ in some])
        offsets.extend([offset for _, (offset, _) in some])
        id_times.extend([believed(time_us, now_us) for _, (_, time_us) in some])
    body = cbor2.dumps(
        {
            "end": end,
            "producers": rows.tobytes(),
            "times": times.tobytes(),
            "runs": runs.tobytes(),
            "ids": b"".join([dedup_id for dedup_id, _ in ids]),
            "id_lengths": lengths.tobytes(),
            "id_offsets": offsets.tobytes(),
            "id_times": id_times.tobytes(),
            **({IDS_FROM: void_below} if void_below else {}),
            **({IDENTITY: identity} if identity else {}),
        }
    )
    head = MAGIC + VERSION.to_bytes(4, "little")
    return head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body


def decode_in_steps(
    data: bytes, admission: Admission, identity: int = UNBOUND
) -> Generator[None, None, None]:
    """Put all that the file says into the tables, however old it is, unless it names another log than the one with
    `identity`. Yields between two steps.

    Raises `FormatTooNew`, and one of `CBOR_ERRORS`.
    """
    head, body = data[:HEAD_BYTES], data[HEAD_BYTES:]
    if head[:4] != MAGIC or int.from_bytes(head[8:], "little") != zlib.crc32(body, zlib.crc32(head[:8])):
        raise ValueError("its checksum is wrong")
    version = int.from_bytes(head[4:8], "little")
    if version > VERSION:
        raise too_new(f"a record of publishers has version {version}", found=version, supported=VERSION)
    found: dict[str, Any] = cbor2.loads(body)
    unknown_fields(found, FIELDS, "the record of publishers")
    if identity and found.get(IDENTITY, identity) != identity:
        raise ValueError("it belongs to another log")
    rows, times = numbers("Q", found["producers"]), numbers("q", found["times"])
    runs, at = numbers("Q", found["runs"]), 0
    if len(rows) != 4 * len(times):
        raise ValueError("its columns differ in length")
    for place, time_us in enumerate(times):
        producer_id, epoch, last, count = rows[4 * place : 4 * place + 4]
        flat, at = runs[at : at + 3 * count], at + 3 * count
        if not 0 < len(flat) == 3 * count:
            raise ValueError("a producer has no runs")
        kept: list[Run] = [
            (flat[first], flat[first + 1], flat[first + 2]) for first in range(0, 3 * count, 3)
        ]
        admission.producers.put(producer_id, KnownProducer(epoch, last, time_us, tuple(kept)), None)
        if not (place + 1) % STEP_ITEMS:
            yield
    ids, ends = found["ids"], list(accumulate(numbers("I", found["id_lengths"]), initial=0))
    offsets, id_times = numbers("Q", found["id_offsets"]), numbers("q", found["id_times"])
    if type(ids) is not bytes or at != len(runs) or ends[-1] != len(ids):
        raise ValueError("its columns differ in length")
    void_below = found.get(IDS_FROM, 0)
    if type(void_below) is not int or void_below < 0:
        raise ValueError("its first id has no offset")
    admission.ids.void_below = max(admission.ids.void_below, void_below)
    rows_of_ids = zip(pairwise(ends), offsets, id_times, strict=True)
    for place, ((low, high), offset, time_us) in enumerate(rows_of_ids):
        admission.ids.put(ids[low:high], (offset, time_us), None)
        if not (place + 1) % STEP_ITEMS:
            yield
    if type(found["end"]) is not int or found["end"] < 0:
        raise ValueError("its end is no offset")
    admission.noted_end = found["end"]


def numbers(code: str, data: object) -> array[int]:
    """A column of numbers. Raises `ValueError` for anything else."""
    if type(data) is not bytes:
        raise ValueError("a column is no bytes")
    found: array[int] = array(code)
    found.frombytes(data)
    return found
