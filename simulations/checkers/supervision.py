"""Supervision keeps within its stated intensity, and answers every crash.

Within any window of a supervisor's period it restarts at most as often as its intensity says; a restart waits for its
backoff, and no longer than the longest; and after every crash the actor is restarted, given up, or its supervisor is.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from callboard.simulations.checkers.attempts import REOPENED
from callboard.simulations.checkers.closed_well import CLOSED
from callboard.simulations.checkers.terms import DEFAULT, SLACK_S, Intensity, Terms
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History
from callboard.simulations.history.surviving import Surviving
from callboard.simulations.violations import Violation

T = TypeVar("T")

PROMISE = "supervision stays within its intensity"
ANEW = "started anew"
"""A remark of scenarios: the tree that gave up is gone, and another one is begun. `REOPENED` says as much."""
EVENTS = ("ActorStarted", "IncarnationCrashed", "ActorRestarted", "ActorFailed", "ActorEnded", "Escalated")


def check(history: History, surviving: Surviving, terms: Terms = DEFAULT) -> list[Violation]:
    """Windows with too many restarts, starts that came too early, and crashes without an answer."""
    events = history.of(*EVENTS)
    asked = history.of("restart asked")
    anew = [entry for entry in history.of("note") if ANEW in entry.detail or REOPENED in entry.detail]
    anew += history.of(CLOSED)
    told = sorted([*events, *asked, *anew], key=lambda entry: entry.number)
    found = _unanswered(history, events)
    if terms.tree is None or terms.tree.strategy == "one_for_one":  # else giving up begins others anew
        found += _started_early(told)
    for stated in terms.intensities:
        found += _too_many(stated, told)
    return found


def _too_many(stated: Intensity, events: list[HistoryEntry]) -> list[Violation]:
    windows: dict[tuple[int, str], deque[float]] = {}
    found = []
    supervisor = stated.path.rstrip("/")
    for entry in events:
        if entry.kind in ("note", CLOSED):
            windows.clear()
            continue
        is_anew = entry.kind in ("ActorFailed", "restart asked") and stated.each
        if entry.kind == "Escalated" or is_anew:
            windows = _outside(entry, windows)
            continue
        if entry.kind != "ActorRestarted" or not stated.covers(entry.who):
            continue
        if entry.until > stated.delay_s_max + SLACK_S:
            words = (
                f"{entry.who} waits {entry.until:g} s, and {stated.delay_s_max:g} s is the longest backoff"
            )
            found.append(Violation(PROMISE, words, entry))
        window = windows.setdefault((entry.machine, entry.who if stated.each else supervisor), deque())
        window.append(entry.time)
        while entry.time - window[0] > stated.period_s:
            window.popleft()
        if len(window) > stated.restarts:
            words = (
                f"{entry.who} is restarted for the {len(window)}th time within {stated.period_s:g} s, and "
                f"{stated.restarts} are allowed"
            )
            found.append(Violation(PROMISE, words, entry))
    return found


def _outside(entry: HistoryEntry, kept: dict[tuple[int, str], T]) -> dict[tuple[int, str], T]:
    """What is kept by machine and path, without what ends when a supervisor gave up.

    A supervisor that gave up, and all below it, begin again; all are below the root, whose path is empty.
    """
    above = entry.who.rstrip("/")
    return {
        (machine, path): value
        for (machine, path), value in kept.items()
        if machine != entry.machine or (above and not f"{path}/".startswith(f"{above}/"))
    }


def _started_early(events: list[HistoryEntry]) -> list[Violation]:
    due: dict[tuple[int, str], float] = {}
    asked: dict[tuple[int, str], float] = {}
    """When a client last had it restarted at once. What is reported at that instant may have been planned before."""
    found = []
    for entry in events:
        actor = (entry.machine, entry.who)
        if entry.kind in ("note", CLOSED):
            due.clear()
        elif entry.kind == "ActorRestarted":
            if actor not in asked or entry.time > asked[actor] + SLACK_S:
                due[actor] = entry.time + entry.until
        elif entry.kind == "ActorStarted":
            at = due.pop(actor, 0.0)
            if entry.time < at - SLACK_S:
                words = f"{entry.who} started at {entry.time:.3f} s, and its backoff lasts until {at:.3f} s"
                found.append(Violation(PROMISE, words, entry))
        elif entry.kind == "restart asked":
            due, asked[actor] = _outside(entry, due), entry.time  # an actor that waits is started at once
        elif entry.kind == "ActorEnded":
            due.pop(actor, None)  # a child of that name that is added after this is another one
        elif entry.kind in ("Escalated", "ActorFailed"):
            due = _outside(entry, due)
    return found


def _unanswered(history: History, events: list[HistoryEntry]) -> list[Violation]:
    crashed: dict[tuple[int, str], HistoryEntry] = {}
    for entry in events:
        actor = (entry.machine, entry.who)
        if entry.kind == "IncarnationCrashed":
            crashed[actor] = entry
        elif entry.kind == "Escalated":
            crashed = _outside(entry, crashed)
        else:
            crashed.pop(actor, None)
    lives = {entry.operation for entry in history.of("power cut", "killed", "closed")}
    return [
        Violation(PROMISE, f"{crash.who} crashed, and was neither restarted nor given up", crash)
        for (machine, _), crash in crashed.items()
        if machine not in lives
    ]
