"""Which topic may take a group's dead letters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from callboard.actors.catalog.commands import GroupRecord, TopicRecord
from callboard.actors.catalog.state import CatalogState
from callboard.actors.settings import GroupSettings
from callboard.log.errors import ConfigurationError


def check_dead_letter_topic(
    found: CatalogState, group: GroupRecord | None, joined: Sequence[TopicRecord], settings: GroupSettings
) -> None:
    """Raise `ConfigurationError` unless the topic is there, and dead letters cannot go in a circle.

    The group, None for one that is made, reads its topics and those that are `joined`.
    """
    name = settings.dead_letter_topic
    if name is None:
        return
    own = {topic.topic_id for topic in joined} | set(() if group is None else group.topic_ids)
    others = [other for other in found.groups.values() if group is None or other.group_id != group.group_id]
    target = found.topic(name)
    if target is not None and group is not None and group.lets_go_of_dead_letters:
        own.discard(target.topic_id)  # it stops reading the topic
    if target is None:
        raise _refused(name, f"there is no such topic. Create it: await runtime.create_topic({name!r})")
    if target.topic_id in own:
        raise _refused(name, "the group reads it: its dead letters would come to itself. Name another topic")
    taking = {other.settings.dead_letter_topic for other in others}
    for topic in found.topics.values():
        if topic.topic_id in own and topic.name in taking:
            raise _refused(
                name,
                f"the group reads {topic.name!r}, which takes the dead letters of another group and has none of its"
                " own. Leave dead_letter_topic out: what fails there is kept in its partition",
            )
    for other in others:
        if other.lets_go_of_dead_letters:
            continue
        if target.topic_id in other.topic_ids and other.settings.dead_letter_topic is not None:
            raise _refused(
                name, f"group {other.name!r} reads it, and has a dead_letter_topic itself. Name another topic"
            )


def _refused(name: str, why: str) -> ConfigurationError:
    problem = f"dead_letter_topic is {name!r}, and {why}"
    return ConfigurationError(f"{problem}. Nothing was changed.", problems=(problem,))
