"""Handlers: groups whose consumers are `Topic.work`, with handlers that fail, take their time, and are cancelled.

Beside the promises of every broker: never more handlers at once than allowed, never two with one key in a partition,
none begun once the work was cancelled or an exception such as `SystemExit` has left another, and none that outlives its
grace period.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
import trio

import callboard
from callboard.consumer.fetcher import Fetcher
from callboard.consumer.handler_calls import HandlerSettlements
from callboard.consumer.messages import ReceivedMessage
from callboard.consumer.work import Working
from callboard.log.errors import CallboardError, InternalError
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import aimed
from callboard.simulations.faults.kinds import BusyLoop, Fault
from callboard.simulations.history.clients import ObservedConsumer
from callboard.simulations.history.entry import RECEIVING, member_name, plain
from callboard.simulations.scenarios.broker_runs import CONSUMERS, PARTITIONS, BrokerRun, BrokerSpace
from callboard.simulations.scenarios.broker_workload import (
    BACKOFF_S,
    MAX_BACKOFF_S,
    BodyFailure,
    BrokerWorkload,
)
from callboard.simulations.scenarios.draws import between, one_of
from callboard.simulations.scenarios.operator import OPERATOR_S
from callboard.simulations.scenarios.traffic import Traffic, draw_traffic
from callboard.simulations.violations import Violation
from callboard.simulations.world import Machine, World

PROMISE: Final = "handlers are called as they were asked for"
GRACES_S: Final = (0.0, 0.05, 0.05, 1.0)
HANDLING_S: Final = (0.0, 0.01, 0.05, 0.3, 0.3)
BUSY: Final = BusyLoop.__name__
LATE_S: Final = 0.001
"""By how much more a handler may be late than the loop was busy."""
SLACK_S: Final = 1e-6
REST_S: Final = OPERATOR_S / 4
LEFT_NTH: Final = 3
"""What leaves handlers does so at these offsets."""


@attrs.frozen(kw_only=True)
class HandlerTraffic(Traffic):
    """Traffic, and how it is handled."""

    concurrency: int = 4
    grace_s: float = 1.0
    retry_every: int = 0
    """Every n-th offset, a handler asks for the message again at its first attempt."""
    left_times: int = 0
    """How often at most an exception that is no `Exception` leaves a handler."""

    @property
    def work_s(self) -> float:
        """As of all traffic; with an order those that are asked for again may wait one after the other."""
        usual_s = self.usual_work_s + self.left_times * (REST_S + self.handling_s)
        if self.ordering == "none" or self.retry_every <= 0:
            return usual_s
        return usual_s + (self.messages // self.retry_every + 1) * max(0.0, self.nack_delay_s)


Place = tuple[str, str, int, int]
"""Group, topic, partition, offset."""


class AttemptsSeen:
    """What handlers of all calls of `work` have seen of each message."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[Place, int] = {}
        self._not_before_s: dict[Place, float] = {}

    def problem(self, place: Place, attempt: int) -> str:
        """A handler has this attempt; what is wrong with that, or nothing."""
        seen, self._seen[place] = self._seen.get(place, 0), attempt
        due_s = self._not_before_s.pop(place, 0.0)
        if self._world.hits:  # a crash spends attempts, a power cut takes a nack, which is not synced
            return ""
        if attempt > seen + 1:
            return f"no handler was given attempt {seen + 1} of {place}, and nothing had failed"
        if self._world.now < due_s - SLACK_S:
            return (
                f"{place} came {due_s - self._world.now:g} s before the time that its handler had asked for"
            )
        return ""

    def not_before(self, place: Place, due_s: float) -> None:
        """It does not come before that."""
        self._not_before_s[place] = due_s


class Handlers:
    """The handlers of one call of `work`, as they are called."""

    def __init__(self, world: World, group: str, concurrency: int, attempts: AttemptsSeen) -> None:
        self._world = world
        self._group = group
        self._concurrency = concurrency
        self._attempts = attempts
        self._asked_for_s: dict[Place, float] = {}
        self._running: Counter[tuple[str, int, bytes | None]] = Counter()
        self.ended_s = math.inf
        """When no handler may begin any more."""
        self.over_s = math.inf
        """When none may run any more."""
        self.is_left = False
        """An exception has left one."""

    def begin(self, message: ReceivedMessage) -> tuple[str, int, bytes | None]:
        """A handler is called."""
        place, running = (message.topic, message.partition, message.key), self._running.total() + 1
        problem = self._attempts.problem(self.place_of(message), message.attempt)
        if running > self._concurrency:
            problem = f"{running} handlers run at once, and {self._concurrency} may"
        elif message.key is not None and self._running[place]:
            problem = f"two handlers run at once with messages of key {message.key!r}"
        elif self._is_past(self.ended_s):
            problem = "a handler was called after the work was cancelled"
        elif self.is_left:
            problem = "a handler was called after an exception had left another"
        if problem:
            self._break(problem)
        self._running[place] += 1
        return place

    def place_of(self, message: ReceivedMessage) -> Place:
        """Where it is."""
        return self._group, message.topic, message.partition, message.offset

    def try_again(self, message: ReceivedMessage, delay_s: float) -> callboard.Retry:
        """A handler asks for it again."""
        self._asked_for_s[self.place_of(message)] = self._world.now + delay_s
        return callboard.Retry(after=delay_s)

    def nacked(self, message: ReceivedMessage) -> None:
        """That it is to come again is settled."""
        place = self.place_of(message)
        due_s = self._asked_for_s.pop(place, None)
        if due_s is not None:
            self._attempts.not_before(place, due_s)

    def end(self, place: tuple[str, int, bytes | None]) -> None:
        """It has returned, raised, or was cancelled."""
        self._running[place] -= 1
        if self._is_past(self.over_s):
            self._break("a handler ran on when its grace was over")

    def _is_past(self, time_s: float) -> bool:
        """Whether that time is over, also when the loop was busy as it came."""
        now = self._world.now
        if now <= time_s + LATE_S:
            return False
        busy = [entry.time for entry in self._world.history.of("fault") if entry.who == BUSY]
        return now > max([time_s, *busy]) + LATE_S

    def _break(self, words: str) -> None:
        raise self._world.broken(Violation(PROMISE, words))


