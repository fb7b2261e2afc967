"""A log beside its journal on a memory disk, as one owner has them open, and a ledger of what it was answered."""

from __future__ import annotations

from callboard.log.errors import PlanFailed
from callboard.log.format.columns import Columns
from callboard.log.journal.journal import Journal, StagedJournal
from callboard.log.journal.journal_walk import Owner
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.partition.retention import LogSettings
from callboard.log.seams.disk import Incarnation
from callboard.simulations.clock import START_US
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

from .ledger import Broken, LogPromises, OpenedLog, event_naming, named_end

DIRECTORY = "topics/t/0"
JOURNAL = f"{DIRECTORY}/delivery"
SEGMENT_AGE_S = 60.0
SETTINGS = LogSettings(segment_bytes=65_536, segment_age_s=SEGMENT_AGE_S, retention_age_s=1_000.0)


class HandClock:
    """A clock that tests move; each look also moves it a little."""

    def __init__(self) -> None:
        self.now_us = START_US

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_us / 1e6

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        self.now_us += 1
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * 1e6)


class Life:
    """The production code on one disk, opened as often as needed. Raises `Broken` when a promise does not hold."""

    def __init__(self, disk: MemoryDisk, ledger: LogPromises, clock: HandClock, *, seed: int = 1) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = clock
        self.entropy = SeededEntropy(seed)
        self.count = 0
        self.files: Incarnation
        self.log: PartitionLog
        self.journal: Journal

    # -- opening

    async def open(self) -> OpenedLog:
        """Recover the journal, then the log, as a partition does, and look at all there is."""
        self.files = await self.disk.incarnate("partition")
        events: list[bytes] = []

        def restore(snapshot: bytes) -> None:
            events[:] = snapshot.split(b"\n") if snapshot else []

        self.journal = await Journal.open(
            self.files, JOURNAL, Owner(restore, events.append), clock=self.clock, entropy=self.entropy
        )
        self.log = log = await PartitionLog.open(
            self.files,
            DIRECTORY,
            SETTINGS,
            label="t/0",
            clock=self.clock,
            entropy=self.entropy,
            named_end=max(map(named_end, events), default=0),
        )
        if log.owed_for is not None:  # the disk was too full for recovery: it continues when there is space
            await log.heal()
        records, unexplained = await self._contents()
        recovery = log.recovery
        return OpenedLog(
            records,
            unexplained,
            log.start_offset,
            log.next_offset,
            tuple(events),
            recovery.rewritten_records + self.journal.recovery.rewritten_bytes,
            recovery.torn_bytes + self.journal.recovery.torn_bytes,
            frozenset(offset for gap in log.gaps for offset in range(gap.first, gap.last + 1)),
        )

    async def _contents(self) -> tuple[dict[int, bytes], frozenset[int]]:
        """All records, and the offsets that are missing without a word."""
        log = self.log
        found: dict[int, bytes] = {}
        named: set[int] = set()
        offset = log.start_offset
        while offset < log.visible_end:
            reading = await log.read(offset, max_records=1_000)
            for columns in reading.batches:
                for at, value in zip(columns.offset_list(), columns.value_list(), strict=True):
                    if at in found or value is None:
                        raise Broken(f"offset {at} was read twice, or without a value")
                    found[at] = value
            for first, last in reading.lost:
                named.update(range(first, last + 1))
            if reading.next_offset <= offset:
                raise Broken(f"reading at {offset} goes on at {reading.next_offset}")
            offset = reading.next_offset
        missing = set(range(log.start_offset, log.visible_end)).difference(found, named)
        return found, frozenset(missing)

    async def reopen(self) -> None:
        """Open again. What is found must match the promises, and replaces what was known before."""
        found = await self.open()
        self.ledger.check(found)
        proven = self.ledger.events_proven
        self.ledger.recovered(found)
        if self.journal.needs_healing:
            # It opened nevertheless, but could not prove what it had found.
            self.ledger.events_proven = proven
            await self.journal.heal(b"\n".join(self.ledger.events))
            self.ledger.events_proven = len(self.ledger.events)

    # -- writing

    async def append(
        self, *, durable: bool, size_bytes: int = 18, count: int = 1, event: bool = False
    ) -> None:
        """Append a batch; with `event`, in one plan with a synced journal event that names it. Heals what fails.

        No other record has the same value.
        """
        self.count += count
        values = [b"%06d" % at * (size_bytes // 6) for at in range(self.count - count, self.count)]
        staged = self.log.stage([Columns.build(values)], durable=durable)
        base = staged.base_offsets[0]
        self.ledger.attempt(base, values)
        journalled = self._stage_event(staged.end_offset, sync=True) if event else None
        error = None
        try:
            await self.files.submit((*staged.verbs, *(journalled.verbs if journalled is not None else ())))
        except PlanFailed as failed:
            error = failed
            if failed.index < len(staged.verbs):  # so the journal's verbs did not run
                if journalled is not None:
                    self.journal.failed(journalled, failed)
                    self.ledger.tentative = ()
                self.log.failed(staged, failed)
                await self.log.heal()
                self._all_synced()
                return
        self.log.applied(staged)
        self.ledger.visible.update(enumerate(values, base))
        if not self.log.is_dirty:
            self._all_synced()
        if journalled is not None:
            await self._event_ended(journalled, error)

    async def sync(self) -> None:
        """Make the leader records durable."""
        await self.files.submit(self.log.stage_sync())
        self.log.synced()
        self._all_synced()

    def _all_synced(self) -> None:
        self.ledger.promised = dict(self.ledger.visible)

    async def roll(self) -> None:
        """Seal the segment in use, for its age."""
        self.clock.advance(SEGMENT_AGE_S)
        await self.log.roll_if_due(self.clock.wall_us())
        if not self.log.is_dirty:
            self._all_synced()

    async def drop(self) -> None:
        """Drop all sealed segments, for their age."""
        self.clock.advance(10_000.0)
        self.ledger.start_allowed = self.log.visible_end
        await self.log.retain(
            now_us=self.clock.wall_us(), unsettled_from=self.log.visible_end, drop_unread=True
        )
        self.ledger.start_dropped = self.ledger.start_allowed = self.log.start_offset

    # -- the journal

    async def note(self, *, sync: bool) -> None:
        """Append an event that names all visible records; heals the journal when that fails."""
        staged, error = self._stage_event(self.log.visible_end, sync=sync), None
        try:
            await self.files.submit(staged.verbs)
        except PlanFailed as failed:
            error = failed
        await self._event_ended(staged, error)

    def _stage_event(self, end: int, *, sync: bool) -> StagedJournal:
        event = event_naming(len(self.ledger.events), end)
        self.ledger.tentative = (event,)
        return self.journal.stage([event], sync=sync)

    async def _event_ended(self, staged: StagedJournal, error: PlanFailed | None) -> None:
        """The event is in the journal, or the plan failed in the journal's verbs: heal it from memory."""
        ledger = self.ledger
        if error is None:
            self.journal.applied(staged)
            ledger.events += ledger.tentative
        else:
            self.journal.failed(staged, error)
            await self.journal.heal(b"\n".join(ledger.events))
        ledger.tentative = ()
        if error is not None or staged.is_synced:
            ledger.events_proven = len(ledger.events)

    async def snapshot(self) -> None:
        """Begin a new journal segment with all events, and drop the earlier ones."""
        await self.journal.snapshot(b"\n".join(self.ledger.events))
        self.ledger.events_proven = len(self.ledger.events)
        await self.journal.prune()

    # -- ends

    async def close(self) -> None:
        """Close both, as a partition does."""
        await self.journal.close()
        self.ledger.events_proven = len(self.ledger.events)
        await self.log.close()
        self._all_synced()

    async def lose_power(self, *, tear: bool = False) -> None:
        """Everything unsynced is gone, with `tear` all but every other item of each file and directory. Open again."""
        self.disk.crash(lambda unsynced: unsynced.items[1::2] if tear else [])
        await self.reopen()
