"""What the partition log costs above the bare disk: `python benchmarks/log.py [directory]`.

For commits of 1, 100 and 1,000 records of 100 bytes, five interleaved rounds each (the median counts):

    stage     Python of stage() and applied() alone, and of it encoding
    log       stage, submit (one thread hop), applied: durable
    append    bare append + fdatasync of the same bytes
    zeroed    bare overwrite of a zeroed file + fdatasync of the same bytes
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any

import trio

from callboard.log.format.columns import Columns
from callboard.log.format.frame import encode_frame
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.host.entropy import HostEntropy
from callboard.log.partition.partition_log import LogSettings, PartitionLog

ROUNDS = 5
COMMITS = {1: 1_000, 100: 600, 1_000: 300}
VALUE = b"v" * 100


def columns_of(records: int) -> Columns:
    """A batch to publish."""
    return Columns.build([VALUE] * records)


def bare(path: str, records: int, commits: int, *, zeroed: bool) -> float:
    """Commits per second of writing the frames' bytes and syncing, without any of Callboard."""
    frame = b"".join(encode_frame(columns_of(records), segment_id=1, base_offset=0, append_time_us=0))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    if zeroed:
        os.write(descriptor, bytes(len(frame) * commits))
        os.fsync(descriptor)
    started = time.perf_counter()
    for number in range(commits):
        os.pwrite(descriptor, frame, number * len(frame))
        os.fdatasync(descriptor)
    elapsed = time.perf_counter() - started
    os.close(descriptor)
    os.unlink(path)
    return commits / elapsed


async def durable(log: PartitionLog, files: Any, batches: list[Columns]) -> float:
    """Commits per second through the log."""
    started = time.perf_counter()
    for columns in batches:
        staged = log.stage((columns,), durable=True)
        await files.submit(staged.verbs)
        log.applied(staged)
    return len(batches) / (time.perf_counter() - started)


async def python_cost(log: PartitionLog, files: Any, batches: list[Columns]) -> tuple[float, float]:
    """Microseconds of Python per commit in stage() and applied(); and of encoding the frame, which is in it."""
    spent = 0.0
    for columns in batches:
        started = time.perf_counter()
        staged = log.stage((columns,), durable=False)
        spent += time.perf_counter() - started
        await files.submit(staged.verbs)
        started = time.perf_counter()
        log.applied(staged)
        spent += time.perf_counter() - started
    started = time.perf_counter()
    for columns in batches:
        encode_frame(columns, segment_id=1, base_offset=0, append_time_us=0)
    encoding = time.perf_counter() - started
    return spent * 1e6 / len(batches), encoding * 1e6 / len(batches)


async def measure(directory: str, *, inline: bool) -> None:
    """Print one table."""
    disk = HostDisk(os.path.join(directory, "callboard"), inline=inline)
    await disk.lock({})
    files = await disk.incarnate("benchmark")
    log = await PartitionLog.open(
        files, "log", LogSettings(), label="benchmark/0", clock=HostClock(), entropy=HostEntropy()
    )
    path = os.path.join(directory, "bare")
    for records, commits in COMMITS.items():
        rounds = []
        for _ in range(ROUNDS):
            batches = [columns_of(records) for _ in range(commits)]
            rounds.append(
                (
                    await durable(log, files, batches),
                    bare(path, records, commits, zeroed=False),
                    bare(path, records, commits, zeroed=True),
                    *await python_cost(log, files, [columns_of(records) for _ in range(commits)]),
                )
            )
        through, append, zeroed, python, encoding = map(statistics.median, zip(*rounds, strict=True))
        print(
            f"{'inline' if inline else 'thread':6} {records:5} records: log {through:7.0f}/s "
            f"({through / append:.2f} of append {append:.0f}/s, {through / zeroed:.2f} of zeroed {zeroed:.0f}/s); "
            f"Python {python:.1f} us, of it encoding {encoding:.1f} us"
        )
    await log.close()
    await disk.aclose()


def main() -> None:
    """Measure in a temporary folder of the directory given, or of the present one."""
    where = sys.argv[1] if len(sys.argv) > 1 else os.getcwd()
    with tempfile.TemporaryDirectory(dir=where) as directory:
        for inline in (False, True):
            trio.run(lambda inline=inline: measure(os.path.join(directory, str(inline)), inline=inline))


if __name__ == "__main__":
    main()
