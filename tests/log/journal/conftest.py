"""A journal's owner for tests: its state is the list of its events."""

from __future__ import annotations

import pytest
import trio

from callboard.log.journal import journal_walk
from callboard.log.journal.journal import Journal
from callboard.log.limits import Limits
from callboard.simulations.clock import VirtualClock
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.entropy import SeededEntropy

DIRECTORY = "catalog"


class Owner:
    """Opens a journal on a disk in memory, and keeps what it replays."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.clock = VirtualClock()
        self.entropy = SeededEntropy(1)
        self.limits = Limits()
        self.state: list[bytes] = []
        self.replayed: list[bytes] = []

    async def open(self) -> Journal:
        """Open the journal anew, in a new incarnation."""
        files = await self.disk.incarnate("owner")
        self.state, self.replayed = [], []
        return await Journal.open(
            files,
            DIRECTORY,
            journal_walk.Owner(self.restore, self.apply),
            clock=self.clock,
            entropy=self.entropy,
            limits=self.limits,
        )

    def restore(self, data: bytes) -> None:
        """Take the state from a snapshot."""
        self.state[:] = data.split(b",") if data else []

    def apply(self, event: bytes) -> None:
        """Take an event."""
        self.state.append(event)
        self.replayed.append(event)

    def image(self) -> bytes:
        """The state as a snapshot."""
        return b",".join(self.state)

    async def append(self, journal: Journal, *events: bytes, sync: bool = True) -> None:
        """Append, apply what was appended, and maintain the journal."""
        await journal.append(events, sync=sync)
        self.state.extend(events)
        if journal.needs_maintenance:
            await journal.maintain()

    async def keeps(self, state: list[bytes]) -> None:
        """After a power loss the journal opens with this state."""
        self.disk.crash()
        await self.open()
        assert self.state == state

    def segments(self) -> list[str]:
        """The paths of the journal's segments."""
        names = self.disk.files()
        return sorted(path for path in names if path.startswith(DIRECTORY) and path.endswith(".log"))


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def new_owner() -> type[Owner]:
    """For tests that need many."""
    return Owner


@pytest.fixture
def run():
    """Run an async function to its end in a trio run of its own: for Hypothesis and sweeps."""
    return trio.run
