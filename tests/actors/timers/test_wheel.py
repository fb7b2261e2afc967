"""The wheel: what is due, in which order, and what happens while it is handed over."""

from __future__ import annotations

import pytest

from callboard.actors.timers.wheel import TICK_MAX, UNARMED, Slot, Wheel

YEAR = 365 * 86_400_000


class Named(Slot):
    """A slot that a test can name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def armed(wheel: Wheel[Named], **ticks: int) -> dict[str, Named]:
    """Slots by name, armed with these ticks."""
    slots = {name: Named(name) for name in ticks}
    for name, tick in ticks.items():
        wheel.arm(slots[name], tick)
    return slots


def come(wheel: Wheel[Named], now: int) -> list[str]:
    """The names of the slots that are due at `now`, in the order in which they come."""
    return [slot.name for slot in wheel.advance(now)]


@pytest.mark.parametrize("begin", [0, 1, 63, 64, 4095, 1_700_000_000_123])
@pytest.mark.parametrize(
    "delay",
    [1, 63, 64, 65, 4095, 4096, 2**32 - 1, 2**32, 2**32 + 1, YEAR, 1000 * YEAR],
)
def test_a_slot_comes_at_its_tick(begin: int, delay: int) -> None:
    """Not one before it, however far ahead it lies, and however often the wheel is looked at meanwhile."""
    wheel: Wheel[Named] = Wheel(begin)
    armed(wheel, one=begin + delay)
    for before in (delay // 2, delay - 1):
        assert [] == come(wheel, begin + before)
    assert wheel.next_deadline() == begin + delay
    assert ["one"] == come(wheel, begin + delay)
    assert (0, None) == (len(wheel), wheel.next_deadline())


def test_what_has_passed_comes_at_once() -> None:
    """Also what was never ahead; it does not wait for a revolution."""
    wheel: Wheel[Named] = Wheel(1000)
    armed(wheel, past=1, before=-5, now=1000)
    assert 1000 == wheel.next_deadline()
    assert ["before", "past", "now"] == come(wheel, 1000)


def test_slots_come_in_order_across_levels() -> None:
    """A leap of centuries hands over everything in order of its tick."""
    wheel: Wheel[Named] = Wheel(7)
    armed(wheel, d=2**33, a=8, e=90 * YEAR, c=5000, b=70)
    assert ["a", "b", "c", "d", "e"] == come(wheel, 300 * YEAR)


def test_arming_overwrites() -> None:
    """A slot comes once, at the tick it was armed with last."""
    wheel: Wheel[Named] = Wheel(0)
    slots = armed(wheel, one=10, two=20)
    wheel.arm(slots["one"], 30)
    wheel.arm(slots["two"], 5)
    assert 5 == wheel.next_deadline()
    assert (["two"], [], ["one"]) == (come(wheel, 5), come(wheel, 29), come(wheel, 10**9))


def test_a_cancelled_slot_does_not_come() -> None:
    """Cancelling twice is cancelling once, and the other slots of its bucket are not concerned."""
    wheel: Wheel[Named] = Wheel(0)
    slots = armed(wheel, one=100, two=100, three=5000)
    for _ in range(2):
        wheel.cancel(slots["one"])
        wheel.cancel(slots["three"])
    assert (1, 100) == (len(wheel), wheel.next_deadline())
    assert ["two"] == come(wheel, 10_000)


def test_cancelling_while_a_bucket_is_handed_over_keeps_the_rest() -> None:
    """Each slot of the bucket that was not cancelled comes, whichever one cancels whichever."""
    names = [f"slot-{number}" for number in range(6)]
    for first in range(6):
        for second in range(6):
            wheel: Wheel[Named] = Wheel(0)
            slots = armed(wheel, **dict.fromkeys(names, 77))
            found = []
            for slot in wheel.advance(77):
                found.append(slot.name)
                if slot is slots[names[first]]:
                    wheel.cancel(slots[names[second]])
            assert [name for name in names if name != names[second] or second <= first] == found
            assert len(wheel) == 0


def test_what_an_owner_arms_in_the_past_comes_the_next_time() -> None:
    """An owner that arms what is due already, again and again, does not keep the wheel from the others."""
    wheel: Wheel[Named] = Wheel(0)
    slots = armed(wheel, a=5, b=6)
    found = []
    for slot in wheel.advance(10):
        found.append(slot.name)
        wheel.arm(slots["a"], 3)
    assert (["a", "b"], 10, 1) == (found, wheel.next_deadline(), len(wheel))
    assert ["a"] == come(wheel, 10)


def test_what_was_not_handed_over_stays_due() -> None:
    """Whoever breaks off, by an error for example, finds the rest the next time."""
    wheel: Wheel[Named] = Wheel(0)
    armed(wheel, a=5, b=6, c=7)
    assert "a" == next(wheel.advance(10)).name
    assert (2, 10) == (len(wheel), wheel.next_deadline())
    assert ["b", "c"] == come(wheel, 10)


def test_a_time_that_has_passed_changes_nothing() -> None:
    """The wheel does not go back."""
    wheel: Wheel[Named] = Wheel(1000)
    armed(wheel, one=1100)
    assert ([], 1000) == (come(wheel, 5), wheel.now)
    assert ["one"] == come(wheel, 1100)


def test_what_lies_beyond_all_ticks_never_comes() -> None:
    """It is not armed, and whatever it was armed with before is gone."""
    wheel: Wheel[Named] = Wheel(0)
    slots = armed(wheel, one=10, last=TICK_MAX)
    wheel.arm(slots["one"], TICK_MAX + 1)
    assert (1, UNARMED) == (len(wheel), slots["one"].place)
    assert ["last"] == come(wheel, TICK_MAX + 5)


def test_a_crowded_bucket_is_spread_before_its_first_tick() -> None:
    """Looking for the first of many would take as long as there are many: the wheel stops where the bucket begins."""
    wheel: Wheel[Named] = Wheel(0)
    crowd = {f"slot-{number}": 5000 + number for number in range(100)}
    armed(wheel, **crowd)
    stops = []
    while (tick := wheel.next_deadline()) is not None and tick < 5000:
        stops.append(tick)
        assert [] == come(wheel, tick)
    assert [4096, 4992] == stops
    assert [*crowd] == come(wheel, 6000)


def test_nothing_is_left_of_slots_that_came_or_were_cancelled() -> None:
    """Buckets exist only while they hold something."""
    wheel: Wheel[Named] = Wheel(0)
    slots = armed(wheel, **{f"slot-{number}": number**5 for number in range(1, 200)})
    for slot in list(slots.values())[::2]:
        wheel.cancel(slot)
    come(wheel, 100**5)
    for slot in slots.values():
        wheel.cancel(slot)
    assert ({}, {}, [0] * 9) == (wheel._buckets, wheel._due, wheel._occupied)
