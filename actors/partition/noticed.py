"""The file `clock` of a partition: the stamps that are ahead, and when that was noticed (`stamps`).

A stamp that is ahead counts as of when that was noticed. The file has that moment outlive the process: without it each
opening would notice anew, and what a clock has stamped that was ahead would never grow old where openings are frequent.

It is a help, no summary: a file that is lost, cannot be read or is another partition's is passed over, and what it said
is noticed anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs
import cbor2

from callboard.actors.partition.group_records import RECORDS_VERSION
from callboard.log.errors import StorageError
from callboard.log.format.fields import CBOR_ERRORS
from callboard.log.format.segment import identity_of
from callboard.log.format.stamps import Stamps, is_ahead
from callboard.log.journal.journal_walk import Owner, ignore, read_journal
from callboard.log.limits import CLOCK_BYTES_MAX
from callboard.log.partition.partition_log import PartitionLog
from callboard.log.seams.disk import Entry, Incarnation
from callboard.log.segments.small_files import read_whole, replace_whole

CLOCK_NAME: Final = "clock"
MAGIC: Final = b"CBCK"
VERSION: Final = 1
HEAD: Final = MAGIC + VERSION.to_bytes(4, "little")
HEAD_BYTES: Final = 12
"""Magic, version (u32), CRC-32 of both and the body (u32)."""

Pairs = tuple[tuple[int, int], ...]


@attrs.define(eq=False)
class NoticedStamps:
    """Keeps a partition's `Stamps` in the folder of its delivery journal."""

    _files: Incarnation
    _directory: str
    _stamps: Stamps
    _stored: Pairs = ()

    @property
    def path(self) -> str:
        """The file's path."""
        return f"{self._directory}/{CLOCK_NAME}"

    async def load(self, entries: Sequence[Entry]) -> None:
        """Go on with what the file says, if the directory with `entries` has one."""
        size = next((entry.size_bytes for entry in entries if entry.name == CLOCK_NAME), None)
        if size is None or size > CLOCK_BYTES_MAX:
            return
        with suppress(StorageError, *CBOR_ERRORS):
            self._stored = decode(
                await read_whole(self._files, self.path) or b"", identity_of(self._directory)
            )
        self._stamps.resume(self._stored)

    async def notice_journal(self, now_us: int) -> None:
        """Before the delivery journal is replayed: where its times go back, the clock was set right, and at its end.

        What is known may be of another time, when the clock was ahead by more. If nothing is known, all that is ahead
        is noticed as it is replayed.
        """
        if not self._knows_ahead(now_us):
            return
        last_us = 0

        def written(wall_us: int) -> None:
            nonlocal last_us
            self._stamps.notice(last_us, wall_us)
            last_us = wall_us

        with suppress(StorageError):  # opening the journal says what is wrong with it
            owner = Owner(ignore, ignore, RECORDS_VERSION, written=written)
            await read_journal(self._files, self._directory, owner)
        self._stamps.notice(last_us, now_us)

    async def notice_last(self, log: PartitionLog, now_us: int) -> None:
        """What the log stamped last is ahead: so was the clock until the log was closed, if it was not noticed before.

        The log itself looks at its latest stamp. That may be of another time, when the clock was ahead by more.
        """
        if self._knows_ahead(now_us):
            with suppress(StorageError):
                found = await log.read(max(log.start_offset, log.visible_end - 1), max_records=1)
                for columns in found.batches:
                    self._stamps.notice(columns.append_time_us, now_us)

    def _knows_ahead(self, now_us: int) -> bool:
        return any(is_ahead(stamp_us, now_us) for stamp_us, _ in self._stamps.pairs)

    async def keep(self) -> None:
        """Write the file unless it says all that is known. If the disk refuses, the next occasion tries again."""
        pairs = self._stamps.pairs
        if pairs != self._stored:
            with suppress(StorageError):
                await replace_whole(self._files, self.path, encode(pairs, identity_of(self._directory)))
                self._stored = pairs


def encode(pairs: Pairs, identity: int) -> bytes:
    """The bytes of the file: a head, then a CBOR map."""
    body = cbor2.dumps({"noticed": [list(pair) for pair in pairs], "identity": identity})
    return HEAD + zlib.crc32(body, zlib.crc32(HEAD)).to_bytes(4, "little") + body


def decode(data: bytes, identity: int) -> Pairs:
    """What the file says of the partition with this identity. Raises one of `CBOR_ERRORS`."""
    body = data[HEAD_BYTES:]
    if data[:8] != HEAD or int.from_bytes(data[8:HEAD_BYTES], "little") != zlib.crc32(body, zlib.crc32(HEAD)):
        raise ValueError("its checksum is wrong, or its version is unknown")
    found = cbor2.loads(body)
    if found["identity"] != identity:
        raise ValueError("it belongs to another partition")
    pairs = tuple([(stamp_us, at_us) for stamp_us, at_us in found["noticed"]])
    if not all(type(number) is int for pair in pairs for number in pair):
        raise ValueError("a time is no number")
    return pairs
