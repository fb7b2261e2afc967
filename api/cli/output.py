"""What commands print: lines on standard output, tables on terminals, JSON for scripts, and progress.

Text that comes from data (names, causes of failures) is never read as markup. A reader that went away raises
`BrokenPipeError`, which ends the command quietly; any other failure to print is a `StorageError`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from callboard.log.errors import StorageError
from callboard.log.limits import KIB

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
            paper.print(thing, soft_wrap=isinstance(thing, str), crop=False)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Collection[str] = (), title: str = ""
) -> RenderableType:
    """A table as all commands print it. Columns in `words` hold words, the others numbers; without any the first does.

    Numbers stand to the right; heads are broken between words only. Where the terminal is narrow words are folded, and
    numbers only if there is no other way; nothing is cut.
    """
    rows, words = [tuple(row) for row in rows], words or heads[:1]
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(heads))
    for index, head in enumerate(heads):
        longest_word = max(map(len, head.split()), default=0)
        if head in words:
            made.add_column(head, min_width=longest_word, overflow="fold")
        else:
            width = max([longest_word, *(len(row[index]) for row in rows)])
            made.add_column(head, justify="right", width=width, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return Group(Text(title, "bold"), made) if title else made


def facts(rows: Iterable[tuple[str, str]], *, title: str = "") -> RenderableType:
    """One thing, a fact a line: what it is, and its value."""
    return table(("", ""), rows, words=("",), title=title)


def size_text(size_bytes: int) -> str:
    """A number of bytes for people: 512 B, 1.5 KiB, 64 MiB."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < KIB:
            break
        size, unit = size / KIB, larger
    return f"{size:,.0f} {unit}" if size == int(size) or size >= 100 else f"{size:.1f} {unit}"


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


class _Bars(Progress):
    """A bar that fits any terminal, and below it the words, which end in "..." where the line does."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Two lines for each bar."""
        for task in self.tasks:
            yield self.make_tasks_table([task])
            yield Text(f"  {task.fields['text']}", no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def progress(what: str, *, quiet: bool = False, keep: bool = False) -> Iterator[Advance]:
    """Show progress while the body runs: a bar, the time and a line of words on a terminal, nothing elsewhere.

    `keep` leaves the bar there at the end, as it was last.
    The body gets `advance(text, done, total)`; `total` is None when nobody knows it.
    """
    paper = Console(stderr=True, markup=False, highlight=False)
    if quiet or not paper.is_terminal:
        yield lambda text, done, total: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[share]}", markup=False),
        TimeElapsedColumn(),
    )
    with _Bars(*columns, console=paper, transient=not keep, expand=True) as bars:
        task = bars.add_task(what, total=None, text="", share="")

        def advance(text: str, done: int, total: int | None) -> None:
            share = f"{min(done / total, 1.0):.0%}" if total else ""
            bars.update(task, text=text, share=share, completed=done, total=total)

        yield advance
