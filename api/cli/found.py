"""Topics by the names that are typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callboard.log.errors import TopicNotFound
from callboard.offline import topic_not_found

if TYPE_CHECKING:
    from callboard.runtime import Runtime
    from callboard.topic import Topic


def find_topic(runtime: Runtime, name: str) -> Topic:
    """The topic of that name. Raises `TopicNotFound` with what to type instead."""
    try:
        return runtime.topic(name)
    except TopicNotFound:
        raise topic_not_found(name, [topic.name for topic in runtime.topics()], runtime.directory) from None
