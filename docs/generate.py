"""Writes the pages that are made from the code: python docs/generate.py, with Callboard installed.

A test compares what lies in the repository with what this would write, so a page cannot drift from its source.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from callboard.log import errors

HERE = Path(__file__).resolve().parent
HEAD = "<!-- Made from {source} by docs/generate.py: edit that, and run this again. -->\n"


def errors_page() -> str:
    """Every error as a tree, and what each tells the caller to do."""
    page = [
        HEAD.format(source="log/errors.py"),
        "# Errors",
        "",
        inspect.cleandoc(errors.__doc__ or "").replace("*", "_"),
        "",
        "All are names in `callboard`.",
        "",
        *_tree(errors.CallboardError, 0),
        "",
    ]
    for error in _all_errors(errors.CallboardError):
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        page += [
            f"## {error.__name__}",
            "",
            f"Derives from {bases}.{' Indefinite.' if error.indefinite else ''}",
            "",
        ]
        page += [inspect.cleandoc(error.__doc__ or ""), ""]
    return "\n".join(page)


def _subclasses(error: type[errors.CallboardError]) -> list[type[errors.CallboardError]]:
    """The public ones, in the order in which the module defines them."""
    return [child for child in error.__subclasses__() if child.__module__ == errors.__name__]


def _tree(error: type[errors.CallboardError], depth: int) -> list[str]:
    name = error.__name__
    line = f"{'  ' * depth}- [{name}](#{name.lower()})"
    return [line, *(inner for child in _subclasses(error) for inner in _tree(child, depth + 1))]


def _all_errors(error: type[errors.CallboardError]) -> list[type[errors.CallboardError]]:
    return [error, *(inner for child in _subclasses(error) for inner in _all_errors(child))]


PAGES: dict[str, Callable[[], str]] = {"reference/errors.md": errors_page}


def main() -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
