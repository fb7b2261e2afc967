"""Which topics a group of a pattern reads: those that match and that it can read, up to a limit. Pure.

A topic that matches is found in the decision that creates it, so there is no moment at which it exists and its groups
do not know. Where a group may not read a topic that matches, because their settings do not fit each other or because it
reads too many, it passes the topic over, and reports that.

Invariants
----------
PT1  A group of a pattern reads exactly the topics that match, are not passed over, and are not being deleted.
PT2  No such group reads a topic for dead letters, unless that was asked for; nor ever the one of its own dead letters.
PT3  A topic that came after the group is read from its beginning, whatever the group's `start` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from callboard.actors.catalog.commands import GroupRecord, TopicRecord
from callboard.actors.catalog.dead_letter_topics import check_dead_letter_topic
from callboard.actors.catalog.state import GROUP_FOUND, CatalogState, Event
from callboard.actors.notices import TopicPassedOver
from callboard.actors.settings import GroupSettings, check_order
from callboard.actors.topic_patterns import TopicPattern
from callboard.log.errors import ConfigurationError, InvalidArgument
from callboard.log.limits import PATTERN_GROUPS_MAX, PATTERN_TOPICS_MAX

PATTERN: Final = ("pattern", "dead_letters")
"""The problems of a group that has another pattern."""
Choice = tuple[list[TopicRecord], list[TopicPassedOver]]
"""Topics that are read, and those that match and are not."""


def matching(
    found: CatalogState,
    name: str,
    pattern: TopicPattern,
    settings: GroupSettings,
    topics: Iterable[TopicRecord],
    group: GroupRecord | None = None,
) -> Choice:
    """Of these topics, those that a group of the pattern reads besides what it does already (PT1, PT2)."""
    known = set(() if group is None else group.topic_ids)
    taken: list[TopicRecord] = []
    passed: list[TopicPassedOver] = []
    for topic in topics:
        is_own = topic.name == settings.dead_letter_topic
        if topic.deleting or topic.topic_id in known or is_own:
            continue
        if not pattern.takes(topic.name, takes_dead_letters=topic.takes_dead_letters):
            continue
        problem = _problem(found, name, settings, topic, group, len(known) + len(taken))
        if problem is None:
            taken.append(topic)
        else:
            passed.append(TopicPassedOver(name, topic.name, problem))
    return taken, passed


def _problem(
    found: CatalogState,
    name: str,
    settings: GroupSettings,
    topic: TopicRecord,
    group: GroupRecord | None,
    count: int,
) -> str | None:
    if count >= PATTERN_TOPICS_MAX:
        return f"the group reads {count} topics, and no more are allowed for a pattern"
    try:
        check_order(name, settings, topic.name, topic.settings)
        check_dead_letter_topic(found, group, [topic], settings)
    except ConfigurationError as error:
        return "; ".join(error.problems)
    return None


def found_topics(found: CatalogState, topics: Iterable[TopicRecord]) -> list[Event]:
    """What is to be decided so that every group of a pattern reads those of the topics that it has to (PT1, PT3)."""
    topics = list(topics)
    return [
        (GROUP_FOUND, group.group_id, topic.topic_id)
        for group in found.groups.values()
        if group.pattern is not None
        for topic in matching(found, group.name, group.pattern, group.settings, topics, group)[0]
    ]


def passed_over(found: CatalogState, topics: Iterable[TopicRecord]) -> list[TopicPassedOver]:
    """Those of the topics that match, and are not read."""
    topics = list(topics)
    return [
        passed
        for group in found.groups.values()
        if group.pattern is not None
        for passed in matching(found, group.name, group.pattern, group.settings, topics, group)[1]
    ]


def left_out(found: CatalogState) -> Iterable[TopicRecord]:
    """Topics that may match, and are not read because a group read too many until now, when one has gone."""
    counts = [len(group.topic_ids) for group in found.groups.values() if group.pattern is not None]
    return found.topics.values() if PATTERN_TOPICS_MAX - 1 in counts else ()


def after(
    found: CatalogState, event: Event, topics: Callable[[CatalogState], Iterable[TopicRecord]]
) -> list[Event]:
    """An event, and what of those topics groups of patterns read because of it."""
    if all(group.pattern is None for group in found.groups.values()):
        return [event]
    then = found.copy()
    then.apply(event)
    return [event, *found_topics(then, topics(then))]


def check_pattern_of(
    found: CatalogState, name: str, record: GroupRecord | None, pattern: TopicPattern | None
) -> None:
    """Raise unless a consumer with this pattern, None for one that names its topics, may join the group."""
    if record is None:
        count = sum(group.pattern is not None for group in found.groups.values())
        if pattern is not None and count >= PATTERN_GROUPS_MAX:
            raise InvalidArgument(
                f"there are {count} groups of patterns, and no more are allowed. Delete some first."
            )
        return
    if record.pattern == pattern:
        return
    if record.pattern is None:
        problem = "reads topics that are named. Subscribe with their names, or to another group"
    else:
        asked = f"pattern={record.pattern.words!r}{', dead_letters=True' * record.pattern.dead_letters}"
        problem = (
            f"reads the topics of a pattern, which is the same for all its consumers: subscribe with {asked}"
        )
    raise ConfigurationError(f"group {name!r} {problem}. Nothing was changed.", problems=PATTERN)
