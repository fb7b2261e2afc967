"""The scenario of groups of patterns: topics are created and deleted under consumers that come and go, and all fails.

An operator creates topics that match the pattern of the group and topics that do not, publishes to them and deletes
some. One of those that match is where another group has its dead letters. In the end one more topic is created. The
group has to settle what is in each topic that matches, once an ack has returned never again, and to see no message of
any other. When nothing fails any more, messages come one by one: each consumer of a shared group has its turn, or is
served by what it has in flight, or at random.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, LeaseLost, TopicNotFound
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import ACTORS_MAX, COUNT_MAX, between, check_counts, one_of
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing, restart_failed
from callboard.simulations.scenarios.turns import TakesTurns
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "a group of a pattern reads every topic that matches, and no other"
TURNS_PROMISE: Final = "consumers that wait take turns"
GROUP: Final = "billing"
OTHER: Final = "other"
PATTERN: Final = "orders.*"
MATCHING: Final = ("orders.eu", "orders.us", "orders.asia")
OTHERS: Final = ("refunds", "order.eu")
DEAD: Final = "orders.dead"
"""Where the group `other` has its dead letters."""
LAST: Final = "orders.last"
LIVENESS_S: Final = 120.0
STORM_S: Final = 6.0
"""How long topics and consumers come and go."""
LOOK_S: Final = 0.2
TURN_S: Final = 1.31
"""Between two messages that come one by one: all wait again, and none just then begins to."""


@attrs.frozen(kw_only=True)
class PatternTraffic:
    """A workload: what is published and deleted, and how it is consumed."""

    messages: int = 20
    """How often the operator publishes some, or deletes a topic."""
    deleting: float = 0.2
    """The part of the steps that delete a topic."""
    consumers: int = 2
    stays_s: float = 0.5
    handling_s: float = 0.02
    visibility_s: float = 2.0
    mode: str = "shared"
    distribution: str = "round-robin"

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {"messages": (self.messages, COUNT_MAX), "consumers": (self.consumers, ACTORS_MAX)},
        )


class PatternGroups:
    """A group of a pattern, under topics that come and go, and faults of everything it consists of."""

    name = "pattern-groups"
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
        },
        actors=(
            "catalog",
            "catalog",
            "groups/billing",
            "groups/billing",
            "topics/orders.eu/0",
            "timer-wheel",
        ),
        messages=("", "CreateTopic", "DeleteTopic", "EnsureGroup", "OpenGroup", "Join", "Fetch"),
        verbs=("write", "sync"),
        errnos=("EIO",),
        probes={"created": 10, "deleted": 4, "delivered": 20, "event.ActorStarted": 8, "disk.sync": 40},
        faults=(0, 6),
        horizon_s=STORM_S,
        down_s=(0.01, 0.5),
        for_s=(0.01, 2.0),
    )

    def workload(self, entropy: SeededEntropy) -> PatternTraffic:
        """Many topics or few, either mode, each way to choose which consumer is served."""
        return PatternTraffic(
            messages=between(entropy, 3, 40),
            deleting=one_of(entropy, (0.0, 0.2, 0.4)),
            consumers=between(entropy, 1, 4),
            stays_s=one_of(entropy, (0.05, 0.5, 3.0)),
            handling_s=one_of(entropy, (0.0, 0.02, 0.2)),
            visibility_s=one_of(entropy, (0.5, 2.0, 10.0)),
            mode=one_of(entropy, ("shared", "shared", "exclusive")),
            distribution=one_of(entropy, ("round-robin", "least-busy", "random")),
        )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that decide and tell what is read, at any step."""
        return aimed.at_steps(entropy, self.space, ("catalog", "groups/billing"))

    async def main(self, world: World, workload: PatternTraffic) -> None:
        """Run it in as many lives as it takes."""
        run = _PatternRun(world, workload)
        world.spawn(run.watch)
        await world.machine_until_done(run.life)
        expect_no_bugs(world)
        world.sometimes("a topic was deleted under a group of a pattern", bool(run.gone))
        world.sometimes("a group of a pattern found a topic", bool(world.history.of("TopicFound")))


