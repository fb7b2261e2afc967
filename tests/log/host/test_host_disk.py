"""What only the real disk can show: threads that hang, full file systems, symbolic links, descriptors, processes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from callboard.log.errors import DirectoryLocked, InvalidArgument, PlanFailed, StaleIncarnation, StorageError
from callboard.log.host.disk import HostDisk
from callboard.log.seams.disk import (
    Close,
    Create,
    Link,
    MakeDirectory,
    Open,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
    Zero,
)


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[HostDisk]:
    """A disk on an existing, empty folder."""
    made = HostDisk(tmp_path)
    yield made
    await made.aclose()


class Blocking(list[bytes]):
    """Buffers that keep the thread that writes them, but not the loop that counts their bytes, until they are let
    go."""

    def __init__(self) -> None:
        super().__init__([b"late"])
        self.reached = threading.Event()
        self.go = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        if threading.current_thread() is not threading.main_thread():
            self.reached.set()
            self.go.wait(60)
        return super().__iter__()


def descriptors() -> set[str]:
    """The descriptors that this process has open, by what they stand for."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            continue  # the one that read the directory
    return found


# -- a disk that hangs


async def test_a_hanging_plan_is_visible_and_never_abandoned(disk: HostDisk) -> None:
    """While a thread hangs, others work; cancelling and the successor wait until it is done (DK1, DK3)."""
    old = await disk.incarnate("owner")
    other = await disk.incarnate("other")
    handle = old.handle("a")
    await old.submit((Create(handle),))
    buffers = Blocking()
    got: list[Any] = []

    async def succeed() -> None:
        got.append(await disk.incarnate("owner"))

    async with trio.open_nursery() as nursery:
        doomed = trio.CancelScope()

        async def write() -> None:
            with doomed:
                await old.submit((Write(handle, 0, buffers),))

        nursery.start_soon(write)
        await trio.to_thread.run_sync(buffers.reached.wait)
        doomed.cancel()
        nursery.start_soon(succeed)
        await trio.testing.wait_all_tasks_blocked()
        assert old.in_flight_since is not None
        assert got == []
        await other.submit((MakeDirectory("d"),))
        with pytest.raises(StaleIncarnation):
            await old.submit(())
        buffers.go.set()
    again = got[0].handle("a")
    await got[0].submit((Open(again),))
    assert await got[0].read(again, 0, 10) == b"late"


async def test_a_successor_and_closing_wait_for_the_same_plan(tmp_path: Path) -> None:
    """Both who wait for a plan of the fenced incarnation hear that it has ended."""
    disk = HostDisk(tmp_path)
    old = await disk.incarnate("owner")
    handle = old.handle("a")
    await old.submit((Create(handle),))
    buffers = Blocking()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(old.submit, (Write(handle, 0, buffers),))
            await trio.to_thread.run_sync(buffers.reached.wait)
            nursery.start_soon(disk.aclose)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(disk.forget, "owner")
            await trio.testing.wait_all_tasks_blocked()
            buffers.go.set()


async def test_threads_grow_with_need_up_to_the_limit(tmp_path: Path) -> None:
    """One thread serves one task; hanging plans take further threads up to the limit; closing ends all."""
    disk = HostDisk(tmp_path, threads_max=3)
    life = await disk.incarnate("owner")
    for number in range(10):
        await life.submit((MakeDirectory(f"d{number}"),))
    assert disk.pool.threads == 1
    handles = [life.handle(f"f{number}") for number in range(5)]
    await life.submit([Create(handle) for handle in handles])
    blockers = [Blocking() for _ in handles]
    async with trio.open_nursery() as nursery:
        for handle, blocker in zip(handles, blockers, strict=True):
            nursery.start_soon(life.submit, (Write(handle, 0, blocker),))
        await trio.testing.wait_all_tasks_blocked()
        assert disk.pool.threads == 3
        for blocker in blockers:
            blocker.go.set()
    assert [await life.size(handle) for handle in handles] == [4] * 5
    await disk.aclose()
    assert disk.pool.threads == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("callboard-disk")]


