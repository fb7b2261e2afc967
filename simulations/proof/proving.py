"""Search, for each safeguard, for a seed that fails without it.

A seed counts as catching when its run fails with the safeguard switched off, and ends well with it in place: so it is
the missing safeguard that it has found. The search begins at seed 0 of each scenario, so it measures how many seeds it
takes. What was found, and after how many, stands in `seeds.toml`, for the documentation; a test holds it to the code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.simulations.machines import MACHINES, drive
from callboard.simulations.proof.patches import MutationStale, patched
from callboard.simulations.proof.safeguards import SAFEGUARDS, Safeguard
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.search.replay import promise_of, words_of
from callboard.simulations.world import Settings

SEEDS_MAX: Final = 300
"""Of each scenario, before the search is given up."""
MISFITS: Final = ("TypeError:", "AttributeError:")
"""What a wrong function raises when the right one has changed: that proves nothing of the safeguard."""
SETTINGS: Final = Settings(trace="off", tick_limit=200_000)
"""A run without its safeguard may go round in circles: it is stopped after many times what others take."""


@attrs.frozen
class Proof:
    """What came of one safeguard."""

    name: str
    caught: bool
    scenario: str = ""
    seed: int = -1
    promise: str = ""
    """What the seed found broken."""
    words: str = ""
    tried: int = 0
    """Runs with the safeguard switched off."""
    seconds: float = 0.0


def caught_by() -> dict[str, str]:
    """What caught each safeguard when it was last measured, in words."""
    return {
        name: f"`{row['scenario']}`, seed {row['seed']}, after {row['seeds']}: {row['promise']}"
        for name, row in stored_proofs().items()
    }


def stored_proofs() -> dict[str, Any]:
    """What `seeds.toml` says: scenario, seed, promise, and after how many seeds."""
    return tomllib.loads(files("callboard.simulations.proof").joinpath("seeds.toml").read_text("utf-8"))


def is_as_stored(proof: Mapping[str, Any]) -> bool:
    """Whether `seeds.toml` says the same of a safeguard as its proof."""
    row = stored_proofs().get(proof["name"], {})
    found = {"scenario": proof["scenario"], "seed": proof["seed"], "promise": proof["promise"]}
    return bool(row == {**found, "seeds": proof["tried"]})


def check_names(names: Sequence[str]) -> None:
    """Raises `InvalidArgument` for names that no safeguard has, and for no names at all."""
    unknown = [name for name in names if name not in SAFEGUARDS]
    if unknown or not names:
        raise InvalidArgument(
            f"there is no safeguard {', '.join(map(repr, unknown)):.200}. Nothing was tried. There are"
            f" {', '.join(SAFEGUARDS)}."
        )


def prove(name: str, *, now: Callable[[], float] = lambda: 0.0) -> Proof:
    """Switch off the safeguard of that name, and search. `now` gives seconds.

    Safeguards do not depend on one another: processes may share them among themselves.
    """
    check_names([name])
    begun = now()
    proof = prove_one(SAFEGUARDS[name])
    return attrs.evolve(proof, seconds=now() - begun)


def prove_one(safeguard: Safeguard, *, seeds_max: int = SEEDS_MAX) -> Proof:
    """Search for a seed that fails without `safeguard`."""
    tried = 0
    for scenario, seed in _candidates(safeguard, seeds_max):
        tried += 1
        failure = failure_without(safeguard, scenario, seed)
        if failure is None:
            continue
        if any(name in words_of(failure) for name in MISFITS):
            raise MutationStale(
                f"{safeguard.name}: the wrong function does not fit any more: {words_of(failure)}"
            )
        if failure_of(scenario, seed) is None:
            return Proof(safeguard.name, True, scenario, seed, promise_of(failure), words_of(failure), tried)
    return Proof(safeguard.name, False, tried=tried)


def _candidates(safeguard: Safeguard, seeds_max: int) -> Iterator[tuple[str, int]]:
    for seed in range(seeds_max):
        for scenario in safeguard.scenarios:
            yield scenario, seed


def failure_without(safeguard: Safeguard, scenario: str, seed: int) -> BaseException | None:
    """How the run of a seed fails when the safeguard is switched off; None when it ends well."""
    with patched(safeguard.patches):
        return failure_of(scenario, seed)


def failure_of(scenario: str, seed: int) -> BaseException | None:
    """How the run of a seed fails; None when it ends well."""
    if scenario == MACHINES:
        return drive(seed).violation
    return run_scenario(SCENARIOS[scenario], seed, settings=SETTINGS).failure
