"""Roster: every rule of a supervisor as a pure state machine, without tasks, clock or randomness.

Vocabulary
----------
A *member* is a child in the roster. Its *phase* is what it does now; `wanted` and `recycle` are what it should do. The
supervisor reports what happened (`ready`, `ended`) and what is requested (`add`, `remove`, `restart`, `close`), and
carries out the *steps* that `steps(now)` returns. The roster converges: it stops the members that must stop, last
first, and starts the members that should run, first first; one at a time where order matters.

Invariants
----------
S1  A member has at most one life: Start is returned only when its phase is down.
S2  Stops and starts follow the order of the members: in one_for_all and rest_for_one always, in one_for_one for the
    first start of the awaited children in the specification and for closing. Closing, neighbours that are
    not awaited are stopped together.
S3  No restart before its backoff is over.
S4  More than `intensity` restarts within `period` never happen: the roster gives up, or the insignificant member fails.
    An insignificant member may have its own intensity, which may be infinite.
S5  A stopping member is killed when its grace is over, not before, and once.
S6  A member that has ended for good leaves the roster, with a Gone step; so does one on trial whose first start fails.
"""

from __future__ import annotations

import math
from collections import Counter
from operator import attrgetter
from typing import Final, Literal

import attrs

from callboard.actors.kernel import EndingKind
from callboard.log.errors import InternalError
from callboard.supervision.policies import (
    DEFAULT_BACKOFF,
    RESTARTS,
    Backoff,
    Restart,
    RestartWindow,
    Strategy,
    restarted_with,
)

Phase = Literal["down", "starting", "up", "stopping", "failed"]

TRANSITIONS: Final[dict[tuple[Phase, str], Phase]] = {
    ("down", "start"): "starting",
    ("starting", "ready"): "up",
    ("stopping", "ready"): "stopping",
    ("starting", "stop"): "stopping",
    ("up", "stop"): "stopping",
    ("starting", "ended"): "down",
    ("up", "ended"): "down",
    ("stopping", "ended"): "down",
    ("down", "give up"): "failed",
    ("failed", "revive"): "down",
}
"""(phase, input) -> next phase. Any other pair is a bug. The table in the guide is generated from this."""


@attrs.frozen
class RestartTerms:
    """The part of a specification that the rules need. `grace_s` may be infinite."""

    restart: Restart = "permanent"
    significant: bool = True
    grace_s: float = 5.0
    backoff: Backoff = DEFAULT_BACKOFF
    intensity: float | None = None
    awaited: bool = True


# -- steps: what the supervisor has to do -------------------------------------------------------------------


@attrs.frozen
class Start:
    """Begin a life of the member."""

    name: str


@attrs.frozen
class Stop:
    """Ask the member to end; `final` when it will not be started again."""

    name: str
    final: bool


@attrs.frozen
class Kill:
    """End the member's life at once: its grace is over."""

    name: str


@attrs.frozen
class Restarting:
    """Report that the member will be started again after `delay_s`, because of `cause`."""

    name: str
    cause: BaseException | None
    delay_s: float


@attrs.frozen
class Fail:
    """The member has exceeded its intensity. It stays down, and in the roster."""

    name: str
    cause: BaseException | None


@attrs.frozen
class Gone:
    """The member has ended for good and has left the roster."""

    name: str
    cause: BaseException | None


Step = Start | Stop | Kill | Restarting | Fail | Gone


@attrs.define(eq=False)
class RosterMember:
    """A child in the roster."""

    name: str
    terms: RestartTerms
    rank: int
    is_awaited: bool
    """The members after it, and the supervisor's readiness, wait for its first start."""
    window: RestartWindow
    phase: Phase = "down"
    wanted: bool = True
    recycle: bool = False
    """It must be stopped before it is started again."""
    settled: bool = False
    """It has been up or failed since the roster was opened."""
    on_trial: bool = False
    """It has never been up, and leaves when it cannot start."""
    not_before: float = -math.inf
    kill_at: float = math.inf
    attempt: int = 0
    failed_at: float = -math.inf

    def goes(self, event: str) -> None:
        """Take the transition for `event`."""
        to = TRANSITIONS.get((self.phase, event))
        if to is None:
            raise InternalError(f"{self.name!r} is {self.phase} and got {event!r}", invariant="S1")
        self.phase = to

    def comes_up(self) -> bool:
        return self.phase == "down" and self.wanted


_by_rank = attrgetter("rank")


