"""What `Topic.work` and `Runtime.work` do: a handler is called for each message of a group, several at a time.

One task fetches, and hands messages to the tasks that handle them; these are made when there is need for another, at
most `concurrency`, and stay. What the handler does with a message is settled here: done is acked without waiting for
the disk, failed is nacked.

Cancellation ends the fetching at once and gives back what no handler has begun. The handlers are in a shielded scope:
they have the grace period to end. What ends a handler's task, such as `SystemExit`, ends the fetching in that same
step.

Invariants
----------
W1  Of the messages of one key in one partition at most one is in a handler's hands; the others wait in order.
W2  What waits, for its key or for a task, is at most `concurrency` messages; more, up to `AHEAD_MAX`, only as long as
    handlers are quick.
W3  What has waited for `AHEAD_S`, or half of its lease, is given back, with those of its key behind it: other consumers
    may be idle, and no attempt is spent without a handler.
W4  Once fetching has ended, or an exception has left a handler's task, no handler is called any more.
W5  As long as there is fetching there is a nursery for handlers.
W6  What was given back for want of a handler is for other consumers: from then on no more is fetched than handlers are
    free, until one has ended within `AHEAD_S` of the fetching of its message.
W7  What was given back because its key was with a handler is for other consumers: the partition leases this one no such
    message until that handler has ended. What comes of the key until then is given back at once.
W8  No message overtakes those of its key that were given back: what was asked for before is given back, too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Never, cast

import attrs
import trio

from callboard.actors.kernel.failures import (
    describe,
    leaves,
    place,
    unwrap,
    without_nursery,
)
from callboard.actors.names import meant
from callboard.actors.notices import HandlerFailed, WorkHindered
from callboard.actors.settings import GROUP_FIELDS
from callboard.consumer.arguments import REASON_CHARACTERS, check_nack, check_seconds
from callboard.consumer.caller_pace import UNITS_MAX
from callboard.consumer.contexts import renewed_lease
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.losses import loss_of
from callboard.consumer.passes import PASS_MESSAGES
from callboard.log.errors import (
    CallboardError,
    InternalError,
    InvalidArgument,
    RuntimeClosed,
    StorageError,
    TopicNotFound,
    remade,
)
from callboard.log.plain import shown, whole
from callboard.reports.tracebacks import traceback_lines

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedMessage

Handler = Callable[["ReceivedMessage"], Awaitable[object]]
Key = tuple[str, int, bytes]

CONCURRENCY_MAX: Final = 100_000
GRACE_S: Final = 30.0
AHEAD_MAX: Final = 256
AHEAD_S: Final = 1.0
"""How long a message may wait for a handler before it is given back."""
QUICK_S: Final = 0.01
"""Handlers are quick that do half of what waits in this time."""
FLUSH_S: Final = 1.0
"""So long after an ack its outcome is asked for, with those of all others meanwhile."""
RETRY_S: Final = 1.0
"""After so long a partition that could not be read is asked again."""
AGAIN: Final = "The message is delivered again."
GIVEN_UP: Final = "This was its last attempt."
SETTLED: Final = "The handler had settled the message before, which holds."
UNSETTLED: Final = "It has not settled the message."
GONE: Final = "The message is gone with its topic."
"""What becomes of a message whose handler failed."""
HINDERED: Final = "Its handlers go on; what is not settled is delivered again."
LEFT: Final = "Its messages are gone with it."
"""What becomes of the messages when `work` is hindered."""
WORK_ARGUMENTS: Final = ("concurrency", "grace", "name", "task_status")


class Retry(Exception):
    """Raise it in a handler: the message is delivered again, `after` seconds or more later (None: the group's backoff).

    It counts as a failed attempt, and is not logged.
    """

    after: float | None = None
    reason: str | None = None

    def __init__(self, after: float | None = None, reason: str | None = None) -> None:
        after, reason = check_nack(after, reason, delay_name="after")
        super().__init__(reason or "to be tried again")
        self.after = after
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        """As of a `CallboardError`: a handler may raise it in a pool of processes."""
        return remade, (type(self), self.args, self.__dict__)


class Reject(Exception):
    """Raise it in a handler: the message is given up at once, and kept as a dead letter with this reason."""

    reason: str | None = None

    def __init__(self, reason: str | None = None) -> None:
        _, reason = check_nack(None, reason)
        super().__init__(reason or "rejected")
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        """As of a `CallboardError`: a handler may raise it in a pool of processes."""
        return remade, (type(self), self.args, self.__dict__)


class _NotAsync(InvalidArgument):
    """The handler is no async function, which its first call shows. It ends `work`."""


@attrs.define(eq=False)
class HandlerTask:
    """What a task handles, and the scope it does so in: one for all its messages, until a lease is lost."""

    give_back_unbegun: Callable[[], None]
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    message: ReceivedMessage = attrs.field(init=False)
    is_lost: bool = False
    """The lease of `message` was lost, and the scope is cancelled."""
    left: ReceivedMessage | None = None
    """The message whose handler was left by that cancellation."""

    def lost(self) -> bool:
        """Cancel the handler, unless its message is settled: then it goes on."""
        if self.message.settled:
            return True
        self.is_lost = True
        self.scope.cancel()
        return False

    def renewed(self, _: float) -> None:
        """Handlers take their time: what waits is for others to do."""
        self.give_back_unbegun()


@attrs.define(eq=False)
class Working:
    """One call of `work`."""

    consumer: Fetcher
    handler: Handler
    concurrency: int
    grace_s: float
    _handlers: trio.Nursery = attrs.field(init=False)
    _ahead: int = attrs.field(init=False)
    """How many messages may wait."""
    _tasks: int = 0
    _idle: int = 0
    _is_waking: bool = False
    """A task was woken, or made, and has not run since."""
    _ready: deque[ReceivedMessage] = attrs.Factory(deque)
    """What may be handled now."""
    _first: dict[Key, ReceivedMessage] = attrs.Factory(dict)
    """By key, the message that is ready or in a handler's hands."""
    _behind: dict[Key, deque[ReceivedMessage]] = attrs.Factory(dict)
    """Those that wait for it (W1), none of which is empty."""
    _behind_count: int = 0
    _slow_keys: dict[Key, int] = attrs.Factory(dict)
    """Those of which messages were given back while one was in a handler's hands, where it still is (W7), and the
    highest offset of these.
    """
    _given_back: dict[Key, tuple[int, int]] = attrs.Factory(dict)
    """By key, the latest last: how many questions had been asked when messages were given back that may come again,
    and the highest offset of these (W8).
    """
    _parked: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)
    """Tasks that have nothing to do."""
    _room: trio.Event = attrs.Factory(trio.Event)
    _is_slow: bool = False
    """Something was given back, and no handler has ended in time since (W6)."""
    _acked: trio.Event = attrs.Factory(trio.Event)
    _grace: trio.CancelScope = attrs.Factory(lambda: trio.CancelScope(shield=True))
    """What shields the handlers."""
    _fetching: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _held: trio.Event = attrs.Factory(trio.Event)
    _ended: trio.Event = attrs.Factory(trio.Event)
    _failure: CallboardError | None = None

    def __attrs_post_init__(self) -> None:
        count = whole(self.concurrency)
        if count is None or not 1 <= count <= CONCURRENCY_MAX:
            raise InvalidArgument(
                f"concurrency is {shown(self.concurrency, 40)}, not a number from 1 to {CONCURRENCY_MAX:,}."
            )
        if not callable(self.handler):
            raise InvalidArgument(
                f"the handler is {shown(self.handler, 80)}, not an async function of one message."
            )
        self.grace_s = check_seconds("grace", self.grace_s)
        self.concurrency = self._ahead = count

    async def run(self, task_status: trio.TaskStatus[None]) -> Never:
        """Join, handle until cancelled, leave. Raises what ends the fetching."""
        self.consumer.let_go = self._give_back_stale
        self.consumer.questions.keeps_s = AHEAD_S
        async with self.consumer:
            await self._run_tasks(task_status)
        raise self._failure or InternalError("nothing has ended the fetching", invariant="W4")

    async def _run_tasks(self, task_status: trio.TaskStatus[None]) -> None:
        left: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                # Not with `nursery.start`: cancelled meanwhile, that would wait for what is shielded.
                nursery.start_soon(self._hold)
                try:
                    await self._held.wait()
                    task_status.started()
                    nursery.start_soon(self._flush_now_and_then)
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
        left: BaseException | None = None
        with self._grace:
            try:
                async with trio.open_nursery() as self._handlers:
                    self._held.set()
                    await self._ended.wait()
            except BaseExceptionGroup as group:
                left = without_nursery(group)
            if left is not None:
                raise left
            if not self._ended.is_set():
                raise InternalError("nothing has ended the handlers' nursery", invariant="W5")
            await self._flush()

    def _end(self) -> None:
        """Give back what no handler has begun; the handlers have the grace period (W4)."""
        self._give_back_unbegun()
        if self._ended.is_set():
            return
        self._ended.set()
        self._fetching.cancel()
        self._parked.unpark_all()
        self._grace.deadline = trio.current_time() + self.grace_s

    def _give_back_unbegun(self) -> None:
        ready = list(self._ready)
        self._ready.clear()
        self._give_back(ready)
        for key in list(self._behind):
            self._withhold(key, 0)
        self.consumer.give_back_fetched()
        self._is_slow = self._is_slow or bool(ready)
        self._room.set()

    # -- fetching

    async def _fetch(self) -> Never:
        consumer = self.consumer
        while True:
            if len(self._ready) + self._behind_count >= self._ahead:
                await self._wait_for_room()
            if self._is_slow:
                await self._wait_for_handlers()
            try:
                message = await consumer.get()
            except (StorageError, TopicNotFound) as error:
                consumer.session.emit(WorkHindered(consumer.group, str(error), _rest(error)))
                if not isinstance(error, TopicNotFound):
                    await trio.sleep(RETRY_S)
                continue
            key = _key_of(message)
            if key is not None:
                if self._given_back and self._is_overtaking(key, message):
                    consumer.leases.give_back_messages([message])
                    continue
                first = self._first.setdefault(key, message)
                if first is not message:
                    if self._slow_keys and self._comes_late(key, first, message):
                        continue
                    behind = self._behind.get(key)
                    if behind is None:
                        self._behind[key] = deque((message,))
                    else:
                        behind.append(message)
                    self._behind_count += 1
                    continue
            self._ready.append(message)
            self._wake()

    def _is_overtaking(self, key: Key, message: ReceivedMessage) -> bool:
        """Whether it was asked for before messages of its key were given back that come before it (W8)."""
        given_back, question = self._given_back, message.lease.question
        while given_back and not self.consumer.questions.late:
            oldest, (last, _) = next(iter(given_back.items()))
            if last >= question:
                break
            del given_back[oldest]
        last, highest = given_back.get(key, (0, 0))
        return last >= question and highest < message.offset

    def _remember_given_back(self, key: Key, highest: int) -> None:
        self._given_back.pop(key, None)
        self._given_back[key] = (self.consumer.questions.count, highest)

    async def _wait_for_handlers(self) -> None:
        """Until one is free, for as many as are (W6)."""
        while self._is_slow:
            free = self._idle + self.concurrency - self._tasks - len(self._ready)
            if free > 0:
                self.consumer.pace.units_max = free
                return
            self._room = trio.Event()
            await self._room.wait()

    async def _wait_for_room(self) -> None:
        """Until half of what waits is gone; then more may wait if that was quick (W2)."""
        clock = self.consumer.session.clock
        begun = clock.monotonic()
        while len(self._ready) + self._behind_count > self._ahead // 2:
            self._room = trio.Event()
            await self._room.wait()
        is_quick = clock.monotonic() - begun < QUICK_S
        self._ahead = min(2 * self._ahead, AHEAD_MAX) if is_quick else self.concurrency
        self._ahead = max(self._ahead, self.concurrency)

    def _comes_late(self, key: Key, first: ReceivedMessage, message: ReceivedMessage) -> bool:
        """Whether its key is slow: then it is given back (W7)."""
        given_back = self._slow_keys.get(key)
        if (
            given_back is None or message.offset <= given_back
        ):  # it came again: `first` is not leased any more
            return False
        self._slow_keys[key] = message.offset
        self.consumer.leases.give_back_messages([message], behind=first)
        return True

    def _give_back_stale(self) -> None:
        is_fresh = self.consumer.is_fresh
        stale = [message for message in self._ready if not is_fresh(message.lease)]
        for message in stale:
            self._ready.remove(message)
        self._give_back(stale)
        for key, behind in list(self._behind.items()):
            first = next((at for at, message in enumerate(behind) if not is_fresh(message.lease)), None)
            if first is not None:
                self._withhold(key, first)
        self.consumer.give_back_stale()
        self._is_slow = self._is_slow or bool(stale)
        self._room.set()

    def _withhold(self, key: Key, place: int) -> None:
        """Give back what waits for a key from this place on: it is for others until the handler has ended (W7)."""
        behind, first, unbegun = self._behind[key], self._first[key], []
        while len(behind) > place:
            unbegun.append(behind.pop())
        if not behind:
            del self._behind[key]
        self._behind_count -= len(unbegun)
        self._slow_keys[key] = max(self._slow_keys.get(key, 0), unbegun[0].offset)
        self.consumer.leases.give_back_messages(unbegun, behind=first)

    def _wake(self) -> None:
        """Have another task look, unless one is about to: in its turn it wakes the next."""
        if self._is_waking or self._ended.is_set():  # then the handlers' nursery may be closed
            return
        if self._idle:
            self._is_waking = True
            self._parked.unpark()
        elif self._tasks < self.concurrency:
            self._is_waking = True
            self._tasks += 1
            self._handlers.start_soon(self._handle_each, name=f"work {self.consumer.group}")

    # -- handling

    async def _handle_each(self) -> None:
        self._is_waking = False
        while not self._ended.is_set():
            task = HandlerTask(self._give_back_unbegun)
            try:
                with task.scope:
                    await self._handle_in(task)
            except Exception:
                if task.left is not None:  # raised beside its cancellation
                    self._after_cancelled(task.left)
                    continue
                self._end()
                raise
            except BaseException:
                # Now: until the nursery has cancelled the fetching, what was given back would be handled again.
                self._end()
                raise
            if task.left is not None:
                self._after_cancelled(task.left)

    async def _handle_in(self, task: HandlerTask) -> None:
        """Handle one message after the other, until a lease is lost: nothing else can be done in a cancelled scope."""
        ready, passed = self._ready, 0
        while not self._ended.is_set():
            if not ready:
                self._idle += 1
                self._look_for_room()
                try:
                    await self._parked.park()
                finally:
                    self._idle -= 1
                self._is_waking, passed = False, 0
                continue
            message = ready.popleft()
            if ready:
                self._wake()
            if self.consumer.is_fresh(message.lease):
                await self._handle(message, task)
                self._after(message)
                if task.is_lost:
                    return
            else:
                self._give_back([message])
                self._look_for_room()
            passed += 1
            if passed >= PASS_MESSAGES:
                passed = 0
                await trio.lowlevel.checkpoint()

    def _after_cancelled(self, message: ReceivedMessage) -> None:
        self._tell_lost(message)
        self._after(message)

    def _after(self, message: ReceivedMessage) -> None:
        if self._is_slow and self.consumer.is_fresh(message.lease):
            self._is_slow = False
            self.consumer.pace.units_max = UNITS_MAX
            self._room.set()
        was_slow = self._let_next(message)
        if was_slow or (self.consumer.settings.ordering != "none" and not self._ready):
            # An ack that lingers holds back what comes after its message: of a slow key, or in a group with an order.
            self.consumer.lazy_acks.send()
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self._is_slow or len(self._ready) + self._behind_count <= self._ahead // 2:
            self._room.set()

    def _let_next(self, message: ReceivedMessage) -> bool:
        """The message of a key is settled, or given up: the next one is ready. Whether the key was slow."""
        key = _key_of(message)
        if key is None:
            return False
        behind = self._behind.get(key)
        if behind is None:
            self._first.pop(key, None)
        else:
            self._behind_count -= 1
            self._first[key] = following = behind.popleft()
            if not behind:
                del self._behind[key]
            self._ready.append(following)
            self._wake()
        highest = self._slow_keys.pop(key, None)
        if highest is None:
            return False
        self._remember_given_back(key, highest)
        return True

    def _give_back(self, messages: Iterable[ReceivedMessage]) -> None:
        """They waited too long; what waits for them comes after them again (W3)."""
        unbegun: list[ReceivedMessage] = []
        for message in messages:
            unbegun.append(message)
            key = _key_of(message)
            if key is not None:
                self._first.pop(key, None)
                behind = self._behind.pop(key, ())
                self._behind_count -= len(behind)
                unbegun += behind
                self._remember_given_back(key, unbegun[-1].offset)
        self.consumer.leases.give_back_messages(unbegun)

    async def _handle(self, message: ReceivedMessage, task: HandlerTask) -> None:
        """Call the handler, keep the lease meanwhile, settle by how it ends."""
        leases, task.message = self.consumer.session.renewed_leases, message
        held = renewed_lease(self.consumer, message, task.lost, task.renewed)
        leases.add(held)
        failure: BaseException | None = None
        try:
            answer = cast(object, self.handler(message))
            if not isinstance(answer, Awaitable):
                raise _NotAsync(
                    f"the handler {shown(self.handler, 80)} returned {type(answer).__name__}, which nobody can await."
                    " It has run, and its message is delivered again, as if it had not been. Make it `async def`; call"
                    " what blocks with `await trio.to_thread.run_sync(...)`."
                )
            await answer
        except _NotAsync:  # as each message would: they are not to end as dead letters
            self._leave(task)
            raise
        except Exception as error:  # noqa: BLE001 - it is told, and the message comes again
            failure = _meant(error)
        except (trio.Cancelled, BaseExceptionGroup) as error:
            if not _is_foreign_cancellation(error):
                self._leave(task)
                if task.left is None and isinstance(error, BaseExceptionGroup):
                    self._leave_nursery(error, message)
                raise
            failure = error
        except BaseException:
            self._leave(task)
            raise
        finally:
            leases.remove(held)
        if task.is_lost:
            self._tell_lost(message)
        elif not message.settled:
            await self._settle(message, failure)
        elif failure is not None:
            self._tell(message, _told(failure), SETTLED, failure)

    def _leave_nursery(self, group: BaseExceptionGroup[BaseException], message: ReceivedMessage) -> None:
        """What a handler's own nursery raises beside the cancellation is told, and the cancellation alone raised."""
        beside, rest = group.split(Exception)
        if (
            beside is not None
            and rest is not None
            and all(type(leaf) is trio.Cancelled for leaf in leaves(rest))
        ):
            failure = unwrap(beside)
            self._tell(message, _told(failure), SETTLED if message.settled else AGAIN, failure)
            raise rest

    def _leave(self, task: HandlerTask) -> None:
        """The handler's exception ends its task: its message is given back."""
        message = task.message
        if task.is_lost:
            task.left = message
        elif not message.settled:
            self.consumer.leases.give_back_messages([message])

    async def _settle(self, message: ReceivedMessage, failure: BaseException | None) -> None:
        delay = failure.after if isinstance(failure, Retry) else None
        try:
            if failure is None:
                await self.ack(message)
                self._acked.set()
                return
            if isinstance(failure, Reject):
                await self.reject(message, failure.reason)
                return
            if isinstance(failure, Retry):
                reason = failure.reason or _reason(_cause_of(failure))
            else:
                reason = _reason(failure)
                self._tell(message, _told(failure), self._outcome(message), failure)
            await self.nack(message, delay, reason)
        except RuntimeClosed:
            return  # the task that fetches hears of it
        except CallboardError as error:
            self.consumer.session.emit(WorkHindered(self.consumer.group, str(error), _rest(error)))

    def _tell_lost(self, message: ReceivedMessage) -> None:
        why = loss_of(message.lease, self.consumer.leases.group_id, message.offset)
        self._tell(message, f"its lease was lost while it ran, and it was cancelled: {why}", UNSETTLED)

    def _outcome(self, message: ReceivedMessage) -> str:
        """What becomes of a message that is nacked."""
        if message.lease.account.is_deleted:
            return GONE
        most = self.consumer.settings.max_deliveries
        return AGAIN if most is None or message.attempt < most else GIVEN_UP

    def _tell(
        self, message: ReceivedMessage, cause: str, outcome: str, failure: BaseException | None = None
    ) -> None:
        self.consumer.session.emit(
            HandlerFailed(
                group=self.consumer.group,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                attempt=message.attempt,
                cause=cause,
                frames=() if failure is None else traceback_lines(failure),
                place=None if failure is None else place(failure),
                max_deliveries=self.consumer.settings.max_deliveries,
                outcome=outcome,
                exception=failure,
            )
        )

    # -- what the simulator watches

    async def ack(self, message: ReceivedMessage) -> None:
        """Ack without waiting for the disk."""
        await message.ack(wait=False)

    async def nack(self, message: ReceivedMessage, delay: float | None, reason: str | None) -> None:
        """Have the message come again."""
        await message.nack(delay=delay, reason=reason)

    async def reject(self, message: ReceivedMessage, reason: str | None) -> None:
        """Give the message up."""
        await message.reject(reason=reason)

    async def flush(self) -> None:
        """Wait for the outcome of all acks."""
        await self.consumer.flush()

    # -- the outcome of acks

    async def _flush_now_and_then(self) -> Never:
        while True:
            await self._acked.wait()
            await trio.sleep(FLUSH_S)
            self._acked = trio.Event()
            await self._flush()

    async def _flush(self) -> None:
        try:
            await self.flush()
        except RuntimeClosed:
            return
        except CallboardError as error:
            self.consumer.session.emit(WorkHindered(self.consumer.group, str(error), _rest(error)))


