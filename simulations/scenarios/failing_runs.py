"""The scenario of messages that fail: consumers reject, nack, hang and crash on some, while everything else fails too.

Each message has a fate, which its value says. Between messages the dead letters are listed, and now and then some are
forgotten. What was listed of them has to hold ever after: none is lost, doubled or altered, a rejected message never
comes again, and in the end every message was either handled, or is dead for a reason that fits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from callboard.actors.delivery.dead_letters import LIMIT_REACHED, PROCESS_ENDED, RAN_OUT
from callboard.log.errors import DeadLettersFull, LeaseLost
from callboard.simulations.faults import aimed
from callboard.simulations.faults.swarm import FaultSpace
from callboard.simulations.scenarios.draws import (
    ACTORS_MAX,
    COUNT_MAX,
    between,
    check_counts,
    limits_of,
    one_of,
)
from callboard.simulations.scenarios.lives import expect_no_bugs, heal_in_time, live_until_done
from callboard.simulations.scenarios.operator import restart_failed
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.consumer.messages import ReceivedMessage
    from callboard.dead_letters.kept import DeadLetter
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.faults.kinds import Fault
    from callboard.simulations.world import Machine, World

PROMISE: Final = "what is given up is kept as it failed, and nothing else is given up"
GROUP: Final = "billing"
LIVENESS_S: Final = 600.0
VISIBILITY_S: Final = 2.0
IDLE_S: Final = 5.0
RETRIES: Final = (None, None, 1.5, (0.2, 2.5), (1.4, 0.1, 3.0))
SLACK_S: Final = 1e-3
CLOCK_US: Final = 1e5
"""Instants are turned into monotonic time and back, at each opening."""
FATES: Final = ("good", "good", "good", "reject", "fail", "hang")


@attrs.frozen(kw_only=True)
class FailingTraffic:
    """A workload: how many messages, how they end, and how much of that is kept."""

    messages: int = 12
    consumers: int = 1
    batch: int = 3
    max_deliveries: int = 3
    dead_letters: int = 100
    ordering: str = "none"
    forget_every: int = 3
    retry: float | tuple[float, ...] | None = None
    nacks_late: bool = False
    """Whether a handler that hangs nacks its message in the end: too late, unless no other has it by then."""

    def __attrs_post_init__(self) -> None:
        check_counts(
            type(self).__name__,
            {
                "messages": (self.messages, COUNT_MAX),
                "consumers": (self.consumers, ACTORS_MAX),
                "batch": (self.batch, COUNT_MAX),
            },
        )


class FailingMessages:
    """Rejects, nacks, hanging handlers and dead letters while disks, actors, processes and the power fail."""

    name = "failing-messages"
    space = FaultSpace(
        weights={
            "PowerCut": 4,
            "KillProcess": 3,
            "CrashActor": 4,
            "CrashInBatch": 2,
            "CrashInRecovery": 1,
            "FailVerb": 4,
            "FullDisk": 1,
        },
        actors=("topics/orders/0",),
        paths=("/delivery/", "/0/0000", ""),
        verbs=("write", "write", "sync", "sync", "create"),
        probes={"dead": 20, "rejected": 5, "disk.sync": 60, "disk.write": 60, "event.ActorStarted": 8},
        faults=(0, 5),
        horizon_s=6.0,
        down_s=(0.01, 0.5),
        for_s=(0.01, 1.0),
    )

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In some seeds the actors crash that do not hold the records, at any step."""
        return aimed.at_steps(entropy, self.space, ("groups/billing", "timer-wheel", "dead-letters"))

    def workload(self, entropy: SeededEntropy) -> FailingTraffic:
        """Few messages, many of which fail."""
        return FailingTraffic(
            messages=between(entropy, 3, 20),
            consumers=one_of(entropy, (1, 1, 2, 3)),
            batch=one_of(entropy, (1, 3, 10)),
            max_deliveries=one_of(entropy, (2, 3, 3, 4)),
            dead_letters=one_of(entropy, (1, 3, 100, 100)),
            ordering=one_of(entropy, ("none", "none", "key")),
            forget_every=between(entropy, 1, 5),
            retry=one_of(entropy.fork("retry"), RETRIES),
            nacks_late=one_of(entropy.fork("late"), (False, False, True)),
        )

    async def main(self, world: World, workload: FailingTraffic) -> None:
        """Run it in as many lives as it takes."""
        world.limits = limits_of((("dead_letters", max(1, workload.dead_letters)),))
        group = _FailingGroup(world, workload)
        world.spawn(group.watch)
        await world.machine_until_done(group.life)
        group.end()


