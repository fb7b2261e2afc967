"""Long random histories of a log and its journal on a failing disk."""

from __future__ import annotations

from collections import Counter

import pytest

from callboard.simulations.exhaustive.walking import walk


def test_long_histories_keep_every_promise() -> None:
    """Whatever is done, and whenever power is lost, nothing synced is lost, altered or used twice; all faults hit."""
    counts: Counter[str] = Counter()
    for seed in range(60):
        counts.update(walk(seed).disk.faults.counts)
    for fault in (
        "sectors applied",
        "sectors lost",
        "sectors trashed",
        "files torn",
        "names kept",
        "names lost",
        "lengths lost",
        "lengths alone",
        "sync EIO",
        "pages kept",
        "pages reverted",
        "write EIO",
        "write ENOSPC",
        "read EIO",
    ):
        assert counts[fault] > 0, f"{fault}: {counts}"


@pytest.mark.slow
def test_many_long_histories_keep_every_promise() -> None:
    """The same for many more."""
    for seed in range(60, 3_000):
        walk(seed)


def test_a_walk_repeats() -> None:
    """The same seed does the same and leaves the same bytes."""
    first, second = walk(7), walk(7)
    assert first.story == second.story
    assert first.disk.files() == second.disk.files()
    assert first.disk.faults.counts == second.disk.faults.counts
