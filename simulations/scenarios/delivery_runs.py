"""Deliveries: few messages, and consumers that wait for most of the time and do everything with what they get.

They ack, late too, nack with short and long delays, give back, extend leases and shorten them, forget what they have,
leave and die; the runtime is closed and opened again meanwhile, with snapshots and clocks that jump. A consumer that
waits must be handed a message as soon as there is one for it, whatever made it ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.log.errors import CallboardError, LeaseLost, PartitionUnavailable, RuntimeClosed
from callboard.log.limits import SEGMENT_BYTES_MIN
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import Fault, aimed
from callboard.simulations.faults.reaching import cell_of, crash
from callboard.simulations.history.clients import ObservedConsumer
from callboard.simulations.scenarios.broker_runs import PARTITIONS, BrokerSpace
from callboard.simulations.scenarios.broker_workload import (
    MAX_BACKOFF_S,
    MOMENT_S,
    BodyFailure,
    BrokerWorkload,
)
from callboard.simulations.scenarios.cut_when_told import cut_when_told
from callboard.simulations.scenarios.draws import (
    BROKER_LIMITS,
    COUNT_MAX,
    NAMES_MAX,
    WINDOW_LIMITS,
    between,
    draw_limits,
    one_of,
    sized,
)
from callboard.simulations.scenarios.traffic import TOPIC, Traffic
from callboard.simulations.world import World
from callboard.simulations.world.bounds import running

if TYPE_CHECKING:
    from callboard.simulations.world import Machine

FATES: Final = (
    "ack",
    "nack",
    "release",
    "extend",
    "shorten",
    "forget",
    "late",
    "lazy",
    "leave",
    "die",
)
"""What may become of a message: see `DeliveryWorkload`."""
WAYS: Final = ("get", "timeout", "receive", "batch", "iterate")
"""How a consumer asks."""
CRASHES: Final = 3
"""This many times partitions are crashed while they read."""
TRIES: Final = 3
"""This many times a message may meet another fate before it is acked."""
SHORT_S: Final = 0.2
"""What leases are shortened to."""
PAUSE_S: Final = 0.25
"""After an error, and before a consumer that died comes again."""


@attrs.frozen(kw_only=True)
class DeliveryTraffic(Traffic):
    """Few messages, and what consumers do with them."""

    fates: tuple[str, ...] = FATES
    """In turns, by offset and attempt."""
    ways: tuple[str, ...] = WAYS
    """In turns, each consumer for itself."""
    delays_s: tuple[float, ...] = (0.0, 0.5, -1.0)
    """Of nacks, in turns; below 0: the group's backoff."""
    fills_s: float = 0.01
    """How long a batch may be held back to be filled."""
    timeout_s: float = 0.5
    """For how long a message is waited for, unless for ever."""
    rest_s: float = 0.0
    """How long a consumer does nothing when it has given something back, shortened its lease, or forgotten it."""
    reopenings: int = 0
    """How often the runtime is closed and opened again."""
    reopen_s: float = 1.0
    """How long it is open before."""
    crash_at_read: int = 0
    """At every n-th read for a lease its partition crashes before that is answered; 0: never."""
    cut_when_told: int = 0
    """At which success after the first fault the power is cut; 0: never."""

    def _counts(self) -> dict[str, tuple[int, int]]:
        return Traffic._counts(self) | {
            "fates": (len(self.fates), NAMES_MAX),
            "ways": (len(self.ways), NAMES_MAX),
            "delays_s": (len(self.delays_s), NAMES_MAX),
            "reopenings": (self.reopenings, COUNT_MAX),
            "crash_at_read": (self.crash_at_read, COUNT_MAX),
            "cut_when_told": (self.cut_when_told, COUNT_MAX),
        }

    @property
    def work_s(self) -> float:
        """The longest that it can take when each try of each message meets the longest fate, one after the other."""
        longest_s = max(2.0 * self.visibility_s, *self.delays_s, MAX_BACKOFF_S)
        tries = TRIES * max(1, self.messages)
        longest_s += max(0.0, self.rest_s) + 20 * max(0.0, self.latency_s)
        return self.usual_work_s + tries * longest_s + max(0, self.reopenings) * max(0.1, self.reopen_s)


class _Died(Exception):
    """A consumer's own failure, which it does not survive."""


