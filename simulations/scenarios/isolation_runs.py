"""The scenario in which the disk of one topic hangs, is slow or fails, and others go on as if nothing was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, ConfigurationError
from callboard.simulations.checkers import Terms, enforce
from callboard.simulations.checkers.isolation import FAILING
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios.broker_workload import TopicsTogether
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    COUNT_MAX,
    NAMES_MAX,
    between,
    check_counts,
    one_of,
    uniform,
)
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

Trouble = tuple[str, float, float]
"""What happens to the files of the failing topic, when, and for how long."""
KINDS: Final = ("hang", "hang", "slow", "write", "sync", "read", "create")
SLOW_S: Final = 0.7
TOGETHER: Final = "together"
"""Of the group whose consumer reads all topics."""
OPERATIONS: Final = ("alter topic", "alter group", "delete group", "subscribe", "delete topic", "publish")
"""What is done with the failing topic meanwhile."""
LIVENESS_S: Final = 60.0


@attrs.frozen(kw_only=True)
class Neighbours:
    """A workload: topics beside one that fails, and what is done with it."""

    messages: int = 20
    """Of each publisher; there is one per topic."""
    topics: int = 2
    """Those at which nothing fails."""
    partitions: int = 2
    """Of the one that fails."""
    pause_s: float = 0.1
    troubles: tuple[Trouble, ...] = ()
    operations: tuple[str, ...] = ()
    """With the failing topic, one after the other."""
    changes: int = 3
    """How often another topic, and a group, are made, altered, used and deleted."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "topics": (self.topics, ACTORS_MAX),
                "partitions": (self.partitions, ACTORS_MAX),
                "troubles": (len(self.troubles), NAMES_MAX),
                "operations": (len(self.operations), NAMES_MAX),
                "changes": (self.changes, COUNT_MAX),
            },
        )


class OneTopicFails:
    """One topic's disk hangs, is slow or fails, its partitions crash, and all that concerns others goes on."""

    name = "one-topic-fails"
    space = FaultSpace(
        weights={"CrashActor": 3, "CrashInBatch": 1, "PauseActor": 2, "KillProcess": 1, "PowerCut": 1},
        actors=(f"topics/{FAILING}/0", f"topics/{FAILING}/1"),
        probes={"call": 60, "event.ActorStarted": 10},
        limits={"KillProcess": 1, "PowerCut": 1},
        faults=(0, 3),
        horizon_s=3.0,
        for_s=(0.1, 3.0),
        down_s=(0.01, 0.1),
    )

    def workload(self, entropy: SeededEntropy) -> Neighbours:
        """Few topics, and one to three troubles that overlap with what is done."""
        return Neighbours(
            messages=between(entropy, 5, 30),
            topics=between(entropy, 1, 3),
            partitions=between(entropy, 1, 3),
            pause_s=one_of(entropy, (0.02, 0.1, 0.2)),
            troubles=tuple(
                (one_of(entropy, KINDS), uniform(entropy, 0.0, 2.0), uniform(entropy, 0.5, 8.0))
                for _ in range(between(entropy, 1, 3))
            ),
            operations=tuple(one_of(entropy, OPERATIONS) for _ in range(between(entropy, 0, 6))),
            changes=between(entropy, 0, 5),
        )

    async def main(self, world: World, workload: Neighbours) -> None:
        """Run it in as many lives as it takes; then hold the others to their times."""
        clients = _Clients(world, workload)
        world.spawn(clients.watch)
        await world.machine_until_done(clients.live)
        clients.is_done = True
        enforce(world.history, Surviving(()), Terms())


