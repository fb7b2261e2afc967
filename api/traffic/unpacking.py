"""Zstandard frames unpacked piece by piece, and text cut into lines, sans I/O. What both hold at a time is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import zstandard

from callboard.log.format.compression import ZSTD_WINDOW_BYTES_MAX
from callboard.log.limits import GIB
from callboard.traffic.event import LINE_BYTES_MAX

UNPACKED_BYTES_MAX: Final = 64 * GIB
"""A compressed file that unpacks to more than this is refused."""
ZSTD_FED_BYTES: Final = 256
"""A block of 4 bytes may unpack to 128 KiB: this makes no more than 8 MiB at once."""


def unpacked_zstd(packed: Iterable[bytes]) -> Iterator[bytes]:
    """What Zstandard frames hold, given in pieces of at most `ZSTD_FED_BYTES`.

    Raises EOFError for what ends within a frame, `zstandard.ZstdError` for what is no such frame.
    """
    frame: Any = None
    for piece in packed:
        left = piece
        while left:
            if frame is None:
                frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()
            plain = frame.decompress(left)
            if plain:
                yield plain
            left = b""
            if frame.eof:
                left, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("it ends within a Zstandard frame")


def cut_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a text without their line feeds; of one that is longer the first `LINE_BYTES_MAX + 1` bytes."""
    held = bytearray()
    is_begun = False
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            held += end[: LINE_BYTES_MAX + 1 - len(held)]
            yield bytes(held)
            held.clear()
            is_begun = False
        held += rest[: LINE_BYTES_MAX + 1 - len(held)]
        is_begun = is_begun or bool(rest)
    if is_begun:
        yield bytes(held)
