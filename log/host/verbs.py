"""How the real disk runs the verbs of a plan. Called in a thread, except in the disk's inline mode.

Fusing. `Write` followed by `Sync` of the same handle is what every commit does. Where the kernel has `RWF_DSYNC` both
become one `pwritev`: one system call, and one release of the interpreter lock instead of two (82 against 110 us
measured). The flag only syncs the bytes of that call, so it is used only when the file has no other unsynced bytes.
A failure of the fused call is blamed on the write when it is about space or about the call itself, since then the bytes
of this call are all that can be missing; any other failure is blamed on the sync, and proves nothing about them (DK5).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any, Final

from callboard.log.seams.disk import (
    Buffer,
    Close,
    Create,
    Link,
    MakeDirectory,
    NotAFile,
    Open,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Verb,
    Write,
    Zero,
)

from .files import FileTable, HostHandle

IOV_MAX: Final = os.sysconf("SC_IOV_MAX")
RWF_DSYNC: Final[int] = getattr(os, "RWF_DSYNC", 0)
F_FULLFSYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
ZEROS: Final = bytes(1024 * 1024)

# No space: the bytes of this call are all that can be missing. The others: refused before a byte was written.
BLAMES_WRITE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EINVAL})
UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def read_fully(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes from `offset`; fewer than `length` only at the end of the file."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    parts = [data]
    missing = length - len(data)
    while data and missing:
        data = os.pread(descriptor, missing, offset + length - missing)
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _total(buffers: Sequence[Buffer]) -> int:
    return sum([part.nbytes if type(part) is memoryview else len(part) for part in buffers])


def _write_all(descriptor: int, buffers: Sequence[Buffer], total: int, offset: int, flags: int = 0) -> None:
    """Write everything, `total` bytes, however little the system takes at a time."""
    if not total:
        return
    if offset < 0:
        raise OSError(errno.EINVAL, "negative offset")  # pwritev takes -1 for "where the last write ended"
    if len(buffers) <= IOV_MAX:
        written = _pwritev(descriptor, buffers, offset, flags)
        if written == total:
            return
    else:
        written = 0
    views = [memoryview(part).cast("B") for part in buffers if len(part)]
    while views := _after(views, written):
        offset += written
        written = _pwritev(descriptor, views[:IOV_MAX], offset, flags)
        if not written:
            raise OSError(errno.EIO, "the system wrote nothing")


def _after(views: list[memoryview], written: int) -> list[memoryview]:
    """The views without their first `written` bytes."""
    for index, view in enumerate(views):
        if written < len(view):
            return [view[written:], *views[index + 1 :]]
        written -= len(view)
    return []


if hasattr(os, "pwritev"):

    def _pwritev(descriptor: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        return (
            os.pwritev(descriptor, buffers, offset, flags)
            if flags
            else os.pwritev(descriptor, buffers, offset)
        )

else:  # macOS before 11

    def _pwritev(descriptor: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        return next(os.pwrite(descriptor, part, offset) for part in buffers if len(part))


def _full_sync(descriptor: int) -> None:
    """F_FULLFSYNC: on macOS neither fsync nor fdatasync reaches the platters."""
    if F_FULLFSYNC is not None:
        fcntl.fcntl(descriptor, F_FULLFSYNC)


_sync: Callable[[int], None] = os.fdatasync if F_FULLFSYNC is None else _full_sync
_sync_directory: Callable[[int], None] = os.fsync if F_FULLFSYNC is None else _full_sync


def _refuse_change(verb: Verb) -> None:
    raise OSError(errno.EROFS, "the disk was opened for reading only")


class Executor:
    """Runs plans below one root folder. With `read_only` files are opened for reading, and only that."""

    __slots__ = ("_fusing", "_open_flags", "_proven", "_root", "_verbs", "files")

    def __init__(self, root: str, *, descriptors: int, fuse: bool = True, read_only: bool = False) -> None:
        self._root = root
        self._open_flags = os.O_RDONLY if read_only else os.O_RDWR
        self._fusing = fuse and bool(RWF_DSYNC)
        self._proven = False
        self.files = FileTable(descriptors, _sync)
        self._verbs: dict[type, Callable[[Any], None]] = {
            Open: self._open,
            Create: self._create,
            Write: self._write,
            Zero: self._zero,
            Sync: self._sync,
            Truncate: self._truncate,
            Close: self._close,
            Rename: self._rename,
            Link: self._link,
            Unlink: self._unlink,
            MakeDirectory: self._make_directory,
            RemoveDirectory: self._remove_directory,
            SyncDirectory: self._sync_directory,
        }
        if read_only:
            refused = {kind: _refuse_change for kind in self._verbs if kind not in (Open, Close)}
            self._verbs.update(refused)
            self._fusing = False

    def run(self, plan: tuple[Verb, ...]) -> tuple[int, OSError] | None:
        """Run the verbs in order (DK2). The index of the failed verb and its error, None when all went well."""
        index, count, verbs = 0, len(plan), self._verbs
        try:
            while index < count:
                verb = plan[index]
                if type(verb) is Write and self._fusing and index + 1 < count:
                    following = plan[index + 1]
                    if type(following) is Sync and following.handle is verb.handle:
                        try:
                            fused = self._write_synced(verb)
                        except OSError as error:
                            return (index if error.errno in BLAMES_WRITE else index + 1), error
                        if fused:
                            index += 2
                            continue
                verbs[type(verb)](verb)
                index += 1
        except OSError as error:
            return index, error
        return None

    def close_handles(self, handles: Sequence[HostHandle]) -> None:
        """Close what a fenced incarnation left open. Errors are ignored, because its owner has ended."""
        for handle in handles:
            try:
                self._close(Close(handle))
            except OSError:
                continue

    # -- paths

    def resolve(self, path: str) -> str:
        """The system's path. A symbolic link below the root would lead out of it: OSError (ELOOP)."""
        place = self._root
        folders = path.split("/")[:-1]
        for folder in folders:
            place = f"{place}/{folder}"
            if stat.S_ISLNK(os.lstat(place).st_mode):
                raise OSError(errno.ELOOP, "a symbolic link below the root", path)
        return f"{self._root}/{path}" if path else self._root

    # -- verbs on files

    def _open(self, verb: Open) -> None:
        self._attach(verb.handle, self._open_flags)

    def _create(self, verb: Create) -> None:
        self._attach(verb.handle, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _attach(self, handle: Any, flags: int) -> None:
        if handle.is_open:
            raise OSError(errno.EBUSY, "the handle is open already", handle.path)
        # O_NONBLOCK: a FIFO in the place of a file must not stop the thread before it is recognised.
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = self.files.with_room(os.open, self.resolve(handle.path), flags, 0o600)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, or a device without a driver
                raise NotAFile(errno.EINVAL, "not a regular file", handle.path) from error
            raise
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):  # a disk for reading only can open one
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), handle.path)
            if not stat.S_ISREG(status.st_mode):
                raise NotAFile(errno.EINVAL, "not a regular file", handle.path)
            file = self.files.enter(handle, status, created=bool(flags & os.O_EXCL))
        except OSError:
            os.close(descriptor)
            raise
        handle.attach(descriptor, file)
        self.files.opened(handle)
        handle.incarnation.opened(handle)

    def reopen(self, path: str) -> tuple[int, tuple[int, int]]:
        """A descriptor for a file that was put away, and the file's key."""
        flags = self._open_flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = self.files.with_room(os.open, self.resolve(path), flags)
        try:
            status = os.fstat(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor, (status.st_dev, status.st_ino)

    def _write(self, verb: Write) -> None:
        handle: Any = verb.handle
        with handle as descriptor, (file := handle.file).guard:
            file.begin_write()
            _write_all(descriptor, verb.buffers, _total(verb.buffers), verb.offset)

    def _write_synced(self, verb: Write) -> bool:
        """Write and sync in one call; False when it has to be done in two."""
        handle: Any = verb.handle
        with handle as descriptor, (file := handle.file).guard:
            buffers = verb.buffers
            total = _total(buffers)
            if file.unsynced or len(buffers) > IOV_MAX or not total:
                return False
            file.begin_write()
            try:
                _write_all(descriptor, buffers, total, verb.offset, RWF_DSYNC)
            except OSError as error:
                if self._proven or error.errno not in UNSUPPORTED:
                    raise
                self._fusing = False
                return False
            file.synced()
            self._proven = True
            return True

    def _zero(self, verb: Zero) -> None:
        # Not fallocate: it leaves unwritten extents, and each later sync would have to change their state.
        handle: Any = verb.handle
        with handle as descriptor, (file := handle.file).guard:
            file.begin_write()
            offset, missing = verb.offset, verb.length
            if offset < 0 or missing < 0:
                raise OSError(errno.EINVAL, "negative offset or length", handle.path)
            while missing:
                step = min(missing, len(ZEROS))
                _write_all(descriptor, (memoryview(ZEROS)[:step],), step, offset)
                offset, missing = offset + step, missing - step

    def _sync(self, verb: Sync) -> None:
        handle: Any = verb.handle
        with handle as descriptor, (file := handle.file).guard:
            file.raise_failure()
            _sync(descriptor)
            file.synced()

    def _truncate(self, verb: Truncate) -> None:
        handle: Any = verb.handle
        with handle as descriptor, (file := handle.file).guard:
            file.begin_write()
            os.ftruncate(descriptor, verb.length)

    def _close(self, verb: Close) -> None:
        handle: Any = verb.handle
        handle.incarnation.closed(handle)
        file = handle.detach()
        if file is not None:
            self.files.leave(handle, file)

    # -- verbs on names

    def _rename(self, verb: Rename) -> None:
        source = self.resolve(verb.source)
        self.files.keep(verb.source, below=stat.S_ISDIR(os.lstat(source).st_mode))
        self.files.keep(verb.target)
        os.rename(source, self.resolve(verb.target))

    def _link(self, verb: Link) -> None:
        os.link(self.resolve(verb.source), self.resolve(verb.target), follow_symlinks=False)

    def _unlink(self, verb: Unlink) -> None:
        self.files.keep(verb.path)
        os.unlink(self.resolve(verb.path))

    def _make_directory(self, verb: MakeDirectory) -> None:
        place = self._root
        components = verb.path.split("/")
        for position, component in enumerate(components, 1):
            place = f"{place}/{component}"
            try:
                os.mkdir(place, 0o700)
            except FileExistsError as error:
                if stat.S_ISDIR(os.lstat(place).st_mode):
                    continue
                if position == len(components):
                    raise
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), verb.path) from error

    def _remove_directory(self, verb: RemoveDirectory) -> None:
        os.rmdir(self.resolve(verb.path))

    def _sync_directory(self, verb: SyncDirectory) -> None:
        # The root itself may be a link to where the user keeps the data; nothing below it is.
        follow = os.O_NOFOLLOW if verb.path else 0
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow
        descriptor = self.files.with_room(os.open, self.resolve(verb.path), flags)
        try:
            _sync_directory(descriptor)
        finally:
            os.close(descriptor)
