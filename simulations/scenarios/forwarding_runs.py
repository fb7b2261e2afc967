"""The scenario of dead letters that are forwarded to a topic, while partitions, the router and all else fail.

Each message's value says whether it is rejected, fails or is handled; in some seeds some are late, and expire if no
consumer takes them in time. In the end each that was given up, and each that has expired, is in the topic for dead
letters exactly once, as it was published, with its reason, in the order of failure of its partition and group; and
nothing else is there. Then the groups are deleted, and the topic forgets them.

In some seeds chosen dead letters are purged, redriven to another topic or redriven home, this many at a time, before
all others are. A dry run before that changes nothing; what is chosen is done, nothing else is touched, and what was
done is never listed again. In some seeds all of this is redriven at a rate.

In some seeds another group, which names no topic, rejects what is to be, and is deleted early: it is refused while
partitions keep dead letters of it, it does not expire either, and what goes with it in the end is reported.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import DeadLettersFull, DeadLettersKept, GroupNotFound, LeaseLost
from callboard.simulations.checkers.rates import too_fast
from callboard.simulations.faults import aimed
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
from callboard.simulations.scenarios.lives import (
    expect_no_bugs,
    heal_in_time,
    live_until_done,
    until_readable,
)
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedMessage
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what is given up is forwarded once, as it was, in the order of failure"
GROUPS: Final = ("billing", "audit")
KEEPING: Final = "keeping"
"""The group that names no topic."""
LIVENESS_S: Final = 900.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 3.0
FATES: Final = ("good", "good", "reject", "reject", "fail")
TARGET: Final = "dead"
TTLS_S: Final = (0.01, 0.2, 1.0, 3.0)
OWN: Final = "callboard-own"
"""A header of the message's own, named like those that forwarding adds."""
ELSEWHERE: Final = "elsewhere"
CHOSEN: Final = ("purge", ELSEWHERE, "home")
"""What is done with chosen dead letters."""
FILLED: Final = (f"topics/{ELSEWHERE}/0", "topics/orders/0")
REDRIVING: Final = ("ForgetProducer", "ForgetProducer", "PublishMany")
"""What partitions are asked that dead letters are redriven to."""
EXPIRIES_S: Final = (1.0, 86_400.0)
RATES: Final = (4.0, 50.0)
APART_S: Final = 0.01
"""Calls at a rate lie so far apart: what each has published is known by its time."""
EXPIRED: Final = b"expired"
SLACK_S: Final = 0.001
STEPS_MAX: Final = 200
"""After this many steps at most a redrive is cancelled."""


@attrs.frozen(kw_only=True)
class ForwardedTraffic:
    """A workload: how many messages in how many partitions, for how many groups, and room for dead letters."""

    messages: int = 12
    partitions: int = 2
    targets: int = 1
    groups: int = 1
    dead_letters: int = 100
    max_deliveries: int = 2
    interruptions: int = 0
    """How often a redrive is begun and cancelled."""
    late: float = 0.0
    """How many of the messages have a time to live; the groups keep what expires as dead letters."""
    pause_s: float = 0.0
    """From publishing to the first consumer."""
    at_once: int = 0
    """This many dead letters at a time meet fates of their own; 0: all of them go home."""
    keeping_s: float = 0.0
    """After so long without a consumer the group would expire that names no topic; 0: there is none."""
    rate: float = 0.0
    """This many a second are redriven at most; 0: as many as may be."""
    slow_s: float = 0.0
    """At a rate, so much longer the disk takes for the first of the last redrive."""
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "interruptions": (self.interruptions, COUNT_MAX),
                "at_once": (self.at_once, COUNT_MAX),
            },
        )


