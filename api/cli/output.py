"""What commands print: lines on standard output, tables on terminals, JSON for scripts, and progress.

Text that comes from data (names, causes of failures) is never read as markup. A reader that went away raises
`BrokenPipeError`, which ends the command quietly; any other failure to print is a `StorageError`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from callboard.log.errors import StorageError

PIPE_WIDTH = 240
"""The width of tables that are not printed on a terminal."""

Advance = Callable[[str, int, int | None], None]


class Paper(Console):
    """Standard output, without Rich's handling of markup, emoji and closed pipes."""

    def on_broken_pipe(self) -> None:
        """Called while the `BrokenPipeError` is being handled: let it pass."""
        raise


def show(*things: Any) -> None:
    """Print tables, trees and lines on standard output."""
    with _printing():
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        paper = Paper(markup=False, highlight=False, emoji=False, width=width)
        for thing in things:
            paper.print(thing, soft_wrap=isinstance(thing, str))


@contextlib.contextmanager
def _printing() -> Iterator[None]:
    if sys.stdout is None:
        raise StorageError("standard output is closed. Nothing was printed.")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failed(error) from error


def say(text: str) -> None:
    """Print a line on standard error."""
    click.echo(text, err=True)


def to_json(found: Any) -> str:
    """One JSON document on one line."""
    return json.dumps(found, default=_plain)


def print_json(found: Any) -> None:
    """One JSON document on standard output."""
    with _printing():
        click.echo(to_json(found))


def _plain(found: Any) -> Any:
    return plain_bytes(bytes(found)) if isinstance(found, (bytes, bytearray, memoryview)) else str(found)


def plain_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes in JSON: as text when they are UTF-8, else as {"base64": ...}. `publish --json-lines` takes both."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def output_failed(error: OSError) -> StorageError:
    """The error for standard output that cannot be written."""
    return StorageError(
        f"standard output cannot be written: {error.strerror}. What was printed before is not complete. Free space,"
        " or write elsewhere.",
        error=error,
    )


@contextlib.contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Show progress while the body runs: a bar on a terminal, nothing elsewhere.

    The body gets `advance(text, done, total)`; `total` is None when nobody knows it.
    """
    paper = Console(stderr=True, markup=False, highlight=False)
    if quiet or not paper.is_terminal:
        yield lambda text, done, total: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=paper, transient=True) as bars:
        task = bars.add_task(what, total=None, text="")

        def advance(text: str, done: int, total: int | None) -> None:
            bars.update(task, text=text, completed=done, total=total)

        yield advance
