"""The port: what a partition shows to the publishers and consumers of its topic.

A port outlives the incarnations of its partition's actor. It holds the ref, the byte budget that keeps publishers from
outrunning the disk, the partition's state for a quick refusal, the count of `acks="none"` records that
failed without a waiting publisher, and what one incarnation's core hands on to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import attrs
import trio

from callboard.actors.notices import PartitionLacksSpace
from callboard.actors.partition.carried import Carried
from callboard.actors.partition.commands import PartitionCommand
from callboard.actors.partition.publishing.producers import Begun
from callboard.log.errors import CallboardError, PartitionUnavailable, StorageError
from callboard.log.journal.journal import ProvenEnd
from callboard.log.limits import PENDING_BYTES_MAX
from callboard.log.seams.disk import Entry
from callboard.log.segments.damage_record import DamageRecord
from callboard.log.segments.small_files import holds_log

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef

REMEDIES = {
    "stuck": "The disk does not answer; the partition heals by itself when it does.",
    "failed": "It crashed more often than its supervisor allows; look at `callboard tree`, then restart it.",
}


@attrs.define(eq=False)
class _Turn:
    """A publisher that waits for room."""

    size_bytes: int
    is_admitted: bool = False
    over: trio.Event = attrs.field(factory=trio.Event)


class Budget:
    """Bytes that may be taken together. When it is exhausted, publishers wait in FIFO order.

    Each partition has one for what its publishers have waiting. A publisher takes the bytes; the partition gives them
    back when the commit that takes the record has ended, however it ended, and whether or not the publisher still
    waits. A publisher gives back only what it could not send.
    """

    __slots__ = ("_limit", "_queue", "waiting_bytes", "wanted")

    def __init__(self, limit_bytes: int = PENDING_BYTES_MAX) -> None:
        self._limit = limit_bytes
        self.waiting_bytes = 0
        self._queue: deque[_Turn] = deque()
        self.wanted: Callable[[], object] | None = None
        """Called when bytes are taken while their partition waits for its turn to open."""

    def has_room(self, size_bytes: int) -> bool:
        """Whether the bytes fit now, with no publisher before them. Any single message fits when nothing else waits."""
        return not self._queue and self._fits(size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return not self.waiting_bytes or self.waiting_bytes + size_bytes <= self._limit

    def take_nowait(self, size_bytes: int) -> bool:
        """Take the bytes if there is room for them."""
        if self._queue or (self.waiting_bytes and self.waiting_bytes + size_bytes > self._limit):
            return False
        if self.wanted is not None:
            self.wanted()
        self.waiting_bytes += size_bytes
        return True

    async def take(self, size_bytes: int) -> bool:
        """Take the bytes, waiting for room. Cancelled: nothing was taken. Wait while holding none of this budget.

        False: nothing was taken, and it is time to look at the partition's state (`interrupt`).
        """
        if self.take_nowait(size_bytes):
            return True
        turn = _Turn(size_bytes)
        self._queue.append(turn)
        try:
            await turn.over.wait()
        except BaseException:
            if turn.is_admitted:  # in the moment of the cancellation
                self.give_back(size_bytes)
            elif not turn.over.is_set():
                self._queue.remove(turn)
                self._admit()
            raise
        return turn.is_admitted

    def interrupt(self) -> None:
        """Send away those that wait: the partition may not take anything for long."""
        queue, self._queue = self._queue, deque()
        for turn in queue:
            turn.over.set()

    def give_back(self, size_bytes: int) -> None:
        """A commit has ended with the bytes, or they were never sent."""
        self.waiting_bytes = max(0, self.waiting_bytes - size_bytes)
        if self._queue:
            self._admit()

    def clear(self) -> None:
        """Nothing waits any more: the partition failed, and all senders have heard so."""
        self.give_back(self.waiting_bytes)

    def _admit(self) -> None:
        """Take the bytes of those that wait longest, as far as they fit."""
        queue = self._queue
        while queue and self._fits(queue[0].size_bytes):
            turn = queue.popleft()
            self.waiting_bytes += turn.size_bytes
            turn.is_admitted = True
            turn.over.set()


def label_of(topic: str, index: int, holds: str) -> str:
    """How messages name a partition: `orders/2`, and one that `holds` something besides, `orders/2 (delayed)`."""
    return f"{topic}/{index} ({holds})" if holds else f"{topic}/{index}"


class RestartWaiter(Protocol):
    """A consumer that found a partition unavailable and waits until it is back."""

    def noticed(self, partition: PartitionPort, /) -> object:
        """It is worth another look."""
        ...


class PartitionPort:
    """One partition as its topic's users reach it."""

    def __init__(
        self, topic: str, index: int, *, pending_bytes: int = PENDING_BYTES_MAX, holds: str = ""
    ) -> None:
        self.topic = topic
        self.holds = holds
        """What is in it besides what was published; "" for a partition of the topic itself."""
        self.is_made = False
        """Its folder and that of its delivery journal were made: when one is not there, it is gone."""
        self.has_files = False
        """They are there, and their names durable, as far as the present incarnation knows."""
        self._record: DamageRecord | None = None
        self.topic_id = ""
        self.index = index
        self.outbox_moved: Callable[[int, bool], object] = lambda _count, _has_new: None
        """Called with how many entries its outbox has, and whether some may be new."""
        self.ref: ActorRef[PartitionCommand]
        self.state = "starting"
        self.failure: BaseException | None = None
        """What the partition failed with last."""
        self.is_deleted = False
        """Its topic was deleted."""
        self.is_closing = False
        """The runtime closes: when the partition stops now, it does so for good."""
        self.opened_before = False
        self.journal_end = ProvenEnd()
        """How far the delivery journal was proven, whatever the disk says of it after a restart."""
        self.is_full = False
        """Whether `retention_bytes` was reached when that was looked at last."""
        self.told_lack = False
        """Whether it was told last that the disk is too full for its records: a crash does not end that."""
        self.opening_lacks_space: Callable[[StorageError], object] | None = None
        """Called when the partition cannot be opened for want of space."""
        self.budget = Budget(pending_bytes)
        self._restart_waiters: WeakKeyDictionary[RestartWaiter, None] = WeakKeyDictionary()
        """Held weakly: a consumer that gave up leaves nothing behind."""
        self.carried = Carried()
        self.producers_begun = Begun()
        """The lives of producers that began in this process."""
        self.ids_void_below = 0
        """Deduplication ids of records below this offset are forgotten, although the disk may not say so yet."""
        self.unawaited_waiting = 0
        """Records published with `acks="none"` of which nothing is known yet."""
        self.unawaited_failures = 0
        self.unawaited_error: BaseException | None = None

    def note_lack(self, lack: Exception | None, path: str) -> PartitionLacksSpace:
        """The notice that the disk is too full for the partition's records, or no longer is."""
        self.told_lack = lack is not None
        return PartitionLacksSpace(path, "" if lack is None else str(lack), self.told_lack)

    @property
    def label(self) -> str:
        """How messages name the partition, for example `orders/2`."""
        return label_of(self.topic, self.index, self.holds)

    def need(self) -> None:
        """A task waits for this partition and no other of its topic: it opens before those that are not needed."""
        if self.budget.wanted is not None:
            self.budget.wanted()

    @property
    def damages(self) -> tuple[str, ...]:
        """What is damaged or missing in its log, as in its statistics."""
        return () if self._record is None else tuple(map(str, self._record.unaccepted))

    def opened(self, lack: Exception | None, record: DamageRecord) -> None:
        """Log and journal are open, with what is known to be damaged; a `lack` of space left files unmade."""
        self.has_files, self._record = lack is None, record

    def lacks(self, entries: Sequence[Entry]) -> bool:
        """Whether a log that was made in the folder with these entries is gone."""
        return self.is_made and not holds_log(entries)

    def note_outbox(self, effect: tuple[int, bool]) -> None:
        """Its outbox has gained or lost entries."""
        self.outbox_moved(*effect)

    def is_outdated(self, group_id: int, lease_id: int) -> bool:
        """Whether the topic is deleted, or the group was sought elsewhere after that lease was given."""
        return self.is_deleted or self.was_sought(group_id, lease_id)

    def dropped_below(self, group_id: int) -> int:
        """Below this offset retention has dropped what the group had not settled: its leases there ended with that."""
        return self.carried.dropped_below.get(group_id, 0)

    def was_sought(self, group_id: int, lease_id: int) -> bool:
        """Whether the group was sent elsewhere, by seek or reset, after that lease was given: it ended with that."""
        sought = self.carried.first_sought
        return bool(sought) and lease_id < sought.get(group_id, 0)

    def add_restart_waiter(self, waiter: RestartWaiter) -> None:
        """Have `waiter` look again when the partition is back."""
        self._restart_waiters[waiter] = None

    def wake_restart_waiters(self) -> None:
        """The partition is back, or gone for good: tell all that still wait, and forget them."""
        waiters = list(self._restart_waiters)
        self._restart_waiters.clear()
        for waiter in waiters:
            waiter.noticed(self)

    def unavailable(self) -> CallboardError:
        """The error for an operation that the present state refuses."""
        cause = self.failure if self.state == "failed" else None
        why = "" if cause is None else f" ({type(cause).__name__}: {cause})"
        error = PartitionUnavailable(
            f"partition {self.label} is {self.state}{why}. Nothing was written."
            f" {REMEDIES.get(self.state, 'Try again.')}",
            topic=self.topic,
            partition=self.index,
            state=self.state,
        )
        error.__cause__ = cause
        return error

    def unawaited_ended(self, records: int, error: BaseException | None = None) -> None:
        """This many records that are not awaited are stored, or failed with `error`."""
        self.unawaited_waiting -= records
        if error is not None:
            self.count_unawaited(records, error)

    def count_unawaited(self, records: int, error: BaseException) -> None:
        """Remember records that failed without anybody waiting for them."""
        if records:
            self.unawaited_failures += records
            self.unawaited_error = self.unawaited_error or error

    def give_up_unawaited(self) -> None:
        """The partition has ended: what it never answered is not stored, or may not be."""
        self.unawaited_ended(self.unawaited_waiting, self.unavailable())

    def take_unawaited(self) -> tuple[int, BaseException | None]:
        """The failures since the last call."""
        taken = self.unawaited_failures, self.unawaited_error
        self.unawaited_failures, self.unawaited_error = 0, None
        return taken
