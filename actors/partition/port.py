"""The port: what a partition shows to the publishers and consumers of its topic.

A port outlives the incarnations of its partition's actor. It holds the ref, and the partition's state for a quick
refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from callboard.actors.partition.commands import PartitionCommand
from callboard.log.errors import CallboardError, PartitionUnavailable, StorageError
from callboard.log.limits import PENDING_BYTES_MAX
from callboard.log.seams.disk import Entry
from callboard.log.segments.damage_record import DamageRecord
from callboard.log.segments.small_files import holds_log

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef

REFUSING: Final = frozenset({"stuck", "failed"})
"""States in which a partition takes nothing, and will not soon."""
REMEDIES: Final = {
    "stuck": "The disk does not answer; the partition heals by itself when it does.",
    "failed": "It crashed more often than its supervisor allows; look at `callboard tree`, then restart it.",
}


def label_of(topic: str, index: int, holds: str) -> str:
    """How messages name a partition: `orders/2`, and one that `holds` something besides, `orders/2 (delayed)`."""
    return f"{topic}/{index} ({holds})" if holds else f"{topic}/{index}"


def unavailable(
    topic: str, index: int, label: str, state: str, cause: BaseException | None
) -> PartitionUnavailable:
    """The error for an operation that the state of a partition refuses."""
    why = "" if cause is None else f" ({type(cause).__name__}: {cause})"
    error = PartitionUnavailable(
        f"partition {label} is {state}{why}. Nothing was written. {REMEDIES.get(state, 'Try again.')}",
        topic=topic,
        partition=index,
        state=state,
    )
    error.__cause__ = cause
    return error


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
        self.ref: ActorRef[PartitionCommand]
        self.state = "starting"
        self.failure: BaseException | None = None
        """What the partition failed with last."""
        self.is_deleted = False
        """Its topic was deleted."""
        self.is_closing = False
        """The runtime closes: when the partition stops now, it does so for good."""
        self.opened_before = False
        self.opening_lacks_space: Callable[[StorageError], object] | None = None
        """Called when the partition cannot be opened for want of space."""
        self.pending_bytes = pending_bytes
        """The credit of each client."""
        self._restart_waiters: WeakKeyDictionary[RestartWaiter, None] = WeakKeyDictionary()
        """Held weakly: a consumer that gave up leaves nothing behind."""

    @property
    def label(self) -> str:
        """How messages name the partition, for example `orders/2`."""
        return label_of(self.topic, self.index, self.holds)

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
        return unavailable(self.topic, self.index, self.label, self.state, cause)
