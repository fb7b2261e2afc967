"""The events of a delivery, and their form in the delivery journal.

An event is a named tuple, of which the first field is the letter of its kind: it is stored as it is, and events of
two kinds are never equal. In the journal a list of events is one CBOR array of arrays, in CBOR's preferred form and
without tags, so any CBOR tool shows it. `FIELDS` names what follows the letter. Ranges are flattened: `(0, 5, 9, 10)`
is `[0, 5)` and `[9, 10)`. So are ranges with attempts: `(0, 5, 1, 9, 10, 2)`.

Later versions may append fields to an event; they are ignored here. An unknown event with a lower-case letter is passed
over; any other unknown event is mandatory, and refused with `FormatTooNew`.

Deadlines of leases are not in the events: a lease never outlives a reopening of the directory, and the restart of
an actor renews it. The only instants are a nack's `not_before`, and when a record failed or died. In memory they are
monotonic, in the journal wall time; `wall_offset_s` (wall minus monotonic time) converts, so a delay survives a
reopening.

What is decoded is not trusted: every length, type and range is checked.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple

import cbor2

from callboard.actors.delivery.failures import are_names
from callboard.actors.delivery.receipts import OFFSET_END
from callboard.log.errors import CallboardError
from callboard.log.format.fields import CBOR_ERRORS, too_new
from callboard.log.limits import STEP_ITEMS

Flat = tuple[int, ...]
"""Ranges, flattened."""

EVENTS: Final = 0
"""The kind of a journal record with events."""

REASON_CHARACTERS_MAX: Final = 1024
"""Of a nack's or skip's reason; what is longer is cut when the event is made."""

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "L": ("lease_id", "consumer", "ranges with attempts"),
    "P": ("stop",),
    "A": ("lease_id", "ranges"),
    "N": ("lease_id", "not_before or nothing", "reason or nothing", "ranges"),
    "R": ("lease_id", "ranges"),
    "X": ("lease ids",),
    "V": (),
    "S": ("start", "stop", "reason or nothing"),
    "D": ("number", "failed_at", "consumer or nothing", "reason or nothing", "ranges with attempts"),
    "F": ("below",),
    "K": ("offset",),
    "O": ("number", "lease_id", "start", "stop"),
    "E": ("number", "failed_at", "ranges"),
    "t": ("failed_at", "who or nothing", "ranges"),
    "n": ("consumer", "who"),
}
"""What is stored behind the letter of each kind. Older versions pass over the last two."""


class LeaseEvent(NamedTuple):
    """A consumer has leased these ranges, each for this attempt."""

    kind: Literal["L"]
    lease_id: int
    consumer: int
    attempts: Flat


class PassEvent(NamedTuple):
    """What is untouched before `stop` is passed over."""

    kind: Literal["P"]
    stop: int


class AckEvent(NamedTuple):
    """Settled by an ack."""

    kind: Literal["A"]
    lease_id: int
    ranges: Flat


class NackEvent(NamedTuple):
    """Failed, to be delivered again at this instant or at once."""

    kind: Literal["N"]
    lease_id: int
    not_before: float | None
    reason: str | None
    ranges: Flat


class ReleaseEvent(NamedTuple):
    """Given back unhandled."""

    kind: Literal["R"]
    lease_id: int
    ranges: Flat


class RunOutEvent(NamedTuple):
    """These leases have run out."""

    kind: Literal["X"]
    lease_ids: tuple[int, ...]


class VoidEvent(NamedTuple):
    """All leases have ended, and all receipts."""

    kind: Literal["V"]


class SkipEvent(NamedTuple):
    """Settled without delivery."""

    kind: Literal["S"]
    start: int
    stop: int
    reason: str | None


class DeathEvent(NamedTuple):
    """Dead letters with these numbers from `number` on: they were rejected, or failed too often."""

    kind: Literal["D"]
    number: int
    failed_at: float
    consumer: int | None
    reason: str | None
    attempts: Flat


class ForgetEvent(NamedTuple):
    """Dead letters with lower numbers are stored elsewhere."""

    kind: Literal["F"]
    below: int


class SeekEvent(NamedTuple):
    """The group goes on from `offset`."""

    kind: Literal["K"]
    offset: int


class PublishEvent(NamedTuple):
    """What an ack publishes: an event of the partition's outbox, and none of the delivery."""

    kind: Literal["O"]
    number: int
    lease_id: int
    start: int
    stop: int


