"""The loop waits in place for quick jobs, never longer than PATIENCE_S, and not at the expense of other tasks (T4)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

from callboard.log.host import threads
from callboard.log.host.disk import IN_PLACE_BYTES_MAX, HostDisk
from callboard.log.host.threads import Job, Patience, ThreadPool
from callboard.log.seams.disk import Create, Sync, SyncDirectory, Write, Zero


@pytest.fixture
def signalled() -> Iterator[threading.Event]:
    """Set when SIGUSR1 has raised in the pool's wait in place; elsewhere the signal does nothing."""
    raised = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name == "wait_out" and not raised.is_set():
            raised.set()
            raise TimeoutError(f"signal {number}")

    before = signal.signal(signal.SIGUSR1, handle)
    yield raised
    signal.signal(signal.SIGUSR1, before)


async def run_in_place(pool: ThreadPool, function: Callable[..., Any], *arguments: Any) -> Any:
    """As a plan is run."""
    job = pool.start(function, *arguments, in_place=True)
    assert job is not None
    await trio.lowlevel.cancel_shielded_checkpoint()
    return await pool.finish(job)


async def test_a_quick_job_answers_in_place() -> None:
    """What a job returns or raises comes out of a wait in place as it does otherwise."""
    pool = ThreadPool("test-pool", 2)

    def fail() -> None:
        raise KeyError("gone")

    for _ in range(100):
        assert await run_in_place(pool, max, 1, 2) == 2
        with pytest.raises(KeyError, match="gone"):
            await run_in_place(pool, fail)
    await pool.aclose()


async def test_waiting_for_a_job_that_a_thread_ended_first_lets_others_run() -> None:
    """However quick the thread was, the loop makes a pass before its job is handed over."""
    pool, steps = ThreadPool("test-pool", 2), list[trio.lowlevel.Task]()

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps.append(task)

    trio.lowlevel.add_instrument(instrument := Steps())
    job = pool.start(max, 1, 2)
    assert job is not None
    while not job.claim.locked():  # the thread takes it last
        pass
    assert await pool.finish(job) == 2
    trio.lowlevel.remove_instrument(instrument)
    assert steps == [trio.lowlevel.current_task()]
    await pool.aclose()


async def test_a_job_that_hangs_does_not_hold_the_loop() -> None:
    """A job that never answers is waited for in place no longer than the bound; then others run (T1, T4)."""
    pool = ThreadPool("test-pool", 2)
    go = threading.Event()
    async with trio.open_nursery() as nursery:

        async def hang() -> None:
            await run_in_place(pool, go.wait, 60)

        nursery.start_soon(hang)
        nursery.start_soon(hang)
        await trio.testing.wait_all_tasks_blocked()
        busy = pool.busy
        go.set()  # only a loop that is not held gets here
    assert busy == 2
    await pool.aclose()


async def test_runnable_tasks_run_before_the_loop_waits() -> None:
    """While the thread works, every runnable task has its turn first, so plans of several owners overlap."""
    pool = ThreadPool("test-pool", 3)
    meeting = threading.Barrier(3)
    async with trio.open_nursery() as nursery:

        async def meet() -> None:
            await run_in_place(pool, meeting.wait, 60)

        for _ in range(3):  # a job ends only when all three are in threads
            nursery.start_soon(meet)
    await pool.aclose()


