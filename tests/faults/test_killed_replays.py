"""SIGKILL at random moments of `callboard replay`: run again until it is done, it lost nothing and doubled nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.log.format.columns import Columns
from callboard.log.host.disk import HostDisk
from callboard.recordings.writer import new_recording

COMMAND = Path(sys.executable).with_name("callboard")
COUNTS = (6_000, 3_000, 1_000)
LIVES = 12
START_US = 1_700_000_000_000_000
PARTITIONS = [pytest.param(3, id="one to one"), pytest.param(4, id="by key")]


def values_of(partition: int) -> list[bytes]:
    """The values of a partition, none twice."""
    return [b"%d/%d:" % (partition, number) + bytes(200) for number in range(COUNTS[partition])]


async def record(folder: Path) -> None:
    """A recording of 10 seconds in `folder`."""
    disk = HostDisk(folder)
    files = await disk.incarnate("recordings")
    async with new_recording(files, "day", partitions=len(COUNTS)) as writer:
        for partition, count in enumerate(COUNTS):
            values = values_of(partition)
            for first in range(0, count, 100):
                numbers = range(first, first + 100)
                columns = Columns.build(
                    values[first : first + 100],
                    [b"key-%d" % (number % 50) if number % 9 else None for number in numbers],
                    event_times=[START_US + 10_000_000 * number // count for number in numbers],
                )
                await writer.append(partition, columns)
    await disk.aclose()


def live(folder: Path, partitions: int, speed: str, acks: str, lasts_s: float | None) -> int:
    """One life of the command; killed after so many seconds, unless it is over by then."""
    arguments = ("replay", "day", "--into", "data", "--topic", "web", "--speed", speed, "--acks", acks)
    process = subprocess.Popen(
        [COMMAND, *arguments, f"partitions={partitions}"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            process.wait(lasts_s)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode in (0, -9), told
    return process.returncode


async def stored(folder: Path) -> list[list[Any]]:
    """Values of the topic, by partition."""
    async with callboard.open_runtime(folder / "data") as runtime:
        topic = runtime.topic("web")
        found: list[list[Any]] = [[] for _ in range(topic.partitions)]
        async for record in topic.read():
            found[record.partition].append(record.value)
    return found


@pytest.mark.parametrize("partitions", PARTITIONS)
async def test_a_killed_replay_goes_on_where_it_was(tmp_path: Path, partitions: int) -> None:
    """Each record is there once; those of a source partition that meet in one keep their order."""
    await record(tmp_path)
    draw = random.Random(partitions)
    killed = 0
    for number in range(LIVES):
        # At the highest speed a life may come to the end of all.
        speed = draw.choice(("1", "3")) if number < LIVES - 4 else "max"
        acks = draw.choice(("all", "leader"))
        killed += live(tmp_path, partitions, speed, acks, 0.4 + draw.uniform(0.0, 0.6)) == -9
    assert killed > LIVES // 4
    assert live(tmp_path, partitions, "max", "all", None) == 0
    held = await stored(tmp_path)
    counts = Counter(value for part in held for value in part)
    assert counts == dict.fromkeys((value for index in range(len(COUNTS)) for value in values_of(index)), 1)
    for part in held:
        for source in range(len(COUNTS)):
            mine = [
                int(value.partition(b"/")[2].partition(b":")[0])
                for value in part
                if value.startswith(b"%d/" % source)
            ]
            assert mine == sorted(mine)
