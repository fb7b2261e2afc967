"""The delayed forwarder: one actor that moves delayed records to their topics when they are due.

For each waiting partition (`callboard.actors.companions`) there is one task. It reads what
is pending, keeps the ticks in memory, and sleeps on the timer wheel until the first of them. It moves what is due, some
at a time:

1. the waiting partition sets the records aside: settled, numbered, in the order in which they are due, synced;
2. they are published at `acks="all"` by a source, under those numbers;
3. the waiting partition forgets them.

Whatever crashes in between, it begins with what is set aside: the topic knows which numbers it has. What meets a full
topic, or a disk that fails, waits, in the same order.

Invariants
----------
DF1  A record is set aside when its moment has come by its clock, never before.
DF2  What is set aside is published before anything else of that waiting partition is.
DF3  A record that a cancellation has settled was pending until then, and is never published.
DF4  After a failure everything is read anew: nothing in memory outlives a question whose answer did not come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

import attrs
import trio

from callboard.actors.catalog.commands import WaitingOpened
from callboard.actors.clients.calls import PartitionCalls
from callboard.actors.companions import (
    DELAYED,
    OPEN_OWN_GROUP,
    SETTLED_AGE_S,
    waiting_settings,
)
from callboard.actors.delivery.receipts import OffsetRange, merged
from callboard.actors.forwarding.attempts import Attempts
from callboard.actors.forwarding.commands import (
    CancelDelayed,
    CountAllDelayed,
    CountDelayed,
    CountsAtCrash,
    DelayedCounts,
    DelayedForwarderCommand,
    DelayedQuestion,
    ListDelayed,
)
from callboard.actors.forwarding.pending import Pending
from callboard.actors.forwarding.unread import Unread
from callboard.actors.forwarding.waiting_records import AT_A_TIME, first_records
from callboard.actors.kernel import Actor, Reply, notify_all
from callboard.actors.kernel.steps import in_steps
from callboard.actors.mirror import Mirror, MirroredTopic
from callboard.actors.names import label_of
from callboard.actors.notices import DelayedHeld, DelayedLost
from callboard.actors.partition import commands as c
from callboard.actors.records.delayed_records import moments_of, moved
from callboard.actors.retry_pauses import PAUSE_S
from callboard.actors.source_ids import of_delays
from callboard.actors.timing import Flag, Timers
from callboard.log.errors import ActorCrashed, ActorStopped, CallboardError
from callboard.log.format.stamps import Stamps
from callboard.log.limits import BATCH_RECORDS_MAX, READ_BYTES_DEFAULT

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.delivery.dead_letters import StoredLetter
    from callboard.actors.timing import WheelAddress
    from callboard.log.format.columns import Columns

Place = tuple[str, int]
"""Topic id and partition."""
SPAN_OFFSETS: Final = 1 << 15
"""Offsets in one question for what is pending: as ranges, of which there may be half as many."""


class DelayedForwarder(Actor[DelayedForwarderCommand]):
    """The actor that moves delayed records to their topics when they are due, with one task per waiting partition.

    Unless it `moves`, it only reads what is pending, and answers. Incarnations hand on `counts`.
    """

    defers_interrupts = True

    def __init__(
        self, wheel: WheelAddress, counts: dict[Place, DelayedCounts], *, moves: bool = True
    ) -> None:
        self._mirror = Mirror()
        self.counts = counts
        self.timers = Timers(wheel)
        self.moves = moves
        self._lines: dict[PartitionPort, DelayedLine] = {}

    async def started(self) -> None:
        """Learn which topics there are; the catalog tells of waiting partitions."""
        await self._mirror.follow(self.context)

    def _line(self, topic_id: str, partition: int) -> DelayedLine | None:
        """What serves the partition, from now on at the latest; None when its topic is deleted."""
        live = self._mirror.by_id(topic_id)
        if live is None or not live.waiting:
            return None
        port = live.waiting[partition]
        line = self._lines.get(port)
        if line is None:
            line = self._lines[port] = DelayedLine(self, self._mirror, live, partition)
            self.context.start_task(self._serve, line, port, name=port.label)
        return line

    async def _serve(self, line: DelayedLine, port: PartitionPort) -> None:
        """Until its topic is deleted."""
        watching = self.context.start_task(line.watch, name=f"new in {port.label}")
        try:
            await line.run()
            if not self._mirror.is_live(port):
                self.counts.pop((port.topic_id, port.index), None)
        finally:
            watching.cancel()
            del self._lines[port]

    async def receive(self, message: DelayedForwarderCommand) -> dict[Place, DelayedCounts] | None:
        """Serve a waiting partition that is opened; hand a question to the task that serves the partition."""
        match message:
            case CountAllDelayed():
                return dict(self.counts)
            case WaitingOpened():
                self._line(message.topic_id, message.partition)
            case CancelDelayed() | ListDelayed() | CountDelayed():
                reply = self.context.defer_reply()
                line = self._line(message.topic_id, message.partition)
                if line is None:
                    reply.fail(_ended(label_of(message.topic_id, message.partition, DELAYED)))
                else:
                    line.asked(message, reply)
            case _:
                assert_never(message)
        return None

    def crashed(self, error: BaseException) -> None:
        """Say what was counted, for when there is no further incarnation to ask."""
        notify_all(self.context.ref, CountsAtCrash(dict(self.counts)))


class DelayedLine:
    """What serves one waiting partition."""

    def __init__(self, forwarder: DelayedForwarder, mirror: Mirror, live: MirroredTopic, index: int) -> None:
        self._context = forwarder.context
        self._moves = forwarder.moves
        self._mirror = mirror
        self._port = live.waiting[index]
        self._target = live.ports[index]
        """The topic's partition that its records go to."""
        self._settings = attrs.evolve(waiting_settings(live.settings), retention_age=SETTLED_AGE_S)
        """From when its group is open."""
        self._run = live.stands.run
        self._counts = forwarder.counts
        self._timers = forwarder.timers
        self._calls = PartitionCalls(forwarder.timers, mirror.refusal)
        self._stamps = Stamps()
        """What the partition has noticed of them."""
        self._pending = Pending(self._run, self._stamps)
        self._questions: deque[tuple[DelayedQuestion, Reply]] = deque()
        self._read_to = 0
        self._flag = Flag()
        self._wants_more = Flag()

    def asked(self, message: DelayedQuestion, reply: Reply) -> None:
        """Somebody asks."""
        self._questions.append((message, reply))
        self._flag.set()

    # -- life

    async def run(self) -> None:
        """Serve; after a failure anew, until the topic is deleted or the runtime closes."""
        attempts = Attempts(self._timers.sleep, self._report)
        with suppress(ActorStopped):
            await attempts.until_done(partial(self._attempt, attempts))
        self._refuse(_ended(self._port.label))

    async def _attempt(self, attempts: Attempts) -> None:
        try:
            await self._open()
            attempts.succeeded()
            await self._serve()
        except ActorStopped:
            raise
        except CallboardError as error:
            self._refuse(error)
            raise

    def _report(self, error: CallboardError | None) -> None:
        if error is not None:
            self._context.emit(DelayedHeld(self._port.label, str(error)))

    def _refuse(self, error: CallboardError) -> None:
        """The next question is answered at once."""
        questions, self._questions = self._questions, deque()
        for _, reply in questions:
            reply.fail(error.again())

    async def watch(self) -> None:
        """Look again whenever there is something new to read."""
        port = self._port
        while True:
            await self._wants_more.wait()
            try:
                await port.ref.ask(c.WaitForVisible(self._read_to))
            except ActorStopped:
                self._flag.set()  # the task that serves it finds so, too
                return
            except ActorCrashed:
                self._wants_more.set()
                continue
            except CallboardError:
                await self._timers.sleep(PAUSE_S)
            self._flag.set()

    # -- what is pending

    async def _open(self) -> None:
        """Read all that is pending."""
        port, calls = self._port, self._calls
        await calls.ask(port, OPEN_OWN_GROUP)
        await calls.ask(port, c.Alter(self._settings))
        statistics: c.PartitionStatistics = await calls.ask(port, c.Describe())
        self._pending = Pending(self._run, self._stamps)
        at = min([group.floor for group in statistics.groups], default=0)
        self._read_to = end = max(statistics.visible_end, at)
        missing: list[OffsetRange] = []
        while at < end:
            stop = min(at + SPAN_OFFSETS, end)
            unread = Unread(await calls.ask(port, c.ListUnsettled(c.OWN_GROUP, at, stop)))
            await self._read(unread)
            missing += unread.missing
            at = stop
        await self._settle_lost(missing)

    async def _read(self, unread: Unread) -> None:
        """Add the pending records of a part."""
        while (span := unread.span()) is not None:
            start, stop = span
            answer = await self._calls.ask(self._port, _reading(start, stop - start))
            batches, end, _ = ((), stop, 0) if answer is None else answer
            for columns in batches:
                await self._add(*unread.take(columns))
            await self._compact()
            unread.pass_over(end)

    async def _read_new(self) -> None:
        """What was published since."""
        port = self._port
        while (answer := await self._calls.ask(port, _reading(self._read_to))) is not None:
            batches, self._read_to, _ = answer
            for columns in batches:
                await self._add(columns.offset_list(), moments_of(columns))
            await self._compact()
        self._count()

    async def _add(self, ids: Sequence[int], moments: Sequence[tuple[int, ...]]) -> None:
        clock = self._context.clock
        if ahead := self._pending.ahead(moments, clock.wall_us()):
            self._stamps.replace(await self._calls.ask(self._port, c.NoticeStamps(ahead)))
        self._pending.add(ids, moments, now_s=clock.monotonic(), now_us=clock.wall_us())

    async def _compact(self) -> None:
        await in_steps(self._pending.compact_in_steps())

    async def _settle_lost(self, lacking: list[tuple[int, int]]) -> None:
        """There is nothing at these offsets: damage, or a gap."""
        if lacking:
            await self._calls.ask(self._port, c.SettleOffsets(c.OWN_GROUP, lacking))
            self._tell_lost(sum(stop - start for start, stop in lacking))

    def _tell_lost(self, count: int) -> None:
        self._note(lost=self._counted.lost + count)
        self._context.emit(DelayedLost(self._port.label, count))

    def _count(self) -> None:
        clock = self._context.clock
        next_due_us = self._pending.first_due_us(clock.monotonic(), clock.wall_us())
        self._note(pending=len(self._pending), next_due_us=next_due_us)

    @property
    def _counted(self) -> DelayedCounts:
        return self._counts.get((self._port.topic_id, self._port.index)) or DelayedCounts()

    def _note(self, **counted: Any) -> None:
        self._counts[self._port.topic_id, self._port.index] = attrs.evolve(self._counted, **counted)

    # -- serving

    async def _serve(self) -> None:
        """Do what is due, what is asked and what is new, in turn; then sleep."""
        timers, limits = self._timers, self._context.limits
        if self._moves:
            await self._move(await self._calls.ask(self._port, c.ListDead(c.OWN_GROUP)))
        with timers.timer(self._flag) as deadline, timers.instant(self._flag) as instant:
            while True:
                await self._read_new()
                while self._questions:
                    await self._answer()
                clock = self._context.clock
                limit = min(AT_A_TIME, max(1, limits.dead_letters))
                while self._moves and self._pending.spread(clock.monotonic(), timers.wall()):
                    await trio.lowlevel.checkpoint()
                due = self._pending.take(clock.monotonic(), timers.wall(), limit) if self._moves else []
                if due:
                    await self._move(await self._calls.ask(self._port, c.SetAside(c.OWN_GROUP, due)))
                    self._pending.moved(due)
                    await self._compact()
                    continue
                if self._moves:
                    deadline.arm(self._pending.next_deadline())
                    instant.arm(self._pending.next_instant())
                self._wants_more.set()
                await self._flag.wait()

    async def _answer(self) -> None:
        message, reply = self._questions[0]
        answer: object
        match message:
            case CountDelayed():
                answer = len(self._pending)
            case ListDelayed(after=after, limit=limit):
                clock = self._context.clock
                answer = self._pending.listed(after, limit, clock.monotonic(), clock.wall_us())
            case CancelDelayed(delayed_ids=delayed_ids):
                answer = await self._cancel(delayed_ids)
            case _:
                assert_never(message)
        self._questions.popleft()
        reply.answer(answer)
        await self._compact()

    async def _cancel(self, delayed_ids: Sequence[int]) -> Sequence[int]:
        """Those of these that were pending."""
        found = self._pending.found(dict.fromkeys(delayed_ids))
        if found:
            ranges = merged([(each, each + 1) for each in sorted(found)])
            await self._calls.ask(self._port, c.SettleOffsets(c.OWN_GROUP, ranges))
            self._pending.cancel(found)
            self._note(cancelled=self._counted.cancelled + len(found))
            self._count()
        return found

    # -- moving

    async def _move(self, letters: Sequence[StoredLetter]) -> None:
        """Publish what is set aside, and have it forgotten (DF2)."""
        port, target = self._port, self._target
        while letters:
            found, numbering = await first_records(self._calls, port, letters), letters[0].numbering
            batch = [(letter.number, *place) for letter, place in found if place is not None]
            lost = len(found) - len(batch)
            if batch:
                await self._store(moved(of_delays(target.topic_id, target.index, numbering), batch))
            below = found[-1][0].number + 1
            await self._calls.ask(port, c.ForgetDead(c.OWN_GROUP, below, numbering))
            self._note(moved=self._counted.moved + len(batch))
            if lost:
                self._tell_lost(lost)
            letters = letters[len(found) :]

    async def _store(self, batch: Columns) -> None:
        """Publish it, when the topic takes it: until then questions are answered, and nothing else is moved."""
        attempts = Attempts(self._answer_meanwhile, self._report)
        await attempts.until_done(partial(self._calls.store, self._target, batch, self._is_live))

    async def _answer_meanwhile(self, seconds: float) -> None:
        with self._timers.timer(self._flag) as again:
            again.arm(self._context.clock.monotonic() + seconds)
            while not again.has_come():
                await self._flag.wait()
                while self._questions:
                    await self._answer()

    def _is_live(self) -> bool:
        return self._mirror.is_live(self._port)


def _reading(offset: int, records: int = BATCH_RECORDS_MAX) -> c.Read:
    return c.Read(offset, records, READ_BYTES_DEFAULT)


def _ended(label: str) -> ActorStopped:
    return ActorStopped(f"{label}: its topic was deleted, or the runtime closes.", path=label)