async def test_an_exception_of_a_signal_handler_waits_for_the_job(
    signalled: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that raises while the loop waits leaves no thread behind: the job is waited for first (T1)."""
    monkeypatch.setattr(threads, "PATIENCE_S", 60.0)
    pool = ThreadPool("test-pool", 1)
    main, ended = threading.get_ident(), threading.Event()

    def disturb() -> None:
        while not signalled.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
        ended.set()

    with pytest.raises(TimeoutError, match="signal"):
        await run_in_place(pool, disturb)
    assert ended.is_set()
    assert await pool.run(max, 1, 2) == 2
    await pool.aclose()


async def test_a_plan_that_only_writes_is_over_when_it_is_started(tmp_path: Path) -> None:
    """A quick disk has it written before the loop goes on; a disk that hangs holds the loop for the bound only."""
    disk = HostDisk(tmp_path)
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle),))
    while (flight := life.start((Write(handle, 0, (b"x",)),))) is not None and not flight.has_landed:
        await life.landed(flight)  # another process had the processor
    assert (tmp_path / "a").read_bytes() == b"x"
    with handle.file.guard:  # the thread hangs in the write
        flight = life.start((Write(handle, 0, (b"y",)),))
        assert flight is not None
        assert not flight.has_landed
    await life.landed(flight)
    assert (tmp_path / "a").read_bytes() == b"y"
    await disk.aclose()


async def test_a_synced_plan_of_a_lone_task_is_over_when_it_is_started(tmp_path: Path) -> None:
    """Where nobody else is runnable and no other plan is in a thread, the pass of the loop is left out."""
    disk = HostDisk(tmp_path)
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    await life.submit((Create(handle),))
    plan = (Write(handle, 0, (b"x",)), Sync(handle))
    while (flight := life.start(plan)) is not None and not flight.has_landed:
        await life.landed(flight)  # the disk, or another process, took its time
    assert (tmp_path / "a").read_bytes() == b"x"
    await disk.aclose()


async def test_beside_other_tasks_or_plans_the_loop_makes_its_pass_first() -> None:
    """A job that syncs is not waited for when it is started while others are runnable, or in threads."""
    crowded, occupied, go = ThreadPool("test-pool", 2), ThreadPool("test-pool", 2), threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        job = crowded.start(max, 1, 2, in_place=True, alone=True)
        assert job is not None
        assert not job.is_over
        await crowded.finish(job)
    hanging, job = occupied.start(go.wait, 60), occupied.start(max, 1, 2, in_place=True, alone=True)
    assert hanging is not None
    assert job is not None
    assert not job.is_over
    go.set()
    await occupied.finish(job)
    await occupied.finish(hanging)
    await crowded.aclose()
    await occupied.aclose()


async def test_plans_of_owners_in_turn_are_not_waited_for_when_they_are_started(tmp_path: Path) -> None:
    """Where several owners commit, the pass of the loop is made, so that their plans overlap."""
    disk = HostDisk(tmp_path)
    lives = [await disk.incarnate(name) for name in ("one", "other")]
    handles = [life.handle(life.owner) for life in lives]
    for life, handle in zip(lives, handles, strict=True):
        await life.submit((Create(handle),))
    for life, handle in [*zip(lives, handles, strict=True)] * 20:
        flight = life.start((Write(handle, 0, (b"x",)), Sync(handle)))
        assert flight is not None
        assert not flight.has_landed
        await life.landed(flight)
    await disk.aclose()


class Gate:
    """The gate of a job that takes half a millisecond, or never ends, by a clock of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.is_quick = True
        monkeypatch.setattr(threads, "_now", lambda: self.now)

    def acquire(self, *, blocking: bool = True, timeout: float = 0.0) -> bool:
        """As a lock does."""
        if blocking:
            self.now += 0.0005 if self.is_quick else timeout
        return blocking and self.is_quick

    def is_waited_for(self, patience: Patience, now: float) -> bool:
        """Whether the loop waits for the job at `now`."""
        job: Any = Job(max, (1, 2), trio.lowlevel.current_trio_token())
        job.gate, self.now = self, now
        patience.wait(job)
        return self.now > now


async def test_a_late_job_is_followed_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a late job none is waited for, for ten times its length; longer after each further one, at most 10 s."""
    patience, gate = Patience(), Gate(monkeypatch)
    gate.is_quick = False

    def waits(*times: float) -> list[bool]:
        return [gate.is_waited_for(patience, now) for now in times]

    assert waits(100.0, 100.010, 100.012) == [True, False, True]
    assert waits(100.032, 100.034) == [False, True]
    patience.ended(0.5, 102.0)
    assert waits(106.9, 107.1) == [False, True]
    patience.ended(60.0, 200.0)
    assert waits(209.9, 210.1) == [False, True]
    gate.is_quick = True
    assert waits(*range(221, 241)) == [True] * 20
    gate.is_quick = False
    assert waits(300.0, 300.010, 300.012) == [True, False, True]


async def test_while_others_are_runnable_at_most_half_of_the_time_is_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that always has something to do keeps half of the loop's time; without one there is no such limit."""
    patience, gate = Patience(), Gate(monkeypatch)

    def waited_s(seconds: float, begin: float) -> float:
        now, waited = begin, 0.0
        while now < begin + seconds:
            if gate.is_waited_for(patience, now):
                waited += 0.0005
            now = gate.now + 0.0001
        return waited

    assert waited_s(1.0, 100.0) > 0.8
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        assert 0.4 < waited_s(1.0, 200.0) < 0.55
    assert waited_s(1.0, 300.0) > 0.8


async def test_only_plans_that_write_a_little_are_waited_for_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans that change names, write zeros or write much are parked at once."""
    disk = HostDisk(tmp_path)
    life = await disk.incarnate("owner")
    handle = life.handle("a")
    ways: list[tuple[bool, bool]] = []
    start = ThreadPool.start

    def watched(
        self: ThreadPool, *arguments: Any, in_place: bool = False, at_once: bool = False, alone: bool = False
    ) -> Any:
        ways.append((in_place, at_once))
        return start(self, *arguments, in_place=in_place, at_once=at_once, alone=alone)

    monkeypatch.setattr(ThreadPool, "start", watched)
    await life.submit((Create(handle), Write(handle, 0, (b"x",)), Sync(handle), SyncDirectory("")))
    await life.submit((Zero(handle, 0, 1),))
    await life.submit((Write(handle, 0, (b"x" * IN_PLACE_BYTES_MAX, b"y")), Sync(handle)))
    await life.submit((Write(handle, 0, (b"x" * IN_PLACE_BYTES_MAX,)), Sync(handle)))
    await life.submit((Write(handle, 0, (b"x", b"y")),))
    assert ways == [(False, False), (False, False), (False, False), (True, False), (True, True)]
    await disk.aclose()
