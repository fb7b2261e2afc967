"""Passings: what a fault saw that waits for the n-th passing of a point, until its moment came."""

from __future__ import annotations

from collections import Counter

import attrs

from callboard.simulations.faults.shapes import PlanError
from callboard.simulations.faults.when import After


@attrs.define
class Passings:
    """How often a point was passed that a fault waits for, by subject; `last` is the subject of the last passing."""

    subjects: Counter[str] = attrs.field(factory=Counter)
    last: str = ""

    def add(self, about: str) -> None:
        """Count one more."""
        self.subjects[about] += 1
        self.last = about

    @property
    def count(self) -> int:
        """All of them."""
        return self.subjects.total()

    def came(self, when: After) -> bool:
        """Whether the moment of `when` came."""
        return self.count >= when.count

    def nearest(self, when: After) -> After:
        """The same moment, as the n-th passing about its own task, file or actor; `when` where that counts no less."""
        if not self.came(when) or not self.last:
            return when
        count = sum(times for about, times in self.subjects.items() if self.last in about)
        if count >= when.count:
            return when
        try:
            return After(when.probe, count, self.last)
        except PlanError:  # a subject that no plan may hold: too long, or not printable
            return when
