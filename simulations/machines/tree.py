"""The supervisor of all partitions, as its shell runs it, with the rules of supervision beside it.

The roster decides; its steps are carried out here at once, or after a drawn delay. A life that begins becomes ready; a
life that is asked to end does so, or hangs until it is killed. Besides the partitions there are *extras*: members with
other restart terms, which end by themselves.

Rules, all under the promise of supervision: one life at a time; no restart before its backoff is over; never more than
`intensity` restarts within `period`; a kill when the grace is over, and once; in one_for_all and rest_for_one no start
while a member before it is on its way up or down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from callboard.actors.kernel import EndingKind
from callboard.simulations.checkers import supervision
from callboard.simulations.violations import Violation
from callboard.supervision.policies import Backoff, Strategy
from callboard.supervision.roster import Fail, Gone, Kill, Restarting, RestartTerms, Roster, Start, Step, Stop

STRATEGIES: Final[tuple[Strategy, ...]] = ("one_for_one", "one_for_one", "one_for_all", "rest_for_one")
EXTRA_TERMS: Final = (
    RestartTerms("transient", significant=False, grace_s=0.5),
    RestartTerms("temporary", grace_s=0.1),
    RestartTerms("permanent", significant=False, grace_s=2.0, backoff=Backoff(initial=0.2, maximum=5.0)),
    RestartTerms("transient", grace_s=1.0),
)
REOPEN_S: Final = 0.5
"""Seconds until the supervisor above opens a roster that gave up."""

Agenda = Callable[[float, Callable[[float], None]], None]
"""Schedules a call at an instant."""


class Tree:
    """One supervisor. `start` and `stop` get the partition that begins or ends a life."""

    def __init__(
        self,
        partitions: list[str],
        draw: Callable[[], int],
        agenda: Agenda,
        *,
        start: Callable[[str, float], None],
        stop: Callable[[str, float], None],
    ) -> None:
        self._partitions = frozenset(partitions)
        self._draw = draw
        self._agenda = agenda
        self._start_partition = start
        self._stop_partition = stop
        bits = draw()
        self.strategy = STRATEGIES[bits & 3]
        self.intensity = 1 + (bits >> 2) % 8
        self.period_s = 1.0 + (bits >> 8) % 30
        self.extras = [f"extra-{number}" for number in range((bits >> 16) % 5)]
        self.events = 0
        self._epoch = 0
        self.roster: Roster
        self.begin()

    def begin(self) -> None:
        """A supervisor that knows nothing of an earlier process; `open` lets its members run."""
        self._epoch += 1
        self.roster = Roster(self.strategy, self.intensity, self.period_s)
        self._alive: dict[str, str] = {}
        """Members with a life: "starting", "up" or "stopping"."""
        self._not_before: dict[str, float] = {}
        self._kill_at: dict[str, float] = {}
        self._windows: dict[str, deque[float]] = {}
        self._terms: dict[str, RestartTerms] = {}
        for name in sorted(self._partitions):
            self._add(name, RestartTerms())
        for number, name in enumerate(self.extras):
            self._add(name, EXTRA_TERMS[number % len(EXTRA_TERMS)])

    def _add(self, name: str, terms: RestartTerms) -> None:
        self._terms[name] = terms
        self._windows.pop(name, None)
        self._not_before.pop(name, None)
        self.roster.add(name, terms, listed=name in self._partitions)

    # -- what happens ---------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Begin: at the start, and after the roster gave up."""
        for name in self.extras:
            if self.roster.phase(name) is None:
                self._add(name, self._terms[name])
        self._windows.clear()
        self._not_before.clear()
        self.roster.open()
        self.carry_out(now)

    def unrest(self, now: float, bits: int) -> int:
        """Let an extra end by itself, be removed, be restarted, or come back."""
        if not self.extras:
            return 0
        name = self.extras[bits % len(self.extras)]
        action = (bits >> 4) & 7
        phase = self.roster.phase(name)
        if phase is None:
            if action or self.roster.is_closing:
                return 0
            self._add(name, self._terms[name])
        elif action < 5:
            kinds: tuple[EndingKind, ...] = ("crashed", "crashed", "finished", "killed", "crashed")
            return int(self.end(name, kinds[action], now))
        elif action == 5 and not self.roster.is_closing:
            self._not_before.pop(name, None)
            self._windows.pop(name, None)
            self.roster.restart(name)
        elif action == 6 and not self.roster.is_closing:
            self.roster.remove(name)
        else:
            return 0
        self.carry_out(now)
        return 1

    def end(self, name: str, kind: EndingKind, now: float) -> bool:
        """A life ends; False when there is none."""
        if self._alive.pop(name, None) is None:
            return False
        self._kill_at.pop(name, None)
        self.events += 1
        had_given_up = self.roster.gave_up is not None
        self.roster.ended(name, kind, None, now=now, chance=(self._draw() & 1023) / 1024)
        if self.roster.gave_up is not None and not had_given_up:
            self._check_giving_up(name, now)
        self.carry_out(now)
        return True

    # -- steps ----------------------------------------------------------------------------------------------

    def carry_out(self, now: float) -> None:
        """Take the roster's steps until it has none."""
        while steps := self.roster.steps(now):
            self.events += 1
            for step in steps:
                self._perform(step, now)
        if self.roster.is_closing and self.roster.is_down and self.roster.gave_up is not None:
            self._later(now + REOPEN_S, self._reopen)

    def _reopen(self, now: float) -> None:
        if self.roster.is_closing and self.roster.is_down:
            self.open(now)

    def _perform(self, step: Step, now: float) -> None:
        name = step.name
        match step:
            case Start():
                self._check_start(name, now)
                self._alive[name] = "starting"
                self._later(now + self._while(), lambda at: self._ready(name, at))
            case Stop():
                if self._alive.get(name) not in ("starting", "up"):
                    raise _broken(f"{name} was asked to stop without a life, at {now:.3f} s")
                self._alive[name] = "stopping"
                self._kill_at[name] = now + self._terms[name].grace_s
                if name in self._partitions:
                    self._stop_partition(name, now)
                if self._draw() & 3:
                    self._later(now + self._while(), lambda at: self._ends_as_asked(name, at, "finished"))
            case Kill():
                if now < self._kill_at.get(name, now + 1.0):
                    raise _broken(f"{name} was killed at {now:.3f} s, before its grace was over or twice")
                del self._kill_at[name]
                self._later(now, lambda at: self._ends_as_asked(name, at, "killed"))
            case Restarting(_, _, delay_s):
                self._check_intensity(name, now)
                for other in self._restarted_with(name):
                    self._not_before[other] = max(self._not_before.get(other, 0.0), now + delay_s)
            case Fail() | Gone():
                if name in self._alive:
                    raise _broken(f"{name} failed or left at {now:.3f} s while it had a life")

    def _ready(self, name: str, now: float) -> None:
        if self._alive.get(name) not in ("starting", "stopping"):
            return
        if self._alive[name] == "starting":
            self._alive[name] = "up"
            if name in self._partitions:
                self._start_partition(name, now)
        self.roster.ready(name)
        self.events += 1
        self.carry_out(now)

    def _ends_as_asked(self, name: str, now: float, kind: EndingKind) -> None:
        if self._alive.get(name) == "stopping":
            self.end(name, kind, now)

    def _while(self) -> float:
        """Mostly at once, sometimes a little, seldom long."""
        bits = self._draw()
        return (0.0, 0.0, 0.01, 0.3)[bits & 3] * ((bits >> 2) & 15)

    def _later(self, at: float, action: Callable[[float], None]) -> None:
        epoch = self._epoch

        def unless_gone(now: float) -> None:
            if self._epoch == epoch:
                action(now)

        self._agenda(at, unless_gone)

    # -- rules ----------------------------------------------------------------------------------------------

    def _restarted_with(self, name: str) -> list[str]:
        names = self.roster.names
        if self.strategy == "one_for_one" or name not in names:
            return [name]
        return names if self.strategy == "one_for_all" else names[names.index(name) :]

    def _check_start(self, name: str, now: float) -> None:
        if name in self._alive:
            raise _broken(f"{name} was started at {now:.3f} s while it had a life")
        if now < self._not_before.get(name, 0.0):
            raise _broken(
                f"{name} was started at {now:.3f} s, its backoff lasts until {self._not_before[name]:.3f} s"
            )
        if self.strategy != "one_for_one":
            for other in self.roster.names:
                if other == name:
                    break
                if self._alive.get(other) in ("starting", "stopping"):
                    raise _broken(f"{name} was started at {now:.3f} s while {other} is {self._alive[other]}")

    def _check_intensity(self, name: str, now: float) -> None:
        key = "" if self._terms[name].significant else name
        window = self._windows.setdefault(key, deque())
        while window and now - window[0] > self.period_s:
            window.popleft()
        window.append(now)
        if len(window) > self.intensity:
            raise _broken(
                f"{len(window)} restarts within {self.period_s:g} s at {now:.3f} s; {self.intensity} are allowed"
            )

    def _check_giving_up(self, name: str, now: float) -> None:
        recent = [at for at in self._windows.get("", ()) if now - at <= self.period_s]
        if len(recent) < self.intensity:
            raise _broken(
                f"gave up over {name} at {now:.3f} s after {len(recent)} of {self.intensity} restarts"
            )


def _broken(words: str) -> Violation:
    return Violation(supervision.PROMISE, words)
