"""Reading records for a group's choice, before they are leased: one window in a step, from memory if it has them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import attrs
import trio

from callboard.actors.partition.choice.lease_reading import read_up_to
from callboard.actors.partition.choice.record_window import window_records
from callboard.log.format.columns import Columns
from callboard.log.limits import READ_BYTES_DEFAULT
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.clock import Clock

if TYPE_CHECKING:
    from callboard.actors.partition import effects as e
    from callboard.actors.partition.core import PartitionCore
    from callboard.log.errors import StorageError
    from callboard.log.segments.reading import Reading


@attrs.define(eq=False)
class WindowReading:
    """What the reading needs of its partition."""

    core: PartitionCore
    log: PartitionLog
    clock: Clock
    start_task: Callable[..., trio.CancelScope]
    perform: Callable[[], None]
    """Carry out what the core wants done. In the end a window may be read again."""
    read_hot: Callable[[int, int, int], list[Columns] | None]
    """Records from an offset on, up to a number of records and bytes; None when they are not in memory."""
    from_disk: Callable[..., Coroutine[Any, Any, bool]]
    """Hand on what is read; False when the disk refuses."""
    room_answered: Callable[[], Coroutine[Any, Any, None]]
    """Wait until it is known what memory there is."""
    may_read: bool = True
    """Whether no window was read in this step."""

    def read(self, effect: e.ReadWindow) -> None:
        """Read a window now, or after others have run when this step has read one: it is as much as a step takes."""
        if self.may_read:
            self.may_read = False
            self._read(effect)
        else:
            self.start_task(self._read_later, effect, name="window")

    def await_room(self, group_id: int) -> None:
        """Go on with the group when it is known what memory there is for its window."""
        self.start_task(self._await_room, group_id, name="room for a window")

    async def _await_room(self, group_id: int) -> None:
        await self.room_answered()
        self.core.choice.room_answered(group_id, self.clock.monotonic())
        self._go_on()

    async def _read_later(self, effect: e.ReadWindow) -> None:
        await trio.lowlevel.checkpoint()
        self._read(effect)
        self._go_on()

    def _go_on(self) -> None:
        """Carry out what follows; the next window is read in another step."""
        self.may_read = False
        self.perform()

    def _read(self, effect: e.ReadWindow) -> None:
        start = max(effect.start, self.log.start_offset)
        hot = self.read_hot(start, effect.stop - start, READ_BYTES_DEFAULT) if start < effect.stop else []
        if hot is None:
            self.start_task(self._read_cold, effect, start, name="cold read")
        else:
            self._taken(effect, hot, hot[-1].last_offset + 1 if hot else effect.stop)

    async def _read_cold(self, effect: e.ReadWindow, start: int) -> None:
        def taken(found: Reading) -> None:
            self._taken(effect, found.batches, found.next_offset)

        def fails(error: StorageError) -> None:
            self.core.choice.window_not_read(effect.group_id, error, self.clock.monotonic())

        log = self.log
        reading = log.read(max(start, log.start_offset), max_records=effect.stop - start)
        await self.from_disk(reading, taken, fails)
        self._go_on()

    def _taken(self, effect: e.ReadWindow, batches: list[Columns], next_offset: int) -> None:
        group_id, start, stop, names, unless_uniform = effect
        end = read_up_to(start, stop, next_offset)
        records = window_records(start, end, batches, names, unless_uniform=unless_uniform)
        self.core.choice.window_read(group_id, records, self.clock.monotonic())
