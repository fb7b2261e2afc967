"""Moments of a run: what would have been left, had the power been cut or the process been killed there.

Copies of the disk are taken while a run goes on, before verbs that the seed chooses, each as likely as the others, and
whenever a runtime was closed in good order. That changes nothing for the run. When it is over, each copy is looked at
as if its machine had ended at that moment, with everything that clients had done and seen until then:

1. As it lies there, `verify` finds no damage, and readers without the lock are given what clients were answered.
2. In one of three the machine ends: the power is cut, and a part survives of what was not synced; or it is killed.
3. A repair finds no damage, and changes nothing.
4. The directory is opened, and the promises hold that were made until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

import callboard
from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import LogCorrupt
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.simulations.checkers import (
    Terms,
    check_all,
    conservation,
    definite_failures,
    false_damage,
    nothing_altered,
    nothing_lost,
    offsets,
    reading,
    recovery,
)
from callboard.simulations.disk.file_tree import FileTree
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.history.entry import ALTERED
from callboard.simulations.history.surviving import collect, note_shown
from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.scenarios.probing import OfflineReads, read_all, read_in_parts
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.log.offline.inspected_log import Problem
    from callboard.log.offline.verify import LogReport
    from callboard.simulations.history import History
    from callboard.simulations.world import World

PARTS: Final = 6
"""How many parts of each partition are read."""
PASSING: Final = ("lock", "committed")
"""Files that every opening writes."""
ENDS: Final = ("power cut", "power cut", "killed")
OPENED: Final = (True, False, False)
"""Whether the machine of a moment ends, and its directory is opened: that takes four times what all before it takes."""
BY_WHAT_IS_LEFT: Final = (
    nothing_lost.check,
    nothing_altered.check,
    definite_failures.check,
    offsets.check,
    conservation.check,
    recovery.check_damage,
    false_damage.check,
)
"""Promises that hold at every moment."""
DISK_FAILURES: Final = ("FailVerb", "FailRead", "FullDisk", "ShortWrite", "Stall")
"""Labels of faults after which a runtime may end without having synced everything."""


@attrs.frozen
class Moment:
    """The disk as it was before a verb, and how many entries the history had."""

    tree: FileTree
    entries: int
    words: str


class Moments:
    """Takes copies of the world's disk, `count` at most beside those of closed runtimes, and looks at them later."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._count = count
        self._entropy = world.entropy.fork("moments")
        self._passed = 0
        self._taken: list[Moment] = []
        self._closed: list[Moment] = []
        self.places: dict[str, tuple[str, int]] = {}
        """Topic and partition by directory."""
        if count > 0:
            self._observer = world.disk.observer
            world.disk.observer = self._observe

    def serves(self, topics: Iterable[Any]) -> None:
        """These topics are what clients use."""
        for topic in topics:
            for index in range(topic.partitions):
                self.places[partition_directory(topic.topic_id, index)] = (topic.name, index)

    def closed(self) -> None:
        """A runtime was closed in good order."""
        if self._count > 0:
            self._closed = [self._moment("the runtime was closed")]

    def end(self) -> None:
        """Take no more: what follows is no part of the run."""
        if self._count > 0:
            self._world.disk.observer = self._observer

    def _observe(self, owner: str, verb: str, path: str) -> None:
        """Keep each moment with the same probability."""
        if verb != "read":
            self._passed += 1
            place = int(self._entropy.random() * self._passed)
            if place < self._count:
                moment = self._moment(f"before {verb} {path}")
                self._taken[place : place + 1] = [moment]
        if self._observer is not None:
            self._observer(owner, verb, path)

    def _moment(self, words: str) -> Moment:
        world = self._world
        return Moment(world.disk.snapshot(), len(world.history), f"{words}, at {world.now:.3f} s")

    # -- afterwards

    async def check(self, terms: Terms) -> None:
        """Look at all that were taken. Raises `Violation`."""
        self._world.sometimes("a moment of the run was looked at", bool(self._taken))
        for number, moment in enumerate((*self._taken, *self._closed)):
            entropy = self._entropy.fork(f"moment {number}")
            how, survival = one_of(entropy, ENDS), draw_survival(entropy)
            history = self._world.history.until(moment.entries)
            try:
                has_refused = any(entry.who.startswith(DISK_FAILURES) for entry in history.of("fault"))
                held_to = attrs.evolve(terms, leader_may_vanish=has_refused)
                await self._look(moment, history, how, survival, entropy, held_to)
            except Violation as violation:
                words = f"had the machine ended ({how}) at the moment {moment.words}: {violation.words}"
                raise self._world.broken(Violation(violation.promise, words, violation.first)) from None

    async def _look(
        self,
        moment: Moment,
        history: History,
        how: str,
        survival: Survival,
        entropy: SeededEntropy,
        terms: Terms,
    ) -> None:
        world = self._world
        disk = MemoryDisk(clock=world.clock)
        disk.tree, disk.instant = moment.tree, True
        was_cut = history.last("power cut") >= 0
        await expect_no_damage(disk, "beside the runtime", may_be_torn=was_cut)
        await self._read(disk, history, entropy)
        if not one_of(entropy.fork("opened"), OPENED):
            return
        history.ended(max(1, history.machines), how)
        if how == "power cut":
            disk.crash(survival.choosing(disk.damage_budget))
        is_torn = was_cut or how == "power cut"
        await expect_no_change(disk, f"after the machine's end ({how})", may_be_torn=is_torn)

        def open_runtime() -> callboard.Runtime:
            return callboard.open_runtime(
                disk=disk,
                clock=world.clock,
                entropy=entropy.fork("opening"),
                on_event=partial(history.event, 0),
                limits=world.limits,
            )

        note_shown(history, disk, self.places)
        surviving = await collect(history, disk, open_runtime)
        wanted = {topic for topic, _ in self.places.values()}
        partitions = tuple(left for left in surviving.partitions if left.topic in wanted)
        surviving = attrs.evolve(surviving, partitions=partitions)
        found = check_all(history, surviving, terms, BY_WHAT_IS_LEFT)
        if found:
            raise found[0]

    async def _read(self, disk: MemoryDisk, history: History, entropy: SeededEntropy) -> None:
        """Read all partitions as another process would that has not got the lock."""
        files = await disk.incarnate("reader")
        for directory, (topic, partition) in self.places.items():
            try:
                reads = await OfflineReads.open(history, files, directory)
            except LogCorrupt:
                if history.last("power cut") < 0:
                    raise
                continue  # the committed file was torn, and the next opening writes it anew
            start, end = reads.reader.start_offset, reads.reader.visible_end
            known = await read_all(reads, start, end)
            by_offset = {record.offset: record.number for record in known}
            if ALTERED in by_offset.values():
                words = f"a reader of {topic}/{partition} was given bytes that were never published"
                raise Violation(nothing_altered.PROMISE, words)
            for entry in history.of("published"):
                if (entry.topic, entry.partition) != (topic, partition) or entry.detail != "all":
                    continue
                for number, offset in zip(entry.ids, entry.offsets, strict=True):
                    if start <= offset < end and by_offset.get(offset) != number:
                        words = f"a reader of {topic}/{partition} was not given message {number} at offset {offset}"
                        raise Violation(reading.PROMISE, words, entry)
            wrong = await read_in_parts(reads, known, start, end, entropy, PARTS)
            if wrong is not None:
                raise Violation(reading.PROMISE, f"{topic}/{partition}: {wrong}")
            await reads.reader.close()


