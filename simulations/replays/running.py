"""A recording replayed in the simulated world: by the production code, on a virtual clock, under a plan of faults.

A machine opens a runtime, replays, and consumes what it replayed in a group, which settles each record after it was
compared with the recording (`audit`). Power cuts, kills and failures end lives of the machine, or of the runtime; the
next one goes on. At some time the faults end; then everything must come to its end.

Nothing here adds up: the topic drops what was settled, and neither history nor trace keeps a record. A replay that
runs into the topic's limit waits until the group has caught up.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import attrs
import trio

import callboard
from callboard.actors.names import OWN, name_problem
from callboard.log.errors import CallboardError, InvalidArgument
from callboard.log.limits import MESSAGE_BYTES_MAX, MIB, PARTITIONS_MAX
from callboard.message import from_us
from callboard.recordings.reader import Recording
from callboard.replay import Lateness, ReplayReport, check_speed, replay
from callboard.replay.pacing import MAX_SPEED
from callboard.replay.positions import Selection
from callboard.replay.sources import source_of
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import NO_FAULTS, FaultSpace, Plan, draw_plan
from callboard.simulations.faults.when import At
from callboard.simulations.replays.audit import PROMISE, Audit
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing, leaves, restart_failed
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, Run, Settings, World, run

TOPIC: Final = "replayed"
"""Of a recording that does not say which topic it was made from."""
GROUP: Final = "audit"
RETENTION_BYTES_ALL: Final = 32 * MIB
"""Of all partitions together, but for the least of each, in which a batch fits several times."""
RETENTION_BYTES_LEAST: Final = 4 * MIB
SEGMENTS: Final = 8
"""In a partition that is full."""
CONSUMED_MAX: Final = 5_000
CONSUMED: Final = 500
"""At a pace, the group consumes about this many records at a time, or those of this many seconds."""
PAUSE_S: Final = 30.0
ANSWERING: Final = frozenset({"running", "full"})
"""States in which a partition's numbers are known. One that was full stays so until the next publish."""
HEAL_AFTER_S: Final = 60.0
"""Faults end so long after the last record was due,"""
PATIENCE_S: Final = 3_600.0
"""and everything must be over so much later."""
COLLECT_EVERY: Final = 20_000
"""Garbage is collected after this many records: by itself Python does not, inside a run."""
TICKS_PER_RECORD: Final = 2_000


@attrs.frozen(kw_only=True)
class SimulatedReplay:
    """How a simulated replay went. `failure` is None when every promise was kept."""

    failure: BaseException | None
    records: int
    """Replayed, and found in the topic as the recording has them, once each."""
    missing: int
    """Lost by the disk for good, as the log says."""
    runs: int
    """Calls of `replay` until it was complete."""
    lives: int
    """Of the machine: 1, and one more for each power cut or kill."""
    delivered: int
    """To the consumer, repeated deliveries included."""
    virtual_s: float
    lateness: Lateness
    """Of the last call that published anything."""
    faults: Mapping[str, int]
    """How often each kind of fault had an effect."""
    topic: str = TOPIC
    idle: tuple[str, ...] = ()
    """Faults of the plan that had none, each with the reason."""
    scheduler: str
    digest: str
    """Of the run's trace, when there is one: the same seed, plan and code give the same."""


def simulate_replay(
    recording: Recording,
    *,
    selected: int,
    speed: float | str = 1,
    selection: Selection = Selection(),
    partitions: int | None = None,
    seed: int = 0,
    plan: Plan = NO_FAULTS,
    scheduler: str | None = "fifo",
    trace: bool = False,
    on_progress: Callable[[int, float], object] | None = None,
) -> SimulatedReplay:
    """Replay `recording` into a topic of a simulated machine, under `plan`, and account for every record.

    `recording` is opened over `files.RecordedFiles`; `selected` is what `check_recording` returned for it. The topic
    has the name that it was recorded under (`topic_of`), and `partitions` (None: as many as the recording). `scheduler`
    None is drawn from the seed. With `trace` the result has a digest of all that happened. `on_progress(records,
    virtual seconds)` is called now and then. Raises `InvalidArgument`, before anything is run.
    """
    replaying = _SimulatedReplay(recording, selected, check_speed(speed), selection, partitions, on_progress)
    settings = Settings(
        scheduler=scheduler,
        trace="digest" if trace else "off",
        virtual_limit_s=replaying.end_s + HEAL_AFTER_S + PATIENCE_S,
        tick_limit=10_000_000 + TICKS_PER_RECORD * selected,
        still_ticks=500_000 + TICKS_PER_RECORD * selected,
    )
    return replaying.result(run(replaying.main, seed=seed, plan=plan, settings=settings), trace=trace)


