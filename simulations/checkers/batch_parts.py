"""A batch is stored in order, and each message in the partition where it belongs.

What of a batch goes to one partition lies there in the batch's order, and its publisher gets those offsets. A message
is in the partition that its publisher chose, else in the one of its key; one without a key may be in any.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from zlib import crc32

from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "a batch is stored in order, and each message where it belongs"


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Batches out of order, in receipts or in the log, and messages in other partitions than theirs."""
    found = []
    for entry in history.of("published"):
        if any(later <= earlier for earlier, later in pairwise(entry.offsets)):
            words = f"the receipts of one batch put its messages at {entry.offsets} of {entry.topic}/{entry.partition}"
            found.append(Violation(PROMISE, words, entry))
    return found + _stored(history, surviving) + _elsewhere(history, surviving)


def _stored(history: History, surviving: Surviving) -> list[Violation]:
    """Batches whose messages do not lie in the log in their order. What was published twice may lie anywhere."""
    begun = Counter(number for entry in history.of("publish") for number in entry.ids)
    turn = {
        number: (entry, index)
        for entry in history.of("publish")
        if len(entry.ids) > 1
        for index, number in enumerate(entry.ids)
        if begun[number] == 1
    }
    found = []
    for left in surviving.partitions:
        highest: dict[int, int] = {}
        for offset, number in left.records.items():
            if number not in turn:
                continue
            entry, index = turn[number]
            before = highest.get(entry.operation, -1)
            if index < before:
                words = (
                    f"message {number}, number {index} of its batch, lies at {left.label}@{offset}, behind number"
                    f" {before} of that batch"
                )
                found.append(Violation(PROMISE, words, entry))
            highest[entry.operation] = max(before, index)
    return found


def _elsewhere(history: History, surviving: Surviving) -> list[Violation]:
    """Messages that lie in another partition than the one that was chosen, or that is their key's."""
    count = Counter(left.topic for left in surviving.partitions)
    found = []
    for left in surviving.partitions:
        for offset, number in left.records.items():
            key = history.keys.get(number)
            home = history.chosen.get(number)
            if home is None and key is not None:
                home = crc32(key) % count[left.topic]
            if home is not None and home != left.index:
                words = f"message {number} lies at {left.label}@{offset}, and belongs in partition {home}"
                found.append(Violation(PROMISE, words, None))
    return found
