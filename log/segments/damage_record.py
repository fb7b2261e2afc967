"""What a partition has lost, remembered until it is accepted: the file `damages` in its folder.

Damage is found once and mended, or passed over; without this file the next opening would know nothing of it. A record
stays after it was accepted, so that finding the same damage again reports nothing new.

The file `committed` beside it says how many entries it has (`noted_entries`). So a file that is gone, or is an older
copy, is known to lack entries; it is then made anew, with an entry that says so.

The file is replaced whole: written under another name, synced, renamed. When it cannot be written, for example on a
full disk, what was found is reported in this life, and written when the next damage is found, or at closing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import attrs
import cbor2
import trio

from callboard.log.errors import LogCorrupt, PlanFailed
from callboard.log.format.committed import COMMITTED_NAME, NOTED_AT, encode_noted, noted_entries
from callboard.log.format.fields import too_new
from callboard.log.limits import DAMAGES_KEPT, OFFSET_MAX
from callboard.log.seams.disk import Close, Incarnation, Open, Sync, Write
from callboard.log.segments.segments import Damage
from callboard.log.segments.small_files import read_whole, replace_whole

DAMAGES_NAME: Final = "damages"
MAGIC: Final = b"CBDM"
VERSION: Final = 2
HEAD_BYTES: Final = 12
"""Magic, version (u32), CRC-32 (u32)."""
UNREADABLE: Final = "the record of earlier damage cannot be read"
GONE: Final = "the record of earlier damage is gone"
OLD: Final = "the record of earlier damage is an older copy"


@attrs.frozen
class DamageEntry:
    """One damage, when it was found (microseconds since 1970), and whether it is accepted."""

    damage: Damage
    found_us: int
    is_accepted: bool = False


@attrs.define(eq=False)
class DamageRecord:
    """The damages of one partition, oldest first; at most `DAMAGES_KEPT`, of which the oldest stay."""

    _files: Incarnation
    _directory: str
    entries: list[DamageEntry] = attrs.Factory(list)
    is_stored: bool = True
    fault: str = ""
    """What was wrong with the file when it was loaded."""
    _is_counted: bool = True
    """Whether `committed` says how many entries are in the file."""
    _stored_count: int = 0
    """Entries in the file."""
    _new: list[Damage] = attrs.Factory(list)
    _storing: trio.Lock = attrs.Factory(trio.Lock)

    @property
    def path(self) -> str:
        """The file's path."""
        return f"{self._directory}/{DAMAGES_NAME}"

    @property
    def _committed_path(self) -> str:
        return f"{self._directory}/{COMMITTED_NAME}"

    @classmethod
    async def load(cls, files: Incarnation, directory: str) -> DamageRecord:
        """What the file says; when it is gone, or cannot be read, that too. Raises `FormatTooNew`, `StorageError`."""
        record = cls(files, directory)
        data = await read_whole(files, record.path)
        committed: bytes | None = None
        with suppress(LogCorrupt):  # a folder is in its place: opening and inspecting the log report that
            committed = await read_whole(files, record._committed_path)
        count = noted_entries(committed or b"", directory)
        if data is not None:
            try:
                record.entries = decode(data)
            except (ValueError, TypeError, cbor2.CBORError):
                record.fault = UNREADABLE
        record._stored_count = len(record.entries)
        if not record.fault and count > record._stored_count:
            record.fault = GONE if data is None else OLD
        record._is_counted = count == record._stored_count
        if record.fault:
            damage = Damage(record.path, 0, 0 if data is None else len(data), 0, -1, record.fault)
            record.entries.append(DamageEntry(damage, 0))
            record.is_stored = False
        return record

    @property
    def unaccepted(self) -> tuple[Damage, ...]:
        """What is not acknowledged yet."""
        return tuple(entry.damage for entry in self.entries if not entry.is_accepted)

    @property
    def lost_records(self) -> int:
        """How many offsets the unaccepted damages cost, each counted once."""
        lost = end = 0
        for first, last in sorted((damage.first_offset, damage.last_offset) for damage in self.unaccepted):
            lost += max(0, last + 1 - max(first, end))
            end = max(end, last + 1)
        return lost

    @property
    def lost_end(self) -> int:
        """One above the highest offset that was found lost, accepted or not; 0 when none was."""
        return max([entry.damage.last_offset + 1 for entry in self.entries], default=0)

    @property
    def covered_end(self) -> int:
        """The lowest offset of a damage that is not in the file yet; the damage of a segment may go with it below."""
        return min(
            [entry.damage.first_offset for entry in self.entries[self._stored_count :]], default=OFFSET_MAX
        )

    async def cover(self, end: int) -> None:
        """Have the file name every damage. Raises `PlanFailed`."""
        del end
        await self.store()

    def add(self, damages: Iterable[Damage], now_us: int) -> list[Damage]:
        """Note what is not noted yet; returns it. Damage to offsets that are known to be lost is no news."""
        known = {entry.damage for entry in self.entries}
        lost = [(entry.damage.first_offset, entry.damage.last_offset) for entry in self.entries]
        new = []
        for damage in damages:
            first, last = damage.first_offset, damage.last_offset
            is_known = first <= last and any(start <= first and last <= end for start, end in lost)
            if damage in known or is_known or len(self.entries) >= DAMAGES_KEPT:
                continue
            known.add(damage)
            lost.append((first, last))
            self.entries.append(DamageEntry(damage, now_us))
            new.append(damage)
        if new:
            self.is_stored = False
            self._new += new
        return new

    def take_new(self) -> list[Damage]:
        """What was noted since the last call, and was not known before."""
        new, self._new = self._new, []
        return new

    async def note(self, damages: Iterable[Damage], now_us: int) -> None:
        """As `add`, and store it. A disk that refuses is no reason not to serve the rest."""
        self.add(damages, now_us)
        with suppress(PlanFailed):
            await self.store()

    def accept(self) -> bool:
        """Mark all as acknowledged; whether there were any to mark."""
        if not self.unaccepted:
            return False
        self.entries = [attrs.evolve(entry, is_accepted=True) for entry in self.entries]
        self.is_stored = False
        return True

    async def store(self) -> None:
        """Write the file unless it says all this already. Raises `PlanFailed`."""
        async with self._storing:
            if not self.is_stored:
                count, self.is_stored = len(self.entries), True  # unless something is noted meanwhile
                try:
                    await replace_whole(self._files, self.path, encode(self.entries))
                except BaseException:
                    self.is_stored = False
                    raise
                self._is_counted = count == self._stored_count and self._is_counted
                self._stored_count = count
            if not self._is_counted:
                await self._count()

    async def count_anew(self) -> None:
        """The file `committed` was made anew: have it say again how many entries there are."""
        self._is_counted = not self._stored_count
        with suppress(PlanFailed):
            await self.store()

    async def _count(self) -> None:
        """Have `committed` say how many entries are in the file: one that the disk refuses is tried again later."""
        handle = self._files.handle(self._committed_path)
        write = Write(handle, NOTED_AT, (encode_noted(self._stored_count),))
        try:
            await self._files.submit((Open(handle), write, Sync(handle), Close(handle)))
            self._is_counted = True
        except PlanFailed:
            with suppress(PlanFailed):
                await self._files.submit((Close(handle),))


