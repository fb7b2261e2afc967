"""Whose a disk is: one process that has its lock, one trio run that uses it. Forked children have neither."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import trio
import trio.testing

from callboard import open_runtime
from callboard.log.errors import WrongRun
from callboard.log.host.disk import HostDisk
from callboard.log.host.threads import ThreadPool
from callboard.log.seams.disk import Create, MakeDirectory, Write

QUIET = ("-W", "ignore:This process:DeprecationWarning")
"""From Python 3.12 on, `os.fork` itself warns where there are threads."""
FORKING = """
import os, sys, time, trio
from callboard import open_runtime

async def main():
    async with open_runtime(sys.argv[1]) as runtime:
        await runtime.create_topic("orders")
        runs, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(tell, b"!")
            sys.stdin.read()
            os._exit(0)
        os.read(runs, 1)
        print("child", child, flush=True)
        if sys.argv[2] == "hangs":
            await trio.sleep_forever()

trio.run(main)
print("closed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def forking(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ended with the test, their children included: those wait for the end of their input."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[str]], root: Path, how: str) -> tuple[IO[str], int]:
    """A process that opens a runtime on `root` and forks; what it says, and the child's id."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING, root, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    started.append(process)
    assert process.stdout is not None
    return process.stdout, int(process.stdout.readline().split()[1])


async def test_a_forked_child_does_not_keep_a_closed_directory_locked(
    tmp_path: Path, forking: list[subprocess.Popen[str]]
) -> None:
    """Closing the runtime lets go of the lock, though a child that was forked before lives on."""
    said, child = start(forking, tmp_path / "data", "closes")
    assert said.readline() == "closed\n"
    os.kill(child, 0)
    async with open_runtime(tmp_path / "data") as runtime:
        assert [topic.name for topic in runtime.topics()] == ["orders"]


async def test_a_forked_child_does_not_keep_the_directory_of_a_dead_process_locked(
    tmp_path: Path, forking: list[subprocess.Popen[str]]
) -> None:
    """When the owner is killed its lock is gone, though a child lives on."""
    _, child = start(forking, tmp_path / "data", "hangs")
    forking[0].send_signal(signal.SIGKILL)
    forking[0].wait()
    os.kill(child, 0)
    async with open_runtime(tmp_path / "data") as runtime:
        assert [topic.name for topic in runtime.topics()] == ["orders"]


def test_a_forked_child_is_refused_and_the_parent_keeps_its_lock(tmp_path: Path) -> None:
    """In a child every use is refused with the reason, releasing the lock there changes nothing for the parent."""
    script = (
        "import os, sys, trio\n"
        "from callboard.log.errors import DirectoryLocked, WrongRun\n"
        "from callboard.log.host.disk import HostDisk\n"
        "async def main():\n"
        "    disk = HostDisk(sys.argv[1])\n"
        "    lock = await disk.lock({})\n"
        "    life = await disk.incarnate('owner')\n"
        "    await life.submit(())\n"
        "    if (child := os.fork()) == 0:\n"
        "        for use in (lambda: life.submit(()), lambda: life.list(''), lambda: disk.incarnate('owner'),"
        " disk.aclose):\n"
        "            try:\n"
        "                await use()\n"
        "            except WrongRun as error:\n"
        "                print('forked child' in str(error), flush=True)\n"
        "        lock.release()\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    try:\n"
        "        await HostDisk(sys.argv[1]).lock({})\n"
        "    except DirectoryLocked:\n"
        "        print('locked')\n"
        "    await life.submit(())\n"
        "    await disk.aclose()\n"
        "trio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, *QUIET, "-c", script, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["True"] * 4 + ["locked"], "")


def test_a_runtime_tells_a_forked_child_why_it_refuses(tmp_path: Path) -> None:
    """Publishing in a forked child fails with the reason; the parent's runtime goes on."""
    script = (
        "import os, sys, trio\n"
        "from callboard import CallboardError, open_runtime\n"
        "async def main():\n"
        "    async with open_runtime(sys.argv[1]) as runtime:\n"
        "        topic = await runtime.create_topic('orders')\n"
        "        await topic.publish(b'before')\n"
        "        if (child := os.fork()) == 0:\n"
        "            try:\n"
        "                await topic.publish(b'in the child')\n"
        "            except CallboardError as error:\n"
        "                print('forked child' in str(error), flush=True)\n"
        "            os._exit(0)\n"
        "        os.waitpid(child, 0)\n"
        "        print((await topic.publish(b'after')).offset)\n"
        "trio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, *QUIET, "-c", script, tmp_path / "data"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["True", "1"], done.stderr


async def test_another_trio_run_is_refused(tmp_path: Path) -> None:
    """A disk in use is refused in another run, in every call; its own run goes on, and closes."""
    disk = HostDisk(tmp_path)
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle),))

    async def elsewhere() -> None:
        for use in (
            lambda: life.submit((Write(handle, 0, (b"elsewhere",)),)),
            lambda: life.read(handle, 0, 10),
            lambda: disk.incarnate("owner"),
            lambda: disk.forget("owner"),
            lambda: disk.lock({}),
            disk.aclose,
        ):
            with pytest.raises(WrongRun, match="another trio run"):
                await use()

    await trio.to_thread.run_sync(trio.run, elsewhere)
    await life.submit((Write(handle, 0, (b"here",)),))
    assert await life.read(handle, 0, 10) == b"here"
    await disk.aclose()


@pytest.mark.parametrize("inline", [False, True])
async def test_a_thread_without_trio_is_refused(tmp_path: Path, inline: bool) -> None:
    """A coroutine of a disk that is driven outside trio is told why it cannot work."""
    disk = HostDisk(tmp_path, inline=inline)
    life = await disk.incarnate("owner")

    def drive() -> None:
        with pytest.raises(WrongRun, match="outside the trio run"):
            life.submit((MakeDirectory("d"),)).send(None)

    await trio.to_thread.run_sync(drive)
    await disk.aclose()


async def test_jobs_of_hung_directories_do_not_use_up_the_threads() -> None:
    """Jobs that do not answer are left out of the limit: others get a thread, up to the limit of hung ones."""
    pool = ThreadPool("test-pool", 2, hung_limit=3, hung_after_s=0.01)
    go = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(pool.run, go.wait, 60)
        with trio.fail_after(30):
            answers = [await pool.run(max, number, 0) for number in range(5)]
        nursery.start_soon(pool.run, go.wait, 60)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.05) as scope:  # 3 are left out, 2 count: nothing is left for others
            await pool.run(max, 1, 2)
        threads = pool.threads
        go.set()
    assert (answers, threads) == ([0, 1, 2, 3, 4], 5)
    assert scope.cancelled_caught
    assert await pool.run(max, 1, 2) == 2
    await pool.aclose()


async def test_a_job_that_waits_for_a_thread_can_be_cancelled() -> None:
    """While all threads are busy a job has not begun, so cancellation is delivered; the place goes to the next (T1)."""
    pool = ThreadPool("test-pool", 1)
    go, ran = threading.Event(), threading.Event()
    got: list[int] = []

    async def later() -> None:
        got.append(await pool.run(max, 1, 2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, go.wait, 60)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            nursery.start_soon(later)
            scope.cancel()
            await pool.run(ran.set)
        await trio.testing.wait_all_tasks_blocked()
        found = (pool.busy, pool.threads)
        go.set()
    assert (found, got) == ((2, 1), [2])
    assert not ran.is_set()
    await pool.aclose()
