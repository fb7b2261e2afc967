"""What all traffic is made of: one event, whatever it was read from or made by."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Final

import attrs

from callboard.message import from_us

LINE_BYTES_MAX: Final = 65_536
"""A longer record is a bad line. Readers may hand over `LINE_BYTES_MAX + 1` bytes of it and drop the rest."""
_DIGEST_BYTES = 8


@attrs.frozen(slots=True)
class Event:
    """What happened at `time_us` (microseconds since 1970, UTC): publish `value` under `key`."""

    time_us: int
    key: bytes | None
    value: bytes

    @property
    def time(self) -> dt.datetime:
        """`time_us` as a zoned datetime."""
        return from_us(self.time_us)

    @property
    def digest(self) -> int:
        """A 64-bit fingerprint of key and value; see `digest_of`."""
        return digest_of(self.key, self.value)


def digest_of(key: bytes | None, value: bytes) -> int:
    """A 64-bit fingerprint of a key and a value; no key and an empty key differ."""
    state = hashlib.blake2b(b"-" if key is None else b"+%d:" % len(key), digest_size=_DIGEST_BYTES)
    state.update(key or b"")
    state.update(value)
    return int.from_bytes(state.digest(), "little")
