"""Backoffs grow and begin anew as they are stated, and supervision gives up neither too late nor too early.

The n-th restart in a row waits `initial * factor ** (n - 1)` seconds, at most `maximum`, less a random share of up to
`jitter` of it. After a child has run for its supervisor's period, after a restart by hand, and in a new life of its
supervisor, its next delay is the first. Within a period a supervisor restarts its significant children `intensity`
times at most, all together, and gives up only when they need one more; an insignificant child has a window of its own,
which a restart by hand begins anew. Only what is to be restarted is, and no actor fails for a reason that is not there.
"""

from __future__ import annotations

import math
from collections import deque

import attrs

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.checkers.tree_state import RESTARTS, TOLD, Leaf, Team, TreeState
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "backoffs and intensities are as stated"
STOPPING_S = 20.0
"""So long after it gave up a team may end: only then its own supervisor counts it."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Delays that no count of restarts explains, restarts too many, and giving up with restarts to spare."""
    if terms.tree is None:
        return []
    found: list[Violation] = []
    books: _Books | None = None
    for entry in history.of(*TOLD):
        if entry.kind == "tree begins":
            books = _Books(TreeState(terms.tree, entry))
        elif books is not None and entry.machine == books.tree.machine:
            words = books.see(entry)
            if words:
                found.append(Violation(PROMISE, words, entry))
            books.tree.apply(entry)
            if entry.kind == "tree ended":
                books = None
    return found


@attrs.define(eq=False)
class _IntensityWindow:
    """What counts towards one intensity."""

    ends: deque[float] = attrs.Factory(deque)
    """Ends that may have needed a restart: at least as many as did."""
    restarts: deque[float] = attrs.Factory(deque)

    def clear(self) -> None:
        self.ends.clear()
        self.restarts.clear()


@attrs.define(eq=False)
class _Row:
    """One actor's restarts in a row."""

    counts: frozenset[int] = frozenset({0})
    """How many there may have been."""
    base: float = -math.inf
    """When its last life was to begin."""
    anew: float = -math.inf
    """When it began anew by hand. What is reported at that instant may have been decided before."""
    earlier: frozenset[int] = frozenset()
    """How many there may have been before it began anew."""


