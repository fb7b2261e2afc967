"""Crashes that wait for what their supervisor decides, so that both are reported in one line. Pure.

The decision comes at once after the crash: `ActorRestarted`, `ActorFailed`, `Escalated` (with the actor as the child),
or `ActorEnded`. An actor that crashed while it was to stop begins again or goes without one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, Literal

from callboard.actors.kernel import events
from callboard.log.limits import CRASHES_WAITING_MAX

Fate = Literal["restarted", "decided", "gone", "stopping"]
"""What became of the actor; "decided" follows from the event itself."""

FATES: Final[dict[type, Fate]] = {
    events.ActorRestarted: "restarted",
    events.ActorFailed: "decided",
    events.Escalated: "decided",
    events.ActorEnded: "gone",
    events.ActorStarted: "stopping",
    events.IncarnationCrashed: "stopping",
}


class WaitingCrashes:
    """Crashes by path, at most `CRASHES_WAITING_MAX`."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, events.IncarnationCrashed] = OrderedDict()

    def add(self, crash: events.IncarnationCrashed) -> events.IncarnationCrashed | None:
        """Have a crash wait; returns the oldest one when there are too many."""
        self._waiting[crash.path] = crash
        if len(self._waiting) > CRASHES_WAITING_MAX:
            return self._waiting.popitem(last=False)[1]
        return None

    def settled(self, event: Any) -> tuple[events.IncarnationCrashed, Fate] | None:
        """The crash that `event` decides about, and what became of the actor."""
        fate = FATES.get(type(event))
        if fate is None or not self._waiting:
            return None
        path = event.child if isinstance(event, events.Escalated) else event.path
        crash = self._waiting.pop(path, None)
        return None if crash is None else (crash, fate)

    def take_all(self) -> list[events.IncarnationCrashed]:
        """Those that are not decided about yet."""
        waiting, self._waiting = list(self._waiting.values()), OrderedDict()
        return waiting
