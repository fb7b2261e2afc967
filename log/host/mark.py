"""The real mark: a small file mapped into memory."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from typing import TYPE_CHECKING

from callboard.log.errors import InvalidArgument
from callboard.log.seams.plans import stale

if TYPE_CHECKING:
    from .disk import HostIncarnation


__all__ = ["HostMark", "map_file"]


def map_file(path: str, length: int) -> mmap.mmap:
    """Map the first `length` bytes of a file, made and filled with zeros as needed. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size < length:
            # Written, not truncated: a store into a hole of a full disk would kill the process (SIGBUS).
            os.pwrite(descriptor, bytes(length - status.st_size), status.st_size)
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)


class HostMark:
    """A mapped file of one incarnation. Holds one descriptor until closed."""

    __slots__ = ("_incarnation", "_length", "_map", "_path")

    def __init__(self, path: str, mapped: mmap.mmap, incarnation: HostIncarnation) -> None:
        self._path = path
        self._length = len(mapped)
        self._map: mmap.mmap | None = mapped
        self._incarnation = incarnation

    def store(self, data: bytes) -> None:
        """Replace the content. Raises `StaleIncarnation` once fenced; does nothing once closed."""
        if self._incarnation.is_fenced:
            raise stale(self._incarnation.owner)
        if len(data) != self._length:
            raise InvalidArgument(
                f"the mark {self._path!r} holds {self._length} bytes, not {len(data)}. Nothing was stored.",
                path=self._path,
            )
        if self._map is not None:
            self._map[:] = data

    def load(self) -> bytes:
        """The content now; empty once closed."""
        return b"" if self._map is None else self._map[:]

    def close(self) -> None:
        """Unmap. Later calls do nothing."""
        mapped, self._map = self._map, None
        if mapped is not None:
            self._incarnation.unmapped(self)
            mapped.close()
