"""Reasons of dead letters, counted by what they share. Pure.

Five handlers that fail in one line with five values are one reason. What `Topic.work` notes of a handler, such as
`KeyError: 'abc', at shop.py:41 in price`, is counted by the exception's type and its place. In other texts quoted words
and numbers may differ. Texts that are all the same are shown as they are, others with `N` and `'…'` in their places.

Invariants
----------
RN1  No more than `REASONS_COUNTED_MAX` reasons are kept, those of each group for themselves; what comes beyond them is
     counted as `OTHERS`.
RN2  The counts add up to what was counted.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from callboard.log.limits import REASONS_COUNTED_MAX

OTHERS: Final = "(other reasons)"
FAILED: Final = re.compile(r"([^\W\d][\w.]*)(?:: .*)?, at (\S[^,]*:\d+ in \S+)", re.DOTALL)
"""How a handler failed: its exception's type, what that says, and where."""
QUOTED: Final = re.compile(r"(?<!\w)(?:'[^']*'|\"[^\"]*\")(?!\w)")
WORD: Final = re.compile(r"\w+")
DIGIT: Final = re.compile(r"\d")


def shared_part(reason: str) -> str:
    """What the reason shares with others of its kind. Applying it twice changes nothing."""
    failed = FAILED.fullmatch(reason)
    if failed is not None:
        return f"{failed[1]}, at {failed[2]}"
    unquoted, before = reason, ""
    while unquoted != before:  # quotes go with what was quoted: others may stand together now
        before, unquoted = unquoted, QUOTED.sub(lambda quoted: f"{quoted[0][0]}…{quoted[0][0]}", unquoted)
    return WORD.sub(lambda word: "N" if DIGIT.search(word[0]) else word[0], unquoted)


@attrs.define
class _Counted:
    text: str | None
    """The reason, while all that were counted here are the same; else what they share."""
    messages: int = 0


class ReasonCounts:
    """Counts reasons; those that are the same in full, when `full` is set."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._counted: dict[tuple[str | None, str | None], _Counted] = {}
        """By group, and what the reasons share."""
        self._others = 0

    def add(self, reason: str | None, group: str | None = None) -> None:
        """One more message has this reason; a group's are counted for themselves, those without a group together."""
        key = reason if reason is None or self._full else shared_part(reason)
        counted = self._counted.get((group, key))
        if counted is None:
            if len(self._counted) >= REASONS_COUNTED_MAX:
                self._others += 1
                return
            counted = self._counted[group, key] = _Counted(reason)
        elif counted.text != reason:
            counted.text = key
        counted.messages += 1

    def counts(self) -> dict[str | None, int]:
        """How many messages have each reason, the most frequent first, and `OTHERS` last; of one group."""
        return {text: messages for _, text, messages in self.by_group()}

    def by_group(self) -> list[tuple[str | None, str | None, int]]:
        """How many messages of which group have each reason, the most frequent first, and `OTHERS` of all last."""
        found = [(group, counted.text, counted.messages) for (group, _), counted in self._counted.items()]
        others = [(None, OTHERS, self._others)] if self._others else []
        return [*sorted(found, key=lambda row: -row[2]), *others]
