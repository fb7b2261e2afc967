"""Keys and values of generated events, as bytes, and the partition of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import numpy as np

from callboard.simulations.workload.drawing import below, permuted, stream_of, words
from callboard.simulations.workload.pieces import Events, ProfilePart
from callboard.simulations.workload.value_library import library_of
from callboard.simulations.workload.value_model import ValueModel

SYMBOLS: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"
SYMBOL_BITS: Final = 6
SYMBOLS_A_WORD: Final = 10
BLOCK_BYTES: Final = 16 * 1024 * 1024
"""Keys are made in blocks of this many bytes, at most."""
POOL_BYTES: Final = 4 * 1024 * 1024
VOCABULARY: Final = 4_096
LETTERS_MAX: Final = 10


@lru_cache(maxsize=1)
def text_pool(seed: str) -> bytes:
    """A text of made-up words, which values are parts of. Where it ends, it begins again.

    The process of a task has another task next, and it is slow to make: so the last one is kept.
    """
    stream = stream_of(seed, "text")
    lengths = 2 + below(words(stream, np.arange(VOCABULARY)), LETTERS_MAX - 1)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", dtype=np.uint8)
    drawn = words(stream + 1, np.arange(VOCABULARY * LETTERS_MAX))
    found = letters[below(drawn, len(letters))].reshape(VOCABULARY, LETTERS_MAX)
    vocabulary = [bytes(row[:length]) for row, length in zip(found, lengths.tolist(), strict=True)]
    # The lowest of three drawn words: some words come often, as in any text.
    chosen = below(words(stream + 2, np.arange(POOL_BYTES)), VOCABULARY).reshape(-1, 4)[:, :3].min(axis=1)
    return b" ".join([vocabulary[word] for word in chosen.tolist()])[:POOL_BYTES]


def values_of(pool: bytes, events: Events) -> list[bytes]:
    """The value of each event: a part of the pool, as long as the event says."""
    starts = below(events.word, len(pool))
    longest = int(events.size.max(initial=0))
    text = pool * (2 + longest // len(pool))
    ends = starts + events.size
    return [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def values_by_field(
    part: ProfilePart, model: ValueModel, events: Events, partition: Any, partitions: int
) -> list[bytes]:
    """The value of each event as a model has them; copies of an event have its value."""
    _, first, which = np.unique(events.word, return_index=True, return_inverse=True)
    known = events.rows(first)
    of_key = words(part.stream("keys of values"), known.key)
    found = library_of(model, f"{part.seed}/{part.index}").values(
        at_us=(known.time_us - part.start_us) % (part.profile.bucket_us * len(part.profile.bucket_counts)),
        key=np.where(known.key >= 0, of_key, known.word),
        size=known.size,
        word=known.word,
        lane=partition[first],
        before=int(events.number.min(initial=part.events)) // partitions,
    )
    return [found[place] for place in which.tolist()]


def partitions_of(part: ProfilePart, events: Events, by_key: Any, partitions: int) -> Any:
    """The partition of each event: that of its key, else one that its word chooses."""
    spread = below(words(part.stream("spread"), events.word), partitions)
    return np.where(events.key >= 0, by_key, spread)


def partitions_of_keys(keys: Sequence[bytes], partitions: int) -> Any:
    """Where `publish` puts these keys."""
    return np.array([crc32(key) % partitions for key in keys], dtype=np.int64)


def keys_of(part: ProfilePart, keys: Any) -> list[bytes]:
    """The bytes of keys by their numbers: no two are alike.

    The last symbols of a key count, in an order that is drawn; so keys that are too short for that are longer than
    the profile's.
    """
    count = part.keys.count
    digits = -(-(count - 1).bit_length() // SYMBOL_BITS)
    lengths = np.maximum(_lengths(part, keys), digits)
    most = max(1, BLOCK_BYTES // max(int(lengths.max(initial=0)), 1))
    found: list[bytes] = []
    for start in range(0, len(keys), most):
        found += _key_block(part, keys[start : start + most], lengths[start : start + most], digits)
    return found


def _key_block(part: ProfilePart, keys: Any, lengths: Any, digits: int) -> list[bytes]:
    longest = int(lengths.max(initial=0))
    text: Any = np.zeros((len(keys), longest), dtype=np.uint8)
    symbols = np.frombuffer(SYMBOLS, dtype=np.uint8)
    for first in range(0, longest, SYMBOLS_A_WORD):
        drawn = words(part.stream("key symbols", first), keys)
        for column in range(first, min(first + SYMBOLS_A_WORD, longest)):
            text[:, longest - 1 - column] = symbols[drawn & np.uint64(len(SYMBOLS) - 1)]
            drawn = drawn >> np.uint64(SYMBOL_BITS)
    place = permuted(part.stream("key places"), keys, part.keys.count)
    for digit in range(digits):
        text[:, longest - 1 - digit] = symbols[place >> SYMBOL_BITS * digit & len(SYMBOLS) - 1]
    whole = text.tobytes()
    ends: Any = (np.arange(len(keys)) + 1) * longest
    return [whole[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def _lengths(part: ProfilePart, keys: Any) -> Any:
    """Each key's length in the profile; many keys of one length have many places there."""
    pairs = np.array(part.profile.key_bytes, dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        return np.zeros(len(keys), dtype=np.int64)
    place = permuted(part.stream("key lengths"), keys, part.keys.count)
    known = place * part.profile.distinct_keys // part.keys.count
    return pairs[np.searchsorted(np.cumsum(pairs[:, 1]), known, side="right"), 0]
