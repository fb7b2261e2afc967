"""The forwarder: one actor that publishes what acks have published, from the outboxes to the topics that it is for.

For each outbox (`callboard.actors.companions`) there is one task, which learns from the
source partition what is new, reads where that is to go, and settles what no ack has named. While something is for a
partition, there is another task for that partition; what is delayed is for its waiting partition:

1. it publishes the entries at `acks="all"` by a source, in the order of their numbers;
2. it settles their payloads in the outbox, synced;
3. it has the source forget them.

Whatever crashes in between, it begins with what the source still has: the target knows which numbers it has stored. A
target that takes nothing holds up what is for it, and nothing else.

Invariants
----------
OF1  A payload is published only when the source names it, synced.
OF2  An entry is forgotten when its target has it, synced, and its payload is settled; or when it can never have it.
OF3  What is for one partition is published in the order of the numbers, one batch after the other.
OF4  A payload is settled unpublished only when no entry names it and no ack that is on its way can.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, assert_never

import attrs

from callboard.actors.catalog.commands import CATALOG, IsTopic, OutboxOpened, SourcesEnded
from callboard.actors.clients.calls import PartitionCalls, SourceEnded
from callboard.actors.companions import (
    OPEN_OWN_GROUP,
    SETTLED_AGE_S,
    Outbox,
    companion_settings,
)
from callboard.actors.delivery.receipts import OFFSET_END, OffsetRange, between, merged
from callboard.actors.forwarding.attempts import Attempts
from callboard.actors.forwarding.commands import (
    CountOutboxes,
    CountsAtCrash,
    ForwarderCommand,
    HearOpenAcks,
    OpenAcks,
    OutboxCounts,
    OutboxUnserved,
    SweepBegins,
)
from callboard.actors.forwarding.ended_sources import EndedSources
from callboard.actors.forwarding.outbox_sweep import OutboxSweep
from callboard.actors.forwarding.waiting_records import first_records
from callboard.actors.kernel import Actor, Question, notify_all
from callboard.actors.mirror import Mirror
from callboard.actors.notices import OutboxDropped, OutboxHeld, OutboxLost
from callboard.actors.partition import commands as c
from callboard.actors.partition.commands import PublishesWait
from callboard.actors.records.outbox_records import (
    HEADER,
    Target,
    addressed,
    published,
)
from callboard.actors.source_ids import of_outbox
from callboard.actors.timing import Flag, Timers
from callboard.log.errors import ActorStopped, CallboardError, TopicNotFound

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.partition.commands import OutboxEntry
    from callboard.actors.timing import WheelAddress
    from callboard.log.format.columns import Columns

A = TypeVar("A")
Place = tuple[str, int]
"""An outbox: the id of its topic, and the index of its partition."""


class Forwarder(Actor[ForwarderCommand]):
    """The actor that publishes what acks have published, with one task per outbox and one per target partition.

    Unless it `moves`, it only learns how much waits. `counts` is what its incarnations hand on: the fields of
    `OutboxCounts`, by outbox.
    """

    defers_interrupts = True

    def __init__(self, wheel: WheelAddress, counts: dict[Place, Counter[str]], *, moves: bool = True) -> None:
        self._mirror = Mirror()
        self._counts = counts
        self._moves = moves
        self._timers = Timers(wheel)
        self._calls = PartitionCalls(self._timers, self._mirror.refusal)
        """Those of all outboxes: their lines share the credit that one target grants."""
        self._ended = EndedSources(self._mirror, self._calls, self._timers)
        self._lines: dict[Place, OutboxLines] = {}

    async def started(self) -> None:
        """Look for sources that have ended; the catalog tells of outboxes."""
        await self._mirror.follow(self.context)
        if self._moves:
            self.context.start_task(self._ended.forget, self.context.actor(CATALOG), name="ended sources")

    async def receive(self, message: ForwarderCommand) -> Sequence[OutboxCounts] | None:
        """Serve an outbox that is opened, and look for what is new in one."""
        match message:
            case OutboxOpened(topic_id, partition):
                outbox = self._outbox(topic_id, partition)
                if outbox is not None and self._moves:
                    counts = self._counts_of(topic_id, partition)
                    lines = OutboxLines(self.context, self._mirror, outbox, counts, self._timers, self._calls)
                    self._lines[topic_id, partition] = lines
                    self.context.start_task(self._run, lines, name=outbox.port.label)
            case PublishesWait(topic_id, partition, entries, has_new):
                if self._outbox(topic_id, partition) is not None:
                    self._counts_of(topic_id, partition)["pending"] = entries
                lines_there = self._lines.get((topic_id, partition))
                if lines_there is not None and has_new:
                    lines_there.flag.set()
            case SourcesEnded():
                self._ended.look_again()
                for lines in self._lines.values():
                    if not lines.is_live():
                        lines.flag.set()
            case OpenAcks():
                known = self._lines.get((message.topic_id, message.partition))
                if known is not None:
                    known.hear(message)
            case HearOpenAcks():
                pass
            case CountOutboxes():
                return self._counted()
            case _:
                assert_never(message)
        return None

    def crashed(self, error: BaseException) -> None:
        """Say what was counted, for when there is no further incarnation to ask."""
        notify_all(self.context.ref, CountsAtCrash(self._counted()))

    def _counts_of(self, topic_id: str, partition: int) -> Counter[str]:
        return self._counts.setdefault((topic_id, partition), Counter())

    def _counted(self) -> Sequence[OutboxCounts]:
        counts: dict[Place, dict[str, Any]] = {**self._counts}
        return [OutboxCounts(*place, **fields) for place, fields in counts.items()]

    async def _run(self, lines: OutboxLines) -> None:
        try:
            await lines.run()
            if not lines.is_live():
                lines.report_deleted()
                self._counts.pop(lines.place, None)
        finally:
            self._lines.pop(lines.place, None)
            notify_all(self.context.ref, OutboxUnserved(*lines.place))

    def _outbox(self, topic_id: str, partition: int) -> Outbox | None:
        live = self._mirror.by_id(topic_id)
        return None if live is None or not live.outboxes else live.outboxes[partition]


@attrs.define(eq=False)
class PartitionLine:
    """What is to be published to one partition."""

    target: Target
    entries: deque[OutboxEntry] = attrs.Factory(deque)
    is_held: bool = False


class StoredPayload(NamedTuple):
    """What an ack has published, where it is stored, and for which partition it is."""

    target: Target
    columns: Columns
    at: int


class OutboxLines:
    """What serves one outbox: a line for each partition that something is for."""

    def __init__(
        self,
        context: Any,
        mirror: Mirror,
        outbox: Outbox,
        counts: Counter[str],
        timers: Timers,
        calls: PartitionCalls,
    ) -> None:
        self._context = context
        self._mirror = mirror
        self._outbox = outbox
        self._counts = counts
        self.flag = Flag()
        """Set when there is something to forward, or to settle, or its topic is deleted."""
        self._timers = timers
        self._calls = calls
        self._lines: dict[Target, PartitionLine] = {}
        self._sweep = OutboxSweep()
        self._last, self._numbering = -1, 0
        """The number of the last entry that is in a line, or was, and which numbering it is of."""

    @property
    def place(self) -> Place:
        """Which outbox it is."""
        return self._outbox.source.topic_id, self._outbox.source.index

    def hear(self, message: OpenAcks) -> None:
        """A client says which acks are open."""
        self._counts["refused"] += message.refused
        if self._sweep.hear(message):
            self.flag.set()

    async def run(self) -> None:
        """Until the topic is deleted."""
        self._counts["held"] = 0
        attempts = Attempts(self._timers.sleep, partial(self._report, self._outbox.port.label))
        with suppress(ActorStopped):
            await attempts.until_done(partial(self._serve, attempts))

    async def _serve(self, attempts: Attempts) -> None:
        await self._open()
        while True:
            await self._take()
            await self._settle_unnamed()
            attempts.succeeded()
            await self.flag.wait()

    def _report(self, where: str, error: CallboardError | None) -> None:
        if error is not None:
            self._context.emit(OutboxHeld(self._outbox.source.label, where, str(error)))

    async def _ask(self, port: PartitionPort, command: Question[A]) -> A:
        return await self._calls.ask(port, command)

    async def _open(self) -> None:
        port, live = self._outbox.port, self._mirror.by_id(self._outbox.port.topic_id)
        await self._ask(port, OPEN_OWN_GROUP)
        if live is not None:
            kept_bytes = self._context.limits.outbox_bytes
            settings = companion_settings(live.settings)
            settings = attrs.evolve(settings, retention_age=SETTLED_AGE_S, retention_bytes=kept_bytes)
            await self._ask(port, c.Alter(settings))

    # -- what is new

    async def _take(self) -> None:
        """Put what the source names into lines; what cannot be read is forwarded already, or lost."""
        listing = c.ListOutbox(self._last, self._numbering)
        entries: Sequence[OutboxEntry] = await self._ask(self._outbox.source, listing)
        while entries:
            found = await self._found(entries)
            gone = [entry for entry, record in found if record is None]
            if gone:
                await self._gone(gone)
            for entry, record in found:
                if record is not None:
                    self._give(entry, record.target)
            last = found[-1][0]
            self._last, self._numbering = last.number, last.numbering
            entries = entries[len(found) :]

    def _give(self, entry: OutboxEntry, target: Target) -> None:
        line = self._lines.get(target)
        if line is None:
            line = self._lines[target] = PartitionLine(target)
            self._context.start_task(self._forward, line, name=f"to {target}")
        line.entries.append(entry)

    async def _found(self, entries: Sequence[OutboxEntry]) -> list[tuple[OutboxEntry, StoredPayload | None]]:
        """The first of these with their payloads, as many as fit."""
        found = await first_records(self._calls, self._outbox.port, entries)
        return [(entry, None if place is None else _payload(entry, *place)) for entry, place in found]

    # -- what is forwarded

    async def _forward(self, line: PartitionLine) -> None:
        """One batch after the other, until there is none."""
        attempts = Attempts(self._timers.sleep, partial(self._hold, line))
        try:
            while line.entries:
                await attempts.until_done(partial(self._forward_some, line))
        except ActorStopped:
            return  # the topic whose acks publish is deleted, or the runtime closes
        finally:
            self._hold(line, None)
            if self._lines.get(line.target) is line:
                del self._lines[line.target]

    def _hold(self, line: PartitionLine, error: CallboardError | None) -> None:
        self._counts["held"] += (error is not None) - line.is_held
        line.is_held = error is not None
        live = self._mirror.by_id(line.target.topic_id)
        self._report(str(line.target) if live is None else f"{live.name}/{line.target.folder}", error)

    async def _forward_some(self, line: PartitionLine) -> None:
        topic_id, partition, waits = line.target
        live = self._mirror.by_id(topic_id)
        if live is None or partition >= len(live.ports):
            await self._drop(line)
            return
        ports = live.waiting if waits else live.ports
        if not ports:
            raise _missing(topic_id)  # its publisher had made them: they start
        numbering = line.entries[0].numbering
        found = await self._found(tuple(takewhile(lambda entry: entry.numbering == numbering, line.entries)))
        batch = [(entry.number, record.columns, record.at) for entry, record in found if record is not None]
        gone = [entry for entry, record in found if record is None]
        if gone:
            await self._gone(gone)
        if batch:
            try:
                source = of_outbox(self._outbox.source.topic_id, self._outbox.source.index, numbering)
                await self._calls.store(ports[partition], published(source, batch), self.is_live)
            except SourceEnded:
                raise
            except ActorStopped as error:  # it was deleted meanwhile: the next question hears so
                raise _missing(topic_id) from error
            await self._forget([entry for entry, record in found if record is not None])
            self._counts["forwarded"] += len(batch)
        for _ in found:
            line.entries.popleft()

    def is_live(self) -> bool:
        """Whether the topic whose acks publish was not deleted."""
        return self._mirror.is_live(self._outbox.source)

    def report_deleted(self) -> None:
        """That topic was deleted, with what was not forwarded yet."""
        if self._counts["pending"]:
            source = self._outbox.source
            self._context.emit(OutboxDropped(source.label, source.topic_id, self._counts["pending"]))

    async def _drop(self, line: PartitionLine) -> None:
        """The topic is not there: if it never will be, nor will what is for it."""
        if await self._context.actor(CATALOG).ask(IsTopic(line.target.topic_id)):
            raise _missing(line.target.topic_id)
        entries = [*line.entries]
        await self._forget(entries)
        self._counts["dropped"] += len(entries)
        self._context.emit(OutboxDropped(self._outbox.source.label, line.target.topic_id, len(entries)))
        for _ in entries:
            line.entries.popleft()

    async def _forget(self, entries: Sequence[OutboxEntry]) -> None:
        """The payloads first: an entry whose payload is settled is done (OF2)."""
        offsets = merged([(offset, offset + 1) for offset in sorted(entry.offset for entry in entries)])
        await self._ask(self._outbox.port, c.SettleOffsets(c.OWN_GROUP, offsets))
        await self._forget_named(entries)

    async def _forget_named(self, entries: Sequence[OutboxEntry]) -> None:
        """Have the source forget these. What it named in an earlier numbering it has lost."""
        numbering = entries[-1].numbering
        numbers = [entry.number for entry in entries if entry.numbering == numbering]
        await self._ask(self._outbox.source, c.ForgetOutbox(numbers, numbering))

    async def _gone(self, entries: Sequence[OutboxEntry]) -> None:
        """There is no such payload: it is forwarded, and the source has not heard of it; or it is lost.

        An outbox whose journal is gone tells of no payload whether it was forwarded: what it lacks counts as lost. What
        lies there in its place is not touched. Raises `StorageError` when that is unknown now.
        """
        outbox = self._outbox
        statistics = await self._calls.describe_recovered(outbox.port)
        unsettled: list[OffsetRange] = await self._ask(outbox.port, c.ListUnsettled(c.OWN_GROUP))
        unsettled.append((statistics.visible_end, OFFSET_END))
        unsettled += [(0, group.opened_at) for group in statistics.groups if group.group_id == c.OWN_GROUP]
        lost = [entry for entry in entries if any(start <= entry.offset < stop for start, stop in unsettled)]
        await self._forget_named(entries)
        if lost:
            self._counts["lost"] += len(lost)
            self._sweep.is_wanted = True
            self.flag.set()
            self._context.emit(OutboxLost(outbox.source.label, len(lost)))

    # -- what no ack has named

    async def _settle_unnamed(self) -> None:
        """Settle payloads that are not named, and never will be (OF4)."""
        outbox, sweep, ref = self._outbox, self._sweep, self._context.ref
        if not sweep.is_owed:
            return
        statistics: c.PartitionStatistics = await self._ask(outbox.port, c.Describe())
        sweep.begin(statistics.visible_end)
        notify_all(ref, SweepBegins(*self.place, statistics.visible_end))
        await ref.ask(HearOpenAcks())
        below = sweep.unclaimed_below()
        entries: Sequence[OutboxEntry] = await self._ask(outbox.source, c.ListOutbox(-1, self._numbering))
        named = merged([(offset, offset + 1) for offset in sorted(entry.offset for entry in entries)])
        unsettled: list[OffsetRange] = await self._ask(outbox.port, c.ListUnsettled(c.OWN_GROUP))
        unnamed: list[OffsetRange] = []
        for start, end in unsettled:
            stop = min(end, below)
            if start < stop:
                inside = [
                    (max(one, start), min(two, stop)) for one, two in named if one < stop and two > start
                ]
                unnamed += between(start, stop, inside)
        if unnamed:
            await self._ask(outbox.port, c.SettleOffsets(c.OWN_GROUP, unnamed))
            self._counts["discarded"] += sum(stop - start for start, stop in unnamed)
        sweep.end(below)


def _payload(entry: OutboxEntry, columns: Columns, index: int) -> StoredPayload | None:
    """The payload of the entry; None when the record is not it."""
    head = addressed(columns.headers(index).get(HEADER))
    return (
        StoredPayload(head.target, columns, index) if head is not None and head[1:3] == entry[2:4] else None
    )


def _missing(topic_id: str) -> TopicNotFound:
    return TopicNotFound(
        f"the topic with the id {topic_id} does not run now. What was published to it stays where it is.",
        topic=topic_id,
    )
