"""The table of `sometimes` points says what stands in the source: none is forgotten, and none is made up."""

from __future__ import annotations

import ast
from pathlib import Path

from callboard import simulations
from callboard.simulations.faults.kinds import KINDS
from callboard.simulations.scenarios import SCENARIOS, run_scenario
from callboard.simulations.scenarios.points import POINTS
from callboard.simulations.scenarios.registry import load_weights
from callboard.simulations.search.coverage import points


def named_in(source: str) -> tuple[set[str], list[str]]:
    """The points that `source` names in calls of `sometimes`, and every use of it that cannot be read."""
    tree = ast.parse(source)
    names: set[str] = set()
    readable: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.args:
                case [ast.Constant(value=str(name)), *_] if _is_sometimes(node.func):
                    names.add(name)
                    readable.add(id(node.func))
        elif isinstance(node, ast.Assign) and any(_is_sometimes(n) for n in ast.walk(node.targets[0])):
            readable |= {id(inner) for inner in ast.walk(node.value)}  # another word for the same
    uses = [node for node in ast.walk(tree) if _is_sometimes(node) and isinstance(node.ctx, ast.Load)]
    return names, [ast.unparse(node) for node in uses if id(node) not in readable]


def _is_sometimes(node: ast.AST) -> bool:
    return getattr(node, "attr", None) == "sometimes" or getattr(node, "id", None) == "sometimes"


def test_the_table_names_what_the_source_names() -> None:
    """Every point in the source of the simulator is declared, by a plain text; every declared one stands there."""
    found: set[str] = set()
    for path in Path(simulations.__path__[0]).rglob("*.py"):
        names, unread = named_in(path.read_text("utf-8"))
        assert not unread, path
        found |= names
    assert found == {point for points in POINTS.values() for point in points}


def test_every_scenario_declares_its_points() -> None:
    """The table has a row for each scenario, and no other; no row names a point twice."""
    assert set(POINTS) == set(SCENARIOS)
    assert all(len(points) == len(set(points)) for points in POINTS.values())


def test_a_run_comes_by_declared_points_only() -> None:
    """What a run counts stands in the row of its own scenario."""
    for name in SCENARIOS.keys() - {"recorded-day"}:
        assert set(points(run_scenario(SCENARIOS[name], 3).probes)) <= set(POINTS[name]), name


def test_what_is_rare_exists() -> None:
    """Nothing is excused that does not exist any more."""
    known = {point for points in POINTS.values() for point in points} | set(KINDS)
    assert [rare.point for rare in load_weights().rare if rare.point.partition(":")[0] not in known] == []


def test_uses_that_cannot_be_read_are_told() -> None:
    """A name that is made up at run time, and a `sometimes` that is handed on, hide a point from the table."""
    assert named_in('world.sometimes("a", x)\nsometimes = world.sometimes\nsometimes("b")') == (
        {"a", "b"},
        [],
    )
    assert named_in("world.sometimes(name)")[1] == ["world.sometimes"]
    assert named_in("tell(world.sometimes)")[1] == ["world.sometimes"]
    assert named_in("mark = world.sometimes")[1] == ["world.sometimes"]
