"""The alarm of a partition: sleeps until something is due. Nothing ticks.

Due are leases that run out, delayed redeliveries, and the log's upkeep by age. Upkeep that is due but cannot be done
(retention that waits for a group) is looked at again after `UPKEEP_RETRY_S`.
"""

from __future__ import annotations

import trio

from callboard.actors.partition.shared_state import Room

UPKEEP_RETRY_S = 60.0


async def run_alarm(room: Room) -> None:
    """Expire, redeliver, maintain; until cancelled."""
    retry_at = 0.0
    while True:
        room.armed_until = min(_deliveries_due(room), max(upkeep_due(room), retry_at))
        with trio.move_on_at(room.armed_until):
            await room.rearmed.wait()
        room.rearmed = trio.Event()
        now = room.clock.monotonic()
        for group in room.states:
            due = group.delivery.next_deadline()
            if due is not None and due <= now:
                group.delivery.expire(now)
                room.journal_events(group, sync=False)
                room.wake(group)
        if room.log.next_due(room.clock.wall_us()) == 0.0 and now >= retry_at:
            room.committer.maintain()
            retry_at = now + UPKEEP_RETRY_S


def _deliveries_due(room: Room) -> float:
    due = room.states.next_deadline()
    return float("inf") if due is None else due


def upkeep_due(room: Room) -> float:
    """When the log next has something to roll or to drop for age's sake; infinity when never."""
    left = room.log.next_due(room.clock.wall_us())
    return float("inf") if left is None else room.clock.monotonic() + left
