"""The scenario of messages that expire: with and without times to live, consumed late, while everything fails.

Each message's value says how long it lives. What is handed over has not expired; what is never handed over has; the
instant that is stored is the one that was asked for. In the end nothing is left, although nothing consumes any more.
In a group that keeps what expires, exactly what was settled so is a dead letter: once, for ever.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import LeaseLost
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    BROKER_LIMITS,
    COUNT_MAX,
    WINDOW_LIMITS,
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
    from callboard.consumer.messages import ReceivedMessage
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what has expired is handed over no more, and nothing else is kept back"
GROUP: Final = "billing"
LIVENESS_S: Final = 600.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 3.0
UNUSED_S: Final = 3.0
LAST_S: Final = 1.5
"""How long the last messages live, which are not consumed."""
TTLS: Final = (None, None, 0.3, 1.0, 2.5, 5.0, 5000.0, math.inf)


@attrs.frozen(kw_only=True)
class ExpiringTraffic:
    """A workload: how many messages, in batches of which size, for which group, and how slowly they are handled."""

    messages: int = 20
    batch: int = 5
    consumers: int = 1
    ordering: str = "none"
    default_ttl: float | None = None
    slow_s: float = 0.2
    slow_every: int = 1
    keeps: bool = False
    dead_letters: int = 100
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

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        return aimed.at_steps(entropy, self.space, ("groups/billing", "timer-wheel"))

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
            keeps=one_of(entropy.fork("keeps"), (False, True)),
            dead_letters=one_of(entropy.fork("room"), (1, 3, 100)),
            limits=draw_limits(entropy, BROKER_LIMITS) + draw_limits(entropy.fork("window"), WINDOW_LIMITS),
        )

    async def main(self, world: World, workload: ExpiringTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of((*workload.limits, ("dead_letters", max(1, workload.dead_letters))))
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
        self._settled: set[int] = set()
        """Offsets whose ack was answered."""
        self._dead: dict[int, int] = {}
        """By offset of a dead letter, its number, as it was listed."""
        self._forgotten = self._forgetting = -1
        """The last dead letter whose forgetting was answered, and the last that may have been forgotten."""
        self._expired = False
        self._looking = trio.Lock()
        self._late = True
        """Whether a life begins without a consumer for some time."""
        self._unconsumed = False

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
        self._looking = trio.Lock()  # a machine that stops leaves the old one locked
        self._late = not self._late
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", default_ttl=self.workload.default_ttl)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                if self._late:
                    await self.world.rest(UNUSED_S)
                async with orders.subscribe(GROUP, **self._settings()):
                    pass
                await self._publish(orders)
                while await self._pending(orders):
                    await self._forget_first(orders)
                    async with trio.open_nursery() as consumers:
                        for number in range(max(1, self.workload.consumers)):
                            consumers.start_soon(self._consume, orders, name=f"consumer-{number}")
                await self._look(orders)
                await orders.publish_batch([b"last"] * 3, ttls=[LAST_S, LAST_S / 2, LAST_S])
                while await self._pending(orders):
                    await self.world.rest(1.0)
                    await self._forget_first(orders)
                self._unconsumed = True
                await self._look_at_dead(orders, is_over=True)
                nursery.cancel_scope.cancel()

    def _settings(self) -> dict[str, Any]:
        settings = {"ordering": self.workload.ordering, "visibility_timeout": VISIBILITY_S, "backoff": 0.1}
        return settings | {"dead_letter_expired": self.workload.keeps}

    async def _publish(self, orders: Any) -> None:
        """What is not stored yet; a batch may be stored twice, since that is unknown."""
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
                    if message.offset % 7 == message.attempt:
                        await message.nack()
                    else:
                        await message.ack()
                        self._settled.add(message.offset)
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

    async def _forget_first(self, orders: Any) -> None:
        """Make room for dead letters."""
        letters = await self._look_at_dead(orders)
        if letters:
            self._forgetting = max(self._forgetting, letters[0].number)
            await orders.dead_letters(GROUP).forget(letters[0])
            self._forgotten = self._forgetting

    async def _look_at_dead(self, orders: Any, *, is_over: bool = False) -> Any:
        """Dead letters are what has expired unhandled, and what was listed of them is so; in the end, all of that."""
        async with self._looking:
            letters = await orders.dead_letters(GROUP).list()
        now_us = self.world.clock.wall_us()
        for letter in letters:
            offset, number, record = letter.offset, letter.number, letter.record
            if not self.workload.keeps or letter.reason != "expired":
                raise self._broken(f"offset {offset} is dead because of {letter.reason!r}")
            if record is None or record.expires_at is None or record.expires_at.timestamp() * 1e6 > now_us:
                raise self._broken(f"offset {offset} is dead, and has not expired")
            if offset in self._settled:
                raise self._broken(f"offset {offset} was acked, and is dead")
            if self._dead.setdefault(offset, number) != number or number <= self._forgotten:
                raise self._broken(f"offset {offset} is dead as {number}, and was as {self._dead[offset]}")
            if letter.first_failed_at is None or letter.first_failed_at > letter.failed_at:
                raise self._broken(f"offset {offset} failed first at {letter.first_failed_at}")
        if len(set(self._dead.values())) < len(self._dead):
            raise self._broken("two dead letters have one number")
        there = {letter.offset for letter in letters}
        for offset, number in self._dead.items():
            if offset not in there and number > self._forgetting:
                raise self._broken(f"the dead letter of offset {offset}, number {number}, is lost")
        if is_over and self.workload.keeps:
            async for record in orders.read():
                if record.offset not in self._dead and record.offset not in self._handed:
                    raise self._broken(f"offset {record.offset} is settled, unhandled, and no dead letter")
        return letters

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        self.world.sometimes("a message expired before it was handed over", self._expired)
        self.world.sometimes(
            "a message that is handed over may expire", any(map(self._may_expire, self._handed))
        )
        self.world.sometimes("messages expired that were never consumed", self._unconsumed)
        self.world.sometimes("what expired was kept as a dead letter", bool(self._dead))

    def _may_expire(self, offset: int) -> bool:
        return offset < len(self.ttls) and self.ttls[offset] not in (None, math.inf)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
