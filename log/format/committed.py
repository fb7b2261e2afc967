"""The `committed` file: how far a partition may be read without the lock.

Two identical slots, because the file is mapped and a store into it is not atomic: the writer stores slot by slot, so a
reader always finds one whole slot, or reads again. Of two whole slots the one that is further along counts.

Both are in one sector, which a power loss can turn into garbage while it is written back. So the owner keeps a *copy*
far behind them, written only when the slots are synced, and synced before they change: what it says is true, if older.
Readers without the lock do not look at it, and a file without one is as good as its slots.
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
"""What is mapped: the slots."""
COMMITTED_COPY_AT: Final = 16384
"""Where the copy is: in another sector, and another page, everywhere."""


@attrs.frozen(order=True)
class Committed:
    """The ends of a partition: offsets below them are visible, and durable."""

    visible_end: int
    durable_end: int


def encode_committed(visible_end: int, durable_end: int) -> bytes:
    """Both slots. Into a mapped file, store the first `COMMITTED_SLOT_BYTES`, then the rest."""
    return encode_slot(visible_end, durable_end) * 2


def encode_slot(visible_end: int, durable_end: int) -> bytes:
    """One slot, or the copy."""
    sealed = COMMITTED_LAYOUT.struct.pack(
        COMMITTED_MAGIC, COMMITTED_VERSION, 0, visible_end, durable_end, 0, 0
    )[:-4]
    return sealed + CHECKSUM.pack(zlib.crc32(sealed))


def encode_committed_file(end: int) -> bytes:
    """A new file with its copy, of a log that is visible and durable up to `end`."""
    return encode_committed(end, end).ljust(COMMITTED_COPY_AT, b"\0") + encode_slot(end, end)


def decode_committed(buffer: Buffer) -> Committed:
    """The ends that the slots hold. Raises `CommittedInvalid` (read again, then distrust) and `FormatTooNew`."""
    view = memoryview(buffer)
    if len(view) < COMMITTED_BYTES:
        raise CommittedInvalid(FaultReason.SHORT)
    slots = [decode_slot(view[at : at + COMMITTED_SLOT_BYTES]) for at in (0, COMMITTED_SLOT_BYTES)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise CommittedInvalid(FaultReason.CHECKSUM if any(view) else FaultReason.ZEROS)
    return max(whole)


def decode_copy(buffer: Buffer) -> Committed | None:
    """What the copy in the whole file holds; None when there is none, or it is not whole. Raises `FormatTooNew`."""
    copy = memoryview(buffer)[COMMITTED_COPY_AT : COMMITTED_COPY_AT + COMMITTED_SLOT_BYTES]
    return decode_slot(copy) if len(copy) == COMMITTED_SLOT_BYTES else None


def proven_ends(buffer: Buffer) -> Committed | None:
    """What the whole file proves, by its slots or else by the copy; None when nothing of it can be believed."""
    try:
        return decode_committed(buffer)
    except CommittedInvalid:
        return decode_copy(buffer)


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
