"""What a partition's core wants done: values that its shell carries out, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from callboard.actors.partition.commands import LeasesEnded, Token
from callboard.actors.partition.group_state import PendingLease
from callboard.actors.partition.queues import Appends
from callboard.log.errors import CallboardError


class Answer(NamedTuple):
    """Answer questions, each with its value."""

    answers: Sequence[tuple[Token, object]]


class Refuse(NamedTuple):
    """Answer questions by raising `error` in each asker."""

    tokens: Sequence[Token]
    error: CallboardError


class AppendsStored(NamedTuple):
    """A commit has taken these appends: answer their publishers, return the bytes to their clients."""

    appends: Appends
    base_offsets: Sequence[int]
    """One per batch."""


class AppendsFailed(NamedTuple):
    """These appends are not stored, or may not be: fail their publishers, return the bytes."""

    appends: Appends
    error: CallboardError


class Journalled(NamedTuple):
    """A commit has written the journal. Answer, then read the records of each lease that is still awaited: call
    `lease_read` or `lease_not_read`, and tell whether it was `delivered` or `not_delivered`.
    """

    answers: Sequence[tuple[Token, object]]
    leases: Sequence[PendingLease]


class ReadWindow(NamedTuple):
    """Read the records of `[start, stop)`, or the first of them, then call `window_read` or `window_not_read`."""

    group_id: int
    start: int
    stop: int
    columns: tuple[str, ...]
    """Those that the group's choice looks at."""
    unless_uniform: bool = False
    """It does not want them of records that are uniform."""


class AwaitRoom(NamedTuple):
    """More memory for record windows was asked for: call `room_answered` when that was answered."""

    group_id: int


class Notify(NamedTuple):
    """Answer a consumer that waits; when it does not listen any more, call `not_notified`."""

    token: Token
    group_id: int
    consumer: int


class ArmTimer(NamedTuple):
    """Call `time_has_come` at this monotonic time, or soon after; it replaces any later one."""

    at: float


class SkipExpired(NamedTuple):
    """Read what a group has not seen yet, as `unseen` says, until `unseen_read` has no more to ask; then `skipped`."""

    group_id: int


class HasDead(NamedTuple):
    """The partition keeps dead letters of the group: have the router look."""

    group_id: int
    died: int
    """Records that have become such since the last time."""
    reason: str | None
    """Of the last one."""


class DroppedDead(NamedTuple):
    """The partition forgets a group, and with it the dead letters that it kept."""

    group: str
    records: int


class DroppedUnread(NamedTuple):
    """Retention dropped records that a group had not settled."""

    group_id: int
    records: int


class TellClients(NamedTuple):
    """Have all clients know."""

    news: LeasesEnded


class OutboxMoved(NamedTuple):
    """The outbox has this many entries: have the forwarder look if there are new ones."""

    entries: int
    has_new: bool


Effect = (
    HasDead
    | DroppedDead
    | DroppedUnread
    | OutboxMoved
    | TellClients
    | Answer
    | Refuse
    | AppendsStored
    | AppendsFailed
    | Journalled
    | ReadWindow
    | AwaitRoom
    | SkipExpired
    | Notify
    | ArmTimer
)
