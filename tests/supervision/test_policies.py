"""Backoff, intensity, strategies and specifications: the pure rules, one by one."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callboard.actors.kernel import Actor
from callboard.log.errors import ConfigurationError
from callboard.supervision import (
    IMMEDIATE,
    RESTARTS,
    Backoff,
    ChildSpec,
    RestartWindow,
    SupervisorSpec,
)
from callboard.supervision.policies import restarted_with

BACKOFFS = st.builds(
    lambda initial, extra, factor, jitter: Backoff(
        initial=initial, maximum=initial + extra, factor=factor, jitter=jitter
    ),
    st.just(0.0) | st.floats(1e-6, 100),
    st.floats(0, 1000),
    st.floats(1, 10),
    st.floats(0, 1),
)


@given(backoff=BACKOFFS, attempt=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_delays_stay_within_bounds(backoff, attempt, chance):
    """A delay is never above the maximum, and jitter takes off no more than its share."""
    delay = backoff.delay(attempt, chance)
    longest = backoff.longest(attempt)
    assert 0 <= longest * (1 - backoff.jitter) <= delay <= longest <= backoff.maximum
    assert backoff.longest(attempt + 1) >= longest * (1 - 1e-9)


@given(backoff=BACKOFFS, attempts=st.integers(0, 300))
def test_least_is_the_sum_of_the_shortest_delays(backoff, attempts):
    """The shortest time for n restarts is the sum of the first n delays at full jitter."""
    expected = sum(backoff.longest(n) for n in range(1, attempts + 1)) * (1 - backoff.jitter)
    assert backoff.least(attempts) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_default_grows_to_its_maximum():
    """Without jitter the default backoff doubles from 50 ms to 2 s."""
    delays = [round(Backoff().longest(n), 6) for n in range(1, 9)]
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert IMMEDIATE.delay(1000, 0.5) == 0


def test_all_problems_of_a_backoff_in_one_error():
    """A backoff names everything that is wrong with it at once."""
    with pytest.raises(ConfigurationError) as caught:
        Backoff(initial=-1, maximum=-2, factor=0.5, jitter=2)
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigurationError):
        Backoff(initial=math.nan)
    with pytest.raises(ConfigurationError):
        Backoff(maximum="long")


@given(
    intensity=st.integers(0, 5),
    period=st.floats(0.1, 100),
    gaps=st.lists(st.floats(0, 50), max_size=60),
)
def test_no_window_holds_more_than_the_intensity(intensity, period, gaps):
    """In no stretch of `period` seconds are more than `intensity` restarts admitted, and no fewer than allowed (W1)."""
    window = RestartWindow(intensity, period)
    now, admitted = 0.0, []
    for gap in gaps:
        now += gap
        recent = [at for at in admitted if now - at <= period]
        expected = len(recent) < intensity
        assert window.admit(now, "a") is expected
        if expected:
            admitted.append(now)
    window.clear()
    assert window.admit(now, "a") is (intensity > 0)


@given(count=st.integers(1, 20), data=st.data())
def test_which_children_are_restarted_together(count, data):
    """one_for_one takes itself, one_for_all everybody, rest_for_one itself and those after it."""
    position = data.draw(st.integers(0, count - 1))
    assert list(restarted_with("one_for_one", position, count)) == [position]
    assert list(restarted_with("one_for_all", position, count)) == list(range(count))
    assert list(restarted_with("rest_for_one", position, count)) == list(range(position, count))


def test_the_restart_table_is_total():
    """Every kind of child has an answer for every ending, and killed counts as crashed."""
    for restart in ("permanent", "transient", "temporary"):
        assert RESTARTS[restart, "killed"] == RESTARTS[restart, "crashed"]
    assert [RESTARTS[r, "finished"] for r in ("permanent", "transient", "temporary")] == [True, False, False]


def test_all_problems_of_a_child_in_one_error():
    """A child specification names everything that is wrong with it at once."""
    with pytest.raises(ConfigurationError) as caught:
        ChildSpec(
            name="a/b",
            start=5,
            restart="often",
            shutdown_grace=-1,
            mailbox=9,
            retry_in_hand=-1,
            backoff=1,
            on_failed=1,
            intensity=-1,
        )
    assert len(caught.value.problems) == 10


def test_a_child_that_never_fails_pauses_before_each_restart():
    """Without a backoff it would do nothing but restart; with one, its supervisor's limit does not concern it."""
    with pytest.raises(ConfigurationError, match="without a pause"):
        ChildSpec(name="child", start=Actor, significant=False, intensity=math.inf, backoff=IMMEDIATE)
    patient = Backoff(initial=60, maximum=3600)
    child = ChildSpec(name="child", start=Actor, significant=False, intensity=math.inf, backoff=patient)
    SupervisorSpec(name="s", children=(child,))