class _Clients:
    """All that use the topics of one run."""

    def __init__(self, world: World, workload: Neighbours) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._names = [f"topic-{number}" for number in range(max(1, workload.topics))]
        self._left = dict.fromkeys([*self._names, FAILING], max(0, workload.messages))
        self._changes_left = workload.changes
        self._operations = list(reversed(workload.operations))
        self._begun_s = world.now
        self._has_joined = False
        """The consumer of all topics has. It is refused while the one that fails is being deleted."""
        self._unasked: list[tuple[str, str, int]] = []
        """Publisher, topic and operation of what it is to be handed as soon as it has joined."""

    async def watch(self) -> None:
        """What was asked of the failing topic comes to an end, too."""
        last = max((at + for_s for _, at, for_s in self.workload.troubles), default=0.0)
        await trio.sleep(last + 5.0)
        self.world.heal()
        work_s = self.workload.messages * self.workload.pause_s + 2.0 * self.workload.changes
        await trio.sleep(LIVENESS_S + work_s)
        if not self.is_done:
            words = (
                "the clients of one topic that failed, and of others, were not done long after the last fault"
            )
            raise self.world.broken(Violation("what is asked of a topic that failed comes to an end", words))

    async def live(self, machine: Machine) -> None:
        """One life of the machine."""
        self._has_joined = False
        history, operation = self.world.history, self.world.history.operation()
        history.record(machine.number, "call", "operator", operation, "everything", detail="open")
        async with machine.open_runtime() as runtime, trio.open_nursery() as nursery:
            history.record(machine.number, "answer", "operator", operation, "everything")
            failing = await runtime.create_topic(FAILING, partitions=max(1, self.workload.partitions))
            topics = [await runtime.create_topic(name) for name in self._names]
            nursery.start_soon(restart_failed, runtime, name="operator")
            for trouble in self.workload.troubles:
                nursery.start_soon(self._trouble, f"topics/{failing.topic_id}", *trouble)
            call = partial(self._call, machine)
            for topic in topics:
                nursery.start_soon(self._consume, machine, topic, f"group of {topic.name}".replace(" ", "-"))
            everything = TopicsTogether(runtime, [FAILING, *self._names])
            nursery.start_soon(self._consume, machine, everything, TOGETHER)
            async with trio.open_nursery() as working:
                for topic in topics:
                    working.start_soon(self._publish, call, machine, topic)
                working.start_soon(self._publish, call, machine, failing)
                working.start_soon(self._change, call, runtime)
                working.start_soon(self._use_failing, call, runtime)
            await trio.sleep(1.0)
            nursery.cancel_scope.cancel()
        self.world.heal()

    # -- what happens

    async def _trouble(self, path: str, kind: str, at: float, for_s: float) -> None:
        """Let the topic's disk fail for a while."""
        await trio.sleep(max(0.0, self._begun_s + at - self.world.now))
        disk = self.world.disk
        end: Callable[[Any], None]
        match kind:
            case "hang":
                fault, end = disk.hang(path), disk.unhang
            case "slow":
                fault, end = disk.slow(path, SLOW_S), disk.unslow
            case _:
                fault, end = disk.fail_next(kind, "EIO", path_contains=path, times=5), disk.faults.withdraw
        self.world.history.note("fault", f"{kind} at {path}", who=kind)
        try:
            await trio.sleep(for_s)
        finally:
            end(fault)

    async def _call(self, machine: Machine, who: str, about: str, what: str, call: Callable[[], Any]) -> Any:
        """Record a call and its answer; returns what it returned, None after an error."""
        history = self.world.history
        operation = history.operation()
        history.record(machine.number, "call", who, operation, about, detail=what)
        self.world.probe("call", about)
        error, found = "", None
        try:
            found = await call()
        except ConfigurationError:
            raise
        except CallboardError as failure:
            error = type(failure).__name__
        history.record(machine.number, "answer", who, operation, about, detail=error)
        return found

    async def _publish(self, call: Callable[..., Awaitable[Any]], machine: Machine, topic: Any) -> None:
        """Publish; a consumer that reads the topic is to be handed that in time."""
        history, name = self.world.history, topic.name
        who = f"publisher of {name}"
        while self._left[name] > 0:
            self._left[name] -= 1
            handed = [history.operation(), history.operation()]
            value = b"%d %d" % (handed[0], handed[1])
            receipt = await call(who, name, "publish", partial(topic.publish, value))
            if receipt is not None:
                history.record(machine.number, "call", who, handed[0], name, detail="handing over")
                self._unasked.append((who, name, handed[1]))
                if self._has_joined:
                    self._ask_to_hand_over(machine)
            await trio.sleep(max(0.01, self.workload.pause_s))

    def _ask_to_hand_over(self, machine: Machine) -> None:
        """The consumer of all topics, which has joined, is to be handed what was published."""
        for who, name, operation in self._unasked:
            self.world.history.record(machine.number, "call", who, operation, name, detail="handing over")
        self._unasked.clear()

    async def _consume(self, machine: Machine, topic: Any, group: str) -> None:
        """Record what is handed over; a consumer that also reads the failing topic meets its errors, and goes on."""
        history = self.world.history
        while True:
            try:
                async with topic.subscribe(group) as consumer:
                    if group == TOGETHER:
                        self._has_joined = True
                        self._ask_to_hand_over(machine)
                    while True:
                        message = None
                        with suppress(CallboardError):
                            message = await consumer.get()
                        if message is None:
                            await trio.sleep(0.05)
                            continue
                        operation = int(message.value.split()[group == TOGETHER])
                        history.record(machine.number, "answer", group, operation, message.topic)
                        with suppress(CallboardError):
                            await message.ack(wait=False)
            except CallboardError:
                await trio.sleep(0.05)

    async def _change(self, call: Callable[..., Awaitable[Any]], runtime: Any) -> None:
        """Everything that the control plane does, for topics and groups at which nothing fails."""
        who = "administrator"
        while self._changes_left > 0:
            self._changes_left -= 1
            name = f"passing-{self._changes_left}"
            topic = await call(who, name, "create topic", partial(runtime.create_topic, name))
            if topic is None:
                continue
            await call(who, name, "alter topic", partial(runtime.alter_topic, name, max_message_bytes=1000))
            await call(who, name, "subscribe", partial(self._visit, topic, name))
            await call(who, name, "alter group", partial(runtime.group(name).alter, max_in_flight=3))
            await call(who, name, "list groups", runtime.groups)
            await call(who, name, "delete group", partial(runtime.group(name).delete))
            await call(who, name, "delete topic", partial(runtime.delete_topic, name))
            await trio.sleep(max(0.01, self.workload.pause_s))

    @staticmethod
    async def _visit(topic: Any, group: str) -> None:
        """Join, get a message, and leave."""
        await topic.publish(b"0 0")
        async with topic.subscribe(group) as consumer:
            await (await consumer.get()).ack()

    async def _use_failing(self, call: Callable[..., Awaitable[Any]], runtime: Any) -> None:
        """Whatever is asked of the failing topic may take as long as its disk does."""
        while self._operations:
            operation = self._operations.pop()
            await call("user", FAILING, operation, partial(self._operate, runtime, operation))
            await trio.sleep(max(0.01, self.workload.pause_s))

    async def _operate(self, runtime: Any, operation: str) -> None:
        match operation:
            case "alter topic":
                await runtime.alter_topic(FAILING, max_message_bytes=1000)
            case "alter group":
                await runtime.group(FAILING).alter(max_in_flight=3)
            case "delete group":
                await runtime.group(FAILING).delete()
            case "subscribe":
                with trio.move_on_after(2.0):
                    async with runtime.topic(FAILING).subscribe(FAILING) as consumer:
                        await consumer.get(timeout=1.0)
            case "delete topic":
                await runtime.delete_topic(FAILING)
                await runtime.create_topic(FAILING, partitions=max(1, self.workload.partitions))
            case _:
                await runtime.topic(FAILING).publish(b"0 0")
