"""A tree of actors as its history shows it: which live, which are to stop and why, and when teams end and begin again.

A *team* is a supervisor of actors; all teams are children of the root. A *mark* says that supervision has a reason to
end a life (and when it got it); a *request* is one of a client, or of the actor itself, to end it. Marks of one instant
may come before or after what they are about: a history tells of effects, and several happen at one virtual instant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from callboard.simulations.checkers.terms import SLACK_S
from callboard.simulations.history.entry import HistoryEntry
from callboard.supervision.spec import ChildSpec, SupervisorSpec

RESTARTS: Final[dict[str, tuple[str, ...]]] = {
    "permanent": ("finished", "crashed"),
    "transient": ("crashed",),
    "temporary": (),
}
"""By kind of restart: after which ends an actor is restarted."""
ASKED: Final = "asked"
CLOSING: Final = "closing"
REQUESTS: Final = ("stop asked", "kill asked", "stops itself")
TOLD: Final = (
    "tree begins",
    "tree ended",
    "closing",
    "begins",
    "stopping",
    "stopped",
    "left",
    "ActorStarted",
    "IncarnationCrashed",
    "ActorRestarted",
    "ActorFailed",
    "ActorEnded",
    "Escalated",
    "restart asked",
    "stop child asked",
    "add child asked",
    "note",
    *REQUESTS,
)
"""Kinds of entries that say something about a tree."""


@attrs.frozen
class Reason:
    """A reason of supervision to end a life."""

    time: float
    is_of_life: bool
    """It is for the life that the actor had then. Otherwise for one that begins at that instant, or for none."""


@attrs.define(eq=False)
class Leaf:
    """One actor."""

    path: str
    spec: ChildSpec
    team: Team
    life: str = ""
    """ "" for none, "starting", "up" or "stopping"."""
    began: float = -1.0
    up_at: float | None = None
    """Since when its last life was up; None: it never was."""
    was_up_at: float | None = None
    """Since when the life that ended last had been up."""
    ended: float = -1.0
    was_finished: bool = False
    """Its last life ended in order."""
    stop_at: float | None = None
    """When it began to stop."""
    is_settled: bool = False
    """It has been up, or failed, since its team began."""
    has_failed: bool = False
    is_listed: bool = True
    """It is in the team as its specification lists it; others wait for none, and none for them."""
    is_gone: bool = False
    """It has left the team."""
    marks: dict[str, Reason] = attrs.Factory(dict)
    """By the path of the actor whose end they are for; `ASKED` and `CLOSING` for other reasons."""
    was_expected: bool = False
    """Whether supervision had asked for the end of its last life."""
    requested_at: float | None = None
    requests: set[str] = attrs.Factory(set)
    asked: float = -1.0
    """When a client last asked its supervisor for something about it."""
    is_to_end: bool = False
    """A client has asked its supervisor to stop it for good."""
    due: float | None = None
    """When its restart was to come."""

    @property
    def lives(self) -> bool:
        return self.life != ""

    @property
    def is_expected_to_end(self) -> bool:
        """Whether supervision has certainly asked for the end of this life."""
        return any(mark.is_of_life for why, mark in self.marks.items() if why != CLOSING)

    @property
    def mark(self) -> float | None:
        """Since when there is a reason to end its life."""
        return min((mark.time for mark in self.marks.values()), default=None)

    @property
    def is_disturbed(self) -> bool:
        """Whether another one of its team has ended in this life, or in the instant in which it began, and this one is
        restarted with it.
        """
        return bool(self.marks.keys() - {ASKED, CLOSING, self.team.path})

    def is_marked_by(self, other: Leaf) -> bool:
        return other.path in self.marks

    def add_mark(self, why: str, now: float, *, is_certain: bool = True) -> None:
        if why not in self.marks or not self.marks[why].is_of_life:
            self.marks[why] = Reason(now, self.lives and is_certain)

    def keep_marks(self, keep: Callable[[str, Reason], bool]) -> None:
        self.marks = {why: mark for why, mark in self.marks.items() if keep(why, mark)}


@attrs.define(eq=False)
class Team:
    """One supervisor of actors."""

    path: str
    spec: SupervisorSpec
    leaves: list[Leaf] = attrs.Factory(list)
    """In start order."""
    closing: float | None = None
    """When it gave up."""
    is_revived: bool = False
    """A client has asked for its next life, since it gave up."""
    blurred: float | None = None
    """When children were added while it was closing: before or after those that it adds itself, nobody can tell."""
    began: float = -1.0
    was_ready: bool = False
    """In this life or an earlier one: teams after it wait for it once."""

    def note_ready(self) -> None:
        """It is ready when all that it waits for have been up, or failed."""
        waits_for = [
            leaf for leaf in self.leaves if leaf.spec.awaited and leaf.is_listed and not leaf.is_gone
        ]
        self.was_ready = self.was_ready or all(leaf.is_settled for leaf in waits_for)

    def after(self, leaf: Leaf) -> list[Leaf]:
        return self.leaves[self.leaves.index(leaf) + 1 :]

    def before(self, leaf: Leaf) -> list[Leaf]:
        return self.leaves[: self.leaves.index(leaf)]

    def together(self, leaf: Leaf) -> list[Leaf]:
        """The actors that are restarted with `leaf`, without it."""
        strategy = self.spec.strategy
        if strategy == "one_for_one":
            return []
        return self.after(leaf) if strategy == "rest_for_one" else [o for o in self.leaves if o is not leaf]


class TreeState:
    """One tree, from its first entry to its last. Show each entry to checkers first, then `apply` it."""

    def __init__(self, spec: SupervisorSpec, begun: HistoryEntry) -> None:
        self.spec = spec
        self.machine = begun.machine
        self.closing: float | None = None
        self.is_blurred = False
        """Teams are restarted with another: when, only their supervisor knows. From here on nothing more is known."""
        self.teams = {
            team.name: Team(team.name, team) for team in spec.children if isinstance(team, SupervisorSpec)
        }
        self.leaves: dict[str, Leaf] = {}
        for team in self.teams.values():
            team.began = begun.time
            for child in team.spec.children:
                if isinstance(child, ChildSpec):
                    leaf = Leaf(f"{team.path}/{child.name}", child, team)
                    self.leaves[leaf.path] = leaf
                    team.leaves.append(leaf)
            team.note_ready()

    def later_teams(self, team: Team) -> list[Team]:
        """Those that begin after `team`."""
        teams = list(self.teams.values())
        return teams[teams.index(team) + 1 :]

    def reopens(self, leaf: Leaf, entry: HistoryEntry) -> bool:
        """Whether a life of `leaf` that begins now is of a new life of its team."""
        team = leaf.team
        is_down = team.closing is not None and (team.is_revived or entry.time > team.closing + SLACK_S)
        return is_down and self.closing is None

    # -- one entry

    def apply(self, entry: HistoryEntry) -> None:
        """It has happened."""
        now = entry.time
        if entry.kind == "closing":
            self._close(now)
        elif entry.kind == "Escalated":
            self._escalated(entry.who, now)
        elif entry.kind in ("restart asked", "stop child asked", "add child asked"):
            self._asked(entry)
        elif (leaf := self.leaves.get(entry.who)) is not None:
            self._of_leaf(leaf, entry)
            leaf.team.note_ready()

    def _of_leaf(self, leaf: Leaf, entry: HistoryEntry) -> None:
        now = entry.time
        match entry.kind:
            case "begins":
                self._begins(leaf, entry)
            case "ActorStarted":
                if not leaf.lives:  # a function is up when it begins
                    self._begins(leaf, entry)
                leaf.life = "up"
                leaf.up_at, leaf.is_settled, leaf.has_failed = now, True, False
            case "stopping":
                leaf.life, leaf.stop_at = "stopping", now
            case "stopped" | "left":
                self._ended(leaf, now, "finished")
            case "IncarnationCrashed":
                self._ended(leaf, now, "crashed")
            case "ActorRestarted":
                leaf.due = now + entry.until
            case "ActorFailed":
                leaf.has_failed = leaf.is_settled = True
                leaf.due = None
                for other in leaf.team.leaves:
                    other.marks.pop(leaf.path, None)  # one that fails alone is restarted alone
            case "ActorEnded":
                leaf.is_gone, leaf.life, leaf.due = True, "", None
                if leaf in leaf.team.leaves:
                    leaf.team.leaves.remove(leaf)
            case "stop asked" | "kill asked" | "stops itself":
                leaf.requested_at = now
                leaf.requests.add(entry.kind)

    def _begins(self, leaf: Leaf, entry: HistoryEntry) -> None:
        team, now = leaf.team, entry.time
        if self.reopens(leaf, entry):
            self._reopen(team, now)
        if leaf.is_gone or leaf not in team.leaves:
            leaf.is_gone = leaf.is_settled = False
            if leaf not in team.leaves:
                team.leaves.append(leaf)
        leaf.life, leaf.began, leaf.stop_at, leaf.due = "starting", now, None, None
        leaf.up_at = None
        leaf.keep_marks(
            lambda why, mark: why == CLOSING or not (mark.is_of_life or mark.time < now - SLACK_S)
        )
        if leaf.requested_at is not None and leaf.requested_at < now - SLACK_S:
            leaf.requested_at = None
            leaf.requests.clear()

    def _reopen(self, team: Team, now: float) -> None:
        team.closing, team.is_revived, team.began = None, False, now
        if team.blurred is not None and team.blurred < now - SLACK_S:
            team.blurred = None
        for leaf in team.leaves:
            leaf.is_settled = leaf.has_failed = False
            leaf.requested_at = leaf.due = None
            leaf.keep_marks(lambda why, mark: why == CLOSING or mark.time >= now - SLACK_S)
        for leaf in self.leaves.values():
            if leaf.team is team and leaf not in team.leaves:
                leaf.is_gone = leaf.is_settled = leaf.is_to_end = False
                leaf.is_listed = True
                team.leaves.append(leaf)

    def _ended(self, leaf: Leaf, now: float, how: str) -> None:
        may_be_asked_for = bool(leaf.marks)
        if leaf.lives:  # a function that leaves may crash at once, by one of its tasks: that is one end
            leaf.was_expected = leaf.is_expected_to_end or leaf.team.closing is not None
            leaf.keep_marks(lambda why, mark: why == CLOSING or not mark.is_of_life)
            leaf.was_up_at = leaf.up_at
        leaf.life, leaf.ended, leaf.was_finished = "", now, how == "finished"
        if not leaf.was_expected and how in RESTARTS[leaf.spec.restart]:
            for other in leaf.team.together(leaf):
                # An insignificant actor may fail alone; one that finished may have ended later than it said; one that
                # was to end in the moment in which it began may have been killed for that.
                is_certain = leaf.spec.significant and how == "crashed" and not may_be_asked_for
                other.add_mark(leaf.path, now, is_certain=is_certain)

    def _close(self, now: float) -> None:
        if self.closing is None:
            self.closing = now
        for leaf in self.leaves.values():
            leaf.add_mark(CLOSING, now)

    def _escalated(self, path: str, now: float) -> None:
        if path not in self.teams:
            self._close(now)
            return
        team = self.teams[path]
        team.closing, team.is_revived = now, False
        for leaf in team.leaves:
            leaf.add_mark(team.path, now)
        self.is_blurred = self.spec.strategy != "one_for_one" and len(self.teams) > 1

    def _asked(self, entry: HistoryEntry) -> None:
        now = entry.time
        if entry.who in self.teams:  # it has failed, and begins anew
            self.teams[entry.who].is_revived = self.teams[entry.who].closing is not None
            return
        leaf = self.leaves[entry.who]
        leaf.asked = now
        if leaf.team.closing is not None and entry.kind != "restart asked":
            leaf.team.blurred = now
        if entry.kind == "add child asked":
            leaf.is_to_end = leaf.is_listed = leaf.is_settled = leaf.is_gone = False
            if leaf in leaf.team.leaves:  # it had gone before its team began anew
                leaf.team.leaves.remove(leaf)
            leaf.team.leaves.append(leaf)
        elif entry.kind == "stop child asked":
            leaf.is_to_end = True
            leaf.add_mark(ASKED, now)
        else:
            leaf.add_mark(ASKED, now)
