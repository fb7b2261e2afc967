"""Branches of the product in words, those that need not be reached, and those that a run of seeds reached.

A branch is written as `file function: line that branches -> line that comes next`, both lines as they stand in the
source, so that it stays the same when code around it moves.
"""

from __future__ import annotations

import ast
import json
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ROOMS = ("actors", "api", "log", "supervision")
LEAVES = "(leaves)"
"""The line after the last one of a function."""


class Unreached(NamedTuple):
    """What `unreached.toml` says."""

    files: dict[str, str]
    """Files and folders that no simulated run can reach, with the reason of each."""
    branches: dict[str, str]
    """Branches, in words, with the reason of each."""


def load_unreached() -> Unreached:
    """Read the list."""
    found = tomllib.loads((HERE / "unreached.toml").read_text("utf-8"))
    return Unreached(
        {file: row["reason"] for row in found["outside"] for file in row["files"]},
        {branch: row["reason"] for row in found["unreached"] for branch in row["branches"]},
    )


def is_measured(file: str, unreached: Unreached) -> bool:
    """Whether a simulated run can reach something of the file."""
    return not any(file == name or file.startswith(f"{name}/") for name in unreached.files)


class Source:
    """A file of the product: its lines, and the functions in which they stand."""

    def __init__(self, file: str) -> None:
        text = (ROOT / file).read_text("utf-8")
        self.file = file
        self._lines = text.splitlines()
        found = sorted(_functions(ast.parse(text), ""))
        self._starts = [start for start, _, _ in found]
        self._functions = found

    def function(self, line: int) -> str:
        """The innermost function around a line; empty in the body of the module."""
        for start, end, name in reversed(self._functions[: bisect_right(self._starts, line)]):
            if start <= line <= end:
                return name
        return ""

    def text(self, line: int) -> str:
        """A line as it stands there."""
        return self._lines[line - 1].strip() if line > 0 else LEAVES

    def branch(self, line: int, following: int) -> str:
        """A branch in words."""
        return f"{self.file} {self.function(line)}: {self.text(line)} -> {self.text(following)}"

    def has(self, branch: str) -> bool:
        """Whether both lines of a branch in words stand in that function."""
        _, _, rest = branch.partition(" ")
        function, _, lines = rest.partition(": ")
        before, _, after = lines.rpartition(" -> ")
        there = {
            text.strip()
            for line, text in enumerate(self._lines, 1)
            if self.function(line).startswith(function)
        }
        return {before, after} <= there | {LEAVES}


@cache
def source(file: str) -> Source:
    """The file of that name, from the project's root."""
    return Source(file)


def _functions(node: ast.AST, path: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        name = path
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{path}.{child.name}" if path else child.name
            if not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno, name
        yield from _functions(child, name)


class FileReached(NamedTuple):
    """One file: how many lines it has and were reached, and its branches in words."""

    file: str
    lines: int
    lines_reached: int
    reached: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def branches(self) -> int:
        """How many there are."""
        return len(self.reached) + len(self.missed)


def read_report(report: Path) -> list[FileReached]:
    """What coverage.py's JSON says, in words."""
    found: dict[str, Any] = json.loads(report.read_text("utf-8"))["files"]
    return [_of_file(file, found[file]) for file in sorted(found)]


def _of_file(file: str, found: dict[str, Any]) -> FileReached:
    name = Path(ROOT / file).resolve().relative_to(ROOT.resolve()).as_posix()
    words = source(name).branch
    reached: Iterable[tuple[int, int]] = found["executed_branches"]
    missed: Iterable[tuple[int, int]] = found["missing_branches"]
    summary = found["summary"]
    return FileReached(
        name,
        summary["num_statements"],
        summary["covered_lines"],
        tuple(words(*branch) for branch in reached),
        tuple(words(*branch) for branch in missed),
    )
