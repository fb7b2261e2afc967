"""What is found at the moments of a run, and by reading parts of a partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from callboard.log.journal.journal import Journal
from callboard.log.segments.segment_file import SegmentFile
from callboard.simulations.checkers import closed_well, nothing_lost
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import NO_FAULTS
from callboard.simulations.history import History
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.scenarios.probing import StoredRecord, read_all, read_in_parts
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.violations import Violation

RECORDS = [StoredRecord(offset, offset + 100, 1_000 * (offset // 3)) for offset in range(5, 40) if offset % 7]


class Records:
    """A partition that is read as it should be, or as a test has it."""

    def __init__(self, records: list[StoredRecord]) -> None:
        self.records = records
        self.begin: Callable[[int], int] = lambda offset: offset
        self.late_us = 0

    async def read(self, offset: int, *, max_records: int) -> tuple[list[StoredRecord], int]:
        """Five at a time at most."""
        await trio.lowlevel.checkpoint()
        count = min(max_records, 5)
        found = [record for record in self.records if record.offset >= self.begin(offset)][:count]
        return found, found[-1].offset + 1 if len(found) == count else 40

    async def offset_at(self, time_us: int) -> int:
        """By the definition."""
        await trio.lowlevel.checkpoint()
        return next((r.offset for r in self.records if r.time_us >= time_us + self.late_us), 40)


async def read(reads: Records, times: int = 60) -> str | None:
    known = await read_all(Records(RECORDS), 5, 40)
    assert known == RECORDS
    return await read_in_parts(reads, known, 5, 40, SeededEntropy(1), times)


async def test_parts_that_are_what_all_is_break_nothing() -> None:
    """Reads of parts, forward and back, that show the same records as a read of all are right."""
    assert await read(Records(RECORDS)) is None


async def test_a_part_that_begins_too_late_is_found() -> None:
    """A reader that passes over the first record when it goes back, or loses one, gives a wrong part."""
    reads = Records(RECORDS)
    reads.begin = lambda offset: offset + 1
    assert "was given" in str(await read(reads))
    assert "was given" in str(await read(Records(RECORDS[:9] + RECORDS[10:])))


async def test_a_search_by_time_that_finds_a_later_record_is_found() -> None:
    """The first record at or after a time is the one to be told."""
    reads = Records(RECORDS)
    reads.late_us = 1
    assert "us on has offset" in str(await read(reads))


def test_an_earlier_history_goes_on_in_another_way() -> None:
    """A history until an entry knows the messages, and nothing of what came later."""
    history = History(now=lambda: 0.0)
    history.booted(1)
    history.message(b"one")
    history.record(1, "publish", "p1", history.operation(), ids=(0,))
    history.record(1, "published", "p1", 1, ids=(0,))
    earlier = history.until(2)
    earlier.ended(1, "power cut")
    assert [entry.kind for entry in earlier.entries] == ["booted", "publish", "power cut"]
    assert earlier.of("published") == []
    assert earlier.identify(b"one", None) == 0
    assert (earlier.machines, earlier.last("power cut"), len(history)) == (1, 2, 3)


TRAFFIC = Traffic(messages=30, partitions=1, publishers=2, styles=(), moments=10)


def test_a_sync_that_is_left_out_is_found_without_a_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that does not sync breaks its promise at some moment, although nothing goes wrong in the run itself."""
    append_verbs = SegmentFile.append_verbs

    def unsynced(self, buffers, size_bytes, *, sync):
        return append_verbs(self, buffers, size_bytes, sync=False)

    monkeypatch.setattr(SegmentFile, "append_verbs", unsynced)
    run = run_scenario(SCENARIOS["publish-only"], 1, plan=NO_FAULTS, workload=TRAFFIC)
    assert isinstance(run.failure, Violation)
    assert run.failure.promise in (nothing_lost.PROMISE, closed_well.PROMISE)


def test_a_journal_that_closes_without_a_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a closed runtime leaves unsynced is named."""
    monkeypatch.setattr(Journal, "is_dirty", False)
    workload = Traffic(
        messages=30,
        partitions=1,
        styles=("one by one",),
        closings=3,
        handling_s=0.07,
    )
    run = run_scenario(SCENARIOS["publish-and-recover"], 1, plan=NO_FAULTS, workload=workload)
    assert isinstance(run.failure, Violation)
    assert run.failure.promise == closed_well.PROMISE
