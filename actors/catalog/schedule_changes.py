"""The part of the catalog that makes, pauses and removes schedules, and has those that are live follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callboard.actors.catalog import scheduling
from callboard.actors.catalog.commands import AddSchedule, PauseSchedule, RemoveSchedule, TopicRecord
from callboard.actors.catalog.decisions import Decisions
from callboard.actors.catalog.directory import Directory, LiveTopic
from callboard.actors.catalog.state import CatalogState, Event
from callboard.actors.kernel import Context
from callboard.log.errors import InternalError


class ScheduleChanges:
    """Carries out the requests of the catalog that add, pause, resume or remove a schedule."""

    def __init__(
        self,
        context: Context[Any],
        directory: Directory,
        decisions: Decisions,
        launch: Callable[[TopicRecord], LiveTopic],
    ) -> None:
        self._context = context
        self._directory = directory
        self._decisions = decisions
        self._launch = launch

    async def add(self, message: AddSchedule) -> int:
        """Make it, or find it made; returns its id."""
        name, spec = message.name, message.spec
        schedule_id, now_us = max(1, self._context.entropy.integer(64)), self._context.clock.wall_us()
        await self._decisions.decide(
            lambda draft: scheduling.adding(draft, message.topic_id, name, spec, schedule_id, now_us)
        )
        await self._decisions.confirm()
        record = scheduling.known_topic(self._decisions.state, message.topic_id, name)
        made = scheduling.known_schedule(record, spec.name)
        is_new = made.schedule_id == schedule_id
        schedules, ports = self._directory.schedules, self._launch(record).ports
        schedules.follow(ports, record.schedules, made=made if is_new else None)
        if schedules.get(made.schedule_id) is None:
            raise InternalError(f"schedule {spec.name!r} of topic {name!r} is not served", invariant="DE2")
        return made.schedule_id

    async def change(self, message: RemoveSchedule | PauseSchedule) -> None:
        """Remove it, pause it, or have it go on."""
        name, topic_id, schedule = message.name, message.topic_id, message.schedule
        now_us = self._context.clock.wall_us()

        def decide(draft: CatalogState) -> list[Event]:
            if isinstance(message, RemoveSchedule):
                return scheduling.removing(draft, topic_id, name, schedule)
            is_paused = message.is_paused
            return scheduling.pausing(draft, topic_id, name, schedule, is_paused=is_paused, now_us=now_us)

        await self._decisions.decide(decide)
        await self._decisions.confirm()
        record = scheduling.known_topic(self._decisions.state, topic_id, name)
        self._launch(record)