class _Books:
    """What is counted of one tree."""

    def __init__(self, tree: TreeState) -> None:
        self.tree = tree
        self._together = {team.path: _IntensityWindow() for team in tree.teams.values()}
        self._alone: dict[str, _IntensityWindow] = {}
        self._rows: dict[str, _Row] = {}
        self._root = _IntensityWindow()

    def see(self, entry: HistoryEntry) -> str:
        """What is wrong with it, before the tree knows of it."""
        if self.tree.is_blurred:
            return ""
        if entry.kind == "Escalated":
            return self._gave_up(entry)
        if entry.kind == "restart asked" and entry.who in self.tree.teams:
            self._anew(self.tree.teams[entry.who])
        leaf = self.tree.leaves.get(entry.who)
        if leaf is None:
            return ""
        match entry.kind:
            case "begins" | "ActorStarted" if self.tree.reopens(leaf, entry):
                self._anew(leaf.team)
            case "restart asked" | "add child asked":
                self._window_alone(leaf).clear()
                earlier = self._rows.get(leaf.path, _Row()).counts
                self._rows[leaf.path] = _Row(anew=entry.time, earlier=earlier)
            case "IncarnationCrashed" | "stopped" | "left":
                self._ended(leaf, entry)
            case "ActorRestarted":
                return self._restarted(leaf, entry)
            case "ActorFailed":
                return self._failed(leaf, entry)
        return ""

    def _anew(self, team: Team) -> None:
        self._together[team.path].clear()
        for leaf in self.tree.leaves.values():
            if leaf.team is team:
                self._window_alone(leaf).clear()
                self._rows[leaf.path] = _Row()

    def _window_alone(self, leaf: Leaf) -> _IntensityWindow:
        return self._alone.setdefault(leaf.path, _IntensityWindow())

    def _window(self, leaf: Leaf) -> tuple[_IntensityWindow, float, float]:
        """The window that its restarts count in, the intensity and the period."""
        spec, team = leaf.spec, leaf.team.spec
        if spec.significant:
            return self._together[leaf.team.path], team.intensity, team.period
        intensity = team.intensity if spec.intensity is None else spec.intensity
        return self._window_alone(leaf), intensity, team.period

    def _ended(self, leaf: Leaf, entry: HistoryEntry) -> None:
        window, _, _ = self._window(leaf)
        if entry.kind == "IncarnationCrashed" and not leaf.lives and window.ends:
            return  # a function that left and crashed at once: one end
        if leaf.lives and leaf.is_expected_to_end:
            return
        window.ends.append(entry.time)

    def _restarted(self, leaf: Leaf, entry: HistoryEntry) -> str:
        if leaf.was_expected and leaf.team.closing is None:
            return f"{leaf.path} was to end, and its end counts as a restart that it needs"
        how = "finished" if entry.detail == "no error" and leaf.was_finished else "crashed"
        if how not in RESTARTS[leaf.spec.restart]:
            return f"{leaf.path} is {leaf.spec.restart}, has {how}, and is restarted"
        window, intensity, period_s = self._window(leaf)
        now = entry.time
        if leaf.spec.significant or now > self._rows.setdefault(leaf.path, _Row()).anew + SLACK_S:
            window.restarts.append(now)
        while window.restarts and now - window.restarts[0] > period_s + SLACK_S:
            window.restarts.popleft()
        inside = sum(now - restart < period_s - SLACK_S for restart in window.restarts)
        if inside > intensity:
            return (
                f"{leaf.path} is the {inside}th to be restarted within {period_s:g} s, and {intensity} may be"
            )
        return self._delayed(leaf, entry, period_s)

    def _delayed(self, leaf: Leaf, entry: HistoryEntry, period_s: float) -> str:
        row = self._rows.setdefault(leaf.path, _Row())
        now, backoff, delay_s = entry.time, leaf.spec.backoff, entry.until
        ran_s = -1.0 if leaf.was_up_at is None else now - leaf.was_up_at
        possible: set[int] = set()
        if now - row.base > period_s - SLACK_S:
            possible.add(1)
        if ran_s <= period_s + SLACK_S:
            counts = row.counts | row.earlier if now <= row.anew + SLACK_S else row.counts
            possible.update(count + 1 for count in counts)
        fitting = set()
        for count in possible:
            longest_s = min(backoff.maximum, backoff.initial * backoff.factor ** min(count - 1, 1_000))
            if longest_s * (1 - backoff.jitter) - SLACK_S <= delay_s <= longest_s + SLACK_S:
                fitting.add(count)
        row.counts = frozenset(fitting or possible)
        if now <= row.anew + SLACK_S:
            row.counts |= {0}
        row.base = now + delay_s
        if fitting:
            return ""
        numbers = " or ".join(map(str, sorted(possible)))
        return (
            f"{leaf.path} waits {delay_s:g} s for restart {numbers} in a row, which its backoff does not say"
        )

    def _failed(self, leaf: Leaf, entry: HistoryEntry) -> str:
        if leaf.team.closing is not None:
            return ""  # its team has failed
        if leaf.spec.significant:
            return f"{leaf.path} has failed, and its end is its supervisor's"
        if entry.time <= self._rows.setdefault(leaf.path, _Row()).anew + SLACK_S:
            return ""  # it had failed before it was restarted by hand
        window, intensity, period_s = self._window(leaf)
        needed = sum(entry.time - end <= period_s + SLACK_S for end in window.ends)
        window.clear()
        self._rows[leaf.path] = _Row()
        if needed <= intensity:
            return f"{leaf.path} has failed with {needed} ends in {period_s:g} s, and {intensity} may be restarted"
        return ""

    def _gave_up(self, entry: HistoryEntry) -> str:
        team = self.tree.teams.get(entry.who)
        if team is None:
            window, spec, stopping_s = self._root, self.tree.spec, STOPPING_S
        else:
            window, spec, stopping_s = self._together[team.path], team.spec, 0.0
            self._root.ends.append(entry.time)
        needed = sum(entry.time - end <= spec.period + stopping_s + SLACK_S for end in window.ends)
        if needed <= spec.intensity:
            who = f"team {entry.who}" if team is not None else "the root"
            return f"{who} gave up with {needed} ends in {spec.period:g} s, and {spec.intensity} may be restarted"
        return ""
