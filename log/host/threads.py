"""A small pool of threads that belongs to one disk.

Why not `trio.to_thread`: a hop through a thread of our own takes about half the time, and disk work must never share
`to_thread`'s limiter with the user's code.

A *job* is one call in a thread. Its task waits until the thread is done, whatever happens: an abandoned thread
would go on writing behind its owner's back. There are two ways to wait:

- *parked*: the task sleeps and the loop runs others. The thread wakes the task through the loop's wake-up socket.
- *in place*: the loop itself waits on a lock that the thread opens. That is two to five times faster, and holds the
  loop for at most `PATIENCE_S`; then the task parks. `Patience` says when it is worth trying. Before that comes one
  pass of the loop, in which all runnable tasks run while the thread works; not if there are none, nor for jobs that
  are started `at_once`, which are so short that the pass would cost more.

Invariants
----------
TH1  `run` returns or raises only when no thread works on its job; cancellation is delivered only before it starts.
TH2  At most `limit` jobs that answer are in threads at a time; further jobs wait. A job that has not answered
     for DISK_HUNG_AFTER_S is not counted, so that hung directories do not use up the threads of healthy ones; at most
     `hung_limit` are left out in this way.
TH3  After `aclose` no thread is left. The pool may be used again, in the same trio run or in another.
TH4  No wait in place is longer than `PATIENCE_S`; while other tasks are runnable, at most half of the time is waited.
TH5  A pool serves one trio run of one process at a time; others are refused with `WrongRun`.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, TypeVarTuple

import attrs
import trio

from callboard.log.errors import WrongRun
from callboard.log.limits import DISK_HUNG_AFTER_S, DISK_THREADS_HUNG_MAX

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_S: Final = 0.001
"""The longest wait in place."""
BACK_OFF_FACTOR: Final = 10
BACK_OFF_S_MAX: Final = 10.0
SHARE: Final = 0.5
"""The part of the time that may be waited in place while other tasks are runnable."""
CREDIT_S_MAX: Final = 0.005
LOOK_S_MIN: Final = 0.001
LOOK_COST_FACTOR: Final = 50
CROWDED_S: Final = 0.01

Upkeep = Callable[[], float | None]
"""Called between jobs. After how many seconds without a job to call it again, None for never."""

_now = time.perf_counter

_process: list[object] = [object()]
"""Stands for this process, and is another object in a forked child. Each job looks at it: asking the system is slow."""


def _has_forked() -> None:
    _process[0] = object()


os.register_at_fork(after_in_child=_has_forked)


def no_upkeep() -> None:
    """Nothing to do between jobs."""


def _shut_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


@attrs.define(eq=False)
class Job:
    """One call. The side that takes `claim` decides how the task is woken: by the gate, or by being rescheduled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    token: trio.lowlevel.TrioToken
    in_place: bool = False
    """It is likely to be quick, so that the loop may wait for it in place (TH4)."""
    is_over: bool = False
    """It has ended, and was waited for."""
    has_landed: bool = False
    """It was a plan, and is over without a failure."""
    is_late: bool = False
    """It was waited for in place, in vain."""
    interrupt: BaseException | None = None
    """What a signal handler raised meanwhile."""
    task: Any = None
    result: Any = None
    error: BaseException | None = None
    claim: threading.Lock = attrs.field(init=False)
    gate: threading.Lock = attrs.field(init=False)
    """Both are made for a thread: a job that the loop does needs none."""

    def work(self) -> None:
        """Make the call."""
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:  # noqa: BLE001 - handed over whole to the task that waits for it
            self.error = error


def _work(jobs: queue.SimpleQueue[Job | None], upkeep: Upkeep) -> None:
    """What a thread does until it takes a None from the queue."""
    reschedule = trio.lowlevel.reschedule
    again_at: float | None = None
    while True:
        now = _now()
        if again_at is None or now >= again_at:
            pause_s = upkeep()
            again_at = None if pause_s is None else now + pause_s
        try:
            job = jobs.get(timeout=None if again_at is None else again_at - now)
        except queue.Empty:
            continue
        if job is None:
            return
        job.work()
        if job.claim.acquire(blocking=False):
            job.gate.release()
        else:
            try:
                job.token.run_sync_soon(reschedule, job.task)
            except trio.RunFinishedError:
                pass  # the loop itself broke down: no task waits any more
        del job  # or an idle thread would keep the last plan's buffers alive


