"""The elements of a JSON array, which is a whole file or a member of the object that is, sans I/O. What is held at a
time is bounded, whatever the file says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from callboard.log.errors import InvalidArgument
from callboard.traffic.event import LINE_BYTES_MAX

NAME_BYTES_MAX: Final = 1_024
"""A member of an object with a longer name is not the one that is looked for."""

_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_SIGNS: Final = re.compile(rb'["\[\]{},:]')
_INSIDE: Final = re.compile(rb'["\\]')


class Elements:
    """The elements of one JSON array, as they are written there. What follows the array is one more, which is none."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._depth = 0
        self._is_text = False
        self._is_escaped = False
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the array has ended."""
        return self._is_over

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The elements that end in `piece`; one that is longer than `LINE_BYTES_MAX` is cut."""
        start = at = 0
        while at < len(piece) and not self._is_over:
            if self._is_escaped:
                self._is_escaped, at = False, at + 1
                continue
            found = (_INSIDE if self._is_text else _OUTSIDE).search(piece, at)
            if found is None:
                break
            at, sign = found.end(), found[0]
            if sign == b'"':
                self._is_text = not self._is_text
            elif sign == b"\\":
                self._is_escaped = True
            elif sign in b"[{":
                self._depth += 1
                if self._depth == 1:
                    start = at
            elif sign in b"]}":
                self._depth -= 1
                self._is_over = self._depth <= 0
            if (sign == b"," and self._depth == 1) or self._is_over:
                self._keep(piece[start : at - 1])
                if (element := self._taken()) or not self._is_over:
                    yield element
                start = at
        if self._depth or self._is_over:
            self._keep(piece[start:])

    def end(self) -> bytes:
        """What is left when the file ends: blank if the array had ended."""
        return self._taken()

    def _keep(self, part: bytes) -> None:
        if not self._held:
            part = part.lstrip()
        self._held += part[: LINE_BYTES_MAX + 1 - len(self._held)]

    def _taken(self) -> bytes:
        taken = bytes(self._held).rstrip()
        self._held.clear()
        return taken


class ArrayInObject:
    """Looks for an array that is a member of the object that a file holds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = bytearray()
        """The string that began last outside of all members, as it is written."""
        self._depth = 0
        self._is_text = self._is_escaped = self._is_named = False

    def feed(self, piece: bytes) -> int | None:
        """Where the array begins in `piece`; None when it does not."""
        at = 0
        while at < len(piece):
            if self._is_escaped:
                self._text += piece[at : at + 1]
                self._is_escaped, at = False, at + 1
                continue
            found = (_INSIDE if self._is_text else _SIGNS).search(piece, at)
            end = len(piece) if found is None else found.end()
            if self._is_text and self._depth == 1:
                self._text += piece[at : min(end, at + max(0, NAME_BYTES_MAX - len(self._text)))]
            at = end
            if found is None:
                break
            sign = found[0]
            if sign == b"\\":
                self._is_escaped = True
            elif sign == b'"':
                self._is_text = not self._is_text
                if self._is_text:
                    self._text.clear()
            elif sign == b":":
                self._is_named = self._depth == 1 and self._is_its_name()
            elif sign == b"[" and self._is_named and self._depth == 1:
                return at - 1
            else:
                self._depth += (sign in b"[{") - (sign in b"]}")
                self._is_named = False
        return None

    def _is_its_name(self) -> bool:
        try:
            return bool(json.loads(b'"' + self._text) == self._name)
        except ValueError:
            return False


def elements(pieces: Iterable[bytes], within: str | None = None, path: str = "the file") -> Iterator[bytes]:
    """The elements of the file `path` that holds one JSON array, from its pieces.

    With `within` it holds one object, and the array is its member of that name; what follows the array is not looked
    at. Raises `InvalidArgument` when there is none.
    """
    array = Elements()
    for piece in pieces if within is None else _inside(iter(pieces), within, path):
        yield from array.feed(piece)
        if within is not None and array.is_over:
            return
    if rest := array.end():
        yield rest


def _inside(pieces: Iterator[bytes], name: str, path: str) -> Iterator[bytes]:
    """The pieces from the beginning of the member on."""
    member = ArrayInObject(name)
    for piece in pieces:
        start = member.feed(piece)
        if start is not None:
            yield piece[start:]
            yield from pieces
            return
    raise InvalidArgument(
        f"{path} holds no JSON object with an array {name!r:.80}. Name the member whose elements are the records."
    )