class Roster:
    """The children of one supervisor. A new roster is closed until `open`."""

    def __init__(self, strategy: Strategy, intensity: int, period_s: float) -> None:
        self._strategy = strategy
        self._intensity = intensity
        self._period_s = period_s
        self._window = RestartWindow(intensity, period_s)
        self._members: dict[str, RosterMember] = {}
        self._active: set[RosterMember] = set()
        """Members that may need a step; `steps` looks only at these while the roster is open."""
        self._stopping: set[RosterMember] = set()
        self._to_stop: list[RosterMember] = []
        """While closing: the members that may still have to be stopped, in rank order; the last is stopped first."""
        self._news: list[Step] = []
        self._ranks = 0
        self.is_closing = True
        """It is closed, or is closing."""
        self._final = False
        self.gave_up: tuple[str, BaseException | None] | None = None
        """The member that exceeded the intensity, and its last failure, when the roster has given up."""
        self.too_many: Counter[str] = Counter()
        """How often each member needed a restart within the period when the roster gave up, the last time included."""

    # -- requests -------------------------------------------------------------------------------------------

    def add(self, name: str, terms: RestartTerms, *, listed: bool = False, on_trial: bool = False) -> None:
        """Add a last member. It starts when its turn comes; one `on_trial` leaves when its first start fails."""
        if name in self._members:
            raise InternalError(f"Member {name!r} exists", invariant="S1")
        self._ranks += 1
        intensity = self._intensity if terms.intensity is None else terms.intensity
        window = RestartWindow(intensity, self._period_s)
        member = RosterMember(name, terms, self._ranks, listed and terms.awaited, window, on_trial=on_trial)
        self._members[name] = member
        self._active.add(member)

    def open(self) -> None:
        """Begin, or begin again: every member shall run, and earlier restarts no longer count."""
        self.is_closing = self._final = False
        self.gave_up = None
        self.too_many.clear()
        self._window.clear()
        for member in self._members.values():
            if member.phase == "failed":
                member.goes("revive")
            member.settled = member.recycle = False
            self._clear_restarts(member)

    def close(self, *, final: bool) -> None:
        """Stop all members; with `final` they also leave the roster. A final close makes an earlier one final."""
        self.is_closing = True
        self._final = self._final or final
        # Planned restarts that were not reported yet will not happen.
        self._news = [step for step in self._news if type(step) is not Restarting]
        self._to_stop = list(self._members.values())
        if self._final:
            for member in reversed(self._to_stop):
                if member.phase in ("down", "failed"):
                    self._remove(member, None)

    def remove(self, name: str) -> None:
        """Stop the member and remove it."""
        member = self._members[name]
        member.wanted = False
        self._active.add(member)
        if member.phase in ("down", "failed"):
            self._remove(member, None)

    def restart(self, name: str) -> None:
        """Restart the member: revive a failed one, start a waiting one at once, stop a running one first."""
        member = self._members[name]
        if member.phase == "failed":
            member.goes("revive")
            # An unreported failure does not count: otherwise the member that waits for room would lose its place.
            self._news = [step for step in self._news if not (type(step) is Fail and step.name == name)]
        elif member.phase in ("starting", "up"):
            member.recycle = True
        self._clear_restarts(member)

    def _clear_restarts(self, member: RosterMember) -> None:
        member.window.clear()
        member.attempt = 0
        member.not_before = -math.inf
        self._active.add(member)

    # -- what happened --------------------------------------------------------------------------------------

    def ready(self, name: str) -> None:
        """The member's life has started."""
        member = self._members[name]
        member.goes("ready")
        member.settled, member.on_trial = True, False

    def ended(
        self, name: str, kind: EndingKind, cause: BaseException | None, *, now: float, chance: float
    ) -> None:
        """The member's life has ended. `chance` in [0, 1) decides the jitter."""
        member = self._members[name]
        expected = member.phase == "stopping" or member.recycle or not member.wanted or self.is_closing
        member.goes("ended")
        member.kill_at = math.inf
        member.recycle = False
        self._stopping.discard(member)
        self._active.add(member)
        terms = member.terms
        if expected:
            temporary = terms.restart == "temporary"
            if not member.wanted or self._final or (self.is_closing and temporary):
                self._remove(member, cause if kind == "crashed" else None)
        elif (member.on_trial and kind == "crashed") or not RESTARTS[terms.restart, kind]:
            self._remove(member, cause)
        elif (self._window if terms.significant else member.window).admit(now, name):
            self._plan_restart(member, cause, now, chance)
        elif terms.significant:
            self.gave_up = (member.name, cause)
            self.too_many = self._window.by_name() + Counter([name])
            self.close(final=False)
        else:
            member.goes("give up")
            member.settled = True
            self._news.append(Fail(member.name, cause))

    def _plan_restart(
        self, member: RosterMember, cause: BaseException | None, now: float, chance: float
    ) -> None:
        """Plan the restart of the member, and of those that the strategy restarts with it (S3)."""
        if now - max(member.failed_at, member.not_before) > self._period_s:
            # It has run for longer than the period, the delay before that life not counted.
            member.attempt = 0
        member.attempt += 1
        member.failed_at = now
        delay_s = member.terms.backoff.delay(member.attempt, chance)
        self._news.append(Restarting(member.name, cause, delay_s))
        if self._strategy == "one_for_one":
            member.not_before = now + delay_s
            return
        order = list(self._members.values())
        for position in restarted_with(self._strategy, order.index(member), len(order)):
            other = order[position]
            other.not_before = max(other.not_before, now + delay_s)
            self._active.add(other)
            if other.phase not in ("starting", "up"):
                continue
            if other.terms.restart == "temporary":
                other.wanted = False
            else:
                other.recycle = True

    def _remove(self, member: RosterMember, cause: BaseException | None) -> None:
        """The member has ended for good (S6)."""
        del self._members[member.name]
        self._active.discard(member)
        self._news.append(Gone(member.name, cause))

    # -- what to do -----------------------------------------------------------------------------------------

    def steps(self, now: float) -> list[Step]:
        """What the supervisor has to do now. Each step is returned once."""
        steps, self._news = self._news, []
        for member in sorted(self._stopping, key=_by_rank):
            if member.kill_at <= now:
                member.kill_at = math.inf
                steps.append(Kill(member.name))
        if self.is_closing:
            steps += self._closing_stop(now)
        elif self._active:
            active = sorted(self._active, key=_by_rank)
            outgoing = [m for m in active if m.phase in ("starting", "up") and (m.recycle or not m.wanted)]
            if self._strategy == "one_for_one":
                steps += [self._stop(member, now) for member in outgoing]
                steps += self._independent_starts(active, now)
            elif not self._stopping:
                steps += [self._stop(member, now) for member in outgoing[-1:]] or self._next_start(
                    active, now
                )
            self._active = {m for m in active if m.name in self._members and not self.is_steady(m.name)}
        return steps

    def _closing_stop(self, now: float) -> list[Step]:
        """The last living member, once none is stopping any more; those that are not awaited together (S2)."""
        steps: list[Step] = []
        if any(member.terms.awaited for member in self._stopping):
            return steps
        while self._to_stop and not (self._stopping and self._to_stop[-1].terms.awaited):
            member = self._to_stop.pop()
            if member.phase in ("starting", "up"):
                steps.append(self._stop(member, now))
                if member.terms.awaited:
                    break
        return steps

    def _stop(self, member: RosterMember, now: float) -> Stop:
        member.goes("stop")
        member.kill_at = now + member.terms.grace_s
        self._stopping.add(member)
        return Stop(member.name, self._final if self.is_closing else not member.wanted)

    def _next_start(self, active: list[RosterMember], now: float) -> list[Step]:
        """The first member that should run, once none is starting any more."""
        first = next((m for m in active if m.comes_up()), None)
        if first is None or first.not_before > now or any(m.phase == "starting" for m in active):
            return []
        return [self._start(first)]

    def _independent_starts(self, active: list[RosterMember], now: float) -> list[Step]:
        steps: list[Step] = []
        for member in active:
            if member.comes_up() and member.not_before <= now:
                steps.append(self._start(member))
            if member.is_awaited and not member.settled:
                break
        return steps

    def _start(self, member: RosterMember) -> Start:
        member.goes("start")
        return Start(member.name)

    def wake_at(self, now: float) -> float:
        """When `steps` will next return something by the passage of time alone; infinite when never."""
        times = [m.kill_at for m in self._stopping]
        if not self.is_closing:
            times += [m.not_before for m in self._active if m.comes_up() and m.not_before > now]
        return min(times, default=math.inf)

    # -- looking --------------------------------------------------------------------------------------------

    def phase(self, name: str) -> Phase | None:
        """The member's phase; None when there is no such member."""
        member = self._members.get(name)
        return None if member is None else member.phase

    def is_steady(self, name: str) -> bool:
        """Whether the member is up and stays up, or has failed."""
        member = self._members[name]
        stays = member.wanted and not member.recycle and not self.is_closing
        return member.phase == "failed" or (member.phase == "up" and stays)

    def is_proven(self, name: str) -> bool:
        """Whether the member has been up once, or was never on trial; not once it has left."""
        member = self._members.get(name)
        return member is not None and not member.on_trial

    @property
    def names(self) -> list[str]:
        """The members in start order."""
        return list(self._members)

    @property
    def is_settled(self) -> bool:
        """Whether every awaited member of the specification has been up or failed since the roster was opened."""
        return not any(m.is_awaited and not m.settled for m in self._active)

    @property
    def is_down(self) -> bool:
        """Whether the roster is closed and no member runs."""
        return self.is_closing and all(m.phase in ("down", "failed") for m in self._members.values())
