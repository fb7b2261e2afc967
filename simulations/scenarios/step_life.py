"""One step after the other: one program uses one topic, and what befalls its disk and its clock comes between.

Nothing happens beside it, so that for each step it is known what must come of it: which records a search by time finds
although the clock was set back, what a full disk may refuse and what not, what is there after a failed sync, a closing
or a power cut, what a group still has to do, and when records go by their age.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import attrs
import trio

from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import CallboardError, DiskFull, InternalError
from callboard.log.segments.segment_file import base_offset_of
from callboard.simulations.checkers import Terms, definite_failures, enforce, reading, retention
from callboard.simulations.disk.survival import Survival
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.draws import NAMES_MAX, between, draw_limits, limits_of, one_of
from callboard.simulations.scenarios.traffic import Traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, World

TOPIC: Final = "orders"
GROUP: Final = "readers"
KEPT: Final = "what was stored is there, as it was"
HEALED: Final = "what failed for want of space, or of a sync, works again"
UNDAMAGED: Final = "nobody tells of damage where there is none"
DONE: Final = "closing and opening changes nothing of what a group has to do"
PATIENCE_S: Final = 2.0
TRIES: Final = 4
"""How often something is tried on a disk that works."""
SLACK_S: Final = 0.5
"""How late upkeep may be, unless a group held back what is due."""
AGES_S: Final = (1.0, 3.0, 6.0)
STEPS: Final = (
    "publish",
    "publish",
    "publish",
    "publish",
    "search",
    "search",
    "group",
    "read",
    "consume",
    "consume",
    "rest",
    "jump",
    "fill",
    "free",
    "fail",
    "tight",
    "reopen",
    "kill",
    "cut",
    "age",
)


CLOSING_S: Final = 0.1
"""Virtual seconds: statistics tell of what retention dropped when the files are closed, and readers miss it before."""


@attrs.frozen(kw_only=True)
class StepTraffic(Traffic):
    """What the program does, in order."""

    steps: tuple[str, ...] = ("publish", "search")

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {"steps": (len(self.steps), NAMES_MAX)}


@attrs.define
class Known:
    """A record that was seen."""

    value: bytes
    time: datetime
    level: str


class StepLife:
    """One run; it outlives its machines."""

    def __init__(self, world: World, traffic: StepTraffic) -> None:
        self._world = world
        self._traffic = traffic
        self._draws = world.entropy.fork("steps")
        self._left = list(traffic.steps)
        self._runtime: Any = None
        self._topic: Any = None
        self._directory = ""
        self._records: dict[int, Known] = {}
        self._told: dict[int, bytes] = {}
        """By offset: what a receipt named at level `all`, or a group was handed. It never shows another record."""
        self._refused: set[bytes] = set()
        self._settled: set[int] = set()
        self._may_be_held = True
        """Whether upkeep may have found something too old that a group held back, and looks again only later."""
        self._maybe_settled: set[int] = set()
        self._values = 0
        self._age_s: float | None = None
        self._has_jumped = False
        self._booted_s = 0.0
        """When the machine booted: what opening writes anew then seals the segment before it."""
        self._may_fail = False
        """Whether something on the disk fails, or may."""
        self._is_full = False
        self._pending: int | None = None
        """What the group had to do as the runtime was closed on a disk that works."""
        self._is_closing = False
        self._acks = tuple(traffic.acks) or ("all",)
        world.limits = limits_of(traffic.limits)

    async def live(self, machine: Machine) -> None:
        """Open, make steps, close, and again."""
        self._booted_s = self._world.clock.wall_us() / 1e6
        while True:
            self._is_closing = False
            if self._may_fail and not self._is_full:
                machine.disk.heal()
                self._may_fail = False
            try:
                async with machine.open_runtime() as runtime:
                    await self._begin(runtime)
                    while self._left and not self._is_closing:
                        step = self._left.pop(0)
                        await self._steps()[step]()
                        if machine.dead:
                            await trio.sleep_forever()
                    await self._before_closing()
            except* CallboardError as errors:
                if errors.subgroup((InternalError, Violation)) is not None or not self._may_fail:
                    raise
                self._world.note(f"closing: {errors.exceptions[0]!r:.100}")
            if not self._left:
                break
        machine.disk.heal()
        self._may_fail = self._is_full = False
        async with machine.open_runtime() as runtime:
            await self._begin(runtime)
            await self._read()
            await self._consume_all()

    def _steps(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "publish": self._publish,
            "search": self._search,
            "group": self._begin_group,
            "read": self._read,
            "consume": self._consume,
            "rest": self._rest,
            "jump": self._jump,
            "fill": self._fill,
            "free": self._free,
            "fail": self._fail,
            "tight": self._tighten,
            "reopen": self._close,
            "kill": self._kill,
            "cut": self._cut,
            "age": self._age,
        }

    # -- opening and closing

    async def _begin(self, runtime: Any) -> None:
        self._runtime = runtime
        if any(topic.name == TOPIC for topic in runtime.topics()):
            self._topic = runtime.topic(TOPIC)
        else:
            self._topic = await self._insist("making the topic", self._make)
            self._directory = partition_directory(self._topic.topic_id, 0)
        if self._is_full:
            return
        await self._look()
        group = await self._pending_of()
        if self._pending is not None and group != self._pending:
            words = f"{GROUP} had {self._pending} messages to settle before, and has {group} now"
            raise self._world.broken(Violation(DONE, words))
        self._pending = None

    async def _make(self) -> Any:
        topic = await self._runtime.create_topic(TOPIC, compression=self._traffic.compression)
        async with topic.subscribe(GROUP):
            pass
        return topic

    async def _before_closing(self) -> None:
        """What the group has to do is the same in the next life, when the disk takes it."""
        if self._is_closing and not self._may_fail:
            self._pending = await self._pending_of()

    async def _pending_of(self) -> int | None:
        (partition,) = await self._topic.describe()
        return next((group.pending for group in partition.groups if group.durable), None)

    async def _close(self) -> None:
        self._is_closing = True

    async def _kill(self) -> None:
        if not self._is_full:
            self._world.kill_process()

    async def _cut(self) -> None:
        """Cut the power; what was at level `leader` may be gone, from some record on."""
        if self._is_full:
            return
        draws = self._draws
        survival = Survival(
            seed=between(draws, 0, 1 << 30),
            applied=one_of(draws, (0.0, 0.5, 0.9)),
            torn=one_of(draws, (0.0, 0.5)),
            names=one_of(draws, (0.0, 0.5, 1.0)),
        )
        self._doubt()
        self._maybe_settled |= set(self._records) - self._settled
        self._world.cut_power(survival)

    def _doubt(self) -> None:
        """What is not synced may be lost now."""
        for known in self._records.values():
            if known.level != "all":
                known.level = "doubtful"

    # -- what the program does

    async def _insist(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call until it works: on a disk that works again, it must soon."""
        for _ in range(TRIES):
            try:
                return await call()
            except CallboardError as error:
                if isinstance(error, (InternalError, Violation)):
                    raise
                failure = error
                await trio.sleep(1.0)
        raise self._world.broken(Violation(HEALED, f"{what} on a disk that works: {failure!r:.200}"))

    async def _publish(self) -> None:
        count, draws = one_of(self._draws, (1, 1, 2, 5)), self._draws
        self._may_be_held = True
        level = one_of(draws, self._acks)
        values = []
        for _ in range(count):
            self._values += 1
            values.append(self._traffic.value(self._values))
        try:
            receipts = await self._topic.publish_batch(values, acks=level)
        except CallboardError as error:
            await self._refuse(error, values)
            return
        for receipt, value in zip(receipts, values, strict=True):
            if level == "all":
                self._note_told(receipt.offset, value)
        await self._look(level)
        missing = [receipt.offset for receipt in receipts if receipt.offset not in self._records]
        if missing:
            raise self._world.broken(Violation(KEPT, f"offsets {missing} were published, and are not read"))

    async def _refuse(self, error: CallboardError, values: list[bytes]) -> None:
        if isinstance(error, (InternalError, Violation)):
            raise error
        self._world.sometimes("a disk without space refused records", isinstance(error, DiskFull))
        if not error.indefinite:
            self._refused.update(values)
        if not self._may_fail:
            await self._insist("publishing", self._publish_one)

    async def _publish_one(self) -> None:
        self._values += 1
        self._may_be_held = True
        value = self._traffic.value(self._values)
        receipt = await self._topic.publish(value)
        self._note_told(receipt.offset, value)

    def _note_told(self, offset: int, value: bytes) -> None:
        """An offset that was told never shows another record."""
        if self._told.setdefault(offset, value) != value:
            words = f"offset {offset} had {self._told[offset]!r:.40}, and now {value!r:.40}"
            raise self._world.broken(Violation(KEPT, words))

    async def _all(self, start: Any = "beginning") -> list[Any]:
        return [record async for record in self._topic.read(start, skip_dropped=True)]

    async def _is_recovery_owed(self) -> bool:
        """Whether the disk has no space to prove what is stored, which is not shown before. With space, it soon is."""
        for _ in range(TRIES):
            (partition,) = await self._topic.describe()
            if self._is_full or not partition.is_recovery_owed:
                return bool(partition.is_recovery_owed)
            await trio.sleep(1.0)
        raise self._world.broken(Violation(HEALED, "recovery is owed on a disk that works"))

    async def _look(self, level: str = "doubtful") -> list[Any]:
        """Read everything: what was seen before is there as it was, and nothing that was refused."""
        if await self._is_recovery_owed():
            return []
        records = await self._all()
        found = {record.offset: record for record in records}
        if any(offset not in found for offset in self._records):
            await trio.sleep(CLOSING_S)
        (partition,) = await self._topic.describe()
        start = partition.start_offset
        for offset, known in list(self._records.items()):
            record = found.get(offset)
            if offset < start or (record is None and known.level == "doubtful"):
                del self._records[offset]
            elif record is None:
                raise self._world.broken(Violation(KEPT, f"offset {offset} was there, and is no more"))
            elif (record.value, record.append_time) != (known.value, known.time):
                if known.level == "doubtful" and record.value != known.value:
                    del self._records[offset]
                    continue
                words = (
                    f"offset {offset} was {known.value!r:.40} of {known.time}, and is {record.value!r:.40}"
                )
                raise self._world.broken(Violation(KEPT, f"{words} of {record.append_time}"))
        for offset, record in found.items():
            self._records.setdefault(offset, Known(record.value, record.append_time, level))
            if record.value in self._refused:
                words = f"{record.value!r:.40}, refused definitely, is at offset {offset}"
                raise self._world.broken(Violation(definite_failures.PROMISE, words))
            if self._told.get(offset, record.value) != record.value:
                words = f"offset {offset} was {self._told[offset]!r:.40}, and is {record.value!r:.40}"
                raise self._world.broken(Violation(KEPT, words))
        told = self._world.history.of("DamageFound", "JournalSalvaged")
        if told:
            raise self._world.broken(Violation(UNDAMAGED, f"{told[0].line():.200}"))
        return records

    async def _read(self) -> None:
        """Everything, and everything from some offset on."""
        offsets = [record.offset for record in await self._look()]
        if not offsets:
            return
        for _ in range(2):
            first = between(self._draws, offsets[0], offsets[-1])
            found = [record.offset for record in await self._all(first)]
            await self._expect(found, [offset for offset in offsets if offset >= first], f"offset {first}")

    async def _expect(self, found: list[int], wanted: list[int], what: str) -> None:
        """Of the first ones those may be missing that were dropped by now, at once or bit by bit."""
        (partition,) = await self._topic.describe()
        missing = wanted[: len(wanted) - len(found)]
        if [*missing, *found] != wanted or (missing and missing[-1] >= partition.start_offset):
            words = f"from {what} on there are {wanted!r:.120}, and {found!r:.120} were read"
            raise self._world.broken(Violation(reading.PROMISE, words))

    def _instant(self, records: list[Any]) -> datetime:
        time: datetime = one_of(self._draws, records).append_time
        return time + timedelta(microseconds=one_of(self._draws, (0, 0, 1, -1)))

    async def _search(self) -> None:
        """From some instants on; before anybody has read all that was appended meanwhile."""
        records = await self._look()
        if not records:
            return
        self._world.sometimes("times go back in a topic that is searched", self._goes_back(records))
        for _ in range(2):
            instant = self._instant(records)
            first = next(
                (at for at, record in enumerate(records) if record.append_time >= instant), len(records)
            )
            found = [record.offset for record in await self._all(instant)]
            await self._expect(found, [record.offset for record in records[first:]], str(instant))

    @staticmethod
    def _goes_back(records: list[Any]) -> bool:
        times = [record.append_time for record in records]
        return times != sorted(times)

    async def _begin_group(self) -> None:
        """A group that begins at an instant is handed the first record from then on."""
        records = await self._look()
        if not records or self._may_fail:
            return
        instant, name = self._instant(records), f"from-{len(self._left)}"
        wanted = next((record.offset for record in records if record.append_time >= instant), None)
        async with self._topic.subscribe(name, start=instant, durable=False) as consumer:
            message = await consumer.get(timeout=PATIENCE_S if wanted is not None else 0)
            found = None if message is None else message.offset
            if message is not None:
                self._note_told(message.offset, message.value)
        (partition,) = await self._topic.describe()
        is_dropped = wanted is not None and wanted < partition.start_offset
        if found != wanted and not is_dropped:
            words = f"a group that begins at {instant} was handed {found} first, and not {wanted}"
            raise self._world.broken(Violation(reading.PROMISE, words))

    async def _consume(self) -> None:
        """Settle some; what was settled does not come again."""
        wait = one_of(self._draws, (True, True, False))
        await self._settle(between(self._draws, 1, 4), wait=wait)

    async def _settle(self, count: int, *, wait: bool = True) -> int:
        seen = 0
        try:
            async with self._topic.subscribe(GROUP) as consumer:
                while seen < count:
                    message = await consumer.get(timeout=PATIENCE_S if self._may_fail else SLACK_S)
                    if message is None:
                        break
                    seen += 1
                    if message.offset in self._settled:
                        words = f"offset {message.offset} was settled, and was delivered again"
                        raise self._world.broken(Violation(DONE, words))
                    self._note_told(message.offset, message.value)
                    self._maybe_settled.add(message.offset)
                    await message.ack(wait=wait)
                    if wait:
                        self._settled.add(message.offset)
        except CallboardError as error:
            if isinstance(error, (InternalError, Violation)) or not self._may_fail:
                raise
            self._world.note(f"consuming: {type(error).__name__}")
        return seen

    async def _consume_all(self) -> None:
        while await self._settle(1000):
            pass
        left = set(self._records) - self._settled - self._maybe_settled
        if left:
            raise self._world.broken(Violation(DONE, f"offsets {sorted(left)[:9]} were never delivered"))

    async def _rest(self) -> None:
        await trio.sleep(one_of(self._draws, (0.01, 1.0, 3.0)))
        await self._check_age()

    # -- what befalls it

    async def _jump(self) -> None:
        self._has_jumped = True
        self._world.clock.shift(one_of(self._draws, (-100.0, -3.0, -0.5, 0.5, 60.0)))

    async def _fill(self) -> None:
        self._may_fail = self._is_full = True
        self._world.disk.fill(one_of(self._draws, (0, 100, 500, 2_000, 10_000)))

    async def _free(self) -> None:
        self._world.disk.heal()
        self._may_fail = self._is_full = False
        await trio.sleep(one_of(self._draws, (0.0, 2.0)))

    async def _fail(self) -> None:
        """The next sync of the log or of the journal fails."""
        self._may_fail = True
        path = one_of(self._draws, (f"{self._directory}/0", f"{self._directory}/delivery"))
        pages = one_of(self._draws, ("kept", "reverted"))
        self._world.disk.fail_next(
            "sync", "EIO", path_contains=path, pages="kept" if pages == "kept" else "reverted"
        )
        await self._publish()
        await self._consume()
        await self._free()
        self._doubt()

    async def _tighten(self) -> None:
        """The journal fails while the disk has space for its state, and for little more: it heals."""
        await self._free()
        for _ in range(2):  # the journal has its reserve again when it has written something
            await self._insist("publishing", self._publish_one)
            await self._settle(1)
        await self._insist("publishing", self._publish_one)
        self._may_fail = True
        self._world.disk.fail_next("sync", "EIO", path_contains=f"{self._directory}/delivery")
        self._world.disk.fill(one_of(self._draws, (20_000, 60_000)))
        await self._settle(1)
        self._world.disk.faults.clear()
        for _ in range(TRIES):
            try:
                async with self._topic.subscribe(GROUP) as consumer:
                    message = await consumer.get(timeout=PATIENCE_S)
                    if message is not None:
                        self._note_told(message.offset, message.value)
                        self._maybe_settled.add(message.offset)
                        await message.ack()
                break
            except CallboardError as error:
                if isinstance(error, (InternalError, Violation)):
                    raise
                failure = error
                await trio.sleep(PATIENCE_S)
        else:
            words = f"an ack on a disk with space for the journal's state: {failure!r:.200}"
            raise self._world.broken(Violation(HEALED, words))
        await self._free()

    async def _age(self) -> None:
        """Everything is settled, and nothing is published for a while; then an age is set."""
        await self._free()
        await self._settle(1000)
        if self._draws.random() < 0.7:
            await trio.sleep(one_of(self._draws, (0.5, 2.0, 7.0)))
        self._may_be_held = self._age_s is not None
        self._age_s = one_of(self._draws, AGES_S)
        await self._insist("altering the topic", self._set_age)
        await trio.sleep(SLACK_S)
        await self._check_age()

    async def _set_age(self) -> None:
        await self._runtime.alter_topic(TOPIC, retention_age=self._age_s)

    async def _check_age(self) -> None:
        """Sealed segments whose records are all older than the age are gone."""
        if self._age_s is None or self._has_jumped or self._may_fail or self._may_be_held:
            return
        names = [path.rpartition("/") for path in self._world.disk.paths()]
        bases = sorted(
            base
            for folder, _, name in names
            if folder == self._directory and (base := base_offset_of(name)) is not None
        )
        now = self._world.clock.wall_us() / 1e6
        for base, end in pairwise(bases):
            times = [known.time for offset, known in self._records.items() if base <= offset < end]
            pending = set(range(base, end)) - self._settled
            # It is sealed by the record that begins the next one, or by opening.
            if not times or pending or end not in self._records:
                continue
            sealed_s = now - max(self._records[end].time.timestamp(), self._booted_s)
            if sealed_s > self._age_s + SLACK_S:
                words = (
                    f"offsets {base} to {end - 1} are there, {sealed_s:.1f} s after their segment was sealed"
                )
                raise self._world.broken(
                    Violation(retention.PROMISE, f"{words}; {self._age_s:g} s are to be kept")
                )