@attrs.frozen
class JoinNotice:
    """What a call of `work` notifies that it has joined."""

    tell: Callable[[], object]

    def started(self, _: None = None) -> None:
        """It has joined."""
        self.tell()


class ObservedWorking(Working):
    """One call of `work`, of which the history says when it has left."""

    observed: ObservedConsumer
    has_left: bool = False

    def leave(self) -> None:
        """From here on it is no member: recorded before it leaves, since others see that a moment earlier."""
        if not self.has_left:
            self.has_left = True
            consumer = self.observed
            consumer._record("left", consumer.life, detail="crashed" if consumer.is_crashed else "")

    async def _hold(self) -> None:
        try:
            await super()._hold()
        finally:
            self.leave()


class ObservedSettlements(HandlerSettlements):
    """Settlements that stand in the history."""

    def __init__(self, fetcher: Fetcher, observed: ObservedConsumer, handlers: Handlers) -> None:
        super().__init__(fetcher)
        self.observed = observed
        self.handlers = handlers

    async def ack(self, message: ReceivedMessage) -> None:
        """As the production code, recorded."""
        await self.observed.ack(message, wait=False)

    async def nack(self, message: ReceivedMessage, delay: float | None, reason: str | None) -> None:
        """As the production code, recorded."""
        if await self.observed.nack(message, delay=delay, reason=reason) == "nacked":
            self.handlers.nacked(message)

    async def flush(self) -> None:
        """As the production code, recorded."""
        await self.observed.flush()


class HandlerWorkload(BrokerWorkload):
    """Clients that publish, and handlers in the place of consumers."""

    def __init__(self, world: World, traffic: HandlerTraffic) -> None:
        super().__init__(world, traffic)
        self.terms = attrs.evolve(self.terms, gives_back=True)
        self._attempts = AttemptsSeen(world)
        self._left: set[Place] = set()

    async def _consumer(self, machine: Machine, topic: Any, group: str, style: str, who: str) -> None:
        while True:
            if await self._work(machine, topic, group, who):
                await self.world.rest(REST_S)

    async def _work(self, machine: Machine, topic: Any, group: str, who: str) -> bool:
        """One call of `work`; whether a fault has cancelled it, or an error ended it."""
        traffic: Any = self.traffic
        world, life = self.world, self.world.history.operation()
        settings: dict[str, Any] = {
            "visibility_timeout": max(0.05, traffic.visibility_s),
            "backoff": BACKOFF_S,
            "max_backoff": MAX_BACKOFF_S,
            "ordering": traffic.ordering,
        }
        handlers, failure = Handlers(world, group, traffic.concurrency, self._attempts), ""
        inner = topic.subscribe(group, name=member_name(who, life), **settings)
        consumer = ObservedConsumer(world, machine.number, inner, topic.name, who, life)
        handle = partial(self._handle_one, consumer, handlers)
        settlements = ObservedSettlements(inner._fetcher, consumer, handlers)
        working = ObservedWorking(inner._fetcher, handle, traffic.concurrency, traffic.grace_s, settlements)
        working.observed = consumer
        consumer._record("joining", life, detail=plain(settings))
        world.consumers[who] = consumer
        try:
            with consumer._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._note_cancelled, handlers, name=f"{who}'s end")
                    try:
                        await working.run(JoinNotice(lambda: consumer._record("joined", life)))
                    except InternalError:
                        raise
                    except CallboardError as error:
                        failure = type(error).__name__
                    except LeavesHandler:
                        pass
                    except BaseExceptionGroup as group:
                        _, rest = group.split(LeavesHandler)  # several at once
                        if rest is not None:
                            raise rest from None
                    nursery.cancel_scope.cancel()
        finally:
            working.leave()
            consumer._record("gone", life, detail=failure or "Cancelled")
            world.probe("gone", who)
            if world.consumers.get(who) is consumer:
                del world.consumers[who]
        return True

    async def _note_cancelled(self, handlers: Handlers) -> None:
        try:
            await trio.sleep_forever()
        finally:
            traffic: Any = self.traffic
            handlers.ended_s = self.world.now
            handlers.over_s = handlers.ended_s + traffic.grace_s

    async def _handle_one(
        self, consumer: ObservedConsumer, handlers: Handlers, message: ReceivedMessage
    ) -> None:
        traffic: Any = self.traffic
        place = handlers.begin(message)
        try:
            consumer._delivered(message, RECEIVING)
            await self._handle(consumer, message)
            self._leave(handlers, message)
            fate = self._fate(consumer, message)
            if fate == "release":
                await consumer.release(message)
                return
        except (trio.Cancelled, LeavesHandler):
            # It is given back by a notice, which its partition takes before the lease runs out, however late.
            if not message.settled:
                operation, offsets = self.world.history.operation(), (message.offset,)
                consumer._record("release", operation, message, offsets, attempts=(message.attempt,))
                is_over = self.world.now >= message.deadline  # then giving back has no effect
                consumer._record("lost" if is_over else "released", operation, message, offsets)
            raise
        finally:
            handlers.end(place)
        if message.attempt == 1 and _is_nth(message.offset, traffic.retry_every):
            again = handlers.try_again(message, traffic.nack_delay_s)
            raise again if message.offset % 2 else ExceptionGroup("of the handler's own nursery", [again])
        if fate == "nack":
            raise await _failure(message.offset)

    def _leave(self, handlers: Handlers, message: ReceivedMessage) -> None:
        """At a few messages, the first time: raise what ends the work."""
        traffic: Any = self.traffic
        place = handlers.place_of(message)
        if (
            _is_nth(message.offset, LEFT_NTH)
            and place not in self._left
            and len(self._left) < traffic.left_times
        ):
            self._left.add(place)
            handlers.is_left = True
            raise LeavesHandler


