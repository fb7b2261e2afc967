"""What is done at a rate comes evenly: never early, and in no burst.

Each thing begins at the earliest at its moment, 1/rate after the one before it; that one was done a while later, as
late as when this one began. So of what is done, n lie at least (n - 2)/rate apart, and n at least (n - 1)/rate from the
call on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

SLACK_S = 0.0015
"""A timer's lateness, which is made up for, and what is lost by rounding."""


def too_fast(rate: float, begun: float, moments: Sequence[float]) -> str | None:
    """What is wrong with when things were done at this many a second, by a call at `begun`; None if nothing is."""
    done = sorted(moments)
    for number, moment in enumerate(done):
        if number > rate * (moment - begun + SLACK_S):
            return f"{number + 1} in the first {moment - begun:.3f} s, at {rate:g} a second"
    for first, last in combinations(range(len(done)), 2):
        if last - first - 1 > rate * (done[last] - done[first] + SLACK_S):
            return f"{last - first + 1} within {done[last] - done[first]:.3f} s, at {rate:g} a second"
    return None
