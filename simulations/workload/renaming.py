"""Other names for the keys of a recording, one for each copy: of the same length, and each only once. Pure.

Vocabulary
----------
class    the keys of one length; within it they are numbered from 0 on
number   of a name in its class: copy by copy, in each the keys' numbers
space    the names of one length that are made: of `SYMBOLS`, and beyond the least and the greatest key of that length
         that is made of those alone
block    numbers of a class that follow each other and have names of one space

Invariants
----------
N1  Equal numbers of a class have equal names, and different ones, or those of different classes, have different names.
N2  No name is a key of the recording.
N3  A name has its class's length, unless the space has too few names for all; then it is longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from callboard.log.errors import InvalidArgument
from callboard.log.limits import KEY_BYTES_MAX
from callboard.simulations.workload.drawing import NUMBERS_MAX, permuted, stream_of, words

SYMBOLS: Final = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""In the order of bytes."""
BITS: Final = 6
BASE: Final = 1 << BITS
PREFIX_BYTES: Final = 8
"""So much of the least and the greatest key is looked at."""
DIGITS_MAX: Final = 8
SYMBOLS_A_WORD: Final = 10
_PLACES: Final = {byte: place for place, byte in enumerate(SYMBOLS)}
_SYMBOLS: Final = np.frombuffer(SYMBOLS, dtype=np.uint8)
_PLAIN: Final = bytes(sorted(SYMBOLS))


def plain_prefix(key: bytes) -> bytes | None:
    """The beginning of a key that is made of `SYMBOLS` alone; None for others."""
    return None if key.translate(None, _PLAIN) else key[:PREFIX_BYTES]


@attrs.frozen
class KeyClass:
    """The keys of one length: how many, and the least and greatest `plain_prefix`, if there is any."""

    length: int
    keys: int
    least: bytes | None = None
    greatest: bytes | None = None


@attrs.frozen
class Space:
    """Names of one length: a prefix that no key has, symbols that are drawn, and digits that count."""

    length: int
    prefix: int
    """How many symbols it has."""
    first_taken: int
    """Prefixes as numbers, from this on, are those of keys."""
    taken: int
    digits: int
    size: int
    """How many names there are."""

    @classmethod
    def of(cls, length: int, keys: KeyClass | None, wanted: int) -> Space:
        """A space for `wanted` names, or for as many as there can be."""
        is_free = keys is None or keys.least is None or keys.greatest is None
        for prefix in range(min(length, PREFIX_BYTES) + 1):
            first = taken = 0
            if keys is not None and keys.least is not None and keys.greatest is not None:
                first, last = _number(keys.least[:prefix]), _number(keys.greatest[:prefix])
                taken = last - first + 1
            digits = min(DIGITS_MAX, length - prefix)
            free = 1 if is_free else BASE**prefix - taken
            space = cls(length, prefix, first, taken, digits, min(free * BASE**digits, NUMBERS_MAX))
            if is_free or space.size >= wanted:
                break
        return space


@attrs.frozen
class Block:
    """The numbers `[start, stop)` of a class have the names of `space` from `first` on."""

    start: int
    stop: int
    space: Space
    first: int


@attrs.frozen
class Names:
    """The names of all classes."""

    blocks: Mapping[int, Sequence[Block]]
    """By the length of keys, in the order of numbers."""
    keys: Mapping[int, int]
    """How many there are of each length."""
    secret: str

    @classmethod
    def of(cls, classes: Iterable[KeyClass], copies: int, secret: str) -> Names:
        """Names for this many copies. Raises `InvalidArgument` when that many are not possible."""
        known = {each.length: each for each in classes}
        blocks: dict[int, list[Block]] = {length: [] for length in known}
        waiting: list[tuple[int, int]] = []
        """Classes whose numbers, from that on, have no names yet."""
        for length in _lengths(known):
            own = [(length, 0)] if length in known else []
            asking = own + waiting
            wanted = sum(known[each].keys * copies - start for each, start in asking)
            if not wanted:
                continue
            space = Space.of(length, known.get(length), wanted)
            used, waiting = 0, []
            for each, start in asking:
                whole = known[each].keys * copies
                stop = min(whole, start + space.size - used)
                if stop > start:
                    blocks[each].append(Block(start, stop, space, used))
                    used += stop - start
                if stop < whole:
                    waiting.append((each, stop))
        if waiting:
            raise InvalidArgument(
                f"the recording's keys have no {copies} other names each of up to {KEY_BYTES_MAX} bytes. Give a smaller"
                " --scale."
            )
        return cls(
            {length: tuple(found) for length, found in blocks.items()},
            {length: each.keys for length, each in known.items()},
            secret,
        )

    def of_keys(self, length: int, copy: int, keys: Any) -> list[bytes]:
        """The names that the keys of these numbers, of that length, have in a copy."""
        numbers = keys + copy * self.keys[length]
        found: list[bytes] = [b""] * len(numbers)
        for block in self.blocks[length]:
            at = np.flatnonzero((numbers >= block.start) & (numbers < block.stop))
            if len(at):
                names = self._names(block.space, numbers[at] - block.start + block.first)
                for index, name in zip(at.tolist(), names, strict=True):
                    found[index] = name
        return found

    def _names(self, space: Space, places: Any) -> list[bytes]:
        length = space.length
        drawn = permuted(stream_of(self.secret, "names", length), places, space.size)
        text: Any = np.zeros((len(places), length), dtype=np.uint8)
        prefix = drawn >> BITS * space.digits
        prefix = np.where(prefix >= space.first_taken, prefix + space.taken, prefix)
        for symbol in range(space.prefix):
            text[:, space.prefix - 1 - symbol] = _SYMBOLS[prefix >> BITS * symbol & BASE - 1]
        for digit in range(space.digits):
            text[:, length - 1 - digit] = _SYMBOLS[drawn >> BITS * digit & BASE - 1]
        for first in range(space.prefix, length - space.digits, SYMBOLS_A_WORD):
            more = words(stream_of(self.secret, "symbols", length, first), places)
            for column in range(first, min(first + SYMBOLS_A_WORD, length - space.digits)):
                text[:, column] = _SYMBOLS[more & np.uint64(BASE - 1)]
                more = more >> np.uint64(BITS)
        whole = text.tobytes()
        return [whole[start : start + length] for start in range(0, len(places) * length, length)] or [
            b""
        ] * len(places)


def _lengths(known: Mapping[int, KeyClass]) -> Iterable[int]:
    """All lengths of classes, and those behind each that its names may need."""
    found = {length + more for length in known for more in range(DIGITS_MAX + 1)}
    return sorted(length for length in found if length <= KEY_BYTES_MAX)


def _number(prefix: bytes) -> int:
    found = 0
    for byte in prefix:
        found = found << BITS | _PLACES[byte]
    return found
