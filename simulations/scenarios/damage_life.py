"""Damage at rest, and all that follows: verify, readers, repair, opening, reading, consuming, opening again, accepting.

A partition of several segments is filled and closed. Then frames, ends of files, headers, indexes or whole segments are
damaged, so that it is known exactly which records that costs. All that report what is lost must name just these,
and hand out all others; until the damage is accepted it is reported again at each opening, and after that no more.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio

from callboard.actors.partition.spec import partition_directory
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import verify_directory
from callboard.log.segments.damage_record import DAMAGES_NAME, decode, encode
from callboard.simulations.checkers import Terms, enforce, published_once, reading, told_damage
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.damaging import AT_REPAIRED, KINDS, Damaging
from callboard.simulations.scenarios.draws import between, draw_limits, limits_of, one_of
from callboard.simulations.scenarios.probing import OfflineReads, StoredRecord, read_all, read_in_parts
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, World

TOPIC: Final = "orders"
GROUP: Final = "readers"
MENDED: Final = "a repaired directory is whole"
PATIENCE_S: Final = 5.0
"""How long a consumer waits for a message that is there."""
EMPTY_S: Final = 0.05
"""How long it waits where nothing is left."""
PARTS: Final = 10
ONCE: Final = b"once"
WINDOW_S: Final = 1000.0


@attrs.frozen(kw_only=True)
class DamageTraffic(Traffic):
    """What is published before the damage, and what is damaged."""

    damages: tuple[str, ...] = ("flip",)
    later: tuple[str, ...] = ()
    """What is damaged once more, after the directory was used with the first damages."""
    repairs: bool = False
    """Whether the directory is repaired before it is opened."""
    once: bool = False
    """Whether the last message has a deduplication id."""
    folder: str = ""
    """Whose folder is gone in the end: that of the "partition", or of its "delivery" journal."""
    settled: int = 0
    """How many messages a group has acked before."""
    is_unmarked: bool = False
    """Whether nothing says where the log begins, as in what earlier versions have written."""
    has_named: bool = False
    """Whether a file behind the end, or amid the log, has nothing but the name of a segment."""
    forgets: str = ""
    """Whether the record of damage is "gone" in the end, or an "older" copy, if there is one."""


class DamageLife:
    """One run."""

    def __init__(self, world: World, traffic: DamageTraffic) -> None:
        self._world = world
        self._traffic = traffic
        self._entropy = world.entropy.fork("damage")
        self._directory = ""
        self._known: list[StoredRecord] = []
        self._end = 0
        self._once: int | None = None
        """The offset of the message with an id."""
        self._lost: set[int] = set()
        self._settled: set[int] = set()
        """By the group."""
        self._later: list[int] = []
        """Offsets of what was published after the first damage."""
        self._told: set[int] = set()
        """Offsets that events of this opening named as lost."""
        world.limits = limits_of(traffic.limits)
        world.disk.damage_budget.beyond = True

    async def live(self, machine: Machine) -> None:
        """From the first message to the last opening."""
        world, history = self._world, self._world.history
        await self._fill(machine)
        damaging = self._damaging = Damaging(world.disk, self._directory, self._entropy)
        if self._traffic.is_unmarked:
            damaging.unmark()
        self._damage(self._traffic.damages)
        if self._traffic.has_named:
            world.note(damaging.plant_name())
            world.sometimes("a file had nothing but the name of a segment")
        world.sometimes("records were lost to damage at rest", bool(self._lost))
        await self._look_offline("verify")
        if not damaging.has_headless:
            await self._read_offline()
        if self._traffic.repairs:
            await self._repair()
            await self._read_offline()
        await self._use(machine, is_first=True)
        if self._traffic.later:
            known = len(damaging.lost)
            damaging.appended(self._end)
            self._damage(self._traffic.later)
            world.sometimes("more was damaged later, beside what was", 0 < known < len(self._lost))
            await self._look_offline("verify, once more")
            await self._use(machine, is_first=True)
        await self._use(machine, is_first=False)
        await repair_directory(world.disk, accept=True)
        damaging.has_lost_publishers = False
        history.record(0, told_damage.ACCEPTED, "operator", 0, TOPIC, 0)
        await self._use(machine, is_first=False)
        if self._traffic.forgets:
            await self._forget_damage(machine)
        if self._traffic.folder:
            await self._lose_folder(machine)

    async def _forget_damage(self, machine: Machine) -> None:
        """The record of damage goes, or loses its last entry: that is reported until it is accepted."""
        world, path = self._world, f"{self._directory}/{DAMAGES_NAME}"
        stored = world.disk.files().get(path)
        if stored is None:
            return
        if self._traffic.forgets == "gone":
            self._damaging.remove_file(path)
        else:
            world.disk.plant_file(path, encode(decode(stored)[:-1]))
        found = [
            each.path for each in (await verify_directory(world.disk)).problems if each.kind == "damages"
        ]
        if found != [path]:
            words = f"{path} has lost what it held, and verify names {found}"
            raise world.broken(Violation(told_damage.PROMISE, words))
        if self._traffic.repairs:
            await repair_directory(world.disk)
        for _ in range(2):
            async with machine.open_runtime() as runtime:
                (statistics,) = await runtime.topic(TOPIC).describe()
                if not any(path in damage for damage in statistics.damages):
                    words = f"{path} has lost what it held, and damages are {statistics.damages!r:.200}"
                    raise world.broken(Violation(told_damage.PROMISE, words))
        world.sometimes("a record of damage was lost, and reported")

    async def _lose_folder(self, machine: Machine) -> None:
        """A folder goes with all that is in it: that is reported, and no offset is given again."""
        world, history = self._world, self._world.history
        path = f"{self._directory}/delivery" if self._traffic.folder == "delivery" else self._directory
        self._damaging.remove_folder(path)
        kind = "JournalSalvaged" if path != self._directory else "DamageFound"
        for is_first in (True, False):
            begun = len(history)
            async with machine.open_runtime() as runtime:
                topic = runtime.topic(TOPIC)
                (statistics,) = await topic.describe()
                is_told = any(entry.number >= begun for entry in history.of(kind))
                # What a delivery journal has lost is reported once, and what a log has lost until it is accepted.
                if not (is_told and statistics.damages) and (is_first or kind == "DamageFound"):
                    words = f"{path} is gone; {kind} was reported: {is_told}; damages are {statistics.damages!r:.200}"
                    raise world.broken(Violation(told_damage.PROMISE, words))
                receipt = await topic.publish(b"later", partition=0)
                if receipt.offset is None or receipt.offset <= max(self._later):
                    words = f"{path} is gone, and offset {receipt.offset} was given once more"
                    raise world.broken(Violation(told_damage.PROMISE, words))
                self._later.append(receipt.offset)
        world.sometimes("a whole folder was gone", True)

    def _damage(self, kinds: tuple[str, ...]) -> None:
        """Damage the closed directory; what that costs is known."""
        damaging, world = self._damaging, self._world
        for kind in kinds:
            words = damaging.damage(kind)
            if words is not None:
                world.note(words)
        self._lost = damaging.lost
        world.history.record(0, told_damage.DAMAGED, "disk", 0, TOPIC, 0, offsets=tuple(sorted(self._lost)))

    async def _fill(self, machine: Machine) -> None:
        traffic, history = self._traffic, self._world.history
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic(TOPIC, compression=traffic.compression, dedup_window=WINDOW_S)
            self._directory = partition_directory(topic.topic_id, 0)
            for first in range(0, traffic.messages, max(1, traffic.batch)):
                numbers = range(first, min(traffic.messages, first + max(1, traffic.batch)))
                values, keys = list(map(traffic.value, numbers)), list(map(traffic.key, numbers))
                headers = list(map(traffic.headers, numbers))
                timestamps = list(map(traffic.timestamp, numbers))
                list(map(history.message, values, keys, headers, timestamps))
                await topic.publish_batch(values, keys=keys, headers=headers, timestamps=timestamps)
                await trio.sleep(max(0.0, traffic.pause_s))
            if traffic.once:
                history.message(ONCE, None)
                receipt = await topic.publish(ONCE, dedup_id=ONCE, partition=0)
                self._once = receipt.offset
            async with topic.subscribe(GROUP) as consumer:
                for _ in range(min(traffic.settled, traffic.messages)):
                    message = await consumer.get(timeout=PATIENCE_S)
                    if message is not None:
                        await message.ack()
                        self._settled.add(message.offset)
        await self._read_offline()

    # -- without a runtime

    async def _read_offline(self) -> None:
        """Read as another process does: all that is not lost, in parts too. The first time shows what there is."""
        world = self._world
        files = await world.disk.incarnate("reader")
        reads = await OfflineReads.open(world.history, files, self._directory)
        start, end = reads.reader.start_offset, reads.reader.visible_end
        found = await read_all(reads, start, end)
        if not self._known:
            self._known, self._end = found, end
        self._expect(found, "a reader of another process")
        wrong = await read_in_parts(reads, found, start, end, self._entropy, PARTS)
        if wrong is not None:
            raise world.broken(Violation(reading.PROMISE, wrong))
        await reads.reader.close()

    def _expect(self, found: list[StoredRecord], who: str) -> None:
        """All records that are not lost, unaltered; `who` read from the first record to the last."""
        wanted = [record for record in self._known if record.offset not in self._lost]
        if [record for record in found if record.offset < self._end] != wanted:
            got = {record.offset for record in found}
            wrong = [record.offset for record in found if record not in self._known]
            missing = [record.offset for record in wanted if record.offset not in got]
            words = f"{who} was not given offsets {missing[:9]}, and altered or lost ones at {wrong[:9] or 'none'}"
            raise self._world.broken(Violation(reading.PROMISE, words))

    async def _look_offline(self, who: str) -> None:
        """What verify calls damage, and what it says of earlier damage."""
        report = await verify_directory(self._world.disk)
        log = next(log for log in report.logs if log.path == self._directory)
        self._tell(who, _offsets((*log.problems, *log.notes)))

    async def _repair(self) -> None:
        disk = self._world.disk
        foretold = await repair_directory(disk, dry_run=True)
        report = await repair_directory(disk)
        for said, who in ((foretold, "repair --dry-run"), (report, "repair")):
            here = [(first, last) for path, first, last in said.lost if path == self._directory]
            offsets = {at for first, last in here for at in range(first, last + 1)}
            self._tell(who, offsets)
        report_after, before = await verify_directory(disk), disk.files()
        again = await repair_directory(disk)
        # Only opening makes a record of publishers again.
        left = [problem for problem in report_after.problems if problem.kind != "publishers"]
        if left or again.changed or disk.files() != before:
            problem = left[0] if left else again.actions
            raise self._world.broken(Violation(MENDED, f"after a repair there is {problem!r:.300}"))
        await self._look_offline("verify after repair")

    # -- with one

    async def _use(self, machine: Machine, *, is_first: bool) -> None:
        """Open, read everything, consume what is not settled, publish more, close."""
        world = self._world
        self._told = set()
        begun = len(world.history)
        async with machine.open_runtime() as runtime:
            topic = runtime.topic(TOPIC)
            await topic.describe()
            if not is_first:
                self._tell("events at opening", self._told_since(begun), told_damage.UNACCEPTED)
            found = [self._stored(record) async for record in topic.read()]
            self._expect(found, "a reader")
            self._tell("events", self._told_since(begun), told_damage.UNACCEPTED)
            (statistics,) = await topic.describe()
            if bool(statistics.damages) < bool(statistics.lost_records):
                words = f"{statistics.lost_records} records are lost, and no damage is listed"
                raise world.broken(Violation(told_damage.PROMISE, words))
            told = (
                self._lost
                if statistics.lost_records == len(self._lost)
                else set(range(statistics.lost_records))
            )
            if statistics.lost_records or self._told_since(begun):
                self._tell("statistics", told, told_damage.UNACCEPTED)
            if self._damaging.has_lost_publishers != ("publishers" in str(statistics.damages)):
                words = f"a record of publishers was lost or not, and of it is reported: {statistics.damages!r:.200}"
                raise world.broken(Violation(told_damage.PROMISE, words))
            await self._publish_again(topic)
            await self._consume(topic, begun)
            receipt = await topic.publish(b"later", partition=0)
            if receipt.offset is None or receipt.offset < self._end:
                words = f"offset {receipt.offset}, which had another record, was given to a new one"
                raise world.broken(Violation(told_damage.PROMISE, words))
            self._later.append(receipt.offset)

    async def _publish_again(self, topic: Any) -> None:
        """What has the id of a message that is there is not stored."""
        if self._once is not None and self._once not in self._lost:
            again = await topic.publish(b"again", dedup_id=ONCE, partition=0)
            if again.offset != self._once:
                words = f"the id of offset {self._once} was given to offset {again.offset}"
                raise self._world.broken(Violation(published_once.PROMISE, words))

    def _stored(self, record: Any) -> StoredRecord:
        number = self._world.history.identify(record.value, record.key, record.headers, record.timestamp)
        known = {stored.offset: stored for stored in self._known}.get(record.offset)
        time_us = known.time_us if known is not None else 0
        return StoredRecord(record.offset, number, time_us)

    async def _consume(self, topic: Any, begun: int) -> None:
        """A group is handed all that it has not settled and that is not lost, and nothing else.

        Where a damaged journal was reported, what is settled may come again, once more and not for ever.
        """
        history = self._world.history
        stored = [record.offset for record in self._known] + self._later
        stored = [offset for offset in stored if offset not in self._lost]
        wanted = [offset for offset in stored if offset not in self._settled]
        found: list[int] = []
        async with topic.subscribe(GROUP) as consumer:
            while len(found) <= len(stored):
                is_there = len(found) < len(wanted)
                message = await consumer.get(timeout=PATIENCE_S if is_there else EMPTY_S)
                if message is None:
                    break
                found.append(message.offset)
                await message.ack()
        self._settled.update(found)
        is_told = any(entry.number >= begun for entry in history.of("JournalSalvaged"))
        self._world.sometimes("a damaged journal was reported, and consumed", is_told)
        # A repair gives up the records of a damaged snapshot, even one that earlier events equal.
        if is_told and not self._damaging.may_salvage and not self._traffic.repairs:
            words = "a delivery journal counts as damaged, and nothing was lost of it"
            raise self._world.broken(Violation(told_damage.PROMISE, words))
        expected = sorted({*wanted, *found} & set(stored)) if is_told else wanted
        if (sorted(found) if is_told else found) != expected:
            words = f"a group was handed offsets {found!r:.200}, and what is not lost is {expected!r:.200}"
            raise self._world.broken(Violation(told_damage.PROMISE, words))

    # -- what reports what

    def _told_since(self, begun: int) -> set[int]:
        return {
            offset
            for entry in self._world.history.of("DamageFound")
            if entry.number >= begun
            for offset in range(entry.offsets[0], entry.offsets[1] + 1)
        }

    def _tell(self, who: str, offsets: set[int], detail: str = "") -> None:
        """One reporter names these offsets as lost."""
        self._world.history.record(
            0, told_damage.TOLD, who, 0, TOPIC, 0, offsets=tuple(sorted(offsets)), detail=detail
        )


def _offsets(problems: tuple[Any, ...]) -> set[int]:
    return {
        offset
        for problem in problems
        if problem.first_offset is not None and problem.last_offset is not None
        for offset in range(problem.first_offset, problem.last_offset + 1)
    }


class DamageAtRest:
    """Damage at rest, reported exactly and until it is accepted, with and without a repair."""

    name = "damage-at-rest"
    space = FaultSpace(
        weights={"ShortRead": 1, "SlowDisk": 1},
        faults=(0, 2),
        horizon_s=0.5,
        latency_s=(0.001, 0.01),
        for_s=(0.01, 0.2),
    )

    def workload(self, entropy: SeededEntropy) -> DamageTraffic:
        """A few segments, and one to three damages."""
        messages = between(entropy, 10, 60)
        limits = dict(draw_limits(entropy.fork("limits")))
        limits["segment_bytes"] = between(entropy, 2_048, 6_000)
        journal, later = entropy.fork("journal"), entropy.fork("later")
        if journal.random() < 0.6:
            limits["journal_segment_bytes"] = between(journal, 512, 4_096)
            limits["snapshot_every_bytes"] = between(journal, 200, 2_000)
        repairs = one_of(entropy, (False, True))
        kinds = AT_REPAIRED if repairs else KINDS
        is_unmarked = one_of(entropy.fork("marks"), (False, False, False, True))
        return DamageTraffic(
            messages=messages,
            batch=one_of(entropy, (1, 2, 5)),
            keys=one_of(entropy, (0, 3)),
            keyless_every=one_of(entropy, (0, 2)),
            annotate_every=one_of(entropy, (0, 1, 3)),
            noise_every=one_of(entropy, (0, 1, 2)),
            compression=one_of(entropy, ("none", "gzip", "zstd")),
            value_bytes=one_of(entropy, (20, 100, 400)),
            pause_s=one_of(entropy, (0.0, 0.001)),
            styles=(),
            damages=(
                *(("beginning",) if is_unmarked else ()),
                *(one_of(entropy, KINDS) for _ in range(between(entropy, 1, 3))),
            ),
            later=tuple(one_of(later, kinds) for _ in range(between(later, 0, 3))),
            repairs=repairs,
            settled=one_of(entropy, (0, between(entropy, 0, messages))),
            once=entropy.fork("once").random() < 0.6,
            folder=one_of(entropy.fork("folder"), ("", "partition", "delivery")),
            is_unmarked=is_unmarked,
            has_named=one_of(entropy.fork("names"), (False, False, True)),
            forgets=one_of(entropy.fork("forgets"), ("", "gone", "older")),
            limits=tuple(limits.items()),
        )

    async def main(self, world: World, workload: DamageTraffic) -> None:
        """Live through it, and look what was reported."""
        await world.machine_until_done(DamageLife(world, workload).live)
        enforce(world.history, Surviving(()), Terms(beyond=True))
