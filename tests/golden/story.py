"""What the stories of `generate.py` are made with: a runtime and a list of what was promised."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import test_golden_directories as golden

import callboard

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KIB = 1024


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
        self.records: dict[str, dict[str, list[Any]]] = {}
        self.delivers: dict[str, list[list[int]]] = {}

    def open(self) -> Any:
        """A runtime on the directory."""
        return callboard.open_runtime(self.directory, clock=self.clock)

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


STORIES: dict[str, Tell] = {}


def story(function: Tell) -> Tell:
    """Make a story known by its name."""
    STORIES[function.__name__.replace("_", "-")] = function
    return function


async def take(consumer: Any, count: int) -> list[Any]:
    """The next messages, unsettled, by partition and offset."""
    messages = [await consumer.get() for _ in range(count)]
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def attempts_of(offsets: Any, attempt: int = 1, partition: int = 0) -> list[list[int]]:
    """Deliveries as they are expected."""
    return [[partition, offset, attempt] for offset in offsets]
