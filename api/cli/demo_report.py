"""What the demo prints: progress while it runs, and the account as a table or as JSON."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from callboard.cli.demo_account import Account

__all__ = ["Stage", "Summary", "print_summary", "progress_stage", "say", "summary_to_dict"]

_PLAIN_EVERY_S = 1.0

Stage = Callable[[int, int], None]


@attrs.frozen(kw_only=True)
class Timing:
    """How long an act took, and how many messages it published and had acknowledged in that time."""

    act: str
    seconds: float
    published: int
    acknowledged: int

    @property
    def published_per_s(self) -> float:
        """Messages acknowledged to publishers per second."""
        return self.published / self.seconds if self.seconds else 0.0

    @property
    def acknowledged_per_s(self) -> float:
        """Messages acknowledged by workers per second."""
        return self.acknowledged / self.seconds if self.seconds else 0.0


@attrs.frozen(kw_only=True)
class Summary:
    """The account and the figures around it."""

    account: Account
    seed: int
    source: str
    partitions: int
    workers: int
    directory: str
    bad_lines: int
    bad_lines_named: tuple[tuple[int, str], ...]
    timings: tuple[Timing, ...]


def summary_to_dict(summary: Summary) -> dict[str, Any]:
    """The report as values for JSON."""
    found = attrs.asdict(summary)
    found["account"]["balanced"] = summary.account.balanced
    for timing, row in zip(summary.timings, found["timings"], strict=True):
        row["published_per_s"] = round(timing.published_per_s, 1)
        row["acknowledged_per_s"] = round(timing.acknowledged_per_s, 1)
    return found


def say(text: str, *, quiet: bool) -> None:
    """Print a line on standard error."""
    if not quiet:
        click.echo(text, err=True)


@contextlib.contextmanager
def progress_stage(name: str, total: int, *, quiet: bool) -> Iterator[Stage]:
    """Shows the progress of one act: bars on a terminal, a line per second elsewhere, nothing when quiet."""
    if quiet:
        yield lambda published, acknowledged: None
    elif sys.stderr.isatty():
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        ) as bars:
            first = bars.add_task(f"{name}: published", total=total)
            second = bars.add_task(f"{name}: acknowledged", total=total)

            def show(published: int, acknowledged: int) -> None:
                bars.update(first, completed=published)
                bars.update(second, completed=acknowledged)

            yield show
    else:
        yield _PlainStage(name, total)


class _PlainStage:
    """Prints a line now and then."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._next = trio.current_time() + _PLAIN_EVERY_S

    def __call__(self, published: int, acknowledged: int) -> None:
        if trio.current_time() >= self._next:
            self._next = trio.current_time() + _PLAIN_EVERY_S
            text = f"{self._name}: {published:,} of {self._total:,} published, {acknowledged:,} acknowledged"
            click.echo(text, err=True)


def print_summary(summary: Summary) -> None:
    """Print the account as a table on standard output."""
    console = Console(highlight=False)
    table = Table(title=f"Account of {summary.source}, seed {summary.seed}", title_justify="left")
    table.add_column("what")
    table.add_column("how many", justify="right")
    table.add_column("note")
    for name, value, note in _rows(summary):
        table.add_row(name, value, note)
    console.print(table)
    for number, reason in summary.bad_lines_named:
        console.print(f"line {number}: {reason}", markup=False)
    if summary.account.balanced:
        console.print("The account balances.")
    for problem in summary.account.problems:
        console.print(f"DOES NOT BALANCE: {problem}", markup=False)


def _rows(summary: Summary) -> Iterator[tuple[str, str, str]]:
    account = summary.account
    yield "events in the input", f"{account.events:,}", f"{summary.bad_lines:,} bad lines left out"
    yield "published and acknowledged", f"{account.acknowledged_publishes:,}", "have a receipt"
    yield "publishes in doubt", f"{account.publish_errors:,}", "indefinite errors, repeated"
    yield (
        "in doubt at the kill",
        f"{account.in_doubt_at_kill:,}",
        f"of these stored: {account.in_doubt_stored:,}",
    )
    yield "stored", f"{account.stored:,}", f"of these repeated publishes: {account.stored_twice:,}"
    yield "delivered", f"{account.delivered:,}", "to a worker's hands"
    yield "redelivered", f"{account.redelivered:,}", "delivered once more"
    yield "handled", f"{account.handled:,}", "the work was done"
    in_doubt = f"in doubt: {account.acknowledged_in_doubt:,}"
    yield "acknowledged by workers", f"{account.acknowledged:,}", in_doubt
    yield "lost", f"{account.lost:,}", ""
    yield "altered", f"{account.altered:,}", ""
    yield "out of order within a key", f"{account.out_of_order:,}", "by first appearance in the log"
    yield "delivered after its ack", f"{account.delivered_after_acknowledgement:,}", ""
    yield "not settled at the end", f"{account.unsettled:,}", ""
    yield "restarts", f"{account.restarts:,}", f"after {account.crashes:,} crashes of partitions"
    for timing in summary.timings:
        rates = f"{timing.published_per_s:,.0f}/s published, {timing.acknowledged_per_s:,.0f}/s acknowledged"
        yield timing.act, f"{timing.seconds:.2f} s", rates
    yield "publish to acknowledged", _ms(account.publish_ms_p50), f"p99 {_ms(account.publish_ms_p99)}"
    yield "publish to handled", _ms(account.handled_ms_p50), f"p99 {_ms(account.handled_ms_p99)}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} ms"
