"""The scenario of a group that is paused and resumed, and of a topic that is read-only at times, while all fails.

A driver pauses the group, resumes it, and alters the topic, and knows what holds when that has returned. While the
group is paused nothing is handed over, in no way; what is published while the topic is read-only is refused, and is not
there later. In the end all that was published has been acked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import GroupNotFound, LeaseLost, TopicReadOnly
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
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

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = (
    "nothing is handed over of a paused group, nothing stored in a read-only topic, and nothing lost"
)
GROUP: Final = "billing"
PARTITIONS: Final = 2
LIVENESS_S: Final = 600.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 1.0
RESTS_S: Final = (0.0, 0.1, 0.5, 3.0)
"""How long the driver leaves something as it is; longer than a lease, too."""


@attrs.frozen(kw_only=True)
class PausedTraffic:
    """A workload: how many messages, for how many consumers, and how often something is switched."""

    messages: int = 20
    consumers: int = 1
    switches: int = 4
    way: str = "get"
    """How consumers take messages: one by one, with a body around each, in batches, or by a handler."""
    mode: str = "shared"
    ordering: str = "none"
    hold_s: float = 0.05
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {"messages": (self.messages, COUNT_MAX), "consumers": (self.consumers, ACTORS_MAX)},
        )


class PausedGroups:
    """Pauses while disks, actors, processes and the power fail."""

    name = "paused-groups"
    space = FaultSpace(
        weights={
            "PowerCut": 4,
            "KillProcess": 3,
            "CrashActor": 6,
            "CrashInBatch": 3,
            "CrashInRecovery": 1,
            "FailVerb": 4,
            "FullDisk": 1,
        },
        actors=("topics/orders/0", "topics/orders/1", "catalog", "groups/billing"),
        paths=("catalog", "/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create", "rename"),
        probes={"switched": 5, "handed": 30, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 8},
        faults=(0, 5),
        horizon_s=8.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that pass a switch on; in others the power fails behind it."""
        crashes = aimed.at_steps(entropy, self.space, ("groups/billing", "catalog"))
        return [*crashes, *aimed.between_syncs(entropy, "switched", 5)] if entropy.random() < 0.5 else crashes

    def workload(self, entropy: SeededEntropy) -> PausedTraffic:
        """Few messages, held up again and again."""
        return PausedTraffic(
            messages=between(entropy, 3, 40),
            consumers=one_of(entropy, (1, 1, 2)),
            switches=between(entropy, 1, 8),
            way=one_of(entropy, ("get", "receive", "batches", "work")),
            mode=one_of(entropy, ("shared", "shared", "exclusive")),
            ordering=one_of(entropy, ("none", "none", "key", "partition")),
            hold_s=one_of(entropy, (0.0, 0.05, 0.4)),
            limits=draw_limits(entropy, BROKER_LIMITS),
        )

    async def main(self, world: World, workload: PausedTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of(workload.limits)
        paused = _Paused(world, workload)
        world.spawn(paused.watch)
        await world.machine_until_done(paused.life)
        paused.end()


class _Paused:
    """Publisher, consumers and driver, and what they were told."""

    def __init__(self, world: World, workload: PausedTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._draws = world.entropy.fork("switches")
        self._left = max(0, workload.switches)
        self._is_paused: bool | None = False
        """Whether the group is; None while it is switched."""
        self._is_read_only: bool | None = False
        """Whether the topic is; None while it is switched."""
        self._published: set[bytes] = set()
        self._refused: set[bytes] = set()
        """What is not in the topic for certain."""
        self._acked: set[bytes] = set()
        """Acked, or perhaps."""
        self._next = 0
        self._switched = 0
        """How often the topic was, or was begun to be."""
        self._had_fetched = False

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
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", partitions=PARTITIONS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                for number in range(max(1, self.workload.consumers)):
                    nursery.start_soon(self._consume, orders, name=f"consumer-{number}")
                async with trio.open_nursery() as working:
                    working.start_soon(self._publish, orders, name="publisher")
                    working.start_soon(self._switch_all, runtime, name="driver")
                while await self._pending(orders):
                    await self.world.rest(0.2)
                self._look([record.value async for record in orders.read()])
                nursery.cancel_scope.cancel()

    async def _switch_all(self, runtime: Any) -> None:
        while self._left > 0:
            await self.world.rest(one_of(self._draws, RESTS_S))
            self._left -= 1
            if one_of(self._draws, (True, True, False)):
                await self._switch_group(runtime, is_paused=not self._is_paused)
            else:
                await self._switch_topic(runtime, is_read_only=not self._is_read_only)
        await self.world.rest(one_of(self._draws, RESTS_S))
        await self._switch_group(runtime, is_paused=False)
        await self._switch_topic(runtime, is_read_only=False)

    async def _switch_group(self, runtime: Any, *, is_paused: bool) -> None:
        self._is_paused = None
        group, leased = runtime.group(GROUP), await self._leased(runtime) if is_paused else 0
        await self._until_known(group.pause if is_paused else group.resume, "group")
        self._is_paused = is_paused
        self._had_fetched |= leased > await self._leased(runtime) > 0

    async def _leased(self, runtime: Any) -> int:
        parts = await runtime.topic("orders").describe()
        return sum(group.leased for part in parts for group in part.groups)

    async def _switch_topic(self, runtime: Any, *, is_read_only: bool) -> None:
        self._is_read_only = None
        self._switched += 1
        await self._until_known(partial(runtime.alter_topic, "orders", read_only=is_read_only), "topic")
        self._is_read_only = is_read_only

    async def _until_known(self, switch: Callable[[], Awaitable[object]], what: str) -> None:
        while True:
            try:
                await switch()
            except GroupNotFound:
                await self.world.rest(0.1)  # no consumer has made it yet
            else:
                self.world.probe("switched", what)
                return

    async def _publish(self, orders: Any) -> None:
        while self._next < max(1, self.workload.messages):
            number, self._next = self._next, self._next + 1
            value, switched = b"%d" % number, self._switched
            try:
                await orders.publish(value, key=b"%d" % (number % 3))
            except TopicReadOnly:
                self._refused.add(value)
            else:
                self._published.add(value)
            is_refused = value in self._refused
            if self._switched == switched and self._is_read_only not in (None, is_refused):
                what = "refused, and the topic is not" if is_refused else "stored, and the topic is"
                raise self._broken(f"{value!r} was {what} read-only")
            await self.world.rest(0.1)

    async def _pending(self, orders: Any) -> bool:
        parts = await orders.describe()
        return any(part.is_recovery_owed or not part.groups or part.groups[0].pending for part in parts)

    # -- consuming

    async def _consume(self, orders: Any) -> None:
        workload = self.workload
        settings = {
            "mode": workload.mode,
            "ordering": workload.ordering,
            "visibility_timeout": VISIBILITY_S,
            "backoff": 0.1,
        }
        if workload.way == "work":
            await orders.work(self._handle, GROUP, concurrency=2, **settings)
        async with orders.subscribe(GROUP, **settings) as consumer:
            while True:
                try:
                    await self._take(consumer)
                except LeaseLost:
                    continue

    async def _take(self, consumer: Any) -> None:
        if self.workload.way == "receive":
            async with consumer.receive(timeout=IDLE_S) as message:
                if message is not None:
                    await self._handle(message)
        elif self.workload.way == "batches":
            batch = await consumer.get_batch(max_records=5, max_wait=0.1, timeout=IDLE_S)
            if batch is not None:
                self._handed(batch.values())
                await self.world.rest(self.workload.hold_s)
                self._acked.update(batch.values())
                await batch.ack()
        elif (message := await consumer.get(timeout=IDLE_S)) is not None:
            await self._handle(message)
            await message.ack()

    async def _handle(self, message: Any) -> None:
        self._handed([message.value])
        await self.world.rest(self.workload.hold_s)
        self._acked.add(message.value)

    def _handed(self, values: list[bytes]) -> None:
        self.world.probe("handed", values[0].decode())
        if self._is_paused:
            raise self._broken(f"{values!r:.100} are handed over, and the group is paused")

    # -- the end

    def _look(self, stored: list[bytes]) -> None:
        lost = self._published - set(stored)
        if lost:
            raise self._broken(f"{sorted(lost)!r:.100} were published and are not there")
        if wrong := self._refused & set(stored):
            raise self._broken(f"{sorted(wrong)!r:.100} were refused and are there")
        if unhandled := self._published - self._acked:
            raise self._broken(f"{sorted(unhandled)!r:.100} are settled, and no consumer has acked them")

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        crashed = any(entry.who.startswith("topics/") for entry in self.world.history.of("ActorRestarted"))
        self.world.sometimes("a publish was refused by a read-only topic", bool(self._refused))
        self.world.sometimes("a partition crashed and came back while a group was paused at times", crashed)
        self.world.sometimes("a consumer had fetched ahead when its group was paused", self._had_fetched)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
