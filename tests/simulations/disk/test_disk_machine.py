"""The memory disk against a model so simple that it can be seen to be right: two byte strings for each file."""

from __future__ import annotations

from typing import Any

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.log.errors import PlanFailed
from callboard.log.seams.disk import Create, Open, Sync, SyncDirectory, Truncate, Write, Zero
from callboard.simulations.disk.inodes import LENGTH, Garbage, Unsynced
from callboard.simulations.disk.memory_disk import MemoryDisk

SECTOR = 512
offsets = st.integers(0, 5).map(lambda n: n * 300)
sizes = st.sampled_from([1, 7, 300, 512, 1100, 2000])


class DiskMachine(RuleBasedStateMachine):
    """One file, written, synced, torn and cut off from power; the model knows only old bytes and new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.old = b""
        self.new = b""
        self.clean: set[int] = set()
        """Sectors that a failed sync has marked clean, with other bytes than the durable ones."""
        self.count = 0
        self.life: Any
        self.handle: Any
        self.run(self.make)

    def run(self, work: Any, *arguments: Any) -> None:
        """Do something on the disk."""
        trio.run(work, *arguments)

    async def make(self) -> None:
        """The file, durable and empty."""
        self.life = await self.disk.incarnate("owner")
        self.handle = self.life.handle("a")
        await self.life.submit((Create(self.handle), Sync(self.handle), SyncDirectory("")))

    async def reopen(self) -> None:
        """The file's next owner."""
        self.life = await self.disk.incarnate("owner")
        self.handle = self.life.handle("a")
        await self.life.submit((Open(self.handle),))

    async def submit(self, *plan: Any) -> None:
        """A plan that succeeds."""
        await self.life.submit(plan)

    def touched(self, start: int, end: int) -> None:
        """Sectors written anew are dirty again."""
        self.clean -= set(range(start // SECTOR, -(-end // SECTOR)))

    @rule(offset=offsets, size=sizes)
    def write(self, offset: int, size: int) -> None:
        """Bytes that no other write has."""
        self.count += 1
        data = bytes([self.count % 255 + 1]) * size
        start = min(offset, len(self.new))
        self.run(self.submit, Write(self.handle, offset, [data]))
        self.new = self.new.ljust(offset, b"\0")[:offset] + data + self.new[offset + size :]
        self.touched(start, offset + size)

    @rule(offset=offsets, size=sizes)
    def zero(self, offset: int, size: int) -> None:
        """Zeros over what is there, or ahead of it."""
        start = min(offset, len(self.new))
        self.run(self.submit, Zero(self.handle, offset, size))
        self.new = self.new.ljust(offset, b"\0")[:offset] + bytes(size) + self.new[offset + size :]
        self.touched(start, offset + size)

    @rule(length=st.sampled_from([0, 100, 512, 1000, 3000]))
    def truncate(self, length: int) -> None:
        """Cut, or extended."""
        self.run(self.submit, Truncate(self.handle, length))
        if length > len(self.new):
            self.touched(len(self.new), length)
        self.new = self.new[:length].ljust(length, b"\0")

    @rule()
    def sync(self) -> None:
        """All but what a failed sync has marked clean becomes durable."""
        self.run(self.submit, Sync(self.handle))
        self.old = self.merged(set(range(-(-len(self.new) // SECTOR))) - self.clean, with_length=True)

    @rule(pages=st.sampled_from(["kept", "reverted"]))
    def fail_sync(self, pages: Any) -> None:
        """The dirty sectors are marked clean, and read as they were written or as they are on the disk."""
        self.disk.fail_next("sync", "EIO", pages=pages)
        try:
            self.run(self.submit, Sync(self.handle))
        except PlanFailed:
            pass
        else:
            raise AssertionError("the sync did not fail")
        if pages == "reverted":
            self.new = self.disk.files()["a"]
            for sector in range(-(-len(self.new) // SECTOR)):
                place = slice(sector * SECTOR, (sector + 1) * SECTOR)
                size = len(self.new[place])
                assert sector in self.clean or self.new[place] == self.old[place].ljust(size, b"\0")[:size]
        else:
            self.clean = set(range(-(-len(self.new) // SECTOR)))

    def merged(self, sectors: set[int], *, with_length: bool) -> bytes:
        """The durable bytes with these sectors of the new ones, cut to the durable length, or to the new one."""
        length = len(self.new) if with_length else len(self.old)
        merged = bytearray(self.old[:length].ljust(length, b"\0"))
        for sector in sectors:
            start = sector * SECTOR
            piece = self.new[start : start + SECTOR][: max(0, length - start)]
            merged[start : start + len(piece)] = piece
        return bytes(merged)

    @rule(data=st.data(), trash=st.booleans())
    def lose_power(self, data: Any, trash: bool) -> None:
        """Any subset of what is offered survives, or garbage in its place; nothing that was not offered changes."""
        kept: list[Any] = []

        def choose(unsynced: Unsynced) -> Any:
            kept.extend(data.draw(st.lists(st.sampled_from(unsynced.items), unique=True)))
            return [Garbage(item, b"G" * SECTOR) if trash and item != LENGTH else item for item in kept]

        self.disk.crash(choose)
        sectors = {item for item in kept if item != LENGTH}
        with_length = LENGTH in kept or len(self.new) == len(self.old)
        expected = bytearray(self.merged(sectors, with_length=with_length))
        if trash:
            for sector in sectors:
                piece = b"G" * len(expected[sector * SECTOR : (sector + 1) * SECTOR])
                expected[sector * SECTOR : sector * SECTOR + len(piece)] = piece
        self.old = self.new = bytes(expected)
        self.clean = set()
        self.run(self.reopen)

    @rule()
    def kill(self) -> None:
        """The process dies, and its page cache lives on."""
        self.disk.kill()
        self.run(self.reopen)

    @precondition(lambda self: any(self.old))
    @rule(draw=st.integers(0, 1 << 30))
    def rot(self, draw: int) -> None:
        """One bit that is durable, wherever it is."""
        self.disk.damage_budget.beyond = True
        before = self.disk.durable_files()["a"]
        rotten = self.disk.rot("a", draw)
        after = self.disk.durable_files()["a"]
        changed = [at for at in range(len(before)) if before[at] != after[at]]
        assert len(changed) == rotten
        for at in changed:
            mask = before[at] ^ after[at]
            assert mask.bit_count() == 1
            self.new = self.new[:at] + bytes([self.new[at] ^ mask]) + self.new[at + 1 :]
        self.old = after

    @rule()
    def copy(self) -> None:
        """A restored snapshot is the same disk, for power loss as well."""
        self.disk.restore(self.disk.snapshot())
        self.run(self.reopen)

    @invariant()
    def is_as_expected(self) -> None:
        """Reads see the new bytes, and the durable ones are those that a plain power loss would leave."""
        assert self.disk.files()["a"] == self.new
        assert self.disk.durable_files()["a"] == self.old


DiskMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestDiskMachine = DiskMachine.TestCase
