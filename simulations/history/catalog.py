"""An observed catalog: a thin wrapper over what a runtime knows of topics and groups, which records what is changed and
seen. It changes nothing by itself.

Each change passes the probe "change", so that faults can wait for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from callboard.actors.settings import GroupSettings
from callboard.log.errors import CallboardError, ConfigurationError
from callboard.simulations.history.clients import Surroundings
from callboard.simulations.history.entry import MAYBE, plain


class ObservedCatalog:
    """A runtime's topics and groups, as one administrator changes and lists them."""

    def __init__(self, world: Surroundings, machine: int, runtime: Any, who: str) -> None:
        self.runtime = runtime
        self.who = who
        self._world = world
        self._machine = machine

    async def create_topic(self, name: str, **settings: Any) -> str:
        """Create a topic; returns how that ended: "changed", "not changed" or "maybe changed"."""
        return await self._change(
            "create_topic", settings, lambda: self.runtime.create_topic(name, **settings), topic=name
        )

    async def alter_topic(self, name: str, **settings: Any) -> str:
        """Alter a topic."""
        return await self._change(
            "alter_topic", settings, lambda: self.runtime.alter_topic(name, **settings), topic=name
        )

    async def delete_topic(self, name: str) -> str:
        """Delete a topic."""
        return await self._change("delete_topic", {}, lambda: self.runtime.delete_topic(name), topic=name)

    async def alter_group(self, name: str, **settings: Any) -> str:
        """Alter a group."""
        return await self._change(
            "alter_group", settings, lambda: self.runtime.group(name).alter(**settings), group=name
        )

    async def delete_group(self, name: str) -> str:
        """Delete a group."""
        return await self._change("delete_group", {}, lambda: self.runtime.group(name).delete(), group=name)

    async def _change(
        self,
        verb: str,
        settings: dict[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        topic: str = "",
        group: str = "",
    ) -> str:
        operation = self._world.history.operation()

        def record(kind: str, detail: str) -> str:
            self._world.history.record(
                self._machine, kind, self.who, operation, topic, group=group, detail=detail
            )
            return kind

        record("change", f"{verb} {plain(settings)}")
        self._world.probe("change", self.who)
        try:
            found = await call()
        except ConfigurationError:
            raise  # nothing that is asked here makes no sense
        except CallboardError as error:
            if error.indefinite:
                return record("maybe changed", f"{type(error).__name__}{MAYBE}")
            return record("not changed", type(error).__name__)
        except trio.Cancelled:
            record("maybe changed", "Cancelled")
            raise
        # A topic has the settings of now, which may have been altered once more.
        return record("changed", plain(attrs.asdict(found)) if isinstance(found, GroupSettings) else "")

    def list_topics(self) -> None:
        """Record all topics, with their ids and settings."""
        seen = {
            topic.name: {"id": topic.topic_id, "settings": attrs.asdict(topic.settings)}
            for topic in self.runtime.topics()
        }
        self._world.history.record(self._machine, "topics listed", self.who, detail=plain(seen))

    async def list_groups(self) -> None:
        """Record all groups, with their members, or that they could not be listed."""
        history = self._world.history
        operation = history.operation()
        history.record(self._machine, "list groups", self.who, operation)
        try:
            groups = await self.runtime.groups()
        except CallboardError as error:
            history.record(
                self._machine, "groups not listed", self.who, operation, detail=type(error).__name__
            )
            return
        self.groups_seen(operation, groups)

    def groups_seen(self, operation: int, groups: Any) -> None:
        """Record the answer to the question `operation`."""
        seen = {
            group.name: {
                "id": group.group_id,
                "settings": attrs.asdict(group.settings),
                "topics": group.topics,
                "count": group.members,
                "members": [(member.consumer, member.name) for member in group.consumers],
                "reads": {str(member.name): sorted(member.topics) for member in group.consumers},
            }
            for group in groups
        }
        self._world.history.record(self._machine, "groups listed", self.who, operation, detail=plain(seen))
