"""Roster: every rule of a supervisor, as a pure state machine. No tasks, no clock, no randomness.

Vocabulary
----------
A *member* is a child in the roster; its *phase* is what it does now, and `wanted` and `recycle` are what it should
do. The shell reports what happened (`ready`, `ended`) and what is asked for (`add`, `dismiss`, `restart`, `close`), and
carries out the *steps* that `steps(now)` hands out. The roster converges: what must go down goes down, last first; what
should be up comes up, first first; one at a time where order matters.

Invariants
----------
S1  A member has at most one life: Start is only handed out when its phase is down.
S2  Stops and starts follow the order of the members: in one_for_all and rest_for_one always, in one_for_one for the
    first start of the awaited children in the specification and for closing.
S3  No restart before its backoff is over.
S4  More than `intensity` restarts within `period` never happen: the roster gives up, or the insignificant member fails.
    An insignificant member may have an intensity of its own, infinite too.
S5  A stopping member is killed when its grace is over, not before, and once.
S6  A member that has ended for good leaves the roster, with a Gone step.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Final, Literal

import attrs

from callboard.actors.kernel import EndingKind
from callboard.log.errors import InternalError
from callboard.supervision.backoff import DEFAULT_BACKOFF, Backoff
from callboard.supervision.intensity import RestartWindow
from callboard.supervision.strategy import Restart, Strategy, restarts, taken_along

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
"""(phase, input) -> next phase. Whatever is missing is a bug. The table in the guide is made from this."""


@attrs.frozen
class Terms:
    """The part of a specification that the rules look at. `grace_s` may be infinite."""

    restart: Restart = "permanent"
    significant: bool = True
    grace_s: float = 5.0
    backoff: Backoff = DEFAULT_BACKOFF
    intensity: float | None = None
    awaited: bool = True


# -- steps: what the shell has to do ------------------------------------------------------------------------


@attrs.frozen
class Start:
    """Begin a life of the member."""

    name: str


@attrs.frozen
class Stop:
    """Ask the member to end; `final` when it will not come back."""

    name: str
    final: bool


@attrs.frozen
class Kill:
    """The grace is over: end the member's life by force."""

    name: str


@attrs.frozen
class Restarting:
    """Told, not done: the member will be started again after `delay_s`, because of `cause`."""

    name: str
    cause: BaseException | None
    delay_s: float


@attrs.frozen
class Fail:
    """The member was over its intensity and stays down, in the roster."""

    name: str
    cause: BaseException | None


@attrs.frozen
class Gone:
    """The member has ended for good and has left the roster."""

    name: str
    cause: BaseException | None


Step = Start | Stop | Kill | Restarting | Fail | Gone


@attrs.define(eq=False)
class Member:
    """A child and what is known of it."""

    name: str
    terms: Terms
    rank: int
    is_awaited: bool
    """Those after it, and its supervisor's readiness, wait for its first start: it stands in the specification."""
    window: RestartWindow
    phase: Phase = "down"
    wanted: bool = True
    recycle: bool = False
    """Has to go down before it comes up again."""
    settled: bool = False
    """Since the roster opened it was up, or failed."""
    not_before: float = -math.inf
    kill_at: float = math.inf
    attempt: int = 0
    failed_at: float = -math.inf

    def goes(self, event: str) -> None:
        """Take the transition."""
        to = TRANSITIONS.get((self.phase, event))
        if to is None:
            raise InternalError(f"{self.name!r} is {self.phase} and got {event!r}", invariant="S1")
        self.phase = to

    def comes_up(self) -> bool:
        """Should be started."""
        return self.phase == "down" and self.wanted


_by_rank = attrgetter("rank")


