"""The room: what the parts of one incarnation of a partition share, and the few things that all of them do.

Invariant P3: deliveries in memory are the truth of this run; every mutation's events go into the journal at once, in
order (`journal_events` is the only way there).
"""

from __future__ import annotations

from typing import Any

import attrs
import trio

from callboard.actors.kernel import Context, Reply
from callboard.actors.partition.commands import Sleepers
from callboard.actors.partition.committer import Committer
from callboard.actors.partition.group_states import Group, GroupStates
from callboard.actors.partition.journal_work import Done
from callboard.actors.partition.port import PartitionPort
from callboard.actors.settings import TopicSettings
from callboard.log.errors import CallboardError, GroupNotFound
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.clock import Clock


def partition_directory(topic_id: str, index: int) -> str:
    """Where a partition's files are, below the disk's root: also what its disk knows it by."""
    return f"topics/{topic_id}/{index}"


@attrs.define(eq=False)
class Placement:
    """Which partition an actor is, and where its files are. Shared by all incarnations."""

    topic: str
    topic_id: str
    index: int
    settings: TopicSettings
    port: PartitionPort

    @property
    def directory(self) -> str:
        """Where the partition's files are, below the disk's root."""
        return partition_directory(self.topic_id, self.index)

    @property
    def journal_directory(self) -> str:
        """Where its delivery journal is."""
        return f"{self.directory}/delivery"


class Room:
    """One incarnation's log, delivery states and committer; those who wait; the alarm's setting."""

    def __init__(
        self,
        place: Placement,
        context: Context[Any],
        states: GroupStates,
        log: PartitionLog,
        committer: Committer,
    ) -> None:
        self.place = place
        self.port = place.port
        self.states = states
        self.log = log
        self.committer = committer
        self.clock: Clock = context.clock
        self.start_task = context.start_task
        self.readers = Sleepers()
        self.lost_records = 0
        self.armed_until = float("inf")
        self.rearmed = trio.Event()

    def record(self, data: bytes | None, done: Done | None, *, sync: bool, urgent: bool = True) -> None:
        """Have the committer journal `data`, and call `done` behind it."""
        self.committer.record(data, done, sync=sync, urgent=urgent)

    def journal_events(
        self, group: Group, done: Done | None = None, *, sync: bool, urgent: bool = True
    ) -> None:
        """Journal what just changed in `group` (P3).

        Late steps of a group that was closed meanwhile are not journalled: nothing may follow its CLOSE.
        """
        record = group.events_record(self.wall_offset())
        if self.states.groups.get(group.group_id) is not group:
            record = None
        if record is not None or done is not None:
            self.committer.record(record, done, sync=sync, urgent=urgent)

    def wall_offset(self) -> float:
        """Wall time minus monotonic time, in seconds: how delays outlive the process."""
        return wall_offset(self.clock)

    def group(self, group_id: int, reply: Reply | None) -> Group | None:
        """The group's state; None, and the asker told, when there is none."""
        group = self.states.groups.get(group_id)
        if group is None and reply is not None:
            reply.fail(
                GroupNotFound(
                    f"partition {self.port.label} knows no group with id {group_id}: it was deleted or expired."
                    " Subscribe again.",
                    group=group_id,
                )
            )
        return group

    def wake(self, group: Group) -> None:
        """Wake the consumers of `group` that found nothing to do."""
        if group.waiters:
            for flag in group.waiters.values():
                flag.set(self.place.index)
            group.waiters.clear()

    def wake_all(self) -> None:
        """Wake the consumers of all groups, and the readers that follow."""
        for group in self.states:
            self.wake(group)
        self.readers.wake(self.place.index)

    def arm(self, deadline: float | None) -> None:
        """Make sure that the alarm rings at `deadline`, or earlier."""
        if deadline is not None and deadline < self.armed_until:
            self.armed_until = deadline
            self.rearmed.set()


def wall_offset(clock: Clock) -> float:
    """Wall time minus monotonic time, in seconds."""
    return clock.wall_us() / 1e6 - clock.monotonic()


def answer(reply: Reply | None, value: object, error: CallboardError | None) -> None:
    """Settle `reply`, if somebody asked: with the error when there is one. Others may hear the same error."""
    if reply is None:
        return
    if error is None:
        reply.answer(value)
    else:
        reply.fail(error.again())
