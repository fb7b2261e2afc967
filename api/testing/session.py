"""What the pytest plugin passes to a simulated test, and what the test reports. It imports almost nothing, because
every pytest run loads it.

pytest can pass a test only the arguments that the test names, and Hypothesis may be between them. So the plugin sets a
context variable around the call of each test.
"""

from __future__ import annotations

from contextvars import ContextVar


class RequestedRun:
    """One test's call: options of the command line, the test's name for it, and what it found."""

    __slots__ = ("faults", "is_planned", "node", "points", "report", "seed", "seeds", "twice")

    def __init__(
        self,
        node: str = "",
        *,
        seeds: int | None = None,
        seed: int | None = None,
        report: str | None = None,
        twice: bool = False,
    ) -> None:
        self.node = node
        """What pytest calls the test: "tests/test_bank.py::test_transfer[3]"; empty outside pytest."""
        self.seeds = seeds
        """How many seeds to run, instead of the decorator's number."""
        self.seed = seed
        """The only seed to run."""
        self.report = report
        """The folder for timelines of failures."""
        self.twice = twice
        """Run each seed twice, and compare."""
        self.points: dict[str, int] = {}
        """Hits of every `sometimes` point over all seeds of this call."""
        self.faults: dict[str, int] = {}
        """Hits of every kind of fault that the test asks for, over all seeds of this call."""
        self.is_planned = False
        """The faults are a plan's, written by hand."""

    def only(self, seeds: int) -> range:
        """The seeds to run, when the decorator's number is `seeds`."""
        if self.seed is not None:
            return range(self.seed, self.seed + 1)
        return range(self.seeds or seeds)


CURRENT: ContextVar[RequestedRun | None] = ContextVar("callboard_testing", default=None)
