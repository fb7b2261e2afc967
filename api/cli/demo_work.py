"""One act of the demo: publishers, workers and crashes in one runtime, until every message is settled.

Events of one key always go through the same publisher, which has one publish under way at a time and repeats what
failed before it continues: so the first appearances of a key's events in the log are in the order of the input.

A worker writes down a delivery when it has it in hand, the work when it is done, and the acknowledgement only after
it was awaited. An acknowledgement that fails is not repeated: the message comes again, to this worker or another.
`demo_account` says what the lines mean.
"""

from __future__ import annotations

import enum
import itertools
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import attrs
import trio

from callboard.actors.kernel.events import ActorRestarted
from callboard.cli.demo_account import DemoHistory
from callboard.log.errors import (
    ActorCrashed,
    AskTimeout,
    CallboardError,
    LeaseLost,
    PartialPublish,
    PartitionUnavailable,
    PublishFailed,
    StorageError,
)
from callboard.log.seams.entropy import Entropy
from callboard.message import Message
from callboard.recordings.event import Event, digest_of
from callboard.runtime import Runtime

TOPIC, GROUP = "traffic", "workers"
HEADER = "n"
"""The header that names the event: its number in the input and its digest, as text."""
PUBLISHERS = 2
SINGLES, BATCHES = 10, 8
"""So many messages are published singly, then so many batches, and so on."""
TRIES_MAX = 100
AHEAD_MAX = 2_000
"""Publishers wait while so many of their messages are not acknowledged by workers: this bounds memory."""
VISIBILITY_S = 1.0
HANG_S = 1.3 * VISIBILITY_S
STALLED_S = 90.0
PAUSE_S = 0.02
SUBSCRIPTION: dict[str, Any] = {
    "visibility_timeout": VISIBILITY_S,
    "max_in_flight": 256,
    "backoff": 0.02,
    "max_backoff": 0.5,
}
_REPEATED = (ActorCrashed, AskTimeout, PartitionUnavailable, PublishFailed)
_NOT_SETTLED = (LeaseLost, ActorCrashed, AskTimeout, PartitionUnavailable, StorageError)
Numbered = tuple[int, Event]


class DemoFailure(Exception):
    """What the demo's workers raise and its partitions crash with."""


class WorkFailure(enum.Enum):
    """How a worker fails on the first delivery of an event."""

    RAISE = "raise"
    """The handler raises: the message is refused and comes again."""
    CANCEL = "cancel"
    """The handler is cancelled: the message is given back and comes again."""
    HANG = "hang"
    """The handler hangs for longer than the message is visible to it alone: somebody else gets it."""


@attrs.frozen
class FailurePlan:
    """The faults of one act over the events `first` to `last` (exclusive), decided beforehand.

    `crashes` holds (after so many events of this act were acknowledged, partition), in order. `kill_after` is the
    number of acknowledged events of the act after which its process is killed, where it is to be killed.
    """

    first: int
    last: int
    failures: dict[int, WorkFailure]
    crashes: tuple[tuple[int, int], ...]
    kill_after: int


def plan_failures(entropy: Entropy, *, first: int, last: int, partitions: int) -> FailurePlan:
    """The plan for the events from `first` to `last` (exclusive); the same for the same entropy."""
    events = last - first

    def between(low: float, high: float) -> int:
        return int(events * (low + entropy.random() * (high - low)))

    wanted = {
        WorkFailure.RAISE: max(2, round(events * 0.004)),
        WorkFailure.CANCEL: max(1, round(events * 0.002)),
        WorkFailure.HANG: max(1, round(events / 10_000)),
    }
    failures = {
        first + between(0, 1): failure for failure, count in wanted.items() for _ in range(min(count, events))
    }
    moments = sorted(between(0.1, 0.9) for _ in range(4))
    crashes = tuple((moment, int(entropy.random() * partitions)) for moment in moments)
    return FailurePlan(first, last, failures, crashes, between(0.3, 0.6))


