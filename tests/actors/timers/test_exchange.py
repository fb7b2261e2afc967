"""Owner and wheel exchange notices: random lives with crashes, late notices and clocks that jump."""

from __future__ import annotations

from typing import Any

import attrs
import cbor2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.actors.kernel import ActorSystem, Batch, MailboxSpec, notify
from callboard.actors.timers.armed_timers import ArmedTimers
from callboard.actors.timers.commands import (
    NEVER,
    TICKS,
    Arm,
    Cancel,
    CountTimers,
    Due,
    TimerStatistics,
)
from callboard.actors.timing import Callback, Timer, Timers, WheelAddress
from callboard.simulations.entropy import SeededEntropy

TIMERS = 6
NUMBERS = st.integers(0, TIMERS - 1)
DELAYS = st.one_of(st.integers(-1000, 1000), st.integers(0, 200_000)).map(lambda ms: ms / 1000 + 0.0004)


@attrs.define
class Hands:
    """Clocks that a test moves."""

    now: float = 100.0
    ahead: float = 1_700_000_000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return round((self.now + self.ahead) * 1e6)


class ExchangeMachine(RuleBasedStateMachine):
    """`model` has the moment of each armed timer that has not come."""

    @initialize()
    def start(self) -> None:
        """An owner with timers of both kinds, and a wheel."""
        self.clock = Hands()
        system = ActorSystem(clock=self.clock, entropy=SeededEntropy(1))
        self.ref = system.register("timer-wheel", MailboxSpec())
        self.cell = self.ref._cell
        address = WheelAddress(self.clock)
        address.ref = self.ref
        self.owner = Timers(address)
        self.timers: list[Timer] = [
            self.make(number, (self.owner.timer, self.owner.instant)[number % 2]) for number in range(TIMERS)
        ]
        self.model: dict[int, float] = {}
        self.wheel = self.new_wheel()

    def make(self, number: int, kind: Any) -> Timer:
        """A timer that checks that it comes when it should (TM4)."""

        def look() -> None:
            timer = self.timers[number]
            assert timer.has_come()
            assert not timer.has_come()
            assert self.model.pop(number) <= timer.now()

        timer: Timer = kind(Callback(look))
        return timer

    def new_wheel(self) -> ArmedTimers:
        """One that knows nothing."""
        return ArmedTimers(self.clock.monotonic(), self.owner.wall())

    @rule(number=NUMBERS, delay=DELAYS)
    def arm(self, number: int, delay: float) -> None:
        """Forward, back, or into the past: the newest counts."""
        moment = self.model[number] = self.timers[number].now() + delay
        self.timers[number].arm(moment)

    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        """It does not come."""
        self.model.pop(number, None)
        self.timers[number].cancel()

    @rule(number=NUMBERS)
    def look(self, number: int) -> None:
        """An owner may look by itself, before the wheel says anything."""
        timer = self.timers[number]
        if timer.has_come():
            assert self.model.pop(number) <= timer.now()

    @rule(limit=st.integers(1, TIMERS))
    def take(self, limit: int) -> None:
        """The wheel takes some of the notices."""
        for message, _ in Batch(self.cell.mailbox, limit):
            if isinstance(message, Arm):
                self.wheel.arm(message)
            else:
                self.wheel.cancel(message)

    @rule(seconds=st.one_of(st.floats(0, 2), st.floats(0, 300)))
    def pass_time(self, seconds: float) -> None:
        """What is due by now comes, each once."""
        self.clock.now += seconds
        self.turn()

    @rule(seconds=st.floats(-100_000, 100_000))
    def jump(self, seconds: float) -> None:
        """The wall clock does."""
        self.clock.ahead += seconds

    @rule(said=NUMBERS)
    def early(self, said: int) -> None:
        """A wheel that says too much is not believed."""
        timer = self.timers[said]
        if timer.now() < timer.deadline:
            self.owner.hear(Due(timer.number))

    @rule()
    def crash(self) -> None:
        """The next wheel knows nothing, and says that it has begun."""
        self.wheel = self.new_wheel()
        self.cell.tell_began()

    def turn(self) -> None:
        """As the actor takes it."""
        for owner, timer in self.wheel.take_due(self.clock.monotonic(), self.owner.wall()):
            notify(self.ref, owner, Due(timer))

    @precondition(lambda self: hasattr(self, "model"))
    @rule()
    def wait_for_all(self) -> None:
        """However it was told, and whatever the clocks did: all that is armed comes, in time."""
        for _ in range(20_000):
            self.take(1000)
            self.turn()
            if not self.model:
                break
            if len(self.cell.mailbox):
                continue
            assert all(moment > self.timers[n].now() - 2 / TICKS for n, moment in self.model.items())
            look = self.wheel.next_look(self.clock.monotonic(), self.owner.wall())
            assert look < NEVER
            self.clock.now = max(self.clock.now, look)
        assert not self.model

    @invariant()
    def nothing_is_lost(self) -> None:
        """TM6, TM7; and no more notices are on their way than there are timers."""
        if not hasattr(self, "model"):
            return
        assert len(self.cell.mailbox) <= TIMERS
        assert bool(self.cell.peers) == bool(self.owner.known)
        for number, moment in self.model.items():
            timer = self.timers[number]
            assert timer.deadline == moment
            peer = self.cell.peers[self.owner._owner]
            on_its_way = timer in peer.marks
            assert on_its_way or self.wheel.moment_of(peer.number, timer.number) <= moment + 2 / TICKS


ExchangeMachine.TestCase.settings = settings(deadline=None)
TestExchange = ExchangeMachine.TestCase


@pytest.mark.parametrize(
    "message",
    [Arm(1, 2, 3.5, True), Cancel(1, 2), Due(2), CountTimers(), TimerStatistics(1, 2, 3, 4)],
    ids=lambda message: type(message).__name__,
)
def test_messages_are_data(message: Any) -> None:
    """What owners and wheel exchange survives CBOR, and cannot be changed."""
    fields = attrs.astuple(message)
    assert type(message)(*cbor2.loads(cbor2.dumps(fields))) == message
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
        message.timer = 3
