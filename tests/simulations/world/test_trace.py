"""The trace: its digest is of what was said, and of nothing else."""

import enum

import pytest

from callboard.simulations.world.trace import FLUSH_AT, Trace


class Word(str):
    """A string of a class of its own."""


class Mood(enum.Enum):
    """Something that is no plain value."""

    GOOD = 1


def said(mode, count, *, look_at=(), change_at=None):
    """The digest of this many lines, steps and values, looked at under way."""
    trace = Trace(mode, lambda: 1.5)
    for number in range(count):
        what = "other" if number == change_at else "line"
        trace.line(what, f"{number}")
        trace.step([number, 3])
        if mode == "digest":
            trace.values((number, "publish", (1, 2), 0.5))
        if number in look_at:
            assert trace.digest
    return trace.digest


@pytest.mark.parametrize("mode", ["digest", "full"])
@pytest.mark.parametrize("count", [10, FLUSH_AT + 7])
def test_looking_at_a_digest_changes_nothing(mode, count):
    """It is of all that was said so far, however it came in."""
    assert said(mode, count) == said(mode, count, look_at=(0, 4, count // 2))


@pytest.mark.parametrize("mode", ["digest", "full"])
@pytest.mark.parametrize("change_at", [0, 5, 9])
def test_whatever_is_said_otherwise_changes_the_digest(mode, change_at):
    """One word is enough."""
    assert said(mode, 10) != said(mode, 10, change_at=change_at)


@pytest.mark.parametrize("value", [Word("x"), Mood.GOOD, float("nan"), "\ud800", None, 10**50, b"x"])
def test_any_value_has_a_digest(value):
    """By its value, not by its identity."""
    digests = set()
    for _ in range(2):
        trace = Trace("digest", lambda: 0.0)
        trace.values((value,))
        digests.add(trace.digest)
    assert len(digests) == 1
