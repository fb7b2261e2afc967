"""The part of the catalog that makes, pauses and removes schedules, and has those that are live follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from callboard.actors.catalog import scheduling
from callboard.actors.catalog.commands import AddSchedule, PauseSchedule, RemoveSchedule
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.catalog.state import CatalogState, Event, TopicRecord
from callboard.log.errors import InternalError


class ChangesSchedules:
    """See the module. The rest is the catalog's."""

    context: Any
    _directory: Directory
    _state: CatalogState

    if TYPE_CHECKING:

        async def _decide(self, decide: Callable[[CatalogState], list[Event]]) -> Any: ...
        def _confirm(self) -> Awaitable[None]: ...
        def _launch(self, record: TopicRecord) -> LiveTopic: ...

    async def _add_schedule(self, message: AddSchedule) -> int:
        name, spec = message.name, message.spec
        schedule_id, now_us = max(1, self.context.entropy.integer(64)), self.context.clock.wall_us()
        await self._decide(
            lambda draft: scheduling.adding(draft, message.topic_id, name, spec, schedule_id, now_us)
        )
        await self._confirm()
        record = scheduling.known_topic(self._state, message.topic_id, name)
        made = scheduling.known_schedule(record, spec.name)
        began = made if made.schedule_id == schedule_id else None
        schedules, ports = self._directory.schedules, self._launch(record).ports
        schedules.follow(ports, record.schedules, began=began)
        if schedules.get(made.schedule_id) is None:
            raise InternalError(f"schedule {spec.name!r} of topic {name!r} is not served", invariant="K2")
        return made.schedule_id

    async def _change_schedule(self, message: RemoveSchedule | PauseSchedule) -> None:
        name, topic_id, schedule = message.name, message.topic_id, message.schedule
        now_us = self.context.clock.wall_us()

        def decide(draft: CatalogState) -> list[Event]:
            if isinstance(message, RemoveSchedule):
                return scheduling.removing(draft, topic_id, name, schedule)
            is_paused = message.is_paused
            return scheduling.pausing(draft, topic_id, name, schedule, is_paused=is_paused, now_us=now_us)

        await self._decide(decide)
        await self._confirm()
        record = scheduling.known_topic(self._state, topic_id, name)
        self._launch(record)
