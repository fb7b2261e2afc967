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
    from callboard.simulations.world import World

NAME: Final = "passing"
"""Of the topic, and of its group."""
PROMISE: Final = "what is deleted comes back to nobody"
MESSAGES: Final = 5
PATIENCE_S: Final = 2.0
"""How long the group waits for a message; while things fail that may be too short."""


async def pass_by(world: World, runtime: Any, settings: dict[str, Any], times: int) -> None:
    """Make, use and delete the topic so many times; what fails is left, and the next one begins with what is there."""
    for _ in range(times):
        life = world.history.operation()
        try:
            await _one(world, runtime, settings, life)
        except CallboardError as error:
            world.note(f"passer-by: {type(error).__name__}")
            await trio.sleep(PATIENCE_S)


async def _one(world: World, runtime: Any, settings: dict[str, Any], life: int) -> None:
    for group in await runtime.groups():
        if group.name == NAME:
            await runtime.delete_group(NAME)
    if any(topic.name == NAME for topic in runtime.topics()):
        await runtime.delete_topic(NAME)
    topic = await runtime.create_topic(NAME, **settings | {"partitions": 1})
    is_healed, published = world.healed.is_set(), []
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
    is_short = is_healed and len(seen) < MESSAGES
    if is_short or seen != published[: len(seen)]:
        words = f"life {life} of topic {NAME} published {published!r:.300}, and its group was handed {seen!r:.300}"
        raise world.broken(Violation(PROMISE, words))
    world.sometimes("a deleted topic was made again", True)
