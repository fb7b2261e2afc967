"""Which topics `Runtime.subscribe` and `Runtime.work` read: those of some names, or all that match a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.actors.names import check_name, check_not_own_group
from callboard.actors.topic_patterns import MANY, ONE, TopicPattern, check_pattern
from callboard.log.errors import InvalidArgument
from callboard.log.limits import TOPICS_MAX
from callboard.log.plain import items, shown, text

if TYPE_CHECKING:
    from callboard.actors.mirror import MirroredTopic


def check_group_name(group: str | None) -> str:
    """The name of a group of the program's own. Raises `InvalidArgument`."""
    if group is None:
        raise InvalidArgument('no group is named. Nothing was done. Name one: group="billing".')
    check_not_own_group(group)
    return check_name(group, "group")


def read_topics(
    find: Callable[[str], MirroredTopic], topics: Any, pattern: object, dead_letters: object
) -> tuple[list[MirroredTopic], TopicPattern | None]:
    """The topics that are named, or none and the pattern. Raises `TopicNotFound`, `InvalidArgument`."""
    if pattern is not None:
        if topics is not None:
            raise InvalidArgument("topics and a pattern are named: name one or the other. Nothing was done.")
        return [], check_pattern(pattern, dead_letters)
    if dead_letters is not False:
        raise InvalidArgument(
            "dead_letters is for a pattern: topics that are named are read, whatever they are for. Nothing was done."
        )
    word = text(topics)
    if word is not None and (MANY in word or ONE in word):
        raise InvalidArgument(f"topics are {shown(topics, 80)}: did you mean pattern={shown(topics, 80)}?")
    found = items(topics, TOPICS_MAX)
    names = [name for name in map(text, found or ()) if name is not None]
    if not found or len(names) < len(found):
        raise InvalidArgument(
            f'topics are {shown(topics, 80)}, not a sequence of names such as ["orders", "refunds"], nor is there a'
            " pattern."
        )
    lives = [find(name) for name in names]
    if len(set(names)) < len(names):
        raise InvalidArgument(f"topics {shown(names, 80)} name one more than once. Name each once.")
    return lives, None
