"""Passing topics: made, used and deleted under one name again and again, beside a topic that stays.

Whoever makes a topic, or a group, after one of its name was deleted begins with nothing: what a deleted one held comes
back to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.log.errors import CallboardError
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.scenarios.broker_workload import BrokerWorkload
    from callboard.simulations.world import Machine

NAME: Final = "passing"
"""Of the topic, and of its group."""
PROMISE: Final = "what is deleted comes back to nobody"
MESSAGES: Final = 5
PATIENCE_S: Final = 2.0
"""How long the group waits for a message that somebody may have, or that failed."""


async def pass_by(machine: Machine, runtime: Any, workload: BrokerWorkload) -> None:
    """Make, use and delete the topic as often as the traffic says; after an error begin again with the next one."""
    world = workload.world
    for _ in range(workload.traffic.passing):
        life = world.history.operation()
        try:
            await _one(machine, runtime, workload, life)
        except CallboardError as error:
            world.note(f"passer-by: {type(error).__name__}")
        await trio.sleep(workload.traffic.pause_s)


async def _one(machine: Machine, runtime: Any, workload: BrokerWorkload, life: int) -> None:
    world = workload.world
    for group in await runtime.groups():
        if group.name == NAME:
            await runtime.delete_group(NAME)
    if any(topic.name == NAME for topic in runtime.topics()):
        await runtime.delete_topic(NAME)
    topic = await runtime.create_topic(NAME, **workload.settings | {"partitions": 1})
    published = []
    for number in range(MESSAGES):
        value = b"passing %d in life %d" % (number, life)
        receipt = await topic.publish(value)
        published.append((receipt.offset, value))
    seen = []
    async with topic.subscribe(NAME, visibility_timeout=PATIENCE_S, max_in_flight=2) as consumer:
        while (message := await consumer.get(timeout=PATIENCE_S)) is not None:
            seen.append((message.offset, message.value))
            await message.ack()
            if len(seen) == MESSAGES:
                break
    if seen != published:
        words = f"life {life} of topic {NAME} published {published!r:.300}, and its group was handed {seen!r:.300}"
        raise world.broken(Violation(PROMISE, words))
    world.sometimes("a deleted topic was made again", True)
