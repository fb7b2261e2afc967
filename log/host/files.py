"""Open files of the real disk.

A *handle* is one owner's open file; a *file* here is the inode behind one or several handles. The difference matters
twice: a descriptor must not be closed, and its number reused for another file, while a thread still works with it; and
whether a file has unsynced bytes is a property of the inode.

Invariants
----------
F1  A descriptor is closed only when nothing is pinned to its handle. Who pins, unpins.
F2  `File.unsynced` is False only when every byte written through this disk was synced; it starts True for a file
    found on disk, whose past is unknown. It changes only under `File.guard`.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .disk import HostIncarnation


__all__ = ["File", "FileTable", "HostHandle"]


class File:
    """An inode that is open here, with one or several handles."""

    __slots__ = ("guard", "handles", "key", "unsynced")

    def __init__(self, key: tuple[int, int], *, unsynced: bool) -> None:
        self.key = key
        self.unsynced = unsynced
        self.handles = 0
        self.guard = threading.Lock()


class FileTable:
    """The open files of one disk, by device and inode number."""

    __slots__ = ("_files", "_guard")

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], File] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def enter(self, status: os.stat_result, *, created: bool) -> File:
        """The file that `status` describes, with one handle more."""
        key = (status.st_dev, status.st_ino)
        with self._guard:
            file = self._files.get(key)
            if file is None:
                file = self._files[key] = File(key, unsynced=not created)
            file.handles += 1
            return file

    def leave(self, file: File) -> None:
        """One handle less. A file without handles is forgotten, and with it what is known of its syncs."""
        with self._guard:
            file.handles -= 1
            if not file.handles:
                del self._files[file.key]


class HostHandle:
    """A file of one incarnation."""

    __slots__ = ("_descriptor", "_doomed", "_file", "_guard", "_path", "_pins", "incarnation")

    def __init__(self, path: str, incarnation: HostIncarnation) -> None:
        self._path = path
        self.incarnation = incarnation
        self._descriptor = -1
        self._file: File | None = None
        self._pins = 0
        self._doomed: list[int] = []
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"<HostHandle {self._path!r} of {self.incarnation.owner!r}>"

    @property
    def path(self) -> str:
        """Relative to the disk's root."""
        return self._path

    @property
    def is_open(self) -> bool:
        """Whether the handle may be read and written."""
        return self._descriptor >= 0

    @property
    def file(self) -> File:
        """The file behind an open handle."""
        if self._file is None:
            raise OSError(errno.EBADF, "the handle is not open", self._path)
        return self._file

    def attach(self, descriptor: int, file: File) -> None:
        """Take over an open descriptor."""
        self._file = file
        self._descriptor = descriptor

    def pin(self) -> int:
        """The descriptor, kept open until `unpin` (F1). Raises OSError (EBADF) when closed."""
        with self._guard:
            if self._descriptor < 0:
                raise OSError(errno.EBADF, "the handle is not open", self._path)
            self._pins += 1
            return self._descriptor

    def unpin(self) -> None:
        """Let go of the descriptor, and close it if that was asked for meanwhile."""
        with self._guard:
            self._pins -= 1
            if self._pins or not self._doomed:
                return
            doomed, self._doomed = self._doomed, []
        for descriptor in doomed:
            os.close(descriptor)

    def detach(self) -> File | None:
        """Close, now or when the last pin is gone. Returns the file that was open, if any."""
        with self._guard:
            descriptor, self._descriptor = self._descriptor, -1
            file, self._file = self._file, None
            if descriptor < 0:
                return None
            if self._pins:
                self._doomed.append(descriptor)
                return file
        os.close(descriptor)
        return file
