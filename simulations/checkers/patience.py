"""`get(timeout=)` and `receive(timeout=)` wait as long as they say, no less and no more.

One that is not to wait at all looks for a moment, for what the partitions answer. No task wakes in a busy loop.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.faults.kinds import BusyLoop
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a wait with a timeout lasts as long as the timeout"
BUSY: Final = BusyLoop.__name__
LOOK_S: Final = 0.05
"""How long a consumer that does not want to wait allows the partitions for their answers."""
STEP_S: Final = 0.005
"""By how much a timeout may be late."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per call that came to nothing too early, or too late."""
    found = []
    busy_until = 0.0
    for entry in history.of("gave up", "fault"):
        if entry.kind == "fault":
            busy_until = entry.time if entry.who == BUSY else busy_until
            continue
        if not entry.detail:
            continue
        waited_s, timeout_s = entry.time - entry.until, float(entry.detail)
        latest_s = max(timeout_s, LOOK_S, busy_until - entry.until) + STEP_S
        if not timeout_s - STEP_S <= waited_s <= latest_s:
            words = f"{entry.who} was to wait for {timeout_s:g} s, and waited for {waited_s:g} s"
            found.append(Violation(PROMISE, words, entry))
    return found
