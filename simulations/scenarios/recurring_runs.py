"""The scenario of recurring publishes: schedules are made, paused and removed, and lose their topic; everything fails.

What is due is computed here anew, second by second from what a clock in the zone shows. In the end each due instant is
there once, in order, published at its time, and what is not there has its reason: the schedule was paused, or the
firing was missed and its policy leaves it out. Some runs begin moments before the clocks of a zone change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import ScheduleNotFound, TopicNotFound
from callboard.log.format.stamps import TOLERANCE_US
from callboard.log.limits import CATCH_UP_MAX
from callboard.simulations.faults import aimed
from callboard.simulations.faults.kinds import FailVerb, FullDisk
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
from callboard.simulations.scenarios.due_instants import CRONS, STARTS, CronInstants, SpacedInstants, When
from callboard.simulations.scenarios.lives import (
    came_to_its_end,
    expect_no_bugs,
    heal_in_time,
    until_readable,
)
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = (
    "what recurs is published once for each due instant, never before it, in order, and missed by policy"
)
LIVENESS_S: Final = 900.0
SECOND: Final = 1_000_000
LEAP_US: Final = 60 * SECOND
"""A wall clock that is set forward by more has leapt over what was due, which is seen within as long."""
HELD_US: Final = 60 * SECOND
"""A firing waits no longer for what has failed."""
RESTARTED_US: Final = 4 * SECOND
"""While no disk refuses anything, crashes delay it by no more."""
PROMPT_US: Final = SECOND
"""While nothing fails, what is due comes within this."""
MISSED: Final = ("latest", "all", "skip")
EVERY_S: Final = (0.25, 0.5, 1.0, 3.0, 20.0)
STEPS: Final = (
    "rest",
    "rest",
    "add",
    "add",
    "again",
    "pause",
    "resume",
    "resume",
    "remove",
    "reopen",
    "delete",
)
RESTS_S: Final = (0.0, 0.3, 1.0, 3.0)
CLOSED_S: Final = (0.0, 0.7, 5.0, 40.0, 150.0)
TOPICS: Final = ("orders", "orders", "short-lived")
NAMES: Final = tuple(f"beat-{number}" for number in range(6))


@attrs.frozen(kw_only=True)
class RecurringTraffic:
    """A workload: how many things the operator does, with schedules in how many partitions, and when it begins."""

    messages: int = 10
    """Things that the operator does."""
    partitions: int = 1
    start: int = 0
    """Which of `STARTS`."""
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(type(self).__name__, {"messages": (self.messages, COUNT_MAX)})


@attrs.define(eq=False)
class _Pause:
    """A rest of a schedule: what the wall clock showed when it was asked for, and when it was told."""

    called: int
    told: int | None = None
    resume_called: int | None = None
    resumed: int | None = None


@attrs.define(eq=False)
class _Made:
    """A schedule, as the operator knows it. All that it publishes has a value that no other has."""

    value: bytes
    topic: str
    name: str
    when: When
    missed: str
    partition: int
    created_us: int | None = None
    """None until it was told."""
    pauses: list[_Pause] = attrs.Factory(list)
    is_paused: bool = False
    end_called: int | None = None
    ended: int | None = None
    """The latest that the wall clock had shown when its end was told."""
    lost_its_topic: bool = False
    """What it published went with it."""


@attrs.define(eq=False)
class _Step:
    """Something that the operator does, again in the next session if it failed."""

    kind: str
    seconds: float
    pick: int
    missed: str
    when: When
    made: _Made | None = None
    all_made: list[_Made] | None = None


@attrs.frozen
class _Leap:
    """The wall clock passed by what was due while nobody looked: the directory was closed, or the clock was set."""

    before: int
    """The latest that it showed while somebody looked."""
    low: int
    high: int
    """Between these it was when somebody looked again."""
    closed: int = 0
    """When the directory was closed, if that is known."""


class RecurringPublishes:
    """Schedules while disks, clocks, actors, processes and the power fail."""

    name = "recurring-publishes"
    space = FaultSpace(
        weights={
            "PowerCut": 4,
            "KillProcess": 3,
            "CrashActor": 6,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "FailVerb": 4,
            "FullDisk": 1,
            "JumpClock": 1,
        },
        actors=("topics/orders/0", "topics/orders/0", "recurring", "recurring", "recurring", "catalog"),
        paths=("/0/0000", "/0/0000", "/publishers", "catalog", ""),
        verbs=("write", "write", "sync", "sync", "create", "rename"),
        probes={"fired": 40, "did": 12, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 12},
        faults=(0, 5),
        horizon_s=12.0,
        down_s=(0.01, 3.0),
        for_s=(0.01, 1.0),
        jump_s=(0.5, 300.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actor crashes at any step, while a firing is stored, or when the clock was just set."""
        return [
            *aimed.at_steps(entropy, self.space, ("recurring", "recurring", "timer-wheel", "catalog")),
            *aimed.amid_work(entropy, "recurring", "/0/0000", 40),
            *aimed.as_soon_as(entropy, "did", 12, one_of(entropy, ("recurring", "catalog"))),
            *aimed.at_jumps(entropy, "recurring", 8.0),
        ]

    def workload(self, entropy: SeededEntropy) -> RecurringTraffic:
        """A few schedules that are due every few seconds, or more often."""
        return RecurringTraffic(
            messages=between(entropy, 2, 16),
            partitions=one_of(entropy, (1, 1, 2)),
            start=between(entropy, 0, len(STARTS) - 1),
            limits=draw_limits(entropy, BROKER_LIMITS),
        )

    async def main(self, world: World, workload: RecurringTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of(workload.limits)
        recurring = _Recurring(world, workload)
        world.spawn(recurring.watch)
        await world.machine_until_done(recurring.life)
        recurring.end()


class _Recurring:
    """The operator of schedules, and the reader of what they publish."""

    def __init__(self, world: World, workload: RecurringTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        draws = self._draws = world.entropy.fork("recurring")
        zone, start_us = STARTS[workload.start % len(STARTS)]
        if start_us:
            world.clock.set_wall_us(start_us)
        self._jumps_before = len(world.clock.jumps)
        self._zone, self._began_us = zone, self._wall
        kinds: list[When] = [SpacedInstants(round(every * SECOND)) for every in EVERY_S]
        kinds += [CronInstants(*cron, zone) for cron in CRONS]
        self._steps = deque(
            _Step(
                kind,
                one_of(draws, RESTS_S),
                between(draws, 0, 100),
                one_of(draws, MISSED),
                one_of(draws, kinds),
            )
            for kind in ("add", *(one_of(draws, STEPS) for _ in range(max(0, workload.messages))))
        )
        self._made: list[_Made] = []
        self._closings: list[_Leap] = []
        self._alive_us = self._wall
        self._opened_us = self._closed_us = 0
        self._is_new = True
        self._closed_s: float | None = None
        self._has_missed = False

    @property
    def _wall(self) -> int:
        return self.world.clock.wall_us()

    @property
    def _jumps(self) -> list[tuple[int, int]]:
        return self.world.clock.jumps[self._jumps_before :]

    @property
    def _highest(self) -> int:
        """The latest that the wall clock has ever shown."""
        return max(self._wall, *(before for before, _ in self._jumps), 0)

    @property
    def _was_set_back(self) -> bool:
        return any(after < before for before, after in self._jumps)

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S + sum(CLOSED_S) * len(self._steps))
        if not self.is_done:
            raise self._broken(f"what is due was not published {LIVENESS_S:g} s after the last fault")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        while True:
            await came_to_its_end(self.world, partial(self._session, machine))
            if self.is_done:
                return
            closed_s, self._closed_s = self._closed_s, None
            if closed_s is not None:
                await self.world.rest(closed_s)

    async def _session(self, machine: Machine) -> None:
        if not self._is_new:
            closed_us = max(self._alive_us, self._closed_us)
            self._closings.append(_Leap(self._alive_us, self._wall, self._wall + HELD_US, closed_us))
        self._is_new, self._opened_us = False, 0
        try:
            await self._run(machine)
        finally:
            self._closed_us = self._wall

    async def _run(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", partitions=max(1, self.workload.partitions))
            await runtime.create_topic("short-lived")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                for partition in range(orders.partitions):
                    nursery.start_soon(self._read, orders, partition, name=f"reader {partition}")
                if await self._settled(runtime, within=1.0) and self._closings:
                    self._closings[-1] = attrs.evolve(self._closings[-1], high=self._wall)
                self._opened_us = self._alive_us = self._wall
                self._check_list(runtime)
                while self._steps:
                    is_reopened = self._steps[0].kind == "reopen"
                    await self._do(runtime, self._steps[0])
                    self._steps.popleft()
                    self.world.probe("did", str(len(self._steps)))
                    self._alive_us = self._wall
                    if is_reopened:
                        nursery.cancel_scope.cancel()
                        return
                await self.world.rest(2.0)
                await self._settled(runtime)
                self._alive_us = self._wall
                self._check_list(runtime)
                for name in ("orders", "short-lived"):
                    await self._look(runtime.topic(name), self._alive_us)
                nursery.cancel_scope.cancel()
        self.is_done = True

    async def _settled(self, runtime: Any, within: float | None = None) -> bool:
        """Wait until everything that is due was published; whether it was in time."""
        until = trio.current_time() + (LIVENESS_S if within is None else within)
        while trio.current_time() < until:
            stands = [schedule.statistics() for schedule in runtime.schedules()]
            wall = self._wall
            if not any(
                each.problem is not None
                or (each.next_due is not None and each.next_due.timestamp() * 1e6 <= wall)
                for each in stands
                if not each.is_paused
            ):
                self._has_missed |= any(each.passed_over for each in stands)
                return True
            await self.world.rest(0.1)
        return False

    # -- the operator

    async def _do(self, runtime: Any, step: _Step) -> None:
        match step.kind:
            case "rest":
                await self.world.rest(step.seconds)
            case "reopen":
                self._closed_s = CLOSED_S[step.pick % len(CLOSED_S)]
            case "add":
                await self._add(runtime, step)
            case "delete":
                await self._delete(runtime, step)
            case kind:
                step.made = step.made or self._picked(step, kind)
                if step.made is not None:
                    await self._change(runtime, kind, step.made)

    def _picked(self, step: _Step, kind: str) -> _Made | None:
        """One that this can be done to."""
        wanted = {"pause": (False,), "resume": (True,)}.get(kind, (False, True))
        found = [made for made in self._made if made.end_called is None and made.is_paused in wanted]
        return found[step.pick % len(found)] if found else None

    async def _add(self, runtime: Any, step: _Step) -> None:
        if step.made is None:
            topic = runtime.topic(TOPICS[step.pick % len(TOPICS)])
            taken = {made.name for made in self._made if made.topic == topic.name and made.end_called is None}
            free = [name for name in NAMES if name not in taken]
            if not free:
                return
            value, partition = b"of schedule %d" % len(self._made), step.pick % topic.partitions
            step.made = _Made(value, topic.name, free[0], step.when, step.missed, partition)
            self._made.append(step.made)
        await self._find(runtime, step.made)

    async def _find(self, runtime: Any, made: _Made) -> Any:
        """Make it, or find it."""
        topic, when = runtime.topic(made.topic), made.when
        given: dict[str, Any] = {"value": made.value, "missed": made.missed, "partition": made.partition}
        given |= {"key": made.name.encode(), "headers": {"is": made.value}, "ttl": 1e6}
        if isinstance(when, SpacedInstants):
            schedule = await topic.schedule(made.name, every=when.every_us / SECOND, **given)
        else:
            schedule = await topic.schedule(made.name, cron=when.expression, zone=when.zone.key, **given)
        created_us = round(schedule.created.timestamp() * SECOND)
        if made.created_us not in (None, created_us):
            raise self._broken(f"{made.value!r} was made anew, and was there")
        made.created_us = created_us
        return schedule

    async def _change(self, runtime: Any, kind: str, made: _Made) -> None:
        if kind == "again":
            await self._find(runtime, made)
            return
        if kind == "pause" and not (made.pauses and made.pauses[-1].resume_called is None):
            made.pauses.append(_Pause(self._wall))
        if kind == "resume":
            made.pauses[-1].resume_called = made.pauses[-1].resume_called or self._wall
        if kind == "remove":
            made.end_called = made.end_called or self._wall
        try:
            topic = runtime.topic(made.topic)
            (schedule,) = [each for each in topic.schedules() if each.name == made.name] or [None]
            if schedule is None:
                raise ScheduleNotFound(f"{made.name} is not there", topic=made.topic, schedule=made.name)
            await {"pause": schedule.pause, "resume": schedule.resume, "remove": schedule.remove}[kind]()
        except ScheduleNotFound:
            if kind != "remove":
                raise self._broken(f"{made.value!r} is no more, and nobody removed it") from None
        if kind == "pause":
            made.is_paused, made.pauses[-1].told = True, self._wall
        elif kind == "resume":
            made.is_paused, made.pauses[-1].resumed = False, self._wall
        else:
            made.ended = self._highest

    async def _delete(self, runtime: Any, step: _Step) -> None:
        if step.all_made is None:
            of_topic = [made for made in self._made if made.topic == "short-lived"]
            step.all_made = [made for made in of_topic if made.end_called is None]
            for made in of_topic:
                made.end_called, made.lost_its_topic = made.end_called or self._wall, True
        topic = runtime.topic("short-lived")
        schedules = topic.schedules()
        try:
            await runtime.delete_topic("short-lived")
        except TopicNotFound:
            pass
        for made in step.all_made:
            made.ended = self._highest
        for schedule in schedules:
            try:
                await schedule.pause()
            except (ScheduleNotFound, TopicNotFound):
                continue
            raise self._broken(f"schedule {schedule.name!r} of a deleted topic was paused")
        again = await runtime.create_topic("short-lived")
        self._check_list(runtime)
        if again.schedules():
            raise self._broken(f"a new topic has the schedules {again.schedules()} of one that was deleted")

    def _check_list(self, runtime: Any) -> None:
        """The schedules are those that were made and not removed."""
        found = {(schedule.topic, schedule.name, schedule.value) for schedule in runtime.schedules()}
        for made in self._made:
            is_there = (made.topic, made.name, made.value) in found
            if made.created_us is not None and made.end_called is None and not is_there:
                raise self._broken(f"{made.value!r} was made, and is not there")
            if made.ended is not None and is_there:
                raise self._broken(f"{made.value!r} is there, and its end was told")

    # -- what comes

    async def _read(self, orders: Any, partition: int) -> None:
        async for record in orders.read(partition=partition, follow=True):
            due_us = _due_us(record)
            self.world.probe("fired", str(record.offset))
            wall = self._wall
            if not self.world.hits and wall > max(due_us, self._opened_us or wall) + PROMPT_US:
                raise self._broken(
                    f"{record.value!r} has come {(wall - due_us) / 1e6:g} s after it was due, and nothing has failed"
                )

    async def _look(self, topic: Any, now_us: int) -> None:
        """Each schedule's due instants are there as they should be."""
        came: dict[bytes, list[tuple[int, int]]] = {}
        await until_readable(self.world, topic)
        for partition in range(topic.partitions):
            async for record in topic.read(partition=partition):
                made = next((each for each in self._made if each.value == record.value), None)
                if (
                    made is None
                    or (made.topic, made.partition) != (topic.name, partition)
                    or made.lost_its_topic
                ):
                    raise self._broken(f"{record.value!r} has come in {topic.name}/{partition}")
                self._check_record(made, record)
                appended_us = round(record.append_time.timestamp() * SECOND)
                came.setdefault(record.value, []).append((_due_us(record), appended_us))
        for made in self._made:
            if made.topic == topic.name and not made.lost_its_topic and made.created_us is not None:
                self._check(made, made.created_us, came.get(made.value, []), now_us)

    def _check_record(self, made: _Made, record: Any) -> None:
        told = record.key, record.headers["is"], record.headers["callboard-schedule"], record.ttl
        if told != (made.name.encode(), made.value, made.name.encode(), 1e6):
            raise self._broken(f"{made.value!r} has come with {told}")
        if round(record.timestamp.timestamp() * SECOND) != _due_us(record):
            raise self._broken(f"{made.value!r} of {_due_us(record)} has the time {record.timestamp}")

    # -- what is promised

    @property
    def _slack(self) -> int:
        """How long a firing may be held."""
        if not self.world.hits:
            return PROMPT_US
        refuses = any(isinstance(fault, FailVerb | FullDisk) for fault in self.world.plan.faults)
        return HELD_US if refuses or self.world.history.of("ScheduleHeld") else RESTARTED_US

    def _check(self, made: _Made, created_us: int, came: list[tuple[int, int]], now_us: int) -> None:
        dues = [due_us for due_us, _ in came]
        # Of a clock that was wrong by so much a schedule goes on from what it shows then: due instants come again.
        comes_again = any(before - after > TOLERANCE_US for before, after in self._jumps)
        for before, after in pairwise(dues):
            if after <= before and not comes_again:
                raise self._broken(f"{made.value!r} of {after} has come behind that of {before}")
        for due_us, appended_us in came:
            self._check_early(made, due_us, appended_us)
            self._check_stopped(made, due_us)
        until = now_us if made.end_called is None else min(made.end_called, now_us)
        set_back = [(before, after) for before, after in self._jumps if after < before]
        since = min(
            [created_us, *(after for _, after in set_back)]
        )  # a clock that was set back comes by again
        # What was missed is counted by the clock of its moment, which may have been set back since.
        expected = made.when.dues(created_us, since, max([until, *dues, *(before for before, _ in set_back)]))
        if wrong := sorted(set(dues) - set(expected)):
            raise self._broken(f"{made.value!r} has come for {wrong[0]}, which was not due by {made.when}")
        self._check_policy(made, came)
        found = set(dues)
        for index, due_us in enumerate(expected):
            if (
                created_us < due_us <= until
                and due_us not in found
                and not self._is_excused(made, expected, index)
            ):
                raise self._broken(
                    f"{made.value!r} ({made.missed}, {made.when}) was due at {due_us}, and has not come"
                )

    def _check_early(self, made: _Made, due_us: int, appended_us: int) -> None:
        """It was stored later than it was due, unless the clock was set back between publishing and storing."""
        if appended_us < due_us and not any(
            before >= due_us and after <= appended_us <= after + HELD_US for before, after in self._jumps
        ):
            raise self._broken(f"{made.value!r} of {due_us} has come at {appended_us}, before it was due")

    def _check_stopped(self, made: _Made, due_us: int) -> None:
        """It was not due while the schedule was paused, or when it had ended."""
        if made.ended is not None and due_us > made.ended:
            raise self._broken(f"{made.value!r} has come for {due_us}, after its end at {made.ended}")
        for pause in made.pauses:
            resumed = pause.resume_called if pause.resume_called is not None else due_us
            is_resting = pause.told is not None and pause.told < due_us <= resumed
            if is_resting and not self._was_set_back:
                raise self._broken(f"{made.value!r} has come for {due_us}, and was paused from {pause.told}")

    def _check_policy(self, made: _Made, came: list[tuple[int, int]]) -> None:
        """No more of what was missed has come than the policy says."""
        if self._was_set_back:
            return
        allowed = {"skip": 0, "latest": 1, "all": CATCH_UP_MAX}[made.missed]
        # What was opened in the moment in which it was closed says nothing of what came in that moment.
        leaps = [(0, leap.low) for leap in self._closings if leap.low > max(leap.before, leap.closed)]
        leaps += [(before, after) for before, after in self._jumps if after - before > LEAP_US]
        for before, after in leaps:
            late = [due_us for due_us, appended_us in came if before < due_us <= after <= appended_us]
            if len(late) > allowed:
                raise self._broken(
                    f"{made.value!r} has come for {late}, all missed, and it is to {made.missed}"
                )

    def _is_excused(self, made: _Made, expected: list[int], index: int) -> bool:
        """Whether it is right that it has not come."""
        due_us, slack = expected[index], self._slack
        forward = [(before, after) for before, after in self._jumps if after > before]
        leaps = list(self._closings)
        if sum(after - before for before, after in forward) > LEAP_US:
            leaps += [_Leap(before - slack, after, after + LEAP_US + slack) for before, after in forward]
        published_us = published_by(due_us, expected, forward, slack)
        passed = [leap for leap in leaps if leap.before < published_us and due_us <= leap.high]
        # What a leap passed by was there to be published from when somebody looked again.
        published_us = max([published_us, *(leap.high + slack for leap in passed)])
        if made.end_called is not None and published_us > made.end_called:
            return True
        for pause in made.pauses:
            if pause.called < published_us and (pause.resumed is None or due_us <= pause.resumed):
                return True
        for before, after in self._jumps:
            if after < before and after - slack < due_us <= before + LEAP_US + slack:
                return True
        beyond = {"skip": 0, "latest": 1, "all": CATCH_UP_MAX}[made.missed]
        later = expected[index + beyond] if index + beyond < len(expected) else None
        return later is not None and any(later <= leap.high for leap in passed)

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        history, sometimes = self.world.history, self.world.sometimes
        crashed = any(entry.who == "recurring" for entry in history.of("ActorRestarted"))
        began, ended = (datetime.fromtimestamp(at / 1e6, self._zone) for at in (self._began_us, self._wall))
        sometimes("firings were missed and stay away", self._has_missed)
        sometimes("a firing was held", bool(history.of("ScheduleHeld")))
        sometimes("the actor of schedules crashed and came back", crashed)
        sometimes("a schedule lost its topic", any(made.lost_its_topic for made in self._made))
        sometimes("a schedule was paused", any(made.pauses for made in self._made))
        sometimes("a zone's clocks changed", began.utcoffset() != ended.utcoffset())

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))


def published_by(due_us: int, expected: list[int], forward: list[tuple[int, int]], slack_us: int) -> int:
    """When that due instant has been published at the latest, in an open directory, as the wall clock shows it then.

    `expected`: all of the schedule, rising. A wall clock that is set forward wakes no task: the schedule sleeps on
    until what was due next would have come, a minute at most, and finds then what is due by now.
    """
    published_us, looks_us = due_us + slack_us, 0
    for before, after in forward:
        following = bisect_right(expected, before)
        if looks_us <= before:  # it is awake, or sleeps until what is due next
            looks_us = expected[following] if following < len(expected) else before + LEAP_US
        looks_us = after + min(looks_us - before, LEAP_US)
        if published_us > before and due_us <= looks_us:
            published_us = looks_us + slack_us
    return published_us


def _due_us(record: Any) -> int:
    due = datetime.fromisoformat(record.headers["callboard-due"].decode())
    return round(due.timestamp() * SECOND)
