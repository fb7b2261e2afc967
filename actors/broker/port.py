"""The port: what a partition shows to the publishers and consumers of its topic.

A port outlives the incarnations of its partition's actor. It holds the ref, the byte budget that keeps publishers from
outrunning the disk, the partition's state for those who want a quick refusal, and the count of `acks="none"` records
that failed with nobody waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from callboard.actors.broker.commands import PartitionCommand, Sleepers
from callboard.actors.broker.receipts import Grant
from callboard.log.errors import CallboardError, PartitionUnavailable
from callboard.log.limits import PENDING_BYTES_MAX

if TYPE_CHECKING:
    from callboard.actors import ActorRef

REMEDIES = {
    "stuck": "The disk does not answer; the partition heals by itself when it does.",
    "failed": "It crashed more often than its supervisor allows; look at `callboard tree`, then restart it.",
}


class Budget:
    """Bytes that publishers may have waiting in one partition. Who finds it spent waits, first come first served."""

    __slots__ = ("_changed", "_limit", "waiting_bytes")

    def __init__(self, limit_bytes: int = PENDING_BYTES_MAX) -> None:
        self._limit = limit_bytes
        self.waiting_bytes = 0
        self._changed = trio.Event()

    def take_nowait(self, size_bytes: int) -> bool:
        """Take the bytes if they fit, or if nothing else waits (so any single message fits)."""
        if self.waiting_bytes and self.waiting_bytes + size_bytes > self._limit:
            return False
        self.waiting_bytes += size_bytes
        return True

    async def take(self, size_bytes: int) -> None:
        """Take the bytes, waiting while they do not fit. Cancelled: nothing was taken."""
        while not self.take_nowait(size_bytes):
            if self._changed.is_set():
                self._changed = trio.Event()
            await self._changed.wait()

    def give_back(self, size_bytes: int) -> None:
        """The bytes are stored, or given up."""
        self.waiting_bytes -= size_bytes
        self._changed.set()


class PartitionPort:
    """One partition as its topic's users reach it."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.ref: ActorRef[PartitionCommand]
        self.state = "starting"
        self.failure: BaseException | None = None
        """What the partition failed with last."""
        self.opened_before = False
        self.budget = Budget()
        self.sleepers = Sleepers()
        """Consumers who found the partition unavailable."""
        self.visibility_timeouts: dict[int, float] = {}
        """By group id; what a restarted actor renews leases by."""
        self.orphans: list[tuple[int, Grant]] = []
        """Leases (with their group's id) that were journalled when the actor crashed, before anybody had them."""
        self.unheard_failures = 0
        self.unheard_error: BaseException | None = None

    @property
    def label(self) -> str:
        """How messages name the partition, for example `orders/2`."""
        return f"{self.topic}/{self.index}"

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

    def count_unheard(self, records: int, error: BaseException) -> None:
        """Remember records that failed without anybody waiting for them."""
        if records:
            self.unheard_failures += records
            self.unheard_error = self.unheard_error or error

    def take_unheard(self) -> tuple[int, BaseException | None]:
        """The failures since the last call."""
        taken = self.unheard_failures, self.unheard_error
        self.unheard_failures, self.unheard_error = 0, None
        return taken


class UnheardReply:
    """Stands where the asker of an `acks="none"` publish would: gives the budget back, and counts failures."""

    __slots__ = ("_port", "_records", "_size_bytes", "done")

    def __init__(self, port: PartitionPort, records: int, size_bytes: int) -> None:
        self._port = port
        self._records = records
        self._size_bytes = size_bytes
        self.done = False

    def answer(self, value: object = None) -> bool:
        """The records are stored."""
        self.done = True
        self._port.budget.give_back(self._size_bytes)
        return True

    def fail(self, error: BaseException) -> bool:
        """The records are not stored, or may not be."""
        self._port.count_unheard(self._records, error)
        return self.answer()
