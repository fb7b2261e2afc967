"""Names of a package that are loaded when they are first used.

They are listed once, in the package's stub (`__init__.pyi`), which type checkers read as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import get_data
from typing import NamedTuple


class LazyNames(NamedTuple):
    """What a package with such names defines as `__getattr__` and `__dir__`."""

    getattr: Callable[[str], object]
    dir: Callable[[], list[str]]


def lazy_names(package: str, namespace: dict[str, object]) -> LazyNames:
    """The names in the stub of `package`, whose `globals()` is `namespace`: a name that was loaded is kept there."""

    @cache
    def find_homes() -> dict[str, str]:
        """The module that defines each name. A submodule's home is the package."""
        homes: dict[str, str] = {}
        for line in ast.parse(get_data(package, "__init__.pyi") or b"").body:
            if isinstance(line, ast.ImportFrom) and line.module:
                names = [alias.name for alias in line.names]
                found = import_module(line.module).__all__ if names == ["*"] else names
                homes.update(dict.fromkeys(found, line.module))
        return homes

    def load(name: str) -> object:
        found: object
        if name == "__all__":
            found = sorted(name for name, home in find_homes().items() if home != package)
        elif (home := find_homes().get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        elif home == package:
            found = import_module(f"{package}.{name}")
        else:
            found = getattr(import_module(home), name)
        namespace[name] = found
        return found

    def list_names() -> list[str]:
        return sorted({*find_homes(), *(name for name in namespace if name.startswith("__"))})

    return LazyNames(load, list_names)
