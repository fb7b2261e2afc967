"""The story of a failed run: who did what when, in words, and where it first departed from the promise.

Of a short history everything is told. Of a long one what concerns the entry at which the promise was first seen broken:
entries about the same messages, offsets or operation, faults that had an effect, machines and actors that went down and
came back, the end. What was left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from callboard.simulations.history import HistoryEntry
from callboard.simulations.search.replay import promise_of, words_of
from callboard.simulations.violations import Violation
from callboard.simulations.world import Run

SHORT_ENTRIES: Final = 40
LINES_MAX: Final = 80
DRAMATIC: Final = frozenset(
    {
        "booted",
        "power cut",
        "killed",
        "closed",
        "healed",
        "fault",
        "note",
        "IncarnationCrashed",
        "ActorRestarted",
        "ActorFailed",
        "Escalated",
    }
)
"""Kinds of entries that matter to any failure."""


LIVES: Final = frozenset({"delivered", "joined", "left"})
"""Their operation is a consumer's life, which is long."""


@attrs.frozen
class StoryLine:
    """One line of a story. `number` is the entry's; -1 for a remark of how many were left out."""

    number: int
    time: float
    words: str
    is_fault: bool = False
    is_divergence: bool = False


@attrs.frozen
class Story:
    """A failure as it is told."""

    title: str
    words: str
    remarks: tuple[str, ...]
    """What was run: the workload, the schedule."""
    faults: tuple[str, ...]
    lines: tuple[StoryLine, ...]
    command: str

    def text(self) -> str:
        """The story as lines of text."""
        parts = [self.title, f"  {self.words}", "", *self.remarks, *([""] if self.remarks else [])]
        if self.faults:
            parts += ["What was made to fail:", *(f"  - {fault}" for fault in self.faults), ""]
        if self.lines:
            parts += ["What happened:", *(_told(line) for line in self.lines), ""]
        return "\n".join([*parts, "To see it again:", f"  {self.command}"])


def _told(line: StoryLine) -> str:
    if line.number < 0:
        return f"               ... {line.words}"
    mark = ">>" if line.is_divergence else " !" if line.is_fault else "  "
    return f"{mark} {line.time:10.3f} s  {line.words}"


def tell(run: Run, command: str, scenario: str, remarks: Sequence[str] = ()) -> Story:
    """The story of a run that failed. `remarks` are lines that stand before it."""
    failure = run.failure
    title, words, first = f"{scenario}, seed {run.seed}: it ends well", "", None
    if failure is not None:
        title = f"{scenario}, seed {run.seed}: broken promise: {promise_of(failure)}"
        words = words_of(failure)
        first = failure.first if isinstance(failure, Violation) else None
    entries = run.history.entries
    return Story(
        title=title,
        words=words,
        remarks=tuple(remarks),
        faults=tuple(_faults(run)),
        lines=tuple(_lines(entries, picked(entries, first), first)),
        command=command,
    )


def _faults(run: Run) -> Iterator[str]:
    for index, fault in enumerate(run.plan.faults):
        hits = run.hits.get(index, 0)
        times = "no effect" if not hits else "once" if hits == 1 else f"{hits} times"
        yield f"{fault.words()} ({times})"


def picked(entries: Sequence[HistoryEntry], first: HistoryEntry | None) -> list[HistoryEntry]:
    """The entries that the story needs, in order, at most `LINES_MAX`."""
    if len(entries) <= SHORT_ENTRIES:
        return list(entries)
    chosen = [entry for entry in entries if entry.kind in DRAMATIC or _concerns(entry, first)]
    if first is None:
        last = entries[-SHORT_ENTRIES // 2 :]
        chosen += [entry for entry in last if entry not in chosen]
        chosen.sort(key=lambda entry: entry.number)
    if len(chosen) > LINES_MAX:
        close = first.number if first is not None else chosen[-1].number
        chosen.sort(key=lambda entry: (not _concerns(entry, first), abs(entry.number - close)))
        chosen = sorted(chosen[:LINES_MAX], key=lambda entry: entry.number)
    return chosen


def _concerns(entry: HistoryEntry, first: HistoryEntry | None) -> bool:
    if first is None:
        return False
    if entry.number == first.number:
        return True
    if first.operation and entry.operation == first.operation and not {first.kind, entry.kind} & LIVES:
        return True
    if not set(entry.ids).isdisjoint(first.ids):
        return True
    same_place = entry.topic == first.topic and entry.partition == first.partition >= 0
    return same_place and not set(entry.offsets).isdisjoint(first.offsets)


def _lines(
    entries: Sequence[HistoryEntry], chosen: Sequence[HistoryEntry], first: HistoryEntry | None
) -> Iterator[StoryLine]:
    expected = 0
    for entry in chosen:
        if entry.number > expected:
            yield _omission(entry.number - expected, entry.time)
        expected = entry.number + 1
        yield StoryLine(
            entry.number,
            entry.time,
            entry.words(),
            is_fault=entry.kind in ("fault", "power cut", "killed", "IncarnationCrashed"),
            is_divergence=first is not None and entry.number == first.number,
        )
    if len(entries) > expected:
        yield _omission(len(entries) - expected, entries[-1].time)


def _omission(count: int, time: float) -> StoryLine:
    return StoryLine(-1, time, f"{count} {'entry' if count == 1 else 'entries'} about other things left out")