class ExpiryEvent(NamedTuple):
    """Dead letters from `number` on, because they expired."""

    kind: Literal["E"]
    number: int
    failed_at: float
    ranges: Flat


class FailureEvent(NamedTuple):
    """Attempts have failed in the consumer with this name."""

    kind: Literal["t"]
    failed_at: float
    who: str | None
    ranges: Flat


class NameEvent(NamedTuple):
    """A consumer has a name."""

    kind: Literal["n"]
    consumer: int
    who: str


RangesEvent = AckEvent | NackEvent | ReleaseEvent | FailureEvent
"""They have any number of ranges: to apply them is to apply parts of them in turn."""
Event = (
    RangesEvent
    | LeaseEvent
    | PassEvent
    | RunOutEvent
    | VoidEvent
    | SkipEvent
    | DeathEvent
    | ForgetEvent
    | SeekEvent
    | PublishEvent
    | ExpiryEvent
    | NameEvent
)
KINDS: Final[dict[str, Callable[..., Event]]] = {
    "L": LeaseEvent,
    "P": PassEvent,
    "A": AckEvent,
    "N": NackEvent,
    "R": ReleaseEvent,
    "X": RunOutEvent,
    "V": VoidEvent,
    "S": SkipEvent,
    "D": DeathEvent,
    "F": ForgetEvent,
    "K": SeekEvent,
    "O": PublishEvent,
    "E": ExpiryEvent,
    "t": FailureEvent,
    "n": NameEvent,
}

ENTRIES_MAX: Final = 2**20
"""An event that claims to publish more is damaged."""

TIMED: Final = frozenset({"N", "D", "E", "t"})
"""The kinds of events with an instant."""


class DeliveryEventInvalid(CallboardError, ValueError):
    """Stored bytes or events describe no possible history of a delivery."""


def takes_steps(event: Event) -> bool:
    """Whether to apply it takes more than a step."""
    return isinstance(event, VoidEvent) or (
        isinstance(event, RangesEvent) and len(event.ranges) > 2 * STEP_ITEMS
    )


def parts_of(event: Event) -> list[Event]:
    """Events that a step handles each, and that say the same as this one together."""
    size = 2 * STEP_ITEMS
    if not isinstance(event, RangesEvent) or len(event.ranges) <= size:
        return [event]
    return [event._replace(ranges=event.ranges[at : at + size]) for at in range(0, len(event.ranges), size)]


class GroupEvents(NamedTuple):
    """What changed in a group, to be journalled."""

    group_id: int
    events: list[Event]

    def record(self, wall_offset_s: float) -> bytes:
        """The journal record. `wall_offset_s` is wall minus monotonic time: delays outlive the process."""
        events = self.events
        for event in events:
            if event.kind in TIMED:
                events = [_shifted(event, wall_offset_s) for event in events]
                break
        return cbor2.dumps([EVENTS, self.group_id, events])


def decode_events(found: Any, *, wall_offset_s: float = 0.0) -> list[Event]:
    """The events in what CBOR holds. Raises DeliveryEventInvalid, and `FormatTooNew` for an unknown mandatory one."""
    if type(found) is not list:
        raise DeliveryEventInvalid("Delivery events are not an array.")
    events = [event for stored in found if (event := _checked(stored)) is not None]
    return [_shifted(event, -wall_offset_s) for event in events]


