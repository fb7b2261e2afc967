"""The events of a delivery, and their form in the delivery journal.

An event is a tuple: a letter, then the fields listed in `FIELDS`. In the journal a list of events is one CBOR
array of arrays, in CBOR's preferred form and without tags, so any CBOR tool shows it. Ranges are flattened:
`(0, 5, 9, 10)` is `[0, 5)` and `[9, 10)`.

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
from typing import Any, Final, NamedTuple

import cbor2

from callboard.actors.delivery.failures import are_names
from callboard.actors.delivery.receipts import OFFSET_END
from callboard.log.errors import CallboardError
from callboard.log.format.fields import CBOR_ERRORS, too_new
from callboard.log.limits import STEP_ITEMS

Event = tuple[Any, ...]

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
"""leased, passed over, acked, nacked, released, ran out, all leases voided, skipped, dead-lettered, forgotten; gone on
from elsewhere; what an ack publishes, which is an event of the partition's outbox and none of the delivery;
dead-lettered because they expired. Then two that older versions pass over: records have failed in a consumer; a
consumer has a name."""

PUBLISHED: Final = "O"
ENTRIES_MOST: Final = 2**20
"""An event that claims to publish more is damaged."""


MOMENTS: Final = {"N": 2, "D": 2, "E": 2, "t": 1}
"""The events with an instant, and where in the event that is."""


IN_PARTS: Final = ("A", "N", "R", "t")
"""The events whose last field is ranges, any number of them: to apply them is to apply parts of them in turn."""


class DeliveryEventInvalid(CallboardError, ValueError):
    """Stored bytes or events describe no possible history of a delivery."""


def takes_steps(event: Event) -> bool:
    """Whether to apply it takes more than a step."""
    return event[0] == "V" or (event[0] in IN_PARTS and len(event[-1]) > 2 * STEP_ITEMS)


def parts_of(event: Event) -> list[Event]:
    """Events that a step handles each, and that say the same as this one together."""
    if not takes_steps(event) or event[0] == "V":
        return [event]
    ranges, size = event[-1], 2 * STEP_ITEMS
    return [(*event[:-1], ranges[at : at + size]) for at in range(0, len(ranges), size)]


class GroupEvents(NamedTuple):
    """What changed in a group, to be journalled."""

    group_id: int
    events: list[Event]

    def record(self, wall_offset_s: float) -> bytes:
        """The journal record. `wall_offset_s` is wall minus monotonic time: delays outlive the process."""
        events = self.events
        for event in events:
            if event[0] in MOMENTS:
                events = _shifted(events, wall_offset_s)
                break
        return cbor2.dumps([EVENTS, self.group_id, events])


def decode_events(found: Any, *, wall_offset_s: float = 0.0) -> list[Event]:
    """The events in what CBOR holds. Raises DeliveryEventInvalid, and `FormatTooNew` for an unknown mandatory one."""
    if type(found) is not list:
        raise DeliveryEventInvalid("Delivery events are not an array.")
    events = [event for stored in found if (event := _checked(stored)) is not None]
    return _shifted(events, -wall_offset_s)


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


def _shifted(events: list[Event], seconds: float) -> list[Event]:
    """The events with the instants in them moved: delayed nacks and dead letters have one."""
    shifted = []
    for event in events:
        at = MOMENTS.get(event[0], 0)
        if at and event[at] is not None:
            event = (*event[:at], event[at] + seconds, *event[at + 1 :])
        shifted.append(event)
    return shifted


def _checked(event: Any) -> Event | None:
    """The event without what a later version appended; None when all of it may be ignored."""
    if type(event) is not list or not event or type(event[0]) is not str:
        raise DeliveryEventInvalid("A delivery event has no kind.")
    kind = event[0]
    if kind == "S" and len(event) == 4 and event[3] is None and _are_pairs(event[1:3]):
        return tuple(event)  # delayed messages may be cancelled by the hundred thousand
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
    if kind == "S" and fields[1] >= fields[2]:
        raise DeliveryEventInvalid("A delivery event S has an empty range.")
    if kind == PUBLISHED and not 0 < fields[4] - fields[3] <= ENTRIES_MOST:
        raise DeliveryEventInvalid("A delivery event O names no payloads, or too many.")
    return tuple(fields)


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
