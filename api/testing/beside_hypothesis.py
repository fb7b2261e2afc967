"""Simulated tests in which Hypothesis draws: it shrinks by itself, and must not draw inside a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from callboard.testing.errors import DrawnInside


def is_in_hypothesis() -> bool:
    """Whether Hypothesis calls the test: it then does the shrinking."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def is_control(failure: BaseException) -> bool:
    """Whether this exception is how a test speaks to pytest or Hypothesis: it skips, for example. It is no failure."""
    if type(failure).__module__.partition(".")[0] == "hypothesis":
        return True
    return type(failure).__name__ in ("Skipped", "XFailed", "Exit") and not isinstance(failure, Exception)


@contextmanager
def no_draws() -> Iterator[None]:
    """Inside this context, a draw from Hypothesis raises `DrawnInside`, which says what to do instead.

    Hypothesis has no public hook for this, so the method that every draw calls is replaced. If a release of Hypothesis
    has no such method, draws are not noticed.
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
