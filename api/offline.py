"""Reading a directory's topics without its lock, whether or not a process has it open; and recordings, by path.

The catalog's journal is replayed from the files as they lie, as far as it makes sense: this changes nothing, waits for
no other process and never makes a runtime's opening fail. Of each partition it sees what its process has committed.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

from callboard.actors.catalog.commands import TopicRecord
from callboard.actors.catalog.state import RECORDS_VERSION, CatalogState
from callboard.log.errors import (
    InvalidArgument,
    JournalInvalid,
    LogCorrupt,
    PlanFailed,
    StorageError,
    TopicNotFound,
)
from callboard.log.host.clock import HostClock
from callboard.log.host.disk import HostDisk
from callboard.log.journal.journal_walk import Owner, read_journal
from callboard.log.offline.reader import LogReader
from callboard.log.seams.disk import Incarnation
from callboard.recordings.manifest import MANIFEST_NAME
from callboard.recordings.reader import Recording, open_recording

OURS: Final = frozenset({"catalog", "topics"})
NAME_BYTES_MAX: Final = 200
"""Of a recording: file systems take 255, and it has longer names while it is made."""
TRIES: Final = 3
"""The catalog's process may replace a segment between our listing and our opening it."""


class OfflineDirectory:
    """`async with OfflineDirectory(directory) as offline`. Raises `StorageError` when there is no such directory.

    Its disk can change nothing, and needs no right to: only a repair asks for `writable`.
    """

    def __init__(self, directory: str, *, writable: bool = False) -> None:
        require_directory(directory)
        self.disk = HostDisk(directory, read_only=not writable)
        self.clock = HostClock()
        self._directory = directory
        self.files: Incarnation

    async def __aenter__(self) -> Self:
        self.files = await self.disk.incarnate("offline")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.disk.aclose()

    async def topic(self, name: str) -> TopicRecord:
        """The topic of that name. Raises `TopicNotFound` with what to do, `LogCorrupt` when it may be lost."""
        replay = await self.catalog()
        found = replay.state.topic(name)
        if found is not None:
            return found
        if replay.senseless:
            words = f"topic {name!r} is not in what can be understood of the catalog: {replay.senseless[0]}"
            raise JournalInvalid(words, path="catalog", group=None)
        if replay.faults:
            raise LogCorrupt(
                f"topic {name!r} is not in what can be read of the catalog: {replay.faults[0]}. Run"
                " `callboard verify`, then `callboard repair`.",
                path="catalog",
                offsets=None,
            )
        raise topic_not_found(name, [record.name for record in replay.state.topics.values()], self._directory)

    async def reader(self, topic: TopicRecord, partition: int) -> LogReader:
        """A reader of one partition."""
        return await LogReader.open(self.files, f"topics/{topic.topic_id}/{partition}")

    async def file_bytes(self, topic: TopicRecord, partition: int) -> int:
        """Bytes of a partition's files, with the space that they keep ahead."""
        entries = await self.files.list(f"topics/{topic.topic_id}/{partition}")
        return sum(entry.size_bytes for entry in entries)

    def check_partition(self, topic: TopicRecord, partition: int | None) -> None:
        """Raise `InvalidArgument` when the topic has no such partition."""
        count = topic.settings.partitions
        if partition is not None and not 0 <= partition < count:
            raise InvalidArgument(
                f"topic {topic.name!r} has no partition {partition}. Its partitions are 0 to {count - 1}."
            )

    async def catalog(self) -> CatalogReplay:
        """The catalog's state. Raises `StorageError`, `FormatTooNew`."""
        for _ in range(TRIES):
            try:
                return await _replayed(self.files)
            except PlanFailed as failed:
                if not isinstance(failed.error, FileNotFoundError):
                    raise
        raise StorageError("the catalog changes faster than it can be read. Try again.", path="catalog")


