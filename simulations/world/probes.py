"""Probes: countable points that a run passes, and what waits for the n-th passing of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class _ProbeWaiter:
    left: int
    about: str
    call: Callable[[], None]


class Probes:
    """Counts passings by name, and calls those that wait, at once."""

    __slots__ = ("_waiting", "counts")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._waiting: dict[str, list[_ProbeWaiter]] = {}

    def wait(self, probe: str, count: int, about: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call()` at the `count`-th passing from now on whose subject contains `about`; returns an end to it."""
        waiter = _ProbeWaiter(count, about, call)
        self._waiting.setdefault(probe, []).append(waiter)

        def forget() -> None:
            waiters = self._waiting.get(probe, [])
            if waiter in waiters:
                waiters.remove(waiter)

        return forget

    def is_awaited(self, probe: str) -> bool:
        """Whether anybody waits for a passing of it."""
        return bool(self._waiting.get(probe))

    def is_due(self, probe: str, about: str) -> bool:
        """Whether a fault waits for the very next passing, if its subject is `about`."""
        return any(waiter.left <= 1 and waiter.about in about for waiter in self._waiting.get(probe, ()))

    def passed(self, probe: str, about: str) -> None:
        """Count a passing of the point."""
        self.counts[probe] += 1
        waiters = self._waiting.get(probe)
        if not waiters:
            return
        due = []
        for waiter in waiters:
            if waiter.about in about:
                waiter.left -= 1
                if waiter.left <= 0:
                    due.append(waiter)
        for waiter in due:
            waiters.remove(waiter)
        for waiter in due:
            waiter.call()
