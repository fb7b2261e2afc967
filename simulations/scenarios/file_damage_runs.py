"""Any file of a directory is damaged while it is closed: the files of logs, journals, the catalog, anything.

Or something is in a wrong place, and nothing else is damaged: then `verify`, `repair --dry-run`, opening, and the
statistics of what was opened name exactly that place, and `repair` throws nothing away.

What other damage costs is not known, so little is promised: no consumer is handed bytes that were never published, or a
message of another topic; what cannot open or read says why, and never that Callboard is wrong; `verify` changes
nothing; and what `repair` has repaired `verify` finds whole, when the disk has not failed meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs
import trio

from callboard.actors.kernel import DurableActor
from callboard.log.errors import CallboardError, InternalError
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.log.offline.reader import LogReader
from callboard.log.offline.repair import repair_directory
from callboard.log.offline.verify import Progress, verify_directory
from callboard.simulations.checkers import Terms, enforce, nothing_altered, reading
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.damage_life import MENDED
from callboard.simulations.scenarios.draws import (
    COUNT_MAX,
    NAMES_MAX,
    between,
    draw_limits,
    limits_of,
    one_of,
)
from callboard.simulations.scenarios.file_damages import CONTENT, KINDS, WRONG_PLACES, FileDamaging
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, World

TOPICS: Final = ("orders", "refunds")
GROUPS: Final = ("readers", "writers")
KEPT: Final = "keeper"
"""An actor that has a journal of its own."""
CALL_S: Final = 3.0
"""How long each call of a client may take: what cannot be had is left."""
WAIT_S: Final = 0.3
FULL_S: Final = 2.0
"""How long a disk is full at most."""
UNCHANGED: Final = "verify changes nothing"
NAMED: Final = "what is in a wrong place is named"
OPENED: Final = ("catalog", "topics")
"""What opening looks at."""


class Keeper(DurableActor[int, int]):
    """Keeps a sum."""

    snapshot_every = 3

    def __init__(self) -> None:
        self.sum = 0

    async def receive(self, message: int) -> int:
        """Add the message."""
        await self.persist(message)
        return self.sum

    def apply(self, event: int) -> None:
        """Add it."""
        self.sum += event

    def snapshot(self) -> int:
        """The sum."""
        return self.sum

    def restore(self, state: int) -> None:
        """The sum."""
        self.sum = state


def is_named(place: str, words: str) -> bool:
    """Whether the path stands there by itself: not as the beginning, or the end, of another one."""
    return re.search(rf"(?<![\w/.-]){re.escape(place)}(?![\w/-]|\.\w)", words) is not None


@attrs.frozen(kw_only=True)
class FileTraffic(Traffic):
    """What is there before the damage, what is damaged, and what an operator does then."""

    damages: tuple[str, ...] = ("flip",)
    wrong_place: str = ""
    """What is in a wrong place, in place of other damage."""
    cut: bool = False
    """Whether the power is lost before, in place of a closing in order."""
    steps: tuple[str, ...] = ("verify", "read", "repair", "open", "open")
    """What is done after the damage."""
    actors: int = 0
    """How many messages an actor with a journal keeps."""

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {
            "damages": (len(self.damages), NAMES_MAX),
            "steps": (len(self.steps), NAMES_MAX),
            "actors": (self.actors, COUNT_MAX),
        }


class FileDamageLife:
    """One run; it outlives its machines."""

    def __init__(self, world: World, traffic: FileTraffic) -> None:
        self._world = world
        self._traffic = traffic
        self._entropy = world.entropy.fork("damage")
        self._earlier: dict[str, bytes] = {}
        self._values: dict[tuple[str, int], set[bytes]] = {}
        """By id of the topic and partition: what was published there."""
        self._ids: dict[str, str] = {}
        """Ids of topics, by name."""
        self._left: list[str] = []
        self._is_damaged = False
        self._misplaced: list[str] = []
        """Places that hold what is not theirs, or nothing, until something is opened, or repaired."""
        world.limits = limits_of(traffic.limits)
        world.disk.damage_budget.beyond = True

    async def live(self, machine: Machine) -> None:
        """Fill, damage, and look: what a power cut breaks off is begun again."""
        if not self._is_damaged:
            await self._guarded("fill", self._fill, machine)
            self._is_damaged = True
            if self._traffic.cut:
                self._world.cut_power()
            damaging = FileDamaging(self._world.disk, self._earlier, self._entropy)
            if self._traffic.wrong_place:
                self._misplaced = damaging.misplace(self._traffic.wrong_place)
                self._world.note(f"{self._traffic.wrong_place}: {', '.join(self._misplaced)}")
                # Whatever comes next: neither changes anything.
                self._left = ["verify", "foretell"]
            for kind in () if self._traffic.wrong_place else self._traffic.damages:
                words = damaging.damage(kind)
                if words is not None:
                    self._world.note(words)
            self._left += self._traffic.steps
            await trio.lowlevel.checkpoint()
        steps = {
            "verify": self._verify,
            "read": self._read_offline,
            "foretell": self._foretell,
            "repair": self._repair,
            "open": self._open,
            "open on a full disk": self._open_full,
            "open beside others": self._open_beside,
        }
        while self._left:
            await self._guarded(self._left[0], steps.get(self._left[0], self._open), machine)
            self._left.pop(0)

    async def _guarded(self, what: str, call: Callable[..., Awaitable[object]], *given: Any) -> None:
        """Make a call that may be refused, but for no bug's sake."""
        with self._refusals(what), trio.move_on_after(20 * CALL_S):
            await call(*given)

    @contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        try:
            yield
        except BaseExceptionGroup as errors:
            passing, rest = errors.split(self._is_refusal)
            if rest is not None:
                raise
            self._world.note(f"{what}: {type(passing).__name__}")
        except CallboardError as error:
            if not self._is_refusal(error):
                raise
            self._world.note(f"{what}: {type(error).__name__}: {error}"[:200])

    @staticmethod
    def _is_refusal(error: BaseException) -> bool:
        return isinstance(error, CallboardError) and not isinstance(error, (InternalError, Violation))

    # -- before

    async def _fill(self, machine: Machine) -> None:
        """Messages in several topics, groups that have settled some of them, and what was altered and deleted."""
        traffic, draws = self._traffic, self._entropy
        async with machine.open_runtime() as runtime:
            for name in TOPICS:
                topic = await runtime.create_topic(
                    name,
                    partitions=max(1, traffic.partitions),
                    segment_bytes=traffic.segment_bytes,
                    compression=traffic.compression,
                )
                self._ids[name] = topic.topic_id
            keeper = await runtime.spawn(Keeper, name=KEPT) if traffic.actors > 0 else None
            for first in range(0, max(1, traffic.messages), max(1, traffic.batch)):
                await self._publish(runtime, range(first, first + max(1, traffic.batch)))
                if draws.random() < 0.3:
                    await self._within(self._consume, runtime, one_of(draws, GROUPS))
                if draws.random() < 0.15:
                    self._earlier = self._world.disk.files()
                if keeper is not None and draws.random() < 0.5:
                    await keeper.ask(first)
                if draws.random() < 0.1:
                    await self._within(self._administer, runtime)
                if traffic.pause_s > 0:
                    await trio.sleep(traffic.pause_s)

    async def _publish(self, runtime: Any, numbers: range) -> None:
        name = one_of(self._entropy, TOPICS)
        topic = runtime.topic(name)
        self._ids[name] = topic.topic_id  # it may be there though creating it was refused
        partition = between(self._entropy, 0, topic.partitions - 1)
        values = [b"%s " % name.encode() + self._traffic.value(number) for number in numbers]
        self._values.setdefault((topic.topic_id, partition), set()).update(values)
        await topic.publish_batch(
            values,
            keys=list(map(self._traffic.key, numbers)),
            partition=partition,
            acks=one_of(self._entropy, self._traffic.acks or ("all",)),
        )

    async def _consume(self, runtime: Any, group: str) -> None:
        """Settle some messages in some way, and hold others."""
        async with runtime.subscribe(
            TOPICS, group, visibility_timeout=max(0.05, self._traffic.visibility_s)
        ) as consumer:
            for _ in range(between(self._entropy, 1, 8)):
                message = await consumer.get(timeout=WAIT_S)
                if message is None:
                    return
                self._check(message.topic, message.partition, message.value)
                end = one_of(self._entropy, ("ack", "ack", "ack", "nack", "release", "leave"))
                if end == "nack":
                    await message.nack(delay=one_of(self._entropy, (None, 0.0, 60.0)))
                elif end != "leave":
                    await (message.ack() if end == "ack" else message.release())

    async def _administer(self, runtime: Any) -> None:
        """Make, alter and delete what the catalog and the journals then tell of."""
        change = one_of(self._entropy, ("topic", "group", "make", "delete", "group goes"))
        if change == "topic":
            await runtime.alter_topic(one_of(self._entropy, TOPICS), retention_bytes=1 << 24)
        elif change == "group":
            await runtime.group(one_of(self._entropy, GROUPS)).alter(visibility_timeout=7.0)
        elif change == "group goes":
            await runtime.group(one_of(self._entropy, GROUPS)).delete()
        elif change == "make":
            await runtime.create_topic("passing")
        else:
            await runtime.delete_topic("passing")

    # -- afterwards, without a runtime

    async def _verify(self, machine: Machine) -> None:
        """Look for damage, and change nothing."""
        told: list[Progress] = []
        before, failed = machine.disk.files(), self._failed
        report = await verify_directory(machine.disk, progress=told.append)
        self._expect_named("verify", [str(problem) for problem in report.problems], failed)
        if machine.disk.files() != before:
            raise self._world.broken(Violation(UNCHANGED, "files differ afterwards"))

    @property
    def _failed(self) -> int:
        """How often something was made to fail."""
        return self._world.fault_counts.total()

    def _expect_named(
        self, who: str, told: Iterable[str], failed: int, places: Iterable[str] | None = None
    ) -> None:
        """Each of the places is named, exactly, unless something was made to fail since it was `failed` times.

        Without a runtime, those are the places whose being wrong can be seen without the catalog.
        """
        if places is None:
            places = () if self._traffic.wrong_place == "folder missing" else self._misplaced
        words = "\n".join(told)
        left = [place for place in places if not is_named(place, words)]
        if left and self._failed == failed:
            told_words = f"{self._traffic.wrong_place}: {who} does not name {left}, but {words!r:.200}"
            raise self._world.broken(Violation(NAMED, told_words))

    async def _read_offline(self, machine: Machine) -> None:
        """Read each partition as another process does."""
        files = await machine.disk.incarnate("reader")
        for (topic_id, partition), _ in sorted(self._values.items()):
            with self._refusals("read"):
                reader = await LogReader.open(files, f"topics/{topic_id}/{partition}")
                offset = reader.start_offset
                while offset < reader.visible_end:
                    found = await reader.read(offset)
                    for columns in found.batches:
                        for value in columns.value_list():
                            self._check(topic_id, partition, value)
                    if found.next_offset <= offset:
                        break
                    offset = found.next_offset
                await reader.read(reader.visible_end)
                await reader.offset_at(self._world.clock.wall_us() - 1_000_000)
                await reader.close()

    async def _foretell(self, machine: Machine) -> None:
        """Have a repair say what it would do, and change nothing."""
        before, failed = machine.disk.files(), self._failed
        foretold = await repair_directory(machine.disk, dry_run=True)
        self._expect_named("repair --dry-run", map(str, foretold.actions), failed)
        if machine.disk.files() != before:
            raise self._world.broken(
                Violation(UNCHANGED, "files differ after a repair that was to change nothing")
            )

    async def _repair(self, machine: Machine) -> None:
        disk, failed = machine.disk, self._failed
        await self._foretell(machine)
        has_content = CONTENT in disk.files().values()
        self._misplaced.clear()
        await repair_directory(disk, accept=self._entropy.random() < 0.3, now_us=self._world.clock.wall_us())
        if has_content and CONTENT not in disk.files().values():
            raise self._world.broken(Violation(MENDED, "repair has thrown away what was in a wrong place"))
        report = await verify_directory(disk)
        left = [problem for problem in report.problems if problem.kind != "catalog"]
        if left and self._failed == failed:
            raise self._world.broken(Violation(MENDED, f"after a repair there is {left[0]!r:.300}"))

    # -- with one

    async def _open(self, machine: Machine) -> None:
        """Open, and do everything that can be done with what is there."""
        begun, failed = len(self._world.history), self._failed
        places = [place for place in self._misplaced if place.startswith(OPENED)]
        self._misplaced.clear()
        try:
            await self._use(machine, places)
        except CallboardError as error:
            self._world.note(f"opening: {error}")
            raise
        finally:
            if not machine.dead:
                told = self._world.history.entries[begun:]
                words = [f"{entry.who}: {entry.detail}" for entry in told]
                self._expect_named("opening", words, failed, places)

    async def _use(self, machine: Machine, places: Iterable[str]) -> None:
        failed = self._failed
        async with machine.open_runtime() as runtime:
            statistics = await runtime.stats()
            if all(partition.state == "running" for partition in statistics.partitions):
                words = [*statistics.catalog.damages]
                for partition in statistics.partitions:
                    words += partition.damages
                self._expect_named("what was opened", words, failed, places)
            for topic in runtime.topics():
                await self._within(topic.describe)
                await self._within(self._read, topic)
            for group in GROUPS:
                await self._within(self._consume, runtime, group)
            for number in range(3):
                await self._within(self._publish, runtime, range(10_000 + number, 10_002 + number))
            await self._within(self._administer, runtime)
            if self._traffic.actors > 0:
                await self._within(self._keep, runtime)
            await self._within(runtime.stats)
        self._world.sometimes("a directory with any damage was opened", True)

    async def _open_full(self, machine: Machine) -> None:
        """Open while the disk has hardly any space, and has some again after a while."""
        self._misplaced.clear()  # reported when there is space
        machine.disk.fill(one_of(self._entropy, (0, 200, 2_000)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._heal_later, machine)
            await self._open(machine)

    async def _heal_later(self, machine: Machine) -> None:
        await trio.sleep(one_of(self._entropy, (0.1, FULL_S)))
        machine.disk.free()

    async def _open_beside(self, machine: Machine) -> None:
        """Open while other processes read and verify, which see files come and go."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_beside, machine)
            await self._open(machine)
            nursery.cancel_scope.cancel()

    async def _look_beside(self, machine: Machine) -> None:
        while True:
            await self._read_offline(machine)
            with self._refusals("verify beside"):
                await verify_directory(machine.disk)
            await trio.sleep(0.1)

    async def _keep(self, runtime: Any) -> None:
        keeper = await runtime.spawn(Keeper, name=KEPT)
        await keeper.ask(1)

    async def _within(self, call: Callable[..., Awaitable[object]], *given: Any) -> None:
        with self._refusals(call.__name__), trio.move_on_after(CALL_S):
            await call(*given)

    async def _read(self, topic: Any) -> None:
        async for record in topic.read():
            self._check(topic.name, record.partition, record.value)
        stop = between(self._world.entropy.fork(f"stop {topic.name}"), 1, max(1, self._traffic.messages))
        async for record in topic.read(stop=stop):
            self._check(topic.name, record.partition, record.value)
            if record.offset >= stop:
                words = f"reading {topic.name} to offset {stop} gave offset {record.offset}"
                raise self._world.broken(Violation(reading.PROMISE, words))

    def _check(self, topic: str, partition: int, value: bytes | None) -> None:
        """What was read at a partition was published there."""
        known = self._values.get((self._ids.get(topic, topic), partition), set())
        if value not in known and topic != "passing":
            words = f"{topic}/{partition} holds {value!r:.80}, which was never published there"
            raise self._world.broken(Violation(nothing_altered.PROMISE, words))


class DamagedFiles:
    """Any files of a directory damaged at rest, and all that one does then."""

    name = "damaged-files"
    space = FaultSpace(
        weights={
            "ShortRead": 2,
            "SlowDisk": 1,
            "FailRead": 2,
            "FullDisk": 2,
            "FailVerb": 2,
            "PowerCut": 1,
            "KillProcess": 1,
        },
        errnos=("ENOSPC", "EIO"),
        faults=(0, 2),
        horizon_s=3.0,
        latency_s=(0.001, 0.01),
        for_s=(0.01, 2.0),
        down_s=(0.01, 0.1),
    )

    def workload(self, entropy: SeededEntropy) -> FileTraffic:
        """Few messages, journals of several segments, and one to four damages."""
        limits = dict(draw_limits(entropy.fork("limits")))
        if entropy.random() < 0.6:
            limits["journal_segment_bytes"] = between(entropy, 512, 4_096)
            limits["snapshot_every_bytes"] = between(entropy, 200, 2_000)
            limits["catalog_snapshot_every_bytes"] = between(entropy, 200, 1_000)
        if entropy.random() < 0.7:
            limits["segment_bytes"] = between(entropy, 2_048, 6_000)
        steps = one_of(
            entropy,
            (
                ("verify", "read", "repair", "open", "open"),
                ("verify", "repair", "verify", "read", "open"),
                ("open", "open", "verify", "repair", "open"),
                ("read", "open", "repair", "read", "open"),
                ("open on a full disk", "verify", "open"),
                ("open on a full disk", "open on a full disk", "open"),
                ("open beside others", "repair", "open beside others"),
            ),
        )
        return FileTraffic(
            messages=between(entropy, 5, 50),
            partitions=between(entropy, 1, 2),
            batch=one_of(entropy, (1, 2, 5)),
            keys=one_of(entropy, (0, 3)),
            acks=one_of(entropy, (("all",), ("all", "leader", "none"))),
            compression=one_of(entropy, ("none", "gzip", "zstd")),
            value_bytes=one_of(entropy, (20, 100, 400)),
            noise_every=one_of(entropy, (0, 1, 2)),
            pause_s=one_of(entropy, (0.0, 0.01)),
            segment_bytes=SEGMENT_BYTES_MIN,
            visibility_s=one_of(entropy, (0.5, 10.0)),
            styles=(),
            damages=tuple(one_of(entropy, KINDS) for _ in range(between(entropy, 1, 4))),
            wrong_place=one_of(entropy.fork("wrong place"), ("",) * 8 + WRONG_PLACES),
            cut=one_of(entropy, (False, False, True)),
            steps=steps,
            actors=one_of(entropy, (0, 0, 3)),
            limits=tuple(limits.items()),
        )

    async def main(self, world: World, workload: FileTraffic) -> None:
        """Live through it."""
        await world.machine_until_done(FileDamageLife(world, workload).live)
        enforce(world.history, Surviving(()), Terms(beyond=True))
