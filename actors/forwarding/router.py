"""The dead-letter router: one actor that forwards dead letters to the topics that their groups name.

It pulls. A partition that keeps dead letters of a group is a *source*. It says so in a notice, once until it is asked
for them. One task for each target topic lists what a source keeps, publishes it at `acks="all"`, and has
the partition forget what is stored. Whatever crashes in between, the same is done again: the target knows what it has
(`forwarding`).

The catalog tells an incarnation that begins of every group that names a target (`RouteGroup`). All partitions that
these groups read are asked.

While a target cannot take anything, dead letters stay where they are, and are tried again. A full target therefore
never makes a healthy message a dead letter, nor loses one; only when the partition has no more room for dead letters,
messages that failed before wait.

Invariants
----------
RT1  A dead letter is forgotten by its partition only when its target has it, synced.
RT2  A source counts as drained only when it had nothing left after its last notice.
RT3  A line drains one source at a time, from the lowest number up.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from callboard.actors.catalog.commands import CATALOG, RouteGroup, SourcesEnded
from callboard.actors.clients.calls import PartitionCalls, SourceEnded
from callboard.actors.delivery.dead_letters import StoredLetter
from callboard.actors.forwarding.attempts import Attempts
from callboard.actors.forwarding.commands import CountForwarded, CountsAtCrash, Forwarded, RouterCommand
from callboard.actors.forwarding.ended_sources import EndedSources
from callboard.actors.forwarding.waiting_records import Place, first_records
from callboard.actors.kernel import Actor, Batch, notify_all
from callboard.actors.mirror import Mirror
from callboard.actors.notices import DeadLettersHeld
from callboard.actors.partition import commands as c
from callboard.actors.records.dead_letter_records import Found, Origin, forwarded
from callboard.actors.timing import Timers
from callboard.log.errors import (
    ActorStopped,
    CallboardError,
    GroupNotFound,
    TopicNotFound,
)
from callboard.log.seams.clock import wall_offset

if TYPE_CHECKING:
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.timing import WheelAddress

AT_A_TIME: Final = 100
"""Dead letters in one batch, or fewer."""


class Source(NamedTuple):
    """Where dead letters are kept: those of one group in one partition."""

    port: PartitionPort
    group_id: int


class DeadLetterRouter(Actor[RouterCommand]):
    """The actor that forwards dead letters to the topics that their groups name, with one task per target topic.

    `counts` is what its incarnations hand on: how many were forwarded, by topic id.
    """

    defers_interrupts = True

    def __init__(self, wheel: WheelAddress, counts: Counter[str]) -> None:
        self._mirror = Mirror()
        self._counts = counts
        self._heard: dict[Source, int] = {}
        """By source that is not drained yet: how many notices of it were taken."""
        self._held: dict[str, str] = {}
        """By topic that takes no dead letters now: why."""
        self._timers = Timers(wheel)
        self._calls = PartitionCalls(self._timers, self._mirror.refusal)
        self._ended = EndedSources(self._mirror, self._calls, self._timers)
        self._lines: dict[str, dict[Source, None]] = {}
        """By topic: the sources of its line, of which the first is drained, and stays until it is."""

    async def started(self) -> None:
        """Look for sources of other kinds that have ended; the catalog tells what to route."""
        await self._mirror.follow(self.context)
        self.context.start_task(self._ended.forget, self.context.actor(CATALOG), name="ended sources")

    async def receive_batch(self, batch: Batch[RouterCommand]) -> None:
        """Give each source to the line of its target."""
        for message, reply in batch:
            match message:
                case c.DeadLettersWait(topic_id, partition, group_id):
                    self._hear(topic_id, partition, group_id)
                case RouteGroup(group_id, topic_ids):
                    for topic_id in topic_ids:
                        for partition in range(len(self._mirror.ports_of(topic_id))):
                            self._hear(topic_id, partition, group_id)
                case SourcesEnded():
                    self._ended.look_again()
                case CountForwarded():
                    if reply is not None:
                        reply.answer(self._forwarded())
                case _:
                    assert_never(message)

    def crashed(self, error: BaseException) -> None:
        """Say what was counted, for when there is no further incarnation to ask."""
        notify_all(self.context.ref, CountsAtCrash(self._forwarded()))

    def _hear(self, topic_id: str, partition: int, group_id: int) -> None:
        """There may be dead letters of the group in the partition."""
        live = self._mirror.by_id(topic_id)
        if live is not None:
            source = Source(live.ports[partition], group_id)
            self._heard[source] = self._heard.get(source, 0) + 1
            self._give(source)

    def _forwarded(self) -> Forwarded:
        named: dict[str, int] = {}
        for topic_id, count in tuple(self._counts.items()):
            live = self._mirror.by_id(topic_id)
            if live is None:
                del self._counts[topic_id]
            else:
                named[live.name] = count
        return Forwarded(named, dict(self._held))

    def _give(self, source: Source) -> None:
        """Add the source to the line of its target, if it has one; else its dead letters stay where they are."""
        topic = self._target_of(source)
        if topic is None:
            self._heard.pop(source, None)
            return
        line = self._lines.get(topic)
        if line is None:
            line = self._lines[topic] = {}
            self.context.start_task(self._forward, topic, line, name=f"to {topic}")
        line[source] = None  # it comes last unless it is there

    def _target_of(self, source: Source) -> str | None:
        group = self._mirror.group(source.group_id)
        return None if group is None else group.settings.dead_letter_topic

    async def _forward(self, topic: str, line: dict[Source, None]) -> None:
        """One source after the other, until there is none."""
        attempts = Attempts(self._timers.sleep, lambda _: None)
        while line:
            await attempts.until_done(partial(self._drain_first, topic, line))
        self._held.pop(topic, None)
        del self._lines[topic]

    async def _drain_first(self, topic: str, line: dict[Source, None]) -> None:
        """Forward all of the first source of which it can be done. Raises why not when it cannot of any."""
        failure: CallboardError | None = None
        for _ in range(len(line)):
            source = next(iter(line))
            try:
                await self._drain(source, topic)
            except ActorStopped:  # its topic is deleted, or the runtime closes
                self._heard.pop(source, None)
            except CallboardError as error:
                if topic not in self._held:
                    self.context.emit(DeadLettersHeld(topic, source.port.label, str(error)))
                self._held[topic] = str(error)
                failure = error
                del line[source]
                self._give(source)
                continue
            else:
                self._held.pop(topic, None)
            line.pop(source, None)
            return
        if failure is not None:
            raise failure

    async def _drain(self, source: Source, topic: str) -> None:
        """Forward all that the source keeps."""
        port = source.port
        while True:
            heard = self._heard.get(source, 0)
            if self._target_of(source) != topic:
                self._give(source)
                return
            try:
                letters: list[StoredLetter] = await self._calls.ask(
                    port, c.ListDead(source.group_id, AT_A_TIME)
                )
            except GroupNotFound:
                letters = []
            if not letters:
                if self._heard.get(source, 0) == heard:
                    self._heard.pop(source, None)
                    return
                continue
            topic_id, stored = await self._publish(source, topic, letters)
            forget = c.ForgetDead(source.group_id, stored + 1, letters[0].numbering)
            self._counts[topic_id] += await self._calls.ask(port, forget)

    async def _publish(self, source: Source, topic: str, letters: list[StoredLetter]) -> tuple[str, int]:
        """Publish the first of them, to the partition of the same number, or where counting goes on from the beginning.

        Returns the topic's id, and the number of the last that is stored.
        """
        live, group = self._mirror.find(topic), self._mirror.group(source.group_id)
        if live is None or group is None:
            raise _missing(topic, source.port.label)
        port = source.port
        origin = Origin(port.topic, port.topic_id, port.index, group.name, source.group_id)
        records = await first_records(self._calls, port, letters, read_ahead=False)
        found = [_found(letter, place) for letter, place in records]
        batch = forwarded(origin, found, wall_offset(self.context.clock))
        try:
            await self._calls.store(
                live.ports[port.index % len(live.ports)], batch, partial(self._is_live, source)
            )
        except SourceEnded:
            raise
        except ActorStopped as error:  # it was deleted meanwhile
            raise _missing(topic, port.label) from error
        return live.topic_id, found[-1].letter.number

    def _is_live(self, source: Source) -> bool:
        return self._mirror.is_live(source.port) and self._mirror.group(source.group_id) is not None


def _found(letter: StoredLetter, place: Place | None) -> Found:
    who = letter.name or (None if letter.consumer is None else str(letter.consumer))
    return Found(letter, who) if place is None else Found(letter, who, *place)


def _missing(topic: str, label: str) -> TopicNotFound:
    return TopicNotFound(
        f"there is no topic {topic!r} for dead letters: they stay in {label}. Create it, or name another with"
        " runtime.group(...).alter.",
        topic=topic,
    )
