"""The other end of notices: the partitions that one consumer, or reader, waits for to have something new.

What a partition is asked is data (`WaitForReady`, `WaitForVisible`); the notice is its deferred answer. It counts only
while its asker really waits: a notice that comes while the asker is busy is declined, so that the partition notifies
the next one. The asker asks that partition again before it next waits.

Invariants
----------
NO1  A partition whose notice came, was declined or failed is in `ready` until it is taken from there: none is lost.
NO2  At most one notice is accepted for each time that the asker waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from callboard.actors.kernel.reply import Reply

if TYPE_CHECKING:
    from callboard.actors.kernel import ActorRef
    from callboard.actors.partition.commands import PartitionCommand, WaitForReady, WaitForVisible

P = TypeVar("P")
"""What the asker knows a partition by: its port, or its index."""


class Notice(Reply, Generic[P]):
    """The reply to a wait."""

    __slots__ = ("_awaited", "_partition")

    def __init__(self, awaited: AwaitedPartitions[P], partition: P) -> None:
        super().__init__(awaited)
        self._awaited = awaited
        self._partition = partition

    def answer(self, value: Any = None) -> bool:
        """There is something new; False when its asker is not waiting now."""
        if self.done:
            return False
        self.end()
        return self._awaited.noticed(self._partition)

    def load(self) -> int:
        """How many messages the asker has in flight."""
        return self._awaited.load()

    def fail(self, error: BaseException) -> bool:
        """The partition ended, or refuses: the asker asks, and hears why."""
        return self.answer()


class AwaitedPartitions(Generic[P]):
    """Which partitions have something new, and which have been asked to say when they do."""

    def __init__(self, load: Callable[[], int] = lambda: 0) -> None:
        self._event = trio.Event()
        self.load = load
        """How many messages the asker has in flight, for a choice among those that wait."""
        self._notices: dict[P, Notice[P]] = {}
        self._is_waiting = False
        self._is_closed = False
        self.ready: dict[P, None] = {}
        self.path = "notices"
        self.late_replies = 0
        self.loop: trio.lowlevel.Task | None = None
        """No actor answers here."""

    async def ask(
        self, partition: P, ref: ActorRef[PartitionCommand], command: WaitForReady | WaitForVisible
    ) -> None:
        """Have the partition say when there is something new, unless it has been asked already."""
        notice = self._new_notice(partition)
        if notice is not None:
            try:
                await ref.send(command, notice)
            except BaseException:
                notice.abandon()
                raise

    def ask_nowait(self, partition: P, ref: ActorRef[PartitionCommand], command: WaitForReady) -> None:
        """The same without waiting for room in the mailbox. Raises as `ActorRef.ask_nowait`."""
        notice = self._new_notice(partition)
        if notice is not None:
            try:
                ref.send_nowait(command, notice)
            except BaseException:
                notice.abandon()
                raise

    def _new_notice(self, partition: P) -> Notice[P] | None:
        """A notice of the partition's; None while it still owes one."""
        notice = self._notices.get(partition)
        if notice is not None and not notice.done:
            return None
        self._notices[partition] = notice = Notice(self, partition)
        return notice

    def noticed(self, partition: P) -> bool:
        """A partition has something new, or is worth another look; whether that is accepted (NO2)."""
        self.ready[partition] = None
        accepted, self._is_waiting = self._is_waiting, False
        self._event.set()
        return accepted

    def look_again(self) -> None:
        """Wake the task that waits, whatever the partitions say."""
        self._event.set()

    async def wait(self) -> None:
        """Return once at least one partition is ready, or this is closed."""
        if self.ready or self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        self._event = trio.Event()
        self._is_waiting = True
        try:
            await self._event.wait()
        finally:
            self._is_waiting = False

    def take(self) -> list[P]:
        """The partitions that became ready since the last `take`, in that order."""
        taken = list(self.ready)
        self.ready.clear()
        return taken

    def close(self) -> None:
        """Close: a task that still waits is woken."""
        self._is_closed = True
        self._event.set()
        for notice in self._notices.values():
            notice.abandon()
        self._notices.clear()
