"""The story of a failed run: who did what when, in words, and where it first departed from the promise.

Of a short history everything is told. Of a long one what concerns the entry at which the promise was first seen broken:
entries about the same messages, offsets or operation, and about what the failure's words quote; faults that had an
effect, machines and actors that went down and came back, and what came just before; the end. What was left out is
counted. In a watched run, which tells every step of the program, what the broker's own actors do in order is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise, zip_longest
from typing import Final

import attrs

from callboard.simulations.history import HistoryEntry
from callboard.simulations.search.replay import promise_of, words_of
from callboard.simulations.violations import Violation
from callboard.simulations.watching import code_at, shown_place, told
from callboard.simulations.world import Run, SimulationStuck

SHORT_ENTRIES: Final = 40
SHORT_WATCHED_ENTRIES: Final = 80
LINES_MAX: Final = 80
FOLDED_MIN: Final = 4
"""This many waits of one task at one place in a row are shown as one."""
JUST_BEFORE: Final = 8
"""This many entries before a machine or an actor goes down are shown, and three times as many before the failure."""
QUOTED_CHARACTERS_MIN: Final = 4
DOWN: Final = frozenset({"power cut", "killed", "IncarnationCrashed"})
FAILED: Final = frozenset({"failed", "broken", "stuck"})
DRAMATIC: Final = (
    DOWN
    | FAILED
    | {
        "booted",
        "closed",
        "healed",
        "fault",
        "note",
        "ActorRestarted",
        "ActorFailed",
        "Escalated",
        "last power cut",
        "looked",
        "recovered",
    }
)
"""Kinds of entries that matter to any failure."""
MESSAGES: Final = frozenset(
    {
        *(
            "publish",
            "published",
            "delivered",
            "ack",
            "acked",
            "nack",
            "nacked",
            "release",
            "refused",
            "unsure",
        ),
        *("lost", "asks actor", "tells actor", "takes", "has the answer", "no answer"),
    }
)
"""Kinds of entries that say what became of a message: they stay when there is too much to tell."""
FAULTS: Final = DOWN | {"fault", "failed", "ActorFailed", "Escalated"}
"""Kinds of entries that are marked as faults, or as what follows from them."""
ORDERLY: Final = frozenset({"ActorStarted", "ActorEnded", "GroupCreated", "GroupDeleted", "fault lasts"})
"""What the broker's own actors do in every run."""
USERS: Final = "user/"

LIVES: Final = frozenset({"delivered", "joined", "left"})
"""Their operation is a consumer's life, which is long."""


@attrs.frozen
class StoryLine:
    """One line of a story. `number` is the entry's; -1 for a remark of how many were left out."""

    number: int
    time: str
    """Virtual seconds, with as many digits as tell apart the times of a story."""
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
    waiting: tuple[str, ...] = ()
    """Where each task waited when it failed, and for what."""

    def text(self) -> str:
        """The story as lines of text."""
        parts = [self.title, f"  {self.words}", ""]
        if self.waiting:
            parts += [f"{WAITING}:", *(f"  - {line}" for line in self.waiting), ""]
        parts += [*self.remarks, *([""] if self.remarks else [])]
        if self.faults:
            parts += ["What was made to fail:", *(f"  - {fault}" for fault in self.faults), ""]
        if self.lines:
            parts += ["What happened:", *self._told(), ""]
        return "\n".join([*parts, "To see it again:", f"  {self.command}"])

    def _told(self) -> Iterator[str]:
        wide = max(len(str(line.number)) for line in self.lines)
        for line in self.lines:
            if line.number < 0:
                yield f"   {'':{wide}} {'':12} ... {line.words}"
                continue
            mark = ">>" if line.is_divergence else " !" if line.is_fault else "  "
            yield f"{mark} {line.number:{wide}} {line.time:>10} s  {line.words}"


WAITING: Final = "Where each task waited"
WIRE_MODE: Final = (
    "Wire mode: the runtime's actors sent and answered copies of messages, encoded and decoded."
)


