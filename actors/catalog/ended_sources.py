"""Has partitions forget the sources that have ended: those of topics and groups that are no more.

A source is a part of the broker that publishes to partitions as a producer (`producers`): one for each partition's
dead letters in each group, one for what its acks publish, one for what was delayed in it. A partition keeps what it
knows of a source for as long as the source lives, for a retry must find it. When its topic, or its group, is deleted,
nobody tells the targets: nobody knows them all. Instead each partition is asked which sources it knows, and those that
are not among the living are forgotten.

Nothing of this is stored. What was not forgotten because something crashed or failed is found by the next look: there
is one whenever a topic or a group has ended, some seconds after anything was forgotten, and when the router or the
forwarder starts.

Invariants
----------
N1  A partition is asked which sources it knows before it is found out which live: no new source is among the ended.
N2  What has ended never lives again: ids of topics and groups are not used twice. Whether it has is what the catalog
    has journalled; whoever runs still, counts as living.
N3  A source sends nothing once it has ended (`PartitionCalls.store`), and what it has sent is stored or has failed
    before it is forgotten. So no retry comes to a partition that has forgotten it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from callboard.actors.catalog.commands import ListGroups, ListTopics
from callboard.actors.partition import commands as c
from callboard.actors.partition.calls import PartitionCalls
from callboard.actors.partition.source_ids import every_source
from callboard.actors.timers.retry_pauses import RetryPauses
from callboard.actors.timers.timers import Flag
from callboard.log.errors import ActorStopped, CallboardError

if TYPE_CHECKING:
    from callboard.actors.catalog.directory import Directory
    from callboard.actors.partition.port import PartitionPort

SETTLE_S: Final = 1.0
"""What ends within so long is looked for together."""
AGAIN_S: Final = 10.0
"""A partition writes down with its next commit what it has forgotten, and a crash before that brings it back: so long
after something was forgotten it is asked once more."""
PAUSE_S: Final = 5.0
PAUSE_MAX_S: Final = 600.0
"""After a failure it is tried again after the first; the pause doubles up to the second."""
AT_A_TIME: Final = 1000
"""Others run after so many sources were looked at."""


class EndedSources:
    """See the module. It is a task of whoever publishes as sources."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._calls = PartitionCalls(directory.timers)
        self._flag = Flag()

    async def forget(self) -> None:
        """Look now, and whenever something has ended; again after a pause where a partition could not be told."""
        timers, endings = self._directory.timers, self._directory.endings
        pauses = RetryPauses(PAUSE_S, PAUSE_MAX_S)
        endings.add(self._flag)
        try:
            while True:
                is_done, has_forgotten = await self._look()
                if not is_done:
                    await timers.sleep(pauses.failed())
                    continue
                pauses.worked()
                if has_forgotten:
                    await timers.sleep(AGAIN_S)
                else:
                    await self._flag.wait()
                    await timers.sleep(SETTLE_S)
        finally:
            endings.discard(self._flag)

    async def _look(self) -> tuple[bool, bool]:
        """Have every partition forget what has ended; whether nothing is left to do, and whether any forgot."""
        known, is_done = await self._known()
        if not known:
            return is_done, False
        try:
            ended, is_known = await self._ended(set().union(*known.values()))
        except CallboardError:
            return False, False
        has_forgotten = False
        for port, sources in known.items():
            gone = [each for each in sources if each in ended]
            if gone and await self._forget(port, gone):
                has_forgotten = True
            elif gone:
                is_done = False
        return is_done and is_known, has_forgotten

    async def _known(self) -> tuple[dict[PartitionPort, tuple[int, ...]], bool]:
        """The sources that each partition knows, and whether all could be asked."""
        known: dict[PartitionPort, tuple[int, ...]] = {}
        is_done = True
        for live in self._directory.topics():
            for port in (*live.ports, *live.waiting):
                try:
                    sources = await self._calls.ask(port, c.ListSources())
                except ActorStopped:
                    continue
                except CallboardError:
                    is_done = False
                else:
                    if sources:
                        known[port] = sources
        return known, is_done

    async def _ended(self, sources: set[int]) -> tuple[set[int], bool]:
        """Those of these that have ended, and whether nothing is about to end (N2)."""
        directory = self._directory
        topics = await directory.catalog.ask(ListTopics())
        groups = await directory.catalog.ask(ListGroups())
        partitions = {record.topic_id: record.settings.partitions for record in topics}
        partitions |= {live.topic_id: len(live.ports) for live in directory.topics()}
        everything = tuple(partitions)
        # A group of a pattern may let go of a topic, and find it again.
        readers: dict[int, Iterable[str]] = dict.fromkeys(directory.live_groups(), everything)
        readers |= {each.group_id: everything if each.pattern else each.topic_ids for each in groups}
        for count, source in enumerate(every_source(partitions, readers), 1):
            sources.discard(source)
            if count % AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        return sources, not any(record.deleting for record in topics)

    async def _forget(self, port: PartitionPort, ended: list[int]) -> bool:
        """Have a partition forget these, behind all that they have sent (N3)."""
        try:
            await self._calls.ask(port, c.Flush())
            await self._calls.ask(port, c.ForgetSources(ended))
        except ActorStopped:
            return True  # it is deleted, and all that it knew
        except CallboardError:
            return False
        return True
