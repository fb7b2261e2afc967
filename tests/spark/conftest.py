"""What the tests of Spark's source share. Modules that need Spark's packages are fixtures, so all are collected."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import trio

from callboard.log.format.columns import Columns
from callboard.offline import files_below
from callboard.recordings.writer import new_recording

START_US = 1_700_000_000_000_000


@pytest.fixture(scope="session")
def arrow(spark_packages: None) -> Any:
    """`callboard.spark.arrow`."""
    return import_module("callboard.spark.arrow")


@pytest.fixture(scope="session")
def encoding(spark_packages: None) -> Any:
    """`callboard.spark.encoding`."""
    return import_module("callboard.spark.encoding")


@pytest.fixture(scope="session")
def batches(spark_packages: None) -> Any:
    """`callboard.spark.batches`."""
    return import_module("callboard.spark.batches")


@pytest.fixture(scope="session")
def options(spark_packages: None) -> Any:
    """`callboard.spark.options`."""
    return import_module("callboard.spark.options")


@pytest.fixture(scope="session")
def streaming(spark_packages: None) -> Any:
    """`callboard.spark.streaming`."""
    return import_module("callboard.spark.streaming")


@pytest.fixture(scope="module")
def reads(spark: Any) -> Any:
    """Reads with options, in a session that knows the format."""
    from callboard.spark import register

    register(spark)

    def read(path: str, **options: str) -> Any:
        reader = spark.read.format("callboard")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(path)

    return read


@pytest.fixture(scope="session")
def start_us() -> int:
    """The time of the first record of `recording`."""
    return START_US


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two partitions of a thousand records each, a second apart, several segments."""
    folder = tmp_path_factory.mktemp("recordings")

    async def make() -> None:
        async with (
            files_below(str(folder), writable=True) as files,
            new_recording(files, "day", partitions=2, segment_bytes=65_536) as writer,
        ):
            for partition in range(2):
                for first in range(0, 1_000, 100):
                    numbers = range(first, first + 100)
                    columns = Columns.build(
                        [b"%d" % number + bytes(200) for number in numbers],
                        [b"key-%d" % (number % 7) if number % 10 else None for number in numbers],
                        [{"number": b"%d" % number} for number in numbers],
                        [START_US + 1_000_000 * number for number in numbers],
                    )
                    columns.append_time_us = START_US + 1_000_000 * first
                    await writer.append(partition, columns)

    trio.run(make)
    return str(folder / "day")
