"""Moments of faults, while a failure is shrunk: the n-th passing of a point, the n-th message, a virtual time.

A count says little about what happens then: with one order fewer in the workload, the 57th write belongs to something
else, or never comes; and a time says no more. So faults are moved to other moments, sooner ones most of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from callboard.simulations.faults import After, At, CrashOnMessage, Fault, Plan
from callboard.simulations.faults.passings import Passings

ALL_BELOW: Final = 9
"""Below this each smaller count is tried."""
BESIDE: Final = 2
"""So far on both sides of half a count others are tried: what is done again and again passes a point a few times."""
BACK: Final = 3
"""So many counts before one, or before the last passing of a run that did not come to it, are tried."""

EARLIER: Final = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Shares of a time at which a fault is tried."""


def nearer(plan: Plan, passings: Mapping[int, Passings]) -> Plan:
    """The same moments, counted by passings that are about one task, file or actor: after these, fewer come before.

    `passings` is what a run of the plan counted.
    """
    return Plan(
        tuple(
            attrs.evolve(fault, when=passings[index].nearest(fault.when))
            if index in passings and isinstance(fault.when, After)
            else fault
            for index, fault in enumerate(plan.faults)
        )
    )


def sooner(fault: Fault) -> Iterator[Fault]:
    """The fault sooner: with smaller counts, the smallest first, or at earlier times."""
    if isinstance(fault.when, At):
        for share in EARLIER:
            seconds = round(fault.when.seconds * share, 3)
            if seconds < fault.when.seconds:
                yield attrs.evolve(fault, when=At(seconds))
    if isinstance(fault.when, After):
        for count in smaller_counts(fault.when.count):
            yield attrs.evolve(fault, when=attrs.evolve(fault.when, count=count))
    if isinstance(fault, CrashOnMessage):
        for count in smaller_counts(fault.count):
            yield attrs.evolve(fault, count=count)


def smaller_counts(count: int) -> tuple[int, ...]:
    """All that are smaller than a small count; of a large one the first few, those about its half, and the last few."""
    if count <= ALL_BELOW:
        return tuple(range(1, count))
    half = count // 2
    near = sorted(range(half - BESIDE, half + BESIDE + 1), key=lambda other: abs(other - half))
    return tuple(dict.fromkeys((*range(1, 1 + BACK), *near, *range(count - 1, count - 1 - BACK, -1))))


def moved(plan: Plan, passings: Mapping[int, Passings]) -> Iterator[Plan]:
    """The plan with those faults moved whose moment did not come in a run: to the last passings that it counted.

    A point that was never passed about this subject may be passed about another.
    """
    for back in range(BACK):
        other = Plan(
            tuple(_moved(fault, passings.get(index), back) for index, fault in enumerate(plan.faults))
        )
        if other != plan:
            yield other


def _moved(fault: Fault, passings: Passings | None, back: int) -> Fault:
    when = fault.when
    if not isinstance(when, After) or passings is None or passings.came(when):
        return fault
    if passings.count:
        return attrs.evolve(fault, when=attrs.evolve(when, count=max(1, passings.count - back)))
    return attrs.evolve(fault, when=attrs.evolve(when, about=""))
