"""One act of the demo, in a process of its own: publishers, workers and crashes, until every message is settled.

Events of one key always go through the same publisher, which has one publish under way at a time and repeats what
failed before it continues: so the first appearances of a key's events in the log are in the order of the input.

A worker writes down a delivery when it has it in hand, the work when it is done, and the acknowledgement only after
it was awaited. An acknowledgement that fails is not repeated: the message comes again, to this worker or another.

The handler has a bug: some messages it can never handle. They become dead letters, which the router takes to a topic of
their own. Act three has a mended handler; when all else is settled it has the dead letters delivered again.
`account` says what the lines mean.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import trio

from callboard.actors.catalog.commands import DELAYED_FORWARDER, ROUTER
from callboard.actors.kernel.events import ActorRestarted
from callboard.actors.records import dead_letter_records
from callboard.actors.source_ids import FOR_GROUP
from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.consumer.verdicts import Reject, Retry
from callboard.demo.account import DemoHistory, Left, acknowledged_events
from callboard.demo.files import RecordFile, read_record_lines
from callboard.demo.stage import (
    BUG_REASON,
    DEAD_TOPIC,
    GROUP,
    THREE,
    TOPIC,
    TWO,
    Stage,
    WorkFailure,
)
from callboard.log.errors import (
    ActorCrashed,
    AskTimeout,
    CallboardError,
    InvalidArgument,
    LeaseLost,
    PartialPublish,
    PartitionUnavailable,
    PublishFailed,
    StorageError,
)
from callboard.message import Message, ScheduledReceipt, to_us
from callboard.runtime import Runtime
from callboard.traffic import Event, digest_of

HEADER: Final = "n"
"""The header that names the event: its number in the input and its digest, as text."""
PUBLISHERS: Final = 2
SINGLES, BATCHES = 10, 8
"""Messages that are published singly, then as many batches, and so on."""
TRIES_MAX: Final = 100
AHEAD_MAX: Final = 2_000
"""Publishers wait while workers have not acknowledged this many of their messages: this bounds memory."""
VISIBILITY_S: Final = 1.0
HANG_S: Final = 1.3 * VISIBILITY_S
HANDLERS: Final = 4
"""How many messages a worker handles at once that leaves the loop to `work`."""
STALLED_S: Final = 90.0
PAUSE_S: Final = 0.02
DELIVERIES_MAX: Final = 4
SUBSCRIPTION: Final[dict[str, Any]] = {
    "visibility_timeout": VISIBILITY_S,
    "max_in_flight": 256,
    "retry": [0.02, 0.1, 0.3],
    "max_deliveries": DELIVERIES_MAX,
    "dead_letter_topic": DEAD_TOPIC,
}
_REPEATED = (ActorCrashed, AskTimeout, PartitionUnavailable, PublishFailed)
_NOT_SETTLED = (LeaseLost, ActorCrashed, AskTimeout, PartitionUnavailable, StorageError)
_NUMBERS: Final = {DELAYED_FORWARDER: -1, ROUTER: -2}
Numbered = tuple[int, Event]
Standing = tuple[int, int, int, int, bool]
"""How far an act is: published, acknowledged, to do, dead, and whether it is over."""


class DemoFailure(Exception):
    """What the demo's actors crash with."""