def tell(run: Run, command: str, scenario: str, remarks: Sequence[str] = ()) -> Story:
    """The story of a run that failed. `remarks` are lines that stand before it."""
    failure = run.failure
    title, words = f"{scenario}, seed {run.seed}: it ends well", ""
    waiting: tuple[str, ...] = ()
    if failure is not None:
        title = f"{scenario}, seed {run.seed}: broken promise: {promise_of(failure)}"
        words = words_of(failure)
        if isinstance(failure, SimulationStuck):
            waiting = tuple(told(run.waiting))
            words = words.partition("\n")[0] if waiting else words
        else:  # those that only wait for others to end say nothing
            waiting = tuple(told([each for each in run.waiting if not each.wait.is_for_end]))
    entries = run.history.entries
    if not run.plan.faults:
        entries = [entry for entry in entries if entry.kind != "healed"]
    first = first_of(run)
    return Story(
        title=title,
        words=words,
        remarks=(*remarks, *((WIRE_MODE,) if run.delivers_copies else ())),
        faults=tuple(_faults(run)),
        lines=tuple(_lines(entries, picked(entries, first, words), first)),
        command=command,
        waiting=waiting,
    )


def first_of(run: Run) -> HistoryEntry | None:
    """The entry at which the failure showed: where the disk was looked at last, if only that told."""
    failure = run.failure
    if not isinstance(failure, Violation):
        return run.first
    if failure.first is not None or run.first is not None:
        return failure.first or run.first
    looks = run.history.of("looked")
    return looks[-1] if looks else None


def entry_words(entry: HistoryEntry) -> str:
    """An entry in words, with the line of the program that did it."""
    words = entry.words()
    if not entry.where:
        return words
    place = shown_place(entry.where)
    if entry.kind == "waits":
        code = code_at(entry.where)
        return f"{entry.who} waits at {place}{words.removeprefix(f'{entry.who} waits')}{f': {code}' if code else ''}"
    return f"{words}  [{place}]"


def _faults(run: Run) -> Iterator[str]:
    for index, fault in enumerate(run.plan.faults):
        hits = run.hits.get(index, 0)
        times = "no effect" if not hits else "once" if hits == 1 else f"{hits} times"
        yield f"{fault.words()} ({times})"


def picked(
    entries: Sequence[HistoryEntry], first: HistoryEntry | None, words: str = ""
) -> list[HistoryEntry]:
    """The entries that the story needs, in order, at most `LINES_MAX`. `words` are the failure's."""
    if not any(entry.where for entry in entries):
        return _picked(entries, first, SHORT_ENTRIES)
    again = folded(entries).left_out
    program = [
        entry
        for before, entry in pairwise([None, *(entry for entry in entries if not _is_orderly(entry))])
        if entry is not None and not _is_repeat(before, entry) and entry.number not in again
    ]
    if len(program) <= SHORT_WATCHED_ENTRIES:
        return program
    ids = {number for entry in program if _is_quoted(entry, words) for number in entry.ids}
    close = {entry.number for entry in _just_before(program)}
    close |= {entry.number for entry in program if not ids.isdisjoint(entry.ids)}
    chosen = [
        entry
        for entry in program
        if entry.kind in DRAMATIC | MESSAGES or entry.number in close or _concerns(entry, first)
    ]
    return _nearest(chosen, first or program[-1], close)


@attrs.frozen
class Folded:
    """Waits of one task at one place, again and again: told once, with how often and until when."""

    told: Mapping[int, str]
    """By the number of the first entry of each such row: what is added to its words."""
    left_out: frozenset[int]
    """Numbers of the others."""


def folded(entries: Sequence[HistoryEntry]) -> Folded:
    """The rows of waits among these entries; what other tasks do meanwhile does not end a row."""
    rows: list[list[HistoryEntry]] = []
    last: dict[tuple[int, str], list[HistoryEntry]] = {}
    for entry in entries:
        if not entry.who:
            continue
        task = entry.machine, entry.who
        row = last.get(task)
        if row is not None and entry.kind == "waits" and row[0][2:] == entry[2:]:
            row.append(entry)
            continue
        last[task] = [entry]
        if entry.kind == "waits":
            rows.append(last[task])
    long = [row for row in rows if len(row) >= FOLDED_MIN]
    return Folded(
        {row[0].number: f" ({len(row):,} times, until {row[-1].time:.3f} s)" for row in long},
        frozenset(entry.number for row in long for entry in row[1:]),
    )


def _is_repeat(before: HistoryEntry | None, entry: HistoryEntry) -> bool:
    """Whether a task does nothing but what it did just now."""
    return (
        before is not None and entry.kind == "waits" and before[3:] == entry[3:] and before.time == entry.time
    )


