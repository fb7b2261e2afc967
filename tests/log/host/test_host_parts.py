"""The parts of the real seams that need no disk: clock, entropy, threads, and what kind of place a folder is."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path

import pytest
import trio

from callboard.log.errors import UnsupportedPlatform
from callboard.log.host import disk as disk_module
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.host.entropy import HostEntropy
from callboard.log.host.place import NETWORK_TYPES, NetworkFileSystemWarning, check_platform, mount_type
from callboard.log.host.threads import ThreadPool

MOUNTS = r"""/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/shared /shared nfs4 rw 0 0
/dev/vdb /shared/box/local xfs rw 0 0
user@host: /mnt/with\040space fuse.sshfs rw 0 0
tmpfs /over tmpfs rw 0 0
nas:/x /mnt/東京 nfs4 rw 0 0
//server/share /over cifs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/data", "ext4", False),
        ("/shared", "nfs4", True),
        ("/shared/box", "nfs4", True),
        ("/shareddata", "ext4", False),
        ("/shared/box/local/data", "xfs", False),
        ("/mnt/with space/data", "fuse.sshfs", True),
        ("/over/data", "cifs", True),
        ("/mnt/東京/data", "nfs4", True),
    ],
)
def test_the_innermost_latest_mount_counts(path: str, kind: str, network: bool) -> None:
    """The file system of a path is that of the deepest mount point above it, the last one mounted there."""
    found = mount_type(path, MOUNTS)
    assert found == kind
    assert (kind in NETWORK_TYPES) is network


async def test_network_file_systems_are_warned_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locking a root on a network file system warns the first time."""
    monkeypatch.setattr(disk_module, "file_system_type", lambda _: "nfs4")
    disk = HostDisk(tmp_path)
    with pytest.warns(NetworkFileSystemWarning, match="nfs4"):
        (await disk.lock({})).release()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (await disk.lock({})).release()
    await disk.aclose()


@pytest.mark.parametrize("platform", ["win32", "cygwin"])
def test_windows_is_refused(platform: str) -> None:
    """Windows is refused in words that say what to use instead."""
    with pytest.raises(UnsupportedPlatform, match="Linux"):
        check_platform(platform)
    check_platform("linux")
    check_platform("darwin")


async def test_the_host_clock_tells_trio_time_and_the_date() -> None:
    """Deadlines are on trio's clock; the date is the system's, in microseconds."""
    clock = HostClock()
    before = trio.current_time()
    assert before <= clock.monotonic() <= trio.current_time()
    earliest = time.time_ns() // 1000
    assert earliest <= clock.wall_us() <= time.time_ns() // 1000


def test_host_entropy_repeats_only_with_a_seed() -> None:
    """A seed fixes the draws; without one they differ."""

    def draw(entropy: HostEntropy) -> tuple[bytes, int, float]:
        return entropy.bytes(16), entropy.integer(64), entropy.random()

    assert draw(HostEntropy(1)) == draw(HostEntropy(1)) != draw(HostEntropy(2))
    assert draw(HostEntropy()) != draw(HostEntropy())
    unsigned, fraction = HostEntropy().integer(8), HostEntropy().random()
    assert 0 <= unsigned < 256
    assert 0 <= fraction < 1


async def test_errors_come_out_of_threads_as_themselves() -> None:
    """What a job raises is raised to the task that waits for it."""
    pool = ThreadPool("test-pool", 2)

    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        await pool.run(fail)
    assert await pool.run(max, 1, 2) == 2
    await pool.aclose()


async def test_a_cancelled_job_that_has_not_started_does_not_start() -> None:
    """Cancellation that is there before the job is, is delivered; the job does not run (T1)."""
    pool = ThreadPool("test-pool", 2)
    ran = threading.Event()
    with trio.CancelScope() as scope:
        scope.cancel()
        await pool.run(ran.set)
    assert scope.cancelled_caught
    await pool.aclose()
    assert not ran.is_set()


async def test_closing_a_pool_waits_for_its_jobs() -> None:
    """A pool is closed when its jobs are done and its threads have ended (T3)."""
    pool = ThreadPool("test-pool", 2)
    go = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, go.wait)
        while not pool.busy:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(pool.aclose)
        await trio.lowlevel.checkpoint()
        go.set()
    assert (pool.threads, pool.busy) == (0, 0)
    assert await pool.run(max, 1, 2) == 2
    await pool.aclose()
