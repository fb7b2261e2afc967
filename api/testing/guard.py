"""Hypothesis beside the simulator: is it at work, and does it keep out of the run?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from callboard.testing.errors import DrawnInside

__all__ = ["is_control", "is_drawing", "no_draws"]


def is_drawing() -> bool:
    """Whether a test of Hypothesis is running: it then does the shrinking."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def is_control(failure: BaseException) -> bool:
    """Whether this is no failure but how pytest or Hypothesis ends a test: skipped, or its assumption is not met."""
    if type(failure).__module__.partition(".")[0] == "hypothesis":
        return True
    return type(failure).__name__ in ("Skipped", "XFailed", "Exit") and not isinstance(failure, Exception)


@contextmanager
def no_draws() -> Iterator[None]:
    """For as long as this lasts, drawing from Hypothesis raises `DrawnInside`, with what to do instead.

    There is no public way to be asked: the one method through which every draw goes is replaced. Where a release of
    Hypothesis has no such method, nothing is detected.
    """
    data: Any = sys.modules.get("hypothesis.internal.conjecture.data")
    drawer = getattr(data, "ConjectureData", None)
    original = getattr(drawer, "draw", None)
    if drawer is None or original is None:
        yield
        return

    def draw(*_arguments: object, **_options: object) -> Any:
        raise DrawnInside(
            "Hypothesis was asked for data inside a simulated run. "
            "Draw it before (`@given` above `@simulate`), and pass it to the test as an argument."
        )

    drawer.draw = draw
    try:
        yield
    finally:
        drawer.draw = original