def topic_of(recording: Recording) -> str:
    """The name of the topic that was recorded, if the recording has one that a topic can have; else `TOPIC`."""
    name = recording.manifest.source.get("topic", TOPIC)
    return TOPIC if name_problem(name) is not None or name.startswith(OWN) else name


def idle_faults(ended: Run) -> Iterator[str]:
    """The faults of a run that had no effect, in words."""
    for index, fault in enumerate(ended.plan.faults):
        if ended.hits.get(index):
            continue
        if isinstance(fault.when, At) and fault.when.seconds > ended.virtual_s:
            reason = f"its time never came: the run ended after {ended.virtual_s:,.1f} s"
        else:
            reason = "its moment never came, or nothing that it names was there"
        yield f"{fault.words()}: {reason}"


def random_plan(seed: int, partitions: int, horizon_s: float, topic: str = TOPIC) -> Plan:
    """A plan drawn from the seed: faults of every kind that a log survives, within this many virtual seconds."""
    actors = tuple(f"topics/{topic}/{index}" for index in range(partitions))
    space = FaultSpace(
        actors=(*actors, "catalog", "openings", "timer-wheel", f"groups/{GROUP}"),
        messages=("", "PublishMany", "Read", "Flush", "Fetch", "Ack"),
        faults=(1, 8),
        horizon_s=horizon_s,
    )
    return draw_plan(SeededEntropy(seed).fork("plan"), space, horizon_s)


