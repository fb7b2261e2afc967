"""What a program has, by name: "package.module:name", looked for from the folder in which the command was called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from callboard.cli.files import working_folder
from callboard.log.errors import InvalidArgument


def find_named(name: str, kind: str, words_of: Callable[[Exception], str]) -> Any:
    """The object of that name. Raises `InvalidArgument`, with the words of what importing raised."""
    module_name, _, attribute = name.partition(":")
    folder = working_folder()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidArgument(
            f"{name!r:.200} cannot be imported: {words_of(error)}. Nothing was run. "
            f"Name it as package.module:{kind}, from the folder that has the package."
        ) from error
    return found
