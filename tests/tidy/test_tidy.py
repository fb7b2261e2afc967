"""Style that matters is a test: lines, docstrings, broad excepts, leftovers. A failure lists all places."""

from __future__ import annotations

import ast
import re
from typing import Any

from callboard.cli.command_line import COMMANDS

LINE_CHARACTERS_MAX = 120  # for prose; the formatter breaks code at 110

# The word, then in brackets why it is not done now: an entry in a list that somebody can act on.
LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b(?!\([^)]{10,}\))")

INVARIANT = re.compile(r"^\s*(?:- |Invariant )?([A-Z]{1,2}[0-9]+)(?:[:*]|  )", re.MULTILINE)

OWN_LABELS = ("callboard.simulations.", "callboard.supervision.")
"""Packages whose modules begin anew to count."""

BROAD_WITH_REASON = re.compile(r"# noqa: BLE001 - \w.{14,}")


def test_lines_are_short_enough(house: Any) -> None:
    """No line of Python is longer than 120 characters, unless it is one long word such as a link."""
    problems = [
        f"{source.path}:{number}: {len(line)} characters"
        for source in (*house.sources, *house.tests)
        for number, line in enumerate(source.text.splitlines(), 1)
        if len(line) > LINE_CHARACTERS_MAX and " " in line.strip().lstrip("# ")
    ]
    house.demand_none(problems)


def test_nothing_is_left_over_without_a_reason(house: Any) -> None:
    """A note of work to be done says in brackets why it is not done, and no function is a stub."""
    problems = [
        f"{source.path}:{number}: {line.strip()}"
        for source in (*house.sources, *house.tests)
        for number, line in enumerate(source.text.splitlines(), 1)
        if LEFTOVER.search(line)
    ]
    problems += [
        f"{source.path}:{node.lineno}: NotImplementedError"
        for source in house.sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Raise) and node.exc and "NotImplementedError" in ast.unparse(node.exc)
    ]
    house.demand_none(problems)


def test_every_invariant_that_an_error_names_is_written_down(house: Any) -> None:
    """A docstring of the same package, or of the same folder of the broker, defines it."""
    defined: set[tuple[str, str]] = set()
    cited: list[tuple[str, str, str]] = []
    for source in house.sources:
        area = _area(source.module)
        for node in ast.walk(source.tree):
            if isinstance(node, (ast.Module, ast.ClassDef)):
                defined.update((area, name) for name in INVARIANT.findall(ast.get_docstring(node) or ""))
            elif (
                isinstance(node, ast.keyword)
                and node.arg == "invariant"
                and isinstance(node.value, ast.Constant)
                and re.fullmatch("[A-Z]{1,2}[0-9]+", str(node.value.value))
            ):
                cited.append((area, str(node.value.value), f"{source.path}:{node.value.lineno}"))
    house.demand_none(
        [
            f"{place}: no docstring in {area} defines {name}"
            for area, name, place in cited
            if (area, name) not in defined
        ]
    )


def test_each_invariant_is_declared_once(house: Any) -> None:
    """A label leads to one module: no two modules declare the same."""
    declared: dict[str, set[str]] = {}
    for source in house.sources:
        if not source.module.startswith(OWN_LABELS):
            for node in ast.walk(source.tree):
                if isinstance(node, (ast.Module, ast.ClassDef)):
                    for name in INVARIANT.findall(ast.get_docstring(node) or ""):
                        declared.setdefault(name, set()).add(source.path)
    house.demand_none(
        [f"{name}: {', '.join(sorted(paths))}" for name, paths in declared.items() if len(paths) > 1]
    )


def _area(module: str) -> str:
    """The package that a module's invariants are numbered for."""
    parts = module.split(".")
    return ".".join(parts[: 3 if "actors" in parts[1:2] else 2])


def test_no_exception_is_swallowed_outside_supervision(house: Any) -> None:
    """Outside supervision, who catches every exception raises again, or says why on the same line."""
    problems = []
    for source in house.sources:
        if source.module.startswith("callboard.supervision"):
            continue
        lines = source.text.splitlines()
        problems += [
            f"{source.path}:{node.lineno}: catches {ast.unparse(node.type) if node.type else 'everything'}"
            for node in ast.walk(source.tree)
            if isinstance(node, ast.ExceptHandler)
            and _is_broad(node)
            and not isinstance(node.body[-1], ast.Raise)
            and not BROAD_WITH_REASON.search(lines[node.lineno - 1])
        ]
    house.demand_none(problems)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(name, ast.Name) and name.id in {"Exception", "BaseException"} for name in names)


