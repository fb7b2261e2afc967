"""Events of the actor system, as values, and a bounded log of them that users can read and subscribe to.

Beside it the dead letters: the messages that no actor will handle, each with its reason. The latest are kept, and all
are counted. (Dead-letter *topics* are something else: they store records durably.)

Events contain text and numbers, never exception objects: a kept traceback would keep a dead actor's state in memory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from callboard.actors.kernel.failures import describe, frames, place
from callboard.log.errors import InvalidArgument
from callboard.log.limits import DEAD_LETTERS_KEPT, EVENTS_KEPT
from callboard.log.plain import is_plain_function
from callboard.log.seams.clock import Clock

Trace = Callable[[BaseException], tuple[str, ...]]


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
    """The traceback by lines, with the chain of causes; in a simulation only where the innermost frames are."""
    place: str | None = None
    """Where the user's code failed, as `shop.py:41 in deep`; None where none was running."""


@attrs.frozen
class ActorRestarted:
    """The supervisor restarts an actor; `incarnation` is the next one, which starts after `delay_s` seconds."""

    path: str
    incarnation: int
    cause: str
    delay_s: float


@attrs.frozen
class ActorEnded:
    """An actor has ended for good."""

    path: str
    cause: str | None


@attrs.frozen
class ActorFailed:
    """An insignificant child has exceeded its restart intensity. It stays down until it is revived."""

    path: str
    cause: str


@attrs.frozen
class Escalated:
    """A supervisor gave up: its children failed more often than its intensity allows."""

    path: str
    child: str
    """The child that needed one restart too many."""
    cause: str
    restarts: tuple[tuple[str, int], ...] = ()
    """(child, how many restarts it needed within the period), that one included; most restarts first."""


@attrs.frozen
class MessageDropped:
    """A full mailbox dropped a message; emitted for the 1st, 2nd, 4th, 8th, ... message of an actor."""

    path: str
    reason: str
    dropped: int


@attrs.frozen
class HookFailed:
    """An actor's `crashed` hook, its `snapshot`, a watcher or a subscriber raised: what it was called about goes on."""

    path: str
    """The actor's; "" for a subscriber to events."""
    hook: str
    cause: str
    place: str | None = None
    """As in `IncarnationCrashed`."""
    frames: tuple[str, ...] = attrs.field(default=(), repr=False)
    """As in `IncarnationCrashed`."""


@attrs.frozen
class CarriesException:
    """An event that gives its subscribers an exception.

    The log keeps it without: the frames of an exception hold what users' code had in hand.
    """

    exception: BaseException | None = attrs.field(default=None, eq=False, repr=False, kw_only=True)


@attrs.frozen
class Logged:
    """An event and when it was emitted."""

    wall_us: int
    event: Any


class EventLog:
    """The last `EVENTS_KEPT` events, and the subscribers to new ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Logged] = deque(maxlen=EVENTS_KEPT)
        self._subscribers: dict[object, Callable[[Any], object]] = {}
        self.total = 0
        """The number of all events."""
        self.trace: Trace = frames
        """What tells where an exception came from."""

    def emit(self, event: Any) -> None:
        """Log `event` and call the subscribers, at once and in order.

        When one raises, the others hear of it; what they raise then is only logged.
        """
        self._log_only(event)
        for key, subscriber in tuple(self._subscribers.items()):
            tell_others = partial(self._tell_others, key)
            call_guarded(partial(subscriber, event), "", "subscriber", tell_others, self.trace)

    def _tell_others(self, broken: object, event: HookFailed) -> None:
        self._log_only(event)
        for key, subscriber in tuple(self._subscribers.items()):
            if key is not broken:
                call_guarded(partial(subscriber, event), "", "subscriber", self._log_only, self.trace)

    def _log_only(self, event: Any) -> None:
        self.total += 1
        if isinstance(event, CarriesException):
            event = attrs.evolve(event, exception=None)
        self._kept.append(Logged(self._clock.wall_us(), event))

    def subscribe(self, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call `callback(event)` at every new event; it must not block. Returns a function that unsubscribes.

        Raises `InvalidArgument` for what cannot be called.
        """
        check_callback("a subscriber to events", callback)
        key = object()  # callbacks may compare themselves in any way
        self._subscribers[key] = callback
        return lambda: self._subscribers.pop(key, None) and None

    def recent(self) -> tuple[Logged, ...]:
        """The events that are kept, oldest first."""
        return tuple(self._kept)


def check_callback(what: str, callback: object) -> None:
    """Raise `InvalidArgument` for what cannot be called, or only begins a coroutine, which would never be awaited."""
    if not is_plain_function(callback):
        kind = "a coroutine function" if callable(callback) else type(callback).__name__
        raise InvalidArgument(
            f"{what} is {kind}, not a plain function of one event. Nothing was done. One that waits can have a memory"
            " channel of its own: call its send_nowait here, and receive in a task."
        )


def call_guarded(
    call: Callable[[], object], path: str, hook: str, emit: Callable[[Any], None], trace: Trace
) -> None:
    """Call a user's hook from inside the kernel; an exception that it raises becomes a `HookFailed` event.

    The kernel calls hooks in the middle of a transition, which an error in a hook must not interrupt.
    """
    try:
        call()
    except Exception as error:  # noqa: BLE001 - a user's hook: reported
        emit(HookFailed(path, hook, describe(error), place(error), trace(error)))


@attrs.frozen
class UndeliveredMessage:
    """A message that was sent to an actor and was not handled, or not completely."""

    wall_us: int
    path: str
    message: Any
    reason: str
    """"crashed" (the actor crashed while handling it), "stopped", "failed", "drop_oldest" or "drop_newest"."""


class DeadLetters:
    """The last `DEAD_LETTERS_KEPT` dead letters, and counters of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[UndeliveredMessage] = deque(maxlen=DEAD_LETTERS_KEPT)
        self._by_reason: Counter[str] = Counter()

    def add(self, path: str, message: Any, reason: str) -> None:
        """Add a dead letter."""
        self._by_reason[reason] += 1
        self._kept.append(UndeliveredMessage(self._clock.wall_us(), path, message, reason))

    def recent(self) -> tuple[UndeliveredMessage, ...]:
        """The dead letters that are kept, oldest first."""
        return tuple(self._kept)

    @property
    def by_reason(self) -> dict[str, int]:
        """The number of all dead letters, by reason."""
        return dict(self._by_reason)

    @property
    def total(self) -> int:
        """The number of all dead letters."""
        return self._by_reason.total()
