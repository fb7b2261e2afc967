"""A partition log on a memory disk, with a ledger of what was promised about each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from callboard.log.errors import PlanFailed, StaleIncarnation, StorageError
from callboard.log.format.columns import Columns
from callboard.log.limits import Limits
from callboard.log.partition.partition_log import LogSettings, PartitionLog
from callboard.log.seams.disk import SyncDirectory, Unlink
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.exhaustive.life import HandClock

DIRECTORY = "topics/t/0"


class World:
    """A disk, a log that is opened again and again, and what its users were told."""

    def __init__(self, seed: int = 1, limits: Limits = Limits(), **settings: Any) -> None:
        self.disk = MemoryDisk()
        self.clock = HandClock()
        self.entropy = SeededEntropy(seed)
        self.settings = LogSettings(**settings)
        self.limits = limits
        self.promised: dict[int, bytes] = {}
        """Acknowledged as durable."""
        self.seen: dict[int, bytes] = {}
        """Visible to readers, durable or not."""
        self.pending: dict[int, bytes] = {}
        """Visible and not durable yet."""
        self.attempted: dict[int, set[bytes]] = {}
        """Everything that was ever staged at an offset."""
        self.refused: set[bytes] = set()
        """Values whose publisher was told that nothing was stored."""
        self.count = 0
        self.log: PartitionLog
        self.files: Any

    # -- acting

    async def open(self, *, named_end: int = 0) -> PartitionLog:
        """Open the partition as its next owner."""
        self.files = await self.disk.incarnate("partition")
        self.log = await PartitionLog.open(
            self.files,
            DIRECTORY,
            self.settings,
            label="orders/2",
            clock=self.clock,
            entropy=self.entropy,
            named_end=named_end,
            limits=self.limits,
        )
        return self.log

    def values(self, count: int, size: int = 20) -> list[bytes]:
        """Values that no other record has."""
        self.count += count
        return [b"%06d" % number * (size // 6 + 1) for number in range(self.count - count, self.count)]

    async def append(
        self, batches: int = 1, records: int = 1, *, durable: bool = True, size: int = 20
    ) -> StorageError | None:
        """Append batches of new values, healing first if need be; returns the error that publishers get."""
        if self.log.needs_healing:
            try:
                await self.log.heal()
            except StorageError as error:
                return error
        values = [self.values(records, size) for _ in range(batches)]
        staged = self.log.stage([Columns.build(part) for part in values], durable=durable)
        placed = {
            base + place: value
            for base, part in zip(staged.base_offsets, values, strict=True)
            for place, value in enumerate(part)
        }
        for offset, value in placed.items():
            self.attempted.setdefault(offset, set()).add(value)
        try:
            await self.files.submit(staged.verbs)
        except PlanFailed as failed:
            error = self.log.failed(staged, failed)
            if not error.indefinite:
                self.refused.update(placed.values())
            return error
        self.log.applied(staged)
        assert not set(placed) & set(self.seen), "an offset was used twice"
        self.seen.update(placed)
        self.pending.update(placed)
        if not self.log.is_dirty:
            self._keep_promises()
        return None

    async def sync(self) -> None:
        """Make the leader records durable."""
        await self.files.submit(self.log.stage_sync())
        self.log.synced()
        self._keep_promises()

    def _keep_promises(self) -> None:
        self.promised.update(self.pending)
        self.pending.clear()

    async def contents(self, start: int | None = None) -> dict[int, bytes]:
        """All records by offset, read in small steps."""
        found: dict[int, bytes] = {}
        offset = self.log.start_offset if start is None else start
        self.lost: list[tuple[int, int]] = []
        while offset < self.log.visible_end:
            reading = await self.log.read(offset, max_records=7, max_bytes=5_000)
            for columns in reading.batches:
                for at, value in zip(columns.offset_list(), columns.value_list(), strict=True):
                    assert at >= offset
                    assert at not in found
                    assert value is not None
                    found[at] = value
            self.lost += reading.lost
            assert reading.next_offset > offset
            offset = reading.next_offset
        return found

    async def files_gone(self, *paths: str) -> None:
        """Delete files behind everybody's back, durably."""
        files = await self.disk.incarnate("somebody else")
        await files.submit([*(Unlink(path) for path in paths), SyncDirectory(DIRECTORY)])

    # -- judging

    def check(self, found: dict[int, bytes], *, must_hold: dict[int, bytes]) -> None:
        """`must_hold` is there unaltered, nothing was made up, nothing refused has turned up."""
        start = self.log.start_offset
        assert {at: found.get(at) for at in must_hold if at >= start} == {
            at: value for at, value in must_hold.items() if at >= start
        }
        for offset, value in found.items():
            assert value in self.attempted.get(offset, ()), f"offset {offset} holds {value!r}"
            assert self.seen.get(offset, value) == value, f"offset {offset} was given to another record"
        assert not self.refused & set(found.values())
        missing = set(range(start, self.log.visible_end)) - set(found)
        named = {at for first, last in self.lost for at in range(first, last + 1)}
        assert missing == named & missing, f"offsets missing without a word: {sorted(missing - named)}"

    async def check_twice(self, *, must_hold: dict[int, bytes], named_end: int = 0) -> dict[int, bytes]:
        """Open, check, open again: the second recovery finds the same and writes nothing anew."""
        first = await self.open(named_end=named_end)
        found = await self.contents()
        self.check(found, must_hold=must_hold)
        assert first.next_offset >= max((*must_hold, -1)) + 1
        assert first.next_offset >= named_end
        self.disk.kill()
        second = await self.open(named_end=named_end)
        assert (await self.contents(), second.next_offset) == (found, first.next_offset)
        assert second.recovery.rewritten_records == 0
        assert second.recovery.torn_bytes == 0
        # Recovery proved what it serves; leader records that vanished, and that nobody named, free their offsets.
        self.seen = {at: value for at, value in self.seen.items() if at < named_end} | found
        self.promised = dict(found)
        self.pending.clear()
        return found


Scenario = Callable[[World], Any]


async def crash_everywhere(
    make: Callable[[], World],
    scenario: Scenario,
    *,
    chooses: Sequence[Any],
    verify: Callable[[World], Any],
    answered: bool = True,
) -> int:
    """Run `scenario` once for each verb it submits, losing power there; `verify` what is left. Returns the verbs."""
    for choose in chooses:
        for verbs in range(100_000):
            world = make()
            await world.open()
            world.disk.crash_after(verbs, choose, answered=answered)
            try:
                await scenario(world)
            except StaleIncarnation:
                pass
            struck = world.disk.is_off
            if not struck:
                break
            world.disk.power_on()
            world.disk.faults.clear()
            await verify(world)
    return verbs


@pytest.fixture
def world() -> World:
    """A world whose segments are small."""
    return World(segment_bytes=65_536)


@pytest.fixture
def make_world() -> Callable[..., World]:
    """Makes worlds of other settings."""
    return World


@pytest.fixture
def everywhere() -> Any:
    """`crash_everywhere`."""
    return crash_everywhere