def test_the_runtime_has_no_async_generators(house: Any) -> None:
    """An async generator is finalised when the collector likes; only `asynccontextmanager` may wrap one."""
    problems = []
    for source in house.sources:
        for name, node, _owner in source.functions():
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if (
                isinstance(node, ast.AsyncFunctionDef)
                and _yields(node)
                and "asynccontextmanager" not in decorators
            ):
                problems.append(f"{source.path}:{node.lineno}: {name}")
        problems += [
            f"{source.path}:{node.lineno}: async generator expression"
            for node in ast.walk(source.tree)
            if isinstance(node, ast.GeneratorExp) and any(part.is_async for part in node.generators)
        ]
    house.demand_none(problems)


def _yields(function: ast.AST) -> bool:
    """Whether the function itself, not one inside it, has a yield."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Yield | ast.YieldFrom):
            return True
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        if not inner and _yields(child):
            return True
    return False


def test_public_names_have_docstrings(house: Any) -> None:
    """Modules, public classes and functions say what they are, once: what implements a documented method need not.

    Below the public face, a function of a single statement may let its name and its types speak.
    """
    documented = _documented_methods(house)
    problems = []
    for source in house.sources:
        if not ast.get_docstring(source.tree):
            problems.append(f"{source.path}: the module")
        problems += [
            f"{source.path}:{node.lineno}: class {node.name}"
            for node in source.tree.body
            if isinstance(node, ast.ClassDef) and not _is_private(node.name) and not ast.get_docstring(node)
        ]
        is_face = source.path.startswith("api/") and not source.path.startswith("api/cli/")
        for name, node, owner in source.functions():
            is_inner = owner is None and "." in name
            is_known = owner is not None and node.name in documented
            is_plain = _is_overload(node) or (len(node.body) == 1 and not is_face)
            if not (_is_private(name) or is_inner or is_known or is_plain or ast.get_docstring(node)):
                problems.append(f"{source.path}:{node.lineno}: {name}")
    house.demand_none(problems)


def _is_private(qualified: str) -> bool:
    return any(part.startswith("_") for part in qualified.split("."))


def _is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in function.decorator_list)


def _documented_methods(house: Any) -> set[str]:
    """Names of methods that a protocol or a base class of the project documents."""
    classes = {
        node.name: node
        for source in house.sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    bases = {
        ast.unparse(base).partition("[")[0].rpartition(".")[2]
        for node in classes.values()
        for base in node.bases
    }
    contracts = [
        node
        for name, node in classes.items()
        if name in bases or any("Protocol" in ast.unparse(base) for base in node.bases)
    ]
    return {
        method.name
        for contract in contracts
        for method in contract.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(method)
    }


def test_class_names_stand_for_one_class(house: Any) -> None:
    """No two classes of the project have the same name, wherever they are."""
    places: dict[str, list[str]] = {}
    for source in house.sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{source.path}:{node.lineno}")
    house.demand_none([f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1])


COMMAND_IN_WORDS = re.compile(r"(?<=\w)\W+callboard ([a-z-]+)\b(?![-:.]\w)")


def test_commands_in_messages_are_quoted(house: Any) -> None:
    """What a message tells the reader to type stands in `quotes`, so that no terminal breaks it.

    A line that is nothing but a command, to be copied, needs none; nor do docstrings.
    """
    problems = []
    for source in house.sources:
        told = [node for node in ast.walk(source.tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
        inner = {id(part) for node in told if isinstance(node, ast.JoinedStr) for part in node.values}
        inner |= {
            id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Expr)
        }  # docstrings
        for node in told:
            if id(node) in inner:
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts)
            problems += [
                f"{source.path}:{node.lineno}: {found[0]}"
                for found in COMMAND_IN_WORDS.finditer(re.sub(r"`[^`]*`", "", text))
                if found[1] in COMMANDS
            ]
    house.demand_none(problems)
