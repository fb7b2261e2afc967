"""Randomness for generated workloads: every number is a function of a seed and an index, by whole numbers alone.

They come out the same, in whatever order and however divided they are computed, on every machine. Words are those of
SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), whose state after i steps is
known at once. Permutations are Feistel networks over the bits of an index; an index that leaves the range is put in
again until it is inside.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np

from callboard.log.errors import InternalError

GOLDEN: Final = 0x9E3779B97F4A7C15
ROUNDS: Final = 6
NUMBERS_MAX: Final = 2**53

_GOLDEN = np.uint64(GOLDEN)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def stream_of(*names: object) -> int:
    """The number of a stream of words, by what it is for."""
    text = "/".join(map(str, names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def words(stream: Any, indices: Any) -> Any:
    """The words of a stream, or of one for each, at these indices (u64)."""
    state = np.uint64(stream) + (indices.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


def below(found: Any, limits: Any) -> Any:
    """Words as numbers below `limits` (at most 2**32): i64."""
    return ((found >> np.uint64(32)) * np.asarray(limits).astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def permuted(stream: int, indices: Any, size: int) -> Any:
    """Where a permutation of `range(size)` puts these indices: i64."""
    if not 0 < size <= NUMBERS_MAX:
        raise InternalError(f"a permutation of {size} numbers", invariant="1 to 2**53 numbers")
    bits = max((size - 1).bit_length(), 2)
    found = _rounds(stream, indices.astype(np.uint64), bits)
    outside = np.flatnonzero(found >= size)
    while len(outside):
        found[outside] = _rounds(stream, found[outside], bits)
        outside = outside[found[outside] >= size]
    return found.astype(np.int64)


def _rounds(stream: int, numbers: Any, bits: int) -> Any:
    """A permutation of the numbers of this many bits: halves take turns, each changed by a word of the other."""
    high, low = bits // 2, bits - bits // 2
    for turn in range(ROUNDS):
        left, right = numbers >> np.uint64(low), numbers & np.uint64((1 << low) - 1)
        mixed = words(stream + turn * GOLDEN & (2**64 - 1), right) & np.uint64((1 << high) - 1)
        numbers = right << np.uint64(high) | (left ^ mixed)
        high, low = low, high
    return numbers