class _PatternRun:
    """The operator and the consumers, and what they were answered."""

    def __init__(self, world: World, workload: PatternTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self.gone: set[str] = set()
        """Topics of which a deletion was asked for: `name#number`."""
        self._number = 0
        self._live: dict[str, str] = {}
        """By name of a topic: `name#number`, of the last that was created."""
        self._published: dict[bytes, str] = {}
        """What a publish has returned for, and in which topic."""
        self._seen: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._served: set[int] = set()
        """Consumers that were given messages one by one."""
        self._staying: set[int] = set()
        """Consumers that have come to stay."""
        self._storm_ends_s = world.now + STORM_S

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            raise self._broken(f"it did not end {LIVENESS_S:g} s after the last fault; {self._missing()}")

    def _missing(self) -> str:
        wanted = [f"{value.decode()} of {topic}" for value, topic in sorted(self._wanted().items())]
        return f"not delivered: {', '.join(wanted)[:200] or 'nothing'}"

    def _wanted(self) -> dict[bytes, str]:
        """What the group has not seen, and is to."""
        return {
            value: topic
            for value, topic in self._published.items()
            if topic not in self.gone and value not in self._seen and self._is_read(topic.partition("#")[0])
        }

    @staticmethod
    def _is_read(name: str) -> bool:
        return name in MATCHING or name == LAST

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        draws = self.world.entropy.fork(f"operator on {machine.number}")
        self._staying.clear()
        async with machine.open_runtime() as runtime:
            await self._prepare(runtime)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                for number in range(max(1, self.workload.consumers)):
                    forked = self.world.entropy.fork(f"consumer {number} on {machine.number}")
                    nursery.start_soon(self._consume, runtime, forked, number, name=f"consumer-{number}")
                while self._is_storm():
                    await self._step(runtime, draws)
                    await trio.sleep(STORM_S / max(1, self.workload.messages))
                await self._publish(runtime, LAST, draws)
                while not await self._is_over(runtime):
                    await self.world.rest(LOOK_S)
                if self.world.healed.is_set() and self.workload.mode == "shared":
                    await self._take_turns(runtime)
                nursery.cancel_scope.cancel()

    async def _take_turns(self, runtime: Any) -> None:
        """One message after the other: by round-robin each consumer is given one in as many turns as there are."""
        topic, count = runtime.topic(LAST), max(1, self.workload.consumers)
        if self.workload.distribution != "round-robin":
            draws = self.world.entropy.fork("turns")
            await TakesTurns(self.world, draws, self.workload.distribution, count).take(topic)
            return
        while len(self._staying) < count:  # a consumer that comes back has another place in the order
            await self.world.rest(LOOK_S)
        await self.world.rest(TURN_S)
        self._served.clear()
        for _ in range(count + 1):
            self._number += 1
            await topic.publish(b"%d" % self._number)
            await self.world.rest(TURN_S)
        if len(self._served) < count:
            words = f"of {count} consumers that wait only {sorted(self._served)} were given messages"
            raise self.world.broken(Violation(TURNS_PROMISE, words))

    async def _prepare(self, runtime: Any) -> None:
        """Have the other group name its topic of dead letters, before there is a group of a pattern."""
        dead = await runtime.create_topic(DEAD)
        refunds = await runtime.create_topic("refunds")
        self._live.setdefault("refunds", "refunds#0")
        async with refunds.subscribe(OTHER, start="end", dead_letter_topic=DEAD):
            pass
        await dead.publish(b"not for the group")

    async def _step(self, runtime: Any, draws: SeededEntropy) -> None:
        """Delete a topic, or publish to one that may have to be created."""
        if draws.random() < self.workload.deleting:
            name = one_of(draws, MATCHING)
            if name in self._live:
                self.gone.add(self._live.pop(name))
                try:
                    await runtime.delete_topic(name)
                    self.world.probe("deleted", name)
                except TopicNotFound:
                    pass  # an earlier call has deleted it, and failed
        else:
            await self._publish(runtime, one_of(draws, MATCHING + OTHERS), draws)

    async def _publish(self, runtime: Any, name: str, draws: SeededEntropy) -> None:
        if name not in self._live:
            await self._delete_what_is_left(runtime, name)
            self._number += 1
            self._live[name] = f"{name}#{self._number}"
        topic = await runtime.create_topic(name)
        self.world.probe("created", name)
        for _ in range(between(draws, 1, 4)):
            self._number += 1
            value, where = b"%d" % self._number, self._live[name]
            await topic.publish(value)
            self._published[value] = where

    async def _delete_what_is_left(self, runtime: Any, name: str) -> None:
        """A deletion that failed may not have been decided."""
        try:
            await runtime.delete_topic(name)
        except TopicNotFound:
            pass

    def _is_storm(self) -> bool:
        return self.world.now < self._storm_ends_s

    async def _is_over(self, runtime: Any) -> bool:
        """Whether the group has seen and settled all it has to."""
        if self._wanted():
            return False
        for topic in runtime.topics():
            if self._is_read(topic.name):
                for part in await topic.describe():
                    if not part.groups or any(group.pending for group in part.groups):
                        return False
        return True

    async def _consume(self, runtime: Any, draws: SeededEntropy, number: int) -> None:
        """Come, handle and go, again and again; in the end stay."""
        while True:
            stays_s = max(0.01, self.workload.stays_s) * (0.2 + draws.random())
            try:
                is_last = not self._is_storm()
                with trio.move_on_after(10_000.0 if is_last else stays_s):
                    await self._stay(runtime, draws, number, is_last=is_last)
            except CallboardError as error:
                self._staying.discard(number)
                if not is_passing(error):
                    raise
                await trio.sleep(OPERATOR_S / 2)
            await trio.sleep(0.3 * draws.random())

    async def _stay(self, runtime: Any, draws: SeededEntropy, number: int, *, is_last: bool) -> None:
        chosen = {"distribution": self.workload.distribution} if self.workload.mode == "shared" else {}
        async with runtime.subscribe(
            pattern=PATTERN,
            group=GROUP,
            mode=self.workload.mode,
            visibility_timeout=max(0.1, self.workload.visibility_s),
            backoff=0.05,
            **chosen,
        ) as consumer:
            if is_last:
                self._staying.add(number)
            while True:
                try:
                    message = await consumer.get(timeout=0.5)
                except TopicNotFound as error:
                    raise self._broken(f"a consumer was notified of a deleted topic: {error}") from error
                if message is not None:
                    self._served.add(number)
                    await self._handle(message, draws)

    async def _handle(self, message: Any, draws: SeededEntropy) -> None:
        value = message.value
        self.world.probe("delivered", f"{message.topic}/{message.partition}@{message.offset}")
        if not self._is_read(message.topic):
            raise self._broken(f"it was given a message of {message.topic}")
        if value in self._settled:
            raise self._broken(f"{value.decode()} of {message.topic} comes again, and its ack had returned")
        self._seen.add(value)
        await trio.sleep(self.workload.handling_s * draws.random())
        try:
            if draws.random() < 0.1:
                await message.nack(delay=0.1 * draws.random())
            else:
                await message.ack()
                self._settled.add(value)
                self.world.probe("acked", f"{message.topic}/{message.partition}@{message.offset}")
        except (LeaseLost, TopicNotFound):
            pass  # it took too long, or its topic is gone

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
