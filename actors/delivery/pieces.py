"""CBOR in pieces: what is large is encoded and decoded in many short steps. Pure.

Both are iterators, and the task that drives one lets others run between two pieces. The bytes are those that `cbor2`
makes of the same value in one call, and what is decoded is what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from struct import unpack
from typing import Any, Final, NamedTuple

import cbor2

from callboard.log.format.fields import CBOR_ERRORS

FEW: Final = 16
"""An array of no more items may have long ones."""
PIECE_ITEMS: Final = 1024
"""Items of an array that are one piece."""
PIECE_BYTES: Final = 128 * 1024
"""Byte strings are in pieces of about this length."""
DEPTH_MAX: Final = 8
"""What lies deeper is decoded in one piece."""
UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, OTHER = 0, 1, 2, 3, 4, 5, 7
ARGUMENT_BYTES: Final = {24: 1, 25: 2, 26: 4, 27: 8}
FLOAT: Final = 0xFB
SIMPLE: Final = {0xF4: False, 0xF5: True, 0xF6: None}


class ArrayInParts(NamedTuple):
    """An array whose items are made, some at a time, when they are encoded."""

    length: int
    some: Iterable[list[Any]]


class BytesInParts(NamedTuple):
    """A byte string whose parts are made when they are encoded."""

    size_bytes: int
    parts: Iterable[bytes]


class ValueInSteps(NamedTuple):
    """A value that is made in steps when it is encoded; it yields empty bytes meanwhile."""

    made: Generator[bytes, None, Any]


class _NotPlain(Exception):
    """Something that is not decoded in pieces."""


def encode_in_pieces(value: Any) -> Iterator[bytes]:
    """The CBOR of `value`, in which there may be `ArrayInParts`, `BytesInParts` and `ValueInSteps`."""
    kind = type(value)
    if kind is dict:
        yield _head(MAP, len(value))
        for key, item in value.items():
            yield cbor2.dumps(key)
            yield from encode_in_pieces(item)
    elif kind is BytesInParts:
        yield _head(BYTES, value.size_bytes)
        yield from value.parts
    elif kind is ValueInSteps:
        yield from encode_in_pieces((yield from value.made))
    elif kind is ArrayInParts:
        yield _head(ARRAY, value.length)
        for some in value.some:
            yield cbor2.dumps(some)[len(_head(ARRAY, len(some))) :]
    elif kind is list and len(value) <= FEW:
        yield _head(ARRAY, len(value))
        for item in value:
            yield from encode_in_pieces(item)
    else:
        yield cbor2.dumps(value)


def weighed(items: Iterable[Any], weigh: Callable[[Any], int]) -> Iterator[list[Any]]:
    """The same items, some at a time: as many as weigh about as much as a piece."""
    some: list[Any] = []
    weight = 0
    for item in items:
        some.append(item)
        weight += weigh(item)
        if weight >= PIECE_ITEMS:
            yield some
            some, weight = [], 0
    if some:
        yield some


def gathered(pieces: Iterable[bytes], size_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """The same bytes, with what is short joined to pieces of about this size. Empty pieces are steps: they stay."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        if not piece:
            yield piece
            continue
        kept.append(piece)
        size += len(piece)
        if size >= size_bytes:
            yield b"".join(kept)
            kept, size = [], 0
    if kept:
        yield b"".join(kept)


def decode_in_pieces(stored: bytes, whole_bytes: int = PIECE_BYTES) -> Generator[None, None, Any]:
    """What CBOR holds; yields between two pieces. What is not longer than `whole_bytes` is one. Raises ValueError."""
    try:
        if len(stored) > whole_bytes:
            with suppress(_NotPlain):
                return (yield from _Decoding(stored).item())
        return cbor2.loads(stored)
    except (*CBOR_ERRORS, TypeError) as error:
        raise ValueError(f"it does not decode: {error}") from error


class _File:
    """Bytes, as a file is read by the decoder."""

    def __init__(self, stored: bytes) -> None:
        self._stored = stored
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next bytes, as many as there are."""
        data = self._stored[self._at : self._at + size]
        self._at += len(data)
        return data

    def readable(self) -> bool:
        """The decoder asks."""
        return True

    def seekable(self) -> bool:
        """So that more is read at once than is needed."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = offset if whence == 0 else (self._at if whence == 1 else len(self._stored)) + offset
        return self._at


class _Decoding:
    """One decoding, and how far it is."""

    def __init__(self, stored: bytes) -> None:
        file: Any = _File(stored)
        self._decoder = cbor2.CBORDecoder(file)

    def item(self, depth: int = 0) -> Generator[None, None, Any]:
        """The next item. Raises `_NotPlain`, or what `cbor2` raises."""
        read = self._decoder.read
        (head,) = read(1)
        kind, argument = head >> 5, head & 31
        if kind == OTHER:
            if head == FLOAT:
                return unpack(">d", read(8))[0]
            if head not in SIMPLE:
                raise _NotPlain
            return SIMPLE[head]
        if argument in ARGUMENT_BYTES:
            argument = int.from_bytes(read(ARGUMENT_BYTES[argument]), "big")
        elif argument > 27:
            raise _NotPlain
        if kind == UNSIGNED:
            return argument
        if kind == NEGATIVE:
            return -1 - argument
        if kind in (BYTES, TEXT):
            data = read(argument)
            if argument > PIECE_BYTES:
                yield
            return data if kind == BYTES else data.decode("utf-8")
        if depth >= DEPTH_MAX:
            raise _NotPlain
        if kind == MAP:
            found = {}
            for _ in range(argument):
                key = yield from self.item(depth + 1)
                found[key] = yield from self.item(depth + 1)
            return found
        if kind != ARRAY:
            raise _NotPlain
        items: list[Any] = []
        if argument <= FEW:
            while len(items) < argument:
                items += [(yield from self.item(depth + 1))]
            return items
        decode, weight = self._decoder.decode, 0
        for _ in range(argument):
            items.append(item := decode())
            weight += 1 + (len(item[-1]) if type(item) is list and item and type(item[-1]) is list else 0)
            if weight >= PIECE_ITEMS:
                weight = 0
                yield
        return items


def _head(kind: int, argument: int) -> bytes:
    """The head of an item, as short as it can be."""
    if argument < 24:
        return bytes((kind << 5 | argument,))
    for code, size in ARGUMENT_BYTES.items():
        if argument < 1 << 8 * size:
            return bytes((kind << 5 | code,)) + argument.to_bytes(size, "big")
    raise ValueError(f"{argument} does not fit into the head of an item")
