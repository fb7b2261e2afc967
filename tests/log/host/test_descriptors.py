"""Open files are a cache: fewer descriptors than open handles, none for what is idle, and no error report is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard.log.errors import PlanFailed, StorageError
from callboard.log.host import verbs
from callboard.log.host.disk import HostDisk
from callboard.log.seams.disk import (
    Close,
    Create,
    Link,
    MakeDirectory,
    Open,
    Rename,
    Sync,
    Truncate,
    Unlink,
    Write,
    Zero,
)

MANY = """
import resource, sys, trio
limit, partitions = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from callboard import open_runtime

async def fill(directory):
    async with open_runtime(directory) as runtime:
        topic = await runtime.create_topic("orders", partitions=partitions)
        for turn in range(2):
            async with trio.open_nursery() as nursery:
                for number in range(partitions):
                    async def publish(number=number):
                        await topic.publish(b"%d of %d" % (turn, number), partition=number)
                    nursery.start_soon(publish)

async def read(directory):
    async with open_runtime(directory) as runtime:
        topic = runtime.topic("orders")
        found = []
        async with topic.subscribe("all") as consumer:
            while len(found) < 2 * partitions:
                async for batch in consumer.batches(max_records=100):
                    found += batch.values()
                    await batch.ack()
                    break
        found.sort()
        expected = sorted(b"%d of %d" % (turn, number) for turn in range(2) for number in range(partitions))
        print(found == expected)

trio.run(fill, sys.argv[1])
trio.run(read, sys.argv[1])
"""


def open_files(root: Path) -> list[str]:
    """The files below `root` that this process has open, by name."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the one that read the directory
        if path.startswith(f"{root}/"):
            found.append(path.removeprefix(f"{root}/"))
    return sorted(found)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[HostDisk]:
    """A disk that keeps four files open."""
    made = HostDisk(tmp_path, descriptors=4)
    yield made
    await made.aclose()


async def filled(disk: HostDisk, count: int) -> tuple[Any, list[Any]]:
    """An incarnation with `count` open files, each written and synced."""
    life = await disk.incarnate("owner")
    handles = [life.handle(f"f{number}") for number in range(count)]
    for number, handle in enumerate(handles):
        await life.submit((Create(handle), Write(handle, 0, (b"%02d" % number,)), Sync(handle)))
    return life, handles


