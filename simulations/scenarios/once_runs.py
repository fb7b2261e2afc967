"""The scenario of publishing once: publishers repeat what they do not know, and each other, while everything fails.

Publishers with ids repeat a message until they know it, and earlier ones at random; producers publish streams, resume
them after every crash, and leave zombies behind; setters publish at the offset that they expect. In between others
publish plainly. In the end every record is read, and held to what all of them were answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

import callboard
from callboard.actors.partition.spec import partition_directory
from callboard.log.errors import CallboardError, OffsetMismatch, PartialPublish, ProducerFenced
from callboard.log.format.columns import Columns
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.log.offline.reader import LogReader
from callboard.message import Message, Receipt
from callboard.publishing.partitioning import consistent
from callboard.simulations.checkers import no_bugs
from callboard.simulations.checkers.published_once import (
    PROMISE,
    CallOutcome,
    RemainingRecord,
    check,
    repeated,
)
from callboard.simulations.checkers.terms import DEFAULT
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving, recover
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    BROKER_LIMITS,
    COUNT_MAX,
    DrawnLimits,
    between,
    check_counts,
    draw_limits,
    limits_of,
    one_of,
)
from callboard.simulations.scenarios.lives import heal_in_time, live_until_done
from callboard.simulations.scenarios.moments import draw_survival
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.scenarios.retention_watch import DroppedRecords
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

TOPIC: Final = "orders"
PARTITIONS: Final = ("topics/orders/0", "topics/orders/1")
LIVENESS_S: Final = 120.0
ALWAYS_S: Final = 1_000_000.0
"""A window that does not end."""
READ_RECORDS: Final = 10_000
RETRY_S: Final = 0.1
FILLER_BYTES: Final = 30_000
"""Two of these fill a segment."""


@attrs.frozen(kw_only=True)
class OnceTraffic:
    """A workload: which publishers there are, and how much they publish."""

    partitions: int = 1
    ids: int = 1
    """Publishers with deduplication ids."""
    streams: int = 1
    setters: int = 1
    others: int = 1
    messages: int = 10
    """Of each of them."""
    batch: int = 1
    """Of publishers with ids."""
    span: int = 4
    """What one life of a producer publishes before another takes its place."""
    window_s: float = ALWAYS_S
    acks: tuple[str, ...] = ("all",)
    pause_s: float = 0.02
    limits: DrawnLimits = ()
    filler_bytes: int = 0
    """What the others publish are this many bytes, and retention keeps little; 0: it keeps everything."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "partitions": (self.partitions, ACTORS_MAX),
                "publishers": (self.ids + self.streams + self.setters + self.others, ACTORS_MAX),
                "messages": (self.messages, COUNT_MAX),
                "batch": (self.batch, COUNT_MAX),
            },
        )
        limits_of(self.limits)


