"""What commands answer: as JSON for scripts, or as tables and lines for people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from typing import Any

import attrs

from callboard.cli import exits
from callboard.cli.options import json_option
from callboard.cli.output import Cell, print_json, say, show, table


@attrs.frozen
class CommandAnswer:
    """What a command found or did: one JSON document for scripts, or tables and lines for people."""

    document: Any
    lines: Iterable[Any] = ()
    """For standard output: made when they are printed, if this is a generator."""
    said: Iterable[str] = attrs.field(default=(), kw_only=True)
    """For standard error, behind the lines."""
    code: int = attrs.field(default=exits.OK, kw_only=True)
    is_stream: bool = attrs.field(default=False, kw_only=True)
    """Whether the document is a list, of which each item is a JSON document on a line of its own."""

    def print(self, *, as_json: bool) -> int:
        """Print it; the exit code."""
        if as_json:
            for document in self.document if self.is_stream else (self.document,):
                print_json(document)
        else:
            show(*self.lines)
            for line in self.said:
                say(line)
        return self.code


def listed(
    document: Any,
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    words: Collection[str] = (),
    nothing: str = "",
    code: int = exits.OK,
    is_stream: bool = False,
) -> CommandAnswer:
    """The answer of a command that lists things: a row each, or `nothing` in words."""
    cells = list(rows)
    lines = [table(heads, cells, words=words)] if cells else []
    said = [nothing] if nothing and not cells else []
    return CommandAnswer(document, lines, said=said, code=code, is_stream=is_stream)


def answering(command: Callable[..., CommandAnswer]) -> Callable[..., int]:
    """`--json`, for a command that returns its answer: print that, and return the exit code."""

    @json_option
    @wraps(command)
    def print_answer(*, as_json: bool, **given: Any) -> int:
        return command(**given).print(as_json=as_json)

    return print_answer
