"""Scenarios by name: Callboard's own, and those of a program, as "package.module:Scenario".

A program's module is imported from the folder in which the command was called, or from wherever Python finds it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

from callboard.actors.kernel.failures import describe, text_of
from callboard.cli.named import find_named
from callboard.log.errors import InvalidArgument
from callboard.simulations.entropy import SeededEntropy
from callboard.simulations.faults import FaultSpace
from callboard.simulations.scenarios import registry
from callboard.simulations.scenarios.registry import Weight
from callboard.simulations.scenarios.scenario import Scenario
from callboard.simulations.search.values import to_plain
from callboard.simulations.watching.watch import raised_at
from callboard.simulations.world import World
from callboard.simulations.world.computing import EndlessWorkload, limited_drawing

SEPARATOR: Final = ":"
NAME: Final = re.compile(r"[A-Za-z0-9-]+")
WEIGHT: Final = Weight(share=1.0, cost_s=0.1, least=1)
"""Of a program's scenario, of which nothing is known."""


class ProgramScenario:
    """A program's scenario under the name by which it is found."""

    def __init__(self, name: str, scenario: Scenario) -> None:
        self.name = name
        self.space = scenario.space
        self._scenario = scenario

    def workload(self, entropy: SeededEntropy) -> Any:
        """What the clients do."""
        return self._scenario.workload(entropy)

    async def main(self, world: World, workload: Any) -> None:
        """The run."""
        await self._scenario.main(world, workload)


def is_of_a_program(name: str) -> bool:
    """Whether this is a name like "package.module:Scenario"."""
    return SEPARATOR in name


def find_scenario(name: str) -> Scenario | None:
    """The scenario of that name; None when Callboard has none such.

    Raises `InvalidArgument` for a name of a program's scenario that cannot be imported, or is none.
    """
    if not is_of_a_program(name):
        return registry.SCENARIOS.get(name)
    found = find_named(name, "Scenario", words_with_line)
    try:
        scenario: Any = found() if inspect.isclass(found) else found
    except Exception as error:
        raise InvalidArgument(
            f"{name!r:.200} cannot be made by calling the class without arguments: {words_with_line(error)}."
            " Nothing was run. Give its arguments defaults, or name an object of the class."
        ) from error
    problems = _problems(scenario)
    if problems:
        raise InvalidArgument(f"{name!r:.200} is no scenario: {'; '.join(problems)}. Nothing was run.")
    return ProgramScenario(name, scenario)


def _problems(scenario: Any) -> list[str]:
    problems = []
    own_name = getattr(scenario, "name", None)
    if not isinstance(own_name, str) or NAME.fullmatch(own_name) is None:
        problems.append("it has no `name` of letters, digits and hyphens")
    if not isinstance(getattr(scenario, "space", None), FaultSpace):
        problems.append("it has no FaultSpace `space`")
    if not inspect.iscoroutinefunction(getattr(scenario, "main", None)):
        problems.append("it has no method `async main(world, workload)`")
    if not callable(getattr(scenario, "workload", None)):
        return [*problems, "it has no method `workload(entropy)`"]
    try:
        with limited_drawing("its workload(entropy)"):
            drawn = scenario.workload(SeededEntropy(0))
    except EndlessWorkload as error:
        return [*problems, str(error).rstrip(".")]
    except Exception as error:  # noqa: BLE001 - the method is the program's
        return [*problems, f"its workload(entropy) raises {words_with_line(error)}"]
    try:
        to_plain(drawn)
    except Exception as error:  # noqa: BLE001 - the values are the program's
        problems.append(f"its workload(entropy) does not draw what can be stored: {text_of(error)}")
    return problems


def words_with_line(error: Exception) -> str:
    """An error of the program, with the line where it was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg}, at {error.filename}:{error.lineno}"
    where = raised_at(error)
    return f"{describe(error)}{f', at {where}' if where else ''}"


def packages_of(names: Iterable[str]) -> set[str]:
    """The packages that hold the programs' scenarios among these names."""
    return {name.partition(SEPARATOR)[0].partition(".")[0] for name in names if is_of_a_program(name)}


def weight_of(name: str, weights: dict[str, Weight]) -> Weight:
    """How a sweep runs the scenario of that name."""
    return WEIGHT if is_of_a_program(name) else weights[name]


def file_name(name: str) -> str:
    """The name as a part of names of files."""
    return name.replace(SEPARATOR, "-")
