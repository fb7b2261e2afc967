"""Fixed layouts as data: one table per header, from which both the `struct` and the page in `docs/` are made.

All integers are little-endian and unaligned. A field's offset is the sum of the sizes before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

import attrs

TYPE_NAMES: Final = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64", "q": "i64"}

CHECKSUM: Final = struct.Struct("<I")


@attrs.frozen
class LayoutField:
    """One field of a fixed header: its name, its `struct` code, and what it means."""

    name: str
    code: str
    meaning: str

    @property
    def size_bytes(self) -> int:
        return struct.calcsize("<" + self.code)

    @property
    def type_name(self) -> str:
        return TYPE_NAMES.get(self.code) or f"{self.size_bytes} bytes"


class Layout:
    """A header's fields in order, the last one a checksum of the others, and the `struct.Struct` that packs them."""

    __slots__ = ("fields", "size_bytes", "struct")

    def __init__(self, *fields: LayoutField) -> None:
        self.fields = fields
        self.struct = struct.Struct("<" + "".join(field.code for field in fields))
        self.size_bytes = self.struct.size

    def seal(self, *values: Any, seed: int = 0) -> bytes:
        """The header with these values, all but the checksum, which is computed."""
        sealed = self.struct.pack(*values, 0)[: -CHECKSUM.size]
        return sealed + CHECKSUM.pack(zlib.crc32(sealed, seed))

    def is_sealed(self, header: memoryview, seed: int = 0) -> bool:
        """Whether the checksum at the end of `header` holds."""
        (checksum,) = CHECKSUM.unpack(header[-CHECKSUM.size :])
        return bool(zlib.crc32(header[: -CHECKSUM.size], seed) == checksum)

    def rows(self) -> Iterator[tuple[int, int, str, str, str]]:
        """(offset, size, type, name, meaning) of each field, for the documentation."""
        at = 0
        for field in self.fields:
            yield at, field.size_bytes, field.type_name, field.name, field.meaning
            at += field.size_bytes
