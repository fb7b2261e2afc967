"""The actor of recurring publishes: a task for each schedule, which sleeps until it is due, and publishes.

A schedule publishes as a source, whose sequence is the due instant: the partition knows which one was the last, and
takes none twice. So nothing has to be remembered anywhere else: a task begins by asking the partition.

Invariants
----------
RF1  A firing is published when the wall clock has reached its due instant, never before.
RF2  Firings of a schedule are published in order: one that cannot be stored holds up those behind it.
RF3  A firing that was sent and not answered is sent again under the same number.
RF4  A partition forgets a schedule when that has been removed: at once, or when the next incarnation serves another one
     there.
RF5  Once the actor has heard that a schedule was changed, nothing is sent for it that was due before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import attrs

from callboard.actors.clients.calls import PartitionCalls, SourceEnded
from callboard.actors.kernel import Actor, Batch, notify_all
from callboard.actors.notices import ScheduleHeld, ScheduleMissed
from callboard.actors.partition import commands as c
from callboard.actors.recurring.commands import (
    HearSchedules,
    LookAtSchedules,
    RecurringCommand,
    ScheduleStands,
    TopicSchedules,
)
from callboard.actors.recurring.position import Position
from callboard.actors.recurring.spec import ScheduleRecord, Zones, firings
from callboard.actors.retry_pauses import RetryPauses
from callboard.actors.timers.commands import LOOK_S, NEVER
from callboard.actors.timing import Flag, Timers
from callboard.log.errors import ActorStopped, CallboardError
from callboard.log.format.stamps import Stamps

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import Context, Reply
    from callboard.actors.recurring.cron import Rule
    from callboard.actors.timing import WheelAddress


class Topics(Protocol):
    """What the actor has to know of the topics that are live."""

    async def follow(self, context: Context[Any], /) -> None:
        """Know it as long as this incarnation lasts. Returns when all is known."""

    def ports_of(self, topic_id: str, /) -> Sequence[PartitionPort]:
        """Where the partitions of a topic are found; none once it is deleted."""

    def refusal(self, port: PartitionPort, states: frozenset[str], /) -> CallboardError | None:
        """The error for what the state of a partition refuses, when it is one of these."""


@attrs.define(eq=False)
class Served:
    """A schedule, as this incarnation knows it."""

    record: ScheduleRecord
    port: PartitionPort
    """Of the partition that it publishes to."""
    position: Position
    flag: Flag = attrs.field(factory=Flag)
    """Set when it was changed."""
    is_over: bool = False
    """It was removed."""
    said: ScheduleStands | None = None
    """How far it is, as it was said last."""

    @property
    def label(self) -> str:
        """As messages name it: topic, then name."""
        return f"{self.port.topic}/{self.record.spec.name}"

    def follows(self, record: ScheduleRecord) -> bool:
        """Whether it is still what this record says (RF5)."""
        return self.record is record and not self.is_over


class Recurring(Actor[RecurringCommand]):
    """The actor that publishes what is due of all schedules, with one task per schedule.

    Without `publishes` it only says, when asked, how far schedules are.
    """

    defers_interrupts = True

    def __init__(
        self,
        topics: Callable[[], Topics],
        zones: Zones,
        wheel: WheelAddress,
        *,
        publishes: bool,
    ) -> None:
        self._topics = topics()
        self._zones = zones
        self._publishes = publishes
        self._timers = Timers(wheel)
        self._calls = PartitionCalls(self._timers, self._topics.refusal)
        self._served: dict[int, Served] = {}

    async def started(self) -> None:
        """Learn which topics there are; the catalog tells of schedules."""
        await self._topics.follow(self.context)

    async def receive_batch(self, batch: Batch[RecurringCommand]) -> None:
        """Serve the schedules that there are."""
        for message, reply in batch:
            match message:
                case TopicSchedules():
                    self._follow(message)
                case LookAtSchedules():
                    self.context.start_task(self._look_at_all, reply, name="a look")
                case HearSchedules():
                    if reply is not None:
                        reply.answer(None)
                case _:
                    assert_never(message)

    def _follow(self, message: TopicSchedules) -> None:
        """A topic has these schedules. Nothing happens when that is known."""
        wanted = {each.record.schedule_id for each in message.schedules}
        for schedule_id, served in tuple(self._served.items()):
            if served.port.topic_id == message.topic_id and schedule_id not in wanted:
                del self._served[schedule_id]
                served.is_over = True
                served.flag.set()
        ports = self._topics.ports_of(message.topic_id)
        if not ports:
            return
        new: list[Served] = []
        for each in message.schedules:
            record = each.record
            known = self._served.get(record.schedule_id)
            if known is None:
                known = Served(record, ports[record.spec.partition], Position(each))
                self._served[record.schedule_id] = known
                new.append(known)
            elif record != known.record:
                known.position.follow(each)
                known.record = record
                known.flag.set()
        if self._publishes:
            for port in dict.fromkeys(served.port for served in new):
                self.context.start_task(self._forget_removed, port, name="removed schedules")
            for served in new:
                self.context.start_task(self._run, served, name=served.label)

    async def _run(self, served: Served) -> None:
        """Serve one; after a failure anew, until it is removed, its topic is deleted, or the runtime closes."""
        pauses, position = RetryPauses(), served.position
        while not served.is_over:
            count = position.count
            try:
                await self._serve(served)
            except ActorStopped:
                return
            except CallboardError as error:
                if position.problem is None:
                    self.context.emit(ScheduleHeld(served.label, str(error)))
                position.problem = str(error)
                self._say(served)
            if position.count > count:
                pauses.worked()
            await self._timers.sleep(pauses.failed())
        await self._forget_removed(served.port)

    async def _forget_removed(self, port: PartitionPort) -> None:
        """RF4. Asked once, with those that there are now: by the time of a repetition a later one could have fired."""
        with suppress(CallboardError):
            await port.ref.ask(c.Flush())  # what was sent for them is stored, or never will be
            found = (schedule_id for schedule_id, served in self._served.items() if served.port is port)
            await port.ref.ask(c.KeepSchedules(frozenset(found)))

    async def _serve(self, served: Served) -> None:
        calls, clock, position = self._calls, self.context.clock, served.position
        rule = await self._begin(served)
        timers = self._timers
        with timers.instant(served.flag) as instant, timers.timer(served.flag) as again:
            while not served.is_over:
                if position.is_ahead(clock.wall_us()):
                    position.set_back(await calls.ask(served.port, c.LastSequence(served.record.schedule_id)))
                await self._notice(served)
                passed_over = position.passed_over
                is_paused = served.record.is_paused
                dues = (
                    [] if is_paused else position.look(rule, round(clock.monotonic() * 1e6), clock.wall_us())
                )
                if position.passed_over > passed_over:
                    self.context.emit(ScheduleMissed(served.label, position.passed_over - passed_over))
                if dues:
                    record = served.record
                    is_current = partial(served.follows, record)
                    try:
                        await calls.store(served.port, firings(record, dues), is_current)
                    except SourceEnded:
                        continue
                    position.fired(dues[-1])
                    position.count += len(dues)
                position.problem = None
                self._say(served)
                if not dues:
                    following = None if is_paused else position.next_us(rule)
                    instant.arm(NEVER if following is None else following / 1e6)
                    again.arm(clock.monotonic() + LOOK_S if following is not None else NEVER)
                    await served.flag.wait()

    async def _begin(self, served: Served) -> Rule:
        """Learn how far it is, as the partition knows; returns when it is due. Raises `InvalidArgument` as long as its
        zone is not known on this machine.
        """
        record = served.record
        rule = record.spec.rule(record.created_us, self._zones)
        served.position.fired(await self._calls.ask(served.port, c.LastSequence(record.schedule_id)))
        await self._notice(served)
        return rule

    async def _notice(self, served: Served) -> None:
        """The partition keeps when it was noticed that a schedule was made, or resumed, by a clock that was ahead: each
        later opening begins there.
        """
        position, now_us = served.position, self.context.clock.wall_us()
        if position.begins_ahead(now_us):
            since_us, stamps = served.record.since_us, Stamps()
            stamps.replace(await self._calls.ask(served.port, c.NoticeStamps((since_us,))))
            position.begins(stamps.believed(since_us, now_us))

    async def _look_at_all(self, reply: Reply | None) -> None:
        clock = self.context.clock
        for served in tuple(self._served.values()):
            position = served.position
            try:
                rule = await self._begin(served)
                position.look(rule, round(clock.monotonic() * 1e6), clock.wall_us())
            except CallboardError as error:
                position.problem = str(error)
            self._say(served)
        if reply is not None:
            reply.answer(None)

    def _say(self, served: Served) -> None:
        """Say how far it is, if that is news."""
        stands = served.position.stands()
        if stands != served.said:
            served.said = stands
            notify_all(self.context.ref, stands)
