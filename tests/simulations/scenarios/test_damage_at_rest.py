"""Damage at rest: what it costs is known, and who tells of it is held to that."""

from __future__ import annotations

import pytest

from callboard.log.segments.damage_record import DamageRecord
from callboard.simulations.checkers import Terms, told_damage
from callboard.simulations.history import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.scenarios.damage_life import DamageTraffic
from callboard.simulations.scenarios.damaging import KINDS
from callboard.simulations.violations import Violation


class Told:
    """A history of who told what."""

    def __init__(self) -> None:
        self.history = History(now=lambda: 0.0)

    def add(self, kind: str, *offsets: int, detail: str = "") -> Told:
        self.history.record(0, kind, "verify", 0, "orders", 0, offsets=offsets, detail=detail)
        return self

    @property
    def found(self) -> list[str]:
        return [
            violation.words
            for violation in told_damage.check(self.history, Surviving(()), Terms(beyond=True))
        ]


def test_what_is_told_exactly_breaks_nothing() -> None:
    """Who names the lost offsets, all of them, is right; what was accepted is told by some no more."""
    told = Told().add("reported lost").add("damaged", 3, 4).add("reported lost", 3, 4)
    told.add("accepted").add("reported lost", detail="unaccepted").add("reported lost", 3, 4)
    assert told.found == []


def test_an_offset_too_many_or_too_few_is_found() -> None:
    """Who names what is whole, or leaves out what is lost, breaks the promise; so does telling what was accepted."""
    assert "names 5 in orders/0" in Told().add("damaged", 4).add("reported lost", 4, 5).found[0]
    assert "leaves out 4" in Told().add("damaged", 4).add("reported lost").found[0]
    assert Told().add("damaged", 4).add("accepted").add("reported lost", 4, detail="unaccepted").found


COST_NOTHING = {"copy", "index", "exchanged", "stray", "catalog stray", "publishers"}
"""Kinds after which every record can be read."""


@pytest.mark.parametrize("repairs", [False, True])
@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_damage_of_each_kind_is_lived_through(kind: str, repairs: bool) -> None:
    """Each kind of damage is told exactly, with and without a repair."""
    workload = DamageTraffic(
        messages=100, batch=2, damages=(kind,), repairs=repairs, limits=(("segment_bytes", 2_048),)
    )
    run = run_scenario(SCENARIOS["damage-at-rest"], 1, workload=workload)
    assert run.failure is None
    damaged = run.history.of("damaged")
    assert len(damaged) == 1
    assert bool(damaged[0].offsets) == (kind not in COST_NOTHING and not kind.startswith("journal"))


def test_damage_that_comes_later_is_told_with_the_earlier() -> None:
    """What is damaged after the directory was used is told beside what was known; so is a damaged journal."""
    workload = DamageTraffic(
        messages=60,
        batch=2,
        settled=30,
        damages=("flip", "journal end"),
        later=("zeros", "neighbours", "headless"),
        limits=(("segment_bytes", 2_048),),
    )
    run = run_scenario(SCENARIOS["damage-at-rest"], 3, workload=workload)
    assert run.failure is None
    first, second = run.history.of("damaged")
    assert set(first.offsets) < set(second.offsets)
    assert run.history.of("JournalSalvaged")


def test_damage_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of damage that is not stored makes the next opening say too little."""

    async def nothing(self: DamageRecord) -> None:
        pass

    monkeypatch.setattr(DamageRecord, "store", nothing)
    workload = DamageTraffic(messages=30, damages=("flip",), limits=(("segment_bytes", 2_048),))
    run = run_scenario(SCENARIOS["damage-at-rest"], 2, workload=workload)
    assert isinstance(run.failure, Violation)
    assert run.failure.promise == told_damage.PROMISE
