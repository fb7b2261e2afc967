"""Reading a recording with Spark, beside Parquet with the same content: pairs in one session, warm.

    python benchmarks/spark_read.py [--records 5000000] [--rounds 5]

Needs the extra `spark`, Java, and 2 GB of disk in the temporary folder. Prints, for each aggregate, the rate of
both and the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import trio

from callboard.log.format.columns import Columns
from callboard.log.host.disk import HostDisk
from callboard.recordings.writer import new_recording
from callboard.simulations.workload.session import open_session
from callboard.spark import register

BATCH = 10_000
PARTITIONS = 8
KEYS = 10_000
EVERYTHING = (
    "sum(length(value))",
    "sum(length(key))",
    "sum(offset)",
    "sum(timestamp)",
    "sum(append_time)",
    "sum(partition)",
    "max(topic)",
    "sum(size(headers))",
)
AGGREGATES = {
    "all columns into an aggregate": ("", EVERYTHING),
    "count by key": ("key", ("count(*)",)),
    "value sizes, one column asked for": ("", ("sum(length(value))",)),
}


async def make(folder: str, records: int) -> None:
    """A recording of so many records of about 120 bytes."""
    random = np.random.default_rng(7)
    disk = HostDisk(folder)
    files = await disk.incarnate("makes")
    keys = [b"key-%012d" % number for number in range(KEYS)]
    async with new_recording(files, "recording", partitions=PARTITIONS) as writer:
        for number, first in enumerate(range(0, records, BATCH)):
            count = min(BATCH, records - first)
            data = random.bytes(104 * count)
            columns = Columns.build(
                [data[104 * index : 104 * index + 104] for index in range(count)],
                [keys[index] for index in random.integers(0, KEYS, count).tolist()],
                event_times=list(range(first, first + count)),
            )
            columns.append_time_us = first
            await writer.append(number % PARTITIONS, columns)
    await disk.aclose()


def run(frame: Any, key: str, aggregates: tuple[str, ...]) -> float:
    """The seconds that an aggregate takes."""
    begun = time.perf_counter()
    if key:
        frame.groupBy(key).count().selectExpr("sum(count)").collect()
    else:
        frame.selectExpr(*aggregates).collect()
    return time.perf_counter() - begun


def main() -> None:
    """Make both, warm up, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_session("local[2]", memory="2g") as spark:
        trio.run(make, folder, given.records)
        register(spark)
        recording, parquet = f"{folder}/recording", f"{folder}/parquet"
        spark.read.format("callboard").load(recording).write.parquet(parquet)
        size = sum(path.stat().st_size for path in Path(recording).rglob("*.log"))
        print(f"{given.records:,} records; recording {size / 1e6:,.0f} MB")
        for title, (key, aggregates) in AGGREGATES.items():
            reader = spark.read.format("callboard")
            if "one column" in title:
                reader = reader.option("columns", "value")
            elif key:
                reader = reader.option("columns", key)
            ours, theirs = reader.load(recording), spark.read.parquet(parquet)
            ratios, rates = [], []
            for turn in range(given.rounds + 1):
                seconds = run(ours, key, aggregates), run(theirs, key, aggregates)
                if turn:
                    ratios.append(seconds[1] / seconds[0])
                    rates.append(seconds)
            mine, parquets = (
                given.records / statistics.median(column) for column in zip(*rates, strict=True)
            )
            print(
                f"{title}: callboard {mine / 1e6:.2f} M/s, Parquet {parquets / 1e6:.2f} M/s,"
                f" ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
