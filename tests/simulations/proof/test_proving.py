"""Proving: hints first, a control run, and honest about what was not caught. CI runs the whole proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard.log.errors import InvalidArgument
from callboard.simulations.proof import SAFEGUARDS, prove
from callboard.simulations.proof.patches import MutationStale, Patch
from callboard.simulations.proof.proving import caught_by, failure_of, load_seeds, prove_one
from callboard.simulations.proof.safeguards import table
from callboard.simulations.proof.scenarios import AIMED
from callboard.simulations.scenarios import SCENARIOS

PAGE = Path(__file__).parents[3] / "docs/principles/proof.md"


def test_every_safeguard_has_a_seed_that_caught_it() -> None:
    """The hints name all safeguards, and only those; their scenarios exist."""
    hints = load_seeds()
    assert set(hints) == set(SAFEGUARDS)
    assert {scenario for scenario, _ in hints.values()} <= {*SCENARIOS, *AIMED, "machines"}
    assert len(SAFEGUARDS) >= 12


@pytest.mark.parametrize("name", ["lease check", "restart intensity", "recovery at a restart"])
def test_a_missing_safeguard_is_caught(name: str) -> None:
    """A run with the safeguard off fails, the same with it on ends well; a hint that is stale costs a few more."""
    proof = prove(name)
    assert proof.caught
    assert proof.promise
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


@pytest.mark.parametrize("name", sorted(AIMED))
def test_aimed_scenarios_end_well_on_the_code_as_it_is(name: str) -> None:
    """They are scenarios like the others."""
    assert [failure_of(name, seed) for seed in range(2)] == [None, None]
