"""The whole pipeline: traffic becomes a recording, that a profile, that a larger recording, and that a test's load.

The larger recording is compared with the one it was made from, replayed into a runtime whose consumers account for
every record, and replayed in the simulated world, under faults.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import StorageError
from callboard.offline import recording_at
from callboard.recordings.manifest import Manifest
from callboard.replay import ReplayReport, replay
from callboard.replay.positions import Selection
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.replays.files import checked_recording
from callboard.simulations.replays.running import SimulatedReplay, random_plan, simulate_replay
from callboard.simulations.workload.comparing import compare_sides, measure_sides
from callboard.simulations.workload.distances import Comparison
from callboard.simulations.workload.generating import generate
from callboard.simulations.workload.importing import ImportReport, import_traffic
from callboard.simulations.workload.measuring import measure_recording
from callboard.simulations.workload.profile_format import WorkloadProfile
from callboard.simulations.workload.scaling import Scaling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED: Final = "recorded"
GENERATED: Final = "generated"
DATA: Final = "data"
TOPIC: Final = "replayed"
GROUP: Final = "readers"
FAULTS_WITHIN_S: Final = 1.0
"""Of virtual time: a replay without waiting takes some seconds of it."""
PATIENCE_S: Final = 60.0
"""For the consumers, after the last record was published."""


@attrs.frozen(kw_only=True)
class PipelineReport:
    """What came of everything."""

    imported: ImportReport
    profile: WorkloadProfile
    generated: Manifest
    generated_profile: WorkloadProfile
    comparison: Comparison
    replayed: ReplayReport
    delivered: int
    """Records that consumers got and acknowledged."""
    delivered_bytes: int
    """Of their keys, values and headers."""
    simulated: SimulatedReplay

    @property
    def is_balanced(self) -> bool:
        """Whether all records and bytes that were generated were delivered, and the simulation kept every promise."""
        wanted = self.generated.records, self.generated.payload_bytes
        return (self.delivered, self.delivered_bytes) == wanted and self.simulated.failure is None

    def document(self) -> dict[str, Any]:
        """All of it for a JSON document, in numbers and words."""
        failure = self.simulated.failure
        return {
            "lines": self.imported.lines,
            "bad": self.imported.bad,
            "imported": self.imported.records,
            "keys": self.profile.distinct_keys,
            "generated": self.generated.records,
            "digest": self.generated.digest,
            "is_alike": self.comparison.is_alike,
            "verdict": self.comparison.words,
            "replayed": self.replayed.records,
            "delivered": self.delivered,
            "delivered_bytes": self.delivered_bytes,
            "simulated": self.simulated.records,
            "lost_by_the_disk": self.simulated.missing,
            "faults": dict(self.simulated.faults),
            "failure": None if failure is None else f"{type(failure).__name__}: {failure}",
            "is_balanced": self.is_balanced,
        }


def run_pipeline(
    opened: Callable[[], AbstractContextManager[SparkSession]],
    files: Sequence[str],
    out: str,
    *,
    scale: Fraction = Fraction(10),
    partitions: int = 4,
    consumers: int = 2,
    seed: int = 0,
    tell: Callable[[str], object] = lambda _: None,
) -> PipelineReport:
    """Run everything below the folder `out`, which is there. To be called where no trio program runs.

    `opened` opens a session of Spark; `tell` gets what begins. Raises as the jobs and `replay` do, `StorageError`
    when records are not delivered; what was made by then stays.
    """
    recorded, generated = f"{out}/{RECORDED}", f"{out}/{GENERATED}"
    with opened() as session:
        tell("importing")
        imported = import_traffic(session, files, recorded, partitions=partitions)
        tell("measuring")
        profile = measure_recording(session, recorded, values=True)
        tell(f"generating {float(scale):g} times as much")
        manifest = generate(session, [profile], generated, scaling=Scaling(volume=scale), seed=seed)
        tell("comparing")
        sides = measure_sides(session, [recorded, generated])
    comparison = compare_sides(*sides)
    tell("replaying into a runtime")
    replayed, account = trio.run(_replayed, generated, f"{out}/{DATA}", consumers)
    tell("replaying in the simulator, under faults")
    return PipelineReport(
        imported=imported,
        profile=profile,
        generated=manifest,
        generated_profile=sides[1].profile,
        comparison=comparison,
        replayed=replayed,
        delivered=account.records,
        delivered_bytes=account.size_bytes,
        simulated=_simulated(generated, seed),
    )


# -- into a runtime


@attrs.define
class _Account:
    """What consumers got."""

    wanted: int
    records: int = 0
    size_bytes: int = 0
    is_complete: trio.Event = attrs.field(factory=trio.Event)

    def add(self, batch: Any) -> None:
        """Count an acknowledged batch."""
        self.records += len(batch)
        for column in (batch.values(), batch.keys()):
            self.size_bytes += sum(map(len, filter(None, column)))
        if self.records >= self.wanted:
            self.is_complete.set()


async def _replayed(path: str, directory: str, consumers: int) -> tuple[ReplayReport, _Account]:
    async with recording_at(path) as recording, open_runtime(directory) as runtime:
        account = _Account(recording.manifest.records)
        await runtime.create_topic(TOPIC, partitions=len(recording.manifest.partitions))
        async with trio.open_nursery() as nursery:
            for _ in range(consumers):
                nursery.start_soon(_consume, runtime, account)
            report = await replay(recording, runtime, TOPIC, speed="max")
            with trio.move_on_after(PATIENCE_S):
                await account.is_complete.wait()
            nursery.cancel_scope.cancel()
    if not account.is_complete.is_set():
        raise StorageError(
            f"{account.records:,} of {account.wanted:,} records were delivered {PATIENCE_S:g} s after the last was"
            f" published. Look at it with `callboard stats -d {shlex.quote(directory)}`.",
            path=directory,
        )
    return report, account


async def _consume(runtime: Runtime, account: _Account) -> None:
    async with runtime.topic(TOPIC).subscribe(GROUP) as consumer:
        async for batch in consumer.batches(max_records=1_000):
            await batch.ack()
            account.add(batch)


# -- into the simulator


def _simulated(path: str, seed: int) -> SimulatedReplay:
    with checked_recording(path, Selection()) as (recording, selected):
        plan = random_plan(seed, len(recording.manifest.partitions), FAULTS_WITHIN_S)
        return simulate_replay(
            recording, selected=selected, speed="max", seed=seed, plan=plan, scheduler=None
        )
