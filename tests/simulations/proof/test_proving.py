"""Proving: a search from seed 0, a control run, and honest about what was not caught. CI runs the whole proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.proof import SAFEGUARDS, prove
from callboard.simulations.proof.patches import MutationStale, Patch
from callboard.simulations.proof.proving import (
    caught_by,
    failure_of,
    failure_without,
    prove_one,
    stored_proofs,
)
from callboard.simulations.proof.safeguards import table
from callboard.simulations.scenarios import SCENARIOS
from callboard.simulations.search.replay import promise_of

PAGE = Path(__file__).parents[3] / "docs/principles/proof.md"


def test_every_safeguard_has_a_seed_that_caught_it() -> None:
    """What was measured names all safeguards, and only those; the scenarios are among those that are searched."""
    stored = stored_proofs()
    assert set(stored) == set(SAFEGUARDS)
    assert all(row["scenario"] in SAFEGUARDS[name].scenarios for name, row in stored.items())
    assert {row["scenario"] for row in stored.values()} <= {*SCENARIOS, "machines"}
    assert len(SAFEGUARDS) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", SAFEGUARDS)
def test_what_was_measured_is_so(name: str) -> None:
    """The stored seed breaks the stored promise without its safeguard, and none with it. renew.py measures anew."""
    row = stored_proofs()[name]
    failure = failure_without(SAFEGUARDS[name], row["scenario"], row["seed"])
    assert failure is not None
    assert promise_of(failure) == row["promise"]
    assert failure_of(row["scenario"], row["seed"]) is None


@pytest.mark.parametrize("name", ["lease check", "restart intensity", "recovery at a restart"])
def test_a_missing_safeguard_is_caught(name: str) -> None:
    """A run with the safeguard off fails, the same with it on ends well; it is told after how many seeds."""
    proof = prove(name)
    assert proof.caught
    assert proof.promise
    assert proof.tried >= 1
    assert failure_of(proof.scenario, proof.seed) is None


def test_what_switches_nothing_off_is_not_caught() -> None:
    """Without patches no seed fails, or fails in the control run too."""
    harmless = attrs.evolve(SAFEGUARDS["lease check"], patches=(), scenarios=("supervisor-trees",))
    proof = prove_one(harmless, seeds_max=3)
    assert (proof.caught, proof.tried) == (False, 3)


def test_a_wrong_function_that_does_not_fit_proves_nothing() -> None:
    """One that crashes because the right one takes other arguments by now is refused as stale."""

    def takes_nothing(original: Any) -> Any:
        return lambda: original()

    patch = Patch("callboard.actors.partition.queues.Sequencer.take", takes_nothing)
    misfit = attrs.evolve(SAFEGUARDS["lease check"], patches=(patch,), scenarios=("publish-only",))
    with pytest.raises(MutationStale, match="TypeError"):
        prove_one(misfit, seeds_max=3)


def test_an_unknown_safeguard_is_refused() -> None:
    """With the names that there are."""
    with pytest.raises(InvalidArgument, match="lease check"):
        prove("no such thing")


def test_the_page_shows_the_table() -> None:
    """docs/principles/proof.md holds what the code says; python docs/generate.py writes it."""
    assert table(caught_by()) in PAGE.read_text("utf-8")
