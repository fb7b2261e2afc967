"""How far a journal was proven: in the mapped file `committed` beside its segments, and in memory.

The file is what the next process knows, memory what the next incarnation of an actor knows, whatever became of the file
meanwhile. Both are advanced behind a sync and never ahead of it, so what lies below and is missing is damage.
"""

from __future__ import annotations

from contextlib import suppress

import attrs

from callboard.log.errors import PlanFailed, StorageError
from callboard.log.format.committed import (
    COMMITTED_BYTES,
    COMMITTED_NAME,
    decode_committed,
    encode_committed,
)
from callboard.log.format.faults import CommittedInvalid
from callboard.log.journal.journal_disk import error_of, is_full, make_directory
from callboard.log.seams.disk import Incarnation, Mark

__all__ = ["ProvenEnd", "ProvenMark"]


@attrs.define(eq=False)
class ProvenEnd:
    """What memory knows: for owners that outlive an incarnation which had the journal open."""

    sequence: int = 0
    """Every record below it survived a sync."""


class ProvenMark:
    """The end of one journal that is open."""

    def __init__(self, end: ProvenEnd) -> None:
        self._end = end
        self._mark: Mark | None = None

    @property
    def sequence(self) -> int:
        """Every record below it survived a sync."""
        return self._end.sequence

    async def open(self, files: Incarnation, directory: str) -> None:
        """Make the directory and map the file; without space for it, memory alone knows.

        Raises `StorageError` when the disk refuses, `FormatTooNew`.
        """
        try:
            await make_directory(files, directory)
        except PlanFailed as error:
            raise error_of(directory, "opening", error) from error
        try:
            self._mark = await files.mark(f"{directory}/{COMMITTED_NAME}", COMMITTED_BYTES)
        except StorageError as error:
            if not is_full(error):
                raise
            return
        with suppress(CommittedInvalid):
            self._end.sequence = max(self._end.sequence, decode_committed(self._mark.load()).durable_end)
        if self._end.sequence:
            self._store()  # what memory knows is what repair must know

    def advance(self, sequence: int) -> None:
        """A sync covered every record below `sequence`."""
        if sequence > self._end.sequence:
            self._end.sequence = sequence
            self._store()

    def close(self) -> None:
        """Unmap the file."""
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()

    def _store(self) -> None:
        if self._mark is not None:
            self._mark.store(encode_committed(self._end.sequence, self._end.sequence))
