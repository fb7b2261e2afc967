"""A watcher of an actor is notified once that it has ended for good, at that moment, and of nothing else."""

from __future__ import annotations

from collections import Counter

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a watcher hears of the end, once"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Notices that came twice, late, for no end, or not at all."""
    found = []
    owed: Counter[str] = Counter()
    ended: dict[str, float] = {}
    for entry in history.of("tree begins", "watches", "terminated", "ActorEnded", "tree ended"):
        who = entry.who
        match entry.kind:
            case "tree begins":
                owed.clear()
                ended.clear()
            case "watches":
                owed[who] += 1
                ended.pop(who, None)
            case "ActorEnded":
                ended.setdefault(who, entry.time)
            case "terminated":
                owed[who] -= 1
                if who not in ended or owed[who] < 0:
                    found.append(
                        Violation(PROMISE, f"a watcher hears that {who} has ended, wrongly or again", entry)
                    )
                elif entry.time > ended[who] + SLACK_S:
                    late_s = entry.time - ended[who]
                    found.append(
                        Violation(PROMISE, f"a watcher hears {late_s:g} s late that {who} has ended", entry)
                    )
            case "tree ended":
                found += [
                    Violation(PROMISE, f"{path} has ended, and its watcher does not hear of it", entry)
                    for path, count in owed.items()
                    if count > 0
                ]
    return found
