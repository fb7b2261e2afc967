"""What happens in the actor system, as values: a bounded log that anybody may read or subscribe to.

Events hold text and numbers, never the exception objects: a kept traceback would keep a dead actor's state alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from callboard.actors.kernel.failures import describe
from callboard.log.limits import EVENTS_KEPT
from callboard.log.seams.clock import Clock


@attrs.frozen
class ActorStarted:
    """An incarnation is ready: its `started()` returned."""

    path: str
    incarnation: int


@attrs.frozen
class IncarnationCrashed:
    """An incarnation ended by an exception, or was killed."""

    path: str
    incarnation: int
    cause: str
    frames: tuple[str, ...]


@attrs.frozen
class ActorRestarted:
    """The supervisor restarts an actor; `incarnation` is the coming one, due after `delay_s` seconds."""

    path: str
    incarnation: int
    cause: str
    delay_s: float


@attrs.frozen
class ActorStopped:
    """An actor has ended for good."""

    path: str
    cause: str | None


@attrs.frozen
class ActorFailed:
    """An insignificant child was over its restart intensity: it stays down until somebody revives it."""

    path: str
    cause: str


@attrs.frozen
class Escalated:
    """A supervisor gave up: its children failed more often than its intensity allows."""

    path: str
    child: str
    cause: str


@attrs.frozen
class MessageDropped:
    """A full mailbox dropped a message; told at the 1st, 2nd, 4th, 8th, ... of an actor."""

    path: str
    reason: str
    dropped: int


@attrs.frozen
class HookFailed:
    """An actor's `crashed` hook, a watcher or a subscriber raised; what it was told happened all the same."""

    path: str
    hook: str
    cause: str


@attrs.frozen
class Logged:
    """An event and when it was emitted."""

    wall_us: int
    event: Any


class EventLog:
    """The last `EVENTS_KEPT` events, and those who want to hear of new ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Logged] = deque(maxlen=EVENTS_KEPT)
        self._subscribers: list[Callable[[Any], object]] = []
        self.total = 0
        """How many events there have been."""

    def emit(self, event: Any) -> None:
        """Log `event` and tell the subscribers, at once and in order."""
        self.total += 1
        self._kept.append(Logged(self._clock.wall_us(), event))
        for subscriber in tuple(self._subscribers):
            call_guarded(partial(subscriber, event), "", "subscriber", self._log_only)

    def _log_only(self, event: Any) -> None:
        self.total += 1
        self._kept.append(Logged(self._clock.wall_us(), event))

    def subscribe(self, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call `callback(event)` at every event from now on; returns what ends it. It must not block."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def recent(self) -> tuple[Logged, ...]:
        """Those still kept, oldest first."""
        return tuple(self._kept)


def call_guarded(call: Callable[[], object], path: str, hook: str, emit: Callable[[Any], None]) -> None:
    """Call a user's hook from inside the kernel; what it raises becomes a `HookFailed` event.

    The kernel is in the middle of a transition when it tells others: their mistakes must not stop it half-way.
    """
    try:
        call()
    except Exception as error:  # noqa: BLE001 - a user's hook: reported
        emit(HookFailed(path, hook, describe(error)))