class _FailingGroup:
    """The consumers, and what they were answered."""

    def __init__(self, world: World, workload: FailingTraffic) -> None:
        self.world = world
        self.workload = workload
        self.is_done = False
        self.lives = 0
        draws = world.entropy.fork("fates")
        self.fates = [one_of(draws, FATES) for _ in range(max(0, workload.messages))]
        self._nacked: dict[int, tuple[float, int]] = {}
        """By offset: until when it waits, and what `_losses` said then."""
        self._settled: dict[int, str] = {}
        """By offset: rejected or acked, as their consumers were answered."""
        self._values: dict[int, bytes] = {}
        """By offset, as they were seen."""
        self._listed: dict[int, tuple[int, int, str | None]] = {}
        """By offset: number, attempts and reason, as they were listed."""
        self._told: dict[int, tuple[Any, tuple[str, ...]]] = {}
        """By offset: first failure and consumers, as they were listed."""
        self._failed: dict[int, int] = {}
        """By offset: when its first failure was answered, by the wall clock; believed until `_losses` says that it may
        be lost.
        """
        self._forgetting = -1
        self._forgotten = -1
        self._looking = trio.Lock()

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
        self.lives += 1
        self._looking = trio.Lock()  # a machine that stops leaves the old one locked
        async with machine.open_runtime() as runtime:
            orders = await runtime.create_topic("orders")
            end = (await orders.describe())[0].next_offset
            for number in range(end, len(self.fates)):
                await orders.publish(self._value(number), key=b"%d" % (number % 3), partition=0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(restart_failed, runtime, name="operator")
                while not await self._is_over(orders):
                    async with trio.open_nursery() as consumers:
                        for number in range(max(1, self.workload.consumers)):
                            consumers.start_soon(self._consume, orders, name=f"consumer-{number}")
                nursery.cancel_scope.cancel()

    def _value(self, number: int) -> bytes:
        return f"{self.fates[number]} {number}".encode()

    def _fate(self, offset: int, value: bytes | None) -> str:
        """How the message at `offset` ends: it is what was published, and the same as before."""
        told = value or b""
        fate, _, number = told.decode("ascii", "replace").partition(" ")
        known = number.isdecimal() and int(number) < len(self.fates) and told == self._value(int(number))
        if not known or self._values.setdefault(offset, told) != told:
            raise self._broken(f"offset {offset} is {value!r}")
        return fate

    async def _is_over(self, orders: Any) -> bool:
        """Whether all is settled; some room is made for dead letters, for the case that it lacks."""
        (part,) = await orders.describe()
        if not part.groups:
            return not self.fates
        await self._look(orders, forget=part.groups[0].pending > 0)
        return bool(part.visible_end >= len(self.fates) and part.groups[0].pending == 0)

    async def _consume(self, orders: Any) -> None:
        settings: dict[str, Any] = {"ordering": self.workload.ordering, "visibility_timeout": VISIBILITY_S}
        settings |= {"backoff": 0.1} if self.workload.retry is None else {"retry": self.workload.retry}
        async with orders.subscribe(
            GROUP,
            name=f"clerk-{self.lives}",
            max_deliveries=max(1, self.workload.max_deliveries),
            max_in_flight=max(1, self.workload.batch),
            **settings,
        ) as consumer:
            handled = 0
            while (message := await consumer.get(timeout=IDLE_S)) is not None:
                try:
                    await self._handle(message)
                except (LeaseLost, DeadLettersFull):
                    self.world.probe("refused", str(message.offset))
                handled += 1
                await self._look(orders, forget=handled % max(1, self.workload.forget_every) == 0)

    async def _handle(self, message: ReceivedMessage) -> None:
        offset = message.offset
        if offset in self._settled:
            raise self._broken(f"offset {offset} comes again, and it was {self._settled[offset]}")
        until, losses = self._nacked.pop(offset, (0.0, 0))
        if losses == self._losses() and trio.current_time() < until - SLACK_S:
            raise self._broken(
                f"offset {offset} comes {until - trio.current_time():g} s before its delay is over"
            )
        fate, reason = self._fate(offset, message.value), f"reason of {offset}"
        if fate == "reject":
            await message.reject(reason=reason)
            self._settled[offset] = "rejected"
            self.world.probe("rejected", str(offset))
        elif fate == "fail":
            begun = trio.current_time()
            await message.nack(reason=reason)
            if not self._losses():
                self._failed.setdefault(offset, self.world.clock.wall_us())
            self._nacked[offset] = begun + self._delay_s(message.attempt), self._losses()
        elif fate == "hang":
            await trio.sleep(VISIBILITY_S * 1.5)
            if self.workload.nacks_late:
                await message.nack(reason=reason)
        else:
            await message.ack()
            self._settled[offset] = "acked"

    def _delay_s(self, attempt: int) -> float:
        """For how long at least a message waits that failed for the `attempt`-th time; 0 for a backoff."""
        retry = self.workload.retry
        if retry is None:
            return 0.0
        return retry[min(attempt, len(retry)) - 1] if isinstance(retry, tuple) else retry

    def _losses(self) -> int:
        """How often a nack that was answered may have been lost: it is not synced."""
        history = self.world.history
        failed = [entry for entry in history.of("fault") if entry.who.startswith(("FailVerb", "FullDisk"))]
        return len(history.of("power cut")) + len(failed)

    async def _look(self, orders: Any, *, forget: bool) -> None:
        """List the dead letters: all that was listed before is still so."""
        async with self._looking:
            kept = orders.dead_letters(GROUP)
            forgetting = self._forgetting
            letters = await kept.list()
            for letter in letters:
                self._check(letter)
            there = {letter.offset for letter in letters}
            for offset, (number, _, _) in self._listed.items():
                if offset not in there and number > forgetting:
                    raise self._broken(f"the dead letter of offset {offset}, number {number}, is lost")
            if forget and letters:
                self._forgetting = max(self._forgetting, letters[0].number)
                await kept.forget(letters[0])
                self._forgotten = self._forgetting

    def _check(self, letter: DeadLetter) -> None:
        offset = letter.offset
        if letter.record is None:
            raise self._broken(f"the dead letter of offset {offset} has lost its message")
        fate = self._fate(offset, letter.record.value)
        if letter.number <= self._forgotten:
            raise self._broken(f"the dead letter {letter.number} is back")
        if self._settled.get(offset) == "acked":
            raise self._broken(f"offset {offset} was acked, and is dead")
        fact = letter.number, letter.attempts, letter.reason
        if self._listed.setdefault(offset, fact) != fact:
            raise self._broken(f"offset {offset} is dead as {fact}, and was as {self._listed[offset]}")
        if len({number for number, _, _ in self._listed.values()}) < len(self._listed):
            raise self._broken(f"two dead letters have the number {letter.number}")
        who = letter.first_failed_at, letter.consumers
        if letter.first_failed_at is None or letter.first_failed_at > letter.failed_at:
            raise self._broken(f"offset {offset} failed first at {letter.first_failed_at}")
        failed_us = math.inf if self._losses() else self._failed.get(offset, math.inf)
        if letter.first_failed_at.timestamp() * 1e6 > failed_us + CLOCK_US:
            raise self._broken(f"offset {offset} failed before {letter.first_failed_at}, which is listed")
        if not letter.consumers or not all(name.startswith("clerk-") for name in letter.consumers):
            raise self._broken(f"offset {offset} failed in {letter.consumers}")
        if self._told.setdefault(offset, who)[1] != letter.consumers:
            raise self._broken(f"offset {offset} failed in {letter.consumers}, and in {self._told[offset]}")
        own = set() if fate == "good" else {f"reason of {offset}"}
        if letter.reason not in own | {RAN_OUT, PROCESS_ENDED, LIMIT_REACHED}:
            raise self._broken(f"offset {offset}, which is {fate}, is dead because of {letter.reason!r}")
        if self._settled.get(offset) == "rejected" and letter.reason not in own:
            raise self._broken(f"offset {offset} was rejected, and is dead because of {letter.reason!r}")
        limit = max(1, self.workload.max_deliveries)
        if letter.attempts > limit + self.lives or (letter.attempts < limit and fate != "reject"):
            raise self._broken(f"offset {offset}, which is {fate}, is dead after {letter.attempts} attempts")
        if fate == "good" and not self.world.hits:
            raise self._broken(f"offset {offset} is healthy, nothing has failed, and it is dead")
        self.world.probe("dead", str(offset))

    def end(self) -> None:
        """Everything is settled, by its fate."""
        dead = {self._values[offset] for offset in self._listed}
        for number, fate in enumerate(self.fates):
            if fate != "good" and self._value(number) not in dead and not self.world.hits:
                raise self._broken(f"message {number}, which is {fate}, is settled, and was in no list")
        expect_no_bugs(self.world)
        reasons = {reason for _, _, reason in self._listed.values()}
        self.world.sometimes("a message was rejected", "rejected" in self._settled.values())
        self.world.sometimes("a lease ran out for the last time", RAN_OUT in reasons)
        self.world.sometimes("a message died with its process", PROCESS_ENDED in reasons)

    def _broken(self, words: str) -> Violation:
        return self.world.broken(Violation(PROMISE, words))
