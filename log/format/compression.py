"""Compression of frame bodies: codecs by id, and decompression whose output is bounded before it starts."""

from __future__ import annotations

import enum
import zlib
from typing import Final

import attrs
import zstandard

from callboard.log import limits
from callboard.log.errors import ConfigurationError, join_problems
from callboard.log.format.faults import FaultReason, FrameInvalid
from callboard.log.seams.disk import Buffer

GZIP_WINDOW: Final = 31
"""zlib's way of saying: 32 KiB window, gzip header without name or time."""
ZSTD_WINDOW_BYTES_MAX: Final = 128 * limits.MIB
LEVELS: Final = {"none": (0, 0), "gzip": (1, 9), "zstd": (1, 19)}
LEVEL_DEFAULT: Final = {"none": 0, "gzip": 6, "zstd": 1}


class Codec(enum.IntEnum):
    """The codec byte of a frame header."""

    NONE = 0
    GZIP = 1
    ZSTD = 2


@attrs.frozen
class Compression:
    """How bodies are compressed: `codec` is "none", "gzip" or "zstd"; `level` None means the codec's default.

    Bodies below `minimum_bytes` are stored as they are, and so are those that shrink by less than
    `minimum_saving` (a fraction).
    """

    codec: str = "none"
    level: int | None = attrs.field(default=None, kw_only=True)
    minimum_bytes: int = attrs.field(default=256, kw_only=True)
    minimum_saving: float = attrs.field(default=0.05, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.codec not in LEVELS:
            raise ConfigurationError(
                f"compression {self.codec!r} is unknown: use one of {', '.join(LEVELS)}.",
                problems=(f"compression {self.codec!r} is unknown",),
            )
        problems = []
        low, high = LEVELS[self.codec]
        if self.level is not None and not low <= self.level <= high:
            problems.append(f"level {self.level} is outside {low} to {high} for {self.codec}")
        if self.minimum_bytes < 0:
            problems.append("minimum_bytes is negative")
        if not 0 <= self.minimum_saving < 1:
            problems.append("minimum_saving is not a fraction from 0 to below 1")
        if problems:
            raise join_problems("compression", problems)

    def compress(self, body: Buffer) -> tuple[Codec, Buffer]:
        """The codec used and the bytes to store: `body` itself when compression does not pay."""
        if self.codec == "none" or len(body) < self.minimum_bytes:
            return Codec.NONE, body
        level = LEVEL_DEFAULT[self.codec] if self.level is None else self.level
        if self.codec == "gzip":
            compressor = zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW)
            packed = compressor.compress(body) + compressor.flush()
            codec = Codec.GZIP
        else:
            packed = zstandard.ZstdCompressor(level=level).compress(body)
            codec = Codec.ZSTD
        if len(packed) > len(body) * (1 - self.minimum_saving):
            return Codec.NONE, body
        return codec, packed


NONE: Final = Compression()


def decompress(codec: int, body: Buffer, plain_bytes: int) -> Buffer:
    """The body as it was before compression: exactly `plain_bytes`, else `FrameInvalid`.

    Never allocates more than `plain_bytes` (and a codec's window), whatever the compressed bytes claim.
    """
    if plain_bytes > limits.FRAME_DECOMPRESSED_BYTES_MAX:
        raise FrameInvalid(FaultReason.TOO_LONG, f"{plain_bytes} bytes uncompressed")
    if codec == Codec.NONE:
        plain = body
    elif codec == Codec.GZIP:
        plain = decompress_gzip(body, plain_bytes)
    elif codec == Codec.ZSTD:
        plain = decompress_zstd(body, plain_bytes)
    else:
        raise FrameInvalid(FaultReason.BODY, f"codec {codec}")
    if len(plain) != plain_bytes:
        raise FrameInvalid(FaultReason.BODY, f"{len(plain)} bytes uncompressed, {plain_bytes} announced")
    return plain


def decompress_gzip(body: Buffer, plain_bytes: int) -> bytes:
    """One gzip member, whole."""
    decompressor = zlib.decompressobj(GZIP_WINDOW)
    try:
        plain = decompressor.decompress(body, plain_bytes + 1)
    except zlib.error as error:
        raise FrameInvalid(FaultReason.BODY, f"gzip: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise FrameInvalid(FaultReason.BODY, "gzip: the stream is longer or shorter than announced")
    return plain


def decompress_zstd(body: Buffer, plain_bytes: int) -> bytes:
    """One zstd frame that states its size, whole."""
    try:
        # The library allocates what the zstd frame claims: the claim is compared before it is believed.
        claimed = zstandard.frame_content_size(body)
        if claimed != plain_bytes:
            raise FrameInvalid(FaultReason.BODY, f"zstd: {claimed} bytes claimed, {plain_bytes} announced")
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        return decompressor.decompress(body, max_output_size=plain_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FrameInvalid(FaultReason.BODY, f"zstd: {error}") from error
