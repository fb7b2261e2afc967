"""All timers that are armed, each in the wheel of its clock. A pure state machine: both clocks come in as arguments.

Invariants
----------
TM1  An armed timer is in the wheel of its clock, once, at its newest moment.
TM2  `next_look` is no later than the first tick that is not before the earliest moment; and, while an instant is armed,
     no later than in `LOOK_S`.
TM3  A timer is forgotten when it is handed over: what was not, is the next time.
TM5  Nothing is handed over before its moment by its clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from callboard.actors.timers.commands import LOOK_S, NEVER, TICKS, Arm, Cancel, tick_at, tick_from
from callboard.actors.timers.wheel import UNARMED, Slot, Wheel
from callboard.log.errors import InternalError


class _Armed(Slot):
    """One timer of one owner."""

    __slots__ = ("is_instant", "key")

    def __init__(self, owner: int, timer: int, is_instant: bool) -> None:
        super().__init__()
        self.key = owner, timer
        self.is_instant = is_instant


class ArmedTimers:
    """All timers that are armed, by owner and number. Times are seconds: of the monotonic clock, or since 1970."""

    def __init__(self, now: float, wall: float) -> None:
        self._slots: dict[tuple[int, int], _Armed] = {}
        self._deadlines: Wheel[_Armed] = Wheel(tick_at(now))
        self._instants: Wheel[_Armed] = Wheel(tick_at(wall))

    def __len__(self) -> int:
        return len(self._slots)

    def arm(self, message: Arm) -> None:
        """The timer comes at this moment, and at no other."""
        key = message.owner, message.timer
        slot = self._slots.get(key)
        if slot is None or slot.is_instant != message.is_instant:
            if slot is not None:
                self._wheel_of(slot).cancel(slot)
            slot = self._slots[key] = _Armed(*key, message.is_instant)
        self._wheel_of(slot).arm(slot, tick_from(message.at))

    def cancel(self, message: Cancel) -> None:
        """The timer does not come."""
        slot = self._slots.pop((message.owner, message.timer), None)
        if slot is not None:
            self._wheel_of(slot).cancel(slot)

    def moment_of(self, owner: int, timer: int) -> float:
        """When it comes by its clock: `NEVER` when it is not armed."""
        slot = self._slots.get((owner, timer))
        return NEVER if slot is None or slot.place == UNARMED else slot.tick / TICKS

    def take_due(self, now: float, wall: float) -> Iterator[tuple[int, int]]:
        """Hand over what has come, as (owner, timer)."""
        tick, wall_tick = tick_at(now), tick_at(wall)
        if wall_tick < self._instants.now:
            self._set_back(wall_tick)
        for wheel, until in ((self._deadlines, tick), (self._instants, wall_tick)):
            for slot in wheel.advance(until):
                if slot.tick > until:
                    raise InternalError(f"a timer came {slot.tick - until} ms too early", invariant="TM5")
                del self._slots[slot.key]
                yield slot.key

    def next_look(self, now: float, wall: float) -> float:
        """When something may be due next, by the monotonic clock (TM2)."""
        deadline, instant = self._deadlines.next_deadline(), self._instants.next_deadline()
        look = NEVER if deadline is None else deadline / TICKS
        if instant is not None:
            look = min(look, foreseen(instant / TICKS, now, wall))
        return look

    def _wheel_of(self, slot: _Armed) -> Wheel[_Armed]:
        return self._instants if slot.is_instant else self._deadlines

    def _set_back(self, wall_tick: int) -> None:
        """The wall clock has jumped back, and a wheel cannot: its slots go into another."""
        self._instants = Wheel(wall_tick)
        for slot in self._slots.values():
            if slot.is_instant and slot.place != UNARMED:
                slot.place = UNARMED
                self._instants.arm(slot, slot.tick)


def foreseen(instant: float, now: float, wall: float) -> float:
    """When to look at the wall clock for this instant: when it comes unless that clock jumps, but soon."""
    return tick_from(now + min(instant - wall, LOOK_S)) / TICKS
