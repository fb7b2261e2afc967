"""The scenario of consumers that are drained, one after the other, while everything fails.

A drained consumer takes nothing more, what it has in hand it finishes and acks, and the others take over. So nothing
that was acked comes again, no body is disturbed by a drain, and each drain comes to its end. Some are cancelled in the
moment in which their body has ended: their acks are handed over, and while nothing fails none of these comes again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import ConsumerDrained, LeaseLost
from callboard.log.limits import PARTITION_MAILBOX_CAPACITY
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

PROMISE: Final = "a drained consumer finishes what it has, and takes nothing more"
GROUP: Final = "billing"
LIVENESS_S: Final = 600.0
VISIBILITY_S: Final = 2.0
CANCELLED: Final = 0.3
ALL_S: Final = 30.0
PROMPT_S: Final = 1.0
"""While nothing fails a drain is over so long after the body that was in hand."""


@attrs.frozen(kw_only=True)
class DrainedTraffic:
    """A workload: how many messages, for how many consumers at a time, and how long each takes."""

    messages: int = 20
    partitions: int = 1
    consumers: int = 2
    hold_s: float = 0.2
    pause_s: float = 0.3
    waits: bool = True
    cancels: bool = False
    mailbox: int = PARTITION_MAILBOX_CAPACITY
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {"messages": (self.messages, COUNT_MAX), "consumers": (self.consumers, ACTORS_MAX)},
        )


class DrainedConsumers:
    """Drains while disks, actors, processes and the power fail."""

    name = "drained-consumers"
    space = FaultSpace(
        weights={
            "PowerCut": 3,
            "KillProcess": 3,
            "CrashActor": 6,
            "CrashInBatch": 2,
            "FailVerb": 3,
            "FullDisk": 1,
        },
        actors=("topics/orders/0", "groups/billing", "catalog"),
        paths=("/delivery/", "/0/0000", ""),
        verbs=("write", "sync", "sync"),
        probes={"handed": 20, "drained": 5, "disk.sync": 60, "event.ActorStarted": 8},
        faults=(0, 4),
        horizon_s=6.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        return aimed.at_steps(entropy, self.space, ("groups/billing", "timer-wheel"))

    def workload(self, entropy: SeededEntropy) -> DrainedTraffic:
        """Few messages, and consumers that are drained all the time."""
        return DrainedTraffic(
            messages=between(entropy, 3, 40),
            partitions=one_of(entropy, (1, 1, 2)),
            consumers=between(entropy, 1, 3),
            hold_s=one_of(entropy, (0.0, 0.05, 0.5, 3.0)),
            pause_s=one_of(entropy, (0.01, 0.3, 1.0)),
            waits=one_of(entropy, (True, True, False)),
            cancels=one_of(entropy.fork("cancels"), (False, True)),
            mailbox=one_of(entropy.fork("mailbox"), (1, 1, PARTITION_MAILBOX_CAPACITY)),
            limits=draw_limits(entropy, BROKER_LIMITS),
        )

    async def main(self, world: World, workload: DrainedTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of((*workload.limits, ("partition_mailbox", max(1, workload.mailbox))))
        drained = _Drained(world, workload)
        world.spawn(drained.watch)
        await world.machine_until_done(drained.life)
        drained.end()


@attrs.define(eq=False)
class _Worker:
    """A consumer and what it does."""

    consumer: Any
    drained_at: float | None = None
    busy_until: float = 0.0
    is_gone: bool = False
    place: tuple[int, int] = (-1, -1)
    """Partition and offset of what it has in hand."""


class _Drained:
    """Publisher, consumers and the task that drains them."""

    def __init__(self, world: World, workload: DrainedTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._draws = world.entropy.fork("drains")
        self._acked: set[tuple[int, int]] = set()
        self._workers: list[_Worker] = []
        self._busy = False
        self._handed_over: set[tuple[int, int]] = set()
        """Those whose bodies had ended when they were cancelled."""

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            raise self._broken(f"the messages were not all handled {LIVENESS_S:g} s after the last fault")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        self._workers.clear()
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", partitions=max(1, self.workload.partitions))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                stored = sum([part.next_offset for part in await orders.describe()])
                for number in range(stored, max(1, self.workload.messages)):
                    await orders.publish(b"%d" % number)
                for number in range(max(1, self.workload.consumers)):
                    nursery.start_soon(self._work, orders, name=f"consumer-{number}")
                while await self._pending(orders):
                    await self.world.rest(max(0.01, self.workload.pause_s))
                    self._drain_one()
                await self._drain_all()
                nursery.cancel_scope.cancel()

    async def _pending(self, orders: Any) -> bool:
        parts = await orders.describe()
        return any(
            part.is_recovery_owed or not part.groups or part.groups[0].pending for part in parts
        ) or sum(part.visible_end for part in parts) < max(1, self.workload.messages)

    def _drain_one(self) -> None:
        workers = [worker for worker in self._workers if worker.drained_at is None and not worker.is_gone]
        now = trio.current_time()
        for worker in self._workers:
            since = None if worker.drained_at is None else max(worker.drained_at, worker.busy_until)
            if since is not None and not worker.is_gone and not self.world.hits and now > since + PROMPT_S:
                raise self._broken(f"a consumer was drained {now - since:g} s ago, and has not ended")
        if workers:
            worker = workers[int(self._draws.random() * len(workers))]
            worker.drained_at = now
            self._busy |= worker.busy_until > now
            worker.consumer.drain()
            self.world.probe("drained", str(len(self._workers)))

    async def _drain_all(self) -> None:
        """There is nothing left: a consumer that waits ends when it is drained, whatever has failed before."""
        workers = [worker for worker in self._workers if not worker.is_gone]
        for worker in workers:
            worker.consumer.drain()
        hits = self.world.hits.total()
        await self.world.rest(ALL_S)
        if hits == self.world.hits.total() and not all(worker.is_gone for worker in workers):
            raise self._broken(
                f"a consumer was drained {ALL_S:g} s ago, when nothing was left, and has not ended"
            )

    async def _work(self, orders: Any) -> None:
        """One consumer after the other: each works until it is drained."""
        while True:
            async with orders.subscribe(GROUP, visibility_timeout=VISIBILITY_S, backoff=0.1) as consumer:
                worker = _Worker(consumer)
                self._workers.append(worker)
                try:
                    while True:
                        await self._handle(worker)
                except ConsumerDrained:
                    worker.is_gone = True

    async def _handle(self, worker: _Worker) -> None:
        scope, place = trio.CancelScope(), (-1, -1)
        try:
            with scope:
                place = await self._receive(worker, scope)
        except LeaseLost as error:
            if not self.world.hits:
                raise self._broken(f"a body has lost its lease, and nothing has failed: {error}") from error
        else:
            if scope.cancelled_caught:
                self._handed_over.add(worker.place)
            elif self.workload.waits:
                self._acked.add(place)

    async def _receive(self, worker: _Worker, scope: trio.CancelScope) -> tuple[int, int]:
        async with worker.consumer.receive(wait=self.workload.waits) as message:
            place = worker.place = message.partition, message.offset
            self.world.probe("handed", str(message.offset))
            if worker.drained_at is not None:
                raise self._broken(f"{place} is handed to a consumer that was drained")
            if place in self._acked:
                raise self._broken(f"{place} comes again, and was acked")
            if place in self._handed_over and not self.world.hits:
                raise self._broken(f"{place} comes again, and its ack was handed over")
            worker.busy_until = trio.current_time() + self.workload.hold_s
            await self.world.rest(self.workload.hold_s)
            if self.workload.cancels and self._draws.random() < CANCELLED:
                scope.cancel()
        return place

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        self.world.sometimes("a body had ended when its consumer was cancelled", bool(self._handed_over))
        self.world.sometimes("a consumer was drained while it had a message in hand", self._busy)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
