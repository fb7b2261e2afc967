"""The `committed` file: how far a partition may be read without the lock.

Two identical slots, because the file is mapped and a store into it is not atomic: the writer stores slot by slot, so a
reader always finds one whole slot, or reads again. Of two whole slots the one that is further along counts.

Both are in one sector, which a power loss can turn into garbage while it is written back. So the owner keeps a *copy*
far behind them, written only when the slots are synced, and synced before they change: what it says is true, if older.
Readers without the lock do not look at it, and a file without one is as good as its slots.

The slots also say where the log begins, and whether it had a file `publishers`: otherwise what retention
has dropped, or what never was, could not be told from what is missing. Versions
that do not know these *marks* write zeros over them, which say nothing: a log that one of them has used is not taken
for damaged. The copy's are not believed.

How many entries the record of damage (`damage_record`) has stands far behind them, in a page of its own. It may be
written at any time, because no power loss takes anything else with it. Versions that do not know it leave it alone, or
make the file without it, which says nothing.

The marks also name the log, by 13 bits of its identity (`segment`): the file of another log is not believed beside the
segments of this one. One in 8192 others has the same bits, and is believed as before.
"""

from __future__ import annotations

import zlib
from typing import Final

import attrs

from callboard.log.format.faults import CommittedInvalid, FaultReason
from callboard.log.format.fields import too_new
from callboard.log.format.layout import CHECKSUM, Layout, LayoutField
from callboard.log.format.segment import identity_of
from callboard.log.seams.disk import Buffer

COMMITTED_NAME: Final = "committed"
COMMITTED_MAGIC: Final = b"CBCM"
COMMITTED_VERSION: Final = 1
COMMITTED_LAYOUT: Final = Layout(
    LayoutField("magic", "4s", "`CBCM`"),
    LayoutField("version", "H", "1"),
    LayoutField(
        "marks",
        "H",
        "bit 0: `start` counts; bit 1: a file `publishers` was made; bit 2: bits 3 to 15 name the log",
    ),
    LayoutField("visible_end", "Q", "records below this offset may be read"),
    LayoutField("durable_end", "Q", "records below this offset were synced"),
    LayoutField("start", "I", "base offset of the first segment that retention has left, modulo 2^32"),
    LayoutField("checksum", "I", "CRC-32 of the 28 bytes before"),
)
COMMITTED_SLOT_BYTES: Final = COMMITTED_LAYOUT.size_bytes
COMMITTED_BYTES: Final = 2 * COMMITTED_SLOT_BYTES
"""What is mapped: the slots."""
HAS_START: Final = 1
HAD_PUBLISHERS: Final = 2
HAS_IDENTITY: Final = 4
IDENTITY_SHIFT: Final = 3
IDENTITY_MARKS: Final = 0xFFFF ^ (HAS_START | HAD_PUBLISHERS)
FOREIGN: Final = "it belongs to another log"
GONE: Final = "it is gone, and with it how far the log was synced"
PUBLISHERS: Final = "delivery/publishers"
"""The file that the mark is about, below the folder of a partition."""
START_MODULO: Final = 1 << 32
COMMITTED_COPY_AT: Final = 16384
"""Where the copy is: in another sector, and another page, everywhere."""
NOTED_AT: Final = 2 * COMMITTED_COPY_AT
"""Where the entries of the record of damage are counted: a slot, both ends of which are the number."""


@attrs.frozen(order=True)
class Committed:
    """The ends of a partition: offsets below them are visible, and durable."""

    visible_end: int
    durable_end: int
    marks: int = attrs.field(default=0, eq=False)
    start: int = attrs.field(default=0, eq=False)
    """Of the offset where the log begins, as far as it is stored."""

    @property
    def had_publishers(self) -> bool:
        """Whether a file `publishers` was made."""
        return bool(self.marks & HAD_PUBLISHERS)

    def is_foreign(self, directory: str) -> bool:
        """Whether the file names another log than the one in `directory`."""
        own = identity_marks(directory)
        return bool(self.marks & HAS_IDENTITY and (self.marks ^ own) & IDENTITY_MARKS)

    def is_named(self, directory: str) -> bool:
        """Whether the file names the log in `directory`."""
        return bool(self.marks & HAS_IDENTITY) and not self.is_foreign(directory)

    def begins_at(self, base: int) -> int | None:
        """Where the log begins, given that it has a segment, or ends, at `base`; None when that is not known.

        Fewer records than half of `START_MODULO` lie between the two: a log of more is not known to be without its
        beginning.
        """
        if not self.marks & HAS_START:
            return None
        half = START_MODULO // 2
        return max(0, base - (base - self.start + half) % START_MODULO + half)