async def test_closing_a_handle_spares_a_thread_that_uses_it(disk: HostDisk) -> None:
    """A descriptor that a thread works with is closed only after it, so its number is not reused meanwhile (FH1)."""
    life = await disk.incarnate("owner")
    handle, other = life.handle("a"), life.handle("b")
    await life.submit((Create(handle),))
    buffers = Blocking()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.submit, (Write(handle, 0, buffers),))
        await trio.to_thread.run_sync(buffers.reached.wait)
        await life.submit((Close(handle), Create(other), Write(other, 0, [b"other"])))
        buffers.go.set()
    assert await life.read(other, 0, 10) == b"other"
    await life.submit((Open(handle),))
    assert await life.read(handle, 0, 10) == b"late"


# -- descriptors, runs, processes


async def test_fenced_and_closed_disks_leave_no_descriptor(tmp_path: Path) -> None:
    """Handles and marks of the fenced are closed when the successor comes, all others when the disk is closed."""
    disk = HostDisk(tmp_path)
    await disk.lock({})
    await (await disk.incarnate("warm")).submit(())
    before = descriptors()
    life = await disk.incarnate("owner")
    handles = [life.handle(f"f{number}") for number in range(5)]
    await life.submit([Create(handle) for handle in handles])
    await life.mark("m", 8)
    added = descriptors() - before
    assert len(added) == 5  # a mark has none
    assert not [name for name in added if os.get_inheritable(int(name.split()[0]))]
    life = await disk.incarnate("owner")
    assert descriptors() == before
    handle = life.handle("f0")
    await life.submit((Open(handle),))
    await disk.aclose()
    assert [name.rpartition("/")[2] for name in before - descriptors()] == ["lock"]


def test_one_disk_serves_several_runs(tmp_path: Path) -> None:
    """The same disk works in one trio run after another, closed in between or not."""
    disk = HostDisk(tmp_path)

    async def write(name: str, *, close: bool) -> list[str]:
        life = await disk.incarnate("owner")
        await life.submit((MakeDirectory(name),))
        names = [entry.name for entry in await life.list("")]
        if close:
            await disk.aclose()
        return names

    assert trio.run(lambda: write("a", close=False)) == ["a"]
    assert trio.run(lambda: write("b", close=True)) == ["a", "b"]
    assert trio.run(lambda: write("c", close=True)) == ["a", "b", "c"]


async def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """A directory locked by another process is refused with that process's id, and free once it was killed."""
    code = (
        "import sys, trio\n"
        "from callboard.log.host.disk import HostDisk\n"
        "async def main():\n"
        "    await HostDisk(sys.argv[1]).lock({'started': 'today'})\n"
        "    print('locked', flush=True)\n"
        "    await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    root = tmp_path / "deep" / "root"
    child = subprocess.Popen([sys.executable, "-P", "-c", code, str(root)], stdout=subprocess.PIPE)  # noqa: ASYNC220
    disk = HostDisk(root)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryLocked) as caught:
            await disk.lock({})
        assert caught.value.fields["holder"]["pid"] == child.pid
        assert caught.value.fields["holder"]["started"] == "today"
        assert str(child.pid) in str(caught.value)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    (await disk.lock({})).release()
    await disk.aclose()


async def test_two_disks_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    """A second disk on a locked root is refused, and told that this very process has it."""
    one, two = HostDisk(tmp_path), HostDisk(tmp_path)
    await one.lock({})
    with pytest.raises(DirectoryLocked, match="this process"):
        await two.lock({})
    await one.aclose()
    await two.lock({})
    await two.aclose()


# -- the root folder


async def test_a_missing_root_is_made_private(tmp_path: Path) -> None:
    """Locking makes the root, for the user only, and the lock file likewise."""
    root = tmp_path / "a" / "b"
    disk = HostDisk(root)
    (await disk.lock({})).release()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "lock").stat().st_mode) == 0o600
    await disk.aclose()


async def test_a_file_is_no_root(tmp_path: Path) -> None:
    """A root that is a file, or lies below one, is refused in plain words."""
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        disk = HostDisk(tmp_path / place)
        with pytest.raises(StorageError, match="not a directory"):
            await disk.lock({})
        await disk.aclose()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything: run as a user to see this refused")
