"""Floods: lines of one kind that come again and again are left out, and counted. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

import attrs

WINDOW_S: Final = 60.0
LINES_MAX: Final = 5
"""Lines of one event at one place that are logged in a window, at most."""
KINDS_MAX: Final = 1000
"""Kinds that are counted, at most; the one that was reported longest ago is forgotten first."""

Kind = tuple[object, ...]
"""The event and its place first; of failures of users' code also the exception's type and the line of code."""


@attrs.define
class _CountedEvent:
    """One event at one place: the window that began last, and what was left out since a line was written."""

    since: float
    logged: int = 0
    left_out: int = 0


class Floods:
    """Which lines are logged, so that one that comes again and again leaves room for others. Pure."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Kind, _CountedEvent] = OrderedDict()
        self._forgotten = 0
        """What was left out of kinds that are forgotten."""

    def admit(self, kind: Kind, now: float) -> int | None:
        """How many lines of its kind were left out before this one; None when this one is left out too."""
        counted = self._kinds.setdefault(kind, _CountedEvent(now))
        self._kinds.move_to_end(kind)
        if len(self._kinds) > KINDS_MAX:
            self._forgotten += self._kinds.popitem(last=False)[1].left_out
        if now - counted.since >= WINDOW_S:
            counted.since, counted.logged = now, 0
        if counted.logged == LINES_MAX:
            counted.left_out += 1
            return None
        counted.logged += 1
        left_out, counted.left_out = counted.left_out, 0
        return left_out

    def left_out(self) -> Counter[object]:
        """How many lines were left out that no line has counted, by place; None stands for forgotten ones."""
        left_out: Counter[object] = Counter({None: self._forgotten})
        for kind, counted in self._kinds.items():
            left_out[kind[1]] += counted.left_out
        return +left_out
