"""Writing a recording: batches by partition, into a folder that appears whole or not at all.

The files are made in a folder beside the one wanted. When everything is synced the manifest is written, and the folder
gets its name. A crash before that leaves the unfinished folder, which the next attempt removes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import attrs
import trio

from callboard.log.errors import NO_SPACE, DiskFull, InvalidArgument, PlanFailed, StorageError
from callboard.log.format.columns import Columns
from callboard.log.format.compression import NONE, Compression
from callboard.log.limits import MIB, SEGMENT_BYTES_DEFAULT
from callboard.log.removal import remove_tree
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Create,
    Incarnation,
    MakeDirectory,
    Open,
    Rename,
    Sync,
    SyncDirectory,
    Verb,
    Write,
)
from callboard.log.segments.small_files import replace_whole
from callboard.recordings.encoder import Append, Begin, Output, PartitionEncoder
from callboard.recordings.key_count import KeyCount
from callboard.recordings.manifest import MANIFEST_NAME, PARTITIONS_MAX, Manifest

GATHERED_BYTES: Final = 1 * MIB
"""Bytes of a partition that are written together; all of a recording's are written when each has a few."""
GATHERED_BYTES_MAX: Final = 16 * MIB
UNFINISHED_SUFFIX: Final = ".unfinished"


@attrs.define(eq=False)
class _PartitionFolder:
    """One partition's folder. No file stays open between two writes, however many partitions there are."""

    directory: str
    encoder: PartitionEncoder
    path: str = ""
    position: int = 0
    buffers: list[Buffer] = attrs.field(factory=list)
    size_bytes: int = 0


class RecordingWriter:
    """Takes batches until its block ends; see `new_recording`. One task uses it at a time."""

    def __init__(
        self,
        files: Incarnation,
        directory: str,
        encoders: list[PartitionEncoder],
        source: dict[str, str],
    ) -> None:
        self.source = source
        """What the recording was made from; may be added to until the end."""
        self._files = files
        self._directory = directory
        self._parts = [_PartitionFolder(f"{directory}/{encoder.partition}", encoder) for encoder in encoders]
        self._gathered_bytes = 0

    async def append(self, partition: int, columns: Columns) -> None:
        """Append a batch, as one frame; its records get the partition's next offsets and keep their times.

        Raises `InvalidArgument` for a partition that is not there, `DiskFull`, `StorageError`.
        """
        if not 0 <= partition < len(self._parts):
            raise InvalidArgument(
                f"the recording has no partition {partition}: they are 0 to {len(self._parts) - 1}."
            )
        part = self._parts[partition]
        with _storage_errors(self._directory):
            await self._carry_out(part, part.encoder.add(columns))
            if part.size_bytes >= GATHERED_BYTES:
                await self._write(part)
            elif self._gathered_bytes >= GATHERED_BYTES_MAX:
                for each in self._parts:
                    await self._write(each)

    @property
    def records(self) -> int:
        """How many there are so far."""
        return sum(part.encoder.next_offset for part in self._parts)

    async def finish(self) -> Manifest:
        """Seal and sync everything, then write the manifest."""
        keys = KeyCount()
        for part in self._parts:
            await self._carry_out(part, part.encoder.finish())
            await self._files.submit((SyncDirectory(part.directory),))
            keys.merge(part.encoder.keys)
        manifest = Manifest(
            source=self.source,
            keys=(keys.distinct, keys.is_exact),
            partitions=tuple(part.encoder.row for part in self._parts),
        )
        await replace_whole(self._files, f"{self._directory}/{MANIFEST_NAME}", manifest.encode())
        return manifest

    async def _carry_out(self, part: _PartitionFolder, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Append):
                part.buffers += output.buffers
                size_bytes = sum(map(len, output.buffers))
                part.size_bytes += size_bytes
                self._gathered_bytes += size_bytes
                continue
            await self._write(part, is_last=True)
            handle = self._files.handle(f"{part.directory}/{output.name}")
            if isinstance(output, Begin):
                part.path, part.position = handle.path, 0
                await self._files.submit((Create(handle), Close(handle)))
            else:
                plan = (Create(handle), Write(handle, 0, (output.data,)), Sync(handle), Close(handle))
                await self._files.submit(plan)

    async def _write(self, part: _PartitionFolder, *, is_last: bool = False) -> None:
        """Write what was gathered of the file in hand; sync it when it is the last of it."""
        if not part.path or not (part.buffers or is_last):
            return
        handle = self._files.handle(part.path)
        verbs: list[Verb] = [Open(handle)]
        if part.buffers:
            verbs.append(Write(handle, part.position, tuple(part.buffers)))
        verbs += [Sync(handle), Close(handle)] if is_last else [Close(handle)]
        try:
            await self._files.submit(verbs)
        except PlanFailed:
            with suppress(PlanFailed):
                await self._files.submit((Close(handle),))
            raise
        part.position += part.size_bytes
        self._gathered_bytes -= part.size_bytes
        part.buffers, part.size_bytes = [], 0
        if is_last:
            part.path = ""


@contextmanager
def _storage_errors(unfinished: str) -> Iterator[None]:
    """What the disk refused, in words for the maker of a recording."""
    try:
        yield
    except PlanFailed as failed:
        is_full = failed.error.errno in NO_SPACE
        path = unfinished.removesuffix(UNFINISHED_SUFFIX)
        advice = "Free space, or choose another place." if is_full else "Check the disk, and permissions."
        raise (DiskFull if is_full else StorageError)(
            f"the recording {path} cannot be written: {failed.error.strerror or failed.error}. Nothing of it is left."
            f" {advice}"
        ) from failed


@asynccontextmanager
async def new_recording(
    files: Incarnation,
    directory: str,
    *,
    partitions: int,
    source: Mapping[str, str] | None = None,
    seed: str = "",
    segment_bytes: int = SEGMENT_BYTES_DEFAULT,
    compression: Compression = NONE,
) -> AsyncIterator[RecordingWriter]:
    """Make the recording `directory`, a name in the root of the disk; it is there, whole, when the block has ended.

    When the block raises, nothing of it is left. `seed` distinguishes recordings of the same records. Raises
    `InvalidArgument` when the name is taken, `DiskFull`, `StorageError`.
    """
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidArgument(f"a recording of {partitions} partitions: it has 1 to {PARTITIONS_MAX}.")
    encoders = [
        PartitionEncoder(partition, seed=seed, segment_bytes=segment_bytes, compression=compression)
        for partition in range(partitions)
    ]
    parent, _, _ = directory.rpartition("/")
    taken = {entry.name for entry in await files.list(parent)}
    if directory.rpartition("/")[2] in taken:
        raise InvalidArgument(f"{directory} is there already. Nothing was written. Choose another name.")
    unfinished = directory + UNFINISHED_SUFFIX
    await remove_tree(files, unfinished)
    writer = RecordingWriter(files, unfinished, encoders, dict(source or {}))
    try:
        with _storage_errors(unfinished):
            await files.submit(
                [MakeDirectory(f"{unfinished}/{partition}") for partition in range(partitions)]
            )
        yield writer
        with _storage_errors(unfinished):
            await writer.finish()
            await files.submit(
                (SyncDirectory(unfinished), Rename(unfinished, directory), SyncDirectory(parent))
            )
    except BaseException:
        with trio.CancelScope(shield=True), suppress(PlanFailed):
            await remove_tree(files, unfinished)
        raise
