"""All groups' delivery states of one partition, and the records by which the shared delivery journal rebuilds them.

One journal serves all groups of a partition, so that a commit pays one extra sync however many groups there are. A
journal record is a 5-byte prefix (group id u32, kind u8, little-endian) and a body:

======  ==================================================================
kind    body
======  ==================================================================
EVENTS  the delivery events of one step, as `delivery_events` encodes them
OPEN    CBOR [durable, start offset]
CLOSE   empty
======  ==================================================================

After damage the journal is *salvaged*: what is settled stays settled, and nothing else is believed, since an event
makes no sense without those before it that are lost. Attempts and delays are forgotten, and what was acked in the lost
part is delivered again.

A snapshot is the CBOR map {group id: [durable, delivery snapshot]}. Everything read back is untrusted: a record that
does not parse raises `LogCorrupt` and changes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs
import cbor2

from callboard.actors.delivery.delivery import Delivery
from callboard.actors.delivery.events import DeliveryEventInvalid, Event, decode_events, encode_events
from callboard.actors.partition.commands import DeliverySettings
from callboard.log.errors import LogCorrupt

PREFIX: Final = struct.Struct("<IB")
EVENTS: Final = 0
OPEN: Final = 1
CLOSE: Final = 2


@attrs.define(eq=False)
class Group:
    """One group in this partition: its settings and delivery state, and the consumers that wait for something ready."""

    group_id: int
    durable: bool
    delivery: Delivery
    settings: DeliverySettings | None = None
    """None until a member has opened the group in this process."""
    waiting: dict[int, Any] = attrs.field(factory=dict)
    """Tokens by consumer, who waits longest first."""
    notified: dict[int, float] = attrs.field(factory=dict)
    """Consumers that were notified and have not fetched since: until when their fetch is waited for."""
    lost_records: int = 0


class GroupEvents(NamedTuple):
    """What changed in a group, to be journalled."""

    group_id: int
    events: list[Event]

    def record(self, wall_offset_s: float) -> bytes:
        """The journal record.

        `wall_offset_s` is wall time minus monotonic time: delays outlive the process as wall times.
        """
        return PREFIX.pack(self.group_id, EVENTS) + encode_events(self.events, wall_offset_s=wall_offset_s)


class GroupStates:
    """The groups of one partition by id."""

    def __init__(self, wall_offset_s: float = 0.0, *, opened_us: int = 0, salvaging: bool = False) -> None:
        self._opened_us = opened_us
        self._opened_offset_s = wall_offset_s
        self.groups: dict[int, Group] = {}
        self._salvaging = salvaging
        self._salvaged_end = 0
        self._wall_offset_s = wall_offset_s

    def open(self, group_id: int, durable: bool, start: int) -> tuple[Group, bytes]:
        """Add a group whose floor is `start`; returns it and the record to journal."""
        group = Group(group_id, durable, Delivery(start))
        self.groups[group_id] = group
        return group, PREFIX.pack(group_id, OPEN) + cbor2.dumps([durable, start])

    def close(self, group_id: int) -> bytes | None:
        """Forget a group; returns the record to journal, or None when there is no such group."""
        if self.groups.pop(group_id, None) is None:
            return None
        return PREFIX.pack(group_id, CLOSE)

    def written(self, wall_us: int) -> None:
        """What is replayed next was written at `wall_us`. If that is still to come, the clock was set back meanwhile:

        delays then run from when they were written, so none gets longer than it was asked to be.
        """
        self._wall_offset_s = self._opened_offset_s + max(0, wall_us - self._opened_us) / 1e6

    def apply(self, record: bytes) -> None:
        """Replay one journal record. Raises `LogCorrupt`."""
        if len(record) < PREFIX.size:
            raise _corrupt(f"a record of {len(record)} bytes has no prefix")
        group_id, kind = PREFIX.unpack_from(record)
        body = record[PREFIX.size :]
        if kind == OPEN:
            durable, start = _open_body(body)
            if group_id not in self.groups:
                self.groups[group_id] = Group(group_id, durable, Delivery(start))
        elif kind == CLOSE:
            self.groups.pop(group_id, None)
        elif kind == EVENTS:
            self._apply_events(group_id, body)
        else:
            raise _corrupt(f"a record has the unknown kind {kind}")

    def _apply_events(self, group_id: int, body: bytes) -> None:
        if self._salvaging:
            self._salvage_events(group_id, body)
            return
        group = self.groups.get(group_id)
        if group is None:
            raise _corrupt(f"events name group {group_id}, which was never opened")
        try:
            for event in decode_events(body, wall_offset_s=self._wall_offset_s):
                group.delivery.apply(event)
        except DeliveryEventInvalid as error:
            raise _corrupt(f"events of group {group_id}: {error}") from error

    def _salvage_events(self, group_id: int, body: bytes) -> None:
        """Settle what the events settle; remember what they name, so that it is not given away again."""
        group = self.groups.setdefault(group_id, Group(group_id, True, Delivery(0)))
        delivery = group.delivery
        try:
            events = decode_events(body)
        except DeliveryEventInvalid as error:
            raise _corrupt(f"events of group {group_id}: {error}") from error
        for event in events:
            if event[0] == "A":
                bounds = event[2]
                for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
                    delivery.skip(start, stop)
            elif event[0] == "S":
                delivery.skip(event[1], event[2])
            elif event[0] == "L":
                delivery.next_lease_id = max(delivery.next_lease_id, event[1] + 1)
                self._salvaged_end = max(self._salvaged_end, event[3][-2])
        delivery.take_events()

    def snapshot(self, wall_offset_s: float) -> bytes:
        """Everything, as one CBOR map; `wall_offset_s` as for `Group.events_record`."""
        return cbor2.dumps(
            {
                group.group_id: [group.durable, group.delivery.snapshot(wall_offset_s=wall_offset_s)]
                for group in self.groups.values()
            }
        )

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot. Raises `LogCorrupt`."""
        try:
            decoded: Any = cbor2.loads(data)
            groups = {
                int(group_id): Group(
                    int(group_id), bool(durable), Delivery.restore(state, wall_offset_s=self._wall_offset_s)
                )
                for group_id, (durable, state) in decoded.items()
            }
        except (cbor2.CBORDecodeError, DeliveryEventInvalid, ValueError, TypeError, AttributeError) as error:
            raise _corrupt(f"the snapshot does not parse: {error}") from error
        self.groups = groups

    def named_end(self) -> int:
        """One above the highest offset that any group names."""
        return max(self._salvaged_end, *(group.delivery.next for group in self.groups.values()), 0)

    def unsettled_from(self, otherwise: int) -> int:
        """The lowest offset that a durable group has not settled."""
        return min((g.delivery.floor for g in self.groups.values() if g.durable), default=otherwise)

    def next_deadline(self) -> float | None:
        """The earliest monotonic time at which some group has something to expire or to hand out again."""
        deadlines = (group.delivery.next_deadline() for group in self.groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups.values())


def _open_body(body: bytes) -> tuple[bool, int]:
    try:
        durable, start = cbor2.loads(body)
    except (cbor2.CBORDecodeError, ValueError, TypeError) as error:
        raise _corrupt(f"the opening of a group does not parse: {error}") from error
    if not isinstance(durable, bool) or isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise _corrupt(f"the opening of a group is malformed: {durable!r}, {start!r}")
    return durable, start


def _corrupt(what: str) -> LogCorrupt:
    return LogCorrupt(
        f"delivery journal: {what}. Run `callboard verify`, then `callboard repair`.", path="", offsets=None
    )
