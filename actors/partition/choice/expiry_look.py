"""A group's look at what has expired: when it is due, and how far it is. Pure.

`expiry` says when a group is looked at, and settles what is found. A look reads first what was given back, from where
the last look ended, and then what the group has not seen yet.
"""

from __future__ import annotations

import math
from typing import Literal

import attrs


@attrs.define(eq=False)
class ExpiryLook:
    """The looks of one group in one partition, one after the other."""

    due: float | None = None
    """When the next one begins."""
    is_under_way: bool = False
    stage: Literal["given back", "reading given back", "unseen"] = "given back"
    """What the look under way reads next, or is reading."""
    resumes_at: int = 0
    """Below this offset the last look has read what was given back: the next one goes on from here."""
    left_s: float = math.inf
    """In how many seconds the first record that was given back expires, as far as this look has found."""

    def is_due(self, now: float) -> bool:
        """Whether a look begins by now."""
        return self.due is not None and self.due <= now

    def end(self, left_s: float) -> float:
        """It has ended, at a record that expires in this many seconds; returns in how many the next one is worth it."""
        left_s = min(left_s, self.left_s)
        self.is_under_way, self.stage, self.left_s = False, "given back", math.inf
        return left_s