class StepByStep:
    """One program, one topic, one thing after the other: times, full disks, failed syncs, closings, power cuts, age."""

    name = "step-by-step"
    space = FaultSpace(
        weights={"ShortRead": 1, "SlowDisk": 1},
        faults=(0, 1),
        horizon_s=0.5,
        latency_s=(0.001, 0.01),
        for_s=(0.01, 0.2),
    )

    def workload(self, entropy: SeededEntropy) -> StepTraffic:
        """Some steps, with small segments."""
        limits = dict(draw_limits(entropy.fork("limits")))
        limits["segment_bytes"] = between(entropy, 1_024, 8_000)
        left_out = {step for step in ("jump", "age", "cut", "fill", "fail") if entropy.random() < 0.4}
        steps = [one_of(entropy, STEPS) for _ in range(between(entropy, 10, 40))]
        return StepTraffic(
            steps=tuple(step for step in steps if step not in left_out),
            acks=one_of(entropy, (("all",), ("leader",), ("all", "leader"))),
            compression=one_of(entropy, ("none", "zstd")),
            value_bytes=one_of(entropy, (20, 100, 400)),
            noise_every=one_of(entropy, (0, 1)),
            styles=(),
            limits=tuple(limits.items()),
        )

    async def main(self, world: World, workload: StepTraffic) -> None:
        """Live through it."""
        await world.machine_until_done(StepLife(world, workload).live)
        enforce(world.history, Surviving(()), Terms())
