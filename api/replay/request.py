"""What a replay is asked for, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from callboard.actors.names import topic_read_only
from callboard.actors.partition.commands import LEVELS, Level
from callboard.actors.settings import topic_settings
from callboard.log.errors import InvalidArgument, TopicNotFound
from callboard.message import to_us
from callboard.recordings.reader import Span
from callboard.replay.positions import Selection

if TYPE_CHECKING:
    from callboard.runtime import Runtime
    from callboard.topic import Topic


@attrs.frozen(kw_only=True)
class ReplayRequest:
    """What was asked for, checked."""

    speed: float
    is_numbered: bool
    """Whether `speed` is a rate: records are due by their number."""
    passes: int | None
    level: Level
    selection: Selection
    settings: Mapping[str, Any]
    """Of a topic that is made."""
    named: Mapping[str, Any]
    """Settings that a topic must have that is there."""

    def max_message_bytes(self, runtime: Runtime, name: str) -> int:
        """The limit of the topic that is there, or would be made."""
        made = topic_settings(dict(self.settings), f"topic {name!r}")
        try:
            return runtime.topic(name).settings.max_message_bytes
        except TopicNotFound:
            return made.max_message_bytes

    async def topic(self, runtime: Runtime, name: str) -> Topic:
        """Find the topic, or make it."""
        try:
            found = runtime.topic(name)
        except TopicNotFound:
            return await runtime.create_topic(name, **self.settings)
        if found.settings.read_only:
            raise topic_read_only(name)
        return await runtime.create_topic(name, **self.named)


def span_between(start: datetime | None, stop: datetime | None) -> Span:
    """The span of time that is replayed."""
    return Span(
        None if start is None else to_us(start, "start"),
        None if stop is None else to_us(stop, "stop"),
    )


def check_level(acks: str) -> Level:
    """The level of acknowledgement of that name. Raises `InvalidArgument`."""
    if acks not in ("leader", "all"):
        raise InvalidArgument(f'acks is {acks!r:.40}, not "leader" or "all". Nothing was written.')
    return LEVELS[acks]


def check_patterns(keys: Sequence[str]) -> tuple[str, ...]:
    """The patterns, if they are some. Raises `InvalidArgument`."""
    if isinstance(keys, str) or not all(isinstance(pattern, str) for pattern in keys):
        raise InvalidArgument(
            f'keys are {keys!r:.60}, not a list of patterns such as ["user-*"]. Nothing was written.'
        )
    return tuple(keys)
