"""Has partitions forget the sources that have ended: those of topics, groups and numberings that are no more.

A source is a part of the broker that publishes to partitions as a producer (`producers`): one for each partition's
dead letters in each group, one for what its acks publish, one for what was delayed in it. A partition keeps what it
knows of a source for as long as the source lives, for a retry must find it. When its topic, or its group, is deleted,
or a delivery journal was lost and counts anew (`source_ids`), no target is notified: they are not all known. Instead
each partition is asked which sources it knows, then each which sources it is, and what is not among these is forgotten.

Nothing of this is stored. What was not forgotten because something crashed or failed is found by the next look: there
is one whenever a topic or a group has ended, some seconds after anything was forgotten, and when the router or the
forwarder starts.

Invariants
----------
ES1  A partition is asked which sources it knows before any is asked which it is: no new source is among the ended.
ES2  What has ended never lives again: ids of topics, groups and numberings are not used twice. As long as a partition
     does not say which sources it is, none has ended.
ES3  A source sends nothing once it has ended (`PartitionCalls.store`), and what it has sent is stored or has failed
     before it is forgotten. So no retry reaches a partition that has forgotten it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from callboard.actors.catalog.commands import ListGroups, ListTopics
from callboard.actors.partition import commands as c
from callboard.actors.retry_pauses import RetryPauses
from callboard.actors.source_ids import of_dead_letters, of_delays, of_outbox
from callboard.actors.timing import Flag
from callboard.log.errors import ActorStopped, CallboardError

if TYPE_CHECKING:
    from callboard.actors.clients.calls import PartitionCalls
    from callboard.actors.clients.port import PartitionPort
    from callboard.actors.kernel import ActorRef
    from callboard.actors.mirror import Mirror
    from callboard.actors.timing import Timers

SETTLE_S: Final = 1.0
"""What ends within this time is looked for together."""
AGAIN_S: Final = 10.0
"""A partition writes down with its next commit what it has forgotten, and a crash before that brings it back: so long
after something was forgotten it is asked once more."""
PAUSE_S: Final = 5.0
PAUSE_MAX_S: Final = 600.0
"""After a failure it is tried again after the first; the pause doubles up to the second."""


class EndedSources:
    """A task of each actor that publishes as sources: it makes partitions forget the sources that have ended."""

    def __init__(self, mirror: Mirror, calls: PartitionCalls, timers: Timers) -> None:
        self._mirror = mirror
        self._timers = timers
        self._calls = calls
        self._flag = Flag()

    async def forget(self, catalog: ActorRef[Any]) -> None:
        """Look now, and whenever something has ended; again after a pause where a partition could not be asked."""
        timers, pauses = self._timers, RetryPauses(PAUSE_S, PAUSE_MAX_S)
        while True:
            is_done, has_forgotten = await self._look(catalog)
            if not is_done:
                await timers.sleep(pauses.failed())
                continue
            pauses.worked()
            if has_forgotten:
                await timers.sleep(AGAIN_S)
            else:
                await self._flag.wait()
                await timers.sleep(SETTLE_S)

    def look_again(self) -> None:
        """Something has ended."""
        self._flag.set()

    async def _look(self, catalog: ActorRef[Any]) -> tuple[bool, bool]:
        """Have every partition forget what has ended; whether nothing is left to do, and whether any forgot."""
        known, is_done = await self._known()
        if not known:
            return is_done, False
        try:
            living = await self._living(catalog)
        except CallboardError:
            return False, False
        if living is None:
            return False, False
        ended = set().union(*known.values()) - living
        has_forgotten = False
        for port, sources in known.items():
            gone = [each for each in sources if each in ended]
            if gone and await self._forget(port, gone):
                has_forgotten = True
            elif gone:
                is_done = False
        return is_done, has_forgotten

    async def _known(self) -> tuple[dict[PartitionPort, tuple[int, ...]], bool]:
        """The sources that each partition knows, and whether all could be asked."""
        known: dict[PartitionPort, tuple[int, ...]] = {}
        is_done = True
        for live in self._mirror.topics():
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

    async def _living(self, catalog: ActorRef[Any]) -> set[int] | None:
        """All sources that there are, or None while a topic is being deleted or has not begun to run. Raises what keeps
        a partition from saying which it is (ES2).
        """
        mirror = self._mirror
        for record in await catalog.ask(ListTopics()):
            topic = mirror.by_id(record.topic_id)
            if record.deleting or topic is None or (record.delays and not topic.waiting):
                return None
        groups = {*mirror.group_ids(), *[each.group_id for each in await catalog.ask(ListGroups())]}
        living: set[int] = set()
        for live in mirror.topics():
            for port in live.ports:
                if (found := await self._numberings(port)) is not None:
                    place = port.topic_id, port.index
                    living.add(of_outbox(*place, found.outbox))
                    living.update(
                        [of_dead_letters(*place, *dead) for dead in found.dead if dead[0] in groups]
                    )
            for port in live.waiting:
                if (found := await self._numberings(port)) is not None:
                    place = port.topic_id, port.index
                    living.update([of_delays(*place, numbering) for _, numbering in found.dead])
        return living

    async def _numberings(self, port: PartitionPort) -> c.Numberings | None:
        """Those of a partition, None when it is deleted."""
        try:
            found: c.Numberings = await self._calls.ask(port, c.ListNumberings())
        except ActorStopped:
            return None
        return found

    async def _forget(self, port: PartitionPort, ended: list[int]) -> bool:
        """Have a partition forget these, behind all that they have sent (ES3)."""
        try:
            await self._calls.ask(port, c.Flush())
            await self._calls.ask(port, c.ForgetSources(ended))
        except ActorStopped:
            return True  # it is deleted, and all that it knew
        except CallboardError:
            return False
        return True
