"""One act of the demo, in a process of its own: publishers, workers and crashes, until every message is settled.

Events of one key always go through the same publisher, which has one publish under way at a time and repeats what
failed before it continues: so the first appearances of a key's events in the log are in the order of the input.

A worker writes down a delivery when it has it in hand, the work when it is done, and the acknowledgement only after
it was awaited. An acknowledgement that fails is not repeated: the message comes again, to this worker or another.
`demo_account` says what the lines mean.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import attrs
import click
import trio

from callboard.actors.kernel.events import ActorRestarted
from callboard.cli.demo_account import acknowledged_events
from callboard.cli.files import RecordFile, read_record_lines, read_traffic
from callboard.cli.group import first_error, run
from callboard.cli.options import delimiter_of
from callboard.cli.processes import wait_for_parent_to_go
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
from callboard.received import ReceivedBatch, ReceivedMessage
from callboard.recordings import (
    Event,
    Format,
    LineColumns,
    Tally,
    TimeFormat,
    digest_of,
    load_profile,
    read_events,
    synthesise,
)
from callboard.runtime import Runtime, open_runtime
from callboard.simulations.entropy import SeededEntropy
from callboard.working import Retry

ONE, TWO, THREE = "act one", "act two", "act three"
EVENTS_DEFAULT: Final = 30_000
TOPIC, GROUP = "traffic", "workers"
HEADER: Final = "n"
"""The header that names the event: its number in the input and its digest, as text."""
PUBLISHERS: Final = 2
SINGLES, BATCHES = 10, 8
"""So many messages are published singly, then so many batches, and so on."""
TRIES_MAX: Final = 100
AHEAD_MAX: Final = 2_000
"""Publishers wait while so many of their messages are not acknowledged by workers: this bounds memory."""
VISIBILITY_S: Final = 1.0
HANG_S: Final = 1.3 * VISIBILITY_S
HANDLERS: Final = 4
"""How many messages a worker handles at once that leaves the loop to `work`."""
STALLED_S: Final = 90.0
PAUSE_S: Final = 0.02
SUBSCRIPTION: Final[dict[str, Any]] = {
    "visibility_timeout": VISIBILITY_S,
    "max_in_flight": 256,
    "backoff": 0.02,
    "max_backoff": 0.5,
}
_REPEATED = (ActorCrashed, AskTimeout, PartitionUnavailable, PublishFailed)
_NOT_SETTLED = (LeaseLost, ActorCrashed, AskTimeout, PartitionUnavailable, StorageError)
Numbered = tuple[int, Event]


class DemoFailure(Exception):
    """What the demo's partitions crash with."""


class WorkFailure(enum.Enum):
    """How a worker fails on the first delivery of an event: each time the message comes again, to it or to another."""

    RAISE = "the handler raises"
    CANCEL = "the handler is cancelled"
    HANG = "the handler hangs for longer than the message is visible to it alone"


class FailurePlan(NamedTuple):
    """What goes wrong in one act, decided beforehand."""

    failures: dict[int, WorkFailure]
    """By event."""
    crashes: list[tuple[int, int]]
    """(after so many publishes of this act, partition), in order."""
    kill_after: int
    """So many publishes."""


def plan_failures(entropy: Entropy, *, first: int, last: int, partitions: int) -> FailurePlan:
    """The plan for the events from `first` to `last` (exclusive); the same for the same entropy."""
    events, random = last - first, entropy.random
    kinds = [WorkFailure.RAISE] * min(events, max(2, round(events * 0.004)))
    kinds += [WorkFailure.CANCEL] * max(1, round(events * 0.002))
    kinds += [WorkFailure.HANG] * max(1, round(events / 10_000))
    failures = {first + int(events * random()): kind for kind in kinds}
    moments = sorted(int(events * (0.1 + 0.8 * random())) for _ in range(4))
    crashes = [(moment, int(partitions * random())) for moment in moments]
    return FailurePlan(failures, crashes, int(events * (0.3 + 0.3 * random())))


