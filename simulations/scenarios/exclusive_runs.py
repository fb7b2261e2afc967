"""The scenario of exclusive groups: members come, go, hang and fail, while partitions, coordinator and disks do too.

Members join and leave in storms, by every way there is; some hold what they have for long, with and without a body of
`receive`. At every step of the run it is looked inside: no two members ever hold leases of a partition, a member that
holds one owns the partition or is just letting go of it, and a partition changes its owner only because a member came
or went. What they do is recorded: while some partitions move, the owners of the others are served in time. In the end
everything is settled, once, and the partitions are shared out evenly.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, LeaseLost
from callboard.simulations.checkers.one_owner import PROMISE, OwnershipWatch
from callboard.simulations.checkers.served_owners import ServedOwners
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.members import ObservedMember, ObservedMembers
from callboard.simulations.scenarios.draws import ACTORS_MAX, COUNT_MAX, between, check_counts, one_of
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing, restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

GROUP: Final = "billing"
PARTITIONS: Final = tuple(f"topics/orders/{index}" for index in range(4))
LIVENESS_S: Final = 120.0
HANGS: Final = "hangs"
"""The way of a member that stays, and asks for nothing; also its name."""
STORM_S: Final = 6.0
"""How long members come and go."""
CLINGS_FROM_S: Final = 1.0
"""From soon after the beginning of the storm on the first member may cling to what it has in a body of `receive`."""
CLINGS_UNTIL_S: Final = 50.0
GRACE_S: Final = 10.0
"""So long after the last fault no hand-over takes longer than `rebalance_timeout`, and than this."""
LOOK_S: Final = 0.2
STEPS_MAX: Final = 16
"""A member has joined, and others know it, within about this many steps."""
ENDINGS: Final = ("leaves", "leaves", "raises", "is cancelled", HANGS)


class MemberFailed(Exception):
    """A member's own failure."""


@attrs.frozen(kw_only=True)
class ExclusiveTraffic:
    """A workload: how many messages, partitions and members, and how long those take."""

    messages: int = 20
    partitions: int = 3
    consumers: int = 3
    stays_s: float = 0.5
    """How long a member stays, at most."""
    handling_s: float = 0.05
    visibility_s: float = 2.0
    rebalance_s: float = 1.0
    session_s: float = 2.0
    """The session timeout, besides the time that handling takes."""
    hanging: int = 0
    """How many of the members hang in the end, at most all but one."""
    ordering: str = "none"
    busy_s: float = 0.0
    """How long the loop is busy at some step of those that follow when a member begins to join; 0: never."""
    latency_s: float = 0.0
    """How long the disk takes for each plan: what members ask is on its way for as long."""
    clings: bool = False
    """The first member lets go of nothing by itself, from soon after the beginning on."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "partitions": (self.partitions, ACTORS_MAX),
                "consumers": (self.consumers, ACTORS_MAX),
            },
        )


class ExclusiveRuns:
    """An exclusive group under join and leave storms, and faults of everything it consists of."""

    name = "exclusive"
    space = FaultSpace(
        weights={
            "CrashActor": 6,
            "CrashInBatch": 3,
            "CrashOnMessage": 3,
            "CrashInRecovery": 1,
            "CrashUntilDown": 1,
            "PauseActor": 2,
            "DelayMailbox": 2,
            "FillMailbox": 1,
            "PowerCut": 2,
            "KillProcess": 2,
            "FailVerb": 2,
            "SlowDisk": 1,
            "JumpClock": 1,
        },
        actors=(*PARTITIONS, "groups/billing", "groups/billing", "catalog", "timer-wheel", "openings"),
        messages=("", "AssignPartition", "AssignPartition", "OpenGroup", "ReleaseConsumer", "Join", "Fetch"),
        verbs=("write", "sync"),
        errnos=("EIO",),
        probes={"joined": 20, "delivered": 40, "event.ActorStarted": 8, "disk.sync": 40},
        faults=(0, 6),
        horizon_s=STORM_S,
        down_s=(0.01, 0.5),
        for_s=(0.01, 2.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the coordinator crashes while a member has still to let go of a partition."""
        return aimed.as_soon_as(entropy, "handing over", 10, "groups/billing")

    def workload(self, entropy: SeededEntropy) -> ExclusiveTraffic:
        """More members than partitions, and fewer; handlers that let go in time, and that do not."""
        clings = one_of(entropy.fork("clings"), (False, True, True))
        busy = entropy.fork("busy")
        is_busy = busy.random() < 0.4
        return ExclusiveTraffic(
            messages=between(entropy, 5, 60),
            partitions=one_of(entropy, (1, 2, 3, 4, 4)),
            consumers=max(3 if clings else 1, between(entropy, 1, 6)),
            stays_s=one_of(entropy, (0.05, 0.5, 2.0)),
            handling_s=one_of(entropy, (0.0, 0.02, 0.2, 1.0)),
            visibility_s=one_of(entropy, (0.5, 2.0, 10.0)),
            rebalance_s=max(0.2 if clings else 0.0, one_of(entropy, (0.0, 0.2, 1.0, 5.0))),
            session_s=one_of(entropy, (0.3, 1.0, 5.0)),
            hanging=one_of(entropy, (0, 0, 1, 2)),
            ordering=one_of(entropy, ("none", "none", "key")),
            clings=clings,
            busy_s=one_of(busy, (0.02, 0.03, 0.05)) if is_busy else 0.0,
            latency_s=one_of(busy, (0.025, 0.03)) if is_busy else 0.0,
        )

    async def main(self, world: World, workload: ExclusiveTraffic) -> None:
        """Run it in as many lives as it takes."""
        group = _ExclusiveGroup(world, workload)
        world.disk.latency_s = max(0.0, workload.latency_s)
        world.inspect = group.look
        world.spawn(group.watch)
        world.spawn(group.tell_hand_overs)
        await world.machine_until_done(group.life)
        expect_no_bugs(world)
        served = ServedOwners(
            world.history, is_keyed=workload.ordering == "key", latency_s=max(0.0, workload.latency_s)
        )
        if served.found:
            raise world.broken(served.found[0])
        world.sometimes("a partition that stayed was served while others moved", served.has_served)
        world.sometimes("a partition was handed over while its old owner had leases", group.owners.has_waited)
        world.sometimes("a hand-over was forced", bool(world.history.of("HandOverForced")))
        world.sometimes("a member was stalled", bool(world.history.of("MemberStalled")))
        world.sometimes("a member owned nothing", group.owners.has_idle)


