"""The scenario of a wall clock that is wrong for a while: a year ahead, or a year behind, and then right again.

Meanwhile messages are published that expire, that have deduplication ids, that retention drops by age, and that recur,
and some are put off. When the clock has been right for long enough, nothing is left of it: what has a time to live has
expired, what was put off comes again, ids are new again, old segments are gone, schedules fire, and a group that was
left meanwhile has expired. No due instant is published twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.message import from_us
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import COUNT_MAX, between, check_counts, one_of
from callboard.simulations.scenarios.lives import expect_no_bugs, live_until_done
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import Machine, World

PROMISE: Final = "nothing is left of a clock that was wrong once"
YEAR_S: Final = 365 * 86_400.0
SHIFTS_S: Final = (YEAR_S, YEAR_S, 40 * YEAR_S, -YEAR_S)
RETENTION_S: Final = 7200.0
TTL_S: Final = 60.0
WINDOW_S: Final = 60.0
EVERY_S: Final = 300.0
AFTER_S: Final = 4 * RETENTION_S
"""How long the clock is right before all is looked at."""
OPENED_S: Final = 20.0
"""So long it is open where openings are frequent: less than a time to live."""
OPENINGS: Final = 6
OPENINGS_MAX: Final = 50
EXPIRY_S: Final = 3 * 3600.0
OPENED_LONG_S: Final = 1.25 * 3600.0
"""It is open for this long then: more than the time that a group is left in any case, less than its expiry."""
LONG_OPENINGS: Final = 3
LEFT: Final = "left"
LATER: Final = "later"
"""The group that puts off its messages."""
DELAY_S: Final = 60.0
PAUSE_S: Final = 5.0
LIVENESS_S: Final = 2 * AFTER_S
IDLE_S: Final = 1.0


@attrs.frozen(kw_only=True)
class WrongClock:
    """A workload: how many messages at a time, and how the clock is wrong."""

    messages: int = 1
    """Of each kind, before, in and after each time that the clock is wrong."""
    shifts_s: tuple[float, ...] = (YEAR_S,)
    """By how much it is wrong, one time after the other."""
    for_s: float = 10.0
    openings: int = 0
    """How often the directory is opened for less than a time to live, once the clock is right."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {"messages": (self.messages, COUNT_MAX), "openings": (self.openings, OPENINGS_MAX)},
        )


class WrongClocks:
    """The clock is wrong for a while, and actors crash and the process is killed meanwhile."""

    name = "wrong-clocks"
    space = FaultSpace(
        weights={"KillProcess": 2, "PowerCut": 1, "CrashActor": 4},
        actors=("topics/old/0", "topics/offers/0", "topics/once/0", "topics/beats/0", "recurring"),
        faults=(0, 2),
        horizon_s=120.0,
        down_s=(0.01, 30.0),
    )

    def workload(self, entropy: SeededEntropy) -> WrongClock:
        """Once or twice, for some seconds or some minutes."""
        return WrongClock(
            messages=between(entropy, 1, 3),
            shifts_s=tuple([one_of(entropy, SHIFTS_S) for _ in range(between(entropy, 1, 2))]),
            for_s=one_of(entropy, (10.0, 400.0)),
            openings=one_of(entropy, (0, OPENINGS)),
        )

    async def main(self, world: World, workload: WrongClock) -> None:
        """Run it in as many lives as it takes."""
        wrong = _Wrong(world, workload)
        world.spawn(wrong.set_clock)
        await world.machine_until_done(wrong.life)
        expect_no_bugs(world)


