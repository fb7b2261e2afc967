"""Hypothesis and the simulator: whether Hypothesis runs the test, and a guard against draws inside the run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from callboard.testing.errors import DrawnInside


def is_drawing() -> bool:
    """Whether a test of Hypothesis is running: it then does the shrinking."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def is_control(failure: BaseException) -> bool:
    """Whether pytest or Hypothesis ends a test with this exception, for example because it is skipped."""
    if type(failure).__module__.partition(".")[0] == "hypothesis":
        return True
    return type(failure).__name__ in ("Skipped", "XFailed", "Exit") and not isinstance(failure, Exception)


@contextmanager
def no_draws() -> Iterator[None]:
    """Inside this context, drawing from Hypothesis raises `DrawnInside`, which says what to do instead.

    There is no public hook: the one method that every draw calls is replaced. If a release of Hypothesis has no such
    method, nothing is detected.
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
