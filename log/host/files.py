"""Open files of the real disk: handles, the inodes behind them, the cache of descriptors, and files mapped into memory.

A *handle* is one owner's open file; a *file* here is the inode behind one or several handles. The difference matters
twice: a descriptor must not be closed, and its number reused for another file, while a thread still works with it; and
whether a file has unsynced bytes is a property of the inode.

An open handle has a descriptor or is *put away*: then it is opened anew, by its path, when it is used next. Handles are
put away when they were not used for IDLE_S, and, least recently used first, when descriptors run short.

Invariants
----------
FH1  A descriptor is closed only when nothing is pinned to its handle. The task that pins, unpins.
FH2  `File.unsynced` is False only when every byte written through this disk was synced; it starts True for a file
     found on disk, whose past is unknown. It changes only under `File.guard`.
FH3  A handle is put away only when a sync has covered all that was written through this disk: the system tells of bytes
     that it failed to write to processes that had the file open. Where descriptors run short the cache syncs by itself;
     a failure of that is kept, and reported by the next sync.
FH4  A handle is put away only while its path leads to its file: before a plan removes, renames or replaces a name, the
     handles of that name get a descriptor, which they keep until they are closed. A file that somebody else replaced is
     recognised by its inode number, and refused. A disk for reading keeps what is idle open, since its names are
     changed by another process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

import attrs

from callboard.log.seams.disk import NotAFile

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

IDLE_S: Final = 10.0
"""The descriptor of a handle that was not used for this long is closed."""
GONE: Final = frozenset({errno.EBADF, errno.ENOENT, errno.ESTALE})
TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE})

FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_map: Any = _libc.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
)  # fmt: skip
_unmap: Any = _libc.munmap
_unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

Sync = Callable[[int], None]


@attrs.define(eq=False)
class File:
    """An inode that is open here, with one or several handles."""

    key: tuple[int, int]
    unsynced: bool
    is_written: bool = False
    """Through this disk, since the last sync."""
    failure: OSError | None = None
    """Of a sync that the cache made by itself."""
    handles: int = 0
    guard: threading.Lock = attrs.Factory(threading.Lock)

    def begin_write(self) -> None:
        """Called before bytes or the length change, under the guard."""
        self.unsynced = self.is_written = True

    def synced(self) -> None:
        """Called after a good sync, under the guard."""
        self.unsynced = self.is_written = False

    def raise_failure(self) -> None:
        """Raise a failed sync that was not reported yet, once (FH3). Called under the guard."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise OSError(failure.errno, failure.strerror)


