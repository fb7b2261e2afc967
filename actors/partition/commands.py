"""What a partition actor understands. Plain slotted values: these are made once per message on the hottest paths.

Vocabulary
----------
*Level*: how far a record has gone when its publisher hears of it. NONE and LEADER: handed to the operating system
(survives the process, not a power cut); ALL: synced.
*Flag*: a coalesced wake-up from a partition to somebody who found nothing to do. Setting a set flag changes nothing,
so partitions can never be blocked by those they wake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, Protocol
from weakref import ref

import attrs
import trio

from callboard.actors.settings import TopicSettings
from callboard.log.format.columns import Columns

Ranges = Sequence[tuple[int, int]]


class Level(IntEnum):
    """Acknowledgement levels of a publish, weakest first."""

    NONE = 0
    LEADER = 1
    ALL = 2


SIFT_AT_LEAST: Final = 64
"""`Sleepers` look for flags that nobody holds any more when there are so many, or twice as many as were left."""
LEVELS: Final = {"none": Level.NONE, "leader": Level.LEADER, "all": Level.ALL}


class ReplyLike(Protocol):
    """What the committer tells the outcome: an asker's `Reply`, or a stand-in when nobody waits."""

    @property
    def done(self) -> bool: ...

    def answer(self, value: Any = None) -> bool: ...

    def fail(self, error: BaseException) -> bool: ...


class Flag:
    """Set by partitions, awaited by one consumer or reader; remembers which partitions have something new."""

    __slots__ = ("__weakref__", "_event", "ready")

    def __init__(self) -> None:
        self._event = trio.Event()
        self.ready: dict[int, None] = {}

    def set(self, partition: int) -> None:
        """Something is new in `partition`. Never blocks; setting twice is setting once."""
        self.ready[partition] = None
        self._event.set()

    async def wait(self) -> None:
        """Return once at least one partition is ready."""
        await self._event.wait()

    def take(self) -> list[int]:
        """The partitions that were set since the last `take`, in the order they were; clears the flag."""
        taken = list(self.ready)
        self.ready.clear()
        if self._event.is_set():
            self._event = trio.Event()
        return taken


class Sleepers:
    """Flags to be set at the next occasion, once each time they were added.

    They are held weakly: whoever gave up waiting, and its flag with it, leaves nothing behind.
    """

    __slots__ = ("_flags", "_sift_at")

    def __init__(self) -> None:
        self._flags: list[ref[Flag]] = []
        self._sift_at = SIFT_AT_LEAST

    def add(self, flag: Flag) -> None:
        """Set `flag` at the next `wake`."""
        self._flags.append(ref(flag))
        if len(self._flags) >= self._sift_at:
            self._flags = [kept for kept in self._flags if kept() is not None]
            self._sift_at = max(SIFT_AT_LEAST, 2 * len(self._flags))

    def wake(self, partition: int) -> None:
        """Set the flags of those who still wait, and forget them all."""
        flags, self._flags = self._flags, []
        for kept in flags:
            flag = kept()
            if flag is not None:
                flag.set(partition)

    def __len__(self) -> int:
        return len(self._flags)


@attrs.define(eq=False)
class PublishOne:
    """Append one record. Answered with its offset."""

    value: bytes
    key: bytes | None
    attributes: Mapping[str, Any] | None
    """What else it carries, by the names of `Columns.build`."""
    level: Level
    size_bytes: int
    unheard: ReplyLike | None = None


@attrs.define(eq=False)
class PublishMany:
    """Append a batch whose columns the publisher built. Answered with its first offset."""

    columns: Columns
    level: Level
    size_bytes: int
    unheard: ReplyLike | None = None


@attrs.define(eq=False)
class Flush:
    """Answered once everything told before is durable (or has failed)."""


@attrs.define(eq=False)
class Fetch:
    """Lease what is ready, or be woken by `flag`. Answered with `Handed` or None."""

    group_id: int
    consumer: int
    max_records: int
    max_bytes: int
    visibility_timeout: float
    flag: Flag


@attrs.define(eq=False)
class Settle:
    """Settle or extend leased ranges. Answered with a `Settlement`, after the journal's sync for acks."""

    group_id: int
    verb: str
    lease_id: int
    ranges: Ranges
    seconds: float = 0.0
    reason: str | None = None
    lazy: bool = False


@attrs.define(eq=False)
class OpenGroup:
    """Make sure that the group's delivery state exists. Answered with its floor."""

    group_id: int
    durable: bool
    start: str | int | datetime


@attrs.define(eq=False)
class CloseGroup:
    """Forget the group's delivery state. Answered when durable."""

    group_id: int


@attrs.define(eq=False)
class ReleaseConsumer:
    """Release every lease of a consumer that left. Answered when journalled."""

    group_id: int
    consumer: int


@attrs.define(eq=False)
class Read:
    """Records from `offset` on, without a group. Answered with a `Reading`."""

    offset: int
    max_records: int
    max_bytes: int
    flag: Flag | None = None


@attrs.define(eq=False)
class OffsetAt:
    """The first offset appended at or after a wall time. Answered with an offset."""

    time_us: int


@attrs.define(eq=False)
class Alter:
    """New settings of the topic. Answered with None."""

    settings: TopicSettings


@attrs.define(eq=False)
class Describe:
    """Answered with `PartitionStatistics`."""


PartitionCommand = (
    PublishOne
    | PublishMany
    | Flush
    | Fetch
    | Settle
    | OpenGroup
    | CloseGroup
    | ReleaseConsumer
    | Read
    | OffsetAt
    | Alter
    | Describe
)


@attrs.define(eq=False)
class Handed:
    """Leased records on their way to a consumer. `ranges` are (first, end, attempt), in the order of `batches`."""

    lease_id: int
    deadline: float
    ranges: tuple[tuple[int, int, int], ...]
    batches: list[Columns]


@attrs.frozen
class GroupStatistics:
    """A group's delivery state in one partition."""

    group_id: int
    durable: bool
    floor: int
    next_offset: int
    ready: int
    leased: int
    pending: int
    redelivered: int
    expired: int
    waiting_consumers: int
    lost_records: int = 0
    """Settled without delivery since the partition started: dropped by retention, or not there any more."""


@attrs.frozen
class PartitionStatistics:
    """One partition as its actor sees it; zeros where it did not answer."""

    topic: str
    partition: int
    state: str
    start_offset: int = 0
    next_offset: int = 0
    visible_end: int = 0
    durable_end: int = 0
    size_bytes: int = 0
    segments: int = 0
    pending_records: int = 0
    pending_bytes: int = 0
    commits: int = 0
    failed_commits: int = 0
    heals: int = 0
    lost_records: int = 0
    history_bytes: int = 0
    """Of the delivery journal: what only tells of the past."""
    dropped_history_bytes: int = 0
    """What was removed of it since the partition was opened because there was too much of it."""
    gaps: tuple[str, ...] = ()
    damages: tuple[str, ...] = ()
    groups: tuple[GroupStatistics, ...] = ()
