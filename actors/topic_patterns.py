"""Patterns: which topics a group reads whose topics are not named one by one. Pure.

A pattern is a name in which `*` stands for any number of characters, also none and also dots, and `?` for exactly one.
All else stands for itself, in the same case. `orders.*` matches `orders.eu` and `orders.eu.retail`, and not `orders`.
There is no other syntax, and nothing of it becomes a regular expression: matching takes time in proportion to the
lengths of pattern and name, whatever they hold.

A topic for dead letters never matches, unless that is asked for: what fails in it would come to it again.
"""

from __future__ import annotations

from typing import Final

import attrs

from callboard.actors.names import name_problem
from callboard.log.errors import InvalidArgument
from callboard.log.plain import kind, shown, text

MANY: Final = "*"
ONE: Final = "?"
DEAD_LETTER_ENDING: Final = ".dlq"
"""A topic whose name ends so is one for dead letters, before any group names it as one."""


@attrs.frozen
class TopicPattern:
    """What a group reads: the topics whose names match, with or without those for dead letters."""

    words: str
    """The pattern as it was given."""
    dead_letters: bool = False
    """Whether topics for dead letters match too."""

    def takes(self, name: str, *, takes_dead_letters: bool) -> bool:
        """Whether the topic of that name is read; `takes_dead_letters`: a group names it as its dead-letter topic."""
        is_for_dead_letters = takes_dead_letters or name.endswith(DEAD_LETTER_ENDING)
        return (self.dead_letters or not is_for_dead_letters) and matches(self.words, name)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is as the pattern says: after each `*`, the first place where the rest fits is enough."""
    at = place = 0
    many: int | None = None  # the last `*`, and from where in the name what follows it is tried
    tried = 0
    while place < len(name):
        if at < len(pattern) and pattern[at] == MANY:
            many, tried = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in (ONE, name[place]):
            at, place = at + 1, place + 1
        elif many is not None:
            tried += 1
            at, place = many + 1, tried
        else:
            return False
    return not pattern[at:].strip(MANY)


def pattern_problem(pattern: object) -> str | None:
    """Why this is no pattern; None when it is one."""
    given, pattern = pattern, text(pattern)
    if pattern is None:
        return f"it is {kind(given)}, not str"
    if not pattern:
        return "it is empty"
    if len(pattern) > 1 and pattern.startswith("-"):
        return name_problem(pattern)
    problem = name_problem(pattern.replace(MANY, "x").replace(ONE, "x"))
    return None if problem is None else f"no name can match it: {problem}"


def check_pattern(pattern: object, dead_letters: object) -> TopicPattern:
    """The pattern, or `InvalidArgument` saying what is wrong with it."""
    problem, words = pattern_problem(pattern), text(pattern)
    if problem is not None or words is None:
        raise InvalidArgument(
            f"{shown(pattern, 80)} is no pattern of topics: {problem}. Nothing was done. A pattern is a name with `*`"
            ' for any characters and `?` for one, such as "orders.*".'
        )
    if type(dead_letters) is not bool:
        raise InvalidArgument(
            f"dead_letters is {shown(dead_letters, 40)}, not True or False. Nothing was done."
        )
    return TopicPattern(words, dead_letters)
