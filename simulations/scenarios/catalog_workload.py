"""Administrators create, alter and delete topics and groups, and visitors consume for a while, and leave.

Everything that they change and see is recorded, over power cuts and openings. Sessions follow each other, with some
time in between in which the directory is closed. In the end nothing fails any more: what should end has time to end,
then the power is lost, and the last process to open the directory looks at what is there.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.groups.coordinator import EXPIRY_GRACE_S, RETRY_S
from callboard.log.errors import CallboardError, ConfigurationError, LogCorrupt
from callboard.simulations.checkers import Terms, catalog_map, enforce
from callboard.simulations.checkers.attempts import REOPENED
from callboard.simulations.history.catalog import ObservedCatalog
from callboard.simulations.history.clients import ObservedConsumer, consume
from callboard.simulations.history.entry import plain
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios import recreated
from callboard.simulations.scenarios.broker_workload import TopicsTogether
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    BROKER_LIMITS,
    CATALOG_LIMITS,
    COUNT_MAX,
    NAMES_MAX,
    DrawnLimits,
    between,
    check_counts,
    draw_limits,
    limits_of,
    one_of,
    uniform,
)
from callboard.simulations.scenarios.lives import heal_in_time
from callboard.simulations.scenarios.operator import OPERATOR_S, is_passing, leaves, restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

Step = tuple[str, int, int]
"""What is done, with which topic or group, and a number that decides on details."""
Visit = tuple[int, int, float, str, int]
"""A group, a topic, how long, how it ends, and a number that decides on settings."""

VERBS: Final = (
    "create topic",
    "create topic",
    "create topic",
    "alter topic",
    "delete topic",
    "alter group",
    "alter group",
    "alter group",
    "delete group",
    "publish",
    "publish",
    "list",
)
ENDINGS: Final = ("leave", "leave", "raise", "cancel")
"""How visits end: the consumer leaves, its body raises, or it is cancelled."""
EXPIRIES: Final[tuple[float | None, ...]] = (1.0, 1.0, 2.0, None, 2.0 * EXPIRY_GRACE_S)
ALTERED: Final[tuple[dict[str, Any], ...]] = (
    {"max_in_flight": 1},
    {"max_in_flight": 7, "visibility_timeout": 2.0},
    {"visibility_timeout": 0.5},
    {"backoff": 0.25, "max_backoff": 5.0},
    {"group_expiry": 1.0},
    {"group_expiry": 2.5},
    {"group_expiry": None},
)
"""Of groups."""
TOPIC_ALTERED: Final[tuple[dict[str, Any], ...]] = (
    {"compression": "gzip"},
    {"retention_bytes": 1_000_000},
    {"drop_unread": True},
    {"max_message_bytes": 2000},
)
LOOK_S: Final = 0.2
"""How long a visitor waits for a message before it looks at its settings."""
HELD_MAX: Final = 5
"""How many messages a visitor leaves unsettled, if it does: they come again and again."""
HEAL_AT_S: Final = 60.0
SETTLE_S: Final = RETRY_S + 5.0
"""When nothing fails any more, what should end has ended after so long."""
PATIENCE_S: Final = 120.0
LONG_S: Final = EXPIRY_GRACE_S + 10.0
"""How long a directory is closed, and open in the end, when groups are to expire that last for hours."""


@attrs.frozen(kw_only=True)
class Changes:
    """A workload: what administrators and visitors do."""

    messages: int = 2
    """Per publish."""
    topics: int = 2
    """How many names there are."""
    groups: int = 2
    """How many names there are."""
    partitions: int = 1
    steps: tuple[Step, ...] = ()
    """Administrators take them in turns."""
    administrators: int = 1
    visits: tuple[Visit, ...] = ()
    """Visitors take them in turns."""
    visitors: int = 2
    pause_s: float = 0.1
    """After each step."""
    patience_s: float = 0.0
    """How long an administrator waits for a change before it gives up; 0: for ever."""
    retries: int = 0
    """How often a step that failed, or may have, is repeated."""
    sessions: int = 1
    closed_s: float = 1.0
    """Between two sessions."""
    idle_s: float = 0.0
    """How long, when all is done, nothing is asked, and things may still fail."""
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "topics": (self.topics, NAMES_MAX),
                "groups": (self.groups, NAMES_MAX),
                "partitions": (self.partitions, NAMES_MAX),
                "steps": (len(self.steps), COUNT_MAX),
                "administrators": (self.administrators, ACTORS_MAX),
                "visits": (len(self.visits), COUNT_MAX),
                "visitors": (self.visitors, ACTORS_MAX),
                "retries": (self.retries, COUNT_MAX),
                "sessions": (self.sessions, NAMES_MAX),
            },
        )
        limits_of(self.limits)


def draw_changes(entropy: SeededEntropy) -> Changes:
    """Some administrators and visitors of few topics and groups, so that they meet."""
    topics, groups = between(entropy, 1, 3), between(entropy, 1, 3)
    closed_s = one_of(entropy, (uniform(entropy, 0.0, 4.0),) * 3 + (LONG_S,))
    stays = (0.0, 0.2, 1.0, 2.5, *(LONG_S,) * (closed_s == LONG_S))
    steps = tuple(
        (one_of(entropy, VERBS), between(entropy, 0, 2), between(entropy, 0, 60))
        for _ in range(one_of(entropy, (0, 3, between(entropy, 8, 30), between(entropy, 8, 30))))
    )
    visits = tuple(
        (
            between(entropy, 0, 2),
            between(entropy, 0, 2),
            one_of(entropy, stays),
            one_of(entropy, ENDINGS),
            between(entropy, 0, 60),
        )
        for _ in range(between(entropy, 2, 16))
    )
    return Changes(
        messages=between(entropy, 1, 5),
        topics=topics,
        groups=groups,
        partitions=between(entropy, 1, 2),
        steps=steps,
        administrators=between(entropy, 1, 3),
        visits=visits,
        visitors=between(entropy, 1, 4),
        pause_s=one_of(entropy, (0.0, 0.05, 0.3)),
        patience_s=one_of(entropy, (0.0, 0.0, 0.0005, 0.5)),
        retries=one_of(entropy, (0, 1, 2)),
        sessions=between(entropy, 1, 4),
        idle_s=one_of(entropy, (0.0, 3.0)),
        closed_s=closed_s,
        limits=_draw_limits(entropy.fork("limits")),
    )


def _draw_limits(entropy: SeededEntropy) -> DrawnLimits:
    """Any; in every second run the catalog's journal is short enough to be rewritten."""
    drawn = dict(draw_limits(entropy, BROKER_LIMITS + CATALOG_LIMITS))
    often = one_of(entropy, (0, 200, 600, 0))
    return tuple((drawn | {"catalog_snapshot_every_bytes": often} if often else drawn).items())


