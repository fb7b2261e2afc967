"""A delayed record as it is stored while it waits, and what becomes of it when it is due. Pure.

It is stored as it was published, with one more header, `callboard-delayed`, which holds what must not take effect yet:

======  =====  ==========================================================================
bytes   type   what
======  =====  ==========================================================================
0       u8     1: a delay, by the monotonic clock; 2: an instant, by the wall clock
1-8     i64    when it is due, microseconds since 1970
9-16    i64    of a delay: when it is due by the monotonic clock, microseconds
17-24   u64    of a delay: the run whose monotonic clock that is
25-32   i64    of a delay: how long it is, in microseconds
33-40   i64    the event's own time, microseconds since 1970; the lowest number: none
41-48   i64    its time to live in microseconds from its append on; the lowest number: none
======  =====  ==========================================================================

All are little-endian. When it is due it is published without the header, by a source (`producers`): a producer of the
waiting partition and its numbering, whose sequence is the number that the record got when it was set aside. Numbers
rise in the order in which records were due, so the partition that takes them keeps that order, and knows what it has
already.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from callboard.actors.records.source_records import packable, source_records, unpacked
from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns, set_headers

DELAYED: Final = "callboard-delayed"
"""The header."""
NAME: Final = DELAYED.encode()
FORM: Final = struct.Struct("<BqqQqqq")
DELAY: Final = 1
INSTANT: Final = 2


class DueTime(NamedTuple):
    """When a record is due, and what takes effect then."""

    due_us: int
    """Wall time."""
    deadline_us: int | None = None
    """By the monotonic clock of `run`; None for one that follows the wall clock."""
    run: int = 0
    delay_us: int = 0
    """How long the delay is."""
    time_us: int | None = None
    """The event's own time."""
    ttl_us: int | None = None

    @property
    def is_instant(self) -> bool:
        """Whether it follows the wall clock."""
        return self.deadline_us is None

    def packed(self) -> bytes:
        """The header's value."""
        kind = INSTANT if self.deadline_us is None else DELAY
        rest = packable(self.time_us, self.ttl_us)
        return FORM.pack(kind, self.due_us, self.deadline_us or 0, self.run, self.delay_us, *rest)


def due_of(header: bytes | None) -> DueTime | None:
    """What a header says; None when it says nothing."""
    if header is None or len(header) != FORM.size:
        return None
    kind, due_us, deadline_us, run, delay_us, *rest = FORM.unpack(header)
    if kind not in (DELAY, INSTANT):
        return None
    return DueTime(due_us, deadline_us if kind == DELAY else None, run, delay_us, *unpacked(*rest))


def moments_of(columns: Columns) -> Sequence[tuple[int, ...]]:
    """(Kind, due, deadline, run, delay) by the headers of a batch; what has none was due long ago.

    Without other headers they lie one behind the other, and a million of them are read when a directory opens.
    """
    (names, _), (values, _) = columns.header_columns()
    count = columns.count
    if len(values) == FORM.size * count and bytes(names) == NAME * count:
        rows = list(FORM.iter_unpack(values))
        if {row[0] for row in rows} <= {DELAY, INSTANT}:
            return [row[:5] for row in rows]
    dues = [due_of(headers.get(DELAYED)) or DueTime(0) for headers in columns.header_list()]
    return [
        (INSTANT if due.is_instant else DELAY, due.due_us, due.deadline_us or 0, due.run, due.delay_us)
        for due in dues
    ]


def waiting_columns(columns: Columns, dues: Sequence[DueTime], run: int) -> Columns:
    """Records as they are stored while they wait, of what is to be published; their deadlines belong to `run`."""
    headers = columns.header_list()
    ttls = columns.ttls or [None] * columns.count
    for index, due in enumerate(dues):
        time_us, ttl_us = columns.event_time(index), ttls[index]
        headers[index][DELAYED] = due._replace(run=run, time_us=time_us, ttl_us=ttl_us).packed()
    set_headers(columns, headers)
    columns.event_times = columns.ttls = None
    return columns


def with_due(attributes: Mapping[str, Any], due: DueTime) -> dict[str, Any]:
    """The attributes of one record that waits, by the names of `Columns.build`, of those of what is to be published."""
    rest = {name: item for name, item in attributes.items() if name not in ("event_times", "ttls")}
    header = due._replace(time_us=attributes.get("event_times"), ttl_us=attributes.get("ttls")).packed()
    return {**rest, "headers": {**(attributes.get("headers") or {}), DELAYED: header}}


def moved(source: int, found: Sequence[tuple[int, Columns, int]]) -> Columns:
    """The batch that `source` publishes, of (number, columns, index) in order of number."""
    return source_records(source, found, DELAYED, due_of)


def check_no_due(headers: Mapping[str, Any] | None, index: int | None = None) -> None:
    """Raise `InvalidArgument` for a message with a header of its own under the name that says when one is due."""
    if headers is not None and DELAYED in headers:
        what = "the message" if index is None else f"message {index}"
        raise InvalidArgument(
            f"{what} has a header {DELAYED!r}, in which a delayed message keeps when it is due. Nothing was written."
            " Name the header otherwise, or publish without a delay.",
            index=index,
        )