@attrs.define(eq=False)
class Patience:
    """Whether the loop may wait in place now, judged by how such waits went.

    A job that was not done in time is followed by a pause of ten times its length, twice as long after each further
    one, at most ten seconds: on a slow disk a wait in place gains nothing. And while other tasks are runnable, waiting
    draws on a credit that grows with half of the time. Whether there are others is looked up about once in a
    millisecond, since asking trio takes longer the more sockets it watches.
    """

    _pause_s: float = 0.0
    _paused_until: float = 0.0
    _credit_s: float = CREDIT_S_MAX
    _seen_at: float = 0.0
    _look_at: float = 0.0
    _crowded_until: float = 0.0

    def is_crowded(self, now: float) -> bool:
        """Whether other tasks are runnable, or were a moment ago."""
        if now >= self._look_at:
            is_crowded = trio.lowlevel.current_statistics().tasks_runnable > 0
            self._look_at = now + max(LOOK_S_MIN, LOOK_COST_FACTOR * (_now() - now))
            if is_crowded:
                self._crowded_until = self._look_at + CROWDED_S
        return now < self._crowded_until

    def wait(self, job: Job) -> bool:
        """Wait for the job in place, if that is worth trying now. Whether it has ended."""
        if job.gate.acquire(blocking=False):
            self._pause_s /= 2
            return True
        now = _now()
        return self.allows(now) and self.wait_out(job, now)

    def allows(self, now: float) -> bool:
        """Whether a wait in place is worth trying now."""
        if now < self._paused_until:
            return False
        if self.is_crowded(now):
            self._credit_s = min(CREDIT_S_MAX, self._credit_s + SHARE * (now - self._seen_at))
            self._seen_at = now
            return self._credit_s > 0
        return True

    def wait_out(self, job: Job, now: float) -> bool:
        """Wait for the job in place, which `allows` said at `now`. Whether it has ended."""
        try:
            is_done = job.gate.acquire(timeout=PATIENCE_S)
        except BaseException as error:  # noqa: BLE001 - a signal handler raised; first the thread has to end (TH1)
            job.interrupt = error
            return False
        ended = _now()
        self._credit_s -= ended - now
        if is_done:
            self._pause_s /= 2
        else:
            job.is_late = True
            self._pause_s = min(BACK_OFF_S_MAX, max(2 * self._pause_s, BACK_OFF_FACTOR * PATIENCE_S))
            self._paused_until = ended + self._pause_s
        return is_done

    def ended(self, took_s: float, now: float) -> None:
        """The job that was late is done now, and took this long."""
        self._pause_s = min(BACK_OFF_S_MAX, max(self._pause_s, BACK_OFF_FACTOR * took_s))
        self._paused_until = max(self._paused_until, now + self._pause_s)


def _is_over(token: trio.lowlevel.TrioToken) -> bool:
    """Whether the run of that token has ended."""
    try:
        token.run_sync_soon(no_upkeep)
    except trio.RunFinishedError:
        return True
    return False


