"""When a group's visibility timeout was altered, the new one holds: for every lease that is given after that.

Also after crashes, restarts and reopenings. Leases that were given before keep their time, and a consumer that extends
the lease of one message does so for those that it got with it.
"""

from __future__ import annotations

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

__all__ = ["PROMISE", "check"]

PROMISE = "altered settings of a group hold from then on"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per delivery whose lease lasts longer than both the new timeout and the leases given before."""
    altered: dict[str, HistoryEntry] = {}
    extended: dict[str, float] = {}
    found = []
    for entry in history.of("group altered", "extended", "delivered"):
        if entry.kind == "group altered":
            altered[entry.group] = entry
        elif entry.kind == "extended":
            extended[entry.who] = max(entry.until, extended.get(entry.who, 0.0))
        elif entry.group in altered:
            timeout_s = terms.visibility_s[entry.group]
            known = altered[entry.group].until, extended.get(entry.who, 0.0)
            if entry.until > max(*known, entry.time + timeout_s) + SLACK_S:
                words = (
                    f"{entry.who} of {entry.group} was handed {entry.topic}/{entry.partition} at {entry.time:.3f} s"
                    f" until {entry.until:.3f} s; the group's visibility timeout was altered to {timeout_s:g} s before"
                )
                found.append(Violation(PROMISE, words, entry))
    return found
