"""When groups had members, and when they may end, or must: read off a history.

A consumer is a member *for certain* from the moment its joining was answered until it begins to leave; it *may be*
one from the moment it asks to join until it is gone.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import attrs

from callboard.actors.groups.coordinator import EXPIRY_GRACE_S, GRACE_STEP_S, GRACE_STEPS, RETRY_S
from callboard.simulations.checkers.attempts import REOPENED
from callboard.simulations.checkers.terms import SLACK_S
from callboard.simulations.history.entry import HistoryEntry
from callboard.simulations.history.recorder import History

MOMENT_S: Final = 2.0
"""How long it takes at most, when nothing fails, that what is decided is carried out."""
ENDS: Final = ("power cut", "killed", "closed")


@attrs.define
class ConsumerLife:
    """One life of a consumer, by its entries."""

    joining: HistoryEntry
    joined: HistoryEntry | None = None
    left: HistoryEntry | None = None
    gone: HistoryEntry | None = None
    over: HistoryEntry | None = None
    """The end of its machine."""

    @property
    def begins_to_go(self) -> HistoryEntry | None:
        """When it was a member for certain no longer."""
        return self.left or self.gone or self.over

    @property
    def has_gone(self) -> HistoryEntry | None:
        """When it could be a member no longer, but for what the coordinator has still to hear."""
        return self.gone or self.over


class GroupLives:
    """The consumers of all groups, their coordinators, and the openings of the directory."""

    def __init__(self, history: History) -> None:
        self.lives: dict[int, ConsumerLife] = {}
        self.by_group: defaultdict[str, list[ConsumerLife]] = defaultdict(list)
        self.starts: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        """Of coordinators, by group."""
        self.openings: list[HistoryEntry] = []
        """Entries before which a runtime ended, and behind which another was opened."""
        ended = {entry.operation: entry.number for entry in history.of("changed", "not changed")}
        self._deletions = [
            (entry.group, entry.number, ended.get(entry.operation, math.inf))
            for entry in history.of("change")
            if entry.detail.startswith("delete_group ")
        ]
        kinds = ("joining", "joined", "left", "gone", "booted", "note", "opened", "ActorStarted", *ENDS)
        for entry in history.of(*kinds):
            if entry.kind == "joining":
                life = self.lives[entry.operation] = ConsumerLife(entry)
                self.by_group[entry.group].append(life)
            elif entry.kind == "ActorStarted":
                if entry.who.startswith("groups/"):
                    self.starts[entry.who.removeprefix("groups/")].append(entry)
            elif entry.kind in ENDS:
                for life in self.lives.values():
                    if life.gone is None and life.over is None:
                        life.over = entry
                self.openings.append(entry)
            elif entry.kind in ("booted", "opened") or (
                entry.kind == "note" and entry.detail.startswith(REOPENED)
            ):
                self.openings.append(entry)
            elif entry.operation in self.lives:
                setattr(self.lives[entry.operation], entry.kind, entry)

    def may_end(self, group: str, settings: Mapping[str, Any], at: HistoryEntry) -> bool:
        """Whether the group may have ended by itself before `at`, if it had those settings.

        An opening gives it time to come back, at most `EXPIRY_GRACE_S`, less what earlier openings used;
        a restart of its coordinator all its time.
        """
        certain = -math.inf
        for life in self.by_group[group]:
            if life.joined is None or life.joined.number >= at.number or self.may_be_deleted(life, at):
                continue
            goes = life.begins_to_go
            if goes is None or goes.number > at.number:
                return False
            certain = max(certain, goes.time)
        if not settings["durable"]:
            return True
        expiry_s = settings["group_expiry"]
        if expiry_s is None:
            return False
        longest_s = min(expiry_s, EXPIRY_GRACE_S)
        step_s, used_s = min(GRACE_STEP_S, longest_s / GRACE_STEPS), 0.0
        opened, previous = self.opened_before(at), None
        for start, following in pairwise([*(start for start in self.starts[group] if start < at), at]):
            until = min(following.time, self._ends_after(start))
            is_restart = previous is not None and self.opened_before(start) < previous
            grace_s = (expiry_s if is_restart else longest_s) - used_s
            if opened < start and max(start.time + grace_s, certain + expiry_s) <= until + SLACK_S:
                return True
            if certain + expiry_s <= until + SLACK_S:
                used_s += until - start.time + step_s
            previous = start
        return False

    def _ends_after(self, start: HistoryEntry) -> float:
        """When the opening ends in which the coordinator started."""
        here = bisect_left(self.openings, start)
        return self.openings[here].time if here < len(self.openings) else math.inf

    def due(self, group: str, expiry_s: float, at: HistoryEntry, healed: float) -> float | None:
        """When a durable group must have expired by `at`; None when it may have a member.

        When its last consumer went, and nothing failed, long enough before the directory was closed, the catalog knows
        since when it is idle.
        """
        since = self.idle_since(group, at)
        if since is None:
            return None
        opened = self.opened_before(at)
        starts = [start for start in self.starts[group] if opened < start < at]
        known = [life for life in self.by_group[group] if life.joining < at]
        gone = max((life.gone.time if life.gone else math.inf for life in known), default=math.inf)
        ended = self.ended_before(opened)
        if len(starts) <= 1 and ended is not None and max(gone, healed) + RETRY_S + MOMENT_S < ended.time:
            return max(gone + expiry_s, opened.time + min(expiry_s, EXPIRY_GRACE_S))
        return since + expiry_s

    def ended_before(self, opened: HistoryEntry) -> HistoryEntry | None:
        """The entry at which the machine ended that was up before `opened`."""
        ends = [entry for entry in self.openings if entry.kind in ENDS and entry < opened]
        return ends[-1] if ends else None

    def opened_before(self, at: HistoryEntry) -> HistoryEntry:
        """The entry behind which the runtime was opened that was open at `at`."""
        return self.openings[max(0, bisect_left(self.openings, at) - 1)]

    def may_be_deleted(self, life: ConsumerLife, at: HistoryEntry) -> bool:
        """Whether the consumer's group may have been deleted before `at`, and after it asked to join."""
        return any(
            group == life.joining.group and begun < at.number and life.joining.number < ended
            for group, begun, ended in self._deletions
        )

    def idle_since(self, group: str, at: HistoryEntry) -> float | None:
        """Since when the group can have had no member at `at`; None when it may have one."""
        since = -math.inf
        for life in self.by_group[group]:
            if life.joining.number >= at.number:
                continue
            gone = life.has_gone
            if gone is None or gone.number > at.number:
                return None
            since = max(since, gone.time)
        starts = [entry.time for entry in self.starts[group] if entry.number < at.number]
        return max([since, *starts, self.opened_before(at).time])
