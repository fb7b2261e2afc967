"""The actors that work for all topics of a runtime, each started the first time that there is something for it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from callboard.actors.catalog.commands import ROUTER
from callboard.actors.catalog.directory import Directory
from callboard.actors.forwarding.delayed_forwarder import DelayedForwarder
from callboard.actors.forwarding.forwarder import Forwarder
from callboard.actors.forwarding.router import DeadLetterRouter
from callboard.actors.kernel import ActorRef, ActorStart
from callboard.actors.recurring.commands import RECURRING
from callboard.actors.recurring.recurring import Recurring
from callboard.actors.recurring.spec import Zones
from callboard.supervision import ChildSpec, Supervisor


class BackgroundActors:
    """Starts them below `root`. A runtime that only looks publishes nothing by itself: it has three, which count what
    waits, and say how far schedules are.
    """

    def __init__(self, root: Supervisor, directory: Directory, zones: Zones, *, only_looks: bool) -> None:
        self._root = root
        self._starts: dict[str, ActorStart] = {
            "scheduler": partial(DelayedForwarder, directory, {}, moves=not only_looks),
            "outbox": partial(Forwarder, directory, {}, moves=not only_looks),
            RECURRING: partial(
                Recurring,
                directory.ports_of,
                zones,
                directory.wheel,
                directory.refusal,
                publishes=not only_looks,
            ),
        }
        if not only_looks:
            self._starts[ROUTER] = partial(DeadLetterRouter, directory, Counter())

    def start(self, name: str) -> ActorRef[Any] | None:
        """Start the one of that name, the first time: where it is. None when it was started, or is not to be."""
        start = self._starts.pop(name, None)
        if start is None:
            return None
        return self._root.add_child(ChildSpec(name=name, start=start, significant=False, awaited=False))
