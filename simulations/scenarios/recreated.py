"""A topic that is made, used and deleted under one name again and again, beside topics that stay.

Whoever makes a topic, or a group, after one of its name was deleted begins with nothing: what a deleted one held comes
back to nobody. A consumer that has left is no member, its id is nobody else's, and a group that does not outlive its
consumers goes with the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.log.errors import CallboardError, ConfigurationError
from callboard.simulations.checkers import reading
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.world import World

NAME: Final = "passing"
"""Of the topic, and of its group."""
BRIEF: Final = "brief"
"""Of a group that does not outlive its consumers."""
EXPIRING: Final = "expiring"
"""Of a durable group that expires soon."""
PROMISE: Final = "what is deleted comes back to nobody"
MEMBERSHIP: Final = "who has left is gone, and nobody else has its id"
EXPIRY: Final = "groups go when they should"
MESSAGES: Final = 5
PAUSE_S: Final = 0.01
"""After every second message, so that some have one time and some another."""
PATIENCE_S: Final = 2.0
"""How long the group waits for a message, and groups are waited for; while things fail that may be too short."""

EXPIRY_S: Final = 1.0
"""The shortest that a group can have."""


class RecreatedTopic:
    """The topic's only user, who makes and deletes it. It outlives the machine, and remembers the ids of consumers."""

    def __init__(self, world: World, settings: dict[str, Any]) -> None:
        self._world = world
        self._settings = settings | {"partitions": 1}
        self._ids: set[int] = set()

    async def recreate(self, runtime: Any, times: int) -> None:
        """This many times; what fails is left, and the next one begins with what is there."""
        for _ in range(times):
            life = self._world.history.operation()
            try:
                await self._once(runtime, life)
            except ConfigurationError:
                raise
            except CallboardError as error:
                self._world.note(f"recreated topic: {type(error).__name__}")
                await trio.sleep(PATIENCE_S)

    async def _once(self, runtime: Any, life: int) -> None:
        world = self._world
        for group in await runtime.groups():
            if group.name in (NAME, BRIEF, EXPIRING):
                await runtime.group(group.name).delete()
        if any(topic.name == NAME for topic in runtime.topics()):
            await runtime.delete_topic(NAME)
        topic = await runtime.create_topic(NAME, **self._settings)
        is_healed = world.healed.is_set()
        published = []
        for number in range(MESSAGES):
            value = b"passing %d in life %d" % (number, life)
            receipt = await topic.publish(value)
            published.append((receipt.offset, value))
            if number % 2:
                await trio.sleep(PAUSE_S)
        seen = []
        await self._read_by_time(topic)
        async with topic.subscribe(NAME, visibility_timeout=PATIENCE_S, max_in_flight=2) as consumer:
            await self._note_id(runtime)
            while (message := await consumer.get(timeout=PATIENCE_S)) is not None:
                seen.append((message.offset, message.value))
                await message.ack()
                if len(seen) == MESSAGES:
                    break
        is_short = is_healed and len(seen) < MESSAGES
        if is_short or seen != published[: len(seen)]:
            words = (
                f"life {life} of {NAME} published {published!r:.300}, and its group was handed {seen!r:.300}"
            )
            raise world.broken(Violation(PROMISE, words))
        world.sometimes("a deleted topic was made again", True)
        async with topic.subscribe(BRIEF, durable=False):
            pass
        async with topic.subscribe(EXPIRING, group_expiry=EXPIRY_S):
            pass
        await self._check_gone(runtime, is_healed)

    async def _read_by_time(self, topic: Any) -> None:
        """From each instant at which a record was stored, readers get that record and all behind it."""
        records = [record async for record in topic.read()]
        times = [record.append_time for record in records]
        if times != sorted(times):
            return  # the clock was set back
        for instant in sorted(set(times)):
            found = [record.offset async for record in topic.read(start=instant)]
            wanted = [record.offset for record in records if record.append_time >= instant]
            if found != wanted:
                words = f"read from {instant.isoformat()} on there are offsets {found}, and there should be {wanted}"
                raise self._world.broken(Violation(reading.PROMISE, words))

    async def _note_id(self, runtime: Any) -> None:
        """The consumer that joined has an id that none had before."""
        for group in await runtime.groups():
            if group.name == NAME:
                for consumer in group.consumers:
                    if consumer.consumer in self._ids:
                        words = f"consumer id {consumer.consumer} was another consumer's"
                        raise self._world.broken(Violation(MEMBERSHIP, words))
                    self._ids.add(consumer.consumer)

    async def _check_gone(self, runtime: Any, is_healed: bool) -> None:
        """The member that left is gone after a while, and so are the groups that need one."""
        await trio.sleep(PATIENCE_S)
        groups = {group.name: group for group in await runtime.groups()}
        if not is_healed:
            return
        if NAME in groups and groups[NAME].members:
            words = f"group {NAME} has {groups[NAME].members} members, which have all left"
            raise self._world.broken(Violation(MEMBERSHIP, words))
        left = [name for name in (BRIEF, EXPIRING) if name in groups]
        if left:
            raise self._world.broken(
                Violation(EXPIRY, f"there is group {left[0]}, {PATIENCE_S:g} s after its consumer left")
            )
