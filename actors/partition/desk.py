"""Reads without a group, and the opening and closing of groups: the rarer questions to a partition."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from callboard.actors.kernel import Reply
from callboard.actors.partition import commands as c
from callboard.actors.partition.shared_state import Room, answer
from callboard.log.errors import StorageError


class Desk:
    """Answers them for one incarnation of a partition."""

    def __init__(self, room: Room) -> None:
        self._room = room

    # -- groups

    def open_group(self, message: c.OpenGroup, reply: Reply | None) -> None:
        """Answer with the group's floor; a new group starts where it says."""
        group = self._room.states.groups.get(message.group_id)
        if group is not None:
            answer(reply, group.delivery.floor, None)
        elif isinstance(message.start, datetime):
            self._room.start_task(self._open_group_at, message, message.start, reply, name="open group")
        else:
            self._open_group_from(message, self._start_offset(message.start), reply)

    def _start_offset(self, start: str | int) -> int:
        if start == "beginning":
            return self._room.log.start_offset
        if start == "end":
            return self._room.log.visible_end
        return min(max(int(start), self._room.log.start_offset), self._room.log.visible_end)

    async def _open_group_at(self, message: c.OpenGroup, instant: datetime, reply: Reply | None) -> None:
        try:
            start = await self._room.log.offset_at(round(instant.timestamp() * 1e6))
        except StorageError as error:
            answer(reply, None, error)
        else:
            self._open_group_from(message, start, reply)

    def _open_group_from(self, message: c.OpenGroup, start: int, reply: Reply | None) -> None:
        group = self._room.states.groups.get(message.group_id)
        if group is None:
            group, record = self._room.states.open(message.group_id, message.durable, start)
            self._room.record(record, None, sync=True)
        self._room.record(None, partial(answer, reply, group.delivery.floor), sync=True)

    def close_group(self, message: c.CloseGroup, reply: Reply | None) -> None:
        """Forget the group."""
        group = self._room.states.groups.get(message.group_id)
        if group is not None:
            self._room.wake(group)
        self._room.port.visibility_timeouts.pop(message.group_id, None)
        self._room.record(self._room.states.close(message.group_id), partial(answer, reply, None), sync=True)

    # -- reading

    def read(self, message: c.Read, reply: Reply | None) -> None:
        """Records from memory, or from the disk in a task; None at the visible end."""
        if reply is None:
            return
        log = self._room.log
        if message.offset >= log.visible_end:
            if message.flag is not None:
                self._room.readers.add(message.flag)
            reply.answer(None)
            return
        if message.offset >= log.start_offset:
            hot = log.read_hot(message.offset, max_records=message.max_records, max_bytes=message.max_bytes)
            if hot:
                reply.answer((hot, hot[-1].last_offset + 1))
                return
        self._room.start_task(self._read_cold, message, reply, name="cold read")

    async def _read_cold(self, message: c.Read, reply: Reply) -> None:
        log = self._room.log
        try:
            reading = await log.read(
                max(message.offset, log.start_offset),
                max_records=message.max_records,
                max_bytes=message.max_bytes,
            )
        except StorageError as error:
            reply.fail(error)
        else:
            reply.answer((reading.batches, reading.next_offset))

    def offset_at(self, message: c.OffsetAt, reply: Reply | None) -> None:
        """The first offset appended at or after a time."""
        self._room.start_task(self._offset_at_cold, message, reply, name="time index")

    async def _offset_at_cold(self, message: c.OffsetAt, reply: Reply | None) -> None:
        try:
            answer(reply, await self._room.log.offset_at(message.time_us), None)
        except StorageError as error:
            answer(reply, None, error)
