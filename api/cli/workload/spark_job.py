"""What the commands have in common that run a job on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import attrs
import click

from callboard.cli.answers import CommandAnswer
from callboard.cli.options import json_option
from callboard.cli.output import Advance, progress
from callboard.simulations.workload.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class SparkJob:
    """Where a job runs, and whether its progress is shown."""

    master: str | None
    memory: str
    is_quiet: bool

    def open(self) -> AbstractContextManager[SparkSession]:
        """Start Spark, or take the session that is there."""
        return open_session(self.master, memory=self.memory)

    def progress(self, what: str) -> AbstractContextManager[Advance]:
        """Show progress while the body runs."""
        return progress(what, quiet=self.is_quiet)

    @contextmanager
    def session(self, what: str) -> Iterator[SparkSession]:
        """A session for one job, with its progress."""
        with self.progress(what), self.open() as session:
            yield session


def spark_job(command: Callable[..., CommandAnswer]) -> Callable[..., int]:
    """The options of a job on Spark, and `--json`, for a command that returns its answer. It gets the `job`."""

    @click.option(
        "--master",
        metavar="URL",
        help="Spark's master, for example spark://host:7077.  [default: local[*], or that of spark-submit]",
    )
    @click.option(
        "--driver-memory",
        "memory",
        default="1g",
        show_default=True,
        metavar="SIZE",
        help="Memory of Spark's driver, where this command starts it.",
    )
    @json_option
    @wraps(command)
    def run(*, master: str | None, memory: str, as_json: bool, **given: Any) -> int:
        return command(job=SparkJob(master, memory, as_json), **given).print(as_json=as_json)

    return run


def bucket_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--bucket SECONDS`, with its help; the command gets `bucket_us`."""
    return click.option(
        "--bucket",
        "bucket_us",
        type=click.IntRange(min=1),
        metavar="SECONDS",
        callback=lambda _context, _option, seconds: None if seconds is None else seconds * 1_000_000,
        help=text,
    )
