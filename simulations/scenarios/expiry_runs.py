"""The scenario of messages that expire: with and without times to live, consumed late, while everything fails.

Each message's value says how long it lives. What is handed over has not expired; what is never handed over has; the
instant that is stored is the one that was asked for. In the end nothing is left, although nobody consumes any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, LeaseLost
from callboard.simulations.checkers import no_bugs
from callboard.simulations.checkers.terms import DEFAULT
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
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
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing, restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.received import ReceivedMessage
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what has expired is handed over no more, and nothing else is kept back"
GROUP: Final = "billing"
LIVENESS_S: Final = 600.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 3.0
LAST_S: Final = 1.5
"""How long the last messages live, which nobody consumes."""
TTLS: Final = (None, None, 0.3, 1.0, 2.5, 5.0, 5000.0, math.inf)


@attrs.frozen(kw_only=True)
class ExpiringTraffic:
    """A workload: how many messages, in batches of which size, for whom, and how slowly they are handled."""

    messages: int = 20
    batch: int = 5
    consumers: int = 1
    ordering: str = "none"
    default_ttl: float | None = None
    slow_s: float = 0.2
    slow_every: int = 1
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "consumers": (self.consumers, ACTORS_MAX),
                "batch": (self.batch, COUNT_MAX),
            },
        )


class ExpiringMessages:
    """Times to live while disks, actors, processes and the power fail."""

    name = "expiring-messages"
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
        actors=("topics/orders/0", "timer-wheel"),
        paths=("/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create"),
        probes={"handed": 20, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 8},
        faults=(0, 4),
        horizon_s=8.0,
        down_s=(0.01, 3.0),
        for_s=(0.01, 1.0),
    )

    def workload(self, entropy: SeededEntropy) -> ExpiringTraffic:
        """Few messages or many, of which half expire before anybody can handle them."""
        return ExpiringTraffic(
            messages=one_of(entropy, (3, 8, 20, 60)) + between(entropy, 0, 5),
            batch=one_of(entropy, (1, 5, 30)),
            consumers=one_of(entropy, (0, 1, 1, 2)),
            ordering=one_of(entropy, ("none", "none", "key")),
            default_ttl=one_of(entropy, (None, None, 2.0)),
            slow_s=one_of(entropy, (0.0, 0.2, 0.8)),
            slow_every=one_of(entropy, (1, 5, 9)),
            limits=draw_limits(entropy, BROKER_LIMITS),
        )

    async def main(self, world: World, workload: ExpiringTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of(workload.limits)
        group = _ExpiringGroup(world, workload)
        world.spawn(group.watch)
        await world.machine_until_done(group.life)
        group.end()


class _ExpiringGroup:
    """Publisher and consumers, and what they saw."""

    def __init__(self, world: World, workload: ExpiringTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        draws = world.entropy.fork("ttls")
        self.ttls = [one_of(draws, TTLS) for _ in range(max(0, workload.messages))]
        self._handed: set[int] = set()
        """Offsets that a consumer was handed."""
        self._expired = False
        self._unconsumed = False

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        with trio.move_on_after(20.0):
            await self.world.healed.wait()
        self.world.heal()
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            raise self._broken(f"the group did not end {LIVENESS_S:g} s after the last fault")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        while True:
            try:
                await self._session(machine)
            except (CallboardError, BaseExceptionGroup) as error:
                if not is_passing(error):
                    raise
                await self.world.rest(OPERATOR_S)
            else:
                self.is_done = True
                return

    async def _session(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", default_ttl=self.workload.default_ttl)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                async with orders.subscribe(GROUP, **self._settings()):
                    pass
                await self._publish(orders)
                while await self._pending(orders):
                    async with trio.open_nursery() as consumers:
                        for number in range(max(1, self.workload.consumers)):
                            consumers.start_soon(self._consume, orders, name=f"consumer-{number}")
                await self._look(orders)
                await orders.publish_batch([b"last"] * 3, ttls=[LAST_S, LAST_S / 2, LAST_S])
                while await self._pending(orders):
                    await self.world.rest(1.0)
                self._unconsumed = True
                nursery.cancel_scope.cancel()

    def _settings(self) -> dict[str, Any]:
        return {"ordering": self.workload.ordering, "visibility_timeout": VISIBILITY_S, "backoff": 0.1}

    async def _publish(self, orders: Any) -> None:
        """What is not stored yet; a batch may be stored twice, since nobody knows."""
        number, size = (await orders.describe())[0].next_offset, max(1, self.workload.batch)
        while number < len(self.ttls):
            numbers = range(number, min(number + size, len(self.ttls)))
            await orders.publish_batch(
                [b"%d" % number for number in numbers],
                keys=[b"%d" % (number % 3) for number in numbers],
                ttls=[self.ttls[number] for number in numbers],
            )
            number += size

    async def _pending(self, orders: Any) -> bool:
        (part,) = await orders.describe()
        return bool(not part.groups or part.groups[0].pending)

    async def _consume(self, orders: Any) -> None:
        async with orders.subscribe(GROUP, **self._settings()) as consumer:
            while (message := await consumer.get(timeout=IDLE_S)) is not None:
                self._check(message)
                if message.offset % max(1, self.workload.slow_every) == 0:  # what is quick fetches several
                    await self.world.rest(self.workload.slow_s)
                try:
                    await (message.nack() if message.offset % 7 == message.attempt else message.ack())
                except LeaseLost:
                    self.world.probe("refused", str(message.offset))

    def _check(self, message: ReceivedMessage) -> None:
        self._check_instant(message)
        self._handed.add(message.offset)
        self.world.probe("handed", str(message.offset))
        expires_at, now_us = message.expires_at, self.world.clock.wall_us()
        if expires_at is not None and expires_at.timestamp() * 1e6 <= now_us:
            raise self._broken(f"offset {message.offset} is handed over, and expired at {expires_at}")

    def _ttl(self, value: bytes | None) -> float | None:
        """How long the message with this value lives; None for ever."""
        told = value or b""
        if told == b"last":
            return LAST_S
        if not told.isdigit() or int(told) >= len(self.ttls):
            raise self._broken(f"a message is {value!r}")
        ttl = self.ttls[int(told)]
        if ttl is None:
            ttl = self.workload.default_ttl
        return None if ttl == math.inf else ttl

    def _check_instant(self, record: Any) -> None:
        ttl = self._ttl(record.value)
        if record.ttl != ttl and record.value != b"last":
            raise self._broken(f"offset {record.offset} lives {record.ttl} s, and was to live {ttl}")

    async def _look(self, orders: Any) -> None:
        """What was never handed over has expired."""
        now_us = self.world.clock.wall_us()
        async for record in orders.read():
            self._check_instant(record)
            if record.offset not in self._handed:
                self._expired = True
                expires_at = record.expires_at
                if expires_at is None or expires_at.timestamp() * 1e6 > now_us:
                    raise self._broken(
                        f"offset {record.offset} is settled, unhandled, and lives until {expires_at}"
                    )

    def end(self) -> None:
        """Nothing went wrong inside."""
        broken = no_bugs.check(self.world.history, Surviving(()), DEFAULT)
        if broken:
            raise self.world.broken(broken[0])
        self.world.sometimes("a message expired before it was handed over", self._expired)
        self.world.sometimes(
            "a message that is handed over may expire", any(map(self._may_expire, self._handed))
        )
        self.world.sometimes("messages expired that nobody consumed", self._unconsumed)

    def _may_expire(self, offset: int) -> bool:
        return offset < len(self.ttls) and self.ttls[offset] not in (None, math.inf)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