@pytest.mark.parametrize(
    ("limit", "partitions"),
    [(64, 40), (128, 100), pytest.param(1024, 1000, marks=pytest.mark.slow)],
)
def test_many_partitions_open_with_few_descriptors(tmp_path: Path, limit: int, partitions: int) -> None:
    """A topic of many more partitions than descriptors is filled, opened again and consumed to the end."""
    script = [sys.executable, "-c", MANY, str(tmp_path / "data"), str(limit), str(partitions)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_too_few_descriptors_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    """Below the minimum nothing is opened, and the error names how many there must be."""
    script = (
        "import resource, sys, trio\n"
        "from callboard import StorageError, open_runtime\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "async def main():\n"
        "    try:\n"
        "        async with open_runtime(sys.argv[1]): pass\n"
        "    except StorageError as error:\n"
        "        print(error.limit, error.needed, error)\n"
        "trio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "data"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("40 48 "), done.stderr
    assert "ulimit -n 48" in done.stdout
    assert not (tmp_path / "data").exists()


async def test_an_idle_partition_has_no_descriptor(tmp_path: Path) -> None:
    """What was synced and is not used is put away, marks have no descriptor, and all is there on the next use."""
    disk = HostDisk(tmp_path)
    disk.executor.files.idle_s = 0.0
    life, handles = await filled(disk, 3)
    mark = await life.mark("m", 8)
    await life.submit(())  # the one thread tidies up between its jobs
    assert open_files(tmp_path) == []
    mark.store(b"12345678")
    assert (tmp_path / "m").read_bytes() == mark.load() == b"12345678"
    assert life.read_cached(handles[0], 0, 2) is None
    assert [await life.read(handle, 0, 2) for handle in handles] == [b"00", b"01", b"02"]
    await disk.aclose()


async def test_a_reader_keeps_what_the_owner_removes(tmp_path: Path) -> None:
    """A disk for reading keeps idle files open: another process owns their names and may take them away."""
    (tmp_path / "a").write_bytes(b"content")
    disk = HostDisk(tmp_path, read_only=True)
    disk.executor.files.idle_s = 0.0
    life = await disk.incarnate("reader")
    handle = life.handle("a")
    await life.submit((Open(handle),))
    await life.submit(())
    (tmp_path / "a").unlink()
    assert await life.read(handle, 0, 7) == b"content"
    await disk.aclose()


async def test_the_least_recently_used_are_put_away(small: HostDisk, tmp_path: Path) -> None:
    """Opening one more than may be open puts away the one that was not used for longest."""
    life, handles = await filled(small, 4)
    await life.read(handles[0], 0, 2)
    extra = life.handle("extra")
    await life.submit((Create(extra),))
    assert open_files(tmp_path) == ["extra", "f0", "f2", "f3"]
    await life.submit((Write(handles[1], 2, (b"!",)), Sync(handles[1])))
    assert open_files(tmp_path) == ["extra", "f0", "f1", "f3"]
    assert await life.read(handles[1], 0, 10) == b"01!"


async def test_what_is_not_synced_is_synced_before_it_is_put_away(
    small: HostDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that need no sync go first; when there are none left, the others are synced before they are closed."""
    life, handles = await filled(small, 4)
    for handle in handles[:3]:
        await life.submit((Write(handle, 2, (b"?",)),))
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(small.executor.files, "_sync", sync)
    extras = [life.handle(f"extra{number}") for number in range(2)]
    await life.submit((Create(extras[0]), Write(extras[0], 0, (b"1",))))
    assert (synced, open_files(tmp_path)) == ([], ["extra0", "f0", "f1", "f2"])
    await life.submit((Create(extras[1]),))
    assert (synced, open_files(tmp_path)) == (["f0"], ["extra0", "extra1", "f1", "f2"])


async def test_a_failed_sync_of_the_cache_is_told_by_the_next_sync(
    small: HostDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that the cache meets belongs to the file's owner, who hears of it when it syncs (FH3)."""
    life, handles = await filled(small, 4)
    for handle in handles:
        await life.submit((Write(handle, 2, (b"?",)),))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(small.executor.files, "_sync", fail)
    extra = life.handle("extra")
    await life.submit((Create(extra),))
    assert open_files(tmp_path) == ["extra", "f0", "f1", "f2", "f3"]
    for handle in handles:
        with pytest.raises(PlanFailed) as caught:
            await life.submit((Write(handle, 2, (b"!",)), Sync(handle)))
        assert (caught.value.index, caught.value.error.errno) == (1, errno.EIO)


async def test_a_file_that_was_put_away_outlives_its_name(small: HostDisk, tmp_path: Path) -> None:
    """Removed, replaced, renamed and moved files are read through their handles as if they had been open all along."""
    life, (removed, replaced, renamed, *rest) = await filled(small, 8)
    other, below = life.handle("other"), life.handle("d/below")
    await life.submit((MakeDirectory("d"), Create(below), Write(below, 0, (b"below",)), Sync(below)))
    await life.submit((Create(other), Write(other, 0, (b"other",)), Sync(other)))
    for handle in rest:
        await life.read(handle, 0, 2)
    assert set(open_files(tmp_path)).isdisjoint({"f0", "f1", "f2", "d/below"})
    await life.submit(
        (Unlink("f0"), Rename("other", "f1"), Link("f2", "linked"), Rename("f2", "else"), Rename("d", "e"))
    )
    for handle in rest:
        await life.read(handle, 0, 2)
    assert [await life.read(handle, 0, 5) for handle in (removed, replaced, renamed, other, below)] == [
        b"00",
        b"01",
        b"02",
        b"other",
        b"below",
    ]
    await life.submit((Close(renamed), Close(below)))
    assert (tmp_path / "else").read_bytes() == b"02"


async def test_a_file_that_somebody_else_replaced_is_refused(small: HostDisk, tmp_path: Path) -> None:
    """A file that is another one when it is opened anew is not written and not read."""
    life, handles = await filled(small, 8)
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "new").rename(tmp_path / "f0")
    (tmp_path / "f1").unlink()
    with pytest.raises(StorageError, match="replaced"):
        await life.read(handles[0], 0, 2)
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Write(handles[1], 0, (b"x",)),))
    assert caught.value.error.errno == errno.ENOENT
    assert (tmp_path / "f0").read_bytes() == b"new"


async def test_being_put_away_changes_no_verb(small: HostDisk, tmp_path: Path) -> None:
    """Every verb on a handle works as on an open file, and an open handle is not opened twice."""
    life, handles = await filled(small, 12)
    assert len(open_files(tmp_path)) == 4
    await life.submit((Write(handles[0], 0, (b"zz",)), Sync(handles[0])))
    await life.submit((Zero(handles[1], 0, 4), Truncate(handles[2], 1), Close(handles[3]), Open(handles[3])))
    assert [await life.size(handle) for handle in handles[:4]] == [2, 4, 1, 2]
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Open(handles[5]),))
    assert caught.value.error.errno == errno.EBUSY


async def test_what_is_synced_stays_known_while_put_away(
    small: HostDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file opened anew is written and synced in one call, as one that stayed open."""
    life, handles = await filled(small, 8)
    flags: list[int] = []
    plain = verbs._pwritev

    def watched(descriptor: int, buffers: Any, offset: int, how: int) -> int:
        flags.append(how)
        return plain(descriptor, buffers, offset, how)

    monkeypatch.setattr(verbs, "_pwritev", watched)
    await life.submit((Write(handles[0], 2, (b"!",)), Sync(handles[0])))
    assert flags == [verbs.RWF_DSYNC]


async def test_files_are_put_away_when_the_process_has_no_descriptors_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the rest of the program has taken the descriptors, the disk makes do with fewer."""
    disk = HostDisk(tmp_path)
    life, handles = await filled(disk, 4)
    real, left = os.open, [errno.EMFILE, errno.ENFILE]

    def scarce(path: str, flags: int, mode: int = 0o777) -> int:
        if left:
            number = left.pop()
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, mode)

    disk.executor.files.capacity = 8
    monkeypatch.setattr(os, "open", scarce)
    extra = life.handle("extra")
    await life.submit((Create(extra),))
    monkeypatch.undo()
    assert open_files(tmp_path) == ["extra", "f2", "f3"]
    assert [await life.read(handle, 0, 2) for handle in handles] == [b"00", b"01", b"02", b"03"]
    await disk.aclose()
