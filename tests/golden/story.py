"""What the stories of `generate.py` are made with: a runtime, a list of what was promised, and ways to spoil files."""

from __future__ import annotations

import json
import os
import signal
import struct
import zlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import test_golden_directories as golden

import callboard
from callboard.simulations.disk.memory_disk import MemoryDisk

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KIB = 1024
MAGIC = b"\xf9CBF"
HEADER_BYTES = 60


class StoryClock(golden.ClockAt):
    """The clock of a story: hours can be skipped."""

    def __init__(self) -> None:
        super().__init__(golden_us(BEGIN))

    def skip(self, seconds: float) -> None:
        """So much time passes at once. Only between two openings: leases and delays run on trio's clock."""
        self._wall_us += round(seconds * 1e6)


def golden_us(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Story:
    """What a story has at hand, and what it promises."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = StoryClock()
        self.disk: MemoryDisk | None = None
        self.records: dict[str, dict[str, list[Any]]] = {}
        self.delivers: dict[str, list[list[int]]] = {}

    def open(self, *, control: bool = False) -> Any:
        """A runtime on the directory, or on the simulated disk."""
        if self.disk is not None:
            return callboard.open_runtime(disk=self.disk, clock=self.clock)
        return callboard.open_runtime(self.directory, clock=self.clock, control=control)

    def promise(self, receipt: Any, value: bytes) -> None:
        """This was acknowledged."""
        if receipt.offset is not None:
            topic = self.records.setdefault(receipt.topic, {})
            topic.setdefault(str(receipt.partition), []).append([receipt.offset, golden.plain(value)])

    async def publish(self, topic: Any, value: bytes, **options: Any) -> Any:
        """Publish one, and remember it."""
        receipt = await topic.publish(value, **options)
        self.promise(receipt, value)
        return receipt

    async def publish_batch(self, topic: Any, values: list[bytes], **options: Any) -> None:
        """Publish many, and remember them."""
        for receipt, value in zip(await topic.publish_batch(values, **options), values, strict=True):
            self.promise(receipt, value)

    def told(self) -> str:
        """What the parent is to know."""
        left_us = self.clock.wall_us() + 1_000_000
        return json.dumps({"left_us": left_us, "records": self.records, "delivers": self.delivers})

    def kill(self) -> None:
        """The process dies here."""
        (self.directory.parent / "told").write_text(self.told())
        os.kill(os.getpid(), signal.SIGKILL)


Tell = Callable[[Story], Awaitable[None]]
Spoil = Callable[[Path], None]


@attrs.frozen
class Telling:
    """A story and its end: what is done to the files afterwards, and how many acknowledged records that costs."""

    tell: Tell
    spoil: Spoil | None
    loses: int
    simulated: bool


STORIES: dict[str, Telling] = {}


def story(*, spoil: Spoil | None = None, loses: int = 0, simulated: bool = False) -> Callable[[Tell], Tell]:
    """Make a story known by its name."""

    def known(function: Tell) -> Tell:
        STORIES[function.__name__.replace("_", "-")] = Telling(function, spoil, loses, simulated)
        return function

    return known


def lower(**limits: int) -> None:
    """Lower limits: names are module__NAME with the module's last word."""
    homes = {
        "journal": "callboard.log.journal.journal",
        "committer": "callboard.actors.broker.committer",
        "catalog": "callboard.actors.broker.catalog",
        "index_file": "callboard.log.segments.index_file",
    }
    for name, value in limits.items():
        home, _, constant = name.partition("__")
        module = import_module(homes[home])
        getattr(module, constant)
        setattr(module, constant, value)


async def take(consumer: Any, count: int) -> list[Any]:
    """The next messages, unsettled, by partition and offset."""
    messages = [await consumer.get() for _ in range(count)]
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def attempts_of(offsets: Any, attempt: int = 1, partition: int = 0) -> list[list[int]]:
    """Deliveries as they are expected."""
    return [[partition, offset, attempt] for offset in offsets]


def logs_of(directory: Path, name: str, partition: int = 0) -> list[Path]:
    """The segments of a partition of the only topic, or of "catalog", or of "delivery"."""
    if name == "catalog":
        return sorted((directory / "catalog").glob("*.log"))
    (topic,) = (directory / "topics").iterdir()
    place = topic / str(partition) / ("delivery" if name == "delivery" else "")
    return sorted(place.glob("*.log"))


def frames_in(content: bytes) -> list[tuple[int, int]]:
    """Where frames begin and end."""
    found = []
    at = 128
    while content[at : at + 4] == MAGIC:
        end = at + HEADER_BYTES + int.from_bytes(content[at + 16 : at + 20], "little")
        found.append((at, end))
        at = end
    return found


def tear(path: Path) -> None:
    """Half a frame behind the last one, as if it was being written."""
    content = bytearray(path.read_bytes())
    start, end = frames_in(content)[-1]
    half = content[start : start + HEADER_BYTES + (end - start - HEADER_BYTES) // 2]
    content[end : end + len(half)] = half
    path.write_bytes(content)


def flip(path: Path, frame: int) -> None:
    """One wrong bit in the middle of a frame."""
    content = bytearray(path.read_bytes())
    start, end = frames_in(content)[frame]
    content[(start + end) // 2] ^= 1
    path.write_bytes(content)


def cut_last(path: Path, count: int) -> None:
    """The last frames were never stored: zeros."""
    content = bytearray(path.read_bytes())
    frames = frames_in(content)[-count:]
    start, end = frames[0][0], frames[-1][1]
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def lose_the_end(directory: Path) -> None:
    """The last five frames of the log are gone, and what named them durable."""
    (path,) = logs_of(directory, "log")
    cut_last(path, 5)
    path.with_suffix(".index").unlink(missing_ok=True)
    slot = struct.pack("<4sHHQQI", b"CBCM", 1, 0, 15, 15, 0)
    (path.parent / "committed").write_bytes(2 * (slot + struct.pack("<I", zlib.crc32(slot))))


def write_out(tell: Story) -> None:
    """The simulated disk's files, as real ones."""
    for path, content in (tell.disk.files() if tell.disk else {}).items():
        place = tell.directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
