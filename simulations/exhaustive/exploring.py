"""Every short history of a log, with power lost at every verb and every way of losing what was not synced.

Theory of operation
-------------------
A *sequence* is up to N operations of the alphabet, done to a log and a journal that were just made. A *crash point* is
the moment before a verb of its last operation, before a store of a mark, or after the operation. (In the operations
before it power was lost in the shorter sequences.) A *state* is a crash point and the subset of unsynced items that
survives there; `survivors` says which subsets.

In each state the production code opens what is left, and `ledger` holds what it finds against what was promised:
nothing synced is lost or altered, no offset is used twice, nothing is served that was not written. Then power is lost
again, with everything unsynced, and a second open must find the same: recovery is idempotent, and what it serves is
durable.

States that leave the same bytes under the same promises are opened once; all are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

import attrs
import trio

from callboard.simulations.disk.file_tree import FileTree
from callboard.simulations.disk.memory_disk import MemoryDisk

from .ledger import Broken, LogPromises, OpenedLog
from .life import HandClock, Life
from .operations import OPERATIONS
from .survivors import ITEMS_MAX, Subset, apply, fingerprint, items_of, subsets

FAILURES_MAX: Final = 20
"""The number of failures after which an exploration ends."""


@attrs.frozen
class FailedHistory:
    """A state in which a promise does not hold."""

    sequence: tuple[str, ...]
    point: int
    """Which crash point of the last operation, from 0."""
    verb: str
    """What was about to run: "sync topics/t/0/...log", or "the end"."""
    survived: Subset
    """The places of the unsynced items that survived."""
    items: int
    words: str

    def __str__(self) -> str:
        return (
            f"{' > '.join(self.sequence)}: power lost at point {self.point}, before {self.verb}; of {self.items} "
            f"unsynced items survived {list(self.survived)}: {self.words}"
        )


@attrs.define
class Exploration:
    """An exploration: how far it is, and what it has found."""

    sequences: int
    """Sequences in all."""
    done: int = 0
    """Sequences explored."""
    states: int = 0
    points: int = 0
    """Crash points."""
    sampled_points: int = 0
    """Crash points with so many unsynced items that not every subset was tried."""
    failures: list[FailedHistory] = attrs.field(factory=list)
    _known: set[tuple[int, int]] = attrs.field(factory=set)

    @property
    def distinct(self) -> int:
        """States that differ, and were opened."""
        return len(self._known)

    async def explore(self, sequence: tuple[str, ...]) -> None:
        """Run the sequence, and lose power at each point of its last operation."""
        points: list[_Point] = []
        try:
            await _perform(sequence, points)
        except Exception as error:  # noqa: BLE001 - whatever an operation raises without a crash is a failure to report
            self.failures.append(FailedHistory(sequence, len(points), "the end", (), 0, _words(error)))
        for number, point in enumerate(points):
            items = items_of(point.tree)
            self.points += 1
            self.sampled_points += len(items) > ITEMS_MAX
            for subset in subsets(len(items)):
                self.states += 1
                words = await self._try(point, items, subset)
                if words is not None:
                    self.failures.append(
                        FailedHistory(sequence, number, point.verb, subset, len(items), words)
                    )
                    break
        self.done += 1

    async def _try(self, point: _Point, items: list[tuple[int, int]], subset: Subset) -> str | None:
        """Open what is left, twice. Returns the broken promise, if any."""
        left = apply(point.tree, items, subset)
        known = (fingerprint(left), point.ledger.key())
        if known in self._known:
            return None
        self._known.add(known)
        try:
            await _recover_twice(left, point.ledger, point.now_us)
        except Exception as error:  # noqa: BLE001 - whatever recovery raises is a failure to report
            return _words(error)
        return None


@attrs.define
class _Point:
    """A moment at which power may be lost."""

    verb: str
    tree: FileTree
    ledger: LogPromises
    now_us: int


def explore(
    length: int,
    progress: Callable[[Exploration], object] = lambda _: None,
    *,
    operations: Sequence[str] = tuple(OPERATIONS),
    share: tuple[int, int] = (0, 1),
) -> Exploration:
    """Explore all sequences of up to `length` of the `operations`, the shorter ones first; not from within a trio run.

    `progress` is called after each sequence. `share` (k, n): only every n-th sequence, from the k-th on, for n
    processes to share the work.
    """
    sizes = range(length + 1)
    every = [sequence for size in sizes for sequence in product(operations, repeat=size)]
    sequences = every[share[0] :: share[1]]
    exploration = Exploration(len(sequences))

    async def explore_each() -> None:
        for sequence in sequences:
            await exploration.explore(sequence)
            progress(exploration)
            if len(exploration.failures) >= FAILURES_MAX:
                break

    trio.run(explore_each)
    return exploration


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"


async def _perform(sequence: tuple[str, ...], points: list[_Point]) -> None:
    """Do all of it on a disk of its own; note the crash points of the last operation, or of the making."""
    disk = _disk()
    clock = HandClock()
    life = Life(disk, LogPromises(), clock)

    def note(_owner: str, verb: str, path: str) -> None:
        if verb != "read":
            points.append(_Point(f"{verb} {path}", disk.snapshot(), life.ledger.copy(), clock.now_us))

    if not sequence:
        disk.observer = note
    await life.reopen()
    for place, name in enumerate(sequence, 1):
        if place == len(sequence):
            disk.observer = note
        await OPERATIONS[name](life)
    points.append(_Point("the end", disk.snapshot(), life.ledger.copy(), clock.now_us))


async def _recover_twice(left: FileTree, ledger: LogPromises, now_us: int) -> None:
    """Open and check; lose power; open again and find the same."""
    disk = _disk()
    disk.tree = left
    clock = HandClock()
    clock.now_us = now_us
    life = Life(disk, ledger, clock, seed=2)
    first = await life.open()
    ledger.check(first)
    disk.crash()
    again = await life.open()
    # What proved the frames, the `committed` file, may be gone with the power: they may be written again.
    expected = attrs.evolve(first, rewritten=again.rewritten, torn_bytes=0)
    if again != expected:
        raise Broken(f"a second recovery differs: {_differences(again, expected)}")


def _differences(found: OpenedLog, expected: OpenedLog) -> str:
    pairs = [
        (field.name, getattr(found, field.name), getattr(expected, field.name))
        for field in attrs.fields(OpenedLog)
    ]
    return "; ".join(f"{name} {is_now!r}, was {was!r}" for name, is_now, was in pairs if is_now != was)


def _disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.instant = True
    return disk
