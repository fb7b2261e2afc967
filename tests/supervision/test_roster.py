"""The roster's rules under random histories: whatever happens, its invariants hold and it converges."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.log.errors import InternalError
from callboard.supervision import Backoff
from callboard.supervision.policies import STRATEGIES
from callboard.supervision.roster import Fail, Gone, Kill, Restarting, RestartTerms, Roster, Start, Stop

INTENSITY = 2
PERIOD_S = 10.0
GRACE_S = 3.0
BACKOFF = Backoff(initial=1, maximum=4, jitter=0)

TERMS = st.builds(
    RestartTerms,
    restart=st.sampled_from(["permanent", "transient", "temporary"]),
    significant=st.booleans(),
    grace_s=st.just(GRACE_S),
    backoff=st.just(BACKOFF),
)


class RosterMachine(RuleBasedStateMachine):
    """A world that does what the roster says, and crashes as it likes."""

    @initialize(strategy=st.sampled_from(sorted(STRATEGIES)), listed=st.lists(TERMS, max_size=4))
    def make(self, strategy, listed):
        self.strategy = strategy
        self.roster = Roster(strategy, INTENSITY, PERIOD_S)
        self.now = 100.0
        self.terms = {}
        self.order = []
        self.listed = set()
        self.alive = {}  # name -> "starting", "up"
        self.stop_asked = {}  # name -> when
        self.killed = set()
        self.due = {}
        self.failed = set()
        self.dismissed = set()
        self.first_start = set()
        self.is_open = False
        self.final = False
        for number, terms in enumerate(listed):
            self._add(f"listed{number}", terms, listed=True)
        self.roster.open()
        self.is_open = True
        self.run()

    def _add(self, name, terms, listed):
        self.roster.add(name, terms, listed=listed)
        self.terms[name] = terms
        self.order.append(name)
        if listed:
            self.listed.add(name)

    # -- the shell ------------------------------------------------------------------------------------------

    def run(self):
        """Carry out all steps, checking each."""
        while steps := self.roster.steps(self.now):
            for step in steps:
                self.carry_out(step)

    def carry_out(self, step):
        name = step.name
        match step:
            case Start():
                assert name not in self.alive  # S1
                assert name not in self.failed
                assert name not in self.dismissed
                assert not self.roster.is_closing
                assert self.now >= self.due.get(name, -math.inf)  # S3
                self.check_start_order(name)
                self.alive[name] = "starting"
                self.first_start.add(name)
            case Stop():
                assert name in self.alive
                assert name not in self.stop_asked
                self.check_stop_order(name)
                gone = name in self.dismissed
                if self.terms[name].restart != "temporary":
                    assert step.final == (self.final if self.roster.is_closing else gone)
                self.stop_asked[name] = self.now
            case Kill():
                assert self.now >= self.stop_asked[name] + GRACE_S  # S5
                assert name not in self.killed
                self.killed.add(name)
            case Restarting():
                assert step.delay_s <= BACKOFF.maximum
                self.due[name] = self.now + step.delay_s
            case Fail():
                assert not self.terms[name].significant
                self.failed.add(name)
            case Gone():
                assert name not in self.alive
                self.order.remove(name)
                self.failed.discard(name)
                self.dismissed.discard(name)
                self.due.pop(name, None)

    def check_start_order(self, name):
        before = self.order[: self.order.index(name)]
        if self.strategy != "one_for_one":
            for other in before:  # S2
                assert self.alive.get(other) == "up" or other in self.failed
            assert not self.stop_asked
        else:
            for other in before:
                if other in self.listed and other not in self.first_start:
                    raise AssertionError("S2")

    def check_stop_order(self, name):
        if self.roster.is_closing or self.strategy != "one_for_one":
            assert not self.stop_asked  # S2: one at a time
        if self.roster.is_closing:
            after = self.order[self.order.index(name) + 1 :]
            assert not any(other in self.alive for other in after)  # S2: last first

    # -- what may happen ------------------------------------------------------------------------------------

    @rule(terms=TERMS)
    def add(self, terms):
        if len(self.order) < 7 and not self.final:
            self._add(f"added{len(self.terms)}", terms, listed=False)
            self.run()

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 11.0]))
    def time_passes(self, seconds):
        self.run()
        self.now += seconds
        self.run()

    @precondition(lambda self: "starting" in self.alive.values())
    @rule(data=st.data())
    def becomes_ready(self, data):
        name = data.draw(st.sampled_from([n for n, state in self.alive.items() if state == "starting"]))
        self.roster.ready(name)
        self.alive[name] = "up"
        self.run()

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), kind=st.sampled_from(["finished", "crashed", "killed"]), run=st.booleans())
    def ends(self, data, kind, run):
        self.end(data.draw(st.sampled_from(sorted(self.alive))), kind)
        if run:
            self.run()

    def end(self, name, kind):
        del self.alive[name]
        self.stop_asked.pop(name, None)
        self.killed.discard(name)
        self.roster.ended(name, kind, ValueError(kind), now=self.now, chance=0.5)

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def dismissed_by_somebody(self, data):
        name = data.draw(st.sampled_from(self.order))
        if self.roster.phase(name) is None or name in self.dismissed:
            return
        if self.roster.phase(name) not in ("down", "failed"):
            self.dismissed.add(name)
        self.roster.remove(name)
        self.run()

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def restarted_by_somebody(self, data):
        self.run()
        name = data.draw(st.sampled_from([*self.order, ""]))
        if self.roster.phase(name) is None:
            return
        self.roster.restart(name)
        self.failed.discard(name)
        self.due.pop(name, None)
        self.run()

    @rule(final=st.booleans())
    def close(self, final):
        self.final = self.final or final
        self.roster.close(final=final)
        self.run()

    @precondition(lambda self: self.roster.is_down and not self.final)
    @rule()
    def reopen(self):
        self.run()
        self.failed.clear()
        self.due.clear()
        self.first_start.clear()
        self.roster.open()
        self.run()

    # -- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def roster_and_world_agree(self):
        for name in self.roster.names:
            phase = self.roster.phase(name)
            alive = name in self.alive
            assert alive == (phase in ("starting", "up", "stopping"))
        if self.roster.is_closing and not self.alive:
            assert self.roster.is_down

    def teardown(self):
        """Left alone, the roster converges: all wanted are up, or it is down; in bounded time."""
        if not hasattr(self, "roster"):
            return
        self.run()
        for _ in range(100):
            for name, state in list(self.alive.items()):
                if name in self.stop_asked:
                    self.end(name, "finished")
                elif state == "starting":
                    self.roster.ready(name)
                    self.alive[name] = "up"
            self.run()
            wake_at = self.roster.wake_at(self.now)
            if wake_at < math.inf:
                assert wake_at >= self.now or self.stop_asked
                self.now = max(self.now, wake_at)
                self.run()
        if self.roster.is_closing:
            assert self.roster.is_down
            assert not (self.final and self.roster.names)
        else:
            assert all(self.roster.phase(name) in ("up", "failed") for name in self.roster.names)
            assert self.roster.is_settled
        assert self.roster.wake_at(self.now) == math.inf


TestRoster = RosterMachine.TestCase
TestRoster.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.fixture
def one():
    """A roster with one member that is up."""
    roster = Roster("one_for_one", INTENSITY, PERIOD_S)
    roster.add("a", RestartTerms(backoff=BACKOFF))
    roster.open()
    assert roster.steps(0) == [Start("a")]
    roster.ready("a")
    return roster


def test_the_limit_is_exact(one):
    """As many restarts as the intensity says are made within the period, and not one more (S4)."""
    for attempt in range(INTENSITY):
        one.ended("a", "crashed", None, now=attempt, chance=0)
        assert one.gave_up is None
        one.steps(attempt)
        assert one.steps(attempt + 4) == [Start("a")] or attempt == 0
        if one.phase("a") == "starting":
            one.ready("a")
    error = ValueError()
    one.ended("a", "crashed", error, now=5, chance=0)
    assert one.gave_up == ("a", error)
    assert one.is_down


def test_no_restart_is_told_after_giving_up():
    """A crash just before the last one planned a restart; nobody hears of it, since it will not be made."""
    roster = Roster("one_for_one", 1, PERIOD_S)
    for name in ("a", "b"):
        roster.add(name, RestartTerms(backoff=BACKOFF))
    roster.open()
    roster.steps(0)
    roster.ready("a")
    roster.ready("b")
    roster.ended("a", "crashed", None, now=0, chance=0)
    roster.ended("b", "crashed", None, now=0, chance=0)
    assert roster.gave_up == ("b", None)
    assert roster.steps(0) == []
    assert roster.is_down


def test_no_failure_is_told_after_a_revival():
    """Who is restarted by hand before anybody was told that it failed, fails nobody who waits for it."""
    roster = Roster("one_for_one", 0, PERIOD_S)
    for name in ("a", "b"):
        roster.add(name, RestartTerms(significant=False))
    roster.open()
    roster.steps(0)
    for name in ("a", "b"):
        roster.ready(name)
        roster.ended(name, "crashed", None, now=0, chance=0)
    roster.restart("a")
    assert roster.steps(0) == [Fail("b", None), Start("a")]


def test_a_healthy_stretch_resets_the_backoff(one):
    """A member that lived for the period starts again at the first delay."""
    delays = []
    now = 0.0
    for gap in (0, 1, 20, 1):
        now += gap
        one.ended("a", "crashed", None, now=now, chance=0)
        delays += [step.delay_s for step in one.steps(now) if isinstance(step, Restarting)]
        now += 5
        assert one.steps(now) == [Start("a")]
        one.ready("a")
    assert delays == [1, 2, 1, 2]


def test_an_impossible_report_is_a_bug(one):
    """A report that no transition knows raises an InternalError that names the invariant."""
    with pytest.raises(InternalError) as caught:
        one.ready("a")
    assert caught.value.invariant == "S1"
    with pytest.raises(InternalError):
        one.add("a", RestartTerms())
