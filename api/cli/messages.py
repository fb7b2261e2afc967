"""Messages as JSON: what `consume --json` prints and `publish --json-lines` reads, attribute by attribute.

Bytes are text when they are UTF-8, else `{"base64": ...}`; instants are ISO 8601; a tombstone's value is null.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime
from typing import Any

from callboard.cli.output import plain_bytes
from callboard.message import ATTRIBUTES, Message, Record, to_us

FIELDS = frozenset({"value", "delay", "deliver_at", *(attribute.name for attribute in ATTRIBUTES)})
"""The fields of a message to publish."""


def record_to_json(record: Record) -> dict[str, Any]:
    """A record, for `to_json`."""
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "value": None if record.is_tombstone else plain_bytes(record.value),
    }
    for attribute in ATTRIBUTES:
        item = getattr(record, attribute.name)
        if item is None and attribute.is_rare:
            continue
        found[attribute.name] = None if item is None else _TO_JSON[attribute.kind](item)
    found["append_time"] = record.append_time.isoformat()
    if hasattr(record, "attempt"):
        found["attempt"] = record.attempt
    return found


def message_from_json(found: dict[str, Any]) -> Message:
    """A message from a map of `FIELDS`. Raises `ValueError`."""
    given = {
        attribute.name: _FROM_JSON[attribute.kind](attribute.name, found[attribute.name])
        for attribute in ATTRIBUTES
        if found.get(attribute.name) is not None
    }
    if found.get("delay") is not None:
        given["delay"] = _number("delay", found["delay"])
    if found.get("deliver_at") is not None:
        given["deliver_at"] = _instant("deliver_at", found["deliver_at"])
    return Message(_bytes("value", found["value"]), **given)


def _bytes(what: str, found: Any) -> bytes:
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, dict) and set(found) == {"base64"} and isinstance(found["base64"], str):
        try:
            return base64.b64decode(found["base64"], validate=True)
        except ValueError as error:
            raise ValueError(f"the base64 of {what} is none ({error})") from error
    raise ValueError(f'{what} is neither text nor {{"base64": text}}')


def _headers(what: str, found: Any) -> dict[str, bytes]:
    if not isinstance(found, dict):
        raise ValueError(f"{what} are no object")
    return {name: _bytes(f"header {name!r:.40}", value) for name, value in found.items()}


def _instant(what: str, found: Any) -> datetime:
    if not isinstance(found, str):
        raise ValueError(f"{what} is no text")
    instant = datetime.fromisoformat(found)
    to_us(instant)
    return instant


def _number(what: str, found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ValueError(f"{what} is no number")
    return found


_TO_JSON: dict[str, Callable[[Any], Any]] = {
    "bytes": plain_bytes,
    "headers": lambda headers: {name: plain_bytes(value) for name, value in headers.items()},
    "instant": datetime.isoformat,
    "number": lambda number: number,
}
_FROM_JSON: dict[str, Callable[[str, Any], Any]] = {
    "bytes": _bytes,
    "headers": _headers,
    "instant": _instant,
    "number": _number,
}