@attrs.define(eq=False)
class ThreadPool:
    """Threads that grow with need. TH2 says what `limit` and `hung_limit` bound. `inline`: the loop does the jobs."""

    _name: str
    limit: int
    hung_limit: int = attrs.field(default=DISK_THREADS_HUNG_MAX, kw_only=True)
    _hung_after_s: float = attrs.field(default=DISK_HUNG_AFTER_S, kw_only=True)
    _upkeep: Upkeep = attrs.field(default=no_upkeep, kw_only=True)
    inline: bool = attrs.field(default=False, kw_only=True)
    _jobs: queue.SimpleQueue[Job | None] = attrs.field(factory=queue.SimpleQueue, init=False)
    _threads: list[threading.Thread] = attrs.field(factory=list, init=False)
    _running: dict[Job, float] = attrs.field(factory=dict, init=False)
    """And when each was given to a thread; the oldest first."""
    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _promised: int = attrs.field(default=0, init=False)
    """Places given to tasks that have not run since."""
    _idle: trio.Event | None = attrs.field(default=None, init=False)
    _patience: Patience = attrs.field(factory=Patience, init=False)
    _token: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)
    _process: object = attrs.field(default=None, init=False)

    @property
    def threads(self) -> int:
        """How many threads exist."""
        return len(self._threads)

    @property
    def busy(self) -> int:
        """How many jobs run or wait for a thread."""
        return len(self._running) + len(self._waiting) + self._promised

    def check_run(self) -> trio.lowlevel.TrioToken:
        """The token of the run that the pool serves, which must be the caller's. Raises `WrongRun` (TH5)."""
        if self._token is not None and self._process is not _process[0]:
            raise WrongRun(
                "a runtime or disk was used in a forked child of the process that opened it. Nothing was done. "
                "Start child processes by 'spawn', and open a runtime of their own in them."
            )
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            raise WrongRun(
                "a runtime or disk was used outside the trio run that opened it. Nothing was done. "
                "From another thread, go through trio.from_thread."
            ) from None
        if token is not self._token:
            if self._token is not None and not _is_over(self._token):
                raise WrongRun(
                    "a runtime or disk was used in another trio run than the one that opened it. Nothing was done. "
                    "Go through trio.from_thread with that run's token, or open a runtime of its own in each."
                )
            self._token, self._process = token, _process[0]
            self._running.clear()  # jobs of a run that broke down: no task waits for them
            self._promised = 0
        return token

    @trio.lowlevel.enable_ki_protection
    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call `function` in a thread and wait for it to the end (TH1). Raises `WrongRun` (TH5), and what it raises."""
        self.check_run()
        await trio.lowlevel.checkpoint_if_cancelled()
        while (job := self.start(function, *arguments)) is None:
            await self.room()
        if job.is_over:
            await trio.lowlevel.cancel_shielded_checkpoint()
        return await self.finish(job)  # type: ignore[no-any-return]

    def start(
        self,
        function: Callable[[*Ts], object],
        *arguments: *Ts,
        in_place: bool = False,
        at_once: bool = False,
        alone: bool = False,
    ) -> Job | None:
        """Call `function` in a thread: a job, which the caller must `finish`; None if no thread is free.

        `in_place`: it is likely to be quick, so that the loop may wait for it in place (TH4). `at_once`: also now.
        `alone`: also now, if no other job is in a thread and no other task runnable.
        """
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            token = self.check_run()
        if token is not self._token or self._process is not _process[0]:
            token = self.check_run()
        if self.inline:
            job = Job(function, arguments, token)
            job.work()
            job.is_over = True
            return job
        running, now = self._running, _now()
        if len(running) + self._promised >= self.limit and not self._has_room():
            return None
        job = Job(function, arguments, token, in_place)
        running[job] = now
        job.claim, job.gate = threading.Lock(), _shut_gate()
        if len(running) > len(self._threads):
            self._grow()
        patience = self._patience
        is_alone = alone and len(running) == 1 and not patience.is_crowded(now)
        # Decided first: once the thread has the job, it only wants the interpreter lock, which the wait gives it.
        waits = (at_once or is_alone) and patience.allows(now)
        self._jobs.put(job)
        if waits and patience.wait_out(job, now):
            job.is_over = True
            del running[job]
            if self._waiting or self._idle is not None:
                self._ended()
        return job

    @trio.lowlevel.enable_ki_protection
    async def finish(self, job: Job) -> Any:
        """Wait for a job to the end (TH1): what its function returns or raises.

        A job that is to be waited for in place should have had a pass of the loop since its start; for one that was
        given to a thread otherwise, this is a checkpoint.
        """
        if not job.is_over:
            job.task = trio.lowlevel.current_task()
            try:
                if not (job.in_place and self._patience.wait(job)):
                    if job.claim.acquire(blocking=False):
                        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
                    elif not job.in_place:  # the thread was quicker: others run all the same
                        await trio.lowlevel.cancel_shielded_checkpoint()
            finally:
                started = self._running.pop(job, None)
                if job.is_late and started is not None:
                    now = _now()
                    self._patience.ended(now - started, now)
                if self._waiting or self._idle is not None:
                    self._ended()
        if job.interrupt is not None:
            raise job.interrupt
        if job.error is not None:
            raise job.error
        return job.result

    def _ended(self) -> None:
        """A job has ended, and a task waits for that."""
        while self._waiting and self._has_room():
            self._promised += 1
            self._waiting.unpark()
        if self._idle is not None and not self.busy:
            self._idle.set()

    # -- room for another job

    def _has_room(self) -> bool:
        answering = len(self._running) + self._promised
        return answering < self.limit or answering - self._hung()[0] < self.limit

    def _hung(self) -> tuple[int, float]:
        """How many running jobs are not counted, and after how many seconds one more will not be."""
        now, hung = _now(), 0
        for started in self._running.values():
            left_s = started + self._hung_after_s - now
            if hung == self.hung_limit:
                break
            if left_s > 0:
                return hung, left_s
            hung += 1
        return hung, math.inf

    async def room(self) -> None:
        """Wait until a thread is free for another job."""
        while not self._has_room():
            with trio.move_on_after(self._hung()[1]):
                await self._waiting.park()
                self._promised -= 1
                return

    def _grow(self) -> None:
        # Daemons: a disk that hangs for ever must not keep the interpreter from exiting.
        thread = threading.Thread(
            target=_work,
            args=(self._jobs, self._upkeep),
            name=f"{self._name}-{len(self._threads)}",
            daemon=True,
        )
        thread.start()
        self._threads.append(thread)

    async def aclose(self) -> None:
        """Wait for all jobs, then end the threads. Raises `WrongRun` (TH5)."""
        self.check_run()
        while self.busy:
            if self._idle is None or self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()
        self._token = None
