"""Rates, rings and the sorting of exceptions: the small pure parts."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.kernel.events import DeadLetters, EventLog
from callboard.actors.kernel.failures import describe, frames, sort_out, unwrap
from callboard.actors.kernel.rate import RATE_WINDOW_S, Rate
from callboard.log.limits import CRASH_FRAMES_KEPT, DEAD_LETTERS_KEPT, EVENTS_KEPT


class Frozen:
    """A clock that stands."""

    def monotonic(self):
        return 0.0

    def wall_us(self):
        return 17


@given(rate=st.floats(1, 10_000), start=st.floats(0, 1e6))
def test_a_steady_rate_is_found(rate, start):
    """After many windows of steady traffic the rate is that of the traffic."""
    measured = Rate(start)
    for tick in range(1, 501):
        measured.note(rate / 10, start + tick / 10)
    assert measured.read(start + 50) == pytest.approx(rate, rel=0.02)


@given(count=st.integers(1, 1000), gaps=st.lists(st.floats(0, 10), max_size=20))
def test_looking_does_not_change_the_rate(count, gaps):
    """Reading is free of effects, and without traffic the rate only falls."""
    rate = Rate(0)
    rate.note(count, 0)
    now, last = 0.0, rate.read(0)
    for gap in gaps:
        now += gap
        assert rate.read(now) == rate.read(now) <= last
        last = rate.read(now)
    assert rate.read(100 * RATE_WINDOW_S) < 1e-9


def test_dead_letters_are_bounded_but_all_counted():
    """Only the latest letters are kept; the counters know of all."""
    letters = DeadLetters(Frozen())
    for number in range(DEAD_LETTERS_KEPT + 5):
        letters.add("a", number, "crashed" if number % 2 else "stopped")
    assert len(letters.recent()) == DEAD_LETTERS_KEPT
    assert letters.recent()[0].message == 5
    assert letters.recent()[0].wall_us == 17
    assert letters.total == DEAD_LETTERS_KEPT + 5 == sum(letters.by_reason.values())


def test_events_are_bounded():
    """Only the latest events are kept; the total knows of all; unsubscribing twice is harmless."""
    log = EventLog(Frozen())
    heard = []
    unsubscribe = log.subscribe(heard.append)
    for number in range(EVENTS_KEPT + 3):
        log.emit(number)
    unsubscribe()
    unsubscribe()
    log.emit("unheard")
    assert len(log.recent()) == EVENTS_KEPT
    assert log.total == EVENTS_KEPT + 4
    assert heard == list(range(EVENTS_KEPT + 3))


def test_single_causes_are_unwrapped():
    """A group of one of one is its exception; a group of two stays; what is not an Exception passes."""
    one, two, stop = ValueError("1"), KeyError("2"), KeyboardInterrupt()
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [one])])
    assert unwrap(nested) is one
    assert sort_out(one) == (None, one)
    assert sort_out(stop) == (stop, None)
    assert sort_out(nested) == (None, one)
    passing, crash = sort_out(BaseExceptionGroup("both", [stop, ExceptionGroup("in", [one, two])]))
    assert passing is stop
    assert unwrap(crash).exceptions == (one, two)


async def test_cancelled_passes():
    """Cancelled is never a crash, alone or beside one."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            assert sort_out(cancelled) == (cancelled, None)
            error = ValueError()
            assert sort_out(BaseExceptionGroup("", [cancelled, error])) == (cancelled, error)
            raise


def test_failures_in_words():
    """A failure is described by type and text, and located by its innermost frames."""

    def fall(depth):
        if depth:
            fall(depth - 1)
        raise ValueError("deep")

    assert describe(None) == "no error"
    assert describe(KeyError()) == "KeyError"
    with pytest.raises(ValueError, match="deep") as caught:
        fall(20)
    assert describe(caught.value) == "ValueError: deep"
    assert len(frames(caught.value)) == CRASH_FRAMES_KEPT
    assert frames(caught.value)[-1].startswith("test_numbers.py:")
