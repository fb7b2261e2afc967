"""Frames of the control socket: a u32 little-endian length, then one CBOR item of plain data.

What comes in is checked before it is decoded: tags (dates, patterns, big numbers, shared references and the like),
indefinite lengths, lengths beyond the frame and deep nesting are refused, so nothing but maps, lists, text, bytes,
numbers, booleans and null is ever made of it, and not much more memory used than the frame has.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cbor2
from trio.abc import ReceiveStream, SendStream

from callboard.log.errors import ControlError
from callboard.log.format.fields import CBOR_ERRORS
from callboard.log.limits import KIB, MIB

HEAD: Final = struct.Struct("<I")
REQUEST_BYTES_MAX: Final = 64 * KIB
ANSWER_BYTES_MAX: Final = 64 * MIB
DEPTH_MAX: Final = 64
RECEIVE_BYTES: Final = 64 * KIB
REQUEST_TIMEOUT_S: Final = 30.0
"""A connection on which nothing is asked for this long is closed, and a client waits this long for an answer."""

BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = 2, 3, 4, 5, 6, 7
"""Major types of CBOR; 0 and 1 are integers."""
SIMPLE_KNOWN: Final = frozenset({20, 21, 22, 25, 26, 27})
"""False, true, null, and floats of 16, 32 and 64 bits."""


async def send_frame(stream: SendStream, content: Any) -> None:
    """Send one frame."""
    await stream.send_all(encode(content))


async def receive_frame(stream: ReceiveStream, limit_bytes: int) -> Any:
    """One frame's content; None at the end of the stream. Raises `ControlError` for what is no frame."""
    head = await _receive_exactly(stream, HEAD.size)
    if head is None:
        return None
    (length,) = HEAD.unpack(head)
    if length > limit_bytes:
        raise ControlError(f"a frame of {length} bytes, and {limit_bytes} are allowed.")
    body = await _receive_exactly(stream, length)
    if body is None:
        return None
    return decode(body)


async def _receive_exactly(stream: ReceiveStream, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        part = await stream.receive_some(min(count - len(received), RECEIVE_BYTES))
        if not part:
            return None
        received += part
    return bytes(received)


def encode(content: Any) -> bytes:
    """One frame."""
    body = cbor2.dumps(content)
    return HEAD.pack(len(body)) + body


def decode(body: bytes) -> Any:
    """The content of a frame's body. Raises `ControlError` unless it is one item of plain data."""
    try:
        return load_plain(body)
    except ValueError as error:
        raise ControlError(f"a frame does not hold plain CBOR: {error}") from error


def load_plain(body: bytes) -> Any:
    """The one item of plain data in `body`. Raises `ValueError`, and nothing else, for any other bytes."""
    try:
        _check_plain(body)
        return cbor2.loads(body)
    except CBOR_ERRORS as error:
        raise ValueError(str(error)) from error


def _check_plain(body: bytes) -> None:
    """Raise `ValueError` or `IndexError` unless `body` is exactly one item of plain data."""
    at = 0
    awaited = [1]
    while awaited:
        if awaited[-1] == 0:
            awaited.pop()
            continue
        awaited[-1] -= 1
        major, count, at = _head(body, at)
        if major in (BYTES, TEXT):
            at += count
        elif major in (ARRAY, MAP):
            awaited.append(count * (2 if major == MAP else 1))
        if at + awaited[-1] > len(body):
            raise ValueError("a length beyond its end")
        if len(awaited) > DEPTH_MAX:
            raise ValueError(f"nested more than {DEPTH_MAX} deep")
    if at != len(body):
        raise ValueError("more than one item")


def _head(body: bytes, at: int) -> tuple[int, int, int]:
    """Major type and argument of the item at `at`, and where what follows its head begins."""
    major, info = body[at] >> 5, body[at] & 31
    at += 1
    if info > 27 or major == TAG or (major == SIMPLE and info not in SIMPLE_KNOWN):
        raise ValueError("a tag, an indefinite length or a reserved value")
    if info < 24:
        return major, info, at
    end = at + (1 << (info - 24))
    if end > len(body):
        raise ValueError("a number beyond its end")
    return major, int.from_bytes(body[at:end], "big"), end
