"""What an ack publishes, as it is stored in the outbox, and what becomes of it in its topic. Pure.

It is stored as it is to be published, with one more header, `callboard-outbox`, which says where to, whose it is, and
what must not take effect yet:

======  =====  ==========================================================================
bytes   type   what
======  =====  ==========================================================================
0       u8     1; 2: it is delayed, and goes to the waiting partition, as it is to be stored there
1-4     u32    the partition of the target topic
5-8     u32    the group whose ack publishes it
9-16    u64    the receipt of that ack
17-24   i64    the event's own time, microseconds since 1970; the lowest number: none
25-32   i64    its time to live in microseconds from its append on; the lowest number: none
33-     text   the id of the target topic
======  =====  ==========================================================================

All are little-endian. It is published without the header, by a source (`producers`): a producer of the partition whose
acks publish, and of its numbering, whose sequence is the number of the entry that names it. Numbers rise in the order
of the acks, so each partition that takes such messages keeps that order, and knows what it has already.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from callboard.actors.companions import waiting_folder
from callboard.actors.records.source_records import packable, source_records, unpacked
from callboard.log.format.columns import Columns

HEADER: Final = "callboard-outbox"
FORM: Final = struct.Struct("<BIIQqq")
VERSION: Final = 1
DELAYED: Final = 2


class Target(NamedTuple):
    """A partition that messages are for."""

    topic_id: str
    partition: int
    waits: bool = False
    """Whether they are for its waiting partition (`callboard.actors.companions`)."""

    def __str__(self) -> str:
        """As a path says it, below `topics`."""
        return f"{self.topic_id}/{self.folder}"

    @property
    def folder(self) -> str:
        """The partition's name within its topic."""
        return waiting_folder(self.partition) if self.waits else str(self.partition)


class Addressed(NamedTuple):
    """What the header of a payload says."""

    target: Target
    group_id: int
    lease_id: int
    time_us: int | None = None
    ttl_us: int | None = None

    def packed(self) -> bytes:
        """The header's value."""
        rest = packable(self.time_us, self.ttl_us)
        form = DELAYED if self.target.waits else VERSION
        fixed = FORM.pack(form, self.target.partition, self.group_id, self.lease_id, *rest)
        return fixed + self.target.topic_id.encode()


def addressed(header: bytes | None) -> Addressed | None:
    """What a header says; None when it says nothing."""
    if header is None or len(header) <= FORM.size:
        return None
    form, partition, group_id, lease_id, *rest = FORM.unpack_from(header)
    if form not in (VERSION, DELAYED):
        return None
    target = Target(header[FORM.size :].decode("utf-8", "replace"), partition, waits=form == DELAYED)
    return Addressed(target, group_id, lease_id, *unpacked(*rest))


class Payload(NamedTuple):
    """A message that is to be published with an ack."""

    target: Target
    value: bytes
    key: bytes | None
    attributes: dict[str, Any]
    """What else it carries, by the names of `Columns.build`."""


def payload_columns(payloads: Sequence[Payload], group_id: int, lease_id: int) -> Columns:
    """The batch that is stored in the outbox."""
    headers, priorities = [], []
    for each in payloads:
        found = each.attributes
        header = Addressed(each.target, group_id, lease_id, found.get("event_times"), found.get("ttls"))
        headers.append({**(found.get("headers") or {}), HEADER: header.packed()})
        priorities.append(found.get("priorities"))
    return Columns.build(
        [each.value for each in payloads],
        [each.key for each in payloads],
        headers,
        priorities=None if all(each is None for each in priorities) else priorities,
    )


def published(source: int, found: Sequence[tuple[int, Columns, int]]) -> Columns:
    """The batch that `source` publishes, of (number, columns, index) in order of number, all for one partition."""
    return source_records(source, found, HEADER, addressed)
