"""No step takes long: what there is much of to do is done some at a time, and other tasks run in between.

On virtual time a step takes no time, so what it handles is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from callboard.actors.delivery.events import Event, ReleaseEvent

PROMISE = "no step handles more than its limit"


def too_many_given_back(events: Iterable[Event], most: int) -> str | None:
    """What is wrong with a step that has had these delivery events; None if it gave back no more ranges than it may."""
    count = sum([len(event.ranges) // 2 for event in events if isinstance(event, ReleaseEvent)])
    return f"{count} ranges were given back in one step, which may give back {most}" if count > most else None


def too_many(groups: Iterable[int], most: int) -> str | None:
    """What is wrong with a step in which leases of these groups, by id, have run out; None if nothing is."""
    for group_id, count in Counter(groups).items():
        if count > most:
            return f"{count} leases of group {group_id} have run out in one step, which may end {most}"
    return None
