"""Topics and groups are what was made of them: as if every change had happened at one moment while it was under way.

That holds over crashes, power cuts and openings. A change that was answered has happened, one that failed definitely
has not. One that failed indefinitely has happened or not, and that stays so as soon as something else was changed, or
the catalog was read from the disk again. Groups may also end by themselves, when they should.

Each name is looked at alone (being linearizable is a property of each object): all that can be is followed from entry
to entry. A *position* is a state, and which of the changes under way have happened in it already.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import attrs

from callboard.simulations.checkers.catalog_model import DONE, State, apply
from callboard.simulations.checkers.group_life import GroupLives
from callboard.simulations.checkers.terms import DEFAULT, Terms
from callboard.simulations.history.entry import MAYBE, HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "topics and groups are what was made of them"
MOMENT_S: Final = 1.0
"""A catalog that has started has carried out all that was decided so long after, as far as listing shows it."""
POSITIONS_MAX: Final = 5_000
"""More are not followed: then nothing is said about that name."""
REFUSALS: Final = ("TopicNotFound", "TopicExists", "GroupNotFound", "ConfigurationError")
UNDONE: Final = "DiskFull"
"""How creating a topic ends when it was deleted again."""

Position = tuple[State, frozenset[int]]


@attrs.define
class Change:
    """A change of one topic or group, and what is known of it."""

    number: int
    begun: HistoryEntry
    verb: str
    given: dict[str, Any]
    end: HistoryEntry | None = None
    outcome: str | None = None
    """How it ended; None: it may have happened."""
    result: str = ""
    """The settings that it was answered with."""
    windows: tuple[tuple[int, float], ...] = ()
    """When it may have happened, if that is unknown: numbers of entries from which, and up to which."""

    @property
    def may_be_undone(self) -> bool:
        """A topic may have been made, and deleted again because its partitions found no space."""
        if self.verb != "create_topic" or self.outcome is not None:
            return False
        heard = "" if self.end is None else self.end.detail
        return not self.has_answer or heard.removesuffix(MAYBE) == UNDONE or heard.startswith("ActorCrashed")

    @property
    def has_answer(self) -> bool:
        """Whether the catalog said how it ended, and not only that its answer was lost."""
        heard = None if self.end is None else self.end.detail
        return heard is not None and heard != "Cancelled" and not heard.startswith("RuntimeClosed")

    @property
    def has_failed(self) -> bool:
        """It did not happen."""
        return self.outcome is not None and self.outcome != DONE and self.outcome not in REFUSALS


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """At most one violation per topic and group: what comes after it says nothing more."""
    if not history.of("change"):
        return []
    changes = _changes(history)
    lives = GroupLives(history)
    listed = _listed(history)
    found = []
    for kind, name in changes:
        follower = _Follower(kind, name, lives)
        violation = follower.follow(changes[kind, name], listed[kind], history)
        if violation is not None:
            found.append(violation)
    return found


# -- reading the history ------------------------------------------------------------------------------------


def _changes(history: History) -> dict[tuple[str, str], list[Change]]:
    """All changes by what they change."""
    by_operation: dict[int, Change] = {}
    found: defaultdict[tuple[str, str], list[Change]] = defaultdict(list)
    kinds = ("change", "changed", "not changed", "maybe changed", "joining", "joined", "gone")
    for entry in history.of(*kinds):
        change = by_operation.get(entry.operation)
        if entry.kind in ("change", "joining"):
            verb, _, given = (
                entry.detail.partition(" ") if entry.kind == "change" else ("subscribe", "", entry.detail)
            )
            change = by_operation[entry.operation] = Change(entry.number, entry, verb, json.loads(given))
            where = ("topic", entry.topic) if verb.endswith("topic") else ("group", entry.group)
            found[where].append(change)
        elif change is not None and change.end is None:
            change.end = entry
            change.outcome = _outcome(entry, change.verb)
            change.result = entry.detail if entry.kind == "changed" else ""
    closing = _Closing(history)
    for several in found.values():
        for change in tuple(several):
            if (
                change.verb in ("alter_topic", "create_topic")
                and change.outcome == "TopicNotFound"
                and _was_deleted(change, several)
            ):
                change.outcome = (
                    None  # it may have been done, and the topic was deleted before that was answered
                )
            if change.outcome is None:
                change.windows = closing.windows(change)
            if change.may_be_undone:
                undoing = attrs.evolve(change, number=-change.number - 1, verb="delete_topic", given={})
                several.append(undoing)
    return found


def _was_deleted(change: Change, others: list[Change]) -> bool:
    """Whether the topic was deleted while the change was under way."""
    begun, end = change.begun, change.end
    deletions = [other for other in others if other.verb == "delete_topic" and end and other.begun < end]
    return any(other.end is None or other.end > begun for other in deletions)


def _outcome(entry: HistoryEntry, verb: str) -> str | None:
    if entry.kind in ("changed", "joined"):
        return DONE
    if entry.kind == "maybe changed":
        return None
    if verb == "subscribe":
        # The group may have been made, or had been there, before joining failed.
        return entry.detail if entry.detail == "ConfigurationError" else None
    if verb == "create_topic" and entry.detail == UNDONE:
        return None
    return entry.detail


class _Closing:
    """When a change whose end is unknown may happen."""

    def __init__(self, history: History) -> None:
        self._times = [entry.time for entry in history.entries]
        starts = [entry for entry in history.of("ActorStarted") if entry.who == "catalog"]
        self._starts = [entry.number for entry in starts]
        self._after_start = [bisect_left(self._times, entry.time + MOMENT_S) for entry in starts]
        """The first entry a moment after each start."""
        self._booted = [entry.number for entry in history.of("booted", "opened")]
        self._broken_off = [
            entry.number
            for entry in history.of("booted", "opened", "IncarnationCrashed")
            if entry.kind != "IncarnationCrashed" or entry.who == "catalog"
        ]
        deciding = {entry.operation: entry.number for entry in history.of("change", "joining")}
        self._decided = [
            (deciding[entry.operation], entry.number)
            for entry in history.of("changed", "joined")
            if entry.operation in deciding
        ]

    def windows(self, change: Change) -> tuple[tuple[int, float], ...]:
        """From which entry up to which: up to there it has happened, or does not any more."""
        begun, end = change.begun.number, change.end
        if end is None or not change.has_answer:
            # The client that asked has gone, and what it asked may still wait, until the runtime ends.
            after = bisect_left(self._booted, begun if end is None else end.number)
            later = after < len(self._booted)
            return ((begun, self._started_after(self._booted[after]) if later else math.inf),)
        if not end.detail.endswith(MAYBE):
            return ((begun, end.number),)  # it is over
        if end.detail.startswith("ActorCrashed"):
            return ((begun, self._started_after(end.number)),)
        # It is over, but for what the catalog may have written, and reads at its next start: unless the journal was
        # healed before, for another decision.
        here = bisect_left(self._broken_off, end.number)
        if here == len(self._broken_off):
            return ((begun, end.number),)
        read = self._broken_off[here]
        if any(end.number < other and done < read for other, done in self._decided):
            return ((begun, end.number),)
        return (begun, end.number), (read, self._started_after(read))

    def _started_after(self, number: int) -> float:
        here = bisect_left(self._starts, number)
        return self._after_start[here] if here < len(self._starts) else math.inf


@attrs.frozen
class _Seen:
    """A listing: begun and ended, and the state of each name."""

    begun: HistoryEntry
    end: HistoryEntry
    states: dict[str, str]

    @property
    def number(self) -> int:
        """No change has it, nor any other listing."""
        return self.begun.number


def _listed(history: History) -> dict[str, list[_Seen]]:
    asked = {entry.operation: entry for entry in history.of("list groups")}
    found: dict[str, list[_Seen]] = {"topic": [], "group": []}
    for entry in history.of("topics listed", "groups listed"):
        seen = json.loads(entry.detail)
        states = {name: json.dumps(row["settings"], sort_keys=True) for name, row in seen.items()}
        if entry.kind == "topics listed":
            found["topic"].append(_Seen(entry, entry, states))
        else:
            found["group"].append(_Seen(asked[entry.operation], entry, states))
    return found


# -- following ----------------------------------------------------------------------------------------------


class _Follower:
    """Follows what one topic or group can be."""

    def __init__(self, kind: str, name: str, lives: GroupLives) -> None:
        self._kind = kind
        self._name = name
        self._lives = lives
        self._open: dict[int, Change] = {}
        self._reads: dict[int, str | None] = {}
        self._positions: set[Position] = {(None, frozenset())}

    def follow(self, changes: list[Change], listed: list[_Seen], history: History) -> Violation | None:
        """The first entry that cannot be."""
        for entry, what, subject in sorted(
            self._events(changes, listed, history), key=lambda event: (event[0].number, event[1])
        ):
            before = {state for state, _ in self._positions}
            self._advance(entry)
            if len(self._positions) > POSITIONS_MAX:
                return None
            if what == 0:  # a change that did not happen yet does not any more
                self._close(subject)
            elif what == 1:
                self._end(subject)
            elif what == 2:
                self._begin(subject)
            if not self._positions:
                return Violation(PROMISE, self._words(entry, subject, before), entry)
        return None

    def _events(
        self, changes: list[Change], listed: list[_Seen], history: History
    ) -> Iterator[tuple[HistoryEntry, int, Any]]:
        """Entries that say something, and what: 0 closes, 1 ends, 2 begins, 3 lets time pass."""
        entries = history.entries
        for change in changes:
            if change.has_failed:
                continue
            if change.outcome is not None:
                yield change.begun, 2, change
                if change.end is not None:
                    yield change.end, 1, change
                continue
            for opens, closes in change.windows:
                yield entries[opens], 2, change
                if closes < len(entries):
                    yield entries[int(closes)], 0, change
        for seen in listed:
            yield seen.begun, 2, seen
            if seen.end is not seen.begun:
                yield seen.end, 1, seen
        if self._kind == "group":
            for entry in history.of("booted", "note", "opened", "power cut", "killed", "closed"):
                yield entry, 3, None

    def _advance(self, at: HistoryEntry) -> None:
        """All that can be before `at`: any of what is under way may happen, in any order."""
        waiting = list(self._positions)
        while waiting and len(self._positions) <= POSITIONS_MAX:
            for after in self._next(waiting.pop(), at):
                if after not in self._positions:
                    self._positions.add(after)
                    waiting.append(after)

    def _next(self, position: Position, at: HistoryEntry) -> Iterator[Position]:
        state, happened = position
        for number, change in self._open.items():
            if number in happened:
                continue
            outcome, then = apply(change.verb, change.given, state)
            if change.outcome is not None and outcome != change.outcome:
                continue
            if change.result and change.result != then:
                continue
            yield then, happened | {number}
        for number, seen in self._reads.items():
            if number not in happened and seen == state:
                yield state, happened | {number}
        if (
            self._kind == "group"
            and state is not None
            and self._lives.may_end(self._name, json.loads(state), at)
        ):
            yield None, happened

    def _begin(self, subject: Change | _Seen) -> None:
        number = subject.number
        if isinstance(subject, Change):
            self._open[number] = subject
        elif subject.begun is subject.end:
            wanted = subject.states.get(self._name)
            self._positions = {position for position in self._positions if position[0] == wanted}
        else:
            self._reads[number] = subject.states.get(self._name)

    def _end(self, subject: Change | _Seen) -> None:
        """It has happened."""
        number = subject.number
        self._open.pop(number, None)
        self._reads.pop(number, None)
        self._positions = {
            (state, happened - {number}) for state, happened in self._positions if number in happened
        }
        if not isinstance(subject, Change) or subject.verb != "subscribe" or subject.outcome != DONE:
            return
        if subject.end is not None:  # a consumer that has joined finds the group there
            life = self._lives.lives[subject.begun.operation]
            if not self._lives.may_be_deleted(life, subject.end):
                self._positions = {position for position in self._positions if position[0] is not None}

    def _close(self, change: Change) -> None:
        """It has happened or never will."""
        number = change.number
        self._open.pop(number, None)
        self._positions = {(state, happened - {number}) for state, happened in self._positions}

    def _words(self, entry: HistoryEntry, subject: Any, before: set[State]) -> str:
        known = " or ".join(sorted("nothing" if state is None else _told(state) for state in before))
        if isinstance(subject, _Seen):
            seen = subject.states.get(self._name)
            what = f"was listed as {_told(seen) if seen is not None else 'nothing'}"
        else:
            what = f"{subject.verb} {json.dumps(subject.given)} ended with {subject.outcome}"
            what += f" {_told(subject.result)}" if subject.result else ""
        return f"{self._kind} {self._name}: {what} at {entry.time:.3f} s; before, it can have been {known}"


def _told(state: str) -> str:
    """Settings without those that are as usual."""
    settings = json.loads(state)
    usual = {False, None, "none", "shared", "beginning"}
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value not in usual)
