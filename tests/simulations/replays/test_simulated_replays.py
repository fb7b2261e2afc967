"""Recordings replayed under the simulator: everything arrives once, under any faults; and what is wrong is found."""

from __future__ import annotations

from typing import Any

import pytest

import callboard.replay.replaying as replaying
from callboard.log.errors import InvalidArgument
from callboard.simulations.faults import At, CrashActor, FailVerb, FullDisk, KillProcess, Plan, PowerCut
from callboard.simulations.replays.running import SimulatedReplay, random_plan, simulate_replay
from callboard.simulations.violations import Violation

TOTAL = 800
HARD = Plan(
    (
        KillProcess(At(3.0)),
        CrashActor(At(6.3), "topics/replayed/1"),
        PowerCut(At(11.0)),
        FailVerb(At(15.0), "sync", times=2),
        CrashActor(At(20.0), "groups/audit"),
        PowerCut(At(25.5)),
        FullDisk(At(30.0), for_s=3.0),
        KillProcess(At(38.0)),
    )
)


def run(day: Any, **options: Any) -> SimulatedReplay:
    """Replay the day."""
    return simulate_replay(day.recording, selected=day.selected, **options)


def check(found: SimulatedReplay) -> None:
    """Everything arrived, once."""
    assert found.failure is None, found.failure
    assert (found.records, found.missing) == (TOTAL, 0)
    assert found.delivered >= TOTAL


@pytest.mark.parametrize("partitions", [3, 2])
@pytest.mark.parametrize("speed", [1, 10, "max"])
def test_without_faults_everything_arrives_in_time(day: Any, partitions: int, speed: Any) -> None:
    """In one life, delivered once, at its instant."""
    found = run(day, partitions=partitions, speed=speed)
    check(found)
    assert (found.lives, found.runs, found.delivered) == (1, 1, TOTAL)
    if speed != "max":
        assert found.virtual_s >= 39.9 / speed
        assert found.lateness.records == TOTAL
        assert found.lateness.max_s < 1e-6


@pytest.mark.parametrize("partitions", [3, 5])
def test_hard_faults_lose_and_double_nothing(day: Any, partitions: int) -> None:
    """Four ends of the machine, crashes, failing syncs, a full disk: exact counts."""
    found = run(day, partitions=partitions, plan=HARD)
    check(found)
    assert found.lives == 5
    assert found.runs >= 5
    assert found.faults["PowerCut"] == 2
    assert found.faults["KillProcess"] == 2


@pytest.mark.parametrize("seed", range(12))
def test_drawn_faults_lose_and_double_nothing(day: Any, seed: int) -> None:
    """Of every kind that a log survives; what the disk lost for good is counted."""
    partitions = (3, 2, 4)[seed % 3]
    speed = (1, 10, "max")[seed // 3 % 3]
    plan = random_plan(seed, partitions, 5.0)
    found = run(day, partitions=partitions, speed=speed, seed=seed, plan=plan, scheduler=None)
    assert found.failure is None, found.failure
    assert found.records + found.missing == TOTAL


def test_one_seed_is_one_run(day: Any) -> None:
    """The same digest again, another for another seed."""
    runs = [run(day, seed=seed, plan=HARD, scheduler="shuffle", trace=True) for seed in (1, 1, 2)]
    assert runs[0].digest == runs[1].digest != runs[2].digest


def test_a_replay_that_forgets_where_it_was_is_found(day: Any, monkeypatch: Any) -> None:
    """Records come twice then."""

    async def forgotten(live: Any, source_of: Any) -> list[None]:
        return [None] * len(live.ports)

    monkeypatch.setattr(replaying, "last_positions", forgotten)
    found = run(day, plan=HARD)
    assert isinstance(found.failure, Violation)
    assert "comes twice" in str(found.failure)


def test_a_replay_that_skips_a_record_is_found(day: Any, monkeypatch: Any) -> None:
    """It is missing, and the log does not say so."""
    last_positions = replaying.last_positions

    async def skipping(live: Any, source_of: Any) -> list[Any]:
        found = await last_positions(live, source_of)
        return [last and last._replace(offset=last.offset + 1) for last in found]

    monkeypatch.setattr(replaying, "last_positions", skipping)
    found = run(day, plan=HARD)
    assert isinstance(found.failure, Violation)
    assert "missing" in str(found.failure)


@pytest.mark.parametrize("options", [{"partitions": 0}, {"partitions": 1025}, {"speed": 0}])
def test_wrong_arguments_are_refused(day: Any, options: dict[str, Any]) -> None:
    """Before anything is run."""
    with pytest.raises(InvalidArgument):
        run(day, **options)