class Act:
    """One act. `report(published, acknowledged, is_ripe)` is called as it continues; it is ripe for a kill when much is
    published and more under way, or when nothing more will be.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: FailurePlan,
        write: Callable[[str], None],
        report: Callable[[int, int, bool], None],
    ) -> None:
        self._runtime = runtime
        self._topic = runtime.topic(TOPIC)
        self._plan = plan
        self._write = write
        self._report = report
        self._crashes = list(plan.crashes)
        self._failures = dict(plan.failures)
        self._sent: dict[int, float] = {}
        """When each event was first handed over, until it is handled."""
        self._published = self._acknowledged = self._under_way = self._busy = 0

    async def run(self, events: Iterable[Numbered], workers: int, *, wait_for_kill: bool = False) -> None:
        """Publish the events and have all that is stored handled and settled."""
        async with trio.open_nursery() as nursery:
            self._runtime.subscribe_events(self._on_event)
            for index in range(workers):
                nursery.start_soon(self._work, index)
            await self._publish_all(events)
            if wait_for_kill:
                self._report(self._published, self._acknowledged, True)
                await trio.sleep_forever()
            await self._wait_until_settled()
            nursery.cancel_scope.cancel()

    def note(self, tag: str, *numbers: int) -> None:
        """Write down a fact."""
        self._write(" ".join((tag, *map(str, numbers))))

    def _show(self) -> None:
        far = self._published >= self._plan.kill_after
        self._report(
            self._published, self._acknowledged, bool(far and self._acknowledged and self._under_way)
        )

    def _on_event(self, event: object) -> None:
        """Write down each restart that the supervisors report."""
        if isinstance(event, ActorRestarted) and event.path.startswith(f"topics/{TOPIC}/"):
            self.note("R", int(event.path.rpartition("/")[2]))

    async def _wait_until_settled(self) -> None:
        """Returns when all is settled, or when nothing has happened for so long that it never will: see the account."""
        acknowledged, since = self._acknowledged, trio.current_time()
        while trio.current_time() - since < STALLED_S:
            try:
                if not self._busy and not await unsettled(self._runtime):
                    return
            except (ActorCrashed, AskTimeout, PartitionUnavailable):
                pass
            await trio.sleep(PAUSE_S)
            if self._acknowledged != acknowledged:
                acknowledged, since = self._acknowledged, trio.current_time()

    # -- publishers

    async def _publish_all(self, events: Iterable[Numbered]) -> None:
        async with trio.open_nursery() as nursery:
            channels = []
            for _ in range(PUBLISHERS):
                send, receive = trio.open_memory_channel[Numbered](100)
                channels.append(send)
                nursery.start_soon(self._publisher, receive)
            for number, event in events:
                index = number if event.key is None else zlib.crc32(event.key)
                await channels[index % PUBLISHERS].send((number, event))
            for channel in channels:
                channel.close()

    async def _publisher(self, events: trio.MemoryReceiveChannel[Numbered]) -> None:
        batch = max(4, min(200, (self._plan.last - self._plan.first) // 50))
        sizes = itertools.cycle([1] * SINGLES + [batch] * BATCHES)
        size, pending = next(sizes), list[Numbered]()
        async for numbered in events:
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
                self._sent.setdefault(number, started)
            self.note("S", *(number for number, _ in pending))
            self._under_way += len(pending)
            self._show()
            outcomes = await self._attempt(pending)
            self._under_way -= len(pending)
            stored: dict[int, list[int]] = {}
            failed, doubtful = list[Numbered](), list[int]()
            for numbered, outcome in zip(pending, outcomes, strict=True):
                if isinstance(outcome, CallboardError):
                    problem = outcome
                    failed.append(numbered)
                    doubtful += [numbered[0]] * outcome.indefinite
                else:
                    stored.setdefault(outcome.partition, []).extend((outcome.offset, numbered[0]))
            for partition, places in stored.items():
                self.note("P", partition, *places)
            if doubtful:
                self.note("E", *doubtful)
            if stored:
                self.note("Q", round((trio.current_time() - started) * 1e6))
                await self._has_published(len(pending) - len(failed))
            if not failed:
                return
            pending = failed
            if isinstance(problem, PartitionUnavailable) and problem.fields.get("state") == "failed":
                await self._runtime.restart(f"topics/{TOPIC}/{problem.fields['partition']}")
            await trio.sleep(min(PAUSE_S / 4 * 2**attempt, 0.25))
        raise PublishFailed(f"The demo could not publish in {TRIES_MAX} tries. The last error: {problem}")

    async def _attempt(self, pending: Sequence[Numbered]) -> Sequence[Any]:
        """A receipt or an error for each."""
        messages = [
            Message(event.value, event.key, {HEADER: b"%d %x" % (number, event.digest)}, event.time)
            for number, event in pending
        ]
        try:
            if len(messages) == 1:
                return [await self._topic.publish(messages[0])]
            return await self._topic.publish_batch(messages)
        except PartialPublish as error:
            return error.receipts
        except _REPEATED as error:
            return [error] * len(messages)

    async def _has_published(self, count: int) -> None:
        self._published += count
        while self._crashes and self._published >= self._crashes[0][0]:
            _, partition = self._crashes.pop(0)
            if self._runtime.crash(f"topics/{TOPIC}/{partition}", DemoFailure("partitions crash")):
                self.note("C", partition)
        self._show()
        while self._published - self._acknowledged > AHEAD_MAX:  # noqa: ASYNC110 - numbers are compared
            await trio.sleep(PAUSE_S)

    # -- workers: one consumer group, three ways to consume

    async def _work(self, index: int) -> None:
        style = (self._one_by_one, self._in_batches, self._held, self._in_batches)[index % 4]
        while True:
            try:
                async with self._topic.subscribe(GROUP, **SUBSCRIPTION) as consumer:
                    await style(consumer)
            except _NOT_SETTLED:
                await trio.sleep(PAUSE_S)

    async def _one_by_one(self, consumer: Any) -> None:
        async for message in consumer:
            await self._handle(consumer, [message], message.ack)

    async def _in_batches(self, consumer: Any) -> None:
        async for batch in consumer.batches(max_records=64, max_wait=0.01):
            await self._handle(consumer, list(batch), batch.ack)

    async def _handle(
        self, consumer: Any, messages: Sequence[Any], ack_all: Callable[[], Awaitable[None]]
    ) -> None:
        """Settle messages by hand, together where none of them fails."""
        self._busy += 1
        try:
            planned = self._received(messages)
            if WorkFailure.HANG in planned.values():
                await trio.sleep(HANG_S)
            done = []
            for message in messages:
                failure = planned.get(message.offset)
                if failure is WorkFailure.RAISE:
                    await message.nack(delay=PAUSE_S, reason="the demo's worker fails now and then")
                elif failure is WorkFailure.CANCEL:
                    await message.release()
                else:
                    done.append(message)
            self._handled(done)
            if len(done) < len(messages):
                for message in done:
                    await message.ack(wait=False)
                ack_all = consumer.flush
            try:
                await ack_all()
            except LeaseLost as error:
                lost = [range(start, stop) for start, stop in error.fields["lost"]]
                done = [message for message in done if not any(message.offset in span for span in lost)]
            self._settled(done)
        except _NOT_SETTLED:
            return
        finally:
            self._busy -= 1

    async def _held(self, consumer: Any) -> None:
        while True:
            taken: list[Any] = []
            try:
                with trio.CancelScope() as scope:
                    async with consumer.receive() as message:
                        taken.append(message)
                        self._busy += 1
                        failure = self._received(taken).get(message.offset)
                        if failure is WorkFailure.RAISE:
                            raise DemoFailure("the demo's worker fails now and then")
                        if failure is WorkFailure.CANCEL:
                            scope.cancel()
                            await trio.lowlevel.checkpoint()
                        if failure is WorkFailure.HANG:
                            await trio.sleep(HANG_S)
                        self._handled(taken)
                if not scope.cancelled_caught:
                    self._settled(taken)
            except (DemoFailure, *_NOT_SETTLED):
                continue
            finally:
                self._busy -= len(taken)

    def _received(self, messages: Sequence[Any]) -> dict[int, WorkFailure]:
        """Write down the delivery (all of one partition), check each message; the planned failures by offset."""
        self.note("D", messages[0].partition, *(message.offset for message in messages))
        planned: dict[int, WorkFailure] = {}
        for message in messages:
            number, digest = identify(message.headers)
            if number is None or digest != digest_of(message.key, message.value):
                self.note("X", message.partition, message.offset)
            elif number in self._failures:
                planned[message.offset] = self._failures.pop(number)
        return planned

    def _handled(self, messages: Sequence[Any]) -> None:
        if messages:
            self.note("H", messages[0].partition, *(message.offset for message in messages))
            now = trio.current_time()
            numbers = (identify(message.headers)[0] for message in messages)
            sent = [self._sent.pop(number) for number in numbers if number in self._sent]
            if sent:
                self.note("L", *(round((now - at) * 1e6) for at in sent))

    def _settled(self, messages: Sequence[Any]) -> None:
        if messages:
            self.note("K", messages[0].partition, *(message.offset for message in messages))
            self._acknowledged += len(messages)
            self._show()


def identify(headers: dict[str, bytes]) -> tuple[int | None, int]:
    """Number and digest of the event that a message says it is; (None, 0) for none."""
    number, _, digest = headers.get(HEADER, b"").partition(b" ")
    try:
        return int(number), int(digest, 16)
    except ValueError:
        return None, 0


async def unsettled(runtime: Runtime) -> int:
    """How many stored messages the group has not settled."""
    return sum(
        partition.visible_end
        - min((group.floor for group in partition.groups), default=partition.start_offset)
        for partition in await runtime.topic(TOPIC).describe()
    )


async def feed_log(runtime: Runtime, history: DemoHistory) -> None:
    """Give the history everything that is in the log."""
    topic = runtime.topic(TOPIC)
    for partition in range(topic.partitions):
        async for record in topic.read(partition=partition):
            number, _ = identify(record.headers)
            key = None if record.key is None else digest_of(record.key, b"")
            digest = digest_of(record.key, record.value or b"")
            history.add_stored(partition, record.offset, number, digest, key)
