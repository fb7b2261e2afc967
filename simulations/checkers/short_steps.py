"""No step takes long: what there is much of to do is done some at a time, and other tasks run in between.

On virtual time a step takes no time, so what it handles is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

PROMISE = "no step handles more than its limit"


def too_many(groups: Iterable[int], most: int) -> str | None:
    """What is wrong with a step in which leases of these groups, by id, have run out; None if nothing is."""
    for group_id, count in Counter(groups).items():
        if count > most:
            return f"{count} leases of group {group_id} have run out in one step, which may end {most}"
    return None
