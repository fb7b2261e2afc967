"""Publishers and consumers of one topic, or several, on one machine; they continue after each power cut.

What a session does: open the runtime, publish what no session has begun to publish yet (and, again, what was refused),
let groups consume, and return when every group has settled everything. An operator is simulated too: a runtime that
gives up, or cannot be opened, is opened again; a partition that failed is restarted by hand.

Healing comes at a virtual time of its own, whatever the plan: from then on everything must be settled within
a few visibility timeouts, or the run ends with a violation.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import attrs
import trio

import callboard
from callboard.consumer.messages import ReceivedBatch, ReceivedMessage
from callboard.log.errors import (
    CallboardError,
    ConfigurationError,
    GroupNotFound,
    InvalidArgument,
    LeaseLost,
    PartitionUnavailable,
    RuntimeClosed,
)
from callboard.simulations.checkers import (
    Intensity,
    Terms,
    attempts,
    check_all,
    enforce,
    liveness,
    no_bugs,
    nothing_altered,
    offsets,
    one_holder,
    settled_stays_settled,
)
from callboard.simulations.history.catalog import ObservedCatalog
from callboard.simulations.history.clients import ObservedConsumer, ObservedTopic, consume
from callboard.simulations.history.surviving import Surviving, look, note_shown, recover
from callboard.simulations.scenarios import altered_topic, recreated
from callboard.simulations.scenarios.closings import Closings
from callboard.simulations.scenarios.draws import limits_of
from callboard.simulations.scenarios.lives import heal_in_time
from callboard.simulations.scenarios.mistakes import MistakenClient
from callboard.simulations.scenarios.moments import DISK_FAILURES, Moments, draw_survival
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing, leaves, restart_failed
from callboard.simulations.scenarios.points import mark
from callboard.simulations.scenarios.traffic import EXTENDED, IMPATIENT, Traffic
from callboard.simulations.violations import SENSIBLE, Violation
from callboard.simulations.world import bounds

if TYPE_CHECKING:
    from callboard.simulations.world import Machine, World

CONFIGURED: Final = "the workload cannot be configured"
"""What is broken when the runtime refuses a setting: the workload is none, and says nothing about the broker."""
HEAL_AT_S: Final = 60.0
"""When faults end at the latest, after the run began."""
VISIBILITIES: Final = 3
"""From healing to the last ack pass at most this many visibility timeouts, the time that clients work,"""
GONE_S: Final = 1.0
"""Seconds after all consumers have gone within which nothing is left of them."""
SLACK_S: Final = 5.0
"""and this many virtual seconds for restarts and delays."""
BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 1.0
BESIDE: Final = (recreated.NAME, altered_topic.NAME)
"""Topics of which other parts of a workload take care."""
FLUSH_EVERY: Final = 20
LIST_EVERY_S: Final = 0.5
"""How often the members of groups are noted."""
INSPECTED: Final = ("publish", "deliver", "ack", "acked", "nacked", "released", "published")
"""Steps of clients at which it is looked inside,"""
BESIDE_BYTES: Final = 1_000
"""More than any message has besides its value and its key."""
INSPECT_EVERY: Final = 4
"""at every n-th."""
MOMENT_S: Final = 0.002
"""How long an impatient consumer waits for a message."""
BY_HISTORY: Final = (
    no_bugs.check,
    nothing_altered.check,
    settled_stays_settled.check,
    one_holder.check,
    attempts.check,
    offsets.check,
)
"""Checkers that can tell a broken promise without looking at the disk."""


class BodyFailure(Exception):
    """A handler's own failure, raised in the body of `receive`."""


class TopicsTogether:
    """Several topics, as their consumers subscribe to them."""

    def __init__(self, runtime: callboard.Runtime, names: Sequence[str]) -> None:
        self.name = " and ".join(names)
        self._runtime = runtime
        self._names = names

    def subscribe(self, group: str, **settings: Any) -> callboard.Consumer:
        """A consumer of all of them."""
        return self._runtime.subscribe(self._names, group, **settings)


