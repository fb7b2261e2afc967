"""The tests are held to rules of their own: each states its behaviour, and none sleeps."""

from __future__ import annotations

import ast
from typing import Any


def _tests(source: Any) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (name, node)
        for name, node, owner in source.functions()
        if node.name.startswith("test_") and (owner is not None or "." not in name)
    ]


def test_every_test_states_its_behaviour(house: Any) -> None:
    """Each test function has a docstring: a sentence that ends with a full stop."""
    problems = []
    for source in house.tests:
        for name, node in _tests(source):
            text = (ast.get_docstring(node) or "").strip()
            if not text:
                problems.append(f"{source.path}:{node.lineno}: {name} has no docstring")
            elif not text.split("\n\n")[0].endswith((".", "!", "?")):
                problems.append(f"{source.path}:{node.lineno}: {name}: its docstring is no sentence")
    house.demand_none(problems)


def test_no_test_sleeps(house: Any) -> None:
    """Real time synchronises nothing: `time.sleep` is never called, `trio.sleep` only under a mock clock."""
    problems = []
    for source in house.tests:
        for name, function in _tests(source):
            virtual = _uses_virtual_time(source.tree, function)
            problems += [
                f"{source.path}:{call.lineno}: {name}: {ast.unparse(call)}"
                for call in ast.walk(function)
                if isinstance(call, ast.Call) and _sleeps(call, virtual)
            ]
    house.demand_none(problems)


def _sleeps(call: ast.Call, virtual: bool) -> bool:
    name = ast.unparse(call.func)
    if name == "time.sleep":
        return True
    if name not in {"trio.sleep", "sleep"} or virtual:
        return False
    return not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)


def _uses_virtual_time(tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The test takes a clock fixture, or its module makes a mock clock or a simulated world."""
    arguments = {argument.arg for argument in function.args.args}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(
        arguments & {"autojump_clock", "mock_clock", "world"}
        or (names | attributes) & {"MockClock", "World", "run_simulated", "simulate"}
    )
