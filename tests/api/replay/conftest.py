"""What tests of replays share: recordings in memory, and what a topic holds of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest

from callboard.log.format.columns import Columns
from callboard.recordings.reader import Recording, open_recording
from callboard.recordings.writer import new_recording
from callboard.simulations.disk.memory_disk import MemoryDisk

START_US = 1_700_000_000_000_000
Record = tuple[bytes, bytes | None, int]
"""Value, key, seconds after the start."""


@attrs.define
class Recorded:
    """A recording, and the records in it by partition."""

    recording: Recording
    partitions: list[list[Record]]

    @property
    def values(self) -> list[bytes]:
        """All values."""
        return [value for records in self.partitions for value, _, _ in records]

    async def held(self, topic: Any) -> list[list[bytes]]:
        """The values that a topic holds, by partition."""
        found: list[list[bytes]] = [[] for _ in range(topic.partitions)]
        async for record in topic.read():
            found[record.partition].append(record.value)
        return found

    async def check_whole(self, topic: Any, times: int = 1) -> None:
        """Each record so many times, and records of a key in the order of their source."""
        held = await self.held(topic)
        found = Counter(value for values in held for value in values)
        assert found == dict.fromkeys(self.values, times)
        for records in self.partitions:
            for key in {key for _, key, _ in records if key is not None}:
                wanted = [value for value, of, _ in records if of == key] * times
                mine = set(wanted)
                assert any([value for value in values if value in mine] == wanted for values in held)


def record_of(partition: int, number: int) -> Record:
    """A record: every fifth has no key, and time does not always rise."""
    key = None if number % 5 == 0 else b"key-%d-%d" % (partition, number % 7)
    second = number if number % 11 else max(0, number - 3)
    return b"%d/%d" % (partition, number), key, second


async def recorded(
    counts: Sequence[int] = (40, 30, 0), frame: int = 7, disk: MemoryDisk | None = None, **columns: Any
) -> Recorded:
    """A recording with so many records in each partition, `frame` of them in a batch."""
    files = await (disk or MemoryDisk()).incarnate("recording")
    partitions = [[record_of(index, number) for number in range(count)] for index, count in enumerate(counts)]
    async with new_recording(files, "day", partitions=len(counts)) as writer:
        for index, records in enumerate(partitions):
            for first in range(0, len(records), frame):
                await writer.append(index, columns_of(records[first : first + frame], **columns))
    return Recorded(await open_recording(files, "day"), partitions)


def columns_of(records: Sequence[Record], **columns: Any) -> Columns:
    """The records as a batch."""
    made = Columns.build(
        [value for value, _, _ in records],
        [key for _, key, _ in records],
        event_times=[START_US + 1_000_000 * second for _, _, second in records],
        **{name: [of] * len(records) for name, of in columns.items()},
    )
    made.append_time_us = START_US
    return made


@pytest.fixture(scope="session")
def make_recording() -> Callable[..., Awaitable[Recorded]]:
    """Makes a recording."""
    return recorded