class PublishedOnce:
    """Ids, producers and expected offsets while disks, actors, processes and the power fail."""

    name = "published-once"
    space = FaultSpace(
        weights={
            "PowerCut": 4,
            "KillProcess": 3,
            "CrashActor": 4,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "FailVerb": 6,
            "ShortWrite": 1,
            "FullDisk": 1,
        },
        actors=PARTITIONS,
        paths=("/0/0000", "publishers", ""),
        verbs=("write", "write", "sync", "sync", "sync", "create", "rename"),
        probes={"told": 60, "disk.sync": 40, "disk.write": 40, "event.ActorStarted": 8},
        faults=(1, 6),
        horizon_s=1.5,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step; a life ends when a segment is
        dropped; or the power is lost when a publisher has just been answered once more where a message is: that is an
        answer for which nothing is written.
        """
        found = aimed.at_steps(entropy, self.space, ("timer-wheel", "catalog"))
        found += aimed.at_a_drop(entropy.fork("drops"), self.space, PARTITIONS, ("publishers",), 6)
        again = entropy.fork("told again")
        return [*found, *aimed.between_syncs(again, "told again", 8)] if again.random() < 0.5 else found

    def workload(self, entropy: SeededEntropy) -> OnceTraffic:
        """Few messages, and many repetitions; in half of the runs, what was published is dropped soon."""
        filler_bytes = one_of(entropy.fork("kept"), (0, FILLER_BYTES))
        traffic = OnceTraffic(
            partitions=one_of(entropy, (1, 1, 2)),
            ids=one_of(entropy, (0, 1, 1, 2, 3)),
            streams=one_of(entropy, (0, 0, 1, 2)),
            setters=one_of(entropy, (0, 0, 1, 2)),
            others=one_of(entropy, (0, 0, 1)),
            messages=between(entropy, 3, 20),
            batch=one_of(entropy, (1, 1, 3)),
            span=between(entropy, 1, 6),
            window_s=one_of(entropy, (ALWAYS_S, ALWAYS_S, 0.3, 1.0)),
            acks=one_of(entropy, (("all",), ("all", "leader"), ("leader", "leader", "all"))),
            pause_s=one_of(entropy, (0.0, 0.01, 0.05)),
            limits=(
                *draw_limits(entropy.fork("limits"), (*BROKER_LIMITS, "publishers_every_bytes")),
                *one_of(entropy.fork("table"), ((), (), (("dedup_ids", 10),))),
            ),
            filler_bytes=filler_bytes,
        )
        return attrs.evolve(traffic, others=max(1, traffic.others)) if filler_bytes else traffic

    async def main(self, world: World, workload: OnceTraffic) -> None:
        """Run it in as many lives as it takes, cut the power, and look."""
        world.limits = limits_of(workload.limits)
        publishers = _Publishers(world, workload)
        world.spawn(publishers.watch)
        await world.machine_until_done(publishers.life)
        publishers.is_done = True
        world.heal()
        survival = draw_survival(world.entropy.fork("last power cut"))
        world.disk.crash(survival.choosing(world.disk.damage_budget))
        await publishers.look()


class _Publishers:
    """All publishers, and what they were answered."""

    def __init__(self, world: World, workload: OnceTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self.dropped = DroppedRecords(world)
        self.told: list[CallOutcome] = []
        self._known: set[tuple[int, int]] = set()
        self._left: dict[str, int] = {}
        self._tries = 0
        self._lives: dict[str, int] = {}
        self._new: set[tuple[int, int | None]] = set()
        """Where synced records are that a receipt called new."""

    async def watch(self) -> None:
        """Everybody comes to an end when nothing fails any more."""
        await heal_in_time(self.world, 10.0)
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            words = f"{self._left} were not published {LIVENESS_S:g} s after the last fault"
            raise self.world.broken(Violation(PROMISE, words))

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))

    async def _session(self, machine: Machine) -> None:
        traffic, make = self.workload, max(1, self.workload.partitions)
        async with machine.open_runtime() as runtime:
            topic = await runtime.create_topic(
                TOPIC,
                partitions=make,
                dedup_window=max(0.001, traffic.window_s),
                segment_bytes=SEGMENT_BYTES_MIN,
                retention_bytes=SEGMENT_BYTES_MIN if traffic.filler_bytes > 0 else None,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                async with trio.open_nursery() as working:
                    kinds = (
                        ("ids", traffic.ids, self._ids),
                        ("stream", traffic.streams, self._stream),
                        ("setter", traffic.setters, self._setter),
                        ("other", traffic.others, self._other),
                    )
                    for kind, count, publish in kinds:
                        for number in range(count):
                            who = f"{kind}-{number}"
                            self._left.setdefault(who, max(0, traffic.messages))
                            draws = self.world.entropy.fork(f"{who} on {machine.number}")
                            working.start_soon(partial(publish, machine, topic, who, draws), name=who)
                nursery.cancel_scope.cancel()

    def _tell(self, machine: Machine, told: CallOutcome) -> None:
        """A publisher was answered."""
        is_known = told.is_durable and (told.partition, told.offset) in self._known
        self.told.append(told)
        if told.kind == "id":
            self._known.add((told.partition, told.offset))
        words = f"{told.kind} {told.value.decode()} at {told.partition}@{told.offset}"
        self.world.history.record(machine.number, "is told", told.who, detail=words)
        self.world.probe("told", told.who)
        if is_known:
            self.world.probe("told again", told.who)

    def _asks(self, machine: Machine, who: str, acks: str, value: bytes) -> partial[CallOutcome]:
        """What will have been answered, but for what only the answer says."""
        return partial(
            CallOutcome,
            who=who,
            value=value,
            begun_us=machine.clock.wall_us(),
            begun=len(self.told),
            is_durable=acks == "all",
        )

    async def _pause(self) -> None:
        await trio.sleep(max(0.001, self.workload.pause_s))

    # -- deduplication ids

    async def _ids(self, machine: Machine, topic: Any, who: str, draws: SeededEntropy) -> None:
        """Publish each message until it is known, and earlier ones again."""
        total = max(0, self.workload.messages)
        while self._left[who] > 0:
            first = total - self._left[who]
            size = min(max(1, self.workload.batch), self._left[who])
            numbers = list(range(first, first + size))
            if first and draws.random() < 0.5:
                numbers = [between(draws, 0, first - 1), *numbers, numbers[0]]
            acks = one_of(draws, self.workload.acks or ("all",))
            publish = partial(self._publish_ids, machine, topic, who, numbers)
            async with trio.open_nursery() as nursery:
                if draws.random() < 0.3:  # another publishes the same meanwhile
                    nursery.start_soon(publish, one_of(draws, ("leader", "all")))
                is_stored = await publish(acks)
            if is_stored and acks == "leader" and draws.random() < 0.5:
                await publish("all")
            if is_stored:
                self._left[who] -= size
            await self._pause()

    async def _publish_ids(
        self, machine: Machine, topic: Any, who: str, numbers: list[int], acks: str
    ) -> bool:
        ids = [f"{who}-{number}".encode() for number in numbers]
        values = [b"id " + dedup_id for dedup_id in ids]
        asked = [self._asks(machine, who, acks, value) for value in values]
        try:
            if len(values) == 1:
                receipts = [await topic.publish(values[0], dedup_id=ids[0], acks=acks)]
            else:
                receipts = await topic.publish_batch(values, dedup_ids=ids, acks=acks)
        except CallboardError:
            await trio.sleep(RETRY_S)
            return False
        for dedup_id, told, receipt in zip(ids, asked, receipts, strict=True):
            if receipt.partition != consistent(dedup_id, topic.partitions):
                raise self.world.broken(Violation(PROMISE, f"{dedup_id!r} went to {receipt.partition}"))
            self._check_new(receipt, is_durable=acks == "all")
            self._tell(machine, told("id", partition=receipt.partition, offset=receipt.offset))
        return True

    def _check_new(self, receipt: Receipt, *, is_durable: bool) -> None:
        """One receipt of a synced record is not a duplicate's, the first one."""
        place = receipt.partition, receipt.offset
        if receipt.duplicate:
            return
        if place in self._new:
            raise self.world.broken(Violation(PROMISE, f"{place} was stored as new twice"))
        if is_durable:
            self._new.add(place)

    # -- producers

    async def _stream(self, machine: Machine, topic: Any, who: str, draws: SeededEntropy) -> None:
        """Lives of a producer, one after the other, until the stream is stored."""
        while self._left[who] > 0:
            try:
                await self._stream_life(machine, topic, who, draws)
            except ProducerFenced as error:
                if error.indefinite or self._left[who] > 0:
                    words = f"{who} began last, and was fenced: {error}"
                    raise self.world.broken(Violation(PROMISE, words)) from error
            except CallboardError:
                await trio.sleep(RETRY_S)

    async def _stream_life(self, machine: Machine, topic: Any, who: str, draws: SeededEntropy) -> None:
        """One life; it may become a zombie that publishes while its heir does."""
        partition = int(who[-1]) % topic.partitions
        life = self._lives[who] = self._lives.get(who, 0) + 1
        total = max(0, self.workload.messages)
        asked = self._asks(machine, who, "all", b"")
        async with topic.producer(who) as producer:
            first = await producer.next_sequence(partition)
            self._tell(machine, asked("begun", partition=partition, offset=first, life=life))
            end = min(total, first + max(1, self.workload.span))
            for sequence in range(first, end):
                self._left[who] = total - sequence
                await self._publish_item(machine, producer, who, partition, sequence, life, draws)
                await self._pause()
            self._left[who] = total - end
            if end == total:
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._haunt, machine, producer, who, partition, end, life, draws)
                if draws.random() < 0.5:
                    await self._pause()
                heirs = self.world.entropy.fork(f"{who} in life {life}")
                try:
                    await self._stream_life(machine, topic, who, heirs)
                except CallboardError as error:
                    if isinstance(error, ProducerFenced):
                        raise
                    await trio.sleep(RETRY_S)

    async def _publish_item(
        self,
        machine: Machine,
        producer: Any,
        who: str,
        partition: int,
        sequence: int,
        life: int,
        draws: SeededEntropy,
    ) -> None:
        value = f"stream {who} {sequence} {life}".encode()
        acks = one_of(draws, self.workload.acks or ("all",))
        told = self._asks(machine, who, acks, value)
        receipt = await producer.publish(value, partition=partition, acks=acks)
        self._tell(machine, told("stream", partition=partition, offset=receipt.offset))

    async def _haunt(
        self,
        machine: Machine,
        producer: Any,
        who: str,
        partition: int,
        sequence: int,
        life: int,
        draws: SeededEntropy,
    ) -> None:
        """What a zombie publishes: stored if its heir had not begun, else refused."""
        for _ in range(between(draws, 1, 3)):
            value = f"stream {who} {sequence} {life}".encode()
            told = self._asks(machine, who, "all", value)
            try:
                receipt = await producer.publish(value, partition=partition)
            except ProducerFenced as error:
                if not error.indefinite:
                    self._tell(machine, told("fenced", partition=partition, offset=-1))
            except CallboardError:
                pass
            else:
                self._tell(machine, told("stream", partition=partition, offset=receipt.offset))
                sequence += 1
            await self._pause()

    # -- expected offsets

    async def _setter(self, machine: Machine, topic: Any, who: str, draws: SeededEntropy) -> None:
        """Publish at the next offset, as far as it is known, now and then at a wrong one."""
        partition, expected = int(who[-1]) % topic.partitions, 0
        while self._left[who] > 0:
            self._tries += 1
            acks = one_of(draws, self.workload.acks or ("all",))
            wrong = one_of(draws, (0, 0, 0, 0, -1, 1))
            value = f"set {who}-{self._left[who]}-{self._tries}".encode()
            asked, form = max(0, expected + wrong), one_of(draws, ("one", "message", "batch", "messages"))
            values = [value] if form in ("one", "message") else [value, value + b" and more"]
            told = [self._asks(machine, who, acks, each) for each in values]
            try:
                receipts = await _set(topic, form, values, partition, asked, acks)
            except OffsetMismatch as error:
                expected = error.next_offset
                for each in told:
                    self._tell(
                        machine, each("mismatch", partition=partition, offset=expected, expected=asked)
                    )
            except CallboardError:
                await trio.sleep(RETRY_S)
            else:
                expected = receipts[-1].offset + 1
                self._left[who] -= 1
                for index, (each, receipt) in enumerate(zip(told, receipts, strict=True)):
                    offset = receipt.offset
                    self._tell(
                        machine, each("set", partition=partition, offset=offset, expected=asked + index)
                    )
            await self._pause()

    async def _other(self, machine: Machine, topic: Any, who: str, draws: SeededEntropy) -> None:
        """Publish plainly: what lies between the records of the others."""
        while self._left[who] > 0:
            self._left[who] -= 1
            try:
                value = b"other" + bytes(max(0, self.workload.filler_bytes))
                await topic.publish(value, acks=one_of(draws, ("all", "leader", "none")))
            except CallboardError:
                await trio.sleep(RETRY_S)
            await self._pause()

    # -- the end

    async def look(self) -> None:
        """Recover, read everything, and hold it to what was answered."""
        world = self.world

        def open_runtime() -> callboard.Runtime:
            return callboard.open_runtime(
                disk=world.disk,
                clock=world.clock,
                entropy=world.entropy.fork("surviving"),
                on_event=partial(world.history.event, 0),
                limits=world.limits,
            )

        recovered = await recover(world.disk, open_runtime)
        stored, ends = [], {}
        for numbers in recovered.statistics.partitions:
            directory = partition_directory(recovered.topics[numbers.topic], numbers.partition)
            dropped = [
                _record(numbers.partition, columns, at)
                for columns in self.dropped.of(directory)
                for at in range(columns.count)
            ]
            left = await _records(world, directory, numbers.partition)
            stored += sorted(
                {row.offset: row for row in (*dropped, *left)}.values(), key=attrgetter("offset")
            )
            world.sometimes("retention dropped what was published once", bool(dropped))
            ends[numbers.partition] = numbers.next_offset
        window_us = round(max(0.001, self.workload.window_s) * 1_000_000)
        broken = check(self.told, stored, ends, window_us, world.limits.dedup_ids)
        broken += no_bugs.check(world.history, Surviving(()), DEFAULT)
        if broken:
            raise world.broken(broken[0])
        kinds = {told.kind for told in self.told}
        world.sometimes("a zombie was refused", "fenced" in kinds)
        world.sometimes("an expected offset was not the next one", "mismatch" in kinds)
        world.sometimes("a full table had forgotten an id", any(repeated(stored, window_us)))
        offsets = [told.offset for told in self.told if told.kind == "id"]
        world.sometimes("a publish was a duplicate", len(set(offsets)) < len(offsets))


