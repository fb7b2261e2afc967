"""Actors of a tree start and stop in the order that is stated, and no actor is stopped without a reason.

Children start first first, each when those before it are ready, and are stopped last first, one at a time: at closing,
when a supervisor gives up, and when a strategy restarts several. What is restarted with a crashed child has ended
before that child begins again; no other is touched. A child that supervision stops has its grace, and no more. What
crashed is started again when its backoff is over, and no actor lives when the tree has ended.
"""

from __future__ import annotations

from typing import Final

from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Terms
from callboard.simulations.checkers.tree_state import ASKED, TOLD, Leaf, TreeState
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

PROMISE = "actors start and stop in the stated order"
HELD_UP: Final = ("Stall", "SlowDisk")
"""Faults while which an end may take longer than its grace: nothing ends a plan that the disk has."""
SLOW: Final = "the disk takes a while for everything"
"""A remark of scenarios: what ends may take longer than its grace."""
START_S: Final = 1.0
"""This long after its backoff an actor that nothing holds up has begun again."""


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Starts and stops out of order, ends without a reason, and actors that were forgotten."""
    if terms.tree is None:
        return []
    is_quick = not any(entry.who in HELD_UP or entry.detail == SLOW for entry in history.of("fault", "note"))
    found: list[Violation] = []
    tree: TreeState | None = None
    for entry in history.of(*TOLD):
        if entry.kind == "tree begins":
            tree = TreeState(terms.tree, entry)
        elif tree is not None and entry.machine == tree.machine:
            words = _wrong(tree, entry, is_quick=is_quick)
            if words:
                found.append(Violation(PROMISE, words, entry))
            tree.apply(entry)
            if entry.kind == "tree ended":
                tree = None
    return found


def _wrong(tree: TreeState, entry: HistoryEntry, *, is_quick: bool) -> str:
    if entry.kind == "closing" and tree.closing is None:
        return "" if tree.is_blurred or not is_quick else _forgotten(tree, entry)
    if entry.kind == "tree ended":
        alive = [leaf.path for leaf in tree.leaves.values() if leaf.lives]
        return f"{alive[0]} lives, and its tree has ended" if alive else ""
    leaf = tree.leaves.get(entry.who)
    if leaf is None or tree.is_blurred or leaf.team.blurred is not None:
        return ""
    match entry.kind:
        case "begins":
            return _begins(tree, leaf, entry)
        case "ActorStarted" if not leaf.lives:  # a function is up when it begins
            return _begins(tree, leaf, entry)
        case "stopping":
            return _stops(tree, leaf, entry)
        case "IncarnationCrashed" | "stopped":
            return _ends(tree, leaf, entry, is_quick=is_quick)
        case "ActorEnded":
            return _gone(tree, leaf)
    return ""


def _begins(tree: TreeState, leaf: Leaf, entry: HistoryEntry) -> str:
    team, now = leaf.team, entry.time
    if leaf.lives:
        return f"{leaf.path} begins a life, and has one"
    if tree.closing is not None and now > tree.closing + SLACK_S and not tree.later_teams(team):
        return f"{leaf.path} begins, and its tree is closing"
    reopens = tree.reopens(leaf, entry)
    is_known = not reopens and not leaf.is_gone and leaf.asked < leaf.began - SLACK_S
    if leaf.spec.restart == "temporary" and leaf.ended >= team.began and is_known:
        return f"{leaf.path} is temporary, has ended, and begins again"
    if reopens and any(other.lives for other in team.leaves):
        alive = next(other.path for other in team.leaves if other.lives)
        return f"{leaf.path} begins in a new life of its team, and {alive} lives in the old one"
    words = _above(tree, leaf, entry) if reopens or now == team.began else ""
    if words or leaf not in team.leaves:
        return words
    for other in team.before(leaf):
        listed = other.spec.awaited and other.is_listed and not other.is_gone
        if reopens and listed:
            return (
                f"{leaf.path} begins before {other.path}, which was to be first in the new life of their team"
            )
        if listed and not other.is_settled:
            return f"{leaf.path} begins, and {other.path} before it has not been ready yet"
        if team.spec.strategy != "one_for_one" and not (other.life == "up" or other.has_failed):
            if other.life == "stopping" and (other.mark is None or other.requested_at is not None):
                continue  # it ends by itself, or by request: so far it was up
            if max(other.ended, other.stop_at or -1.0) < now - SLACK_S:
                return f"{leaf.path} begins, and {other.path} before it is not up"
    for other in team.together(leaf):
        if leaf.due is not None and other.lives and other.is_marked_by(leaf) and other.began < leaf.ended:
            return f"{leaf.path} begins again, and {other.path}, which is restarted with it, was not stopped"
    return ""


def _above(tree: TreeState, leaf: Leaf, entry: HistoryEntry) -> str:
    """Its team begins: those before it are up, if the root starts them in order."""
    for team in tree.teams.values():
        if team is leaf.team:
            return ""
        if team.leaves and not team.was_ready and team.closing is None:
            return f"{leaf.path} begins, and team {team.path} before its own has not been ready yet"
    return ""


def _stops(tree: TreeState, leaf: Leaf, entry: HistoryEntry) -> str:
    team = leaf.team
    if leaf.mark is None:
        return f"{leaf.path} is stopped without a reason" if leaf.requested_at is None else ""
    if leaf.requested_at is not None or leaf.is_to_end or leaf not in team.leaves:
        return ""
    is_closing = tree.closing is not None or team.closing is not None
    if ASKED in leaf.marks or (not is_closing and not leaf.marks):
        return ""
    for other in team.after(leaf):
        side_by_side = not leaf.spec.awaited and not other.spec.awaited
        if other.lives and not side_by_side and other.requested_at is None and not other.is_to_end:
            return f"{leaf.path} is stopped before {other.path}, which comes after it"
    if team.closing is not None or tree.closing is None or leaf.is_disturbed:
        return ""
    for later in tree.later_teams(team):
        alive = [other.path for other in later.leaves if other.lives]
        if alive:
            return f"{leaf.path} is stopped before {alive[0]}, whose team comes after its own"
    return ""


def _ends(tree: TreeState, leaf: Leaf, entry: HistoryEntry, *, is_quick: bool) -> str:
    now, grace_s = entry.time, leaf.spec.shutdown_grace
    if not leaf.lives:
        return ""
    is_killed = entry.kind == "IncarnationCrashed" and entry.detail == "killed"
    if is_killed and "kill asked" not in leaf.requests:
        if leaf.mark is None:
            return f"{leaf.path} is killed without a reason"
        if now < leaf.mark + grace_s - SLACK_S:
            return (
                f"{leaf.path} is killed after {now - leaf.mark:g} s at most, and its grace is {grace_s:g} s"
            )
    late = leaf.mark is not None and leaf.requested_at is None and leaf.stop_at is not None and is_quick
    if late and leaf.stop_at is not None and now > leaf.stop_at + grace_s + SLACK_S:
        return f"{leaf.path} has taken {now - leaf.stop_at:g} s to stop, and its grace is {grace_s:g} s"
    return ""


def _gone(tree: TreeState, leaf: Leaf) -> str:
    if tree.closing is not None or leaf.is_to_end or leaf.spec.restart != "permanent":
        return ""
    return f"{leaf.path} has ended for good, and is to be restarted always"


def _forgotten(tree: TreeState, entry: HistoryEntry) -> str:
    """The tree is closed in order: every actor that should live does, or soon would have."""
    now = entry.time
    for team in tree.teams.values():
        if team.closing is not None:
            continue
        for leaf in team.leaves:
            if leaf.has_failed or leaf.is_to_end:
                continue
            if leaf.lives:
                continue
            since = max(leaf.ended, leaf.due or -1.0, team.began)
            if now > since + START_S:
                return f"{leaf.path} has not begun again for {now - since:g} s, and nothing kept it from that"
            if team.spec.strategy != "one_for_one" or not leaf.is_settled:
                break  # those that come after it wait for it
    return ""
