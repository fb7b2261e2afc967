"""What the pytest plugin and a simulated test say to each other. It imports almost nothing, because every pytest run
loads it.

pytest can pass a test only the arguments that the test names, and Hypothesis may be between them. So the plugin sets a
context variable around the call of each test.
"""

from __future__ import annotations

import shlex
from collections import Counter
from contextvars import ContextVar
from typing import NamedTuple


class RunOptions(NamedTuple):
    """How the command line asks for one test to be run, and the test's name."""

    node: str = ""
    """What pytest calls the test: "tests/test_bank.py::test_transfer[3]"; empty outside pytest."""
    seeds: int | None = None
    """How many seeds to run, instead of the decorator's number."""
    seed: int | None = None
    """The only seed to run."""
    report: str | None = None
    """The folder for timelines of failures."""
    twice: bool = False
    """Run each seed twice, and compare."""

    def seeds_to_run(self, default: int) -> range:
        """The seeds to run, of which there are `default` unless the command line says otherwise."""
        if self.seed is not None:
            return range(self.seed, self.seed + 1)
        return range(self.seeds or default)

    def command(self, seed: int) -> str:
        """The command that runs this test under this seed only."""
        return f"pytest {shlex.quote(self.node or 'path::test')} --callboard-seed={seed}"


class Hits:
    """How often the seeds of a test hit what they should. What has no hits was missed."""

    __slots__ = ("drawn_faults", "planned_faults", "points")

    def __init__(self) -> None:
        self.points: Counter[str] = Counter()
        """By `sometimes` point."""
        self.drawn_faults: Counter[str] = Counter()
        """By kind of fault, of the kinds in a `FaultSpace`."""
        self.planned_faults: Counter[str] = Counter()
        """By kind of fault, of the kinds in a `Plan`."""

    def add(self, more: Hits) -> None:
        """Add those of other seeds."""
        self.points.update(more.points)
        self.drawn_faults.update(more.drawn_faults)
        self.planned_faults.update(more.planned_faults)


class SimulatedCall(NamedTuple):
    """One call of a test: its options, and the hits of those of its simulations that passed."""

    options: RunOptions
    hits: Hits


CURRENT: ContextVar[SimulatedCall | None] = ContextVar("callboard_testing", default=None)


def current_call() -> SimulatedCall:
    """The call under way; outside pytest a new one, without options."""
    return CURRENT.get() or SimulatedCall(RunOptions(), Hits())
