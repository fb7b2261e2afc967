"""A durable actor finds in each life what it answered in those before: all of it, whole, in order, and nothing else.

What `persist` wrote for one message is there completely or not at all. What one life found, in its journal or when it
began with a message, the next ones find too.
"""

from __future__ import annotations

from itertools import groupby

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a durable actor finds what it answered"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """What was missing, twice, in part or in another order when a durable actor began a life."""
    answered: dict[str, set[int]] = {}
    whole: dict[int, int] = {}
    handled: dict[int, list[int]] = {}
    earlier: dict[str, tuple[int, ...]] = {}
    found = []
    for entry in history.of("handled", "writes", "written", "finds", "journal read"):
        match entry.kind:
            case "handled":
                handled.setdefault(entry.ids[0], []).append(entry.number)
            case "writes":
                whole[entry.ids[0]] = entry.offsets[0]
            case "written":
                answered.setdefault(entry.who, set()).add(entry.ids[0])
            case "finds":
                earlier[entry.who] = entry.ids
            case "journal read":
                found += _recovered(entry, answered.get(entry.who, set()), whole, handled)
                before = earlier.get(entry.who, ())
                if entry.ids[: len(before)] != before:
                    words = f"{entry.who} found {len(before)} events in an earlier life, and does not find them again"
                    found.append(Violation(PROMISE, words, entry))
                earlier[entry.who] = entry.ids
    return found


def _recovered(
    entry: HistoryEntry, answered: set[int], whole: dict[int, int], handled: dict[int, list[int]]
) -> list[Violation]:
    runs = [(number, len(list(same))) for number, same in groupby(entry.ids)]
    numbers = [number for number, _ in runs]
    words = ""
    missing = answered.difference(numbers)
    if missing:
        words = f"lacks the events of message {min(missing)}, which were written"
    elif len(set(numbers)) < len(numbers):
        words = "finds the events of a message in two places"
    elif numbers != sorted(numbers, key=lambda number: handled.get(number, [0])[0]):
        words = "finds events in another order than it wrote them"
    for number, count in runs:
        size, times = whole.get(number, 0), len(handled.get(number, ()))
        if not size or count % size or count // size > times:
            words = (
                f"finds {count} events of message {number}, which was handled {times} times and wrote {size}"
            )
    return [Violation(PROMISE, f"{entry.who} {words}", entry)] if words else []
