"""The first line in which the traces of two runs of one seed differ, with what both had in common just before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

import attrs

CONTEXT_LINES: Final = 8
LINE_CHARACTERS_MAX: Final = 400
ENDED: Final = "(the trace ended)"


@attrs.frozen
class Difference:
    """`number` counts lines from 1; `before` is what both traces say in the lines before it."""

    number: int
    before: tuple[str, ...]
    one: str
    other: str

    def text(self) -> str:
        """The difference as lines of text."""
        first = self.number - len(self.before)
        common = [f"  {first + at:>8}    {line}" for at, line in enumerate(self.before)]
        return "\n".join(
            [*common, f"  {self.number:>8} A  {self.one}", f"  {self.number:>8} B  {self.other}"]
        )


def first_difference(one: Iterable[str], other: Iterable[str]) -> Difference | int:
    """The first line that differs; how many lines there are when none does. Reads no further than it has to."""
    before: deque[str] = deque(maxlen=CONTEXT_LINES)
    number = 0
    for number, (mine, yours) in enumerate(zip_longest(one, other), 1):
        if mine != yours:
            return Difference(number, tuple(before), _cut(mine), _cut(yours))
        before.append(_cut(mine))
    return number


def _cut(line: str | None) -> str:
    if line is None:
        return ENDED
    return (
        line
        if len(line) <= LINE_CHARACTERS_MAX
        else f"{line[:LINE_CHARACTERS_MAX]}... ({len(line)} characters)"
    )
