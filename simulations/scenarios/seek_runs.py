"""The scenario of groups that are sought elsewhere while their consumers work, and everything fails.

A driver seeks the group to offsets, ends and times, and knows where it stands when that has returned. From then on
nothing that lies before is handed over, and in the end all that lies behind has been acked since.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import GroupNotFound, LeaseLost
from callboard.message import from_us
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
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "a group goes on from where it was sought: nothing before that, and all that follows"
GROUP: Final = "billing"
LIVENESS_S: Final = 600.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 1.0
TARGETS: Final = ("offset", "offset", "beginning", "end", "time", "reset")


@attrs.frozen(kw_only=True)
class SoughtTraffic:
    """A workload: how many messages, for how many consumers, and how often the group is sought elsewhere."""

    messages: int = 20
    consumers: int = 1
    seeks: int = 4
    ordering: str = "none"
    hold_s: float = 0.05
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {"messages": (self.messages, COUNT_MAX), "consumers": (self.consumers, ACTORS_MAX)},
        )


class SoughtGroups:
    """Seeks while disks, actors, processes and the power fail."""

    name = "sought-groups"
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
        actors=("topics/orders/0", "topics/orders/0", "catalog", "groups/billing"),
        paths=("/delivery/", "/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create", "rename"),
        probes={"sought": 5, "handed": 30, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 8},
        faults=(0, 5),
        horizon_s=8.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records; in others the power fails behind a seek."""
        crashes = aimed.at_steps(entropy, self.space, ("groups/billing", "timer-wheel"))
        return [*crashes, *aimed.between_syncs(entropy, "sought", 5)] if entropy.random() < 0.5 else crashes

    def workload(self, entropy: SeededEntropy) -> SoughtTraffic:
        """Few messages, delivered again and again."""
        return SoughtTraffic(
            messages=between(entropy, 3, 40),
            consumers=one_of(entropy, (1, 1, 2)),
            seeks=between(entropy, 1, 8),
            ordering=one_of(entropy, ("none", "none", "key", "partition")),
            hold_s=one_of(entropy, (0.0, 0.05, 0.4)),
            limits=draw_limits(entropy, BROKER_LIMITS) + draw_limits(entropy.fork("window"), WINDOW_LIMITS),
        )

    async def main(self, world: World, workload: SoughtTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of(workload.limits)
        sought = _Sought(world, workload)
        world.spawn(sought.watch)
        await world.machine_until_done(sought.life)
        sought.end()


class _Sought:
    """Publisher, consumers and driver, and what they were told."""

    def __init__(self, world: World, workload: SoughtTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._draws = world.entropy.fork("seeks")
        self._left = max(0, workload.seeks)
        self._target: str | int | None = None
        """Where to, while it is not known to have been done."""
        self._position: int | None = 0
        """All before this is settled, and all from here on unsettled, but for what was acked; None for unknown."""
        self._acked: set[int] = set()
        """What was acked since the last seek was begun."""
        self._tried: set[int] = set()
        """What else may have been: it was tried, and not refused."""
        self._lost = False

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
            orders = await runtime.create_topic("orders")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                await self._publish(orders)
                for number in range(max(1, self.workload.consumers)):
                    nursery.start_soon(self._consume, orders, name=f"consumer-{number}")
                while self._left > 0 or self._target is not None:
                    await self._seek(runtime, orders)
                while await self._pending(orders):
                    await self.world.rest(0.2)
                self._look()
                nursery.cancel_scope.cancel()

    async def _publish(self, orders: Any) -> None:
        (part,) = await orders.describe()
        for number in range(part.next_offset, max(1, self.workload.messages)):
            await orders.publish(b"%d" % number, key=b"%d" % (number % 3))

    async def _seek(self, runtime: Any, orders: Any) -> None:
        """Somewhere else; again to the same place when it is not known whether that was done."""
        await self.world.rest(one_of(self._draws, (0.0, 0.1, 0.5, 1.0)))
        if self._target is None:
            self._left -= 1
            self._target = one_of(self._draws, TARGETS)
            if self._target == "offset":
                self._target = between(self._draws, 0, max(1, self.workload.messages))
        self._position = None
        self._acked.clear()
        self._tried.clear()
        try:
            if self._target == "reset":
                found = await runtime.group(GROUP).reset()
            else:
                to = from_us(self.world.clock.wall_us()) if self._target == "time" else self._target
                found = await runtime.group(GROUP).seek(to)
        except GroupNotFound:
            return  # no consumer has made it yet
        (offset,) = found.values()
        if self._target in ("beginning", "reset") and offset != 0:
            raise self._broken(f"the beginning is offset {offset}")
        if isinstance(self._target, int) and offset != self._target:
            raise self._broken(f"the group was to be sought to {self._target}, and was to {offset}")
        self.world.probe("sought", str(offset))
        self._position, self._target = offset, None

    async def _pending(self, orders: Any) -> bool:
        (part,) = await orders.describe()
        return part.is_recovery_owed or not part.groups or bool(part.groups[0].pending)

    async def _consume(self, orders: Any) -> None:
        async with orders.subscribe(
            GROUP, ordering=self.workload.ordering, visibility_timeout=VISIBILITY_S, backoff=0.1
        ) as consumer:
            while True:
                message = await consumer.get(timeout=IDLE_S)
                if message is None:
                    continue
                self.world.probe("handed", str(message.offset))
                if self._position is not None and message.offset < self._position:
                    raise self._broken(
                        f"offset {message.offset} is handed over, and the group is at {self._position}"
                    )
                await self.world.rest(self.workload.hold_s)
                self._tried.add(message.offset)
                try:
                    await message.ack()
                except LeaseLost:
                    self._lost = True
                    self._tried.discard(message.offset)
                else:
                    self._acked.add(message.offset)

    def _look(self) -> None:
        """All that lies behind the last place has been acked since."""
        if self._position is None:
            raise self._broken("the driver does not know where the group is")
        for offset in range(self._position, max(1, self.workload.messages)):
            if offset not in self._acked | self._tried:
                raise self._broken(f"offset {offset} is settled, and nobody has acked it since the last seek")

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        crashed = any(entry.who == "topics/orders/0" for entry in self.world.history.of("ActorRestarted"))
        self.world.sometimes("a receipt from before a seek was refused", self._lost)
        self.world.sometimes("a partition crashed and came back while a group was sought", crashed)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
