"""What a comparison says of one thing that it compares."""

from __future__ import annotations

import enum
from fractions import Fraction
from typing import Final

RATIO_MAX: Final = Fraction(3, 2)
"""Rates that differ by less are about the same, and so are waits."""


class Verdict(enum.Enum):
    """What one distance, or one row, says."""

    ALIKE = "alike"
    DIFFERENT = "different"
    TOO_FEW = "too few to tell"
    NOT_JUDGED = "not judged"


def is_near(one: Fraction, two: Fraction) -> bool:
    """Whether two numbers that are not negative are about the same."""
    return max(one, two) <= RATIO_MAX * min(one, two)


def number_text(number: Fraction | None) -> str:
    """A number in words and tables: three digits, and whole from a thousand on."""
    if number is None:
        return "none"
    return f"{round(number):,}" if abs(number) >= 1_000 else f"{float(number):.3g}"
