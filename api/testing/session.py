"""What the pytest plugin tells a simulated test, and what the test tells back. Imports nothing: every pytest run
loads it.

pytest has no way to hand a test something that the test did not ask for by name, and Hypothesis stands between them
besides: so a context variable, set by the plugin around the call of each test.
"""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["CURRENT", "Asked"]


class Asked:
    """One test's call: options of the command line, the test's name for it, and what it found."""

    __slots__ = ("node", "points", "seed", "seeds")

    def __init__(self, node: str = "", *, seeds: int | None = None, seed: int | None = None) -> None:
        self.node = node
        """What pytest calls the test: "tests/test_bank.py::test_transfer[3]"; empty outside pytest."""
        self.seeds = seeds
        """Instead of the decorator's number."""
        self.seed = seed
        """Only this one."""
        self.points: dict[str, int] = {}
        """Hits of every `sometimes` point over all seeds of this call."""

    def only(self, seeds: int) -> range:
        """The seeds to run, where the decorator says `seeds`."""
        if self.seed is not None:
            return range(self.seed, self.seed + 1)
        return range(self.seeds or seeds)


CURRENT: ContextVar[Asked | None] = ContextVar("callboard_testing", default=None)