class LeavesHandler(BaseException):
    """As `SystemExit`: it ends the work."""


class Untold(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise LookupError


async def _failure(number: int) -> BaseException:
    """Something that a handler fails with, in turn: an error, one without text, the cancellation of another task."""
    if number % 3 == 0:
        return BodyFailure()
    if number % 3 == 1:
        return Untold()
    cancelled: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled as error:
            cancelled.append(error)
            raise
    return cancelled[0]


def _is_nth(offset: int, every: int) -> bool:
    return every > 0 and offset % every == every - 1


class HandlerRun(BrokerRun):
    """Handlers under every kind of fault."""

    name = "handlers"
    space = BrokerSpace(faults=(0, 6), horizon_s=1.5, for_s=(0.01, 15.0))

    def aimed(self, entropy: SeededEntropy) -> list[Fault]:
        """In most seeds some work is cancelled while handlers run; in others actors crash that serve it."""
        crashes = aimed.at_steps(entropy.fork("steps"), self.space, ("groups/group-0", "timer-wheel"))
        held = aimed.while_held(entropy.fork("held"), PARTITIONS, 20)
        return [*aimed.amid_bodies(entropy, CONSUMERS[:2], 30), *crashes, *held]

    async def main(self, world: World, workload: HandlerTraffic) -> None:  # type: ignore[override]
        """Run the clients until everything is settled."""
        await HandlerWorkload(world, workload).run()

    def workload(self, entropy: SeededEntropy) -> HandlerTraffic:
        """Traffic of any kind with consumers, a few handlers at a time."""
        own = entropy.fork("handlers")
        drawn = attrs.asdict(draw_traffic(entropy, messages=(8, 120)), recurse=False)
        styles = drawn["styles"] or ("receive",)
        traffic = HandlerTraffic(
            **{
                **drawn,
                "styles": styles,
                "keys": one_of(own, (0, 1, 3, 7)),
                "consumers": one_of(own, (1, 1, 2)),
                "pause_s": one_of(own, (0.0, 0.0, 0.01)),
                "nack_delay_s": one_of(own, (0.1, 1.0)),
                "handling_s": one_of(own, HANDLING_S),
                "lag_s": 0.0,
                "forget_every": 0,
                "release_every": one_of(own, (0, 0, 11)),
                "ordering": one_of(own, ("none", "none", "key")),
            },
            concurrency=one_of(own, (1, 3, 5, 20)),
            grace_s=one_of(own, GRACES_S),
            retry_every=one_of(own, (0, 0, 5)),
            left_times=one_of(own, (0, 0, 1, 3)),
        )
        long = entropy.fork("long")
        if long.random() < 0.75:
            return traffic
        # Bodies outlast their leases, several at a time in different partitions.
        return attrs.evolve(
            traffic,
            messages=between(long, 8, 20),
            partitions=between(long, 2, 3),
            styles=("receive",),
            visibility_s=0.5,
            handling_s=one_of(long, (0.3, 0.8)),
            concurrency=between(long, 3, 6),
        )