async def expect_no_damage(disk: MemoryDisk, when: str, *, may_be_torn: bool = False) -> None:
    """Raise `Violation` when verify finds damage, where there is none.

    `may_be_torn`: power was lost, perhaps while a `committed` file was written, which cannot be distinguished from
    damage. Its copy says which records of that log had been synced.
    """
    _expect_sound((await verify_directory(disk)).logs, when, may_be_torn)


async def expect_no_change(disk: MemoryDisk, when: str, *, may_be_torn: bool = False) -> None:
    """Raise `Violation` when a repair finds damage or changes anything, where nothing is damaged."""
    before = disk.contents()
    report = await repair_directory(disk)
    _expect_sound(report.before, when, may_be_torn)
    for problem in report.left:
        raise _damage_found(problem, when)
    if any(not log.ok for log in report.before):
        return  # a committed file that was torn
    after = disk.contents()
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    changed = [path for path in changed if not path.endswith(PASSING)]
    if changed or report.actions:
        words = f"a repair where nothing is damaged changed {changed}: {report.actions!r:.300}"
        raise Violation(false_damage.PROMISE, words)


def _expect_sound(logs: tuple[LogReport, ...], when: str, may_be_torn: bool) -> None:
    for log in logs:
        for problem in log.problems:
            if not (may_be_torn and problem.kind == "committed"):
                raise _damage_found(problem, when)


def _damage_found(problem: Problem, when: str) -> Violation:
    words = f"verify finds damage {when}: {problem.path}: {problem.kind}: {problem.message}"
    return Violation(false_damage.PROMISE, words)


def draw_survival(entropy: SeededEntropy) -> Survival:
    """What a power cut leaves: nothing, a part or all of what was not synced."""
    shares = [one_of(entropy, (0.0, 1.0, round(entropy.random(), 2))) for _ in range(4)]
    return Survival(
        seed=entropy.integer(32),
        applied=shares[0],
        torn=shares[1],
        trashed=one_of(entropy, (0.0, shares[2])),
        names=shares[3],
        zeros=entropy.random() < 0.5,
    )
