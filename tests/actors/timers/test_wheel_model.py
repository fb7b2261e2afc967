"""Random lives of a wheel against a naive model: a list of who is armed with what, sorted when needed."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.actors.timers.wheel import FEW, Slot, Wheel

SLOTS = 40
CENTURY = 100 * 365 * 86_400_000
NUMBERS = st.integers(0, SLOTS - 1)
DELAYS = st.one_of(
    st.integers(-100, 200),
    st.integers(-(2**34), 2**34),
    st.sampled_from([2**exponent + near for exponent in range(0, 50, 2) for near in (-1, 0, 1)]),
)
STEPS = st.one_of(
    st.integers(0, 100),
    st.integers(0, 2**36),
    st.sampled_from([64, 4096, 2**18, 2**32, CENTURY, 9 * CENTURY]),
)
DEEDS = st.lists(st.tuples(st.integers(0, 8), NUMBERS, st.none() | DELAYS), max_size=8)
"""While slots are handed over: after so many, who is armed with what delay, or cancelled."""


class WheelMachine(RuleBasedStateMachine):
    """`model` has the tick of every armed slot."""

    @initialize(begin=st.sampled_from([0, 1, 63, 64, 1_700_000_000_000]))
    def start(self, begin: int) -> None:
        """Nothing is armed."""
        self.now = begin
        self.wheel: Wheel[Slot] = Wheel(begin)
        self.slots = [Slot() for _ in range(SLOTS)]
        self.numbers = {slot: number for number, slot in enumerate(self.slots)}
        self.model: dict[int, int] = {}

    def put(self, number: int, delay: int | None) -> None:
        """Arm or cancel a slot, in both."""
        if delay is None:
            self.wheel.cancel(self.slots[number])
            self.model.pop(number, None)
        else:
            self.wheel.arm(self.slots[number], self.now + delay)
            self.model[number] = self.now + delay

    @rule(number=NUMBERS, delay=DELAYS)
    def arm(self, number: int, delay: int) -> None:
        """Also what is armed, and in the past."""
        self.put(number, delay)

    @rule(delay=DELAYS, spread=st.integers(0, 70))
    def arm_all(self, delay: int, spread: int) -> None:
        """A crowd, close together."""
        for number in range(SLOTS):
            self.put(number, delay + number * spread // SLOTS)

    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        """Also what is not armed."""
        self.put(number, None)

    @rule(step=STEPS, deeds=DEEDS, stops_after=st.none() | st.integers(1, 5))
    def advance(self, step: int, deeds: list[tuple[int, int, int | None]], stops_after: int | None) -> None:
        """Time passes; owners arm and cancel while they are woken, and one of them may raise."""
        self.now += step
        handed: list[int] = []
        due = {number for number, tick in self.model.items() if tick <= self.now}
        touched: set[int] = set()
        for slot in self.wheel.advance(self.now):
            number = self.numbers[slot]
            tick = self.model.pop(number)
            assert tick <= self.now, "early"
            assert number not in handed, "twice in one turn"
            earlier = [n for n, t in self.model.items() if t < tick and n in due - touched]
            assert earlier == [] or number in touched, "out of order"
            handed.append(number)
            for after, other, delay in deeds:
                if after == len(handed):
                    touched.add(other)
                    self.put(other, delay)
            if len(handed) == stops_after:
                return
        late = [n for n, t in self.model.items() if t <= self.now and n in due - touched]
        assert late == [], "lost"

    @rule()
    def go_to_next(self) -> None:
        """From one deadline to the next, at most nine stops lie between."""
        for _ in range(10):
            tick = self.wheel.next_deadline()
            if tick is None:
                break
            self.now = max(self.now, tick)
            came = list(self.wheel.advance(self.now))
            if came:
                first = min(self.model.values())
                assert first <= self.now
                assert {self.numbers[slot] for slot in came} == {
                    number for number, tick in self.model.items() if tick <= self.now
                }
                for slot in came:
                    del self.model[self.numbers[slot]]
                break
        else:
            raise AssertionError("ten stops, and nothing came")

    @invariant()
    def agrees(self) -> None:
        """As many are armed, and the next deadline is not after the first; with few, it is the first."""
        assert len(self.model) == len(self.wheel)
        first = min(self.model.values(), default=None)
        tick = self.wheel.next_deadline()
        if first is None or tick is None:
            assert first is tick
        else:
            assert self.now <= tick <= max(first, self.now)
            if len(self.model) <= FEW:
                assert tick == max(first, self.now)

    @invariant()
    def keeps_what_is_armed(self) -> None:
        """Buckets hold what is armed, and nothing else (TW2, TW5)."""
        held = [slot for bucket in self.wheel._buckets.values() for slot in bucket] + [*self.wheel._due]
        assert sorted(self.numbers[slot] for slot in held) == sorted(self.model)
        assert all(self.wheel._buckets.values())


WheelMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_random_lives = WheelMachine.TestCase