@attrs.define(eq=False)
class FileTable:
    """The open files of one disk, by device and inode number, and the handles that have descriptors.

    `capacity` descriptors are kept at most, apart from those in use at the moment.
    """

    capacity: int
    _sync: Sync
    idle_s: float = IDLE_S
    _files: dict[tuple[int, int], File] = attrs.field(factory=dict, init=False)
    _named: dict[str, set[HostHandle]] = attrs.field(factory=dict, init=False)
    """The open handles of each path."""
    _opened: dict[HostHandle, None] = attrs.field(factory=dict, init=False)
    """Those with a descriptor."""
    _sweep_at: float = attrs.field(default=0.0, init=False)
    _guard: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return len(self._files)

    def enter(self, handle: HostHandle, status: os.stat_result, *, created: bool) -> File:
        """The file that `status` describes, with one handle more."""
        key = (status.st_dev, status.st_ino)
        with self._guard:
            file = self._files.get(key)
            if file is None:
                file = self._files[key] = File(key, not created)
            file.handles += 1
            self._named.setdefault(handle.path, set()).add(handle)
            return file

    def leave(self, handle: HostHandle, file: File) -> None:
        """One handle less. A file without handles is forgotten, and with it what is known of its syncs."""
        with self._guard:
            file.handles -= 1
            if not file.handles:
                del self._files[file.key]
            named = self._named[handle.path]
            named.discard(handle)
            if not named:
                del self._named[handle.path]
            self._opened.pop(handle, None)

    # -- descriptors

    def opened(self, handle: HostHandle) -> None:
        """The handle has a descriptor."""
        with self._guard:
            self._opened[handle] = None

    def with_room(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call `function`, which opens a file; put others away first, and again when the system has no more."""
        if len(self._opened) >= self.capacity:
            self._put_away_oldest()
        while True:
            try:
                return function(*arguments)
            except OSError as error:
                if error.errno not in TOO_MANY or not self._put_away_oldest():
                    raise

    def _put_away_oldest(self) -> int:
        """Put away an eighth of what may be open, those first that need no sync. How many there were."""
        wanted, found = max(1, self.capacity // 8), 0
        for sync in (None, self._sync):
            for handle in self._by_use():
                found += self._put_away(handle, sync)
                if found >= wanted:
                    return found
        return found

    def _by_use(self) -> list[HostHandle]:
        with self._guard:
            handles = list(self._opened)
        handles.sort(key=attrgetter("used_at"))
        return handles

    def _put_away(self, handle: HostHandle, sync: Sync | None) -> bool:
        with self._guard:
            is_known = self._opened.pop(handle, 0) is None
        if not is_known:
            return False
        if handle.put_away(sync):
            return True
        with self._guard:
            if handle.has_descriptor:
                self._opened[handle] = None
        return False

    def sweep(self) -> float | None:
        """Put away what is idle, now and then. After how many seconds to call again, None when nothing is open."""
        now = time.perf_counter()
        if now >= self._sweep_at:
            self._sweep_at = now + self.idle_s
            for handle in self._by_use():
                if now - handle.used_at < self.idle_s:
                    break
                self._put_away(handle, None)
        return max(0.0, self._sweep_at - now) if self._opened else None

    def keep(self, path: str, *, below: bool = False) -> None:
        """The name is about to be changed: its handles, and those below it, keep their files open (FH4)."""
        with self._guard:
            handles = list(self._named.get(path, ()))
            if below:
                within = path + "/"
                handles += [
                    handle
                    for name, named in self._named.items()
                    if name.startswith(within)
                    for handle in named
                ]
        for handle in handles:
            handle.keep()


class HandleOwner(Protocol):
    """The incarnation that opens a handle, as far as its handles know it."""

    owner: str

    @property
    def files(self) -> FileTable:
        """The open files of the disk."""

    def reopen(self, path: str) -> tuple[int, tuple[int, int]]:
        """A descriptor for a file that was put away, and the file's key."""

    def opened(self, handle: HostHandle) -> None:
        """The handle may be read and written now."""

    def closed(self, handle: HostHandle) -> None:
        """It may not any more."""


@attrs.define(eq=False, repr=False)
class HostHandle:
    """A file of one incarnation."""

    path: str
    """Relative to the disk's root."""
    incarnation: HandleOwner
    used_at: float = 0.0
    _descriptor: int = -1
    _file: File | None = None
    _is_kept: bool = False
    _pins: int = 0
    _doomed: list[int] = attrs.Factory(list)
    _guard: threading.Lock = attrs.Factory(threading.Lock)

    def __repr__(self) -> str:
        return f"<HostHandle {self.path!r} of {self.incarnation.owner!r}>"

    @property
    def is_open(self) -> bool:
        """Whether the handle may be read and written."""
        return self._file is not None

    @property
    def has_descriptor(self) -> bool:
        """Whether the handle is open and not put away."""
        return self._descriptor >= 0

    @property
    def file(self) -> File:
        """The file behind an open handle."""
        if self._file is None:
            raise self._closed()
        return self._file

    def _closed(self) -> OSError:
        return OSError(errno.EBADF, "the handle is not open", self.path)

    def attach(self, descriptor: int, file: File) -> None:
        """Take over an open descriptor."""
        self.used_at = time.perf_counter()
        self._file = file
        self._is_kept = False
        self._descriptor = descriptor

    def pin(self) -> int:
        """The descriptor, kept open until `unpin` (FH1), as in `with handle as descriptor`.

        Opens a file that was put away: call it in a thread. Raises OSError: EBADF when closed, ESTALE when
        somebody replaced the file.
        """
        while True:
            with self._guard:
                if self._file is None:
                    raise self._closed()
                if self._descriptor >= 0:
                    self._pins += 1
                    self.used_at = time.perf_counter()
                    return self._descriptor
            self._take_out()

    def _take_out(self) -> None:
        descriptor, key = self.incarnation.reopen(self.path)
        with self._guard:
            file = self._file
            if file is not None and self._descriptor < 0 and file.key == key:
                self._descriptor, descriptor = descriptor, -1
        if descriptor < 0:
            self.incarnation.files.opened(self)
            return
        os.close(descriptor)  # it was closed meanwhile, or another thread was faster
        if file is not None and file.key != key:
            raise OSError(errno.ESTALE, "the file was replaced by another while it was in use", self.path)

    def put_away(self, sync: Sync | None) -> bool:
        """Close the descriptor until the handle is used again; with `sync`, also where that is needed first (FH3)."""
        with self._guard:
            file, descriptor = self._file, self._descriptor
            if file is None or descriptor < 0 or self._pins or self._is_kept or file.failure is not None:
                return False
            if file.is_written:
                if sync is None:
                    return False
                self._pins += 1
            else:
                self._descriptor = -1
                sync = None
        if sync is None:
            with suppress(OSError):  # nothing was written that it could report
                os.close(descriptor)
            return True
        try:
            with file.guard:
                sync(descriptor)
                file.synced()
        except OSError as error:
            file.failure = error
        finally:
            self.unpin()
        return self.put_away(None)

    def keep(self) -> None:
        """Keep the file open until the handle is closed: its path will no longer lead to it (FH4)."""
        try:
            self.pin()
        except OSError as error:
            if error.errno not in GONE:
                raise
            return
        self._is_kept = True
        self.unpin()

    def pin_now(self) -> int | None:
        """Like `pin`, without waiting: None when the file was put away."""
        if not self._guard.acquire(blocking=False):
            return None
        try:
            if self._file is None:
                raise self._closed()
            if self._descriptor < 0:
                return None
            self._pins += 1
            self.used_at = time.perf_counter()
            return self._descriptor
        finally:
            self._guard.release()

    def unpin(self, *_: object) -> None:
        """End a `pin`, and close the descriptor if that was requested meanwhile."""
        with self._guard:
            self._pins -= 1
            if self._pins or not self._doomed:
                return
            doomed, self._doomed = self._doomed, []
        for descriptor in doomed:
            os.close(descriptor)

    __enter__, __exit__ = pin, unpin

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


class MappedFile:
    """The first bytes of a file, in memory.

    Mapped by `mmap` of the C library, since Python's own keeps a descriptor for each mapping (before 3.13), and a
    partition that is idle should have none.
    """

    __slots__ = ("_address", "length", "view")

    def __init__(self, descriptor: int, length: int) -> None:
        address = _map(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if address == FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self._address = address
        self.length = length
        self.view = memoryview((ctypes.c_char * length).from_address(address)).cast("B")

    def close(self) -> None:
        """Unmap, once. `view` must not be used any more."""
        address, self._address = self._address, None
        if address is not None:
            self.view.release()
            _unmap(address, self.length)


def map_file(path: str, length: int) -> MappedFile:
    """Map the first `length` bytes of a file, made and filled with zeros as needed. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile(errno.EINVAL, "not a regular file")
        if status.st_size < length:
            # Written, not truncated: a store into a hole of a full disk would kill the process (SIGBUS).
            os.pwrite(descriptor, bytes(length - status.st_size), status.st_size)
        return MappedFile(descriptor, length)
    finally:
        os.close(descriptor)