def identity_marks(directory: str) -> int:
    """The marks that name the log in `directory`; 0 when it has no identity."""
    identity = identity_of(directory)
    return (identity << IDENTITY_SHIFT) & 0xFFFF | HAS_IDENTITY if identity else 0


def named_marks(marks: int, directory: str) -> int:
    """The marks, with those that name the log in `directory`."""
    return marks & ~IDENTITY_MARKS | identity_marks(directory)


def encode_committed(visible_end: int, durable_end: int, marks: int = 0, start: int = 0) -> bytes:
    """Both slots. Into a mapped file, store the first `COMMITTED_SLOT_BYTES`, then the rest."""
    return encode_slot(visible_end, durable_end, marks, start) * 2


def encode_named(end: int, directory: str) -> bytes:
    """Both slots of the journal in `directory`, where records below `end` were synced."""
    return encode_committed(end, end, identity_marks(directory))


def encode_slot(visible_end: int, durable_end: int, marks: int = 0, start: int = 0) -> bytes:
    """One slot, or the copy; `start` is the offset where the log begins."""
    sealed = COMMITTED_LAYOUT.struct.pack(
        COMMITTED_MAGIC, COMMITTED_VERSION, marks, visible_end, durable_end, start % START_MODULO, 0
    )[:-4]
    return sealed + CHECKSUM.pack(zlib.crc32(sealed))


def encode_committed_file(end: int, marks: int = 0, start: int = 0, noted: int = 0) -> bytes:
    """A new file with its copy, of a log that is visible and durable up to `end`, with `noted` entries of damage."""
    data = encode_committed(end, end, marks, start).ljust(COMMITTED_COPY_AT, b"\0") + encode_slot(end, end)
    return data.ljust(NOTED_AT, b"\0") + encode_noted(noted) if noted else data


def decode_committed(buffer: Buffer) -> Committed:
    """The ends that the slots hold. Raises `CommittedInvalid` (read again, then distrust) and `FormatTooNew`."""
    view = memoryview(buffer)
    if len(view) < COMMITTED_BYTES:
        raise CommittedInvalid(FaultReason.SHORT)
    slots = [decode_slot(view[at : at + COMMITTED_SLOT_BYTES]) for at in (0, COMMITTED_SLOT_BYTES)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise CommittedInvalid(FaultReason.ZEROS if says_nothing(view) else FaultReason.CHECKSUM)
    return max(whole)


def says_nothing(buffer: Buffer) -> bool:
    """Whether no ends were written yet, as after a power loss; entries of damage may be counted all the same."""
    return not any(memoryview(buffer)[:NOTED_AT])


def decode_copy(buffer: Buffer) -> Committed | None:
    """What the copy in the whole file holds; None when there is none, or it is not whole. Raises `FormatTooNew`."""
    copy = memoryview(buffer)[COMMITTED_COPY_AT : COMMITTED_COPY_AT + COMMITTED_SLOT_BYTES]
    found = decode_slot(copy) if len(copy) == COMMITTED_SLOT_BYTES else None
    return None if found is None else attrs.evolve(found, marks=0)


def encode_noted(count: int) -> bytes:
    """What is at `NOTED_AT` when the record of damage has `count` entries."""
    return encode_slot(count, count)


def noted_entries(buffer: Buffer, directory: str) -> int:
    """How many entries the record of damage in `directory` had, as the whole file there says; 0 when it does not.

    Raises `FormatTooNew`.
    """
    slot = memoryview(buffer)[NOTED_AT : NOTED_AT + COMMITTED_SLOT_BYTES]
    found = decode_slot(slot) if len(slot) == COMMITTED_SLOT_BYTES else None
    ends = proven_ends(buffer)
    return 0 if found is None or (ends is not None and ends.is_foreign(directory)) else found.durable_end


def proven_ends(buffer: Buffer) -> Committed | None:
    """What the whole file proves, by its slots or else by the copy; None when nothing of it can be believed."""
    try:
        return decode_committed(buffer)
    except CommittedInvalid:
        return decode_copy(buffer)


def decode_slot(slot: memoryview) -> Committed | None:
    """What a slot holds, None when it is not whole."""
    magic, version, marks, visible_end, durable_end, start, _ = COMMITTED_LAYOUT.struct.unpack(slot)
    if magic != COMMITTED_MAGIC or not COMMITTED_LAYOUT.is_sealed(slot):
        return None
    if version != COMMITTED_VERSION:
        raise too_new(f"a committed file has version {version}", found=version, supported=COMMITTED_VERSION)
    return Committed(visible_end, durable_end, marks, start)