class Roster:
    """The children of one supervisor. Made closed; `open` begins."""

    def __init__(self, strategy: Strategy, intensity: int, period_s: float) -> None:
        self._strategy = strategy
        self._intensity = intensity
        self._period_s = period_s
        self._window = RestartWindow(intensity, period_s)
        self._members: dict[str, Member] = {}
        self._restless: set[Member] = set()
        """Members for which there may be something to do; the only ones that `steps` looks at while open."""
        self._stopping: set[Member] = set()
        self._to_stop: list[Member] = []
        """Once closed: who still has to be looked at, in rank order; the last is stopped first."""
        self._news: list[Step] = []
        self._ranks = 0
        self._closing = True
        self._final = False
        self.gave_up: tuple[str, BaseException | None] | None = None
        """The member that was too much, and its last failure, once the roster gave up."""

    # -- what is asked for ----------------------------------------------------------------------------------

    def add(self, name: str, terms: Terms, *, listed: bool = False) -> None:
        """A new last member. It starts when its turn comes."""
        if name in self._members:
            raise InternalError(f"Member {name!r} exists", invariant="S1")
        self._ranks += 1
        intensity = self._intensity if terms.intensity is None else terms.intensity
        window = RestartWindow(intensity, self._period_s)
        member = Member(name, terms, self._ranks, listed and terms.awaited, window)
        self._members[name] = member
        self._restless.add(member)

    def open(self) -> None:
        """Begin, or begin again: every member shall be up, and nothing is held against anybody."""
        self._closing = self._final = False
        self.gave_up = None
        self._window.clear()
        for member in self._members.values():
            if member.phase == "failed":
                member.goes("revive")
            member.settled = member.recycle = False
            self._forgive(member)

    def close(self, *, final: bool) -> None:
        """All members shall go down; with `final` they leave. A final close makes an earlier one final."""
        self._closing = True
        self._final = self._final or final
        # What was planned and not told yet will not happen.
        self._news = [step for step in self._news if type(step) is not Restarting]
        self._to_stop = list(self._members.values())
        if self._final:
            for member in reversed(self._to_stop):
                if member.phase in ("down", "failed"):
                    self._leave(member, None)

    def dismiss(self, name: str) -> None:
        """The member shall end and leave."""
        member = self._members[name]
        member.wanted = False
        self._restless.add(member)
        if member.phase in ("down", "failed"):
            self._leave(member, None)

    def restart(self, name: str) -> None:
        """Start the member anew: a failed one, a waiting one at once, one that is up after stopping it."""
        member = self._members[name]
        if member.phase == "failed":
            member.goes("revive")
        elif member.phase in ("starting", "up"):
            member.recycle = True
        self._forgive(member)

    def _forgive(self, member: Member) -> None:
        member.window.clear()
        member.attempt = 0
        member.not_before = -math.inf
        self._restless.add(member)

    # -- what happened --------------------------------------------------------------------------------------

    def ready(self, name: str) -> None:
        """The member's life has started properly."""
        member = self._members[name]
        member.goes("ready")
        member.settled = True

    def ended(
        self, name: str, kind: EndingKind, cause: BaseException | None, *, now: float, chance: float
    ) -> None:
        """The member's life is over. `chance` in [0, 1) is for the jitter."""
        member = self._members[name]
        expected = member.phase == "stopping" or member.recycle or not member.wanted or self._closing
        member.goes("ended")
        member.kill_at = math.inf
        member.recycle = False
        self._stopping.discard(member)
        self._restless.add(member)
        temporary = member.terms.restart == "temporary"
        if not expected:
            self._unexpected(member, kind, cause, now, chance)
        elif not member.wanted or self._final or (self._closing and temporary):
            self._leave(member, cause if kind == "crashed" else None)

    def _unexpected(
        self, member: Member, kind: EndingKind, cause: BaseException | None, now: float, chance: float
    ) -> None:
        terms = member.terms
        if not restarts(terms.restart, kind):
            self._leave(member, cause)
        elif (self._window if terms.significant else member.window).admit(now):
            self._come_again(member, cause, now, chance)
        elif terms.significant:
            self.gave_up = (member.name, cause)
            self.close(final=False)
        else:
            member.goes("give up")
            member.settled = True
            self._news.append(Fail(member.name, cause))

    def _come_again(self, member: Member, cause: BaseException | None, now: float, chance: float) -> None:
        """Plan the restart, and take along whom the strategy says (S3)."""
        if now - max(member.failed_at, member.not_before) > self._period_s:
            member.attempt = 0  # it has lived for so long, the pause before that life not counted
        member.attempt += 1
        member.failed_at = now
        delay_s = member.terms.backoff.delay(member.attempt, chance)
        self._news.append(Restarting(member.name, cause, delay_s))
        if self._strategy == "one_for_one":
            member.not_before = now + delay_s
            return
        order = list(self._members.values())
        for position in taken_along(self._strategy, order.index(member), len(order)):
            other = order[position]
            other.not_before = max(other.not_before, now + delay_s)
            self._restless.add(other)
            if other.phase not in ("starting", "up"):
                continue
            if other.terms.restart == "temporary":
                other.wanted = False
            else:
                other.recycle = True

    def _leave(self, member: Member, cause: BaseException | None) -> None:
        """The member has ended for good (S6)."""
        del self._members[member.name]
        self._restless.discard(member)
        self._news.append(Gone(member.name, cause))

    # -- what to do -----------------------------------------------------------------------------------------

    def steps(self, now: float) -> list[Step]:
        """What the shell has to do now. Handed out once each."""
        steps, self._news = self._news, []
        steps += self._kills(now)
        if self._closing:
            steps += self._closing_stop(now)
        elif self._restless:
            active = sorted(self._restless, key=_by_rank)
            doomed = [m for m in active if m.phase in ("starting", "up") and self._must_go(m)]
            steps += self._stops(doomed, now)
            steps += self._starts(active, doomed, now)
            self._restless = {m for m in active if m.name in self._members and not self.is_steady(m.name)}
        return steps

    def _must_go(self, member: Member) -> bool:
        return self._closing or member.recycle or not member.wanted

    def _kills(self, now: float) -> list[Step]:
        due = sorted((m for m in self._stopping if m.kill_at <= now), key=_by_rank)
        for member in due:
            member.kill_at = math.inf
        return [Kill(member.name) for member in due]

    def _closing_stop(self, now: float) -> list[Step]:
        """The last member that is alive, once nobody is stopping any more (S2)."""
        while self._to_stop and not self._stopping:
            member = self._to_stop.pop()
            if member.phase in ("starting", "up"):
                return [self._stop(member, now)]
        return []

    def _stops(self, doomed: list[Member], now: float) -> list[Step]:
        if self._strategy != "one_for_one":
            doomed = [] if self._stopping else doomed[-1:]
        return [self._stop(member, now) for member in doomed]

    def _stop(self, member: Member, now: float) -> Stop:
        member.goes("stop")
        member.kill_at = now + member.terms.grace_s
        self._stopping.add(member)
        return Stop(member.name, self._final if self._closing else not member.wanted)

    def _starts(self, active: list[Member], doomed: list[Member], now: float) -> list[Step]:
        if self._strategy == "one_for_one":
            return self._independent_starts(active, now)
        if doomed or self._stopping or any(m.phase == "starting" for m in active):
            return []
        first = next((m for m in active if m.comes_up()), None)
        if first is None or first.not_before > now:
            return []
        return [self._start(first)]

    def _independent_starts(self, active: list[Member], now: float) -> list[Step]:
        steps: list[Step] = []
        for member in active:
            if member.comes_up() and member.not_before <= now:
                steps.append(self._start(member))
            if member.is_awaited and not member.settled:
                break
        return steps

    def _start(self, member: Member) -> Start:
        member.goes("start")
        return Start(member.name)

    def wake_at(self, now: float) -> float:
        """When `steps` will next have something to do though nothing happened; infinite when never."""
        times = [m.kill_at for m in self._stopping]
        if not self._closing:
            times += [m.not_before for m in self._restless if m.comes_up() and m.not_before > now]
        return min(times, default=math.inf)

    # -- looking --------------------------------------------------------------------------------------------

    def phase(self, name: str) -> Phase | None:
        """What the member does, None when there is none of that name."""
        member = self._members.get(name)
        return None if member is None else member.phase

    def is_steady(self, name: str) -> bool:
        """The member is up and shall stay so, or failed."""
        member = self._members[name]
        return member.phase == "failed" or (member.phase == "up" and not self._must_go(member))

    @property
    def names(self) -> list[str]:
        """The members in start order."""
        return list(self._members)

    @property
    def is_settled(self) -> bool:
        """Every awaited member in the specification was up, or failed, since the roster opened."""
        return not any(m.is_awaited and not m.settled for m in self._restless)

    @property
    def is_down(self) -> bool:
        """Closed, and nobody is alive."""
        return self._closing and all(m.phase in ("down", "failed") for m in self._members.values())

    @property
    def is_closing(self) -> bool:
        """Closed, or on the way there."""
        return self._closing
