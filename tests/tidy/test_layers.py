"""Imports only run downwards: every import statement, also inside functions, to the module's own rank or a lower.

Modules of one rank import each other in one direction: no circles, imports for type checking counted.

The import-linter contracts in pyproject.toml follow whole chains; this needs no list of modules, and it also sees
the ban on the lazy root package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

# Lowest first; the longest prefix that matches gives the rank. All else in `callboard` is a root module.
RANKS = {
    "callboard.log.errors": 0,
    "callboard.log.limits": 0,
    "callboard.log.seams": 1,
    "callboard.log.format": 2,
    "callboard.log": 3,
    "callboard.actors.kernel": 4,
    "callboard.supervision": 5,
    "callboard.actors": 6,
    "callboard.actors.delivery": 7,
    "callboard.actors.timers": 7,
    "callboard.actors.timing": 7,
    "callboard.actors.standing": 7,
    "callboard.actors.partition": 8,
    "callboard.actors.clients": 9,
    "callboard.actors.companions": 9,
    "callboard.actors.records": 9,
    "callboard.actors.recurring": 9,
    "callboard.actors.groups": 10,
    "callboard.actors.catalog": 10,
    "callboard.actors.mirror": 10,
    "callboard.actors.forwarding": 10,
    "callboard.actors.messages": 11,
    "callboard.consumer": 11,
    "callboard.control": 11,
    "callboard.dead_letters": 11,
    "callboard.publishing": 11,
    "callboard.recordings": 11,
    "callboard.traffic": 11,
    "callboard.reports": 11,
    "callboard": 11,
    "callboard.replay": 12,
    "callboard.measures": 12,
    "callboard.metrics": 12,
    "callboard.spark": 12,
    "callboard.simulations": 13,
    "callboard.demo": 13,
    "callboard.cli": 14,
    "callboard.testing": 14,
    "callboard.__main__": 15,
}
ROOT_RANK = RANKS["callboard"]

# The real seams are chosen at the top; everybody else is given them.
HOST = "callboard.log.host"
HOST_IMPORTERS = ("callboard.runtime", "callboard.cli", "callboard.looking", "callboard.offline", HOST)

# By room of the broker: the modules that others may import. All others are protected by a contract in pyproject.toml.
DOORS = {
    "catalog": {"commands"},
    "forwarding": {"commands"},
    "groups": {"commands", "spec"},
    "partition": {"commands", "spec"},
    "recurring": {"commands", "spec"},
    "timers": {"commands"},
}
NO_ACTORS = {"clients", "delivery", "kernel", "records"}
"""Folders that are no rooms: what rooms are made of, or use each other with."""

# What starts actors, looks at how they work, or reads their files when none runs, may import what is protected.
STARTERS = {
    *("callboard.actors.catalog.directory", "callboard.background", "callboard.runtime"),
    *("callboard.cli.journals", "callboard.offline", "callboard.simulations"),
}


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def rank(module: str) -> int:
    """How high a module stands."""
    return RANKS[max((package for package in RANKS if _within(module, package)), key=len)]


def imports(source: Any, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and full name of every module of ours that a module imports."""
    package = source.module if source.is_package else source.module.rpartition(".")[0]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _within(alias.name, "callboard"):
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            if _within(base, "callboard"):
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield node.lineno, inner if inner in modules else base


def test_imports_only_run_downwards(house: Any) -> None:
    """No module imports one that stands above it."""
    modules = {source.module for source in house.sources}
    problems = [
        f"{source.path}:{line}: {source.module} imports {name}, which stands above it"
        for source in house.sources
        for line, name in imports(source, modules)
        if name != "callboard" and rank(name) > rank(source.module)
    ]
    house.demand_none(problems)


def test_nothing_below_the_face_imports_the_root(house: Any) -> None:
    """`callboard` itself is a lazy list of names for users; inside, modules import what they mean."""
    modules = {source.module for source in house.sources}
    problems = [
        f"{source.path}:{line}: imports the root package"
        for source in house.sources
        if rank(source.module) <= ROOT_RANK and source.module != "callboard"
        for line, name in imports(source, modules)
        if name == "callboard"
    ]
    house.demand_none(problems)


def test_the_real_seams_are_chosen_at_the_top(house: Any) -> None:
    """Only the runtime, the command line, and what reads without a runtime import log/host."""
    modules = {source.module for source in house.sources}
    problems = [
        f"{source.path}:{line}: imports {name}"
        for source in house.sources
        if not any(_within(source.module, importer) for importer in HOST_IMPORTERS)
        for line, name in imports(source, modules)
        if _within(name, HOST)
    ]
    house.demand_none(problems)


def test_no_imports_run_in_a_circle(house: Any) -> None:
    """No module imports, through others or for its types only, one that imports it."""
    modules = {source.module for source in house.sources}
    graph = {
        source.module: sorted({name for _, name in imports(source, modules) if name != source.module})
        for source in house.sources
    }
    house.demand_none([f"{' -> '.join(sorted(circle))}: a circle" for circle in _circles(graph)])


def _circles(graph: dict[str, list[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components of more than one)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    circles = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for name in graph.get(module, ()):
            if name not in number:
                visit(name)
                lowest[module] = min(lowest[module], lowest[name])
            elif name in path:
                lowest[module] = min(lowest[module], number[name])
        if lowest[module] == number[module]:
            found = path[path.index(module) :]
            del path[path.index(module) :]
            if len(found) > 1:
                circles.append(found)

    for module in graph:
        if module not in number:
            visit(module)
    return circles


def test_every_module_has_a_rank(house: Any) -> None:
    """Every folder at the top of the package stands in the table by its own name."""
    tops = {".".join(name.split(".")[:2]) for name in house.folders} - {"callboard"}
    assert sorted(tops - RANKS.keys()) == []


def test_only_what_starts_actors_passes_by_the_doors(house: Any) -> None:
    """Every room of actors has its doors, and no contract that protects one lets others in."""
    rooms = {name.split(".")[2] for name in house.folders if name.startswith("callboard.actors.")}
    assert rooms - NO_ACTORS == DOORS.keys()
    problems = [
        f"{contract['id']}: lets {importer} in"
        for contract in house.settings["tool"]["importlinter"]["contracts"]
        for room in {
            each.split(".")[2] for each in contract.get("protected_modules", ()) if ".actors." in each
        }
        for importer in set(contract["allowed_importers"]) - STARTERS - {f"callboard.actors.{room}"}
    ]
    house.demand_none(problems)


@pytest.mark.parametrize("room", DOORS)
def test_a_room_has_no_other_doors(house: Any, room: str) -> None:
    """Each module of a room is one of its doors, or protected from those outside by an import-linter contract."""
    protected = {
        module
        for contract in house.settings["tool"]["importlinter"]["contracts"]
        for module in contract.get("protected_modules", ())
    }
    package = f"callboard.actors.{room}"
    modules = {
        source.module for source in house.sources if _within(source.module, package) and not source.is_package
    }
    assert {module.removeprefix(f"{package}.") for module in modules - protected} == DOORS[room]
