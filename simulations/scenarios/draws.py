"""Drawing workloads from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from callboard.log.seams.entropy import Entropy

__all__ = ["between", "one_of", "uniform"]

T = TypeVar("T")


def between(entropy: Entropy, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return low + int(entropy.random() * (high - low + 1))


def uniform(entropy: Entropy, low: float, high: float) -> float:
    """A number between `low` and `high`, with three decimals, so that stories stay readable."""
    return round(low + entropy.random() * (high - low), 3)


def one_of(entropy: Entropy, choices: Sequence[T]) -> T:
    """One of `choices`."""
    return choices[int(entropy.random() * len(choices))]
