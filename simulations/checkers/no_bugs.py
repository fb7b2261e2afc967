"""Actors crash for reasons: a fault, a failing disk, damage. Never for a mistake in their own code."""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "actors crash for reasons only"
MISTAKES: Final = (
    "AssertionError",
    "AttributeError",
    "IndexError",
    "InternalError",
    "KeyError",
    "NameError",
    "OverflowError",
    "RecursionError",
    "RuntimeError",
    "TypeError",
    "UnboundLocalError",
    "UnicodeDecodeError",
    "ValueError",
    "ZeroDivisionError",
    "error",
)


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per crash that names a mistake."""
    return [
        Violation(PROMISE, f"{entry.who} crashed: {entry.detail}", entry)
        for entry in history.of("IncarnationCrashed")
        if entry.detail.partition(":")[0] in MISTAKES
    ]
