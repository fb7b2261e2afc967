"""What a delivery journal holds of a partition's past, as facts about ranges of offsets. Pure.

A journal holds events in the order in which they were written, and the time of each commit: what happened lies up to a
commit's length before that. It begins with the group's first event, or, where its beginning was pruned, with a snapshot
of what had been settled until then. Snapshots in between equal what was replayed, unless events before them are lost.

Vocabulary
----------
fact      a range of offsets to which something happened at one time: `FactKind`.
opening   a group's time in a partition, from when it was opened there, or from a snapshot on, until it was closed.
          A group that was opened again, or set back by repair, has several, numbered from 0.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

import attrs

from callboard.actors.delivery.delivery import COUNTERS, Delivery
from callboard.actors.delivery.events import (
    EVENTS,
    AckEvent,
    DeathEvent,
    Event,
    ExpiryEvent,
    LeaseEvent,
    SkipEvent,
)
from callboard.actors.partition.group_records import CLOSE, OPEN
from callboard.actors.partition.group_states import GroupStates

NO_ATTEMPT: Final = 0


class FactKind(enum.IntEnum):
    """What happened to the offsets of a fact."""

    LEASED = 1
    """Delivered to a consumer; the fact has the attempt, from 1."""
    ACKED = 2
    SKIPPED = 3
    """Settled without delivery, or rejected."""
    UNTIMED = 4
    """Settled before the time of the fact: a snapshot says so, and no event."""


class Fact(NamedTuple):
    """Something that happened to the offsets from `start` below `stop`."""

    group_id: int
    opening: int
    kind: FactKind
    start: int
    stop: int
    time_us: int
    attempt: int = NO_ATTEMPT


@attrs.define(kw_only=True)
class Opening:
    """A group's time in a partition. Times are those of the journal's commits, but for its beginning."""

    group_id: int
    number: int
    start: int
    """Offsets below it were settled before, or do not concern the group."""
    since_us: int
    is_whole: bool
    """Whether the journal has it from its beginning; else `since_us` is the time of a snapshot."""
    closed_us: int | None = None
    counts: dict[str, int] = attrs.Factory(dict)
    """How many offsets met each fate, also before `since_us`: see `COUNTERS`."""
    dead_lettered: int = 0
    """Of the skipped ones, those that were given up."""
    leased: int = 0
    delayed: int = 0


class DeliveryHistory:
    """Replays a journal. Hand it what the journal holds, in order; `openings` is complete after `end`.

    Raises `JournalInvalid` for what makes no sense, `FormatTooNew`.
    """

    def __init__(self) -> None:
        self.openings: list[Opening] = []
        self._states = GroupStates()
        self._current: dict[int, Opening] = {}

    def versioned(self, version: int) -> None:
        """In which form the records that follow are."""
        self._states.versioned(version)

    def lost(self, first: int, last: int) -> None:
        """These records are lost: what follows may not fit, and is believed as far as it settles something."""
        self._states.lost(first, last)

    def record(self, record: bytes, time_us: int) -> Iterator[Fact]:
        """The facts of one record of the journal, written at that time."""
        states = self._states
        kind, group_id, body, unknown = states.parsed(record)
        if kind == EVENTS:
            # Each event on its own: what one settles follows from the state before it.
            for event in body:
                group = states.groups.get(group_id)
                facts = list(self._facts(group_id, event, None if group is None else group.delivery))
                states.replay(kind, group_id, [event], unknown)
                opening = self._opening(group_id, time_us)
                yield from (
                    Fact(group_id, opening.number, what, start, stop, time_us, attempt)
                    for what, start, stop, attempt in facts
                )
            return
        if kind == CLOSE:
            self._close(group_id, time_us)
        states.replay(kind, group_id, body, unknown)
        if kind == OPEN and group_id not in self._current:
            # The record may wait for the first event.
            self._begin(group_id, min(body[-1] or time_us, time_us), is_whole=True)

    def snapshot(self, data: bytes, time_us: int) -> Iterator[Fact]:
        """The facts that only a snapshot has: it equals what was replayed, unless something is lost."""
        states = self._states
        before = {group.group_id: group.delivery for group in states}
        states.restore(data)
        for group_id, known in before.items():
            if group_id not in states.groups:
                self._close(group_id, time_us, known)
            elif _is_set_back(known, states.groups[group_id].delivery):
                self._close(group_id, time_us, known, is_counted_on=True)
        for group in states:
            delivery = group.delivery
            opening = self._current.get(group.group_id)
            if opening is None:
                opening = self._begin(group.group_id, time_us, is_whole=False)
                known = Delivery(delivery.offsets.floor)
            else:
                known = before[group.group_id]
            for start, stop in ((known.offsets.floor, delivery.offsets.floor), *delivery.offsets.settled):
                for first, end in _unsettled(known, start, stop):
                    yield Fact(group.group_id, opening.number, FactKind.UNTIMED, first, end, time_us)

    def implied(self, group_id: int, start: int, since_us: int) -> None:
        """The catalog knows the group, which begins at `start`; behind `end`, unless something is lost."""
        if all(opening.group_id != group_id for opening in self.openings):
            counts = dict.fromkeys(COUNTERS, 0)
            found = Opening(
                group_id=group_id, number=0, start=start, since_us=since_us, is_whole=True, counts=counts
            )
            self.openings.append(found)

    def end(self) -> None:
        """The journal ends here."""
        for group_id, opening in self._current.items():
            _note_state(opening, self._states.groups[group_id].delivery)

    # -- openings

    def _opening(self, group_id: int, time_us: int) -> Opening:
        """The current one; after a loss a group may be met whose opening was not seen."""
        return self._current.get(group_id) or self._begin(group_id, time_us, is_whole=False)

    def _begin(self, group_id: int, time_us: int, *, is_whole: bool) -> Opening:
        number = sum(opening.group_id == group_id for opening in self.openings)
        start = self._states.groups[group_id].delivery.offsets.floor
        opening = Opening(group_id=group_id, number=number, start=start, since_us=time_us, is_whole=is_whole)
        self.openings.append(opening)
        self._current[group_id] = opening
        return opening

    def _close(
        self,
        group_id: int,
        time_us: int,
        delivery: Delivery | None = None,
        *,
        is_counted_on: bool = False,
    ) -> None:
        """End the current opening. With `is_counted_on` the next one's counts continue its own."""
        opening = self._current.pop(group_id, None)
        if opening is not None:
            opening.closed_us = time_us
            if not is_counted_on:
                _note_state(opening, delivery or self._states.groups[group_id].delivery)

    # -- facts

    def _facts(
        self, group_id: int, event: Event, delivery: Delivery | None
    ) -> Iterator[tuple[FactKind, int, int, int]]:
        """What an event says, by the state before it."""
        what, bounds = FactKind.SKIPPED, tuple[int, ...]()
        match event:
            case LeaseEvent(attempts=ranges):
                for start, stop, attempt in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
                    yield FactKind.LEASED, start, stop, attempt
            case AckEvent():
                what, bounds = FactKind.ACKED, event.ranges
            case SkipEvent():
                bounds = event.start, event.stop
            case DeathEvent():
                bounds = tuple([bound for at, bound in enumerate(event.attempts) if at % 3 < 2])
            case ExpiryEvent():
                bounds = event.ranges
        for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
            parts = [(start, stop)] if delivery is None else _unsettled(delivery, start, stop)
            for first, end in parts:
                yield what, first, end, NO_ATTEMPT


def _note_state(opening: Opening, delivery: Delivery) -> None:
    opening.counts = {name: getattr(delivery, name) for name in COUNTERS}
    opening.counts["skipped"] += delivery.dead.total
    opening.dead_lettered = delivery.dead.total
    opening.leased, opening.delayed = delivery.offsets.leased, delivery.offsets.delayed.count


def _is_set_back(before: Delivery, after: Delivery) -> bool:
    """Whether something that was settled is not any more: a repair has set the group back."""
    settled = [(after.offsets.floor, before.offsets.floor), *before.offsets.settled]
    return any(_unsettled(after, start, stop) for start, stop in settled)


def _unsettled(delivery: Delivery, start: int, stop: int) -> list[tuple[int, int]]:
    return delivery.offsets.unsettled_ranges(start, stop) if max(start, delivery.offsets.floor) < stop else []
