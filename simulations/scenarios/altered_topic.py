"""A topic whose settings are altered while it is used: what `alter_topic` has answered holds from then on.

Its only user fills it until it is refused, raises `retention_bytes` and goes on at once, has what it publishes packed
and its segments made smaller, settles everything, and lets retention drop it by size and by age. Crashes of the
partition and of the process, which come amid that, change nothing of it.
"""

from __future__ import annotations

from hashlib import shake_128
from typing import TYPE_CHECKING, Any, Final

import trio

from callboard.log.errors import CallboardError, ConfigurationError, TopicFull
from callboard.log.limits import KIB, MIB, SEGMENT_BYTES_MIN
from callboard.simulations.scenarios import recreated
from callboard.simulations.violations import Violation

if TYPE_CHECKING:
    from callboard.simulations.world import World

NAME: Final = "altered"
"""Of the topic, and of its group."""
PROMISE: Final = "altered settings of a topic hold from then on"
VALUE_BYTES: Final = 8 * KIB
BESIDE_BYTES: Final = 1 * KIB
"""More than what a record takes besides its value."""
KEPT_BYTES: Final = 2 * SEGMENT_BYTES_MIN
FILLING: Final = KEPT_BYTES // VALUE_BYTES + 4
"""This many publishes are more than the topic keeps."""
SETTLE_S: Final = 2.0
"""How long a message is waited for."""
AGE_S: Final = 1.0
UPKEEP_S: Final = 0.5
"""How long records may be there that were too old already when their age was altered."""
SMALLER: Final = 4
"""What is packed takes less than this part of what it was."""


class AlteredTopic:
    """The topic's only user. It outlives the machine."""

    def __init__(self, world: World, settings: dict[str, Any]) -> None:
        self._world = world
        self._settings = {**settings, "partitions": 1}

        self._turn = 0

    async def alter(self, runtime: Any, times: int) -> None:
        """This many times in all; what fails is left, and the next one begins with what is there."""
        while self._turn < times:
            self._turn += 1
            try:
                await self._once(runtime, self._turn)
            except (ConfigurationError, Violation):
                raise
            except CallboardError as error:
                self._world.note(f"altered topic: {type(error).__name__}")
                await trio.sleep(SETTLE_S)

    def _broken(self, words: str) -> Violation:
        return self._world.broken(Violation(PROMISE, words))

    async def _once(self, runtime: Any, turn: int) -> None:
        world = self._world
        usual = {**self._settings, "segment_bytes": MIB, "retention_bytes": KEPT_BYTES, "compression": "none"}
        if any(topic.name == NAME for topic in runtime.topics()):
            await runtime.delete_topic(NAME)
        topic = await runtime.create_topic(NAME, **usual)
        async with topic.subscribe(NAME, visibility_timeout=60.0):
            pass
        is_healed = world.healed.is_set()
        count = await self._fill(topic, turn)
        if count is None and is_healed:
            raise self._broken(
                f"{NAME} took {FILLING} messages of {VALUE_BYTES} bytes, and is to keep {KEPT_BYTES}"
            )
        world.sometimes("a topic that was full took more when it was altered to keep more", count is not None)
        await runtime.alter_topic(NAME, retention_bytes=16 * MIB, segment_bytes=SEGMENT_BYTES_MIN)
        await self._publish_more(topic, turn)
        await self._check_compression(runtime, topic, turn)
        await self._settle(topic, is_healed)
        await runtime.alter_topic(NAME, retention_bytes=KEPT_BYTES)
        await self._check_dropped(runtime, topic, is_healed)

    async def _fill(self, topic: Any, turn: int) -> int | None:
        """Publish until the topic is full; how many it took, or None when it took all."""
        for number in range(FILLING):
            try:
                await topic.publish(value_of(turn, number))
            except TopicFull:
                return number
        return None

    async def _publish_more(self, topic: Any, turn: int) -> None:
        """There is room now, for more than a segment."""
        before = (await topic.describe())[0]
        for number in range(FILLING, FILLING + SEGMENT_BYTES_MIN // VALUE_BYTES + 2):
            try:
                await topic.publish(value_of(turn, number))
            except TopicFull as error:
                raise self._broken(f"{NAME} refuses what it was altered to keep: {error}") from None
        after = (await topic.describe())[0]
        if after.segments <= before.segments:
            words = f"{after.segments} segments after {after.size_bytes - before.size_bytes} bytes more"
            raise self._broken(f"{NAME} has {words}; they were to be {SEGMENT_BYTES_MIN} bytes large")

    async def _check_compression(self, runtime: Any, topic: Any, turn: int) -> None:
        """What packs well takes little when the topic is altered to pack, and all when it is altered not to."""
        for compression in ("gzip", "none") if turn % 2 else ("zstd", "none"):
            await runtime.alter_topic(NAME, compression=compression)
            before = (await topic.describe())[0]
            await topic.publish(b"%d" % turn + bytes(VALUE_BYTES))
            after = (await topic.describe())[0]
            if after.segments != before.segments:
                continue
            more = after.size_bytes - before.size_bytes
            is_packed = more < VALUE_BYTES // SMALLER
            if is_packed != (compression != "none"):
                words = f"{VALUE_BYTES} bytes that pack well took {more} bytes of {NAME}"
                raise self._broken(f"{words}, whose compression was altered to {compression}")

    async def _settle(self, topic: Any, is_healed: bool) -> None:
        """Settle everything."""
        end = (await topic.describe())[0].visible_end
        async with topic.subscribe(NAME) as consumer:
            seen = 0
            while seen < end and (message := await consumer.get(timeout=SETTLE_S)) is not None:
                await message.ack()
                seen = message.offset + 1
        pending = (await topic.describe())[0].groups[0].pending
        if pending and is_healed:
            words = (
                f"{pending} messages of {NAME} are pending when its group had nothing more for {SETTLE_S:g} s"
            )
            raise self._world.broken(Violation(recreated.PROMISE, words))

    async def _check_dropped(self, runtime: Any, topic: Any, is_healed: bool) -> None:
        """What everybody has settled goes: by size at once, by age when it is old."""
        await trio.sleep(2 * AGE_S)
        kept = (await topic.describe())[0]
        if kept.size_bytes > KEPT_BYTES and kept.segments > 1 and is_healed:
            words = f"{NAME} has {kept.size_bytes} bytes {2 * AGE_S:g} s after it was altered to keep {KEPT_BYTES}"
            raise self._broken(words)
        await runtime.alter_topic(NAME, retention_age=AGE_S, segment_age=AGE_S)
        jumps = self._world.fault_counts["JumpClock"]
        await trio.sleep(UPKEEP_S)
        kept = (await topic.describe())[0]
        if kept.start_offset < kept.visible_end and is_healed and not jumps:
            words = f"{NAME} begins at {kept.start_offset} and ends at {kept.visible_end}"
            raise self._broken(
                f"{words}, long after it was altered to keep nothing for longer than {AGE_S:g} s"
            )


def value_of(turn: int, number: int) -> bytes:
    """A payload that does not pack, and that is unique."""
    return shake_128(b"%d in turn %d" % (number, turn)).digest(VALUE_BYTES)
