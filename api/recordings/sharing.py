"""A share of a recording by whole keys: all records of a key are in it, or none. Pure.

Each key has a word of 64 bits, a hash of the seed and the key, and is in the share when the word lies below the
fraction of all words. So the choice depends on nothing else: not on the recording, the order, nor on what reads it; and
a larger share holds all of a smaller one. Records without a key are chosen one by one, by their offset.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import attrs

from callboard.log.errors import InvalidArgument
from callboard.log.format.columns import Columns
from callboard.recordings.copying import runs_of_kept
from callboard.recordings.reader import READ_RECORDS

WORDS: Final = 1 << 64
SEED: Final = "0"
DENOMINATOR_MAX: Final = 1_000_000
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,6})?|\d{1,9}/\d{1,9}", re.ASCII)


@attrs.frozen
class Share:
    """Which keys, and which records without one, are in a fraction of all."""

    fraction: Fraction
    seed: str = SEED
    _secret: bytes = attrs.field(init=False, repr=False, eq=False)

    @_secret.default
    def _hashed_seed(self) -> bytes:
        return hashlib.blake2b(self.seed.encode(errors="surrogateescape"), digest_size=32).digest()

    def holds_key(self, key: bytes) -> bool:
        """Whether the records of this key are in it."""
        return self._holds(b"k", key)

    def holds_offset(self, offset: int) -> bool:
        """Whether the record without a key at this offset of its partition is in it."""
        return self._holds(b"o", b"%d" % offset)

    def _holds(self, kind: bytes, text: bytes) -> bool:
        digest = hashlib.blake2b(text, digest_size=8, key=self._secret, person=kind).digest()
        return int.from_bytes(digest, "little") * self.fraction.denominator < WORDS * self.fraction.numerator


class ShareFilter:
    """Keeps the records that are in a share."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._known: dict[bytes, bool] = {}

    def parts(self, columns: Columns) -> list[tuple[int, int]]:
        """The runs of records that are kept, as (start, stop)."""
        return runs_of_kept(self._kept(columns))

    def _kept(self, columns: Columns) -> Iterable[bool]:
        for index, key in enumerate(columns.key_list()):
            yield self._share.holds_offset(columns.offset(index)) if key is None else self._keeps(key)

    def _keeps(self, key: bytes) -> bool:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= READ_RECORDS:
                self._known.clear()
            found = self._known[key] = self._share.holds_key(key)
        return found


def check_fraction(fraction: object) -> Fraction:
    """A fraction above 0 and at most 1: a number, or a text such as `0.1` or `1/3`. Raises `InvalidArgument`."""
    found = None
    if isinstance(fraction, str):
        top, _, bottom = fraction.partition("/")
        if _NUMBER.fullmatch(fraction) and int(bottom or 1):
            found = Fraction(top) / int(bottom or 1)
    elif (
        isinstance(fraction, int | float | Fraction) and not isinstance(fraction, bool) and 0 < fraction <= 1
    ):
        found = Fraction(fraction).limit_denominator(DENOMINATOR_MAX)
    if found is None or not 0 < found <= 1 or found.denominator > DENOMINATOR_MAX:
        raise InvalidArgument(
            f"the fraction is {fraction!r:.40}. Nothing was written. Give a number above 0 and at most 1, with at most"
            " six digits after the point, such as 0.1 or 1/3."
        )
    return found
