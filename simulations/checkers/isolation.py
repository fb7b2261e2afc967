"""A fault at one topic leaves the others alone: what is asked of them is answered in time, and never refused.

A *call* is about one topic, or about what reads only that one; its *answer* says how it ended. Calls about a topic at
which something fails may take as long as they do.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE: Final = "a fault at one topic leaves the others alone"
FAILING: Final = "failing"
"""The name of the topic at which things fail."""
ANSWER_S: Final = 1.0
"""Whatever is asked of a topic where nothing fails is answered within a number of virtual seconds."""
ENDS: Final = ("power cut", "killed", "closed")


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """One violation per call about another topic that was answered late, with an error, or not at all."""
    calls = [entry for entry in history.of("call") if entry.topic != FAILING]
    if not calls:
        return []
    answers: dict[int, HistoryEntry] = {}
    for entry in history.of("answer"):  # what is delivered once more was answered before
        answers.setdefault(entry.operation, entry)
    ended = {entry.operation: entry.time for entry in history.of(*ENDS)}
    now = history.entries[-1].time
    found = []
    for call in calls:
        answer = answers.get(call.operation)
        if answer is not None and answer.machine != call.machine:
            answer = None  # its machine's end came first
        took_s = (answer.time if answer else ended.get(call.machine, now)) - call.time
        words = ""
        if took_s > ANSWER_S:
            words = f"took {took_s:.3f} s" if answer else f"was not answered within {took_s:.3f} s"
        elif answer is not None and answer.detail:
            words = f"was refused ({answer.detail})"
        if words:
            found.append(Violation(PROMISE, f"{call.who}: {call.detail} of {call.topic} {words}", call))
    return found
