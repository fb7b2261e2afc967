"""Generating a recording, beside generating, sorting and writing the same rows to Parquet: pairs in one session, warm.

    python benchmarks/generate.py [--records 1000000 2000000 ...] [--rounds 5] [--profile PROFILE.json] [--in DIRECTORY]

Needs the extra `spark`, Java, and 300 bytes of disk for each record. Prints for each size the rate of both, the
median of the ratios of neighbouring runs, by the clock and by the processor time of this process, Java and all tasks,
what generating alone takes (the rows are dropped), and the memory of the processes. A recording is synced, and Parquet
is not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from callboard.simulations.workload.generating import ORDER, generate, workload_of, workload_rows
from callboard.simulations.workload.measuring import measure_rows
from callboard.simulations.workload.profile_format import WorkloadProfile, profile_from_json
from callboard.simulations.workload.scaling import Scaling
from callboard.simulations.workload.session import open_session

PARTITIONS = 8
MEASURED = 100_000
DAY_US = 86_400_000_000


def a_day(spark: Any) -> WorkloadProfile:
    """The profile of a day that is busier at noon: 100,000 events, 5,000 keys, values of 100 bytes or so."""
    spread = "abs(xxhash64(id, {})) % 1000000"
    rows = spark.range(MEASURED).selectExpr(
        f"(({spread.format(1)}) + ({spread.format(2)})) * {DAY_US // 2_000_000} as timestamp",
        f"cast(printf('key-%08d', int(5000 * pow(({spread.format(3)}) / 1e6, 3))) as binary) as key",
        f"cast(repeat('x', int(60 + ({spread.format(4)}) % 81)) as binary) as value",
        f"int(id % {PARTITIONS}) as partition",
    )
    return measure_rows(rows, partitions=PARTITIONS)


def processes() -> list[Path]:
    """Where the system tells of this process and all that it has started."""
    found, pending = [], [str(os.getpid())]
    while pending:
        process = Path("/proc", pending.pop())
        try:
            pending += [
                child
                for task in (process / "task").iterdir()
                for child in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        found.append(process)
    return found


def processor_seconds() -> float:
    """The processor time of all of them so far, and of those that have ended."""
    ticks = 0
    for process in processes():
        with contextlib.suppress(OSError):
            ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Seconds(NamedTuple):
    """How long something takes."""

    clock: float
    processor: float


def seconds_of(work: Callable[[], object]) -> Seconds:
    """By the clock, and in processor time."""
    clock, processor = time.perf_counter(), processor_seconds()
    work()
    return Seconds(time.perf_counter() - clock, processor_seconds() - processor)


class Contest:
    """The same workload, generated for each of the contestants."""

    def __init__(self, spark: Any, profile: WorkloadProfile, records: int, folder: str) -> None:
        self._spark = spark
        self._profile = profile
        self._scaling = Scaling(volume=Fraction(records, profile.events))
        self._workload = workload_of([profile], scaling=self._scaling)
        self.records = sum(part.events for part in self._workload.parts)
        self._out = f"{folder}/out"

    def _rows(self) -> Any:
        return workload_rows(self._spark, self._workload)

    def recording(self) -> Seconds:
        """Generate, sort, write a recording."""
        seconds = seconds_of(lambda: generate(self._spark, [self._profile], self._out, scaling=self._scaling))
        return self._checked(seconds, "*/*.log")

    def parquet(self) -> Seconds:
        """Generate, sort, write Parquet."""
        tasks = min(self._workload.partitions, self._spark.sparkContext.defaultParallelism)
        placed = self._rows().repartition(tasks, "partition")
        ordered = placed.sortWithinPartitions("partition", "timestamp", *ORDER)
        kept = ordered.select("partition", "timestamp", "key", "value")
        return self._checked(seconds_of(lambda: kept.write.parquet(self._out)), "*.parquet")

    def nothing(self) -> Seconds:
        """Generate, and drop the rows."""
        return seconds_of(lambda: self._rows().write.format("noop").mode("overwrite").save())

    def _checked(self, seconds: Seconds, pattern: str) -> Seconds:
        self.size = sum(path.stat().st_size for path in Path(self._out).rglob(pattern))
        assert self.size > 0
        shutil.rmtree(self._out)
        return seconds


def memory() -> str:
    """The most that this process had, and what its children have now, all together."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = 0
    for process in processes()[1:]:
        with contextlib.suppress(OSError):
            found += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return f"driver {own / 1e6:,.0f} MB at most; Java and all tasks {found / 1e6:,.0f} MB at the end"


def measure(contest: Contest, rounds: int) -> None:
    """The first round warms up."""
    rounds_kept: list[tuple[Seconds, Seconds, Seconds]] = []
    for turn in range(rounds + 1):
        seconds = contest.recording(), contest.parquet(), contest.nothing()
        if turn or not rounds:
            rounds_kept.append(seconds)
    ratios = [parquet.clock / recording.clock for recording, parquet, _ in rounds_kept]
    worked = [parquet.processor / recording.processor for recording, parquet, _ in rounds_kept]
    mine, theirs, alone = (
        contest.records / statistics.median(each.clock for each in column) / 1e3
        for column in zip(*rounds_kept, strict=True)
    )
    print(
        f"{contest.records:,} records: recording {mine:,.0f} k/s, Parquet {theirs:,.0f} k/s, generated only"
        f" {alone:,.0f} k/s; ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), of"
        f" processor time {statistics.median(worked):.2f} ({min(worked):.2f} to {max(worked):.2f}); {memory()}",
        flush=True,
    )


def main() -> None:
    """Each size in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 2_000_000])
    parser.add_argument("--rounds", type=int, default=5, help="0: one run, cold for the first size")
    parser.add_argument("--profile", help="the profile to generate from, in place of an invented day")
    parser.add_argument("--in", dest="directory", help="where the files go; should be on a real disk")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as folder,
        open_session(given.master) as spark,
    ):
        profile = profile_from_json(Path(given.profile).read_bytes()) if given.profile else a_day(spark)
        for records in given.records:
            measure(Contest(spark, profile, records, folder), given.rounds)


if __name__ == "__main__":
    main()