async def test_an_unreadable_root_is_refused(tmp_path: Path) -> None:
    """A root that this user may not read is refused in plain words."""
    (tmp_path / "root").mkdir(mode=0o000)
    disk = HostDisk(tmp_path / "root")
    with pytest.raises(StorageError, match="permission"):
        await disk.lock({})
    await disk.aclose()


async def test_symbolic_links_do_not_lead_out(disk: HostDisk, tmp_path: Path) -> None:
    """A symbolic link below the root is not followed, as a file or as a folder on the way."""
    outside = tmp_path.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret").write_bytes(b"secret")
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "file").symlink_to(outside / "secret")
    life = await disk.incarnate("owner")
    for verb in (
        Open(life.handle("file")),
        Open(life.handle("folder/secret")),
        Create(life.handle("folder/new")),
        Rename("folder/secret", "mine"),
        MakeDirectory("folder/new"),
        SyncDirectory("folder"),
    ):
        with pytest.raises(PlanFailed):
            await life.submit((verb,))
    for path in ("file", "folder/mark"):
        with pytest.raises(StorageError):
            await life.mark(path, 8)
    with pytest.raises(StorageError):
        await life.list("folder/below")
    assert [path.name for path in outside.iterdir()] == ["secret"]


async def test_a_fifo_is_no_file(disk: HostDisk, tmp_path: Path) -> None:
    """A FIFO in the place of a file is refused at once, where opening it plainly would hang."""
    os.mkfifo(tmp_path / "a")
    life = await disk.incarnate("owner")
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Open(life.handle("a")),))
    assert caught.value.error.errno == errno.EINVAL
    with pytest.raises(StorageError):
        await life.mark("a", 8)


# -- a full file system


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: a full file system needs the right to mount a tmpfs; run as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("fuse", [True, False])
async def test_a_full_file_system_fails_the_write(tiny: Path, fuse: bool) -> None:
    """ENOSPC is blamed on the write, fused with its sync or not; what was there is intact, and space heals it."""
    disk = HostDisk(tiny, fuse=fuse)
    life = await disk.incarnate("owner")
    log, filler = life.handle("log"), life.handle("filler")
    await life.submit((Create(log), Zero(log, 0, 65536), Sync(log), Create(filler)))
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Zero(filler, 0, 2 << 20),))
    assert caught.value.error.errno == errno.ENOSPC
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Write(log, 65536, [bytes(200_000)]), Sync(log)))
    assert (caught.value.index, caught.value.error.errno) == (0, errno.ENOSPC)
    with pytest.raises(StorageError):
        await life.mark("mark", 4096)
    await life.submit((Write(log, 0, [b"space held in reserve"]), Sync(log)))
    assert await life.read(log, 0, 5) == b"space"
    (tiny / "filler").unlink()
    await life.submit((Close(filler), Write(log, 65536, [bytes(200_000)]), Sync(log)))
    assert await life.size(log) == 265_536
    await disk.aclose()


async def test_a_file_that_may_not_grow_fails_the_write(disk: HostDisk) -> None:
    """EFBIG, here by offset, is blamed on the write although it was fused with its sync."""
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x"]), Sync(handle)))
    with pytest.raises(PlanFailed) as caught:
        await life.submit((Write(handle, (1 << 63) - 1000, [b"x"]), Sync(handle)))
    assert caught.value.error.errno in {errno.EFBIG, errno.EINVAL}
    assert caught.value.index == 0


# -- fusing


async def test_write_and_sync_are_one_call_only_when_nothing_else_is_unsynced(disk: HostDisk) -> None:
    """The file knows of bytes that a fused call would not sync: of other writes, and of its unknown past (FH2)."""
    life = await disk.incarnate("owner")
    handle, second = life.handle("a"), life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x"]), Sync(handle)))
    assert handle.file.unsynced is False
    await life.submit((Open(second), Write(second, 1, [b"y"])))
    assert handle.file is second.file
    assert handle.file.unsynced is True
    await life.submit((Write(handle, 2, [b"z"]), Sync(handle)))
    assert handle.file.unsynced is False
    await life.submit((Close(handle), Close(second), Open(handle)))
    assert handle.file.unsynced is True
    assert len(disk.executor.files) == 1