class DeliveryWorkload(BrokerWorkload):
    """Consumers for which waiting is the normal state."""

    traffic: DeliveryTraffic

    def __init__(self, world: World, traffic: DeliveryTraffic) -> None:
        super().__init__(world, traffic)
        self._tries: Counter[tuple[str, str, int, int]] = Counter()
        self._asked: Counter[str] = Counter()
        self._crashes, self._reads = CRASHES, 0
        self._reopenings = traffic.reopenings
        cut_when_told(world, traffic.cut_when_told)

    async def beside(self, machine: Machine, runtime: Any, nursery: trio.Nursery) -> None:
        """Crash partitions while they read; close the runtime after a while, in good order."""
        if self.traffic.crash_at_read > 0:
            self.world.probes.wait("disk.read", 1, ".log", self._read_begins)
        if self._reopenings <= 0:
            return
        self._reopenings -= 1
        await trio.sleep(max(0.1, self.traffic.reopen_s))
        self.reopens = True
        nursery.cancel_scope.cancel()

    def _read_begins(self) -> None:
        """Crash a partition of which a consumer waits for what was leased to it, at every n-th such read."""
        if not self._crashes or self.world.healed.is_set():
            return
        self.world.probes.wait("disk.read", 1, ".log", self._read_begins)
        for partition in range(max(1, self.traffic.partitions)):
            cell = cell_of(self.world, f"topics/{TOPIC}/{partition}")
            actor = None if cell is None else running(cell)
            if actor is None or not any(group.pending for group in actor._core.states):
                continue
            self._reads += 1
            if self._reads % self.traffic.crash_at_read == 0:
                self._crashes -= 1
                crash(self.world, cell, "crashed while it read")

    def work_of(self, style: str) -> Callable[[ObservedConsumer], Any]:
        """All do everything."""
        return self._work

    async def _work(self, consumer: ObservedConsumer) -> None:
        ways = self.traffic.ways or WAYS
        while True:
            way = ways[(self._asked[consumer.who] + len(consumer.who)) % len(ways)]
            self._asked[consumer.who] += 1
            try:
                if way == "receive":
                    await self._receive_one(consumer)
                    continue
                held = await self._next(consumer, way)
                if held is None:
                    await self._pause()
                elif await self._treat(consumer, held) == "leave":
                    return
            except (PartitionUnavailable, RuntimeClosed):
                raise
            except LeaseLost:
                continue
            except CallboardError:
                await trio.sleep(PAUSE_S)
            except _Died:
                await trio.sleep(PAUSE_S)
                return

    async def _next(self, consumer: ObservedConsumer, way: str) -> Any:
        if way == "batch":
            return await consumer.next_batch(max_records=5, max_wait=max(0.0, self.traffic.fills_s))
        if way == "timeout":
            return await consumer.get(timeout=max(0.0, self.traffic.timeout_s))
        return await (consumer.__anext__() if way == "iterate" else consumer.get())

    async def _pause(self) -> None:
        """Nothing came in time: ask again at once, if asking takes time."""
        if self.traffic.timeout_s < MOMENT_S:
            await trio.sleep(PAUSE_S)

    def _turn(self, consumer: ObservedConsumer, message: Any) -> int:
        """A number that stands for this delivery; 0 when the message is to be acked now."""
        place = consumer.inner.group, message.topic, message.partition, message.offset
        self._tries[place] += 1
        tries = self._tries[place]
        return 0 if tries > TRIES else 1 + 5 * message.offset + 3 * tries + len(self._tries)

    def _fate_of(self, turn: int) -> str:
        fates = self.traffic.fates
        return fates[turn % len(fates)] if turn and fates else "ack"

    def _delay(self, turn: int) -> float:
        delays_s = self.traffic.delays_s or (0.0,)
        return delays_s[turn // 7 % len(delays_s)]

    async def _receive_one(self, consumer: ObservedConsumer) -> None:
        try:
            async with consumer.receive(timeout=max(0.0, self.traffic.timeout_s)) as message:
                if message is None:
                    await self._pause()
                    return
                turn = self._turn(consumer, message)
                fate = self._fate_of(turn)
                if fate in ("late", "extend"):
                    await trio.sleep(1.5 * self.traffic.visibility_s)
                elif fate in ("nack", "die"):
                    raise BodyFailure
                elif fate == "release":
                    await consumer.release(message)
                elif fate == "shorten":  # and it goes on: the lease is renewed before that is over
                    await consumer.extend(message, SHORT_S)
                    await trio.sleep(1.5 * self.traffic.visibility_s)
        except BodyFailure:
            return

    async def _treat(self, consumer: ObservedConsumer, held: Any) -> str:
        messages: Iterable[Any] = held if hasattr(held, "attempts") else (held,)
        message = next(iter(messages))
        turn, visibility_s = self._turn(consumer, message), self.traffic.visibility_s
        fate = self._fate_of(turn)
        if fate == "die":
            raise _Died
        if fate == "shorten":
            await consumer.extend(message, SHORT_S)
        elif fate == "nack":
            delay_s = self._delay(turn)
            await consumer.nack(held, delay=delay_s if delay_s >= 0 else None)
        elif fate == "release":
            await consumer.release(held)
        elif fate == "lazy":
            await consumer.ack(held, wait=False)
            await trio.sleep(SHORT_S)
            await consumer.flush()
        elif fate not in ("forget", "leave"):
            if fate == "extend":
                await consumer.extend(message, 2.0 * visibility_s)
            if fate in ("extend", "late"):
                await trio.sleep(1.2 * visibility_s)
            if await consumer.ack(held) == "unsure":
                await trio.sleep(PAUSE_S)
                await consumer.ack(held)
        if fate in ("shorten", "forget", "nack", "release"):
            await trio.sleep(max(0.0, self.traffic.rest_s))
        return fate


class DeliveryRuns:
    """Messages now and then, consumers that wait, and everything that can happen to a lease."""

    name = "deliveries"
    space = BrokerSpace(
        weights={
            "CrashActor": 4,
            "CrashInBatch": 2,
            "CrashConsumer": 2,
            "KillProcess": 3,
            "PowerCut": 2,
            "JumpClock": 2,
            "FailVerb": 2,
            "FailRead": 1,
            "FullDisk": 1,
            "SlowDisk": 1,
            "PauseActor": 1,
            "CrashOnMessage": 1,
        },
        faults=(0, 4),
        horizon_s=6.0,
        for_s=(0.01, 2.0),
        down_s=(0.01, 1.0),
        probes={
            "disk.write": 200,
            "disk.read": 60,
            "disk.sync": 100,
            "deliver": 80,
            "nacked": 20,
            "released": 10,
            "acked": 50,
            "published": 50,
        },
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the power is lost while leases are not synced; in others partitions crash on questions."""
        chance = entropy.random()
        if chance < 0.4:
            return aimed.between_syncs(entropy, "deliver", 30)
        return aimed.at_questions(entropy, PARTITIONS[:2], 6.0) if chance < 0.8 else []

    def workload(self, entropy: SeededEntropy) -> DeliveryTraffic:
        """Some tens of messages, most of them alone; some fates and ways of all, so that each pair of them meets."""
        visibility_s = one_of(entropy, (1.0, 3.0, 10.0))
        limits = dict(draw_limits(entropy.fork("limits"), BROKER_LIMITS + WINDOW_LIMITS))
        if one_of(entropy, (False, True)):
            limits["tail_cache_bytes"] = 1
        if one_of(entropy, (False, True)):
            limits["snapshot_every_bytes"] = between(entropy, 200, 1_000)
        return DeliveryTraffic(
            messages=sized(entropy, 5, 40),
            partitions=one_of(entropy, (1, 1, 2)),
            publishers=between(entropy, 1, 2),
            batch=one_of(entropy, (1, 1, 4)),
            keys=one_of(entropy, (0, 3)),
            pause_s=one_of(entropy, (0.05, 0.2, 0.6)),
            acks=one_of(entropy, (("all",), ("all",), ("all", "leader"))),
            segment_bytes=SEGMENT_BYTES_MIN,
            styles=("all",) * one_of(entropy, (1, 1, 2)),
            consumers=between(entropy, 1, 3),
            ordering=one_of(entropy, ("none", "none", "none", "key")),
            visibility_s=visibility_s,
            altered_visibility_s=one_of(entropy, (0.0, 0.0, visibility_s / 2)),
            max_in_flight=one_of(entropy, (0, 1, 1, 1, 4)),
            fates=tuple(fate for fate in FATES if entropy.random() < 0.5),
            ways=tuple(way for way in WAYS if entropy.random() < 0.5),
            delays_s=tuple(delay_s for delay_s in (0.0, 0.3, 2.0, 6.0, -1.0) if entropy.random() < 0.5),
            fills_s=one_of(entropy, (0.0, 0.01, 0.2)),
            timeout_s=one_of(entropy, (0.0, 0.3, 1.0, 5.0)),
            rest_s=one_of(entropy, (0.0, 1.0)),
            latency_s=one_of(entropy, (0.0, 0.001, 0.005)),
            reopenings=one_of(entropy, (0, 1, 3)),
            reopen_s=one_of(entropy, (0.5, 2.0)),
            crash_at_read=one_of(entropy, (0, 0, 1, 2, 5)),
            cut_when_told=one_of(entropy, (0, 0, 1, 2)),
            readers=one_of(entropy, (0, 0, 1)),
            poll_s=0.5,
            limits=tuple(limits.items()),
        )

    async def main(self, world: World, workload: DeliveryTraffic) -> None:
        """Run the clients until everything is settled."""
        await DeliveryWorkload(world, workload).run()
