"""The `sometimes` points in the body of a test, so that points that no run reaches are reported too."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

__all__ = ["points_in"]


def points_in(body: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the points in the source of `body` that are plain strings; none when there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(body)))
    except (OSError, SyntaxError, TypeError):
        return ()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    names = [call.args[0] for call in calls if _called(call) == "sometimes"]
    return tuple(
        name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)
    )


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
