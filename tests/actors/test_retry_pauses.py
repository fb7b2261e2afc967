"""Pauses between tries."""

from __future__ import annotations

from callboard.actors.retry_pauses import RetryPauses


def test_each_pause_is_twice_the_one_before_up_to_the_limit() -> None:
    """After something has worked the first one comes again."""
    pauses = RetryPauses(0.5, 3.0)
    assert pauses.is_first
    assert [pauses.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert not pauses.is_first
    pauses.worked()
    assert pauses.is_first
    assert pauses.failed() == 0.5