async def test_bytes_left_by_a_short_fused_write_follow(
    disk: HostDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the system takes a few bytes at a time, the rest is written after them, through all buffers."""
    from callboard.log.host import verbs

    whole = verbs._pwritev

    def short(descriptor: int, buffers: Any, offset: int, flags: int) -> int:
        return whole(descriptor, [b"".join(buffers)[:3]], offset, flags)

    monkeypatch.setattr(verbs, "_pwritev", short)
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 2, [b"ab", b"cdefg", b"", b"h"]), Sync(handle)))
    assert await life.read(handle, 0, 20) == b"\0\0abcdefgh"


@pytest.mark.parametrize(
    ("number", "index"), [(errno.EIO, 1), (errno.ENOSPC, 0), (errno.EDQUOT, 0), (errno.EFBIG, 0)]
)
async def test_a_failed_fused_call_is_blamed_rightly(
    disk: HostDisk, monkeypatch: pytest.MonkeyPatch, number: int, index: int
) -> None:
    """An error about space is the write's; any other leaves the bytes unproven and is the sync's (DK5)."""
    from callboard.log.host import verbs

    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x"]), Sync(handle)))

    def fail(descriptor: int, buffers: Any, offset: int, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(verbs, "_pwritev", fail)
        with pytest.raises(PlanFailed) as caught:
            await life.submit((Write(handle, 1, [b"y"]), Sync(handle)))
    assert (caught.value.index, caught.value.error.errno) == (index, number)
    assert handle.file.unsynced is True


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
async def test_an_old_kernel_gets_two_calls(
    disk: HostDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Where the flag is not supported, the first try falls back to writing and syncing, and so do all later ones."""
    from callboard.log.host import verbs

    tries = []

    def refuse(descriptor: int, buffers: Any, offset: int, flags: int) -> int:
        if flags:
            tries.append(flags)
            raise OSError(number, os.strerror(number))
        return os.pwritev(descriptor, buffers, offset)

    monkeypatch.setattr(verbs, "_pwritev", refuse)
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"one"]), Sync(handle)))
    await life.submit((Write(handle, 3, [b"two"]), Sync(handle)))
    assert await life.read(handle, 0, 9) == b"onetwo"
    assert len(tries) == 1


# -- cached reads


async def test_cached_reads_find_what_was_just_written(disk: HostDisk, tmp_path: Path) -> None:
    """Where the file system can tell, bytes just written are read without a thread; elsewhere the answer is None."""
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle), Write(handle, 0, [b"x" * 10_000])))
    found = life.read_cached(handle, 5_000, 10_000)
    if not disk.reads_cached:
        pytest.skip("NOT TESTED: this file system does not know RWF_NOWAIT")
    assert found == b"x" * 5_000
    os.truncate(tmp_path / "a", 3)
    assert life.read_cached(handle, 0, 10) == b"xxx"


async def test_a_read_only_disk_changes_nothing(tmp_path: Path) -> None:
    """Opened for reading only, a disk reads files and refuses every change, the lock and marks."""
    (tmp_path / "file").write_bytes(b"content")
    disk = HostDisk(tmp_path, read_only=True)
    files = await disk.incarnate("reader")
    handle, new = files.handle("file"), files.handle("new")
    await files.submit((Open(handle),))
    assert await files.read(handle, 0, 100) == b"content"
    for verb in (
        Create(new),
        Write(handle, 0, (b"C",)),
        Zero(handle, 0, 1),
        Truncate(handle, 0),
        Sync(handle),
        Rename("file", "new"),
        Link("file", "new"),
        Unlink("file"),
        MakeDirectory("new"),
        RemoveDirectory("new"),
        SyncDirectory(""),
    ):
        with pytest.raises(PlanFailed, match="reading only"):
            await files.submit((verb,))
    with pytest.raises(StorageError, match="reading only"):
        await files.mark("mark", 64)
    with pytest.raises(InvalidArgument, match="reading only"):
        await disk.lock({})
    await files.submit((Close(handle),))
    await disk.aclose()
    assert os.listdir(tmp_path) == ["file"]
