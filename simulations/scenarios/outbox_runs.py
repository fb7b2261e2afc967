"""The scenario of acks that publish: consumers hand on what they handle, while everything fails.

Each attempt to handle a message publishes values of its own, so whatever is in the targets in the end shows which
attempts counted. Of an ack that was answered all its values are there, once; of one that was refused, and of a body
that did not come to its ack, none ever; of one whose fate is unknown all or none. Each message counted once. What acks
that followed each other published to one partition lies there in that order. Some values are delayed: these wait first,
and none comes before it is due.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, LeaseLost, OutboxFull
from callboard.message import Message, from_us
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import (
    BROKER_LIMITS,
    COUNT_MAX,
    DrawnLimits,
    between,
    check_counts,
    draw_limits,
    limits_of,
    one_of,
)
from callboard.simulations.scenarios.lives import (
    expect_no_bugs,
    heal_in_time,
    live_until_done,
    until_readable,
)
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what is published with an ack comes once if the ack counts, and never if it does not"
LIVENESS_S: Final = 900.0
FATES: Final = (
    "ack",
    "ack",
    "ack",
    "body",
    "body",
    "raise",
    "nack",
    "cancel",
    "stale",
    "hurry",
    "plain",
    "batch",
)
BODIES: Final = ("body", "raise", "cancel")
VISIBILITY_S: Final = 3.0
HURRIES_S: Final = (0.0, 0.0005, 0.002, 0.01)
"""After so long an ack is given up."""
IDLE_S: Final = 1.0
DELAYS_S: Final = (0.0, 0.01, 0.5, 4.0)
SET_BACK_S: Final = (0.0, 0.0, 0.0, 100.0, 100_000.0)
TIME: Final = from_us(1_000_000_000_000_000)
TTL_S: Final = 1e6
GROUP: Final = "billing"
TARGETS: Final = ("bills", "notes", "orders-too")


@attrs.frozen(kw_only=True)
class HandedOn:
    """A workload: how many messages in how many partitions, what is published of each, and by which consumers."""

    messages: int = 8
    partitions: int = 1
    targets: int = 2
    """Topics that are published to, of two partitions each."""
    publishes: int = 2
    """Messages that one ack publishes, at most."""
    consumers: int = 1
    outbox: int = 1000
    """How many messages an outbox keeps."""
    delays: float = 0.0
    """How many of what is published are delayed, in seconds of `DELAYS_S`."""
    sessions: int = 1
    """The messages come in this many parts. When one is handed on, the directory is closed, and opened again."""
    set_back_s: float = 0.0
    """By how much the wall clock is set back between two sessions, and between two lives. Then nothing is delayed."""
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "publishes": (self.publishes, COUNT_MAX),
                "consumers": (self.consumers, COUNT_MAX),
                "sessions": (self.sessions, COUNT_MAX),
            },
        )


@attrs.define(eq=False)
class _Attempt:
    """One try to handle messages, and what it published."""

    orders: tuple[bytes, ...]
    partition: int
    values: dict[bytes, tuple[str, int]]
    """With the topic and partition that each is for."""
    dues_s: dict[bytes, float] = attrs.Factory(dict)
    """When those are due that are delayed, wall time."""
    began_at: float = 0.0
    told_at: float = 0.0
    counts: bool | None = False
    """Whether its ack counts; None when that is unknown."""
    has_come: bool = False
    """Whether what it published is there."""


class AckedAndPublished:
    """Acks with publishes while disks, actors, processes and the power fail."""

    name = "acked-and-published"
    space = FaultSpace(
        weights={
            "PowerCut": 4,
            "KillProcess": 3,
            "CrashActor": 6,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "FailVerb": 4,
            "FullDisk": 1,
        },
        added=("SlowDisk", "DelayMailbox"),
        actors=(
            "topics/orders/0",
            "topics/orders/0",
            "topics/orders/outbox-0",
            "topics/orders/outbox-0",
            "topics/bills/0",
            "topics/bills/1",
            "outbox",
            "outbox",
            "outbox",
            "topics/bills/delayed-0",
            "topics/bills/delayed-1",
            "scheduler",
            "catalog",
        ),
        paths=("/outbox-0/", "/outbox-0/delivery/", "/delayed-0/", "/0/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create", "rename"),
        probes={"handling": 20, "acked": 20, "disk.sync": 80, "disk.write": 80, "event.ActorStarted": 14},
        faults=(0, 5),
        horizon_s=10.0,
        down_s=(0.01, 2.0),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        slowly, refusing = entropy.fork("slowly"), entropy.fork("refusing")
        found = [
            *aimed.at_steps(entropy, self.space, ("outbox", "groups/billing", "timer-wheel")),
            *aimed.slowly(slowly, "topics/orders/0", "/0/delivery/", 0.5),
        ]
        if refusing.random() < 0.5:  # a target, just when there is something for it
            found += aimed.amid(refusing, self.space, "acked", 12, one_of(refusing, ("/0/0000", "/1/0000")))
        return found

    def workload(self, entropy: SeededEntropy) -> HandedOn:
        """Few messages, each handed on several times."""
        set_back_s = one_of(entropy.fork("clock"), SET_BACK_S)
        delays = one_of(entropy.fork("delays"), (0.0, 0.0, 0.3, 0.7))
        sessions = one_of(entropy.fork("sessions"), (1, 1, 2, 4))
        return HandedOn(
            messages=between(entropy, 1, 16),
            partitions=one_of(entropy, (1, 1, 2)),
            targets=one_of(entropy, (1, 2, 3)),
            publishes=one_of(entropy, (1, 2, 2, 5)),
            consumers=one_of(entropy, (1, 1, 2, 3)),
            outbox=one_of(entropy, (5, 10, 1000)),
            delays=0.0 if set_back_s else delays,
            sessions=max(2, sessions) if set_back_s else sessions,
            set_back_s=set_back_s,
            limits=draw_limits(entropy, BROKER_LIMITS),
        )

    async def main(self, world: World, workload: HandedOn) -> None:
        """Run it in as many lives as it takes."""
        outbox = max(1, workload.outbox, workload.publishes)
        world.limits = limits_of((*workload.limits, ("outbox", outbox)))
        handing = _HandingOn(world, workload)
        world.spawn(handing.watch)
        await world.machine_until_done(handing.life)
        handing.end()


class _HandingOn:
    """Publisher and consumers, and what they were answered."""

    def __init__(self, world: World, workload: HandedOn) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._draws = world.entropy.fork("handing on")
        self._attempts: list[_Attempt] = []
        self._number = 0
        self._acked: set[bytes] = set()
        """Orders that were acked for certain."""
        self._part = 1
        """Of the messages, by sessions."""
        self._was_refused = self._was_lost = self._was_unknown = self._discarded = False
        self._was_delayed = False
        self._missing: set[bytes] = set()

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            missing = f": {sorted(self._missing)[:3]} have not come" if self._missing else ""
            raise self._broken(f"not all was handed on {LIVENESS_S:g} s after the last fault{missing}")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        session = partial(self._session, machine)
        if machine.number > 1:
            self._set_clock_back()
        await live_until_done(self.world, session)
        while self._part < self.workload.sessions:
            self._part += 1
            self._set_clock_back()
            await live_until_done(self.world, session)
        self.is_done = True

    def _set_clock_back(self) -> None:
        """No process has the directory open."""
        if self.workload.set_back_s > 0:
            self.world.clock.shift(-self.workload.set_back_s)
            self.world.sometimes("the clock was set back between acks that publish", True)

    async def _session(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", partitions=max(1, self.workload.partitions))
            targets = [await runtime.create_topic(name, partitions=2) for name in self._targets]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                await self._publish(orders)
                while not await self._is_over(runtime, orders):
                    async with trio.open_nursery() as consumers:
                        for number in range(max(1, self.workload.consumers)):
                            consumers.start_soon(self._consume, orders, name=f"consumer {number}")
                while await self._is_delayed(targets):
                    await self.world.rest(IDLE_S)
                await self._look(targets)
                await self._look_at_statistics(runtime)
                nursery.cancel_scope.cancel()

    @property
    def _targets(self) -> tuple[str, ...]:
        return TARGETS[: max(1, min(len(TARGETS), self.workload.targets))]

    async def _publish(self, orders: Any) -> None:
        """What is not stored yet; each order has a value of its own."""
        await until_readable(self.world, orders)
        stored = {record.value async for record in orders.read()}
        messages, sessions = max(0, self.workload.messages), max(1, self.workload.sessions)
        for number in range(messages * min(self._part, sessions) // sessions):
            value = b"order %d" % number
            if value not in stored:
                await orders.publish(value, partition=number % orders.partitions)

    async def _is_over(self, runtime: Any, orders: Any) -> bool:
        await until_readable(self.world, orders)
        parts = await orders.describe()
        if not self.workload.messages:
            return True
        states = [group for part in parts for group in part.groups]
        is_settled = len(states) == len(parts) and not any(state.pending for state in states)
        return is_settled and not any(part.outbox for part in parts)

    # -- handling

    async def _consume(self, orders: Any) -> None:
        async with orders.subscribe(GROUP, visibility_timeout=VISIBILITY_S, backoff=0.1) as consumer:
            has_more = True
            while has_more:
                fate = one_of(self._draws, FATES)
                try:
                    if fate == "batch":
                        has_more = await self._take_batch(consumer)
                    elif fate in BODIES:
                        with trio.CancelScope() as scope:
                            has_more = await self._take_body(consumer, fate, scope)
                    else:
                        message = await consumer.get(timeout=IDLE_S)
                        has_more = message is not None
                        if has_more:
                            await self._handle(message, fate)
                except (LeaseLost, OutboxFull) as error:
                    self._was_refused |= isinstance(error, OutboxFull)
                    self._was_lost |= isinstance(error, LeaseLost)
                except ZeroDivisionError:
                    pass

    async def _take_body(self, consumer: Any, fate: str, scope: trio.CancelScope) -> bool:
        attempt: _Attempt | None = None
        try:
            async with consumer.receive(timeout=IDLE_S) as message:
                if message is None:
                    return False
                attempt = await self._begin(message, (message.value,), message.partition)
                if fate == "raise":
                    raise ZeroDivisionError
                if fate == "cancel":
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
                attempt.counts, attempt.began_at = None, trio.current_time()
        except (LeaseLost, OutboxFull):
            if attempt is not None:
                attempt.counts = False
            raise
        self._told(attempt)
        return True

    async def _take_batch(self, consumer: Any) -> bool:
        with trio.move_on_after(IDLE_S):
            async for batch in consumer.batches(max_records=4):
                with trio.CancelScope(shield=True):
                    attempt = await self._begin(batch, tuple(batch.values()), batch.partition)
                    await self._ack(batch, attempt)
                return True
        return False

    async def _handle(self, message: Any, fate: str) -> None:
        if fate == "plain":
            await message.ack()
            self._acked.add(message.value)
            return
        attempt = await self._begin(message, (message.value,), message.partition)
        if fate == "nack":
            await message.nack(delay=one_of(self._draws, (0.0, 0.2)))
            return
        if fate == "stale":
            await self.world.rest(one_of(self._draws, (VISIBILITY_S, VISIBILITY_S + 1.0)))
        if fate == "hurry":
            with trio.move_on_after(one_of(self._draws, HURRIES_S)):
                await self._ack(message, attempt)
            return
        await self._ack(message, attempt)

    async def _begin(self, owner: Any, orders: tuple[bytes, ...], partition: int) -> _Attempt:
        """Publish some values with the ack that may follow."""
        attempt = _Attempt(orders, partition, {})
        self._attempts.append(attempt)
        for value in orders:
            if value in self._acked:
                raise self._broken(f"{value!r} comes again, and was acked")
        for _ in range(between(self._draws, 1, max(1, self.workload.publishes))):
            self._number += 1
            value, topic = b"%d of %s" % (self._number, orders[0]), one_of(self._draws, self._targets)
            place = between(self._draws, 0, 1)
            attempt.values[value] = topic, place
            await owner.publish(topic, self._message(attempt, value, place))
        self.world.probe("handling", str(self._number))
        return attempt

    def _message(self, attempt: _Attempt, value: bytes, place: int) -> Message:
        """What is published, some of it delayed."""
        given: dict[str, Any] = {"key": value, "headers": {"is": value}, "timestamp": TIME, "ttl": TTL_S}
        if self._draws.random() >= self.workload.delays:
            return Message(value, partition=place, **given)
        delay, wall_us = one_of(self._draws, DELAYS_S), self.world.clock.wall_us()
        attempt.dues_s[value] = wall_us / 1e6 + delay
        if self._draws.random() < 0.5:
            return Message(value, partition=place, delay=delay, **given)
        return Message(
            value, partition=place, deliver_at=from_us(wall_us) + timedelta(seconds=delay), **given
        )

    async def _ack(self, owner: Any, attempt: _Attempt) -> None:
        attempt.counts, attempt.began_at = None, trio.current_time()
        try:
            await owner.ack()
        except CallboardError as error:
            if not error.indefinite:
                attempt.counts = False
            raise
        self._told(attempt)

    def _told(self, attempt: _Attempt) -> None:
        attempt.counts, attempt.told_at = True, trio.current_time()
        self._acked.update(attempt.orders)
        self.world.probe("acked", str(self._number))

    # -- what comes

    async def _is_delayed(self, targets: list[Any]) -> bool:
        """Whether something waits, or is due and on its way."""
        if any([await topic.delayed().count() for topic in targets]):
            return True
        there: set[bytes] = set()
        for topic in targets:
            await until_readable(self.world, topic)
            there.update([record.value async for record in topic.read()])
        counting = [each for each in self._attempts if each.counts or not there.isdisjoint(each.values)]
        self._missing = {value for each in counting for value in each.dues_s} - there
        return bool(self._missing)

    async def _look(self, targets: list[Any]) -> None:
        """All is there that counts, once, as it was published, in order; and nothing else."""
        places: dict[bytes, tuple[str, int, int]] = {}
        known = {value: attempt for attempt in self._attempts for value in attempt.values}
        for topic in targets:
            await until_readable(self.world, topic)
            async for record in topic.read():
                value = record.value
                if value in places:
                    raise self._broken(f"{value!r} has come twice")
                if value not in known:
                    raise self._broken(f"{value!r} has come, and was never published")
                places[value] = topic.name, record.partition, record.offset
                if places[value][:2] != known[value].values[value]:
                    raise self._broken(f"{value!r} was for {known[value].values[value]}, not {places[value]}")
                told = record.key, record.headers, record.timestamp, record.ttl
                if told != (value, {"is": value}, TIME, TTL_S):
                    raise self._broken(f"{value!r} has come with {told}")
                self._check_time(record, known[value])
        counted: dict[bytes, _Attempt] = {}
        for attempt in self._attempts:
            there = [value in places for value in attempt.values]
            if any(there) and attempt.counts is False:
                raise self._broken(f"{list(attempt.values)} have come, and their ack does not count")
            if any(there) != all(there):
                raise self._broken(f"of {list(attempt.values)} some have come, and others not")
            if attempt.counts and not all(there):
                raise self._broken(f"{list(attempt.values)} have not come, and their ack counts")
            attempt.has_come = any(there)
            self._was_unknown |= attempt.counts is None
            for order in attempt.orders if any(there) else ():
                if order in counted:
                    raise self._broken(f"{order!r} counted twice")
                counted[order] = attempt
        self._check_order(places)

    def _check_time(self, record: Any, attempt: _Attempt) -> None:
        due_s = attempt.dues_s.get(record.value)
        if due_s is None:
            return
        self._was_delayed = True
        if record.append_time.timestamp() < due_s - 1e-5:
            raise self._broken(
                f"{record.value!r} has come {due_s - record.append_time.timestamp():g} s too early"
            )

    async def _look_at_statistics(self, runtime: Any) -> None:
        """What is discarded was stored for acks that do not count: no more than these had."""
        again = {entry.who for entry in self.world.history.of("ActorRestarted")}
        for statistics in (await runtime.stats()).outbox:
            self._discarded |= statistics.discarded > 0
            if statistics.lost or statistics.dropped:
                raise self._broken(f"{statistics}")
            unnamed = sum(
                len(attempt.values)
                for attempt in self._attempts
                if not attempt.has_come and attempt.partition == statistics.partition
            )
            is_stored_once = f"topics/orders/outbox-{statistics.partition}" not in again
            if is_stored_once and statistics.discarded > unnamed:
                raise self._broken(f"{unnamed} payloads were stored for acks that do not count: {statistics}")

    def _check_order(self, places: dict[bytes, tuple[str, int, int]]) -> None:
        told = [attempt for attempt in self._attempts if attempt.counts]
        for index, one in enumerate(told):
            for other in told[index + 1 :]:
                first, second = (one, other) if one.told_at <= other.told_at else (other, one)
                if first.partition != second.partition or first.told_at >= second.began_at:
                    continue
                for value in first.values.keys() - first.dues_s.keys():
                    for later in second.values.keys() - second.dues_s.keys():
                        here, there = places[value], places[later]
                        if here[:2] == there[:2] and here[2] > there[2]:
                            raise self._broken(
                                f"{later!r} was published later than {value!r}, and lies before it"
                            )

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        history = self.world.history
        crashed = any(entry.who == "outbox" for entry in history.of("ActorRestarted"))
        self.world.sometimes("an ack published", any(each.counts for each in self._attempts))
        self.world.sometimes("a full outbox refused an ack", self._was_refused)
        self.world.sometimes("a stale ack published nothing", self._was_lost)
        self.world.sometimes("an ack that published was indefinite", self._was_unknown)
        self.world.sometimes("what an ack published waited until it was due", self._was_delayed)
        self.world.sometimes("a payload was discarded", self._discarded)
        self.world.sometimes("the forwarder crashed and came back", crashed)
        self.world.sometimes("what an ack published was held", bool(history.of("OutboxHeld")))

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