def _is_orderly(entry: HistoryEntry) -> bool:
    return (entry.kind in ORDERLY and not entry.who.startswith(USERS)) or (
        entry.kind == "recovered" and not entry.attempts[0]
    )


def _is_quoted(entry: HistoryEntry, words: str) -> bool:
    """Whether the failure's words quote what this entry is about."""
    return len(entry.detail) >= QUOTED_CHARACTERS_MIN and bool(entry.ids) and entry.detail in words


def _just_before(entries: Sequence[HistoryEntry]) -> Iterator[HistoryEntry]:
    """What came last before something went down, and before the end."""
    for at, entry in enumerate(entries):
        count = 3 * JUST_BEFORE if entry.kind in FAILED or at == len(entries) - 1 else JUST_BEFORE
        if entry.kind in DOWN | FAILED or at == len(entries) - 1:
            yield from entries[max(0, at - count) : at]


def _picked(entries: Sequence[HistoryEntry], first: HistoryEntry | None, short: int) -> list[HistoryEntry]:
    """Of a run that was not watched."""
    if len(entries) <= short:
        return list(entries)
    chosen = [entry for entry in entries if entry.kind in DRAMATIC or _concerns(entry, first)]
    if first is None:
        last = entries[-short // 2 :]
        chosen += [entry for entry in last if entry not in chosen]
        chosen.sort(key=lambda entry: entry.number)
    return _nearest(chosen, first or chosen[-1])


def _nearest(
    chosen: list[HistoryEntry], first: HistoryEntry, close: Set[int] = frozenset()
) -> list[HistoryEntry]:
    """At most `LINES_MAX`: those that concern `first` or are `close`, then others than waits, the closest first."""
    if len(chosen) > LINES_MAX:

        def rank(entry: HistoryEntry) -> tuple[bool, bool, int]:
            concerns = entry.number in close or _concerns(entry, first)
            return not concerns, entry.kind == "waits", abs(entry.number - first.number)

        chosen.sort(key=rank)
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
    digits = digits_of([entry.time for entry in chosen])
    numbers = {entry.number for entry in chosen}
    is_watched = any(entry.where for entry in entries)
    again = folded(entries) if is_watched else Folded({}, frozenset())
    left_out = 0
    ended: HistoryEntry | None = None
    for entry, after in zip_longest(entries, entries[1:]):
        if entry.number not in numbers:
            left_out += not (is_watched and _is_orderly(entry)) and entry.number not in again.left_out
            continue
        if left_out:
            yield _omission(left_out)
            left_out = 0
        if entry is ended:
            continue
        words = f"{entry_words(entry)}{again.told.get(entry.number, '')}"
        if is_watched and after is not None and _is_end(entry, after, first):
            ended, words = after, f"{words}{_end_words(after)}"
        yield StoryLine(
            entry.number,
            f"{entry.time:.{digits}f}",
            words,
            is_fault=entry.kind in FAULTS,
            is_divergence=first is not None and entry.number == first.number,
        )
    if left_out:
        yield _omission(left_out)


def _omission(count: int) -> StoryLine:
    return StoryLine(-1, "", f"{count} {'entry' if count == 1 else 'entries'} about other things left out")


def _end_words(after: HistoryEntry) -> str:
    if after.kind == "published" and after.detail == "leader":
        return f"; the operating system has it, as {after.place}"
    return ENDS[after.kind].format(place=after.place)


def _is_end(entry: HistoryEntry, after: HistoryEntry, first: HistoryEntry | None) -> bool:
    """Whether the operation that `entry` begins ends with the very next entry, at the same time, as one expects."""
    same = entry.operation == after.operation != 0 and entry.time == after.time and after is not first
    return same and entry.who == after.who and after.kind in ENDS


ENDS: Final = {
    "published": "; it is stored at {place}",
    "acked": "; that is synced",
    "nacked": "; that counts",
    "released": "; that counts",
    "extended": "; that counts",
    "persisted": "; that is stored",
}


def digits_of(times: Sequence[float]) -> int:
    """How many digits tell these times apart: three, unless two that differ would look the same, at most six."""
    different = set(times)
    return next(
        (digits for digits in (3, 6) if len({round(time, digits) for time in different}) == len(different)), 6
    )
