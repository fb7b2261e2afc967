"""Membership: who the consumers of one group are. Shared by the group's coordinator, in all its incarnations, and them.

A consumer that leaves without waiting (it was cancelled, or its body raised) notes so here and is done: departures
coalesce outside the coordinator's mailbox, so they never meet a full one, nor a coordinator that is restarting.

Invariants
----------
G1  Who departs is a member no longer once the coordinator has looked, whatever else waits in its mailbox.
G2  Only the coordinator adds members and takes them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import LiveTopic


@attrs.define(eq=False)
class Member:
    """A consumer, and the topics that it reads, by id."""

    consumer: int
    name: str | None = None
    topics: dict[str, LiveTopic] = attrs.field(factory=dict)


class Membership:
    """The members of one group."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self._departed: dict[int, None] = {}
        self._news = trio.Event()

    def depart(self, consumer: int) -> None:
        """The consumer has gone. Never waits, never fails; departing twice is departing once."""
        self._departed[consumer] = None
        self._news.set()

    async def departures(self) -> list[int]:
        """Wait until somebody has departed; then all who have, in order, once each."""
        await self._news.wait()
        self._news = trio.Event()
        departed, self._departed = self._departed, {}
        return list(departed)