class BrokerWorkload:
    """The clients of one run."""

    def __init__(self, world: World, traffic: Traffic, **settings: Any) -> None:
        self.world = world
        self.traffic = traffic
        self.settings: dict[str, Any] = {
            "partitions": max(1, traffic.partitions),
            "segment_bytes": traffic.segment_bytes,
            "compression": traffic.compression,
        } | settings
        self.patience_s = VISIBILITIES * traffic.visibility_s + traffic.work_s + SLACK_S
        self.terms = Terms(
            visibility_s=dict.fromkeys(traffic.groups, traffic.altered_visibility_s or traffic.visibility_s),
            groups=traffic.groups,
            keyed=traffic.groups if traffic.ordering == "key" else (),
            max_in_flight=traffic.max_in_flight or None,
            latency_s=max(0.0, traffic.latency_s),
            liveness_s=self.patience_s,
            intensities=tuple(
                Intensity(path=f"topics/{name}/", restarts=20, period_s=10.0, each=True, delay_s_max=0.25)
                for name in traffic.topic_names
            ),
        )
        world.limits = limits_of(traffic.limits)
        world.inspect = self._inspect
        world.disk.latency_s = max(0.0, traffic.latency_s)
        self._probes_passed = 0
        self._publishing: dict[str, int] = {}
        self._publishes = 0
        self._seen_in_hand: tuple[str, int, int] | None = None
        """Bytes that no client had at the last look, the machine, and how many publishes had begun."""
        self._in_hand_since_s = 0.0
        """Publishers that publish something now, by name, with the number of their machine."""
        self._largest_bytes = (
            altered_topic.VALUE_BYTES + altered_topic.BESIDE_BYTES if traffic.alterations else 1
        )
        """More than the bytes of any one publish."""
        self.moments = Moments(world, 0 if self.terms.beyond else traffic.moments)
        self._closings = Closings(world, traffic)
        self._altered = altered_topic.AlteredTopic(world, self.settings)
        self._recreated = recreated.RecreatedTopic(world, self.settings)
        self._mistaken = MistakenClient(world, traffic.mistakes)
        self.is_done = False
        self.reopens = False
        """The session ends early: the runtime is closed and opened again."""
        self._is_to_be_cut = traffic.cut_at_end
        self._cut_at_s = 0.0
        """When the power was cut because everything was settled: consumers that join again have all the time again."""
        self.reading_s = 0.0
        """How long a reader without a group takes for each record."""
        self.heal_at_s = HEAL_AT_S
        self._listed_s = -LIST_EVERY_S
        self.busy_until_s = 0.0
        """Publishing continues until then, if nothing fails: virtual seconds of the run."""
        self._handled: Counter[tuple[str, str, int, int]] = Counter()
        self._read_to: dict[tuple[str, int], dict[str, int]] = {}
        """By partition and reader: the last offset read."""
        self._to_alter = list(traffic.groups) if traffic.altered_visibility_s else []
        world.retry_budget += max(0, traffic.retries)
        history = world.history
        numbers = [history.message(traffic.value(n), traffic.key(n)) for n in range(traffic.messages)]
        publishers = max(1, traffic.publishers)
        self._waiting = [deque(numbers[index::publishers]) for index in range(publishers)]

    def _inspect(self, probe: str) -> None:
        """Now and then look inside the runtime, and the consumers."""
        self._probes_passed += 1
        machine = self.world.machine
        if probe not in INSPECTED or self._probes_passed % INSPECT_EVERY or machine is None:
            return
        problem = bounds.inside(machine, self._largest_bytes) or self._left_in_hand(machine)
        for consumer in () if problem else self.world.consumers.values():
            problem = problem or bounds.of_consumer(consumer.inner)
        if problem:
            raise self.world.broken(Violation(bounds.PROMISE, problem))

    def _left_in_hand(self, machine: Machine) -> str | None:
        """Which bytes are in hand, and no client's, since another instant: a message on its way is not seen."""
        if machine.number in self._publishing.values() or machine.runtime is None:
            return None
        problem = bounds.left_in_hand(machine.runtime, self.traffic.topic_names)
        seen = None if problem is None else (problem, machine.number, self._publishes)
        if seen != self._seen_in_hand:
            self._seen_in_hand, self._in_hand_since_s = seen, self.world.now
        return problem if self.world.now > self._in_hand_since_s else None

    # -- a run

    async def run(self) -> Surviving:
        """Run the clients, in as many lives as it takes; then look at what is left and hold it to the promises."""
        await self.run_clients()
        surviving = await self.surviving()
        mark(self.world, surviving)
        # When the disk refused anything, closing may have left unsynced what was not promised.
        terms = attrs.evolve(self.terms, leader_may_vanish=self._has_refused)
        enforce(self.world.history, surviving, terms)
        await self.moments.check(self.terms)
        return surviving

    @property
    def _has_refused(self) -> bool:
        """Whether the disk has failed with anything so far."""
        return any(label.startswith(DISK_FAILURES) for label in self.world.fault_counts)

    async def run_clients(self) -> None:
        """Until everything is settled, or waited for too long; in the end the power is lost once more."""
        self.world.spawn(self._watch)
        await self.world.machine_until_done(self.life)
        self.is_done = True
        self.world.disk.latency_s = 0.0
        self.moments.end()
        self.world.heal()
        if not self.terms.beyond:
            survival = draw_survival(self.world.entropy.fork("last power cut"))
            self.world.disk.crash(survival.choosing(self.world.disk.damage_budget))
            self.world.history.note("last power cut", self.world.disk.left_in_words())

    async def surviving(self) -> Surviving:
        """What is left; in every sixth world it is recovered twice, to compare what that leaves, to the byte.

        And a third time when the second differs: journals that are long are gone on with in another file, once.
        """
        world = self.world

        def open_runtime() -> callboard.Runtime:
            return callboard.open_runtime(
                disk=world.disk,
                clock=world.clock,
                entropy=world.entropy.fork("surviving"),
                on_event=partial(world.history.event, 0),
                limits=world.limits,
            )

        note_shown(world.history, world.disk, self.moments.places)
        digests: list[str] = []
        # What a group that was deleted has left in a topic may be cleared by any of the openings.
        is_compared = world.seed % 6 == 0 and not (self.traffic.recreations or self.traffic.alterations)
        while not digests or (is_compared and len(set(digests)) == len(digests) < 3):
            recovered = await recover(world.disk, open_runtime)
            files = fingerprints(world.disk.files()) if is_compared else ()
            digests.append("\n".join([recovered.digest, *files]))
        surviving = await look(world.history, world.disk, recovered)
        world.history.note("looked", surviving.words())
        partitions = tuple(part for part in surviving.partitions if part.topic not in BESIDE)
        return attrs.evolve(surviving, partitions=partitions, digests=tuple(digests))

    async def _watch(self) -> None:
        """Heal in time, and then have no patience for ever."""
        world = self.world
        await heal_in_time(world, self.heal_at_s)
        short = world.history.of("OpeningLacksSpace")
        if short:  # what lacked space for so long may wait as long again
            self.patience_s += world.now - short[0].time + SLACK_S
            self.terms = attrs.evolve(self.terms, liveness_s=self.patience_s)
        calm_s = max(world.now, self.busy_until_s)
        await self.world.rest(calm_s + self.patience_s - world.now)
        while (ended_s := max(self._cut_at_s, self._closings.closed_at_s)) > calm_s:
            calm_s = ended_s
            await self.world.rest(calm_s + self.patience_s - world.now)
        if not self.is_done:
            # Being late is often the consequence of what is in the history already.
            broken = check_all(world.history, Surviving(()), self.terms, BY_HISTORY)
            if broken:
                raise world.broken(broken[0])
            acked = {
                (entry.group, entry.topic, entry.partition, offset)
                for entry in world.history.of("acked")
                for offset in entry.offsets
            }
            words = (
                f"{sum(map(len, self._waiting))} messages were not published, and {len(acked)} acks had returned"
                f" after {self.patience_s:g} virtual seconds without any fault"
            )
            raise world.broken(Violation(liveness.PROMISE, words))

    # -- a life

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end; what an operator would try again is tried again."""
        while True:
            self._closings.was_early = False
            try:
                await self.session(machine)
            except (CallboardError, BaseExceptionGroup) as error:
                refused = [leaf for leaf in leaves(error) if isinstance(leaf, ConfigurationError)]
                if refused:
                    raise self.world.broken(Violation(CONFIGURED, str(refused[0]))) from error
                mistaken = [leaf for leaf in leaves(error) if isinstance(leaf, InvalidArgument)]
                if mistaken:
                    raise self.world.broken(Violation(SENSIBLE, str(mistaken[0]))) from error
                if not is_passing(error):
                    raise
                kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves(error)}))
                self.world.note(f"{attempts.REOPENED}: {kinds}")
                self.world.probe("operator")
                await self.world.rest(OPERATOR_S)
            else:
                self.moments.closed()
                await self._closings.closed(machine, has_refused=self._has_refused)
                if not self._closings.was_early and not self.reopens:
                    return
                self.reopens = False

    async def session(self, machine: Machine) -> None:
        """From opening the runtime to closing it, with everything published and settled."""
        traffic = self.traffic
        note_shown(self.world.history, self.world.disk, self.moments.places)
        async with machine.open_runtime() as runtime:
            names = traffic.topic_names
            topics = [await runtime.create_topic(name, **self.settings) for name in names]
            self.moments.serves(topics)
            read = topics[0] if len(topics) == 1 else TopicsTogether(runtime, names)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._closings.close_soon, nursery.cancel_scope, name="closing")
                nursery.start_soon(restart_failed, runtime, name="operator")
                for group, style in zip(traffic.groups, traffic.styles, strict=True):
                    for index in range(max(1, traffic.consumers)):
                        who = f"{group}.{index + 1}"
                        nursery.start_soon(self._consumer, machine, read, group, style, who, name=who)
                nursery.start_soon(self._alter_groups, machine, runtime, name="administrator")
                for index in range(max(0, traffic.readers)):
                    topic = topics[index % len(topics)]
                    nursery.start_soon(self._read, machine, topic, f"reader-{index + 1}", index)
                if traffic.mistakes > 0:
                    nursery.start_soon(self._mistaken.run, runtime, topics[0], name="mistaken client")
                if traffic.recreations > 0:
                    nursery.start_soon(
                        self._recreated.recreate, runtime, traffic.recreations, name="recreated topic"
                    )
                nursery.start_soon(self.beside, machine, runtime, nursery, name="beside")
                async with trio.open_nursery() as publishing:
                    if traffic.alterations > 0:
                        altered = self._altered.alter
                        publishing.start_soon(altered, runtime, traffic.alterations, name="altered topic")
                    for index in range(len(self._waiting)):
                        publishing.start_soon(self._publisher, machine, topics, index, name=f"p{index + 1}")
                await self._until_settled(runtime)
                if self._is_to_be_cut:
                    self._is_to_be_cut = False
                    self._cut_at_s = self.world.now
                    self.world.cut_power()
                nursery.cancel_scope.cancel()
            await self._look_behind(machine, runtime)

    async def _look_behind(self, machine: Machine, runtime: Any) -> None:
        """Everybody has gone: when nothing fails any more, nothing is left of them."""
        if machine.dead or not self.world.healed.is_set():
            return
        await self.world.rest(GONE_S)
        problem = None if machine.dead else bounds.left_behind(runtime)
        if problem is not None:
            raise self.world.broken(Violation(bounds.PROMISE, problem))
        self.world.sometimes("everybody had gone, and nothing was left of them", True)

    async def beside(self, machine: Machine, runtime: Any, nursery: trio.Nursery) -> None:
        """What else is done in a session; cancelling the nursery ends that."""

    async def _read(self, machine: Machine, topic: Any, who: str, partition: int) -> None:
        """Follow a partition; begin again after an error."""
        partition %= topic.partitions
        history = self.world.history
        read_to = self._read_to.setdefault((topic.name, partition), {})
        while True:
            life = history.operation()
            read_to[who] = -1
            try:
                async for record in topic.read(partition=partition, follow=True):
                    number = history.identify(record.value, record.key, record.headers, record.timestamp)
                    history.record(
                        machine.number,
                        "read",
                        who,
                        life,
                        topic=topic.name,
                        partition=partition,
                        ids=(number,),
                        offsets=(record.offset,),
                    )
                    read_to[who] = record.offset
                    self.world.probe("read", who)
                    if self.reading_s > 0:
                        await self.world.rest(self.reading_s)
            except CallboardError as error:
                self.world.note(f"{who}: {type(error).__name__}")
                await self.world.rest(0.5)

    # -- publishing

    async def _publisher(self, machine: Machine, topics: Sequence[Any], index: int) -> None:
        traffic, waiting = self.traffic, self._waiting[index]
        observed = [ObservedTopic(self.world, machine.number, topic, f"p{index + 1}") for topic in topics]
        turn = index
        while waiting:
            acks = traffic.acks[turn % len(traffic.acks)] if traffic.acks else "all"
            turn += 1
            numbers = [waiting.popleft() for _ in range(min(len(waiting), max(1, traffic.batch)))]
            end = "unsure"
            with trio.move_on_after(traffic.patience_s if traffic.patience_s > 0 else math.inf):
                end = await self._publish(observed[turn % len(observed)], numbers, acks)
            if end == "refused":
                waiting.extendleft(reversed(numbers))
                await self.world.rest(max(0.01, traffic.refused_s))
            elif traffic.pause_s > 0:
                await self.world.rest(traffic.pause_s)
            if traffic.flush_every > 0 and turn % traffic.flush_every == 0:
                for topic in observed:
                    await topic.flush()
        if "none" in traffic.acks:
            for topic in observed:
                await topic.flush()

    async def _publish(self, topic: ObservedTopic, numbers: list[int], acks: str) -> str:
        messages = [self.message(number) for number in numbers]
        size_bytes = sum(len(value) + len(key or b"") + BESIDE_BYTES for value, key in messages)
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        machine = self.world.machine
        self._publishes += 1
        self._publishing[topic.who] = 0 if machine is None else machine.number
        try:
            return await self._publish_now(topic, numbers, messages, acks)
        finally:
            self._publishing.pop(topic.who, None)

    async def _publish_now(
        self, topic: ObservedTopic, numbers: list[int], messages: list[tuple[bytes, bytes | None]], acks: str
    ) -> str:
        traffic = self.traffic
        headers, timestamps = list(map(traffic.headers, numbers)), list(map(traffic.timestamp, numbers))
        partitions = list(map(traffic.chosen, numbers))
        if len(messages) == 1:
            value, key = messages[0]
            return await topic.publish(
                value,
                key=key,
                headers=headers[0],
                timestamp=timestamps[0],
                partition=partitions[0],
                acks=acks,
            )
        values, keys = [value for value, _ in messages], [key for _, key in messages]
        return await topic.publish_batch(
            values,
            keys=keys if any(keys) else None,
            headers=headers if any(headers) else None,
            timestamps=timestamps if any(timestamps) else None,
            partitions=None if all(partition is None for partition in partitions) else partitions,
            acks=acks,
        )

    def message(self, number: int) -> tuple[bytes, bytes | None]:
        """Value and key of a message."""
        return self.traffic.value(number), self.traffic.key(number)

    # -- consuming

    async def _consumer(self, machine: Machine, topic: Any, group: str, style: str, who: str) -> None:
        work = partial(self._late, self.work_of(style)) if self.traffic.lag_s > 0 else self.work_of(style)
        settings = {"max_in_flight": self.traffic.max_in_flight} if self.traffic.max_in_flight > 0 else {}
        while True:
            try:
                crashed = await consume(
                    self.world,
                    machine.number,
                    topic,
                    group,
                    who,
                    work,
                    visibility_timeout=max(0.05, self.traffic.visibility_s),
                    backoff=BACKOFF_S,
                    max_backoff=MAX_BACKOFF_S,
                    ordering=self.traffic.ordering,
                    **settings,
                )
            except (PartitionUnavailable, GroupNotFound):
                crashed = True
            if crashed:
                await self.world.rest(OPERATOR_S / 4)

    async def _late(self, work: Callable[[ObservedConsumer], Any], consumer: ObservedConsumer) -> None:
        """Do nothing for a while, then work: meanwhile nothing is synced for an ack's sake."""
        await self.world.rest(self.traffic.lag_s)
        await work(consumer)

    def work_of(self, style: str) -> Callable[[ObservedConsumer], Any]:
        """The function that a consumer of that style runs."""
        return {
            "receive": self._receive,
            "batches": self._batches,
            "lazy": self._lazy,
            IMPATIENT: self._ask_briefly,
        }.get(style, self._iterate)

    def _fate(self, consumer: ObservedConsumer, message: ReceivedMessage) -> str:
        """What a consumer does with a message: ack it, or fail with it, as often as it may."""
        place = consumer.inner.group, message.topic, message.partition, message.offset
        traffic, turn = self.traffic, message.offset + self._handled[place]
        if self._handled[place] >= max(1, traffic.failures):
            return "ack"
        self._handled[place] += 1
        if traffic.nack_every > 0 and turn % traffic.nack_every == traffic.nack_every - 1:
            return "nack"
        if traffic.forget_every > 0 and turn % traffic.forget_every == traffic.forget_every - 1:
            return "forget"
        if traffic.release_every > 0 and turn % traffic.release_every == traffic.release_every - 1:
            return "release"
        return "extend" if message.offset == traffic.extended_offset else "ack"

    async def _handle(self, consumer: ObservedConsumer, message: ReceivedMessage) -> None:
        """Take time, possibly more than the lease; from the second time on be quick, or no message is ever settled."""
        place = consumer.inner.group, message.topic, message.partition, message.offset
        if self.traffic.handling_s > 0 and place not in self._handled:
            await self.world.rest(self.traffic.handling_s)

    async def _iterate(self, consumer: ObservedConsumer) -> None:
        async for message in consumer:
            await self._handle(consumer, message)
            fate = self._fate(consumer, message)
            if fate == "extend":
                await consumer.extend(message, 2 * EXTENDED * self.traffic.visibility_s)
                await self.world.rest(EXTENDED * self.traffic.visibility_s)
            if fate in ("ack", "extend"):
                if await consumer.ack(message) == "unsure":
                    await self.world.rest(OPERATOR_S / 4)
                    await consumer.ack(message)  # it counts, or it is lost; it is never refused
            elif fate == "nack":
                delay_s = self.traffic.nack_delay_s
                await consumer.nack(message, delay=delay_s if delay_s >= 0 else None)
            elif fate == "release":
                await consumer.release(message)

    async def _receive(self, consumer: ObservedConsumer) -> None:
        while True:
            try:
                async with consumer.receive() as message:
                    if message is None:
                        continue
                    await self._handle(consumer, message)
                    if self._fate(consumer, message) == "nack":
                        raise BodyFailure
            except BodyFailure:
                continue
            except (PartitionUnavailable, RuntimeClosed, GroupNotFound):
                raise
            except LeaseLost:
                continue  # recorded
            except CallboardError:
                # The ack is indefinite, as is recorded, or the disk refused a lease. Nothing takes time here: who asks
                # again at once asks for ever, and a full disk is never healed.
                await self.world.rest(OPERATOR_S / 4)

    async def _batches(self, consumer: ObservedConsumer) -> None:
        while True:
            await self._settle_batch(consumer, await consumer.next_batch(max_records=20))
            for part in await consumer.next_parts(max_records=3):
                await self._settle_batch(consumer, part)

    async def _settle_batch(self, consumer: ObservedConsumer, batch: ReceivedBatch) -> None:
        first = next(iter(batch))
        await self._handle(consumer, first)
        fate = self._fate(consumer, first)
        if fate == "nack":
            await consumer.nack(batch)
        elif fate == "release":
            await consumer.release(batch)
        elif fate != "forget":
            await consumer.ack(batch)

    async def _lazy(self, consumer: ObservedConsumer) -> None:
        unflushed = 0
        while True:
            message = await consumer.get(timeout=0.1 if unflushed else None)
            if message is None or unflushed >= FLUSH_EVERY:
                await consumer.flush()
                unflushed = 0
            if message is None:
                continue
            await self._handle(consumer, message)
            if self._fate(consumer, message) != "forget":
                await consumer.ack(message, wait=False)
                unflushed += 1

    async def _ask_briefly(self, consumer: ObservedConsumer) -> None:
        while True:
            message = None
            with trio.move_on_after(MOMENT_S):
                message = await consumer.get()
            if message is None:
                await self.world.rest(MOMENT_S)
                continue
            await self._handle(consumer, message)
            if self._fate(consumer, message) != "forget":
                await consumer.ack(message)

    # -- altering

    async def _alter_groups(self, machine: Machine, runtime: Any) -> None:
        """Shorten the visibility timeout of each group, once that has returned without an error."""
        traffic = self.traffic
        while self._to_alter:
            await self.world.rest(traffic.visibility_s / 8)
            try:
                await runtime.group(self._to_alter[0]).alter(visibility_timeout=traffic.altered_visibility_s)
            except ConfigurationError:
                raise
            except CallboardError:
                continue
            group = self._to_alter.pop(0)
            until = self.world.now + traffic.visibility_s
            self.world.history.record(
                machine.number, "group altered", "administrator", group=group, until=until
            )

    # -- the end

    async def _until_settled(self, runtime: Any) -> None:
        """Wait until every group has settled everything."""
        wanted = set(self.traffic.groups)
        while True:
            statistics = await self._looked(runtime)
            names = {group.group_id: group.name for group in statistics.groups}
            settled = True
            for partition in statistics.partitions:
                if partition.topic in BESIDE:
                    continue
                pending = {names.get(group.group_id): group.pending for group in partition.groups}
                settled &= all(pending.get(name, 1) == 0 for name in wanted)
                settled &= not partition.is_recovery_owed
                settled &= partition.pending_bytes == 0 or not self.world.healed.is_set()
                readers = self._read_to.get((partition.topic, partition.partition))
                if readers and not partition.damages:
                    # What retention has dropped is not read any more.
                    read_to = max(min(readers.values()), partition.start_offset)
                    settled &= read_to >= self._stored(partition.topic, partition.partition)
                settled &= partition.state in ("running", "full") or not self.world.healed.is_set()
                if self.traffic.ordering == "key":
                    fenced = any(group.fenced for group in partition.groups)
                    self.world.sometimes("a message waited for another of its key", fenced)
                    is_full = any(group.is_window_full for group in partition.groups)
                    self.world.sometimes("a record window was full", is_full)
            if settled:
                return
            await self.world.rest(max(0.05, self.traffic.poll_s))

    async def _looked(self, runtime: Any) -> Any:
        """Statistics; now and then what they say of groups goes into the history."""
        history, machine = self.world.history, self.world.machine
        if machine is None or self.world.now < self._listed_s + LIST_EVERY_S:
            return await runtime.stats()
        self._listed_s = self.world.now
        catalog = ObservedCatalog(self.world, machine.number, runtime, "operator")
        operation = history.operation()
        history.record(machine.number, "list groups", catalog.who, operation)
        statistics = await runtime.stats()
        catalog.groups_seen(operation, statistics.groups)
        return statistics

    def _stored(self, topic: str, partition: int) -> int:
        """The last offset of a partition which is synced, as a publisher knows."""
        return max(
            (
                entry.offsets[-1]
                for entry in self.world.history.of("published")
                if entry.topic == topic and entry.partition == partition and entry.detail == "all"
            ),
            default=-1,
        )


def fingerprints(files: Mapping[str, bytes]) -> list[str]:
    """A line for each file of topics and each in quarantine: recovery must not write them again when nothing is wrong.

    The catalog may note something at every opening.
    """
    return [
        f"{path}: {len(content)} bytes, checksum {crc32(content):08x}"
        for path, content in sorted(files.items())
        if path.startswith(("topics/", "quarantine/"))
    ]