def cut_reason(reason: str | None) -> str | None:
    """A reason that fits an event; characters that UTF-8 refuses are replaced."""
    if reason is None:
        return None
    return reason[:REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode("utf-8")


def load(stored: bytes) -> Any:
    """What CBOR holds. Raises DeliveryEventInvalid."""
    try:
        return cbor2.loads(stored)
    except CBOR_ERRORS as error:
        raise DeliveryEventInvalid(f"Delivery events do not decode: {error}.") from error


def _shifted(event: Event, seconds: float) -> Event:
    """The event with the instant in it moved: delayed nacks and dead letters have one."""
    if isinstance(event, NackEvent):
        return event if event.not_before is None else event._replace(not_before=event.not_before + seconds)
    if isinstance(event, (DeathEvent, ExpiryEvent, FailureEvent)):
        return event._replace(failed_at=event.failed_at + seconds)
    return event


def _checked(event: Any) -> Event | None:
    """The event without what a later version appended; None when all of it may be ignored."""
    if type(event) is not list or not event or type(event[0]) is not str:
        raise DeliveryEventInvalid("A delivery event has no kind.")
    kind = event[0]
    if kind == "S" and len(event) == 4 and event[3] is None and _are_pairs(event[1:3]):
        # Delayed messages may be cancelled by the hundred thousand.
        return SkipEvent("S", event[1], event[2], None)
    checks = _CHECKS.get(kind)
    if checks is None:
        if len(kind) != 1 or kind not in string.ascii_letters:
            raise DeliveryEventInvalid("A delivery event has no known kind.")
        if kind in string.ascii_uppercase:
            raise too_new(f"a delivery event has the unknown kind {kind}", found=kind)
        return None
    if len(event) <= len(checks):
        raise DeliveryEventInvalid(f"A delivery event {kind} has {len(event) - 1} fields.")
    fields: list[Any] = [kind]
    for index, is_valid in enumerate(checks, 1):
        field = event[index]
        if not is_valid(field):
            raise DeliveryEventInvalid(f"A delivery event {kind} has a bad {FIELDS[kind][index - 1]}.")
        fields.append(tuple(field) if type(field) is list else field)
    checked = KINDS[kind](*fields)
    if isinstance(checked, SkipEvent) and checked.start >= checked.stop:
        raise DeliveryEventInvalid("A delivery event S has an empty range.")
    if isinstance(checked, PublishEvent) and not 0 < checked.stop - checked.start <= ENTRIES_MAX:
        raise DeliveryEventInvalid("A delivery event O names no payloads, or too many.")
    return checked


def _is_number(found: Any) -> bool:
    return type(found) is int and 0 <= found <= OFFSET_END


def _is_receipt(found: Any) -> bool:
    return type(found) is int and 0 < found <= OFFSET_END


def _are_numbers(found: Any) -> bool:
    return type(found) is list and len(found) > 0 and all(map(_is_number, found))


def _rise(bounds: Iterable[int]) -> bool:
    """Alternating starts and stops, sorted, and no range empty."""
    previous = -1
    for index, bound in enumerate(bounds):
        if bound < previous or (index % 2 and bound == previous):
            return False
        previous = bound
    return True


def _are_pairs(found: Any) -> bool:
    if type(found) is list and len(found) == 2:  # nearly all are one range: the quick way
        start, stop = found
        return type(start) is int and type(stop) is int and 0 <= start < stop <= OFFSET_END
    return _are_numbers(found) and len(found) % 2 == 0 and _rise(found)


def _are_triples(found: Any) -> bool:
    if type(found) is list and len(found) == 3:
        return _are_pairs(found[:2]) and _is_receipt(found[2])
    if not _are_numbers(found) or len(found) % 3 or 0 in found[2::3]:
        return False
    bounds = [0] * (len(found) // 3 * 2)
    bounds[::2], bounds[1::2] = found[::3], found[1::3]
    return _rise(bounds)


_VALID: Final[dict[str, Callable[[Any], bool]]] = {
    "lease_id": _is_receipt,
    "consumer": _is_number,
    "ranges with attempts": _are_triples,
    "ranges": _are_pairs,
    "not_before or nothing": lambda found: found is None or (type(found) is float and math.isfinite(found)),
    "reason or nothing": lambda found: (
        found is None or (type(found) is str and len(found) <= REASON_CHARACTERS_MAX)
    ),
    "lease ids": lambda found: _are_numbers(found) and 0 not in found,
    "start": _is_number,
    "stop": _is_number,
    "number": _is_number,
    "below": _is_number,
    "offset": _is_number,
    "failed_at": lambda found: type(found) is float and math.isfinite(found),
    "consumer or nothing": lambda found: found is None or _is_number(found),
    "who": lambda found: are_names([found]),
    "who or nothing": lambda found: found is None or are_names([found]),
}
_CHECKS: Final = {kind: tuple([_VALID[name] for name in names]) for kind, names in FIELDS.items()}
