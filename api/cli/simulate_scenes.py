"""What can be simulated: the scenarios by name, their weights, and the pure machines as if they were one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from callboard.log.errors import InvalidArgument
from callboard.simulations.machines import MACHINES, drive
from callboard.simulations.scenarios import registry
from callboard.simulations.scenarios.points import POINTS
from callboard.simulations.scenarios.registry import Weights
from callboard.simulations.scenarios.scenario import Scenario
from callboard.simulations.search.stored_failure import StaleFailure


def find_scenario(name: str) -> Scenario:
    """The scenario of that name. Raises `StaleFailure`, for names come from checked arguments and stored failures."""
    found = registry.SCENARIOS.get(name)
    if found is None:
        raise StaleFailure(
            f"there is no scenario {name!r:.60} in this version. Nothing was run. callboard simulate --list names them."
        )
    return found


def check_names(names: Iterable[str]) -> list[str]:
    """The names, each once; of all scenarios without any. Raises `InvalidArgument` for unknown ones."""
    known = registry.SCENARIOS
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InvalidArgument(
            f"there is no scenario {', '.join(map(repr, unknown)):.200}. Nothing was run. There are {', '.join(known)}."
        )
    return wanted or list(known)


@cache
def weights() -> Weights:
    """What `weights.toml` says."""
    return registry.load_weights()


def expected_faults(names: Iterable[str]) -> set[str]:
    """The labels of all faults that these scenarios can draw."""
    return {label for name in names if name != MACHINES for label in find_scenario(name).space.labels()}


def expected_points(names: Iterable[str]) -> set[str]:
    """The `sometimes` points that runs of these scenarios come by."""
    return {point for name in names for point in POINTS.get(name, ())}


def drive_machines(seed: int) -> dict[str, Any]:
    """One seed of the pure state machines, as the result of a seed."""
    driven = drive(seed)
    found: dict[str, Any] = {
        "scenario": MACHINES,
        "seed": seed,
        "virtual_s": driven.virtual_s,
        "events": driven.events,
        "boots": 1,
        "faults": Counter(),
        "probes": {"crashes of machines": driven.crashes, "messages settled": driven.settled},
    }
    if driven.violation is not None:
        tale = "\n".join(driven.tale)
        found |= {
            "promise": driven.violation.promise,
            "words": f"{driven.violation.words}\nThe last operations:\n{tale}",
        }
    return found