def test_order_needs_children_that_are_awaited():
    """Where the strategy promises an order of starting, every child is waited for."""
    child = ChildSpec(name="child", start=Actor, awaited=False)
    SupervisorSpec(name="s", children=(child,))
    for strategy in ("one_for_all", "rest_for_one"):
        with pytest.raises(ConfigurationError, match="not awaited"):
            SupervisorSpec(name="s", strategy=strategy, children=(child,))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "é" * 101, 5])
def test_names_are_parts_of_paths(name):
    """A name that could not be one part of a path is refused."""
    with pytest.raises(ConfigurationError):
        ChildSpec(name=name, start=Actor)


def test_all_problems_of_a_supervisor_in_one_error():
    """A supervisor specification names everything that is wrong with it at once."""
    with pytest.raises(ConfigurationError) as caught:
        SupervisorSpec(name="", strategy="some", intensity=-1, period=0, backoff=0, children=("x",))
    assert len(caught.value.problems) == 6


def test_children_have_names_of_their_own():
    """Two children of one name are refused."""
    twin = ChildSpec(name="twin", start=Actor)
    with pytest.raises(ConfigurationError, match="two children are called 'twin'"):
        SupervisorSpec(name="s", children=(twin, twin))


def test_a_backoff_that_hides_the_limit_is_refused():
    """If the backoff makes `intensity` restarts outlast `period`, the limit could never be reached: refused."""
    slow = ChildSpec(name="slow", start=Actor, backoff=Backoff(initial=3, maximum=3, jitter=0))
    with pytest.raises(ConfigurationError, match="never exceed 5 restarts in 10 s"):
        SupervisorSpec(name="s", children=(slow,))
    SupervisorSpec(name="s", children=(slow,), intensity=3)
    temporary = ChildSpec(name="slow", start=Actor, backoff=slow.backoff, restart="temporary")
    SupervisorSpec(name="s", children=(temporary,))


@given(backoff=BACKOFFS, intensity=st.integers(0, 8), period=st.floats(0.1, 100), chance=st.floats(0, 0.999))
def test_an_accepted_backoff_can_reach_the_limit(backoff, intensity, period, chance):
    """Whatever is accepted: crashing at once each time, with the shortest delays, exceeds the intensity."""
    child = ChildSpec(name="c", start=Actor, backoff=backoff)
    try:
        SupervisorSpec(name="s", children=(child,), intensity=intensity, period=period)
    except ConfigurationError:
        assume(False)
    window, now = RestartWindow(intensity, period * (1 + 1e-9)), 0.0
    for attempt in range(1, intensity + 1):
        assert window.admit(now, "a")
        now += backoff.delay(attempt, 1)
    assert not window.admit(now, "a")


def test_a_refused_intensity_is_shown_as_it_was_given():
    """Without quotation marks that it has not."""
    with pytest.raises(ConfigurationError, match=r"math\.inf, not -1"):
        ChildSpec(name="a", start=Actor, intensity=-1)
