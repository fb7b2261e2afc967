"""The tape: every scheduling decision of a run as numbers, to be kept, replayed and made simpler.

A decision is taken at each tick at which more than one task could be stepped. It is the tuple of positions, in order of
the tasks' creation, of those that are stepped now, in the order in which they are; those that are missing wait for the
next tick. The empty tuple stands for "all, in order of creation", so the simplest tape is one of empty tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from callboard.log.errors import CallboardError, InvalidArgument

Decision = tuple[int, ...]
FIFO: Final[Decision] = ()
DECISIONS_MAX: Final = 5_000_000
WIDTH_MAX: Final = 100_000


class StaleTape(CallboardError):
    """A tape was replayed on code, a workload or a plan that it was not recorded with."""


@attrs.frozen
class Tape:
    """Decisions in order. After the last one, all are `FIFO`."""

    decisions: tuple[Decision, ...] = ()

    @property
    def choices(self) -> int:
        """How many decisions are not `FIFO`."""
        return sum(1 for decision in self.decisions if decision)

    def plain(self, first: int, end: int) -> Tape:
        """The same tape with the decisions from `first` to before `end` made `FIFO`."""
        kept = self.decisions
        return Tape((*kept[:first], *([FIFO] * (min(end, len(kept)) - first)), *kept[end:])).trimmed()

    def trimmed(self) -> Tape:
        """Without `FIFO` decisions at the end, which say nothing."""
        end = len(self.decisions)
        while end and not self.decisions[end - 1]:
            end -= 1
        return Tape(self.decisions[:end])

    def to_data(self) -> list[int | list[int]]:
        """Plain data: a number stands for this many `FIFO` decisions, a list for one other decision."""
        data: list[int | list[int]] = []
        plain = 0
        for decision in self.decisions:
            if not decision:
                plain += 1
                continue
            if plain:
                data.append(plain)
                plain = 0
            data.append(list(decision))
        return [*data, plain] if plain else data

    @classmethod
    def from_data(cls, data: object) -> Tape:
        """What `to_data` made. Raises `InvalidArgument` for anything else: it may come from a file."""
        if not isinstance(data, list):
            raise _bad("it is no list")
        decisions: list[Decision] = []
        for item in data:
            if type(item) is int and 0 < item <= DECISIONS_MAX:
                decisions += [FIFO] * item
            elif isinstance(item, list) and item:
                decisions.append(_decision(item))
            else:
                raise _bad(f"{str(item)[:40]!r} is neither a count nor a decision")
            if len(decisions) > DECISIONS_MAX:
                raise _bad(f"it has more than {DECISIONS_MAX:,} decisions")
        return cls(tuple(decisions))


def _decision(item: Sequence[object]) -> Decision:
    numbers: Iterable[object] = item
    if len(item) > WIDTH_MAX or any(type(number) is not int for number in numbers):
        raise _bad("a decision holds something else than numbers")
    decision = tuple(number for number in item if isinstance(number, int))
    if len(set(decision)) < len(decision) or min(decision) < 0 or max(decision) >= WIDTH_MAX:
        raise _bad("a decision names a position twice, or one that cannot be")
    return decision


def _bad(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"this is not a schedule's tape: {why}. Nothing was run. Use a file that a sweep wrote."
    )