@attrs.frozen(kw_only=True)
class Stage:
    """What all acts share. Traffic comes from `path`, or is made from `seed` if it is None."""

    seed: int = 1
    path: str | None = None
    events: int | None = None
    """How many to make, or to take of the file; None takes all."""
    form: str | None = None
    time_column: str | None = None
    key_column: str | None = None
    value_column: str | None = None
    time_format: str = "auto"
    delimiter: str | None = None
    year: int | None = None
    partitions: int = 4
    workers: int = 4
    directory: str = ""
    quiet: bool = True
    total: int = 0
    """How many events there are."""

    def traffic(
        self, *, first: int = 0, last: int | None = None, tally: Tally | None = None
    ) -> Iterator[Event]:
        """The events numbered from `first` to `last` (exclusive): the same whenever they are asked for."""
        if self.path is None:
            entropy = SeededEntropy(self.seed).fork("traffic")
            every = synthesise(load_profile(), self.events or EVENTS_DEFAULT, entropy)
        else:
            columns = LineColumns(
                self.time_column,
                self.key_column,
                self.value_column,
                TimeFormat(self.time_format),
                delimiter_of(self.delimiter),
                self.year,
            )
            lines = read_traffic(self.path)
            form = None if self.form is None else Format(self.form)
            every = read_events(lines, form=form, columns=columns, tally=tally)
        return itertools.islice(itertools.islice(every, self.events), first, last)

    def span(self, act: str) -> tuple[int, int]:
        """The events of an act: act one has the first half, the others have the second."""
        middle = self.total // 2
        return (0, middle) if act == ONE else (middle, self.total)

    def recorded(self, act: str) -> str:
        return f"{self.directory}/records/{act.replace(' ', '-')}.txt"

    def runtime(self) -> Runtime:
        return open_runtime(f"{self.directory}/data")


