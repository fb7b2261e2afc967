"""The actors that work for all topics of a runtime, each started the first time that there is something for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Never, TypeVar

from callboard.actors.catalog.commands import DELAYED_FORWARDER, FORWARDER, ROUTER
from callboard.actors.forwarding.commands import (
    CountAllDelayed,
    CountForwarded,
    CountOutboxes,
    CountsAtCrash,
    DelayedCounts,
    Forwarded,
    OutboxCounts,
)
from callboard.actors.forwarding.delayed_forwarder import DelayedForwarder
from callboard.actors.forwarding.forwarder import Forwarder
from callboard.actors.forwarding.router import DeadLetterRouter
from callboard.actors.kernel import ActorRef, ActorStart, Peer, Question
from callboard.actors.mirror import Mirror
from callboard.actors.recurring.commands import RECURRING
from callboard.actors.recurring.recurring import Recurring
from callboard.actors.recurring.spec import Zones
from callboard.actors.timing import WheelAddress
from callboard.asking import ask_again
from callboard.log.errors import InternalError, RestartLimitReached
from callboard.supervision import ChildSpec, Supervisor

A = TypeVar("A")


class LastCounts:
    """Hears what an actor had counted when it crashed last.

    Invariant BA1: as a peer of the actor it only hears.
    """

    counts: Any = None

    def compose(self, _: object) -> Never:
        """There is no news for the actor."""
        raise InternalError("counts are only heard", invariant="BA1")

    def hear(self, message: object) -> None:
        """The actor says this."""
        if isinstance(message, CountsAtCrash):
            self.counts = message.counts


class BackgroundActors:
    """Starts them below `root`. A runtime that only looks publishes nothing by itself: it has three, which count what
    waits, and say how far schedules are.
    """

    def __init__(self, root: Supervisor, wheel: WheelAddress, zones: Zones, *, only_looks: bool) -> None:
        self._root = root
        self._last: dict[str, LastCounts] = {}
        """Of those that were started."""
        self._starts: dict[str, ActorStart] = {
            DELAYED_FORWARDER: partial(DelayedForwarder, wheel, {}, moves=not only_looks),
            FORWARDER: partial(Forwarder, wheel, {}, moves=not only_looks),
            RECURRING: partial(Recurring, Mirror, zones, wheel, publishes=not only_looks),
        }
        if not only_looks:
            self._starts[ROUTER] = partial(DeadLetterRouter, wheel, Counter())

    def start(self, name: str) -> ActorRef[Any] | None:
        """Start the one of that name, the first time: where it is. None when it was started, or is not to be."""
        start = self._starts.pop(name, None)
        if start is None:
            return None
        ref = self._root.add_child(ChildSpec(name=name, start=start, significant=False, awaited=False))
        self._last[name] = LastCounts()
        Peer(ref, self._last[name]).open()
        return ref

    async def forwarded(self) -> Forwarded:
        """What the dead-letter router has forwarded."""
        return await self._count(ROUTER, CountForwarded(), Forwarded())

    async def delayed_counts(self) -> Mapping[tuple[str, int], DelayedCounts]:
        """What is counted of waiting partitions, by topic id and partition."""
        return await self._count(DELAYED_FORWARDER, CountAllDelayed(), {})

    async def outbox_counts(self) -> Mapping[tuple[str, int], OutboxCounts]:
        """What the forwarder has done, by topic id and partition."""
        found = await self._count(FORWARDER, CountOutboxes(), ())
        return {(counts.topic_id, counts.partition): counts for counts in found}

    async def _count(self, name: str, question: Question[A], nothing: A) -> A:
        """What the actor answers, or had counted before it failed for good; `nothing` where it does not run."""
        if name not in self._root:
            return nothing
        try:
            return await ask_again(self._root.child(name), question, "counting for statistics")
        except RestartLimitReached:
            last: A | None = self._last[name].counts
            return nothing if last is None else last
