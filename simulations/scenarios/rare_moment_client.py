"""Who makes the turns of `rare-moments`: he brings about what seldom happens, and knows what must follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import trio
import trio.lowlevel

from callboard.actors.kernel import ActorRef
from callboard.actors.partition.commands import Describe
from callboard.actors.timers.commands import LOOK_S
from callboard.log.errors import CallboardError, InvalidArgument, LeaseLost, MailboxFull
from callboard.log.seams.clock import Clock
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.disk.memory_disk import MemoryDisk
from callboard.simulations.faults.reaching import InjectedCrash, cell_of, life_of
from callboard.simulations.scenarios.rare_client import RareClient


class MomentClient(RareClient):
    """A client who crashes partitions, fills mailboxes, and judges strictly where no fault of the plan has struck."""

    @property
    def is_undisturbed(self) -> bool:
        """Whether nothing has gone wrong that a turn has not done itself."""
        return not self.world.fault_counts

    def expect_undisturbed(self, found: object, wanted: object, what: str) -> None:
        """`expect`, unless a fault has struck."""
        if self.is_undisturbed:
            self.expect(found, wanted, what)

    async def accepted(self, call: Callable[..., Any], *given: Any, **named: Any) -> None:
        """Make a call that must not be refused because a lease was lost, unless a fault has struck."""
        with self.keeps_lease():
            await call(*given, **named)

    @contextmanager
    def keeps_lease(self) -> Iterator[None]:
        """No lease is lost in this block, unless a fault has struck."""
        try:
            yield
        except LeaseLost as error:
            if self.is_undisturbed:
                raise self.broken(f"a lease is lost that must be kept: {error}") from error

    @contextmanager
    def in_time(self, seconds: float, what: str) -> Iterator[None]:
        """This block ends within this many seconds, unless a fault has struck."""
        with trio.move_on_after(seconds) as scope:
            yield
        if scope.cancel_called and self.is_undisturbed:  # also when it ended in order then
            raise self.broken(f"{what} takes longer than {seconds:g} s")

    # -- runtimes

    def own_disk(self) -> MemoryDisk:
        """A disk beside the machine's, that ends with it, and that no fault of the plan strikes."""
        machines, disk = self.machine.disk, MemoryDisk(clock=self.machine.clock)
        disk.sleep, disk.halted, disk.is_barred = machines.sleep, machines.halted, machines.is_barred
        return disk

    def own_runtime(self, disk: MemoryDisk, clock: Clock | None = None) -> Runtime:
        """A runtime beside the machine's, on a disk that nobody else has."""
        return open_runtime(
            disk=disk,
            clock=self.machine.clock if clock is None else clock,
            entropy=self.draws.fork(self.new_name()),
            limits=self.world.limits,
        )

    # -- partitions

    def path_of(self, topic: Any, partition: int = 0) -> str:
        """Where a partition's actor is in the tree."""
        return f"topics/{topic.name}/{partition}"

    def crash(self, topic: Any, partition: int = 0) -> None:
        """Crash a partition, unless it does not run."""
        self.crash_at(self.path_of(topic, partition))

    def crash_at(self, path: str) -> None:
        """Crash the actor there, unless it does not run."""
        with suppress(InvalidArgument):
            self.runtime.crash(path, OSError("on purpose"))

    async def ask_often(self, topic: Any, times: int) -> None:
        """Ask a topic's first partition something this many times, without a pause."""
        cell = cell_of(self.world, self.path_of(topic))
        if cell is not None:
            for _ in range(times):
                with suppress(CallboardError):
                    await ActorRef(cell).ask(Describe())

    async def crash_with_questions_in_hand(self, topic: Any, for_s: float) -> None:
        """Let questions wait at a topic's first partition for so long; it crashes as it takes the last of them."""
        path = self.path_of(topic)
        cell = cell_of(self.world, path)
        if cell is None:
            return

        def trap() -> None:
            life = life_of(cell)
            batch = None if life is None else life._batch
            if batch is None or trio.lowlevel.current_task().name != path:
                return
            if batch.taken > 0 and batch.current is not None and len(cell.mailbox) <= 1:
                cell.mailbox.trap = None
                raise InjectedCrash("crashed with questions in hand")

        self.world.scheduler.hold(path)
        try:
            await trio.sleep(for_s)
            ActorRef(cell).ask_nowait(Describe())
            cell.mailbox.trap = trap
        finally:
            self.world.scheduler.release(path)

    async def fail(self, topic: Any, *, held_s: float = 0.0) -> None:
        """Crash a topic's first partition until its supervisor gives it up.

        It stands still for so long before each crash: then something waits in its mailbox.
        """
        path = self.path_of(topic)
        for _ in range(40):
            if held_s:
                self.world.scheduler.hold(path)
                try:
                    await trio.sleep(held_s)
                finally:
                    self.crash(topic)
                    self.world.scheduler.release(path)
            else:
                self.crash(topic)
            await trio.sleep(0.02)
            if (await topic.describe())[0].state == "failed":
                return
            await trio.sleep(0.1)

    @contextmanager
    def full_mailbox(self, topic: Any) -> Iterator[None]:
        """A topic's first partition stands still in this block, and its mailbox is full."""
        path = self.path_of(topic)
        with self.small_mailbox(topic):
            self.world.scheduler.hold(path)
            try:
                cell = cell_of(self.world, path)
                with suppress(MailboxFull):
                    while cell is not None:
                        ActorRef(cell).ask_nowait(Describe())
                yield
            finally:
                self.world.scheduler.release(path)

    @contextmanager
    def small_mailbox(self, topic: Any) -> Iterator[None]:
        """A topic's first partition has room for one message in its mailbox in this block."""
        cell = cell_of(self.world, self.path_of(topic))
        if cell is None:
            yield
            return
        capacity = cell.mailbox.capacity
        cell.mailbox.resize(1)
        try:
            yield
        finally:
            cell.mailbox.resize(capacity)


class PatientClient(MomentClient):
    """A client whose turns may take longer than a wall clock that was set goes unnoticed."""

    turn_s = 2 * LOOK_S