def encode(entries: Iterable[DamageEntry]) -> bytes:
    """The bytes of the file: a head, then a CBOR array of maps."""
    items = [
        {**attrs.asdict(entry.damage), "found_us": entry.found_us, "accepted": entry.is_accepted}
        for entry in entries
    ]
    body = cbor2.dumps(items, canonical=True)
    head = MAGIC + VERSION.to_bytes(4, "little")
    return head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body


def decode(data: bytes) -> list[DamageEntry]:
    """The entries; unknown fields of a map are left out. Raises ValueError, TypeError, CBORError; `FormatTooNew`."""
    head, body = data[:HEAD_BYTES], data[HEAD_BYTES:]
    version, checksum = int.from_bytes(head[4:8], "little"), int.from_bytes(head[8:], "little")
    # In version 1 the checksum does not cover the head: a flipped bit there must not pass for a newer version.
    seed = 0 if version == 1 else zlib.crc32(head[:8])
    if head[:4] != MAGIC or checksum != zlib.crc32(body, seed):
        raise ValueError("not a record of damage")
    if version > VERSION:
        raise too_new(f"a record of damage has version {version}", found=version, supported=VERSION)
    items: list[dict[str, Any]] = cbor2.loads(body)
    return [
        DamageEntry(
            Damage(
                str(item["path"]),
                int(item["start"]),
                int(item["end"]),
                int(item["first_offset"]),
                int(item["last_offset"]),
                str(item["reason"]),
            ),
            int(item["found_us"]),
            bool(item["accepted"]),
        )
        for item in items
    ]