class _SimulatedReplay:
    """One simulated replay."""

    def __init__(
        self,
        recording: Recording,
        selected: int,
        speed: float,
        selection: Selection,
        partitions: int | None,
        on_progress: Callable[[int, float], object] | None,
    ) -> None:
        count = len(recording.manifest.partitions)
        self._partitions = count if partitions is None else partitions
        if not 1 <= self._partitions <= PARTITIONS_MAX:
            raise InvalidArgument(f"{self._partitions} partitions: a topic has 1 to 1024. Nothing was run.")
        self._recording = recording
        self._topic = topic_of(recording)
        self._selected = selected
        self._speed = speed
        self._selection = selection
        self._on_progress = on_progress
        source = source_of(recording, selection, 1, "")
        self.end_s = 0.0 if speed == MAX_SPEED else source.line.period_us / 1e6 / speed
        """When the last record is due."""
        self._pause_s = min(PAUSE_S, CONSUMED * self.end_s / max(1, selected))
        """Of the consumer, after each batch: so that it gets many records at a time, and the log does not fill up."""
        self._audit = Audit(source, self._partitions, is_raw=self._partitions == count)
        self._is_done = False
        self._runs = self._delivered = self._collected = 0
        self._lateness = Lateness()

    # -- a run

    async def main(self, world: World) -> None:
        """Replay in as many lives as it takes, then account for the rest."""
        world.spawn(self._heal, world)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._audit.aclose)
            lost = await world.machine_until_done(self._life)
            left = await self._audit.remaining()
        if left:
            raise world.broken(Violation(PROMISE, f"{left:,} records of the recording are not in the topic"))
        if self._audit.missing > lost:
            words = f"{self._audit.missing:,} records are missing, and the log says that {lost:,} are lost"
            raise world.broken(Violation(PROMISE, words))

    async def _heal(self, world: World) -> None:
        await trio.sleep(self.end_s + HEAL_AFTER_S)
        world.heal()

    async def _life(self, machine: Machine) -> int:
        """Open the runtime, again after each failure, until everything is there; how many records it says are lost."""
        while True:
            try:
                async with machine.open_runtime() as runtime:
                    return await self._session(machine.world, runtime)
            except (CallboardError, BaseExceptionGroup) as error:
                broken = [leaf for leaf in leaves(error) if isinstance(leaf, Violation)]
                if broken:
                    raise machine.world.broken(broken[0]) from error
                if not is_passing(error):
                    raise
                machine.world.note(f"the runtime is opened again: {type(error).__name__}")
                await trio.sleep(OPERATOR_S)

    async def _session(self, world: World, runtime: callboard.Runtime) -> int:
        retention_bytes = max(RETENTION_BYTES_LEAST, RETENTION_BYTES_ALL // self._partitions)
        topic = await runtime.create_topic(
            self._topic,
            partitions=self._partitions,
            segment_bytes=retention_bytes // SEGMENTS,
            retention_bytes=retention_bytes,
            max_message_bytes=MESSAGE_BYTES_MAX,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(restart_failed, runtime, name="operator")
            nursery.start_soon(self._consume, world, topic, name="audit")
            while not await self._has_replayed(runtime):  # noqa: ASYNC110 - an operator tries again
                await trio.sleep(OPERATOR_S)
            statistics = await self._settled(topic)
            nursery.cancel_scope.cancel()
        return sum(partition.lost_records for partition in statistics)

    async def _has_replayed(self, runtime: callboard.Runtime) -> bool:
        """Replay, or go on replaying; False when that failed in a way that passes."""
        span = self._selection.span
        self._runs += 1
        try:
            report: ReplayReport = await replay(
                self._recording,
                runtime,
                self._topic,
                speed=self._speed,
                start=None if span.from_us is None else from_us(span.from_us),
                stop=None if span.to_us is None else from_us(span.to_us),
                keys=self._selection.keys,
                fraction=self._selection.fraction,
                checked=self._selected,
            )
        except CallboardError as error:
            if not is_passing(error):
                raise
            return False
        if report.lateness.records:
            self._lateness = report.lateness
        return True

    # -- consuming

    async def _consume(self, world: World, topic: callboard.Topic) -> None:
        """Compare, then settle. After an error a consumer begins again; what was compared stays compared."""
        while True:
            try:
                async with topic.subscribe(GROUP, visibility_timeout=60.0) as consumer:
                    async for batch in consumer.batches(max_records=CONSUMED_MAX, max_wait=0.0):
                        self._delivered += len(batch)
                        await self._compare(topic, batch)
                        world.probe("deliver", GROUP)
                        await batch.ack(wait=False)
                        self._note_progress(world)
                        if len(batch) < CONSUMED_MAX and self._pause_s > 0:
                            await trio.sleep(self._pause_s)
            except CallboardError as error:
                if not is_passing(error):
                    raise
                await trio.sleep(OPERATOR_S / 10)

    async def _compare(self, topic: callboard.Topic, batch: Any) -> None:
        """Compare what the log holds up to the end of what was delivered."""
        offsets = batch.offsets()
        start, stop = self._audit.offsets[batch.partition], max(offsets) + 1
        if offsets[0] == start and offsets[-1] - start == len(offsets) - 1:
            await self._audit.take(batch)
        elif start < stop:  # some come again, or in another order: what counts is the log
            stored = topic.read_batches(start=start, stop=stop, partition=batch.partition)
            async for part in stored:
                await self._audit.take(part)

    def _note_progress(self, world: World) -> None:
        records = self._audit.records
        if records - self._collected >= COLLECT_EVERY:
            self._collected = records
            gc.collect()
            if self._on_progress is not None:
                self._on_progress(records, world.now)

    async def _settled(self, topic: callboard.Topic) -> tuple[Any, ...]:
        """Wait until the group has settled everything, and the account has reached the end of each partition."""
        while True:
            statistics = await topic.describe()
            if all(
                partition.state in ANSWERING
                and all(group.floor >= partition.visible_end for group in partition.groups)
                and (partition.groups or not partition.visible_end)
                for partition in statistics
            ):
                return statistics
            await trio.sleep(0.1)

    # -- the end

    def result(self, ended: Run, *, trace: bool) -> SimulatedReplay:
        """What came of it."""
        return SimulatedReplay(
            failure=ended.failure,
            records=self._audit.records,
            missing=self._audit.missing,
            runs=self._runs,
            lives=ended.boots,
            delivered=self._delivered,
            virtual_s=ended.virtual_s,
            lateness=self._lateness,
            faults=dict(ended.fault_counts),
            topic=self._topic,
            idle=tuple(idle_faults(ended)),
            scheduler=ended.scheduler,
            digest=ended.trace.digest if trace else "",
        )
