"""What commands print: lines on standard output, tables on terminals, JSON for scripts, and progress.

Text that comes from data (names, causes of failures) is never read as markup. A reader that went away raises
`BrokenPipeError`, which ends the command quietly; any other failure to print is a `StorageError`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import shutil
import sys
import textwrap
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
"""The width of tables that are not printed on a terminal, where the environment variable COLUMNS says nothing."""

TERMINAL_WIDTH = 80
"""The width of a terminal that does not know its own."""

Advance = Callable[[str, int, int | None], None]


COMMAND = re.compile(r"\s*(callboard|pytest) ")
"""A line to copy, which is not folded."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)?")
"""A value in a table that is not folded where a shorter one could be: half a time is read as another."""
QUOTED = re.compile(r"`[^`]*`")
GLUE = "\0"
"""Stands for a space where no line may end."""
MOMENT = re.compile(r"..? *\d+ +[\d.,]+ s {2}|\s*(- |\d+\. )?")
"""What stands before the words of a line: the number and the time of an entry, or an indent."""


class Paper(Console):
    """Standard output, without Rich's handling of markup, emoji and closed pipes."""

    def on_broken_pipe(self) -> None:
        """Called while the `BrokenPipeError` is being handled: let it pass."""
        raise


def show(*things: Any) -> None:
    """Print tables, trees and lines on standard output."""
    with _printing():
        is_terminal = sys.stdout.isatty()
        paper = Paper(markup=False, highlight=False, emoji=False, width=_width())
        for thing in things:
            is_text = isinstance(thing, str)
            printed = folded(thing, paper.width) if is_text and is_terminal else thing
            paper.print(printed, soft_wrap=is_text, crop=False)


def _width() -> int:
    """How many characters a table may be wide: what COLUMNS says, else the terminal."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size((TERMINAL_WIDTH if is_terminal else PIPE_WIDTH, 0)).columns


def folded(text: str, width: int) -> str:
    """Lines that are longer than the terminal's, broken between words, and indented to where their words began.

    All that is broken to fit a terminal is broken here. What stands in `quotes`, to be copied, stays whole.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= width or COMMAND.match(line):
            lines.append(line)
            continue
        head = MOMENT.match(line)
        start = 0 if head is None or head.end() > width // 2 else head.end()
        kept = QUOTED.sub(lambda found: found[0].replace(" ", GLUE), line[start:])
        words = textwrap.wrap(
            kept, width - start, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
        )
        lines += [line[:start] + first if not at else " " * start + first for at, first in enumerate(words)]
    return "\n".join(lines).replace(GLUE, " ")


def on_screen(text: str) -> str:
    """A line for standard error: on a terminal broken between words."""
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    return folded(text, Console(stderr=True).width)


Cell = str | int | None
"""Numbers get commas between thousands; None is an empty cell."""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell]], *, words: Collection[str] = (), title: str = ""
) -> RenderableType:
    """A table as all commands print it. Columns in `words` hold words, the others numbers; without any the first does.

    Numbers stand to the right; heads are broken between words only. Where the terminal is narrow words are folded, and
    numbers and times only if there is no other way; nothing is cut.
    """
    cells, words = [[_cell_text(cell) for cell in row] for row in rows], words or heads[:1]
    widths = [max([len(head), *(len(row[at]) for row in cells)]) for at, head in enumerate(heads)]
    is_narrow = sum(widths) + 2 * len(widths) > _width()  # else no head is broken
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(heads))
    for index, head in enumerate(heads):
        longest_word = max(map(len, head.split()), default=0) if is_narrow else len(head)
        if head in words:
            times = [len(row[index]) for row in cells if TIME.fullmatch(row[index])]
            made.add_column(head, min_width=max([longest_word, *times]), overflow="fold")
        else:
            width = max([longest_word, *(len(row[index]) for row in cells)])
            made.add_column(head, justify="right", width=width, overflow="fold")
    for row in cells:
        made.add_row(*row)
    return Group(Text(title, "bold"), made) if title else made


def _cell_text(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell or ""


def facts(rows: Iterable[tuple[str, Cell]], *, title: str = "") -> RenderableType:
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


def duration_text(seconds: float) -> str:
    """Seconds for people: 0.5 s, 300 s (5 min), 604800 s (7 days)."""
    plain = f"{int(seconds) if seconds == int(seconds) else seconds} s"
    if seconds < 120:
        return plain
    parts, left = [], seconds
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{int(count):,} {'day' if count == 1 and unit == 'days' else unit}")
    return f"{plain} ({' '.join(parts)})"


def legible(data: str | bytes | None, most: int) -> str:
    """Text from data on one line, `most` characters at most: what a terminal would obey is escaped, and what is no
    UTF-8, as in `\\t` and `\\xff`.
    """
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data or ""
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text[: most + 1]
    )
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def counted(count: int, word: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


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
    """Print a line on standard error; on a terminal broken between words."""
    click.echo(on_screen(text), err=True)


def to_json(found: Any) -> str:
    """One JSON document on one line. Numbers that are not finite, which JSON does not have, are null."""
    try:
        return json.dumps(found, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(found), default=_plain, allow_nan=False)


def _finite(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _finite(each) for name, each in found.items()}
    if isinstance(found, (list, tuple)):
        return [_finite(each) for each in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


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
    The body gets `advance(text, done, total)`; `total` is None when it is unknown.
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