class _Wrong:
    """Publisher and consumer, and the task that sets the clock."""

    def __init__(self, world: World, workload: WrongClock) -> None:
        self._world = world
        self._workload = workload
        self._is_wrong = trio.Event()
        self._is_right = trio.Event()
        self._rounds = 0
        self._ids: list[bytes] = []
        self._left = max(0, workload.openings)
        self._right_at = 0.0
        self._put_off: set[int] = set()
        """In which rounds messages were put off."""

    async def set_clock(self) -> None:
        """Set it wrong, and right again, as often as it is to be; then all is to come to its end."""
        world, workload = self._world, self._workload
        await world.rest(20.0)
        for shift_s in workload.shifts_s:
            world.clock.shift(shift_s)
            self._rounds += 1
            await world.rest(max(0.0, workload.for_s))
            world.clock.shift(-shift_s)
            self._rounds += 1
            await world.rest(20.0)
        world.sometimes("the clock was a year ahead", any(shift_s > 0 for shift_s in workload.shifts_s))
        world.heal()
        self._right_at = world.now
        self._is_right.set()

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end; before that, when the clock is right, some that end early."""
        is_often = self._left > 0
        while self._left:
            await live_until_done(self._world, partial(self._session, machine))
            self._left -= 1
        if is_often:
            await live_until_done(self._world, partial(self._look_at_offers, machine))
            for opening in range(LONG_OPENINGS):
                await live_until_done(self._world, partial(self._look_at_groups, machine, opening))
        await live_until_done(self._world, partial(self._session, machine))

    async def _look_at_offers(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            await self._expired(await runtime.create_topic("offers"), "often-opened")

    async def _look_at_groups(self, machine: Machine, opening: int) -> None:
        async with machine.open_runtime() as runtime:
            await self._world.rest(OPENED_LONG_S)
            if opening == LONG_OPENINGS - 1 and LEFT in [group.name for group in await runtime.groups()]:
                raise self._broken(
                    f"group {LEFT!r} has had no consumer for longer than its expiry, and is there"
                )

    async def _session(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            old = await runtime.create_topic("old", retention_age=RETENTION_S, segment_age=RETENTION_S / 4)
            offers = await runtime.create_topic("offers")
            once = await runtime.create_topic("once", dedup_window=WINDOW_S)
            beats = await runtime.create_topic("beats")
            await beats.schedule("beat", every=EVERY_S, value=b"beat", missed="skip")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                while not self._is_right.is_set():
                    await self._publish(old, offers, once)
                    await self._put_off_one(runtime)
                    await self._world.rest(PAUSE_S)
                if self._left:
                    await self._world.rest(OPENED_S)
                    nursery.cancel_scope.cancel()
                    return
                end = (await old.publish(b"the last of a wrong clock")).offset or 0
                await once.publish(b"the last of a wrong clock")
                while self._world.now < self._right_at + AFTER_S:
                    await old.publish(b"later")
                    await self._world.rest(RETENTION_S / 8)
                await self._look(old, end, offers, once, beats)
                await self._look_at_put_off(runtime)
                nursery.cancel_scope.cancel()

    async def _publish(self, old: Any, offers: Any, once: Any) -> None:
        if self._rounds % 2:  # the clock is wrong
            async with once.subscribe(LEFT, group_expiry=EXPIRY_S):
                pass
        for number in range(max(0, self._workload.messages)):
            name = b"%d in %d" % (number, self._rounds)
            await old.publish(name)
            await offers.publish(name, ttl=TTL_S)
            if name not in self._ids:
                self._ids.append(name)
                await once.publish(name, dedup_id=name)

    async def _put_off_one(self, runtime: Any) -> None:
        """Once in each round."""
        if self._rounds in self._put_off:
            return
        tasks = await runtime.create_topic("tasks")
        await tasks.publish(b"task of round %d" % self._rounds)
        self._put_off.add(self._rounds)
        async with tasks.subscribe(LATER) as consumer:
            while (message := await consumer.get(timeout=IDLE_S)) is not None:
                await message.nack(delay=DELAY_S)

    async def _look_at_put_off(self, runtime: Any) -> None:
        if not self._put_off:
            return
        tasks = await runtime.create_topic("tasks")
        async with tasks.subscribe(LATER) as consumer:
            while (message := await consumer.get(timeout=IDLE_S)) is not None:
                await message.ack()
        (part,) = await tasks.describe()
        if pending := sum(group.pending for group in part.groups):
            raise self._broken(f"{pending} messages were put off by {DELAY_S:g} s hours ago, and do not come")

    async def _look(self, old: Any, end: int, offers: Any, once: Any, beats: Any) -> None:
        (part,) = await old.describe()
        if part.start_offset <= end:
            raise self._broken(
                f"retention keeps all from offset {part.start_offset} on, and what has the offset {end} is old"
            )
        await self._expired(offers, "late")
        (part,) = await once.describe()
        for name in self._ids:
            if (receipt := await once.publish(name, dedup_id=name)).offset < part.visible_end:
                raise self._broken(f"the id {name!r} counts as a duplicate of offset {receipt.offset}")
        await self._look_at_beats(beats)
        await self._look_from_now(once)

    async def _expired(self, offers: Any, group: str) -> None:
        async with offers.subscribe(group) as consumer:
            if (message := await consumer.get(timeout=IDLE_S)) is not None:
                raise self._broken(f"the offer {message.value!r} is delivered long after its time to live")

    async def _look_from_now(self, topic: Any) -> None:
        await self._world.rest(IDLE_S)  # what was published before is older than the instant
        then = from_us(self._world.clock.wall_us())
        last = (await topic.publish(b"much later")).offset
        found = [record.offset async for record in topic.read(start=then)]
        if found != [last]:
            raise self._broken(
                f"a reader that starts at {then} gets offsets {found[:9]}, and only {last} came since"
            )

    async def _look_at_beats(self, beats: Any) -> None:
        records = [record async for record in beats.read()]
        dues = [record.headers["callboard-due"] for record in records]
        if len(set(dues)) < len(dues):
            raise self._broken("a due instant was published twice")
        begun_us = self._world.clock.wall_us() - round((AFTER_S - EVERY_S) * 1e6)
        now_us = self._world.clock.wall_us()
        fired = [each for each in records if begun_us <= round(each.append_time.timestamp() * 1e6) <= now_us]
        wanted = int((AFTER_S - 4 * EVERY_S) / EVERY_S)
        if len(fired) < wanted:
            raise self._broken(
                f"a schedule fired {len(fired)} times in the hours since the clock is right, at least"
                f" {wanted} times were due"
            )

    def _broken(self, words: str) -> Violation:
        return self._world.broken(Violation(PROMISE, words))