class CatalogReplay(NamedTuple):
    """One reading of the catalog's journal. What makes no sense is passed over and named in `faults`."""

    state: CatalogState
    faults: list[str]
    senseless: list[str]
    """Of the faults, those that are no damage."""

    def topics(self) -> list[TopicRecord]:
        """Topics by name, without those being deleted."""
        found = [record for record in self.state.topics.values() if not record.deleting]
        return sorted(found, key=lambda record: record.name)


async def _replayed(files: Incarnation) -> CatalogReplay:
    """Read all there is. Raises `PlanFailed`, `FormatTooNew`."""
    state, senseless = CatalogState(), list[str]()

    def tried(take: Callable[[bytes], None], stored: bytes) -> None:
        try:
            take(stored)
        except JournalInvalid as fault:
            senseless.append(str(fault))

    owner = Owner(
        partial(tried, state.restore),
        partial(tried, state.replay),
        RECORDS_VERSION,
        versioned=state.versioned,
        lost=state.lost,
    )
    reading = await read_journal(files, "catalog", owner)
    return CatalogReplay(state, [*reading.faults, *senseless], senseless)


def topic_not_found(name: str, known: list[str], directory: str) -> TopicNotFound:
    """The error of the command line for an unknown topic: what to type instead."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return TopicNotFound(
        f"there is no topic {name!r} in {directory}.{hint} Create it with `callboard topic create`; `callboard topic"
        " list` shows those that are there.",
        topic=name,
    )


def require_directory(path: str) -> None:
    """Raise `StorageError` unless `path` is a runtime's directory that can be read. Nothing is created."""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise StorageError(f"{path} is not a directory. Name a runtime's directory with -d.", path=path)
        names = set(os.listdir(path))
    except FileNotFoundError as error:
        raise StorageError(
            f"there is no directory {path}. Check the name (-d), or start one with `callboard topic create`.",
            path=path,
        ) from error
    except OSError as error:
        raise StorageError(
            f"the directory {path} cannot be read: {error.strerror}. Correct its permissions, or name another.",
            path=path,
        ) from error
    if not names & OURS:
        raise StorageError(
            f"{path} holds no topics: no runtime ever wrote there. Check the name (-d), or start one with"
            " `callboard topic create`.",
            path=path,
        )


# -- recordings


def folder_and_name(path: str) -> tuple[str, str]:
    """The folder that holds `path`, and its name there. Raises `InvalidArgument` when that cannot be."""
    folder, name = os.path.split(os.path.abspath(path)) if path and "\0" not in path else ("", "")
    if not name:
        raise InvalidArgument(f"{path!r:.80} is no name of a recording. Nothing was written.")
    if len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise InvalidArgument(
            f"{name[:40]}... is too long for the name of a recording: at most {NAME_BYTES_MAX} bytes. Nothing was"
            " written."
        )
    if not os.path.isdir(folder):
        raise InvalidArgument(f"there is no folder {folder}. Nothing was written. Make it, or name another.")
    return folder, name


def is_recording(path: str) -> bool:
    """Whether there is a recording of that name, whole or not."""
    return "\0" not in path and os.path.lexists(os.path.join(path, MANIFEST_NAME))


def is_ours(folder: str) -> bool:
    """Whether a folder is a recording or a runtime's directory."""
    return is_recording(folder) or all(os.path.isdir(os.path.join(folder, name)) for name in OURS)


@asynccontextmanager
async def files_below(folder: str, *, writable: bool = False) -> AsyncIterator[Incarnation]:
    """The files below a folder, by names from there on."""
    disk = HostDisk(folder, read_only=not writable)
    try:
        yield await disk.incarnate("files")
    finally:
        await disk.aclose()


@asynccontextmanager
async def recording_at(path: str) -> AsyncIterator[Recording]:
    """The recording at `path`, to be read. Raises `RecordingInvalid`, `FormatTooNew`, `InvalidArgument`."""
    folder, name = folder_and_name(path)
    async with files_below(folder) as files:
        yield await open_recording(files, name)