def check_settings_of_work(settings: Mapping[str, object]) -> None:
    """Raise `InvalidArgument` for what is no setting of a group, and a misspelt argument of `work`."""
    for name in settings:
        if (
            name not in GROUP_FIELDS
            and not meant(name, GROUP_FIELDS)
            and (near := meant(name, WORK_ARGUMENTS))
        ):
            raise InvalidArgument(f"work takes no argument {name!r}{near}. Nothing was done.")


def _key_of(message: ReceivedMessage) -> Key | None:
    """By what it waits for others; None: it has no key."""
    key = message.key
    return None if key is None else (message.topic, message.partition, key)


def _meant(failure: Exception) -> Exception:
    """What a handler has raised. `Retry` or `Reject` alone in the group of its own nursery are what it means."""
    alone = unwrap(failure)
    return alone if isinstance(alone, (Retry, Reject)) else failure


def _is_foreign_cancellation(error: BaseException) -> bool:
    """Whether nothing but `trio.Cancelled` makes it more than a failure, and no scope around the handler is cancelled.

    A handler raises such a one when it unwraps the outcome of another task. A nursery would take it for its own, and
    end without a word.
    """
    if any(not isinstance(leaf, (Exception, trio.Cancelled)) for leaf in leaves(error)):
        return False
    return trio.current_effective_deadline() != -math.inf


def _told(failure: BaseException) -> str:
    """What an exception is, in a line; a group of one is the exception that it holds."""
    told = describe(failure)[:REASON_CHARACTERS]
    is_cancelled = isinstance(unwrap(failure), trio.Cancelled)
    return f"{told.removesuffix('.')} (by a scope that is not around the handler)" if is_cancelled else told


def _reason(failure: BaseException | None) -> str | None:
    """What the dead letter says of it."""
    if failure is None:
        return None
    cause, where = _told(failure), place(failure)
    return cause if where is None else f"{cause.removesuffix('.')}, at {where}"


def _cause_of(error: BaseException) -> BaseException | None:
    """What an exception was raised from, or while it was handled."""
    return (
        error.__context__ if error.__cause__ is None and not error.__suppress_context__ else error.__cause__
    )


def _rest(error: CallboardError) -> str:
    """What becomes of the other messages when `work` is hindered."""
    return LEFT if isinstance(error, TopicNotFound) else HINDERED
