"""The demo's events: generated from the profile or read from a file, as often as needed, always the same."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator

import attrs

from callboard.cli.files import read_lines
from callboard.log.errors import InvalidArgument
from callboard.recordings import (
    LINE_BYTES_MAX,
    Columns,
    Event,
    Format,
    Tally,
    load_profile,
    read_events,
    synthesise,
)
from callboard.simulations.entropy import SeededEntropy

__all__ = ["EVENTS_DEFAULT", "Source"]

EVENTS_DEFAULT = 30_000


@attrs.frozen(kw_only=True)
class Source:
    """Traffic from `path`, or generated from `seed` when that is None. With `limit` None it is all of a file."""

    seed: int
    path: str | None
    limit: int | None
    form: Format | None
    columns: Columns

    def events(
        self, *, first: int = 0, last: int | None = None, tally: Tally | None = None
    ) -> Iterator[Event]:
        """The events numbered from `first` to `last` (exclusive)."""
        if self.path is None:
            entropy = SeededEntropy(self.seed).fork("traffic")
            every = synthesise(load_profile(), EVENTS_DEFAULT if self.limit is None else self.limit, entropy)
        else:
            lines = read_lines(self.path, line_bytes_max=LINE_BYTES_MAX)
            every = read_events(lines, form=self.form, columns=self.columns, tally=tally)
            if self.limit is not None:
                every = itertools.islice(every, self.limit)
        return itertools.islice(every, first, last)

    def digests(self, tally: Tally) -> array[int]:
        """A fingerprint of each event. Raises `InvalidArgument` when there are fewer than two."""
        found = array("Q", (event.digest for event in self.events(tally=tally)))
        if len(found) < 2:
            where = "--events" if self.path is None else self.path
            reasons = "; ".join(f"line {number}: {reason}" for number, reason in tally.named[:3])
            raise InvalidArgument(
                f"{where} gives {len(found)} events, and the demo needs two at least. {reasons}".rstrip()
            )
        return found

    def arguments(self) -> list[str]:
        """The command-line options that give a child process the same source."""
        options = [f"--seed={self.seed}"]
        if self.limit is not None:
            options.append(f"--events={self.limit}")
        if self.path is not None:
            options.append(f"--input={self.path}")
            options.append(f"--time-format={self.columns.time_format.value}")
            columns = (("time", self.columns.time), ("key", self.columns.key), ("value", self.columns.value))
            options += [f"--{what}-column={name}" for what, name in columns if name is not None]
        if self.form is not None:
            options.append(f"--format={self.form.value}")
        return options
