"""Schedulers, as the pure things that they are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.log.errors import InvalidArgument
from callboard.simulations.world.schedulers import PATIENCE, Player, draw_name, draw_starved, make
from callboard.simulations.world.tape import StaleTape, Tape

NAMES = ["fifo", "shuffle", "walk", "pct:1", "pct:5", "starve:b"]


@given(st.sampled_from(NAMES), st.integers(), st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_somebody_is_always_stepped_and_nobody_twice(name: str, seed: int, sizes: list[int]) -> None:
    """A decision names different tasks of the batch, and at least one."""
    scheduler = make(name, random.Random(seed))
    for size in sizes:
        decision = scheduler.decide(range(size), ["b" if number % 3 else "a" for number in range(size)])
        stepped = decision or tuple(range(size))
        assert stepped
        assert len(set(stepped)) == len(stepped)
        assert set(stepped) <= set(range(size))


@pytest.mark.parametrize("name", NAMES)
def test_nobody_waits_for_ever(name: str) -> None:
    """A task that can always run is stepped, however the others yield."""
    scheduler = make(name, random.Random(4))
    seen: set[int] = set()
    for _ in range(20 * PATIENCE):
        seen.update(scheduler.decide(range(5), ["a", "b", "b: helper", "c", "d"]) or range(5))
    assert seen == set(range(5))


def test_one_task_can_overtake_another_by_many_steps() -> None:
    """What a shuffle can never do: a walk or PCT steps one task several times while another waits."""
    for name in ("walk", "pct:2"):
        scheduler = make(name, random.Random(1))
        steps = [scheduler.decide(range(2), ["a", "b"]) for _ in range(50)]
        runs = "".join(str(step[0]) for step in steps)
        assert "000" in runs or "111" in runs, name


def test_a_starved_actor_waits_while_others_can_run() -> None:
    """Its helpers too; an actor with a longer name does not."""
    scheduler = make("starve:topics/a/1", random.Random(0))
    labels = ["topics/a/1", "topics/a/1: commit", "topics/a/10", "x"]
    for _ in range(PATIENCE):
        assert sorted(scheduler.decide(range(4), labels)) == [2, 3]
    assert sorted(scheduler.decide(range(4), labels)) == [0, 1, 2, 3]


def test_a_player_plays_and_then_keeps_the_order() -> None:
    """After the last decision of its tape, all are plain."""
    player = Player(Tape(((1, 0), (), (2,))))
    assert [player.decide(range(3), ["", "", ""]) for _ in range(5)] == [(1, 0), (), (2,), (), ()]


def test_a_tape_that_does_not_fit_is_stale() -> None:
    """A decision about a task that is not there is kept as the reason, and all go on in order."""
    player = Player(Tape(((5,), (1,))))
    assert player.decide(range(2), ["a", "b"]) == ()
    assert isinstance(player.stale, StaleTape)
    assert player.decide(range(2), ["a", "b"]) == ()


@pytest.mark.parametrize(
    "name", ["", "fifo:1", "pct", "pct:0", "pct:x", "pct:1000", "starve", "starve:", "lifo"]
)
def test_unknown_schedulers_are_refused(name: str) -> None:
    """With a list of those there are."""
    with pytest.raises(InvalidArgument, match="pct:DEPTH"):
        make(name, random.Random(0))


def test_all_kinds_are_drawn() -> None:
    """Over the seeds every scheduler has its turn, and starving only where there is somebody to starve."""
    drawn = {draw_name(random.Random(seed)).split(":")[0] for seed in range(200)}
    assert drawn == {"fifo", "shuffle", "walk", "pct"}
    starved = [draw_starved(random.Random(seed), ["x", "y"]) for seed in range(200)]
    assert set(starved) == {None, "starve:x", "starve:y"}
    assert starved.count(None) > 100
    assert not any(draw_starved(random.Random(seed), []) for seed in range(200))
