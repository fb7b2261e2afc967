"""Directories that cannot be opened: a file, no permission, a newer format. Each is left as it was."""

from __future__ import annotations

import os
import pwd
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.log.format.segment import SEGMENT_HEADER_BYTES
from callboard.simulations.disk.memory_disk import MemoryDisk


async def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    """It is named, and left alone."""
    place = tmp_path / "data"
    place.write_text("mine")
    with pytest.raises(callboard.StorageError) as caught:
        async with callboard.open_runtime(place):
            pass
    assert "data" in str(caught.value)
    assert place.read_text() == "mine"


@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_directory_without_permission(tmp_path: Path, mode: int) -> None:
    """Unreadable or read-only: a clear error (root is asked to be somebody else for the time)."""
    place = tmp_path / "data"
    place.mkdir()

    async def open_it() -> None:
        with pytest.raises(callboard.StorageError) as caught:
            async with callboard.open_runtime(place):
                pass
        assert "ermission" in str(caught.value)

    for path in (place, *place.parents):
        if path.stat().st_uid == os.geteuid() and path.stat().st_mode & 0o777 == 0o700:
            path.chmod(0o711)
    place.chmod(mode)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(pwd.getpwnam("nobody").pw_uid)
            trio.run(open_it)
            os.write(writer, b"ok")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    place.chmod(0o700)
    assert os.read(reader, 10) == b"ok"
    assert list(place.iterdir()) == []


async def test_a_newer_format_is_refused_and_left_alone(autojump_clock: Any) -> None:
    """A segment of a version to come: `FormatTooNew` names both versions; not a byte changes but the lock."""
    for part in ("catalog/", "/delivery/", "/0/0"):
        disk = MemoryDisk()
        async with callboard.open_runtime(disk=disk) as runtime:
            await (await runtime.create_topic("orders")).publish(b"0")
        (path,) = (
            path
            for path in disk.files()
            if part in path and path.endswith(".log") and ("/delivery/" in path) == (part == "/delivery/")
        )
        make_newer(disk, path)
        before = {path: data for path, data in disk.files().items() if path != "lock"}
        found = await refusal_of(disk)
        assert found.found > found.supported
        assert {path: data for path, data in disk.files().items() if path != "lock"} == before, part


async def refusal_of(disk: MemoryDisk) -> callboard.FormatTooNew:
    """What opening the runtime, or else publishing to its partition, is refused with."""
    try:
        async with callboard.open_runtime(disk=disk) as runtime:
            with pytest.raises(callboard.PartitionUnavailable) as unavailable:
                await runtime.topic("orders").publish(b"1")
            assert "newer Callboard" in str(unavailable.value)
            assert isinstance(unavailable.value.__cause__, callboard.FormatTooNew)
            return unavailable.value.__cause__
    except callboard.FormatTooNew as error:
        return error


def make_newer(disk: MemoryDisk, path: str) -> None:
    """Let a segment's header claim the next version, checksums and all."""
    data = bytearray(disk.files()[path])
    half = SEGMENT_HEADER_BYTES // 2
    for start in (0, half):
        copy = data[start : start + half]
        version = copy.index(1, 4)
        copy[version] += 1
        copy[-4:] = struct.pack("<I", zlib.crc32(copy[:-4]))
        data[start : start + half] = copy
    disk.plant_file(path, bytes(data))
