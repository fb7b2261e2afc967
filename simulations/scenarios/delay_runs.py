"""The scenario of messages that come later: delays and instants, some cancelled, while everything fails.

Each message is published under a value of its own. In the end the topic holds each that is known to be stored and not
cancelled exactly once, as it was published, and nothing that was cancelled or refused for certain. None comes before
its time by its own clock; what waited together comes in the order in which it was due. Of a batch, what is not delayed
is where its receipt says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, PartialPublish
from callboard.message import Message, Receipt, ScheduledReceipt, from_us
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
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import OPERATOR_S, restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what is delayed comes once, not before its time, in the order in which it is due"
LIVENESS_S: Final = 600.0
DELAYS: Final = (0.0, 0.001, 0.05, 0.3, 1.0, 2.5, 6.0)
KINDS: Final = ("delay", "delay", "instant", "now")
TICK_S: Final = 0.0021
"""Two ticks of the schedule, and what is lost in microseconds: what is due so close together comes in any order."""
PROMPT_S: Final = 1.0
"""While nothing fails, and no disk is slow, what is due comes within this."""
TIME: Final = from_us(1_000_000_000_000_000)


@attrs.frozen(kw_only=True)
class DelayedTraffic:
    """A workload: how many messages in how many partitions, in batches of which size, and how many are cancelled."""

    messages: int = 12
    partitions: int = 1
    batch: int = 1
    cancels: float = 0.2
    leaders: float = 0.0
    pause_s: float = 0.1
    limits: DrawnLimits = ()

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__, {"messages": (self.messages, COUNT_MAX), "batch": (self.batch, COUNT_MAX)}
        )


@attrs.define(eq=False)
class _PublishedLater:
    """A message as it was published."""

    value: bytes
    kind: str
    due_s: float
    """By its clock: monotonic for a delay, wall for an instant."""
    skew_s: float
    """Wall minus monotonic time at its publish."""
    life: int
    told_at: float | None = None
    """When its receipt came, None for unknown."""
    receipt: ScheduledReceipt | None = None
    is_sure: bool = False
    """Known to be synced."""
    cancelled: bool | None = False
    """None when that is unknown."""
    seen: bool = False
    offset: int | None = None
    """Where it is, as its receipt says, of one that is not delayed."""
    is_refused: bool = False
    """Known, for certain, not to be stored."""


class DelayedRuns:
    """Delays while disks, clocks, actors, processes and the power fail."""

    name = "delayed-messages"
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
        actors=(
            "topics/orders/0",
            "topics/orders/delayed-0",
            "scheduler",
            "scheduler",
            "timer-wheel",
            "catalog",
        ),
        paths=("/delayed-0/", "/delayed-0/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create", "rename"),
        probes={"published": 20, "came": 20, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 12},
        faults=(0, 5),
        horizon_s=10.0,
        down_s=(0.01, 3.0),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        return [
            *aimed.at_steps(entropy, self.space, ("scheduler", "timer-wheel")),
            *aimed.amid_work(entropy, "scheduler", "/delayed-0/delivery", 30),
            *aimed.at_jumps(entropy, "scheduler", 4.0),
        ]

    def workload(self, entropy: SeededEntropy) -> DelayedTraffic:
        """Few messages, due within seconds."""
        return DelayedTraffic(
            messages=min(between(entropy, 2, 30), one_of(entropy.fork("few"), (4, 30))),
            partitions=one_of(entropy, (1, 1, 2)),
            batch=one_of(entropy, (1, 1, 4, 12)),
            cancels=one_of(entropy, (0.0, 0.2, 0.5)),
            leaders=one_of(entropy, (0.0, 0.0, 0.3)),
            pause_s=one_of(entropy, (0.0, 0.05, 0.4)),
            limits=draw_limits(entropy, BROKER_LIMITS),
        )

    async def main(self, world: World, workload: DelayedTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of(workload.limits)
        delayed = _Delayed(world, workload)
        world.spawn(delayed.watch)
        await world.machine_until_done(delayed.life)
        delayed.end()


class _Delayed:
    """Publisher, canceller and reader, and what they were answered."""

    def __init__(self, world: World, workload: DelayedTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self._draws = world.entropy.fork("delays")
        self._sent: dict[bytes, _PublishedLater] = {}
        self._number = 0
        """How many messages are stored, as far as that is known."""
        self._attempts = 0
        self._life = 0
        self._crossed = self._too_late = self._partly = False

    async def watch(self) -> None:
        """All comes to an end when nothing fails any more."""
        await heal_in_time(self.world)
        await self.world.rest(LIVENESS_S)
        wall = self.world.clock.wall_us() / 1e6
        instants = [each.due_s - wall for each in self._sent.values() if each.kind == "instant"]
        await self.world.rest(max(0.0, *instants, 0.0) + OPERATOR_S)  # a clock set back gets there later
        if not self.is_done:
            waiting = [sent.value for sent in self._sent.values() if self._is_owed(sent)]
            raise self._broken(f"{waiting[:3]} had not come {LIVENESS_S:g} s after the last fault")

    async def life(self, machine: Machine) -> None:
        """Sessions until one comes to its end."""
        await live_until_done(self.world, partial(self._session, machine))
        self.is_done = True

    async def _session(self, machine: Machine) -> None:
        self._life += 1
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders", partitions=max(1, self.workload.partitions))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                for partition in range(orders.partitions):
                    nursery.start_soon(self._read, orders, partition, name=f"reader {partition}")
                await self._publish(orders)
                while any(map(self._is_owed, self._sent.values())) or await orders.delayed().count():
                    await self.world.rest(0.5)
                await self._look(orders)
                nursery.cancel_scope.cancel()

    def _is_owed(self, sent: _PublishedLater) -> bool:
        return sent.is_sure and sent.cancelled is False and not sent.seen

    # -- publishing

    async def _publish(self, orders: Any) -> None:
        while self._number < max(0, self.workload.messages):
            count = min(max(1, self.workload.batch), self.workload.messages - self._number)
            await self._publish_some(orders, count)
            self._number += count
            await self.world.rest(self.workload.pause_s)

    async def _publish_some(self, orders: Any, count: int) -> None:
        draws, is_leader = self._draws, self._draws.random() < self.workload.leaders
        messages = [self._message(one_of(draws, KINDS), one_of(draws, DELAYS)) for _ in range(count)]
        sent = [self._sent[message.value] for message in messages]
        acks = "leader" if is_leader else "all"
        try:
            if count == 1:
                fates: Any = [await orders.publish(messages[0], acks=acks)]
            else:
                fates = await orders.publish_batch(messages, acks=acks)
        except PartialPublish as error:
            self._partly = True
            self._told(sent, error.receipts, is_sure=not is_leader)
            raise
        except CallboardError as error:
            self._told(sent, [error] * count, is_sure=not is_leader)
            raise
        self._told(sent, fates, is_sure=not is_leader)
        self.world.probe("published", str(len(self._sent)))
        for each in sent:
            if each.receipt is not None and draws.random() < self.workload.cancels:
                await self._cancel(orders, each)

    def _told(
        self, sent: list[_PublishedLater], fates: Sequence[Receipt | CallboardError], *, is_sure: bool
    ) -> None:
        """What became of each: a receipt of its kind, or an error."""
        now = trio.current_time()
        for each, fate in zip(sent, fates, strict=True):
            if isinstance(fate, CallboardError):
                each.is_refused = not fate.indefinite
                continue
            each.told_at, each.is_sure = now, is_sure
            each.receipt = fate if isinstance(fate, ScheduledReceipt) else None
            each.offset = fate.offset
            if (each.receipt is None) != (each.kind == "now") or (fate.offset is None) != (
                each.kind != "now"
            ):
                raise self._broken(f"{each.value!r} has the receipt {fate}")

    def _message(self, kind: str, delay: float) -> Message:
        clock = self.world.clock
        now, wall_us = clock.monotonic(), clock.wall_us()
        self._attempts += 1
        value = b"%d of %s" % (self._attempts, kind.encode())
        due = wall_us / 1e6 + delay if kind == "instant" else now + delay * (kind == "delay")
        self._sent[value] = _PublishedLater(value, kind, due, wall_us / 1e6 - now, self._life)
        given: dict[str, Any] = {"key": value, "headers": {"is": value}, "timestamp": TIME, "ttl": 1e6}
        if kind == "instant":
            return Message(value, deliver_at=from_us(wall_us) + timedelta(seconds=delay), **given)
        return Message(value, delay=None if kind == "now" else delay, **given)

    async def _cancel(self, orders: Any, sent: _PublishedLater) -> None:
        await self.world.rest(one_of(self._draws, (0.0, 0.0, 0.3, 1.0)))
        sent.cancelled, was_seen = None, sent.seen
        try:
            count = await orders.delayed().cancel(sent.receipt)
        except CallboardError:
            return
        sent.cancelled = bool(count)
        if count and (sent.seen or was_seen):
            raise self._broken(f"{sent.value!r} was cancelled, and has come")
        self._too_late |= not count

    # -- what comes

    async def _read(self, orders: Any, partition: int) -> None:
        async for record in orders.read(partition=partition, follow=True):
            self._came(record)

    def _came(self, record: Any) -> None:
        sent = self._sent.get(record.value)
        if sent is None:
            raise self._broken(f"{record.value!r} has come, and was never published")
        if not sent.seen:
            sent.seen = True
            self.world.probe("came", str(record.offset))
            self._check_time(sent)
        if sent.cancelled:
            raise self._broken(f"{sent.value!r} has come, and was cancelled")
        if sent.is_refused:
            raise self._broken(f"{sent.value!r} has come, and was refused for certain")
        if sent.is_sure and sent.offset not in (None, record.offset):
            raise self._broken(f"{sent.value!r} is at {record.offset}, and its receipt says {sent.offset}")
        told = record.key, record.headers, record.timestamp, record.ttl
        if told != (sent.value, {"is": sent.value}, TIME, 1e6):
            raise self._broken(f"{sent.value!r} has come with {told}")

    def _check_time(self, sent: _PublishedLater) -> None:
        clock = self.world.clock
        now, wall = clock.monotonic(), clock.wall_us() / 1e6
        has_jumped = abs(wall - now - sent.skew_s) > 1e-3
        by_its_clock = wall if sent.kind == "instant" else now
        if sent.life != self._life:
            self._crossed = True
        if has_jumped and (sent.kind == "instant" or sent.life != self._life):
            return
        if by_its_clock < sent.due_s - 1e-5:
            raise self._broken(f"{sent.value!r} has come {sent.due_s - by_its_clock:g} s before its time")
        if not self.world.hits and sent.told_at is not None:
            due = sent.due_s - (sent.skew_s if sent.kind == "instant" else 0.0)
            if now > max(due, sent.told_at) + PROMPT_S:
                raise self._broken(f"{sent.value!r} has come {now - due:g} s late, and nothing has failed")

    async def _look(self, orders: Any) -> None:
        """Each is there as often as it should be, in the order in which it was due."""
        for partition in range(orders.partitions):
            found = [record async for record in orders.read(partition=partition)]
            for record in found:
                self._came(record)
            values = [record.value for record in found]
            if len(set(values)) < len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise self._broken(f"{twice!r} has come twice")
            self._check_order([self._sent[value] for value in values])
        for sent in self._sent.values():
            if self._is_owed(sent):
                raise self._broken(f"{sent.value!r} has not come")

    def _check_order(self, came: list[_PublishedLater]) -> None:
        """Of one kind, on clocks that did not jump."""
        if self._has_jumped():
            return
        for kind in ("delay", "instant"):
            of_kind = [each for each in came if each.kind == kind and each.told_at is not None]
            for index, before in enumerate(of_kind):
                due = before.due_s - (before.skew_s if kind == "instant" else 0.0)
                for after in of_kind[index + 1 :]:
                    is_known = after.told_at is not None and after.told_at < due
                    if is_known and after.due_s < before.due_s - TICK_S:
                        raise self._broken(
                            f"{after.value!r} was due before {before.value!r}, and came behind it"
                        )

    def _has_jumped(self) -> bool:
        clock = self.world.clock
        skews = [each.skew_s for each in self._sent.values()]
        skews.append(clock.wall_us() / 1e6 - clock.monotonic())
        return max(skews) - min(skews) > 1e-3

    def end(self) -> None:
        """Nothing went wrong inside."""
        expect_no_bugs(self.world)
        history, sent = self.world.history, self._sent.values()
        crashed = any(entry.who == "scheduler" for entry in history.of("ActorRestarted"))
        self.world.sometimes("a delayed message was cancelled", any(each.cancelled for each in sent))
        self.world.sometimes("a cancellation came too late", self._too_late)
        self.world.sometimes("a delay ended in a later life than it began in", self._crossed)
        self.world.sometimes("the scheduler crashed and came back", crashed)
        self.world.sometimes("a batch was stored in part, or waits in part", self._partly)
        self.world.sometimes("delayed messages were held", bool(history.of("DelayedHeld")))

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
