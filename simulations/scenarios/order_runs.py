"""The scenario of what comes first: priorities, with and without keys, and order per partition, while everything fails.

Each message's value gives its number, from which its priority and key follow. All that is published is published before
a consumer asks, and one consumer holds one message at a time: so of all that is unsettled and not delayed there is one
that has to come. With order per partition there may be more consumers: what is handed over has nothing before it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import LeaseLost
from callboard.log.limits import SEGMENT_BYTES_MIN
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
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation
from callboard.simulations.world.bounds import inside

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedMessage
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what is handed over is what comes first"
GROUP: Final = "billing"
LIVENESS_S: Final = 900.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 3.0
DELAY_S: Final = 0.7
SOON_S: Final = 0.05
"""A message whose delay, or whose time to starve, ends so soon may come first or not."""
HIGHEST: Final = 9
USUAL: Final = 4


@attrs.frozen(kw_only=True)
class OrderedTraffic:
    """A workload: how many messages, in which order, and how often they fail."""

    messages: int = 20
    batch: int = 5
    order: str = "priority"
    """"priority", "priority and key" or "partition"."""
    consumers: int = 1
    starvation_after: float = 0.0
    """0: never."""
    fail_every: int = 4
    limits: DrawnLimits = ()
    alike: int = 0
    """This many messages in a row have one priority, and no key every other time; 0: keys and priorities change with
    each message.
    """

    def __attrs_post_init__(self) -> None:
        counts = {"messages": (self.messages, COUNT_MAX), "batch": (self.batch, COUNT_MAX)}
        check_counts(type(self).__name__, counts)


class WhatComesFirst:
    """Priorities and order per partition while disks, actors, processes and the power fail."""

    name = "what-comes-first"
    space = FaultSpace(
        weights={
            "PowerCut": 3,
            "KillProcess": 3,
            "CrashActor": 4,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "FailVerb": 4,
            "FullDisk": 1,
        },
        actors=("topics/orders/0",),
        paths=("/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create"),
        probes={"handed": 20, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 8},
        faults=(0, 4),
        horizon_s=8.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        return aimed.at_steps(entropy, self.space, ("groups/billing", "timer-wheel"))

    def workload(self, entropy: SeededEntropy) -> OrderedTraffic:
        """Few messages or many, of which some fail."""
        order = one_of(entropy, ("priority", "priority", "priority and key", "partition"))
        return OrderedTraffic(
            messages=one_of(entropy, (3, 10, 30, 60)) + between(entropy, 0, 5),
            batch=one_of(entropy, (1, 7, 30)),
            order=order,
            consumers=one_of(entropy, (1, 2)) if order == "partition" else 1,
            starvation_after=one_of(entropy, (0.0, 0.0, 0.5, 2.0)),
            fail_every=one_of(entropy, (2, 4, 9, 1000)),
            limits=draw_limits(entropy, BROKER_LIMITS),
            alike=one_of(entropy, (0, 0, 2, 5, 12)),
        )

    async def main(self, world: World, workload: OrderedTraffic) -> None:
        """Run it in as many lives as it takes."""
        # All of the backlog is in the window: beyond it nothing is promised.
        window = {"range_records": COUNT_MAX, "window_bytes": 1 << 20}
        if workload.alike:
            window["window_span_records"] = (
                workload.alike
            )  # so that most reads find records that are all alike
        world.limits = limits_of((*workload.limits, *window.items()))
        group = _OrderedGroup(world, workload)
        world.spawn(group.watch)
        await world.machine_until_done(group.life)
        group.end()


class _OrderedGroup:
    """Publisher and consumers, and what they saw."""

    def __init__(self, world: World, workload: OrderedTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._is_ranked = workload.order != "partition"
        self._published: dict[int, tuple[int, float]] = {}
        """By offset, the number of the message and when it was appended."""
        self._settling: set[int] = set()
        """Offsets whose acks were begun, at least."""
        self._acked: set[int] = set()
        self._delayed: dict[int, float] = {}
        """By offset, until when a nack delays it."""
        self._seen = set[str]()
        self._machine: Machine

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            raise self._broken(f"the group did not end {LIVENESS_S:g} s after the last fault")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        self._machine = machine
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic(
                "orders", priorities=self._is_ranked, segment_bytes=SEGMENT_BYTES_MIN
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                await self._publish(orders)
                while not await self._is_over(orders):
                    async with trio.open_nursery() as consumers:
                        for number in range(max(1, self.workload.consumers)):
                            consumers.start_soon(self._consume, orders, name=f"consumer-{number}")
                nursery.cancel_scope.cancel()

    async def _publish(self, orders: Any) -> None:
        """What is not stored yet; then look up what there is."""
        number, size = (await orders.describe())[0].next_offset, max(1, self.workload.batch)
        while number < self.workload.messages:
            numbers = range(number, min(number + size, self.workload.messages))
            given: dict[str, Any] = {"keys": [self._key(number) for number in numbers]}
            if self._is_ranked:
                given["priorities"] = [self._priority(number) for number in numbers]
            await orders.publish_batch([b"%d" % number for number in numbers], **given)
            number += size
        async for record in orders.read():
            found = int(record.value), record.append_time.timestamp()
            if record.priority != (self._priority(found[0]) if self._is_ranked else None):
                raise self._broken(f"offset {record.offset} has the priority {record.priority}")
            self._published[record.offset] = found

    def _priority(self, number: int) -> int | None:
        """Mixed, some without."""
        priority = number // max(1, self.workload.alike) * 7 % 11
        return None if priority > HIGHEST else priority

    def _key(self, number: int) -> bytes | None:
        """One of three, or none."""
        alike = self.workload.alike
        return None if alike and number // alike % 2 == 0 else b"%d" % (number % 3)

    async def _is_over(self, orders: Any) -> bool:
        (part,) = await orders.describe()
        return bool(part.groups and not part.groups[0].pending) or not self._published

    async def _consume(self, orders: Any) -> None:
        workload, settings = self.workload, dict[str, Any]()
        if workload.order != "priority":
            settings["ordering"] = "partition" if workload.order == "partition" else "key"
        if self._is_ranked and workload.starvation_after:
            settings["starvation_after"] = workload.starvation_after
        async with orders.subscribe(
            GROUP, max_in_flight=1, visibility_timeout=VISIBILITY_S, **settings
        ) as consumer:
            while True:
                asked = self._now()
                message = await consumer.get(timeout=IDLE_S)
                if message is None:
                    return
                self._check(message, asked)
                await self._settle(message)

    async def _settle(self, message: ReceivedMessage) -> None:
        offset = message.offset
        await self.world.rest(0.05)
        try:
            if offset % max(1, self.workload.fail_every) == 1 and message.attempt < 3:
                self._delayed[offset] = self._now() + DELAY_S
                await message.nack(delay=DELAY_S)
                self._delayed[offset] = self._now() + DELAY_S
                self._seen.add("a failed message")
            else:
                self._settling.add(offset)
                await message.ack()
                self._acked.add(offset)
        except LeaseLost:
            self.world.probe("refused", str(offset))

    def _now(self) -> float:
        return self.world.clock.wall_us() / 1e6

    def _check(self, message: ReceivedMessage, asked: float) -> None:
        offset = message.offset
        self.world.probe("handed", str(offset))
        if wrong := inside(self._machine, 1000):
            raise self._broken(wrong)
        if offset in self._acked:
            raise self._broken(f"offset {offset} comes again, and it was acked")
        if self._published.get(offset, (-1, 0))[0] != int(message.value or b"-1"):
            raise self._broken(f"offset {offset} is {message.value!r}")
        unsettled = [each for each in self._published if each not in self._settling]
        if not self._is_ranked:
            if unsettled and offset > min(unsettled):
                raise self._broken(f"offset {offset} is handed over before {min(unsettled)} is settled")
            return
        heads = dict[bytes | int, int]()
        if self.workload.order == "priority and key":
            for each in sorted(self._published.keys() - self._acked):
                heads.setdefault(self._fenced_by(each), each)
            head = heads[self._fenced_by(offset)]
            if head < offset and head not in self._settling:
                raise self._broken(f"offset {offset} is handed over before {head} of its key is settled")
            unsettled = [
                head for head in heads.values() if head not in self._settling
            ]  # else that is unknown
        now = self._now()
        for each in unsettled:
            if each != offset and self._delayed.get(each, 0.0) < asked - SOON_S:
                places = [
                    (self._place(each, at), self._place(offset, at)) for at in (asked - SOON_S, now + SOON_S)
                ]
                if all(other < own for other, own in places):
                    raise self._broken(f"offset {offset} is handed over, and {each} comes before it")

    def _fenced_by(self, offset: int) -> bytes | int:
        """The key of a record; itself when it has none."""
        key = self._key(self._published[offset][0])
        return offset if key is None else key

    def _place(self, offset: int, now: float) -> tuple[int, int]:
        number, appended = self._published[offset]
        starvation = self.workload.starvation_after
        if starvation and appended + starvation <= now:
            self._seen.add("starved")
            return -1, offset
        priority = self._priority(number)
        return HIGHEST - (USUAL if priority is None else priority), offset

    def end(self) -> None:
        """Everything was handled."""
        if left := self._published.keys() - self._settling:
            raise self._broken(f"offset {min(left)} is settled, and no consumer has acked it")
        expect_no_bugs(self.world)
        self.world.sometimes("a message that failed kept its place", "a failed message" in self._seen)
        self.world.sometimes("a message starved", "starved" in self._seen)
        self.world.sometimes("a partition was handled in order", not self._is_ranked)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
