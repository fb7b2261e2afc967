"""What the tidy tests look at: the project's files, and the syntax tree of every module."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]
MADE_BY_BUILD = {"PKG-INFO", "setup.cfg"}
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "_build"}


@attrs.frozen(slots=False)
class Source:
    """One Python file: `path` from the repository's root, and `module` as it is imported (tests have none)."""

    path: str
    module: str
    is_package: bool

    @cached_property
    def text(self) -> str:
        """The file's content."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The file's syntax tree."""
        return ast.parse(self.text, self.path)

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
        """Every function, also inner ones: its qualified name, its node, and the class it is a method of."""
        yield from _functions(self.tree, "", None)


def _functions(
    node: ast.AST, prefix: str, owner: ast.ClassDef | None
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child, owner
            yield from _functions(child, f"{prefix}{child.name}.", None)
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.", child)
        else:
            yield from _functions(child, prefix, owner)


@attrs.frozen
class House:
    """The project: its settings, its files, its modules, its tests."""

    root: Path
    settings: dict[str, Any]
    allowed: dict[str, Any]
    files: tuple[str, ...]
    sources: tuple[Source, ...]
    tests: tuple[Source, ...]

    @property
    def folders(self) -> dict[str, str]:
        """Package name to folder, as pyproject.toml maps them."""
        return dict(self.settings["tool"]["setuptools"]["package-dir"])

    def demand_none(self, problems: list[str]) -> None:
        """Fail with the whole list, and with nothing else."""
        __tracebackhide__ = True
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)


def _listed(root: Path, *options: str) -> set[str]:
    """Names of files that git lists."""
    command = ["git", "ls-files", "-z", "--exclude-standard", *options]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True)
    return {name for name in listed.stdout.decode().split("\0") if name}


def files_of(root: Path) -> set[str]:
    """Every file of a clone that is tracked, or that lies untracked beside such files in one of the project's folders.

    A folder of which nothing is tracked was made by a command, such as `./pipeline --out made`, and is no part of it.
    """
    tracked = _listed(root, "--cached")
    folders = {name.partition("/")[0] for name in tracked if "/" in name}
    return tracked | {name for name in _listed(root, "--others") if name.partition("/")[0] in folders}


def _files() -> tuple[str, ...]:
    """Every file of the project; of an unpacked sdist, every file."""
    if (ROOT / ".git").exists():
        names = files_of(ROOT)
    else:
        names = {
            path.relative_to(ROOT).as_posix()
            for path in ROOT.rglob("*")
            if not SKIPPED_FOLDERS.intersection(path.parts)
            and path.name not in MADE_BY_BUILD
            and not any(
                (part.startswith(".") and part != ".ci") or part.endswith(".egg-info")
                for part in path.relative_to(ROOT).parts
            )
        }
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def _module(path: str, folders: dict[str, str]) -> str:
    """The import name of a file; empty when it lies in no package."""
    parent, _, name = path.rpartition("/")
    for package, folder in sorted(folders.items(), key=lambda item: -len(item[1])):
        if parent == folder or parent.startswith(f"{folder}/"):
            inner = [part for part in parent[len(folder) :].split("/") if part]
            stem = name.removesuffix(".py")
            return ".".join([package, *inner, *([] if stem == "__init__" else [stem])])
    return ""


@pytest.fixture(scope="session")
def house() -> House:
    """The project as it lies in the repository, not as it is installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = settings["tool"]["setuptools"]["package-dir"]
    files = _files()
    python = [
        Source(path=path, module=_module(path, folders), is_package=path.endswith("__init__.py"))
        for path in files
        if path.endswith(".py")
    ]
    return House(
        root=ROOT,
        settings=settings,
        allowed=tomllib.loads((Path(__file__).parent / "allowed.toml").read_text(encoding="utf-8")),
        files=files,
        sources=tuple(source for source in python if source.module),
        tests=tuple(source for source in python if source.path.startswith("tests/")),
    )
