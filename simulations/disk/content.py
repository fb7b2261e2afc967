"""The bytes of a file, without the zeros at its end: those are a number.

Files are zeroed ahead by megabytes, so a *content* is a stored prefix and a length; what lies between them reads as
zeros and costs nothing to keep, copy or compare.

Invariant
---------
M4  The stored prefix is never longer than the length.
"""

from __future__ import annotations

import attrs

from callboard.log.seams.disk import Buffer


@attrs.define(eq=False)
class Content:
    """See the module's docstring."""

    stored: bytearray = attrs.Factory(bytearray)
    length: int = 0

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content):
            return NotImplemented
        return self.length == other.length and self.stored.rstrip(b"\0") == other.stored.rstrip(b"\0")

    def __bytes__(self) -> bytes:
        return self.read(0, self.length)

    def copy(self) -> Content:
        """One that changes on its own."""
        return Content(self.stored[:], self.length)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, or to the end."""
        stop = min(stop, self.length)
        piece = bytes(self.stored[start:stop])
        return piece.ljust(stop - start, b"\0")

    def write(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`; a gap before it reads as zeros."""
        stored = self.stored
        end = offset + len(data)
        if offset > len(stored):
            stored += bytes(offset - len(stored))
        stored[offset:end] = data
        if end > self.length:
            self.length = end

    def zero(self, start: int, stop: int) -> None:
        """Put zeros from `start` to `stop`."""
        stored = self.stored
        if stop >= len(stored):
            del stored[start:]
        else:
            stored[start:stop] = bytes(stop - start)
        if stop > self.length:
            self.length = stop

    def resize(self, length: int) -> None:
        """Cut, or extend with zeros."""
        del self.stored[length:]
        self.length = length

    def take(self, other: Content, start: int, stop: int) -> None:
        """Put there what `other` has from `start` to `stop`; neither length changes, and nothing past one moves."""
        stop = min(stop, self.length, other.length)
        if start >= stop:
            return
        piece = other.stored[start:stop]
        if piece:
            self.write(start, piece)
        if start + len(piece) < stop:
            self.zero(start + len(piece), stop)