class ForwardedLetters:
    """Dead letters on their way while disks, actors, processes and the power fail."""

    name = "forwarded-letters"
    space = FaultSpace(
        weights={
            "PowerCut": 4,
            "KillProcess": 3,
            "CrashActor": 6,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "FailVerb": 4,
            "FullDisk": 1,
        },
        added=("CrashOnMessage",),
        actors=("topics/orders/0", "topics/dead/0", "dead-letters", "dead-letters"),
        paths=("/delivery/", "/0/0000", "/publishers", ""),
        verbs=("write", "write", "sync", "sync", "create", "rename"),
        probes={"given up": 20, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 12},
        faults=(0, 5),
        horizon_s=8.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        return [
            *aimed.at_steps(entropy, self.space, ("timer-wheel", "groups/billing", "catalog")),
            *aimed.as_soon_as(entropy, "given up", 20, "dead-letters"),
            *aimed.on_messages(entropy.fork("messages"), FILLED, REDRIVING, self.space.horizon_s),
        ]

    def workload(self, entropy: SeededEntropy) -> ForwardedTraffic:
        """Few messages, most of which are given up."""
        traffic = ForwardedTraffic(
            messages=between(entropy, 3, 25),
            partitions=one_of(entropy, (1, 2, 3)),
            targets=one_of(entropy, (1, 1, 2)),
            groups=one_of(entropy, (1, 1, 2)),
            dead_letters=one_of(entropy, (2, 5, 100)),
            max_deliveries=one_of(entropy, (2, 3)),
            interruptions=one_of(entropy.fork("interruptions"), (0, 2, 5)),
            late=one_of(entropy.fork("late"), (0.0, 0.0, 0.4)),
            pause_s=one_of(entropy.fork("pause"), (0.0, 0.1, 2.0)),
            at_once=one_of(entropy.fork("at once"), (0, 0, 1, 2, 5)),
            keeping_s=one_of(entropy.fork("keeping"), (0.0, *EXPIRIES_S)),
            rate=one_of(entropy.fork("rate"), (0.0, 0.0, 0.0, *RATES)),
            slow_s=one_of(entropy.fork("slow"), (0.0, 1.0)),
            limits=draw_limits(entropy, BROKER_LIMITS),
        )
        crowded = entropy.fork("crowded")
        if crowded.random() < 0.75:
            return traffic
        # Dead letters of several partitions meet in one of another topic.
        return attrs.evolve(
            traffic,
            messages=between(crowded, 10, 20),
            partitions=3,
            targets=3,
            dead_letters=100,
            at_once=one_of(crowded, (1, 2, 5)),
        )

    async def main(self, world: World, workload: ForwardedTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of((*workload.limits, ("dead_letters", max(1, workload.dead_letters))))
        forwarding = _Forwarding(world, workload)
        world.spawn(forwarding.watch)
        await world.machine_until_done(forwarding.life)
        forwarding.end()


class _Forwarding:
    """Publisher and consumers, and what they were answered."""

    def __init__(self, world: World, workload: ForwardedTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._draws = world.entropy.fork("redrives")
        draws = world.entropy.fork("fates")
        self.fates = [one_of(draws, FATES) for _ in range(max(0, workload.messages))]
        late = world.entropy.fork("late")
        self._ttls = [one_of(late, TTLS_S) if late.random() < workload.late else None for _ in self.fates]
        self._published: dict[tuple[int, int], datetime] = {}
        """By partition and offset, when."""
        self._taken: set[tuple[str, int, int]] = set()
        """What a consumer has had in hand: it is not to expire any more."""
        self._expired = 0
        self._stored: dict[tuple[int, int], bytes] = {}
        """By partition and offset, what was published."""
        self._acked: set[tuple[str, int, int]] = set()
        self._rejected: list[tuple[str, int, int]] = []
        """Group, partition and offset, in the order in which the rejects were answered."""
        self._forwarded = 0
        self._is_redriving = self._is_ending = False
        self._given_up: list[tuple[str, int, int]] = []
        """Group, partition and offset of what was forwarded."""
        chosen = world.entropy.fork("chosen")
        self._letter_fates = [one_of(chosen, (*CHOSEN, "")) for _ in range(5)]
        self._done: set[tuple[str, int, int]] = set()
        """Those of them that are known to be purged or redriven."""
        self._kept: set[tuple[str, int, int]] = set()
        """What the group without a topic has rejected, as it was answered."""
        self._is_dropped = not workload.keeping_s
        """That group is deleted, or is about to be."""
        self._calls: list[tuple[float, float]] = []
        """From when to when each redrive went on, by the wall clock."""
        self._at_rate = 0
        """This many at most were redriven by one call at a rate."""
        self._handled: dict[tuple[str, int, int], bytes] = {}
        """By group, partition and offset, what was handled after the redrive was begun."""

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S)
        if not self.is_done:
            raise self._broken(f"dead letters were not all forwarded {LIVENESS_S:g} s after the last fault")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        async with machine.open_runtime() as runtime:
            dead = await runtime.create_topic(TARGET, partitions=max(1, self.workload.targets))
            orders = await runtime.create_topic("orders", partitions=max(1, self.workload.partitions))
            groups = GROUPS[: max(1, self.workload.groups)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                if self._is_ending:
                    await self._end_groups(runtime, dead)
                    nursery.cancel_scope.cancel()
                    return
                await self._publish(orders)
                if self.workload.late:
                    await self.world.rest(self.workload.pause_s)
                await self._delete_early(runtime, orders)
                await self._handle_all(runtime, orders, groups)
                await self._look(dead)
                self._is_redriving = True
                await self._redrive_chosen(runtime, runtime.dead_letters(TARGET))
                await self._redrive(runtime.dead_letters(TARGET), orders)
                await self._handle_all(runtime, orders, groups)
                moments = [*await self._look_at_redriven(orders), *await self._look_elsewhere(runtime)]
                self._check_rate(moments)
                self._is_ending = True
                await self._end_groups(runtime, dead)
                nursery.cancel_scope.cancel()

    async def _end_groups(self, runtime: Any, dead: Any) -> None:
        """When the groups are deleted, nothing publishes to the topic for dead letters, which knows no group then."""
        for group in GROUPS[: max(1, self.workload.groups)]:
            with suppress(GroupNotFound):
                await runtime.group(group).delete()
        while any(part.producers for part in await dead.describe()):
            await self.world.rest(1.0)

    async def _delete_early(self, runtime: Any, orders: Any) -> None:
        """A group that keeps dead letters goes only when it is said that they go with it."""
        if self._is_redriving:
            return
        if not self._is_dropped:
            await self._consume(orders, KEEPING)
            await self.world.rest(3 * min(EXPIRIES_S))
            if self._kept and not self._is_excused():
                await self._check_kept(runtime, orders)
            self._is_dropped = True
        with suppress(GroupNotFound):
            await runtime.group(KEEPING).delete(drop_dead_letters=True)

    async def _check_kept(self, runtime: Any, orders: Any) -> None:
        """All that was rejected is there, and stays there."""
        try:
            letters = await orders.dead_letters(KEEPING).list()
            lost = self._kept - {(KEEPING, letter.partition, letter.offset) for letter in letters}
            if lost:
                raise self._broken(f"{sorted(lost)} were rejected, and no partition keeps them")
            await runtime.group(KEEPING).delete()
        except DeadLettersKept as refused:
            if refused.fields["dead_letters"] < len(self._kept) and not self._is_excused():
                raise self._broken(f"{sorted(self._kept)} are kept, and it says: {refused}") from None
        except GroupNotFound:
            if not self._is_excused():
                raise self._broken(f"a group has expired that keeps {sorted(self._kept)}") from None
        else:
            if not self._is_excused():
                raise self._broken(f"a group was deleted that keeps {sorted(self._kept)}")

    def _is_excused(self) -> bool:
        """A partition that has failed, or lacks space to recover, keeps no group from being deleted."""
        return bool(self.world.history.of("ActorFailed", "OpeningLacksSpace"))

    async def _handle_all(self, runtime: Any, orders: Any, groups: Any) -> None:
        """Consume while there is something, then wait until all that was given up is forwarded.

        No consumer subscribes meanwhile: that would have the router look, which must have seen it by itself.
        """
        while not await self._is_over(runtime, orders, groups):
            if await self._is_over(runtime, orders, groups, with_dead=False):
                await self.world.rest(0.5)
                continue
            async with trio.open_nursery() as consumers:
                for group in groups:
                    consumers.start_soon(self._consume, orders, group, name=group)

    def _fate_of(self, place: tuple[str, int, int]) -> str:
        """What becomes of a dead letter before all others are redriven."""
        group, partition, offset = place
        if not self.workload.at_once:
            return ""
        return self._letter_fates[(offset + 2 * partition + GROUPS.index(group)) % len(self._letter_fates)]

    async def _listed(self, letters: Any) -> set[tuple[str, int, int]]:
        found = {(each.group, each.partition, each.offset) for each in await letters.list()}
        if found & self._done:
            raise self._broken(f"{sorted(found & self._done)} were purged or redriven, and are listed again")
        return found

    async def _redrive_chosen(self, runtime: Any, letters: Any) -> None:
        """A dry run, then each fate by itself."""
        if not self.workload.at_once:
            return
        await runtime.create_topic(ELSEWHERE)
        listed, published = await self._listed(letters), await self._ends(runtime)
        dry, count = await letters.redrive(dry_run=True), sum((await letters.count()).values())
        if (dry.messages, count) != (len(listed), len(listed)):
            raise self._broken(
                f"{len(listed)} are listed, {count} counted, and {dry.messages} would be redriven"
            )
        if await self._listed(letters) != listed or await self._ends(runtime) != published:
            raise self._broken("a dry run has redriven something")
        for fate in CHOSEN:
            await self._do_chosen(letters, fate)

    async def _do_chosen(self, letters: Any, fate: str) -> None:
        """Purge or redrive those of one fate, until none is left."""
        limit = self.workload.at_once

        def choose(letter: Any) -> bool:
            return self._fate_of((letter.group, letter.partition, letter.offset)) == fate

        before, done = await self._listed(letters), limit
        while done:
            if fate == "purge":
                done = await letters.purge(choose, limit=limit)
            else:
                to = ELSEWHERE if fate == ELSEWHERE else None
                done = await self._redriven(letters, choose, to=to, limit=limit)
            after = await self._listed(letters)
            gone = before - after
            if done > limit or len(gone) != done or any(self._fate_of(place) != fate for place in gone):
                raise self._broken(
                    f"{fate}: {limit} at most were meant, {done} told, and {sorted(gone)} are gone"
                )
            self._done |= gone
            before = after
        if left := [place for place in before if self._fate_of(place) == fate]:
            raise self._broken(f"{fate}: {left} were meant, and are left")

    async def _ends(self, runtime: Any) -> int:
        """How much there is in the topics that dead letters go to."""
        count = 0
        for name in ("orders", ELSEWHERE):
            topic = runtime.topic(name)
            await until_readable(self.world, topic)
            async for _ in topic.read():
                count += 1
        return count

    async def _look_elsewhere(self, runtime: Any) -> list[float]:
        """What was redriven to another topic is there once, for all of its groups; returns when it was appended."""
        if not self.workload.at_once:
            return []
        topic = runtime.topic(ELSEWHERE)
        await until_readable(self.world, topic)
        found = [record async for record in topic.read()]
        wanted = [place[1:] for place in self._given_up if self._fate_of(place) == ELSEWHERE]
        if sorted(record.value for record in found) != sorted(self._stored[place] for place in wanted):
            raise self._broken(f"{sorted(wanted)} were sent elsewhere, and {len(found)} messages are there")
        if any(record.headers != {OWN: record.value.split()[1]} for record in found):
            raise self._broken("a message was sent elsewhere, and not as it was published")
        return [record.append_time.timestamp() for record in found]

    async def _redrive(self, letters: Any, orders: Any) -> None:
        """Redrive everything; before that, begin now and then, and be cancelled at some step."""
        for _ in range(self.workload.interruptions):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel, nursery.cancel_scope, name="canceller")
                await self._redriven(letters)
                nursery.cancel_scope.cancel()
            await self.world.rest(0.05)
        async with trio.open_nursery() as nursery:
            if self.workload.rate > 0.0 and self.workload.slow_s > 0.0:
                nursery.start_soon(self._hold_up, orders, name="holding up")
            await self._redriven(letters)
        if (again := await letters.redrive()).messages:
            raise self._broken(f"a second redrive has redriven {again.messages} messages")

    async def _hold_up(self, orders: Any) -> None:
        """The first message takes long; those behind it are late then."""
        slowness = self.world.disk.slow(orders.topic_id, self.workload.slow_s)
        try:
            await self.world.rest(self.workload.slow_s / 2)
        finally:
            self.world.disk.unslow(slowness)

    async def _redriven(self, letters: Any, *choose: Any, **options: Any) -> int:
        """How many were redriven; from when to when is noted."""
        clock = self.world.clock
        if self.workload.rate > 0.0:
            options["rate"] = self.workload.rate
            await self.world.rest(APART_S)
        begun = clock.wall_us()
        try:
            count: int = (await letters.redrive(*choose, **options)).messages
            return count
        finally:
            self._calls.append((begun / 1e6, clock.wall_us() / 1e6))

    def _check_rate(self, moments: list[float]) -> None:
        """What each call has published came at its rate."""
        if self.workload.rate <= 0.0 or self.world.clock.jumps:
            return
        for begun, ended in self._calls:
            of_call = [moment for moment in moments if begun <= moment <= ended]
            if (words := too_fast(self.workload.rate, begun, of_call)) is not None:
                raise self._broken(f"redriven were {words}")
            self._at_rate = max(self._at_rate, len(of_call))

    async def _cancel(self, scope: trio.CancelScope) -> None:
        """Some steps of other tasks later; a redrive takes no virtual time while no disk is slow."""
        for _ in range(int(STEPS_MAX ** self._draws.random())):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async def _publish(self, orders: Any) -> None:
        """What is not stored yet; then look up what there is."""
        count = sum(part.next_offset for part in await orders.describe())
        for number in range(count, 0 if self._is_redriving else len(self.fates)):
            value, headers = f"{self.fates[number]} {number}".encode(), {OWN: str(number)}
            ttl = self._ttls[number]
            await orders.publish(value, key=b"%d" % number, headers=headers, ttl=ttl)
        await until_readable(self.world, orders)
        async for record in orders.read():
            if "callboard-for-group" not in record.headers:
                self._stored[record.partition, record.offset] = record.value
                self._published[record.partition, record.offset] = record.timestamp

    async def _is_over(self, runtime: Any, orders: Any, groups: Any, *, with_dead: bool = True) -> bool:
        parts = await orders.describe()
        if not self._stored:
            return True
        known = {group.group_id for group in await runtime.groups() if group.name in groups}
        states = [group for part in parts for group in part.groups if group.group_id in known]
        return len(states) == len(groups) * len(parts) and not any(
            state.pending or (with_dead and state.dead) for state in states
        )

    async def _consume(self, orders: Any, group: str) -> None:
        settings: dict[str, Any] = {"dead_letter_topic": TARGET}
        if self.workload.late:
            settings["dead_letter_expired"] = True
        if group == KEEPING:
            settings = {"group_expiry": max(1.0, self.workload.keeping_s)}
        async with orders.subscribe(
            group,
            max_deliveries=max(1, self.workload.max_deliveries),
            visibility_timeout=VISIBILITY_S,
            backoff=0.1,
            **settings,
        ) as consumer:
            while (message := await consumer.get(timeout=IDLE_S)) is not None:
                try:
                    await self._handle(message, group)
                except (LeaseLost, DeadLettersFull):
                    self.world.probe("refused", str(message.offset))

    async def _handle(self, message: ReceivedMessage, group: str) -> None:
        if self._is_redriving:
            self._handled[group, message.partition, message.offset] = message.value or b""
            await message.ack()
            return
        place = group, message.partition, message.offset
        if group == KEEPING:
            await self._handle_keeping(message, place)
            return
        self._taken.add(place)
        if place in self._rejected:
            raise self._broken(f"offset {place} comes again, and it was rejected")
        fate = (message.value or b"").split()[0]
        if fate == b"reject":
            await message.reject(reason=f"{message.offset} is bad")
            self._rejected.append(place)
            self.world.probe("given up", str(message.offset))
        elif fate == b"fail":
            await message.nack(reason=f"{message.offset} is bad")
            self.world.probe("given up", str(message.offset))
        else:
            await message.ack()
            self._acked.add(place)

    async def _handle_keeping(self, message: ReceivedMessage, place: tuple[str, int, int]) -> None:
        if (message.value or b"").startswith(b"good"):
            await message.ack()
            return
        await message.reject(reason="it is bad")
        self._kept.add(place)
        self.world.probe("given up", str(message.offset))

    async def _look_at_redriven(self, orders: Any) -> list[float]:
        """Each that was given up is published again once, and was handled by the group that gave it up, alone.

        Returns when they were appended.
        """
        await until_readable(self.world, orders)
        wanted = sorted(
            (place[0], self._stored[place[1:]])
            for place in self._given_up
            if self._fate_of(place) not in ("purge", ELSEWHERE)
        )
        records = [record async for record in orders.read() if "callboard-for-group" in record.headers]
        redriven = [record.value for record in records]
        if sorted(redriven) != sorted(value for _, value in wanted):
            raise self._broken(
                f"{sorted(value for _, value in wanted)} were to be redriven, and {redriven} were"
            )
        handled = sorted((place[0], value) for place, value in self._handled.items())
        if handled != wanted:
            raise self._broken(f"{wanted} were redriven, and {handled} were handled")
        return [record.append_time.timestamp() for record in records]

    async def _look(self, dead: Any) -> None:
        """Each that was given up is there once, as it was, in the order of failure."""
        if self._is_redriving:
            return
        numbers: dict[tuple[str, int], int] = {}
        places: list[tuple[str, int, int]] = []
        await until_readable(self.world, dead)
        async for record in dead.read():
            told = {name: value.decode() for name, value in record.headers.items()}
            group, partition = told["callboard-group"], int(told["callboard-partition"])
            place = group, partition, int(told["callboard-offset"])
            if place in places:
                raise self._broken(f"{place} was forwarded twice")
            places.append(place)
            value = self._stored.get(place[1:])
            if record.value != value or value is None:
                raise self._broken(f"{place} was {value!r}, and is forwarded as {record.value!r}")
            number = value.split()[1]
            if record.key != number or record.headers.get(OWN) != number:
                raise self._broken(f"{place} was forwarded with another key, or other headers")
            if place in self._acked:
                raise self._broken(f"{place} was acked, and is forwarded")
            before = numbers.get((group, partition), -1)
            if int(told["callboard-number"]) <= before:
                raise self._broken(f"{place} was forwarded behind number {before}")
            numbers[group, partition] = int(told["callboard-number"])
            if record.headers["callboard-reason"] == EXPIRED:
                self._check_expired(place, told)
            elif value.startswith(b"good") and not self.world.hits:
                raise self._broken(f"{place} is healthy, nothing has failed, and it is forwarded")
        self._forwarded, self._given_up = len(places), places
        for place in self._rejected:
            if place not in places:
                raise self._broken(f"{place} was rejected, and is not forwarded")
        for partition, offset in self._stored:
            for group in GROUPS[: max(1, self.workload.groups)]:
                place = group, partition, offset
                if place not in places and place not in self._taken:
                    raise self._broken(f"no consumer had {place} in hand, and it is not forwarded")
        self._check_order(places)

    def _check_expired(self, place: tuple[str, int, int], told: dict[str, str]) -> None:
        """It had a time to live, and that was over."""
        ttl = self._ttls[int(self._stored[place[1:]].split()[1])]
        if ttl is None:
            raise self._broken(f"{place} has no time to live, and has expired")
        lived = datetime.fromisoformat(told["callboard-failed-at"]) - self._published[place[1:]]
        if lived.total_seconds() < ttl - SLACK_S:
            raise self._broken(f"{place} has expired after {lived}, and was to live for {ttl} s")
        self._expired += 1

    def _check_order(self, places: list[tuple[str, int, int]]) -> None:
        """What was rejected one after the other is forwarded so."""
        at = {place: index for index, place in enumerate(places)}
        last: dict[tuple[str, int], int] = {}
        for place in self._rejected:
            before = last.get(place[:2], -1)
            if at[place] < before:
                raise self._broken(f"{place} was rejected later than what is forwarded behind it")
            last[place[:2]] = at[place]

    def end(self) -> None:
        """Nothing went wrong inside; what went with a group was reported."""
        expect_no_bugs(self.world)
        history = self.world.history
        told = sum(int(entry.detail) for entry in history.of("DeadLettersDropped"))
        if told < len(self._kept) and not self._is_excused():
            raise self._broken(f"{sorted(self._kept)} went with their group, and {told} were reported")
        self.world.sometimes("chosen dead letters were purged or redriven", bool(self._done))
        self.world.sometimes("dead letters went with their group", bool(self._kept))
        self.world.sometimes("several dead letters were redriven at a rate", self._at_rate > 2)
        crashed = any(entry.who == "dead-letters" for entry in history.of("ActorRestarted"))
        self.world.sometimes("a dead letter was forwarded", self._forwarded > 0)
        self.world.sometimes("the router crashed and came back", crashed)
        self.world.sometimes("dead letters were held", bool(history.of("DeadLettersHeld")))
        self.world.sometimes("a dead letter had expired", self._expired > 0)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