class _ExclusiveGroup:
    """The members, and what they were answered."""

    def __init__(self, world: World, workload: ExclusiveTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self.owners = OwnershipWatch()
        self.members = ObservedMembers(world, GROUP)
        self._settled: dict[tuple[int, int], None] = {}
        """Partitions and offsets of which an ack has returned."""
        self._clinging = 0
        """How many messages a member that clings to them holds."""
        self._storm_ends_s = world.now + STORM_S

    def look(self, _: str) -> None:
        """At every step: only the owner has leases."""
        machine = self.world.machine
        if machine is not None and machine.runtime is not None and not machine.dead:
            problem = self.owners.look(machine.number, machine.runtime)
            if problem is not None:
                raise self._broken(problem)
        self.members.look()

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        # One member may have to handle all of it, and that only when the first lets go.
        clings_s = CLINGS_UNTIL_S if self.workload.clings else 0.0
        patience_s = LIVENESS_S + clings_s + self.workload.messages * self.workload.handling_s
        ends_s = self.world.now + patience_s
        await self.world.rest(GRACE_S)
        while not self.is_done and self.world.now < ends_s:
            machine = self.world.machine
            if machine is not None and machine.runtime is not None and not machine.dead:
                problem = self.owners.overdue(machine.runtime, GRACE_S)
                if problem is not None:
                    raise self._broken(problem)
            await self.world.rest(GRACE_S / 4)
        if not self.is_done:
            raise self._broken(f"the group did not end {patience_s:g} s after the last fault")

    async def tell_hand_overs(self) -> None:
        """Pass a point while a partition is to be handed over by a member that clings to what it has.

        After the storm, when no member comes or goes that would have the coordinator look again.
        """
        while not self.is_done and self.world.now < CLINGS_UNTIL_S:
            if self._clinging and self.owners.moving and not self._is_storm():
                self.world.probe("handing over")
            await self.world.rest(LOOK_S / 4)

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        traffic = self.workload
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", partitions=max(1, traffic.partitions))
            ends = [part.next_offset for part in await orders.describe()]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                for number in range(max(1, traffic.consumers)):
                    draws = self.world.entropy.fork(f"member {number} on {machine.number}")
                    member = partial(self._member, nursery, machine.number, orders, draws, number)
                    nursery.start_soon(member, name=f"member-{number}")
                for number in range(sum(ends), max(0, traffic.messages)):
                    partition = number % len(ends)
                    key, value = b"%d" % (number % 7), b"%d" % number
                    await self.members.publish(machine.number, orders, value, key=key, partition=partition)
                    await trio.sleep(STORM_S / 2 / max(1, traffic.messages))
                while not await self._is_over(runtime, orders):
                    await self.world.rest(LOOK_S)
                nursery.cancel_scope.cancel()

    async def _is_over(self, runtime: Any, orders: Any) -> bool:
        """Whether everything is settled, and the partitions are shared out among those that stay."""
        parts = await orders.describe()
        if self._is_storm() or any(not part.groups or part.groups[0].pending for part in parts):
            return False
        (group,) = await runtime.groups()
        if any(info.name == HANGS for info in group.consumers):
            return True  # it may keep partitions without messages
        owned = sorted(len(info.assigned) for info in group.consumers)
        return bool(owned and sum(owned) == len(parts) and owned[-1] - owned[0] <= 1)

    def _is_storm(self) -> bool:
        return self.world.now < self._storm_ends_s

    def _clings(self, number: int) -> bool:
        now = self.world.now - self._storm_ends_s + STORM_S
        return self.workload.clings and number == 0 and CLINGS_FROM_S <= now < CLINGS_UNTIL_S

    async def _cling(self, member: ObservedMember) -> None:
        """Hold a message in a body until that is cancelled, or the time is over; then the next one."""
        while (left_s := self._storm_ends_s - STORM_S + CLINGS_UNTIL_S - self.world.now) > 0:
            try:
                async with member.receive(timeout=0.3) as message:
                    if message is None:
                        continue
                    self._delivered(message)
                    self._clinging += 1
                    try:
                        await trio.sleep(left_s)
                    finally:
                        self._clinging -= 1
                self._acked(message)
            except LeaseLost:
                self.world.probe("lost", "member-0")

    async def _member(
        self, nursery: trio.Nursery, machine: int, orders: Any, draws: SeededEntropy, number: int
    ) -> None:
        """Join, work, and go in some way, again and again; in the end stay."""
        while True:
            ending = one_of(draws, ENDINGS)
            if not self._is_storm():
                ending = HANGS if 0 < number <= self.workload.hanging else "stays"
            if self._clings(number):
                ending = "stays"
            stays_s = max(0.01, self.workload.stays_s) * (0.2 + draws.random())
            if self.workload.busy_s > 0.0 and self._is_storm():
                for _ in range(2):
                    nursery.start_soon(self._compute, between(draws, 0, STEPS_MAX), name="busy")
            try:
                with trio.move_on_after(
                    stays_s if self._is_storm() and not self._clings(number) else 10_000.0
                ):
                    await self._stay(machine, orders, draws, number, ending)
            except MemberFailed:
                pass
            except (LeaseLost, CallboardError) as error:
                self.owners.forget()  # a member may have joined, and gone, between two looks
                if not is_passing(error):
                    raise
                await trio.sleep(OPERATOR_S / 2)
            await trio.sleep(0.3 * draws.random())

    async def _stay(self, machine: int, orders: Any, draws: SeededEntropy, number: int, ending: str) -> None:
        until_s = self.world.now + self.workload.stays_s * draws.random()
        async with orders.subscribe(
            GROUP,
            mode="exclusive",
            ordering=self.workload.ordering,
            visibility_timeout=max(0.1, self.workload.visibility_s),
            rebalance_timeout=max(0.0, self.workload.rebalance_s),
            session_timeout=max(0.05, self.workload.session_s) + 2 * self.workload.handling_s,
            name=HANGS if ending == HANGS else None,
            backoff=0.05,
        ) as consumer:
            self.world.probe("joined", f"member-{number}")
            with self.members.member(machine, consumer, f"member-{number}") as member:
                await self._work(member, draws, number, ending, until_s)

    async def _work(
        self, member: ObservedMember, draws: SeededEntropy, number: int, ending: str, until_s: float
    ) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.workload.partitions if self._clings(number) else 0):
                nursery.start_soon(self._cling, member)
        while ending in ("is cancelled", "stays") or self.world.now < until_s:
            try:
                await self._handle_one(member, draws)
            except LeaseLost:
                self.world.probe("lost", f"member-{number}")
        if ending == HANGS:
            await member.get(timeout=0.1)  # it holds this one, too
            await trio.sleep_forever()
        if ending == "raises":
            raise MemberFailed

    async def _compute(self, steps: int) -> None:
        """Some steps of other tasks later, compute without a checkpoint: what is due meanwhile is due at once."""
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        self.world.scheduler.pass_time(self.workload.busy_s)

    async def _handle_one(self, member: ObservedMember, draws: SeededEntropy) -> None:
        way, handling_s = draws.random(), self.workload.handling_s * draws.random()
        if way < 0.3:
            async with member.receive(timeout=0.3) as message:
                if message is not None:
                    self._delivered(message)
                    await trio.sleep(4 * handling_s)
            if message is not None:
                self._acked(message)
            return
        message = await member.get(timeout=0.3)
        if message is None:
            return
        self._delivered(message)
        await trio.sleep(handling_s)
        if way < 0.4:
            await member.nack(message, 0.1 * draws.random())
        elif way < 0.5:
            await member.release(message)
        else:
            await member.ack(message)
            self._acked(message)

    def _delivered(self, message: Any) -> None:
        self.world.probe("delivered", f"{message.partition}@{message.offset}")
        if (message.partition, message.offset) in self._settled:
            words = f"{message.partition}@{message.offset} comes again, and its ack had returned"
            raise self._broken(words)

    def _acked(self, message: Any) -> None:
        self._settled[message.partition, message.offset] = None
        self.world.probe("acked", f"{message.partition}@{message.offset}")

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