async def _set(topic: Any, form: str, values: Sequence[bytes], partition: int, asked: int, acks: str) -> Any:
    """Publish these at an offset: alone, as a batch, or as part of a batch that goes to another partition too."""
    if form == "one":
        return [await topic.publish(values[0], partition=partition, expected_offset=asked, acks=acks)]
    if form == "message":
        message = Message(values[0], partition=partition, expected_offset=asked)
        return [await topic.publish(message, acks=acks)]
    if form == "batch":
        return await topic.publish_batch(values, partition=partition, expected_offset=asked, acks=acks)
    messages = [Message(value, partition=partition) for value in values]
    messages[0] = attrs.evolve(messages[0], expected_offset=asked)
    if topic.partitions > 1:
        messages.append(Message(b"other", partition=(partition + 1) % topic.partitions))
    try:
        fates = await topic.publish_batch(messages, acks=acks)
    except PartialPublish as error:
        fates = error.receipts
    if isinstance(fates[0], CallboardError):
        raise fates[0]
    return fates[: len(values)]


async def _records(world: World, directory: str, partition: int) -> list[RemainingRecord]:
    """Everything that a partition holds."""
    files = await world.disk.incarnate("published once")
    reader = await LogReader.open(files, directory)
    found: list[RemainingRecord] = []
    place = reader.start_offset
    while place < reader.visible_end:
        reading = await reader.read(place, max_records=READ_RECORDS)
        for columns in reading.batches:
            found += [_record(partition, columns, at) for at in range(columns.count)]
        place = reading.next_offset
    await reader.close()
    return found


def _record(partition: int, columns: Columns, at: int) -> RemainingRecord:
    return RemainingRecord(
        partition,
        columns.offset(at),
        columns.value(at) or b"",
        columns.append_time(at),
        columns.dedup_id(at),
        columns.producer(at),
    )
