"""The `committed` file: how far a partition may be read without the lock.

Two identical slots, because the file is mapped and a store into it is not atomic: the writer stores slot by slot, so a
reader always finds one whole slot, or reads again. Of two whole slots the one that is further along counts.
"""

from __future__ import annotations

import zlib
from typing import Final

import attrs

from callboard.log.errors import FormatTooNew
from callboard.log.format.faults import CommittedInvalid, FaultReason
from callboard.log.format.layout import CHECKSUM, Layout, LayoutField
from callboard.log.seams.disk import Buffer

COMMITTED_NAME: Final = "committed"
COMMITTED_MAGIC: Final = b"CBCM"
COMMITTED_VERSION: Final = 1
COMMITTED_LAYOUT: Final = Layout(
    LayoutField("magic", "4s", "`CBCM`"),
    LayoutField("version", "H", "1"),
    LayoutField("reserved", "H", "0"),
    LayoutField("visible_end", "Q", "records below this offset may be read"),
    LayoutField("durable_end", "Q", "records below this offset were synced"),
    LayoutField("reserved_too", "I", "0"),
    LayoutField("checksum", "I", "CRC-32 of the 28 bytes before"),
)
COMMITTED_SLOT_BYTES: Final = COMMITTED_LAYOUT.size_bytes
COMMITTED_BYTES: Final = 2 * COMMITTED_SLOT_BYTES


@attrs.frozen(order=True)
class Committed:
    """The ends of a partition: offsets below them are visible, and durable."""

    visible_end: int
    durable_end: int


def encode_committed(visible_end: int, durable_end: int) -> bytes:
    """The whole file. Into a mapped file, store the first `COMMITTED_SLOT_BYTES`, then the rest."""
    sealed = COMMITTED_LAYOUT.struct.pack(
        COMMITTED_MAGIC, COMMITTED_VERSION, 0, visible_end, durable_end, 0, 0
    )[:-4]
    return (sealed + CHECKSUM.pack(zlib.crc32(sealed))) * 2


def decode_committed(buffer: Buffer) -> Committed:
    """The ends that the file holds. Raises `CommittedInvalid` (read again, then distrust) and `FormatTooNew`."""
    view = memoryview(buffer)
    if len(view) < COMMITTED_BYTES:
        raise CommittedInvalid(FaultReason.SHORT)
    slots = [decode_slot(view[at : at + COMMITTED_SLOT_BYTES]) for at in (0, COMMITTED_SLOT_BYTES)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise CommittedInvalid(FaultReason.CHECKSUM if any(view) else FaultReason.ZEROS)
    return max(whole)


def decode_slot(slot: memoryview) -> Committed | None:
    """What a slot holds, None when it is not whole."""
    magic, version, _, visible_end, durable_end, _, _ = COMMITTED_LAYOUT.struct.unpack(slot)
    if magic != COMMITTED_MAGIC or not COMMITTED_LAYOUT.is_sealed(slot):
        return None
    if version != COMMITTED_VERSION:
        raise FormatTooNew(
            f"a committed file has version {version}: a newer Callboard wrote it. Upgrade Callboard.",
            found=version,
            supported=COMMITTED_VERSION,
        )
    return Committed(visible_end, durable_end)
