"""Replacing functions by name, for as long as a block runs.

A target is a dotted name: a function of a module, or a method of a class. A function that other modules of Callboard
have imported by name is replaced there too. Whatever is replaced is put back, however the block ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import attrs

from callboard.log.errors import CallboardError

Change = Callable[[Callable[..., Any]], Any]
"""Makes the wrong function out of the right one."""


class MutationStale(CallboardError):
    """A safeguard is to be switched off by a name that the code does not have any more. Bring the table up to date."""


@attrs.frozen
class Patch:
    """`target` is replaced by `change(original)`."""

    target: str
    change: Change


@contextmanager
def patched(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Replace all targets while the block runs. Raises `MutationStale`, with nothing replaced."""
    found = [(patch, *_owner_of(patch.target)) for patch in patches]
    with ExitStack() as stack:
        for patch, owner, name in found:
            original = vars(owner)[name]
            plain = original.__func__ if isinstance(original, staticmethod | classmethod) else original
            changed: Any = patch.change(plain)
            if isinstance(original, staticmethod | classmethod):
                changed = type(original)(changed)
            for place, key in _places(owner, name, original):
                setattr(place, key, changed)
                stack.callback(setattr, place, key, original)
        yield


def _owner_of(target: str) -> tuple[Any, str]:
    """The module or class that holds the target, and its name there."""
    *path, name = target.split(".")
    for length in range(len(path), 0, -1):
        try:
            owner: Any = import_module(".".join(path[:length]))
        except ModuleNotFoundError:
            continue
        for part in path[length:]:
            owner = getattr(owner, part, None)
        if owner is not None and name in vars(owner):
            return owner, name
        break
    raise MutationStale(f"{target} does not exist. Bring the table of safeguards up to date.", target=target)


def _places(owner: Any, name: str, original: Any) -> list[tuple[Any, str]]:
    """Where the original is bound: in its owner, and in all modules that imported it from there."""
    if isinstance(owner, type):
        return [(owner, name)]
    return [
        (module, key)
        for path, module in sorted(sys.modules.items())
        if module is not None and path.startswith("callboard")
        for key, value in sorted(vars(module).items())
        if value is original
    ]
