"""A small pool of threads that belongs to one disk.

Why not `trio.to_thread`: measured on two cores, a hop through a dedicated thread that waits on a `SimpleQueue` and
wakes its task by `run_sync_soon(reschedule, task)` takes 54 us, a hop through `to_thread.run_sync` 82 us, and a
single small commit is one hop. Besides, disk work must never share `to_thread`'s limiter with the user's code.

A *job* is one call in a thread. Its task sleeps until the thread is done, whatever happens: an abandoned thread
would go on writing behind its owner's back.

Invariants
----------
T1  `run` returns or raises only when no thread works on its job; cancellation is delivered only before it starts.
T2  At most `limit` threads exist; one is added only when every one is busy. Further jobs wait in order.
T3  After `aclose` no thread is left. The pool may be used again, in the same trio run or in another.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

import trio

__all__ = ["ThreadPool"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Job:
    __slots__ = ("arguments", "error", "function", "result", "task", "token")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.token = trio.lowlevel.current_trio_token()
        self.task = trio.lowlevel.current_task()
        self.result: Any = None
        self.error: BaseException | None = None


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """What a thread does until it takes a None from the queue."""
    get, reschedule = jobs.get, trio.lowlevel.reschedule
    while (job := get()) is not None:
        try:
            job.result = job.function(*job.arguments)
        except BaseException as error:  # noqa: BLE001 - handed over whole to the task that waits for it
            job.error = error
        try:
            job.token.run_sync_soon(reschedule, job.task)
        except trio.RunFinishedError:
            pass  # the loop itself broke down: nobody waits any more
        del job  # or an idle thread would keep the last plan's buffers alive


def _never_abort(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class ThreadPool:
    """Threads that grow with need up to `limit`, used from one trio run at a time."""

    __slots__ = ("_busy", "_idle", "_jobs", "_name", "_threads", "limit")

    def __init__(self, name: str, limit: int) -> None:
        self.limit = limit
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._idle: trio.Event | None = None

    @property
    def threads(self) -> int:
        """How many threads exist."""
        return len(self._threads)

    @property
    def busy(self) -> int:
        """How many jobs run or wait for a thread."""
        return self._busy

    @trio.lowlevel.enable_ki_protection
    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call `function` in a thread and wait for it to the end (T1)."""
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(function, arguments)
        self._busy += 1
        try:
            if self._busy > len(self._threads) < self.limit:
                self._grow()
            self._jobs.put(job)
            await trio.lowlevel.wait_task_rescheduled(_never_abort)
        finally:
            self._busy -= 1
            if self._idle is not None and not self._busy:
                self._idle.set()
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[no-any-return]

    def _grow(self) -> None:
        # Daemons: a disk that hangs for ever must not keep the interpreter from exiting.
        thread = threading.Thread(
            target=_work, args=(self._jobs,), name=f"{self._name}-{len(self._threads)}", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    async def aclose(self) -> None:
        """Wait for all jobs, then end the threads."""
        while self._busy:
            if self._idle is None or self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()
