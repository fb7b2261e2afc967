"""What `Topic.work` and `Runtime.work` do: a handler is called for each message of a group, several at a time.

One task fetches messages and adds them to the `backlog`, which keeps the order of keys. Other tasks take them from
there (`handler_tasks`), call the handler, and settle each message by how that ends (`handler_calls`).

Cancellation ends the fetching at once and gives back what no handler has begun. The handlers are in a shielded scope:
they have the grace period to end. What ends a handler's task, such as `SystemExit`, ends the fetching in that same
step.

Invariants
----------
WO1  Once fetching has ended, or an exception has left a handler's task, no handler is called any more.
WO2  As long as there is fetching there is a nursery for handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Never

import trio

from callboard.actors.kernel.failures import without_nursery
from callboard.actors.names import meant
from callboard.actors.settings import GROUP_FIELDS
from callboard.consumer.arguments import check_seconds
from callboard.consumer.backlog import Backlog
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.handler_calls import Handler, HandlerCalls, HandlerSettlements
from callboard.consumer.handler_tasks import HandlerTasks
from callboard.log.errors import CallboardError, InternalError, InvalidArgument, StorageError, TopicNotFound
from callboard.log.plain import shown, whole

CONCURRENCY_MAX: Final = 100_000
GRACE_S: Final = 30.0
RETRY_S: Final = 1.0
"""After so long a partition that could not be read is asked again."""
WORK_ARGUMENTS: Final = ("concurrency", "grace", "name", "task_status")


class Working:
    """One call of `work`."""

    def __init__(
        self,
        consumer: Fetcher,
        handler: Handler,
        concurrency: int,
        grace_s: float,
        settlements: HandlerSettlements | None = None,
    ) -> None:
        count = whole(concurrency)
        if count is None or not 1 <= count <= CONCURRENCY_MAX:
            raise InvalidArgument(
                f"concurrency is {shown(concurrency, 40)}, not a number from 1 to {CONCURRENCY_MAX:,}."
            )
        if not callable(handler):
            raise InvalidArgument(
                f"the handler is {shown(handler, 80)}, not an async function of one message."
            )
        self._grace_s = check_seconds("grace", grace_s)
        self._consumer = consumer
        self._calls = HandlerCalls(consumer, handler, settlements or HandlerSettlements(consumer))
        self._backlog = Backlog(consumer, count, lambda: self._tasks.wake())
        self._tasks = HandlerTasks(consumer, count, self._backlog, self._calls, self._end)
        self._fetching = trio.CancelScope()
        self._grace = trio.CancelScope(shield=True)
        """What shields the handlers."""
        self._failure: CallboardError | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> Never:
        """Join, handle until cancelled, leave. Raises what ends the fetching."""
        async with self._consumer:
            await self._run_tasks(task_status)
        raise self._failure or InternalError("nothing has ended the fetching", invariant="WO1")

    async def _run_tasks(self, task_status: trio.TaskStatus[None]) -> None:
        left: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                # Not with `nursery.start`: cancelled meanwhile, that would wait for what is shielded.
                nursery.start_soon(self._hold)
                try:
                    await self._tasks.begun.wait()
                    task_status.started()
                    nursery.start_soon(self._calls.flush_now_and_then)
                    with self._fetching:
                        await self._fetch()
                    nursery.cancel_scope.cancel()  # an exception has left a handler's task, which `_hold` raises
                except CallboardError as error:
                    self._failure = error
                    nursery.cancel_scope.cancel()
                finally:
                    self._end()
        except BaseExceptionGroup as group:
            left = without_nursery(group)
        if left is not None:
            raise left

    async def _hold(self) -> None:
        """What cancels `work` does not cancel its handlers, until the grace period is over."""
        with self._grace:
            await self._tasks.run()
            await self._calls.flush()

    def _end(self) -> None:
        """Give back what no handler has begun; the handlers have the grace period (WO1)."""
        self._backlog.give_back()
        if self._tasks.ended.is_set():
            return
        self._tasks.end()
        self._fetching.cancel()
        self._grace.deadline = trio.current_time() + self._grace_s

    async def _fetch(self) -> Never:
        consumer, backlog = self._consumer, self._backlog
        while True:
            if not backlog.is_wanting():
                await backlog.wait_for_want(self._tasks.free)
            try:
                message = await consumer.get()
            except (StorageError, TopicNotFound) as error:
                self._calls.reports.hindered(error)
                if not isinstance(error, TopicNotFound):
                    await trio.sleep(RETRY_S)
                continue
            backlog.add(message)


def check_settings_of_work(settings: Mapping[str, object]) -> None:
    """Raise `InvalidArgument` for what is no setting of a group, and a misspelt argument of `work`."""
    for name in settings:
        if (
            name not in GROUP_FIELDS
            and not meant(name, GROUP_FIELDS)
            and (near := meant(name, WORK_ARGUMENTS))
        ):
            raise InvalidArgument(f"work takes no argument {name!r}{near}. Nothing was done.")
