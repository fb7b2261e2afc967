"""The tasks in which `work` calls its handler.

They are made when there is need for another, at most `concurrency`, and stay; those with nothing to do are *idle*. Each
wakes the next one, as long as messages are ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from callboard.actors.kernel.failures import without_nursery
from callboard.consumer.handler_calls import HandlerTask
from callboard.consumer.passes import PASS_MESSAGES
from callboard.log.errors import InternalError

if TYPE_CHECKING:
    from callboard.consumer.backlog import Backlog
    from callboard.consumer.fetcher import Fetcher
    from callboard.consumer.handler_calls import HandlerCalls
    from callboard.consumer.messages import ReceivedMessage


class HandlerTasks:
    """Those of one call of `work`. `leave` is called at once when an exception leaves a task; it is to call `end`."""

    def __init__(
        self,
        consumer: Fetcher,
        concurrency: int,
        backlog: Backlog,
        calls: HandlerCalls,
        leave: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._concurrency = concurrency
        self._backlog = backlog
        self._calls = calls
        self._leave = leave
        self.begun = trio.Event()
        self.ended = trio.Event()
        """No handler is called any more."""
        self._nursery: trio.Nursery
        self._idle_tasks = trio.lowlevel.ParkingLot()
        self._count = 0
        self._idle = 0
        self._is_waking = False
        """A task was woken, or made, and has not run since."""

    async def run(self) -> None:
        """Return when the tasks have ended, after `end`. Raises what left one of them."""
        left: BaseException | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                self.begun.set()
                await self.ended.wait()
        except BaseExceptionGroup as group:
            left = without_nursery(group)
        if left is not None:
            raise left
        if not self.ended.is_set():
            raise InternalError("nothing has ended the handlers' nursery", invariant="WO2")

    def end(self) -> None:
        """Call no handler any more (WO1)."""
        self.ended.set()
        self._idle_tasks.unpark_all()

    def free(self) -> int:
        """How many messages could be handled at once, now."""
        return self._idle + self._concurrency - self._count

    def wake(self) -> None:
        """Have another task look, unless one is about to: in its turn it wakes the next."""
        if self._is_waking or self.ended.is_set():  # then the nursery may be closed
            return
        if self._idle:
            self._is_waking = True
            self._idle_tasks.unpark()
        elif self._count < self._concurrency:
            self._is_waking = True
            self._count += 1
            self._nursery.start_soon(self._handle_each, name=f"work {self._consumer.group}")

    async def _handle_each(self) -> None:
        self._is_waking = False
        while not self.ended.is_set():
            task = HandlerTask(self._backlog.give_back)
            try:
                with task.scope:
                    await self._handle_in(task)
            except Exception:
                if task.left is not None:  # raised beside its cancellation
                    self._after_cancelled(task.left)
                    continue
                self._leave()
                raise
            except BaseException:
                # Now: until the nursery has cancelled the fetching, what was given back would be handled again.
                self._leave()
                raise
            if task.left is not None:
                self._after_cancelled(task.left)

    async def _handle_in(self, task: HandlerTask) -> None:
        """Handle one message after the other, until a lease is lost: nothing else can be done in a cancelled scope."""
        backlog, ready, passed = self._backlog, self._backlog.ready, 0
        while not self.ended.is_set():
            if not ready:
                self._idle += 1
                backlog.look_for_room()
                try:
                    await self._idle_tasks.park()
                finally:
                    self._idle -= 1
                self._is_waking, passed = False, 0
                continue
            message = ready.popleft()
            if ready:
                self.wake()
            if self._consumer.is_fresh(message.lease):
                await self._calls.handle(message, task)
                backlog.end(message)
                if task.is_lost:
                    return
            else:
                backlog.give_back_messages([message])
                backlog.look_for_room()
            passed += 1
            if passed >= PASS_MESSAGES:
                passed = 0
                await trio.lowlevel.checkpoint()

    def _after_cancelled(self, message: ReceivedMessage) -> None:
        self._calls.reports.lost(message)
        self._backlog.end(message)
