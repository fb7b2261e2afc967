"""What journals do to the disk besides appending: name new segments, drop old ones, tell failures apart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from callboard.log.errors import DiskFull, PlanFailed, StorageError, lacks_space
from callboard.log.format.frame import frame_length
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Entry,
    Incarnation,
    MakeDirectory,
    Open,
    Rename,
    SyncDirectory,
    Truncate,
    Unlink,
    Verb,
)
from callboard.log.segments.segment_file import NEW_SUFFIX, SEGMENT_SUFFIX, SegmentFile, segment_sizes
from callboard.log.segments.wrong_kind import wrong_kind_met


def may_have_named(error: PlanFailed) -> bool:
    """Whether a failed creation may have given the new segment its name."""
    return isinstance(error.verb, (Rename, Open, Close, SyncDirectory))


def error_of(directory: str, doing: str, error: PlanFailed, advice: str = "") -> StorageError:
    """The journal's words for a failed plan: `DiskFull` when that is the reason."""
    if (wrong := wrong_kind_met(error)) is not None:
        return wrong
    words = f"journal {directory}: {doing} failed: {error.error.strerror or error.error}. {advice}".rstrip()
    found = (DiskFull if lacks_space(error) else StorageError)(words, path=directory, error=error.error)
    found.__cause__ = error
    return found


async def make_directory(files: Incarnation, directory: str) -> None:
    """Make `directory` and those above it, so that their names survive power loss.

    The names in it are synced too: the life before may have ended between a rename and its sync.
    """
    verbs: list[Verb] = [MakeDirectory(directory), SyncDirectory(directory)]
    above = directory
    while above:
        above = above.rpartition("/")[0]
        verbs.append(SyncDirectory(above))
    await files.submit(verbs)


async def segment_bases(files: Incarnation, directory: str) -> list[int]:
    """The base offsets of the segments in `directory`, rising."""
    return list(segment_sizes(await files.list(directory)))


async def remove_unfinished(files: Incarnation, directory: str, entries: Sequence[Entry]) -> list[int]:
    """Remove segments whose creation did not end. Returns the base offsets of the others, rising."""
    unfinished = [entry.name for entry in entries if entry.name.endswith(NEW_SUFFIX)]
    if unfinished:
        await files.submit([Unlink(f"{directory}/{name}") for name in unfinished])
    return list(segment_sizes(entries))


async def start_segment(
    files: Incarnation,
    segment: SegmentFile,
    header: bytes,
    frames: Sequence[Buffer],
    reserves: Sequence[int],
    first: Sequence[Verb] = (),
) -> None:
    """Create `segment` with `frames` and a reserve of zeros, in one plan that begins with the verbs `first`.

    When the disk is too full for the first of `reserves` (bytes), the next is tried. Raises `PlanFailed`; an
    unfinished file is removed then.
    """
    size = frame_length(frames)
    await remove_unfinished(files, segment.directory, await files.list(segment.directory))
    for reserve in reserves:
        verbs = [*first, *segment.start_verbs(header, allocate_bytes=size + reserve if reserve else 0)]
        if frames:
            verbs += segment.fill_verbs(frames, size)
        verbs += segment.naming_verbs()
        try:
            await files.submit(verbs)
        except PlanFailed as error:
            await segment.give_up()
            if not may_have_named(error):
                # Free its space. If that fails it is removed by the next creation, or the next open.
                with suppress(PlanFailed):
                    await files.submit((Unlink(segment.path.removesuffix(SEGMENT_SUFFIX) + NEW_SUFFIX),))
            if reserve != reserves[-1] and lacks_space(error):
                continue
            raise
        return


async def close_quietly(files: Incarnation, segment: SegmentFile) -> None:
    """Close a file that is no longer needed: a failure to close it loses nothing."""
    with suppress(PlanFailed):
        await files.submit((Close(segment.handle),))


async def leave_segment(files: Incarnation, segment: SegmentFile, successor: SegmentFile) -> None:
    """Close a segment that has a successor, and give back the zeros behind its last frame.

    That needs no sync: until it is on the disk, the zeros are.
    """
    if segment.base_offset != successor.base_offset:  # else the successor has taken its name
        with suppress(PlanFailed):
            await files.submit((Truncate(segment.handle, segment.position), Close(segment.handle)))
            return
    await close_quietly(files, segment)
