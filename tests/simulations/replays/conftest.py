"""A recording on the real disk, opened as simulated replays read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard.log.format.columns import Columns
from callboard.log.host.disk import HostDisk
from callboard.recordings.reader import Recording, open_recording
from callboard.recordings.writer import new_recording
from callboard.replay import check_recording
from callboard.replay.positions import Selection
from callboard.simulations.replays.files import RecordedFiles

START_US = 1_700_000_000_000_000
COUNTS = (400, 300, 100)


@attrs.frozen
class Opened:
    """A recording of 800 records in 40 seconds."""

    recording: Recording
    selected: int
    files: RecordedFiles


def columns_of(partition: int, numbers: range) -> Columns:
    """Some records of a partition."""
    columns = Columns.build(
        [b"%d/%d:" % (partition, number) + bytes(100) for number in numbers],
        [b"key-%d" % (number % 13) if number % 9 else None for number in numbers],
        [{"n": b"%d" % number} if number % 50 == 0 else None for number in numbers],
        [START_US + 40_000_000 * number // COUNTS[partition] for number in numbers],
    )
    columns.append_time_us = START_US
    return columns


async def write(folder: Path) -> None:
    """Make the recording `day`."""
    disk = HostDisk(folder)
    files = await disk.incarnate("recordings")
    async with new_recording(files, "day", partitions=len(COUNTS)) as writer:
        for partition, count in enumerate(COUNTS):
            for first in range(0, count, 20):
                await writer.append(partition, columns_of(partition, range(first, first + 20)))
    await disk.aclose()


@pytest.fixture(scope="session")
def day(tmp_path_factory: Any) -> Iterator[Opened]:
    """The recording."""
    folder = tmp_path_factory.mktemp("recordings")
    trio.run(write, folder)
    files = RecordedFiles(str(folder))

    async def opened() -> Opened:
        recording = await open_recording(files, "day")
        selected = await check_recording(recording, Selection(), max_message_bytes=1_000)
        return Opened(recording, selected, files)

    yield trio.run(opened)
    files.close()