class Act:
    """One act. Act two is to be killed: it keeps the last tenth unpublished, so that it never finishes, and act three
    publishes what the records of act two show no receipt for.

    Prints [published, acknowledged, to do, is over] on standard output as it continues. To do is what is to be
    acknowledged: all that earlier acts have left over. In act two it is what is to be published before the kill.

    Act two is over, and ripe for its kill, when much is published and more is about to be, or when nothing more will
    be; the others when all is settled.
    """

    def __init__(self, stage: Stage, act: str, runtime: Runtime, write: Callable[[str], None]) -> None:
        self._stage = stage
        self._act = act
        self._runtime = runtime
        self._topic = runtime.topic(TOPIC)
        self._write = write
        self._first, self._last = stage.span(act)
        entropy = SeededEntropy(stage.seed).fork(TWO if act == THREE else act)
        plan = plan_failures(entropy, first=self._first, last=self._last, partitions=stage.partitions)
        self._failures, self._crashes, self._kill_after = plan
        if act == THREE:
            self._crashes.clear()
        self._stalled = trio.CancelScope()
        """Ends the act when nothing has happened for so long that it never will."""
        self._sent: dict[int, float] = {}
        """When each event was first handed over, until it is handled."""
        self._published = self._acknowledged = self._busy = 0
        self._to_do = min(self._kill_after, self._last - self._first) if act == TWO else 0

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
        numbered = enumerate(self._stage.traffic(first=self._first, last=last), self._first)
        if self._act != TWO:
            self._to_do = last - self._first - len(done) + await unsettled(self._runtime)
        async with trio.open_nursery() as nursery:
            self._runtime.subscribe_events(self._on_event)
            for index in range(self._stage.workers):
                nursery.start_soon(self._work, index)
            await self._publish_all(pair for pair in numbered if pair[0] not in done)
            if self._act == TWO:
                self.show(is_over=True)
                await trio.sleep_forever()
            await self._wait_until_settled()
            nursery.cancel_scope.cancel()

    def show(self, *, is_over: bool = False) -> None:
        """Print how far the act is."""
        click.echo(json.dumps([self._published, self._acknowledged, self._to_do, is_over]))

    def _note(self, tag: str, *numbers: int) -> None:
        self._write(" ".join((tag, *map(str, numbers))))

    def _note_all(self, tag: str, messages: Sequence[ReceivedMessage]) -> None:
        self._note(tag, messages[0].partition, *(message.offset for message in messages))

    def _on_event(self, event: object) -> None:
        """Write down each restart that the supervisors report."""
        if isinstance(event, ActorRestarted) and event.path.startswith(f"topics/{TOPIC}/"):
            self._note("R", int(event.path.rpartition("/")[2]))

    async def _wait_until_settled(self) -> None:
        """Returns when all is settled, or never will be: see the account."""
        self._stalled.deadline = trio.current_time() + STALLED_S
        with self._stalled:
            while True:
                with contextlib.suppress(ActorCrashed, AskTimeout, PartitionUnavailable):
                    if not self._busy and not await unsettled(self._runtime):
                        return
                await trio.sleep(PAUSE_S)

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
            self._note("S", *(number for number, _ in pending))
            self.show(
                is_over=self._act == TWO and self._published >= self._kill_after and self._acknowledged > 0
            )
            outcomes: Sequence[Any]
            try:
                if len(pending) == 1:
                    outcomes = [await self._topic.publish(_message(*pending[0]))]
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
                else:
                    stored.setdefault(outcome.partition, []).extend((outcome.offset, numbered[0]))
            for partition, places in stored.items():
                self._note("P", partition, *places)
            if doubtful:
                self._note("E", *doubtful)
            if stored:
                self._note("Q", round((trio.current_time() - started) * 1e6))
                await self._has_published(len(pending) - len(failed))
            if not failed:
                return
            pending = failed
            if isinstance(problem, PartitionUnavailable) and problem.fields.get("state") == "failed":
                await self._runtime.restart(f"topics/{TOPIC}/{problem.fields['partition']}")
            await trio.sleep(min(PAUSE_S / 4 * 2**attempt, 0.25))
        raise PublishFailed(f"The demo could not publish in {TRIES_MAX} tries. The last error: {problem}")

    async def _has_published(self, count: int) -> None:
        self._published += count
        while self._crashes and self._published >= self._crashes[0][0]:
            _, partition = self._crashes.pop(0)
            if self._runtime.crash(f"topics/{TOPIC}/{partition}", DemoFailure("partitions crash")):
                self._note("C", partition)
        self.show()
        while self._published - self._acknowledged > AHEAD_MAX:  # noqa: ASYNC110 - numbers are compared
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
                await trio.sleep(HANG_S)
            for message in messages:
                failure = planned.get(message.offset)
                if failure is WorkFailure.RAISE:
                    await message.nack(delay=PAUSE_S, reason="the demo's worker fails now and then")
                elif failure is WorkFailure.CANCEL:
                    await message.release()
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
            if failure is WorkFailure.RAISE:
                raise Retry(PAUSE_S, "the demo's worker fails now and then")
            if failure is WorkFailure.CANCEL:
                await message.release()
                return
            if failure is WorkFailure.HANG:
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
                planned[message.offset] = self._failures.pop(number)
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


def _message(number: int, event: Event) -> Message:
    return Message(event.value, event.key, {HEADER: b"%d %x" % (number, event.digest)}, event.time)


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


async def _perform(stage: Stage, act: str) -> None:
    async def leave_with_parent() -> None:
        await wait_for_parent_to_go()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_with_parent)
        with contextlib.closing(RecordFile(stage.recorded(act))) as file:
            async with stage.runtime() as runtime:
                await runtime.create_topic(TOPIC, partitions=stage.partitions)
                performed = Act(stage, act, runtime, file.write)
                await performed.run()
        performed.show(is_over=True)
        nursery.cancel_scope.cancel()


@click.command("demo-child", hidden=True)
@click.argument("act")
@click.argument("stage")
def demo_child(act: str, stage: str) -> None:
    """One act of `callboard demo`; not for people."""
    with first_error():
        run(lambda: _perform(Stage(**json.loads(stage)), act))
