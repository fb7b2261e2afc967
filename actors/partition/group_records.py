"""The records by which the delivery journal of a partition rebuilds the states of its groups. Pure.

A record (version 1) is one CBOR item:

======  ===================================================================================
kind    record
======  ===================================================================================
EVENTS  array [EVENTS, group id, the delivery events of one step], see `delivery.events`
OPEN    map: kind, group, durable, start (an offset), numbering, birth, since_us; what else it has is kept
CLOSE   map: kind, group
SENT    map: kind, numbers (ranges of them): these entries of the outbox are forwarded
======  ===================================================================================

In version 0 a record is a 5-byte prefix (group id u32, kind u8, little-endian) and a body: the events, CBOR [durable,
start offset], or nothing.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cbor2

from callboard.actors.delivery.events import EVENTS, load
from callboard.actors.delivery.snapshot import number
from callboard.actors.partition.group_state import GroupState
from callboard.actors.partition.outbox.entries import as_ranges, from_ranges
from callboard.log.errors import JournalInvalid
from callboard.log.format.fields import check_kind, unknown_fields

RECORDS_VERSION: Final = 1
"""The form in which records are written; older ones are read."""
PREFIX: Final = struct.Struct("<IB")
OPEN: Final = 1
CLOSE: Final = 2
SENT: Final = 3
KINDS: Final = (EVENTS, OPEN, CLOSE)
OPEN_FIELDS: Final = ("kind", "group", "durable", "start", "numbering", "birth", "since_us")
CLOSE_FIELDS: Final = ("kind", "group")
SENT_FIELDS: Final = ("kind", "numbers")
GROUP_ID_END: Final = 2**32
Stored = tuple[int, int, Any, dict[str, Any]]
"""Kind, group id, body (the events; or whether a group is durable, where it starts, its numbering, its birth, and since
when it is open), and fields not known here."""


def opening_record(group: GroupState) -> bytes:
    """The record of a group's opening, to be journalled before anything else of it."""
    since_us, group.unwritten_since_us = group.unwritten_since_us, None
    opened = {"kind": OPEN, "group": group.group_id, "durable": group.durable, "start": group.opened_at}
    since = {"since_us": since_us} if since_us else {}
    return cbor2.dumps(opened | besides(group.delivery.dead.numbering, group.birth) | since)


def closing_record(group_id: int) -> bytes:
    """The record of a group's end."""
    return cbor2.dumps({"kind": CLOSE, "group": group_id})


def sent_record(numbers: list[int]) -> bytes:
    """The record of entries of the outbox that are forwarded."""
    return cbor2.dumps({"kind": SENT, "numbers": as_ranges(numbers)})


def parsed_record(record: bytes, version: int) -> Stored:
    """What one record says. Raises `JournalInvalid`, `FormatTooNew`."""
    try:
        return _record(record) if version else _record_of_version_0(record)
    except ValueError as error:
        raise senseless(f"a record does not parse: {error}", None) from error


def besides(numbering: int, birth: int) -> dict[str, int]:
    """The fields of a group that one of an older version does not have."""
    return {name: found for name, found in (("numbering", numbering), ("birth", birth)) if found}


def _record(record: bytes) -> Stored:
    """One record of version 1. Raises ValueError, `FormatTooNew`."""
    found = load(record)
    if type(found) is list and len(found) > 0:
        if not check_kind(found[0], (EVENTS,), "a record of the delivery journal"):
            return found[0], 0, None, {}
        if len(found) < 3:
            raise ValueError("it has too few items")
        return EVENTS, group_id_of(found[1]), found[2], {}
    if type(found) is not dict:
        raise ValueError("it is neither an array nor a map")
    kind = found.get("kind")
    if not check_kind(kind, (OPEN, CLOSE, SENT), "a record of the delivery journal"):
        return int(found["kind"]), 0, None, {}
    if kind == SENT:
        unknown_fields(found, SENT_FIELDS, "what an outbox has sent")
        return SENT, 0, from_ranges(found.get("numbers")), {}
    if kind == CLOSE:
        unknown_fields(found, CLOSE_FIELDS, "the end of a group")
        return CLOSE, group_id_of(found.get("group")), None, {}
    unknown = unknown_fields(found, OPEN_FIELDS, "the opening of a group")
    others = [number(found.get(name, 0)) for name in ("numbering", "birth", "since_us")]
    opened = flag(found.get("durable")), number(found.get("start")), *others
    return OPEN, group_id_of(found.get("group")), opened, unknown


def _record_of_version_0(record: bytes) -> Stored:
    if len(record) < PREFIX.size:
        raise ValueError(f"{len(record)} bytes have no prefix")
    group_id, kind = PREFIX.unpack_from(record)
    check_kind(kind, KINDS, "a record of the delivery journal")
    if kind == CLOSE:
        return kind, group_id, None, {}
    body = load(record[PREFIX.size :])
    if kind == EVENTS:
        return kind, group_id, body, {}
    if type(body) is not list or len(body) != 2:
        raise ValueError("the opening of a group has not two fields")
    return kind, group_id, (flag(body[0]), number(body[1]), 0, 0, 0), {}


def group_id_of(found: Any) -> int:
    """`found`, when it is the id of a group. Raises ValueError when it is not."""
    if type(found) is not int or not 0 <= found < GROUP_ID_END:
        raise ValueError(f"{found!r:.40} is no group's id")
    return found


def flag(found: Any) -> bool:
    """`found`, when it is true or false. Raises ValueError when it is neither."""
    if type(found) is not bool:
        raise ValueError(f"{found!r:.40} is not true or false")
    return found


def senseless(what: str, group_id: int | None) -> JournalInvalid:
    """The error for a journal that cannot be believed."""
    return JournalInvalid(f"the delivery journal makes no sense: {what.rstrip('.')}", path="", group=group_id)
