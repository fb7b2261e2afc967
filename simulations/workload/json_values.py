"""JSON that stays JSON when a value is made longer or shorter, or read in part. Pure."""

from __future__ import annotations

import json
import re
from typing import Final

_ESCAPES = re.compile(rb"\\.", re.DOTALL)
_IN_A_STRING: Final = bytes(
    byte if 0x20 <= byte < 0x7F and byte not in b'"\\' else 0x20 for byte in range(256)
)
"""Each byte, or a blank for one that ends a string, or is none."""
_BRACKETS: Final = {ord("{"): (b'{"":"', b'"}'), ord("["): (b'["', b'"]')}
_CLOSING: Final = {"{": "}", "[": "]"}
_PARTS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)


def is_json(value: bytes) -> bool:
    """Whether it is an object or array of JSON."""
    if value.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def quotes_of(mark: bytes) -> int:
    """How many strings begin or end in what stands between words."""
    return _ESCAPES.sub(b"", mark).count(b'"')


def wrapped(value: bytes) -> bytes:
    """JSON of the same length: an object or array, as the value begins, of one string that has the rest of it."""
    value = value.lstrip() + value[: len(value) - len(value.lstrip())]
    opening, closing = _BRACKETS.get(value[0] if value else 0, (b'"', b'"'))
    room = len(value) - len(opening) - len(closing)
    if room >= 0:
        return opening + value[-room:].translate(_IN_A_STRING) + closing if room else opening + closing
    if len(value) < 2:
        return b"1" * len(value)
    return opening[:1] + b" " * (len(value) - 2) + closing[-1:]


def closed(text: str) -> str:
    """The beginning of JSON, up to the last member that is whole, with all brackets closed; else the text as it is."""
    brackets: list[str] = []
    stop, missing = 0, ""
    for part in _PARTS.finditer(text):
        mark = part[0]
        if mark in _CLOSING:
            brackets.append(_CLOSING[mark])
            if len(brackets) > 1:
                continue
            stop = part.end()
        elif mark[0] == '"' or not brackets:
            continue
        elif mark == ",":
            stop = part.start()
        else:
            brackets.pop()
            stop = part.end()
        missing = "".join(reversed(brackets))
        if not missing:
            break
    return text[:stop] + missing if stop else text
