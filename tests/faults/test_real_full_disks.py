"""A real file system that is full: a small tmpfs, and a small ext4 on a loop device. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import callboard

SIZE_BYTES = 24 * 1024 * 1024


def cannot(reason: str) -> None:
    """Skip so that it is heard; in CI nothing may be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"a real full disk must be tested in CI, and cannot be: {reason}")
    warnings.warn(f"no test of a real full disk: {reason}", pytest.PytestWarning, stacklevel=2)
    pytest.skip(reason)


def run(*command: str) -> None:
    """Run a tool; skip when it refuses (no root, no capability, no loop device)."""
    if shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        cannot(f"there is no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        cannot(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def small(request: Any, tmp_path: Path) -> Iterator[Path]:
    """A directory on a small file system of its own."""
    if os.geteuid() != 0:
        cannot("it takes root to mount a file system")
    place = tmp_path / "mount"
    place.mkdir()
    if request.param == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(place))
    else:
        image = tmp_path / "image"
        image.write_bytes(b"")
        os.truncate(image, SIZE_BYTES)
        run("/usr/sbin/mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
        run("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


async def test_a_full_file_system_stops_only_publishing(small: Path) -> None:
    """The publisher hears DiskFull; reads, leases and acks go on; with space again publishing does; all of it holds."""
    ballast = small / "ballast"
    ballast.write_bytes(bytes(8 * 1024 * 1024))
    stored: dict[int, bytes] = {}
    acked: set[int] = set()
    async with callboard.open_runtime(small / "data") as runtime:
        topic = await runtime.create_topic("orders", segment_bytes=1024 * 1024)

        async def publish(size: int) -> None:
            values = [b"%d:" % (len(stored) + number) + os.urandom(size) for number in range(5)]
            receipts = await topic.publish_batch(values)
            stored.update({receipt.offset: value for receipt, value in zip(receipts, values, strict=True)})

        async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
            for size in (50_000, 5_000, 500):
                with pytest.raises(callboard.DiskFull) as caught:
                    while True:
                        await publish(size)
                assert "Free space" in str(caught.value)
            for _ in range(50):
                message = await consumer.get()
                assert message.value == stored[message.offset]
                await message.ack()
                acked.add(message.offset)
            assert {record.offset: record.value async for record in topic.read()} == stored
            with pytest.raises(callboard.DiskFull):
                while True:
                    await publish(500)
            ballast.unlink()
            await publish(50_000)
            (part,) = await topic.describe()
            assert part.state == "running"
            with pytest.raises(callboard.DiskFull):
                while True:
                    await publish(50_000)
    async with callboard.open_runtime(small / "data") as runtime:
        topic = runtime.topic("orders")
        assert {record.offset: record.value async for record in topic.read()} == stored
        async with topic.subscribe("group", visibility_timeout=3600.0) as consumer:
            for _ in range(len(stored) - len(acked)):
                message = await consumer.get()
                assert message.offset not in acked
                acked.add(message.offset)