class VisitFailed(Exception):
    """What the body of a visit raises."""


class CatalogWorkload:
    """The administrators and visitors of one run."""

    def __init__(self, world: World, changes: Changes) -> None:
        self.world = world
        self.changes = changes
        world.limits = limits_of(changes.limits)
        count = max(1, changes.sessions)
        self._steps = [deque(changes.steps[at::count]) for at in range(count)]
        self._visits = [deque(changes.visits[at::count]) for at in range(count)]
        self._is_done = False
        self._is_long = changes.closed_s > SETTLE_S
        self._published = 0

    async def run(self) -> None:
        """All sessions; then the promises."""
        world = self.world
        world.spawn(self._watch)
        await world.machine_until_done(self._sessions)
        world.disk.crash()
        await trio.sleep(max(0.0, self.changes.closed_s))
        await world.machine_until_done(self._last_look)
        self._is_done = True
        enforce(world.history, Surviving(()), Terms())

    async def _watch(self) -> None:
        """Heal in time, and then have no patience for ever."""
        await heal_in_time(self.world, HEAL_AT_S)
        stays_s = sum(stay_s for _, _, stay_s, _, _ in self.changes.visits)
        closed_s = (max(1, self.changes.sessions) + 2) * max(0.0, self.changes.closed_s)
        await trio.sleep(PATIENCE_S + 2.0 * stays_s + closed_s + LONG_S)
        if not self._is_done:
            left = sum(len(each) for each in self._steps) + sum(len(each) for each in self._visits)
            words = f"{left} steps and visits were left long after the last fault"
            raise self.world.broken(Violation("what is asked of the catalog comes to an end", words))

    # -- sessions

    async def _sessions(self, machine: Machine) -> None:
        """One after the other; one that ended for a failure is gone on with."""
        for index in range(len(self._steps)):
            is_last = index + 1 == len(self._steps)
            while self._steps[index] or self._visits[index] or is_last:
                if await self._opened(machine, partial(self._session, machine, index, is_last)):
                    break
            await trio.sleep(max(0.0, self.changes.closed_s))

    async def _last_look(self, machine: Machine) -> None:
        while not await self._opened(machine, partial(self._look_once_more, machine)):
            pass

    async def _opened(self, machine: Machine, session: Any) -> bool:
        """Open the runtime and run the session; whether it came to its end."""
        world = self.world
        world.history.record(machine.number, "opened", "operator")
        try:
            async with machine.open_runtime() as runtime, trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                await session(runtime)
                nursery.cancel_scope.cancel()
        except (CallboardError, BaseExceptionGroup) as error:
            if not is_passing(error) or any(isinstance(leaf, ConfigurationError) for leaf in leaves(error)):
                raise
            for leaf in leaves(error):
                if isinstance(leaf, LogCorrupt):
                    raise world.broken(Violation(catalog_map.PROMISE, str(leaf))) from error
            kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves(error)}))
            world.note(f"{REOPENED}: {kinds}")
            world.probe("operator")
            await trio.sleep(OPERATOR_S)
            return False
        return True

    async def _session(self, machine: Machine, index: int, is_last: bool, runtime: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_twice, machine, runtime, name="operator")
            for number in range(max(1, self.changes.administrators)):
                who = f"administrator-{number + 1}"
                nursery.start_soon(self._administer, machine, runtime, index, who, name=who)
            for number in range(max(1, self.changes.visitors)):
                who = f"visitor-{number + 1}"
                nursery.start_soon(self._visit_all, machine, runtime, index, who, name=who)
        if is_last:
            await trio.sleep(max(0.0, self.changes.idle_s))
            self.world.heal()
            await self._look(machine, runtime)
            await trio.sleep(SETTLE_S)
            await self._look(machine, runtime)
            await self._look_at_partitions(machine, runtime)

    async def _look(self, machine: Machine, runtime: Any) -> None:
        catalog = ObservedCatalog(self.world, machine.number, runtime, "operator")
        catalog.list_topics()
        await catalog.list_groups()

    async def _look_twice(self, machine: Machine, runtime: Any) -> None:
        """When the directory was opened, and a little later."""
        await self._look(machine, runtime)
        await trio.sleep(LOOK_S)
        await self._look(machine, runtime)

    async def _look_once_more(self, machine: Machine, runtime: Any) -> None:
        """At once, and after groups had their time to expire; what is deleted has left nothing then."""
        await self._look(machine, runtime)
        await trio.sleep(LONG_S if self._is_long else SETTLE_S)
        await self._look(machine, runtime)
        await self._look_at_partitions(machine, runtime)
        paths = (path.split("/") for path in self.world.disk.paths())
        found = sorted({parts[1] for parts in paths if parts[0] == "topics" and len(parts) > 2})
        self.world.history.record(machine.number, "files of topics", "operator", detail=" ".join(found))

    async def _look_at_partitions(self, machine: Machine, runtime: Any) -> None:
        for partition in (await runtime.stats()).partitions:
            self.world.history.record(
                machine.number,
                "groups at partition",
                "operator",
                topic=partition.topic,
                partition=partition.partition,
                ids=tuple(group.group_id for group in partition.groups),
                offsets=tuple(group.leased for group in partition.groups),
            )

    # -- administrators

    async def _administer(self, machine: Machine, runtime: Any, index: int, who: str) -> None:
        catalog = ObservedCatalog(self.world, machine.number, runtime, who)
        steps, changes = self._steps[index], self.changes
        while steps:
            step = steps.popleft()
            for _ in range(max(0, changes.retries) + 1):
                end = "maybe changed"
                with trio.move_on_after(changes.patience_s if changes.patience_s > 0 else math.inf):
                    end = await self._do(catalog, *step)
                if end == "changed":
                    break
                await trio.sleep(max(0.01, changes.pause_s))
            if changes.pause_s > 0:
                await trio.sleep(changes.pause_s)
            catalog.list_topics()

    async def _do(self, catalog: ObservedCatalog, verb: str, which: int, number: int) -> str:
        topic, group = self._topic(which), self._group(which)
        match verb:
            case "create topic":
                settings = TOPIC_ALTERED[number % 4] if number % 3 == 0 else {}
                partitions = max(1, self.changes.partitions)
                end = await catalog.create_topic(topic, partitions=partitions, **settings)
                if end == "changed":
                    await self._publish(catalog.runtime, topic)
                return end
            case "alter topic":
                return await catalog.alter_topic(topic, **TOPIC_ALTERED[number % len(TOPIC_ALTERED)])
            case "delete topic":
                return await catalog.delete_topic(topic)
            case "alter group":
                return await catalog.alter_group(group, **ALTERED[number % len(ALTERED)])
            case "delete group":
                return await catalog.delete_group(group)
            case "publish":
                await self._publish(catalog.runtime, topic)
            case _:
                await catalog.list_groups()
        return "changed"

    async def _publish(self, runtime: Any, name: str) -> None:
        """Messages that tell which topic they are for; what fails is left."""
        try:
            topic = runtime.topic(name)
            for _ in range(self.changes.messages):
                self._published += 1
                await topic.publish(b"%b %d" % (topic.topic_id.encode(), self._published))
        except CallboardError as error:
            self.world.note(f"publish: {type(error).__name__}")

    def _topic(self, which: int) -> str:
        return f"topic-{which % max(1, self.changes.topics)}"

    def _group(self, which: int) -> str:
        return f"group-{which % max(1, self.changes.groups)}"

    # -- visitors

    async def _visit_all(self, machine: Machine, runtime: Any, index: int, who: str) -> None:
        visits = self._visits[index]
        while visits:
            group, topic, stay_s, ending, number = visits.popleft()
            scope = trio.CancelScope()
            try:
                with scope:
                    await self._visit(
                        machine,
                        runtime,
                        self._topic(topic),
                        self._group(group),
                        who,
                        stay_s,
                        ending,
                        number,
                        scope,
                    )
            except (VisitFailed, CallboardError) as error:
                if isinstance(error, Violation):
                    raise
                self.world.note(f"{who}: {type(error).__name__}")
                await trio.sleep(LOOK_S)

    async def _visit(
        self,
        machine: Machine,
        runtime: Any,
        name: str,
        group: str,
        who: str,
        stay_s: float,
        ending: str,
        number: int,
        scope: trio.CancelScope,
    ) -> None:
        names = (name,) if number % 5 else tuple(dict.fromkeys((name, self._topic(number))))
        topics = {name: runtime.topic(name) for name in names}
        topic = topics[name] if len(names) == 1 else TopicsTogether(runtime, names)
        catalog = ObservedCatalog(self.world, machine.number, runtime, who)
        settings: dict[str, Any] = {"durable": number % 3 > 0}
        if number % 3 > 0:
            settings["group_expiry"] = EXPIRIES[
                -1 if self._is_long and number % 2 else number % len(EXPIRIES)
            ]
        if ending == "cancel":
            scope.deadline = trio.current_time() + stay_s

        async def work(consumer: ObservedConsumer) -> None:
            until = trio.current_time() + stay_s
            await catalog.list_groups()
            held = 0
            while True:
                self._see_settings(machine, consumer)
                if trio.current_time() >= until and ending != "cancel":
                    break
                message = await consumer.inner.get(timeout=max(LOOK_S, stay_s / 10.0))
                if message is None:
                    continue
                topic_id = topics[message.topic].topic_id
                if not message.value.startswith(topic_id.encode()):
                    words = (
                        f"{who} was handed {message.value!r:.80} of {message.topic} with the id {topic_id}"
                    )
                    raise self.world.broken(Violation(recreated.PROMISE, words))
                held += 1
                if number % 4 or held > HELD_MAX:
                    await message.ack()
            if ending == "raise":
                raise VisitFailed

        await consume(self.world, machine.number, topic, group, who, work, **settings)
        await catalog.list_groups()

    def _see_settings(self, machine: Machine, consumer: ObservedConsumer) -> None:
        """Record the settings that the consumer goes by."""
        self.world.history.record(
            machine.number,
            "settings seen",
            consumer.who,
            consumer.life,
            group=consumer.inner.group,
            detail=plain(attrs.asdict(consumer.inner.settings)),
        )
