"""Who is served next, when nothing fails: consumers of a shared group wait, and messages come one by one.

`TakesTurns` is a part of a run. It has a group of its own, whose consumers keep some of what they are given and settle
the rest, so that some have more in flight than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.simulations.scenarios.draws import one_of
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.entropy import SeededEntropy
    from callboard.simulations.world import World

LOAD_PROMISE: Final = "the consumer with the fewest messages in flight is served"
CHANCE_PROMISE: Final = "at random everybody is served, in no fixed order"
GROUP: Final = "turns"
VISIBILITY_S: Final = 10_000.0
BEGIN_S: Final = 1.0
TURN_S: Final = 0.2
"""Between two messages: everybody waits again."""
BY_LOAD: Final = 4
BY_CHANCE: Final = 24
"""This many messages come for each consumer."""


class TakesTurns:
    """A part of a run that checks who is served next, with a group and consumers of its own."""

    def __init__(self, world: World, draws: SeededEntropy, distribution: str, consumers: int) -> None:
        self.world = world
        self._draws = draws
        self._distribution = distribution
        self._held = [0] * consumers
        """What each consumer has in flight."""
        self._served: list[int] = []
        """The consumers, in the order in which they were given messages."""

    async def take(self, topic: Any) -> None:
        """Publish messages one by one, and see who gets them."""
        count = len(self._held)
        is_by_load = self._distribution == "least-busy"
        async with trio.open_nursery() as nursery:
            for number in range(count):
                await nursery.start(self._consume, topic, number, name=f"turns of {number}")
            await self.world.rest(BEGIN_S)
            for number in range((BY_LOAD if is_by_load else BY_CHANCE) * count):
                await topic.publish(b"turn %d" % number, partition=0)
                await self.world.rest(TURN_S)
            nursery.cancel_scope.cancel()
        if not is_by_load:
            self._check_chance(count)

    async def _consume(self, topic: Any, number: int, *, task_status: Any) -> None:
        settings = {"distribution": self._distribution, "visibility_timeout": VISIBILITY_S}
        async with topic.subscribe(GROUP, start="end", **settings) as consumer:
            task_status.started()
            async for message in consumer:
                self._served.append(number)
                if self._distribution == "least-busy" and self._held[number] > min(self._held):
                    raise self._broken(
                        LOAD_PROMISE, f"consumer {number} is served; in flight are, by consumer: {self._held}"
                    )
                if one_of(self._draws, (True, False)):
                    self._held[number] += 1
                else:
                    await message.ack()

    def _check_chance(self, count: int) -> None:
        served = self._served
        if len(set(served)) < count:
            raise self._broken(CHANCE_PROMISE, f"of {count} consumers only {sorted(set(served))} were served")
        if count > 1 and all(one == other for one, other in zip(served, served[count:], strict=False)):
            raise self._broken(CHANCE_PROMISE, f"consumers are served in a fixed order: {served[:count]}")

    def _broken(self, promise: str, words: str) -> Violation:
        return self.world.broken(Violation(promise, words))
