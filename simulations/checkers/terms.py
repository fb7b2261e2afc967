"""Terms: what a scenario promises in particular, where a promise has numbers or exceptions. Plain data for checkers."""

from __future__ import annotations

import attrs

from callboard.simulations.history.recorder import History
from callboard.supervision.spec import SupervisorSpec

SLACK_S = 1e-6
"""By how much two times may differ that stand for one: they are floats."""


@attrs.frozen(kw_only=True)
class Intensity:
    """Restarts below `path`: at most `restarts` within `period_s`, for all children together or for each alone."""

    path: str
    """The supervisor's path; its children are those directly below. Ends with `/` or is empty for the root."""
    restarts: int
    period_s: float
    each: bool = False
    """Children are insignificant: each has a window of its own, and fails alone."""
    delay_s_max: float = 2.0
    """The longest backoff."""

    def covers(self, path: str) -> bool:
        """Whether an actor at `path` is a child of the supervisor."""
        return path.startswith(self.path) and "/" not in path[len(self.path) :]


@attrs.frozen(kw_only=True)
class Terms:
    """All of it optional: what is left out is the strictest."""

    visibility_s: dict[str, float] = attrs.Factory(dict)
    """By group: how long a lease lasts. Groups that are not named have 30 s."""
    groups: tuple[str, ...] = ()
    """Groups that must have settled everything at the end."""
    keyed: tuple[str, ...] = ()
    """Groups with order per key."""
    gives_back: bool = False
    """Consumers give back what they have fetched and not begun: groups without order per key have none then."""
    max_in_flight: int | None = None
    """Of all consumers; None: not demanded."""
    latency_s: float = 0.0
    """How long the disk takes for each plan and each read."""
    liveness_s: float | None = None
    """Virtual seconds after healing within which they must; None: not demanded."""
    drops: bool = False
    """Retention may drop what every group has settled: a log need not begin at its first offset."""
    drops_unread: bool = False
    """Retention may drop what a group has not settled, too, if it counts it."""
    retention_bytes: int | None = None
    """Of each partition; None: none is dropped for its size."""
    retention_age_s: float | None = None
    """None: nothing is dropped for its age."""
    leader_may_vanish: bool = False
    """Where a disk failed, records at level `leader` may be gone with an actor, a runtime or the power."""
    beyond: bool = False
    """More is damaged than the promise covers: what is lost must be reported, not there."""

    retries_in_hand: int = 0
    """How often actors try a message again that was in hand when they crashed."""
    intensities: tuple[Intensity, ...] = ()
    """What supervisors state."""
    tree: SupervisorSpec | None = None
    """The tree of a program of actors, all that it promises included."""

    def salvaged(self, history: History) -> frozenset[str]:
        """Partitions (`orders/1`) that may have forgotten settlements: their journal was damaged, as was reported."""
        if not self.beyond:
            return frozenset()
        return frozenset(entry.who.removeprefix("topics/") for entry in history.of("JournalSalvaged"))


DEFAULT = Terms()