class Act:
    """One act. Act two is to be killed: it keeps the last tenth unpublished, so that it never finishes, and act three
    publishes what the records of act two show no receipt for.

    Tells how far it is as it continues: see `Standing`. To do is what is to be
    acknowledged: all that earlier acts have left over. In act two it is what is to be published, of which the kill
    leaves some. Dead is how many messages have met the bug, or in act three how many dead letters were redriven.

    Act two is over, and ripe for its kill, when much is published and more is about to be, or when nothing more will
    be; the others when all is settled.
    """

    def __init__(
        self,
        stage: Stage,
        act: str,
        runtime: Runtime,
        *,
        write: Callable[[str], None],
        tell: Callable[[Standing], None],
    ) -> None:
        self._stage = stage
        self._act = act
        self._runtime = runtime
        self._topic = runtime.topic(TOPIC)
        self._write = write
        self._tell = tell
        self._first, self._last = stage.span(act)
        self._failures, self._delays, self._crashes, self._kill_after = stage.plan(act)
        if act == THREE:  # the bug is mended
            self._failures = {
                event: failure for event, failure in self._failures.items() if not failure.is_bug
            }
        self._stalled = trio.CancelScope()
        """Ends the act when nothing has happened for so long that it never will."""
        self._sent: dict[int, float] = {}
        """When each event was first handed over, until it is handled."""
        self._given_up: set[int] = set()
        """Events that the handler's bug keeps from being acknowledged."""
        self._published = self._acknowledged = self._redriven = self._busy = 0
        self._to_do = self._last - self._first if act == TWO else 0

    async def run(self) -> None:
        """Publish the events and have all that is stored handled and settled."""
        done: set[int] = set()
        last = self._last
        if self._act == TWO:
            last -= max(1, (last - self._first) // 10)
        elif self._act == THREE:
            done.update(acknowledged_events(read_record_lines(self._stage.recorded(TWO))))
            for found in await self._topic.describe():
                self._note("O", found.partition, found.visible_end)
            self._note("Z", await self._topic.delayed().count())
        numbered = enumerate(self._stage.traffic(first=self._first, last=last), self._first)
        if self._act != TWO:
            left = await self._topic.delayed().count() + await unsettled(self._runtime)
            self._to_do = last - self._first - len(done) + left
        async with trio.open_nursery() as nursery:
            self._runtime.subscribe_events(self._on_event)
            for index in range(self._stage.workers):
                nursery.start_soon(self._work, index)
            await self._publish_all(pair for pair in numbered if pair[0] not in done)
            if self._act == TWO:
                self.show(is_over=True)
                await trio.sleep_forever()
            await self._wait_until_settled()
            if self._act == THREE:
                await self._redrive()
            nursery.cancel_scope.cancel()

    def show(self, *, is_over: bool = False) -> None:
        """Tell how far the act is."""
        self._tell((self._published, self._acknowledged, self._to_do, self._dead, is_over))

    @property
    def _dead(self) -> int:
        return self._redriven if self._act == THREE else len(self._given_up)

    def _note(self, tag: str, *numbers: int) -> None:
        self._write(" ".join((tag, *map(str, numbers))))

    def _note_all(self, tag: str, messages: Sequence[ReceivedMessage]) -> None:
        self._note(tag, messages[0].partition, *(message.offset for message in messages))

    def _on_event(self, event: object) -> None:
        """Write down each restart that the supervisors report."""
        if isinstance(event, ActorRestarted) and (number := _number_of(event.path)) is not None:
            self._note("R", number)

    def _crash(self, path: str) -> None:
        """Have an actor crash, if it is there: without delays and dead letters theirs are not."""
        with contextlib.suppress(InvalidArgument):
            number = _number_of(path)
            if self._runtime.crash(path, DemoFailure("actors crash")) and number is not None:
                self._note("C", number)

    async def _wait_until_settled(self) -> None:
        """Returns when nothing waits and all is settled, or never will be: see the account."""
        await self._wait_until(self._is_settled)

    async def _is_settled(self) -> bool:
        if self._busy or await self._topic.delayed().count():
            return False
        return not await unsettled(self._runtime)

    async def _wait_until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        self._stalled = trio.CancelScope(deadline=trio.current_time() + STALLED_S)
        with self._stalled:
            while True:
                with contextlib.suppress(ActorCrashed, AskTimeout, PartitionUnavailable):
                    if await is_so():
                        return
                await trio.sleep(PAUSE_S)

    # -- dead letters

    async def _redrive(self) -> None:
        """Have all dead letters delivered again: first the half of them, then, after a crash, all that are left."""
        letters = self._runtime.dead_letters(DEAD_TOPIC)
        await self._wait_until(self._is_forwarded)
        count = sum((await letters.count()).values())
        limit = (count + 1) // 2 or None
        for _ in range(TRIES_MAX):
            try:
                done = await letters.redrive(limit=limit)
            except _REPEATED:
                await trio.sleep(PAUSE_S)
                continue
            self._redriven += done.messages
            self._to_do += done.messages
            self.show()
            if limit is None:
                await self._wait_until_settled()
                await self._wait_until(self._is_forwarded)
                if not done.messages:
                    return
            else:
                self._crash(f"topics/{TOPIC}/0")
                limit = None

    async def _is_forwarded(self) -> bool:
        return not await kept(self._runtime)

    # -- publishers

    async def _publish_all(self, events: Iterator[Numbered]) -> None:
        async with trio.open_nursery() as nursery:
            channels = [trio.open_memory_channel[Numbered](100) for _ in range(PUBLISHERS)]
            for _, receive in channels:
                nursery.start_soon(self._publisher, receive)
            for number, event in events:
                index = number if event.key is None else zlib.crc32(event.key)
                await channels[index % PUBLISHERS][0].send((number, event))
            for send, _ in channels:
                send.close()

    async def _publisher(self, events: trio.MemoryReceiveChannel[Numbered]) -> None:
        batch = max(4, min(200, (self._last - self._first) // 50))
        sizes = itertools.cycle([1] * SINGLES + [batch] * BATCHES)
        size, pending = next(sizes), list[Numbered]()
        async for numbered in events:
            if numbered[0] in self._delays:
                await self._publish([numbered])
                continue
            pending.append(numbered)
            if len(pending) == size:
                await self._publish(pending)
                size, pending = next(sizes), []
        if pending:
            await self._publish(pending)

    async def _publish(self, pending: Sequence[Numbered]) -> None:
        """Publish these, repeating what failed, until all are acknowledged."""
        problem: CallboardError | None = None
        for attempt in range(TRIES_MAX):
            started = trio.current_time()
            for number, _ in pending:
                if number not in self._delays:
                    self._sent.setdefault(number, started)
            self._note("S", *(number for number, _ in pending))
            self.show(
                is_over=self._act == TWO and self._published >= self._kill_after and self._acknowledged > 0
            )
            outcomes: Sequence[Any]
            try:
                if len(pending) == 1:
                    number, event = pending[0]
                    delay = self._delays.get(number)
                    outcomes = [await self._topic.publish(_message(number, event, delay))]
                else:
                    outcomes = await self._topic.publish_batch([_message(*pair) for pair in pending])
            except PartialPublish as error:
                outcomes = error.receipts
            except _REPEATED as error:
                outcomes = [error] * len(pending)
            stored: dict[int, list[int]] = {}
            failed, doubtful = list[Numbered](), list[int]()
            for numbered, outcome in zip(pending, outcomes, strict=True):
                if isinstance(outcome, CallboardError):
                    problem = outcome
                    failed.append(numbered)
                    doubtful += [numbered[0]] * outcome.indefinite
                elif isinstance(outcome, ScheduledReceipt):
                    self._note("W", numbered[0], round(outcome.due.timestamp() * 1e6))
                else:
                    stored.setdefault(outcome.partition, []).extend((outcome.offset, numbered[0]))
            for partition, places in stored.items():
                self._note("P", partition, *places)
            if doubtful:
                self._note("E", *doubtful)
            if len(failed) < len(pending):
                self._note("Q", round((trio.current_time() - started) * 1e6))
                await self._has_published(len(pending) - len(failed))
            if not failed:
                return
            pending = failed
            if isinstance(problem, PartitionUnavailable) and problem.fields.get("state") == "failed":
                await self._runtime.restart(f"topics/{TOPIC}/{problem.fields['partition']}")
            await trio.sleep(min(PAUSE_S / 4 * 2**attempt, 0.25))
        raise PublishFailed(f"the demo could not publish in {TRIES_MAX} tries. The last error: {problem}")

    @property
    def _ahead(self) -> int:
        """How many messages were published and neither acknowledged nor given up."""
        return self._published - self._acknowledged - len(self._given_up)

    async def _has_published(self, count: int) -> None:
        self._published += count
        while self._crashes and self._published >= self._crashes[0][0]:
            self._crash(self._crashes.pop(0)[1])
        self.show()
        while self._ahead > AHEAD_MAX:  # noqa: ASYNC110 - numbers are compared
            await trio.sleep(PAUSE_S)

    # -- workers: one consumer group, two ways to consume

    async def _work(self, index: int) -> None:
        while True:
            try:
                if index % 3 == 2:
                    await self._topic.work(self._handle_one, GROUP, concurrency=HANDLERS, **SUBSCRIPTION)
                async with self._topic.subscribe(GROUP, **SUBSCRIPTION) as consumer:
                    async for batch in consumer.batches(max_records=1 if index % 3 else 64):
                        await self._handle(batch)
            except _NOT_SETTLED:
                await trio.sleep(PAUSE_S)

    async def _handle(self, batch: ReceivedBatch) -> None:
        """Settle the messages that fail by hand, and the others together."""
        self._busy += 1
        try:
            messages = list(batch)
            planned = self._received(messages)
            if WorkFailure.HANG in planned.values():
                self._note_all("B", messages)
                await trio.sleep(HANG_S)
            for message in messages:
                failure = planned.get(message.offset)
                if failure is WorkFailure.RAISE or failure is WorkFailure.FAIL:
                    self._note_all("F", [message])
                    await message.nack(reason=failure.value)
                elif failure is WorkFailure.CANCEL:
                    self._note_all("G", [message])
                    await message.release()
                elif failure is WorkFailure.REJECT:
                    self._note_all("J", [message])
                    await message.reject(reason=BUG_REASON)
                    self._note_all("N", [message])
            done = [message for message in messages if not message.settled]
            self._handled(done)
            try:
                await batch.ack()
            except LeaseLost as error:
                lost = [range(start, stop) for start, stop in error.fields["lost"]]
                done = [message for message in done if not any(message.offset in span for span in lost)]
            self._settled(done)
        except _NOT_SETTLED:
            return
        finally:
            self._busy -= 1

    async def _handle_one(self, message: ReceivedMessage) -> None:
        """What `work` calls with each message. It awaits its ack itself, to write it down."""
        self._busy += 1
        try:
            failure = self._received([message]).get(message.offset)
            if failure is WorkFailure.RAISE or failure is WorkFailure.FAIL:
                self._note_all("F", [message])
                raise Retry(reason=failure.value)
            if failure is WorkFailure.REJECT:
                self._note_all("J", [message])
                raise Reject(BUG_REASON)
            if failure is WorkFailure.CANCEL:
                self._note_all("G", [message])
                await message.release()
                return
            if failure is WorkFailure.HANG:
                self._note_all("B", [message])
                await trio.sleep(HANG_S)
            self._handled([message])
            with contextlib.suppress(*_NOT_SETTLED):
                await message.ack()
                self._settled([message])
        finally:
            self._busy -= 1

    def _received(self, messages: Sequence[ReceivedMessage]) -> dict[int, WorkFailure]:
        """Write down the delivery (all of one partition), check each message; the planned failures by offset."""
        self._note_all("D", messages)
        planned: dict[int, WorkFailure] = {}
        for message in messages:
            number, digest = identify(message.headers)
            if number is None or digest != digest_of(message.key, message.value or b""):
                self._note("X", message.partition, message.offset)
            elif number in self._failures:
                planned[message.offset] = failure = self._failures[number]
                if failure.is_bug:
                    self._given_up.add(number)
                else:
                    del self._failures[number]
        return planned

    def _handled(self, messages: Sequence[ReceivedMessage]) -> None:
        if messages:
            self._note_all("H", messages)
            now = trio.current_time()
            numbers = (identify(message.headers)[0] for message in messages)
            sent = [self._sent.pop(number) for number in numbers if number in self._sent]
            if sent:
                self._note("L", *(round((now - at) * 1e6) for at in sent))

    def _settled(self, messages: Sequence[ReceivedMessage]) -> None:
        if messages:
            self._note_all("K", messages)
            self._acknowledged += len(messages)
            self._stalled.deadline = trio.current_time() + STALLED_S
            self.show()


def _message(number: int, event: Event, delay: float | None = None) -> Message:
    headers = {HEADER: b"%d %x" % (number, event.digest)}
    return Message(event.value, event.key, headers, event.time, delay=delay)


def identify(headers: dict[str, bytes]) -> tuple[int | None, int]:
    """Number and digest of the event that a message says it is; (None, 0) for none."""
    number, _, digest = headers.get(HEADER, b"").partition(b" ")
    try:
        return int(number), int(digest, 16)
    except ValueError:
        return None, 0


def origin_of(headers: dict[str, bytes]) -> tuple[int, int]:
    """Partition and offset of the message that a dead letter says it was; (-1, -1) for none."""
    try:
        return int(headers[dead_letter_records.PARTITION]), int(headers[dead_letter_records.OFFSET])
    except (KeyError, ValueError):
        return -1, -1


def _number_of(path: str) -> int | None:
    """The number of an actor in the records: a partition's own, or that of one of the two others that are crashed."""
    above, _, name = path.rpartition("/")
    return int(name) if above == f"topics/{TOPIC}" else _NUMBERS.get(path)


async def kept(runtime: Runtime) -> int:
    """How many dead letters the partitions keep, which the router has not forwarded."""
    return sum(
        group.dead for partition in await runtime.topic(TOPIC).describe() for group in partition.groups
    )


async def unsettled(runtime: Runtime) -> int:
    """How many stored messages the group has not settled."""
    return sum(
        partition.visible_end
        - min((group.floor for group in partition.groups), default=partition.start_offset)
        for partition in await runtime.topic(TOPIC).describe()
    )


async def perform(stage: Stage, act: str, tell: Callable[[Standing], None]) -> None:
    """Play an act to its end."""
    with contextlib.closing(RecordFile(stage.recorded(act))) as file:
        async with stage.runtime() as runtime:
            await runtime.create_topic(TOPIC, partitions=stage.partitions)
            await runtime.create_topic(DEAD_TOPIC)
            played = Act(stage, act, runtime, write=file.write, tell=tell)
            await played.run()
    played.show(is_over=True)


async def read_back(stage: Stage, history: DemoHistory) -> Left:
    """Give the history all that is stored; returns what is left undone."""
    async with stage.runtime() as runtime:
        topic = runtime.topic(TOPIC)
        for partition in range(topic.partitions):
            async for record in topic.read(partition=partition):
                headers = record.headers
                history.add_stored(
                    partition,
                    record.offset,
                    identify(headers)[0],
                    digest_of(record.key, record.value or b""),
                    None if record.key is None else digest_of(record.key, b""),
                    appended_us=to_us(record.append_time),
                    redriven=FOR_GROUP in headers,
                )
        async for record in runtime.topic(DEAD_TOPIC).read():
            partition, offset = origin_of(record.headers)
            history.add_dead(partition, offset, digest_of(record.key, record.value or b""))
        left_dead = await kept(runtime) + sum((await runtime.dead_letters(DEAD_TOPIC).count()).values())
        return Left(await unsettled(runtime), await topic.delayed().count(), left_dead)
