"""Imports only run downwards: every import statement, also inside functions, to the module's own rank or a lower.

The import-linter contracts in pyproject.toml follow whole chains; this needs no list of modules, and it also sees
the ban on the lazy root package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

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
    "callboard.actors.partition": 8,
    "callboard.actors.groups": 9,
    "callboard.actors.catalog": 9,
    "callboard.recordings": 10,
    "callboard": 10,
    "callboard.simulations": 11,
    "callboard.cli": 12,
    "callboard.testing": 12,
    "callboard.__main__": 13,
}
ROOT_RANK = RANKS["callboard"]

# The real seams are chosen at the top; everybody else is given them.
HOST = "callboard.log.host"
HOST_IMPORTERS = ("callboard.runtime", "callboard.cli", HOST)


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
    """Only the runtime and the command line import log/host."""
    modules = {source.module for source in house.sources}
    problems = [
        f"{source.path}:{line}: imports {name}"
        for source in house.sources
        if not any(_within(source.module, importer) for importer in HOST_IMPORTERS)
        for line, name in imports(source, modules)
        if _within(name, HOST)
    ]
    house.demand_none(problems)


def test_every_module_has_a_rank(house: Any) -> None:
    """Every folder at the top of the package stands in the table by its own name."""
    tops = {".".join(name.split(".")[:2]) for name in house.folders} - {"callboard"}
    assert sorted(tops - RANKS.keys()) == []
