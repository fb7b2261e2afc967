"""The checker of what is done at a rate."""

from __future__ import annotations

import pytest

from callboard.simulations.checkers.rates import too_fast


@pytest.mark.parametrize(
    ("moments", "words"),
    [
        ((), None),
        ((100.0, 100.25, 100.5, 100.75), None),
        ((101.0, 101.0, 101.25), None),  # the first took as long as the second waited
        ((100.0, 100.2), "2 in the first 0.200 s, at 4 a second"),
        ((100.0, 100.25, 102.0, 102.0, 102.0), "3 within 0.000 s, at 4 a second"),
        ((100.0, 103.0, 103.2, 103.3, 103.4), "4 within 0.400 s"),
    ],
)
def test_what_is_too_fast(moments: tuple[float, ...], words: str | None) -> None:
    """Early, or in a burst."""
    found = too_fast(4.0, 100.0, moments)
    assert (found is None) if words is None else (found is not None and words in found)
