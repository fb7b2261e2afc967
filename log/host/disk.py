"""The real Disk: a folder of the operating system, accessed by a few threads of its own.

A plan is one hop into a thread (`threads.py` says how it is waited for), where `verbs.py` runs it. With `inline=True`
plans and reads run in the loop's own thread instead: a single publisher gains up to a third, but every timer and every
other task stands still during each sync, and for as long as a disk hangs.

Descriptors: one for the lock, and at most as many for open files as the process may have, less a reserve for
everything else; all close-on-exec. Files that are idle, or the least recently used ones when there are too many, are
put away (`files.py`). A fenced incarnation's are closed after its last plan, when its successor is handed out or the
disk is closed.

A closed disk may be used again, in the same trio run or in another one; use it from one run at a time.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar, TypeVarTuple

import attrs
import trio

from callboard.log.errors import InvalidArgument, StorageError
from callboard.log.limits import (
    DESCRIPTORS_MAX,
    DESCRIPTORS_MIN,
    DESCRIPTORS_RESERVE,
    DISK_THREADS_MAX,
)
from callboard.log.seams.disk import Entry, Handle, Plan, Sync, Write
from callboard.log.seams.plans import (
    IncarnationBase,
    check_path,
    check_plan,
    plan_failed,
    stale,
    storage_error,
    write_refused,
)

from .files import FileTable, HostHandle, MappedFile, map_file
from .lock import HostLock, acquire, make_root
from .place import NETWORK_TYPES, NetworkFileSystemWarning, check_platform, file_system_type
from .threads import Job, ThreadPool, no_upkeep
from .verbs import Executor, read_fully

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

RWF_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
IN_PLACE_BYTES_MAX: Final = 256 * 1024
"""Plans that write more, or do anything else than `QUICK`, are not waited for in place."""
QUICK: Final = (Write, Sync)


@attrs.define(eq=False, repr=False)
class HostIncarnation(IncarnationBase):
    """One owner's access to the disk during one life."""

    _disk: HostDisk
    executor: Executor
    _handles: set[HostHandle] = attrs.Factory(set)
    _marks: set[HostMark] = attrs.Factory(set)

    def handle(self, path: str) -> HostHandle:
        self._check()
        check_path(path)
        return HostHandle(path, self)

    # -- plans

    @trio.lowlevel.enable_ki_protection
    async def submit(self, plan: Plan) -> None:
        disk, waiting = self._disk, object()
        disk.pool.check_run()
        if self.is_fenced:
            raise stale(self.owner)
        await trio.lowlevel.checkpoint_if_cancelled()
        self._flights[waiting] = trio.current_time()
        try:
            while (flight := self.start(plan)) is None:
                await disk.pool.room()
            if flight.is_over or flight.in_place:
                # All runnable tasks run first, while the thread works: that is how plans of several owners overlap.
                await trio.lowlevel.cancel_shielded_checkpoint()
            await self.landed(flight)
        finally:
            self._has_landed(waiting)

    @trio.lowlevel.enable_ki_protection
    def start(self, plan: Plan) -> Job | None:
        """Start the plan; None, and nothing done, when no thread is free.

        A plan that only writes, and little, is waited for at once, in place; so is one that syncs, while no other owner
        has plans or is runnable. It may be over then.
        """
        if self.is_fenced:
            raise stale(self.owner)
        plan, size, syncs = tuple(plan), 0, False
        verb: Any
        for verb in plan:
            kind = type(verb)
            if kind not in QUICK or getattr(verb.handle, "incarnation", None) is not self:
                check_plan(plan, self)
                size = IN_PLACE_BYTES_MAX + 1
                break
            if kind is Sync:
                syncs = True
            else:
                size += sum(map(len, verb.buffers))
        disk = self._disk
        in_place = size <= IN_PLACE_BYTES_MAX and disk.in_place
        alone, disk.latest = in_place and disk.latest is self, self
        job = disk.pool.start(
            self.executor.run, plan, in_place=in_place, at_once=in_place and not syncs, alone=alone
        )
        if job is not None:
            job.has_landed = job.is_over and job.result is None and job.error is None
            if not job.has_landed:
                self._flights[job] = trio.current_time()
        return job

    @trio.lowlevel.enable_ki_protection
    async def landed(self, flight: Job) -> None:
        try:
            failure = await self._disk.pool.finish(flight)
        finally:
            if flight in self._flights:
                self._has_landed(flight)
        if failure is not None:
            index, error = failure
            verb = flight.arguments[0][index]
            raise plan_failed(self._disk.root, index, verb, error)

    # -- for its handles

    @property
    def files(self) -> FileTable:
        return self.executor.files

    def reopen(self, path: str) -> tuple[int, tuple[int, int]]:
        return self.executor.reopen(path)

    def opened(self, handle: HostHandle) -> None:
        """Called by the executor, in its thread."""
        self._handles.add(handle)

    def closed(self, handle: HostHandle) -> None:
        """Called by the executor, in its thread."""
        self._handles.discard(handle)

    # -- reads

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        file: HostHandle = self._own(handle)
        return await self._call("reading", file.path, _read, file, offset, length)

    def read_cached(self, handle: Handle, offset: int, length: int) -> bytes | None:
        """The bytes, if all of them are in memory; None if not, or if the system cannot say."""
        file: HostHandle = self._own(handle)
        if not self._disk.reads_cached or offset < 0:
            return None  # preadv takes -1 for "where the last read ended"
        try:
            descriptor = file.pin_now()
        except OSError as error:
            raise storage_error("reading", self._disk.root, file.path, error) from error
        if descriptor is None:
            return None
        try:
            buffer = bytearray(length)
            count = os.preadv(descriptor, (buffer,), offset, RWF_NOWAIT)
            if count == length:
                return bytes(buffer)
            # Short at the end of the file, or where the cache ends: only the former is an answer.
            if offset + count < os.fstat(descriptor).st_size:
                return None
            return bytes(memoryview(buffer)[:count])
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                self._disk.reads_cached = False
            elif error.errno != errno.EAGAIN:
                raise storage_error("reading", self._disk.root, file.path, error) from error
            return None
        finally:
            file.unpin()

    async def size(self, handle: Handle) -> int:
        file: HostHandle = self._own(handle)
        return await self._call("measuring", file.path, _size, file)

    async def list(self, path: str) -> list[Entry]:
        self._check()
        check_path(path, root_allowed=True)
        return await self._call("listing", path, _list, self.executor, path)

    async def mark(self, path: str, length: int) -> HostMark:
        self._check_mark(path, length)
        mapped = await self._call("mapping", path, self._map, path, length)
        mark = HostMark(path, mapped, length, self)
        self._marks.add(mark)
        if self.is_fenced:
            mark.close()
            raise stale(self.owner)
        return mark

    def _map(self, path: str, length: int) -> Any:
        if self._disk.is_read_only:
            raise OSError(errno.EROFS, "the disk was opened for reading only")
        return self.executor.files.with_room(map_file, self.executor.resolve(path), length)

    def unmapped(self, mark: HostMark) -> None:
        """Called by a mark that is closed."""
        self._marks.discard(mark)

    async def free_bytes(self) -> int:
        self._check()
        return await self._call("measuring", "", _free_bytes, self.executor.resolve(""))

    # -- the end

    async def drain(self) -> None:
        """Wait for the last plan, then close what the fenced incarnation left open."""
        await self._all_landed()
        for mark in tuple(self._marks):
            mark.close()
        if self._handles:
            handles, self._handles = tuple(self._handles), set()
            await self._disk.pool.run(self.executor.close_handles, handles)

    # -- inner

    async def _call(self, doing: str, path: str, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        try:
            return await self._disk.pool.run(function, *arguments)
        except OSError as error:
            raise storage_error(doing, self._disk.root, path, error) from error


@attrs.define(eq=False)
class HostMark:
    """A mapped file of one incarnation."""

    _path: str
    _map: MappedFile | None
    _length: int
    _incarnation: HostIncarnation

    def store(self, data: bytes) -> None:
        life = self._incarnation
        if life.is_fenced or len(data) != self._length:
            raise write_refused(self._path, self._length, data, life.owner, is_fenced=life.is_fenced)
        if self._map is not None:
            self._map.view[:] = data

    def load(self) -> bytes:
        return b"" if self._map is None else bytes(self._map.view)

    def close(self) -> None:
        mapped, self._map = self._map, None
        if mapped is not None:
            self._incarnation.unmapped(self)
            mapped.close()


class HostDisk:
    """A folder on a real disk.

    `inline` runs everything in the loop's thread (see above). With `read_only` files are opened for reading, which a
    read-only file system allows; verbs that would change anything, marks and the lock are refused. `in_place`, `fuse`,
    `threads_max` and `descriptors` are there for tests and measurements.
    Raises `UnsupportedPlatform` on Windows. Every call raises `WrongRun` in another trio run, thread or forked child
    than the one that uses the disk.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        inline: bool = False,
        read_only: bool = False,
        in_place: bool = True,
        fuse: bool = True,
        threads_max: int = DISK_THREADS_MAX,
        descriptors: int | None = None,
    ) -> None:
        check_platform()
        self.root = os.path.abspath(os.fspath(root))
        """The folder's absolute path."""
        self.executor = Executor(
            self.root, descriptors=descriptors or _descriptors(), fuse=fuse, read_only=read_only
        )
        self.is_read_only = read_only
        self.reads_cached = bool(RWF_NOWAIT)
        self.in_place = in_place
        self.latest: HostIncarnation | None = None
        """Whose plan was started last: plans of several owners shall overlap."""
        # A reader keeps its idle files open: the owner is another process, which may take their names away.
        upkeep = no_upkeep if read_only else self.executor.files.sweep
        self.pool = ThreadPool("callboard-disk", threads_max, upkeep=upkeep, inline=inline)
        self._current: dict[str, HostIncarnation] = {}
        self._births: dict[str, trio.Lock] = {}
        self._lock: HostLock | None = None
        self._warned = False

    def __repr__(self) -> str:
        return f"<HostDisk {self.root!r}>"

    async def incarnate(self, owner: str) -> HostIncarnation:
        self.pool.check_run()
        await trio.lowlevel.checkpoint_if_cancelled()
        earlier = self._current.get(owner)
        if earlier is not None:
            earlier.is_fenced = True
        async with self._births.setdefault(owner, trio.Lock()):
            # Another incarnation may have been born while this task waited its turn.
            earlier = self._current.get(owner)
            if earlier is not None:
                earlier.is_fenced = True
                await earlier.drain()
            born = self._current[owner] = HostIncarnation(owner, self, self.executor)
            return born

    async def forget(self, owner: str) -> None:
        self.pool.check_run()
        await trio.lowlevel.checkpoint_if_cancelled()
        births = self._births.setdefault(owner, trio.Lock())
        async with births:
            last = self._current.get(owner)
            if last is not None:
                last.is_fenced = True
                await last.drain()
                self._current.pop(owner, None)
        if not births.locked():  # else a task waits in `incarnate`
            self._births.pop(owner, None)

    async def lock(self, holder: dict[str, Any]) -> HostLock:
        """Lock the root for writing, or raise `DirectoryLocked` naming the holder. Creates the root if missing.

        Raises `StorageError` where the process may open too few files.
        Warns with `NetworkFileSystemWarning`, once, when the root lies on a network file system.
        """
        if self.is_read_only:
            raise InvalidArgument(
                f"{self.root!r} was opened for reading only: it cannot be locked. Open it for writing."
            )
        limit = _descriptor_limit()
        if limit < DESCRIPTORS_MIN:
            raise StorageError(
                f"this process may open {limit} files, and {DESCRIPTORS_MIN} are needed. Nothing was opened. "
                f"Raise the limit: ulimit -n {DESCRIPTORS_MIN}, or more.",
                limit=limit,
                needed=DESCRIPTORS_MIN,
            )
        found, kind = await self.pool.run(_lock, self.root, holder)
        self._lock = found
        if kind in NETWORK_TYPES and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.root!r} lies on a network file system ({kind}): locks and syncs there promise less than on "
                "a local disk. Keep the directory on a local disk.",
                NetworkFileSystemWarning,
                stacklevel=2,
            )
        return found

    async def aclose(self) -> None:
        """Fence every incarnation, wait for all plans, close all files, release the lock, end the threads."""
        self.pool.check_run()
        with trio.CancelScope(shield=True):
            for incarnation in self._current.values():
                incarnation.is_fenced = True
            for owner in tuple(self._current):
                async with self._births.setdefault(owner, trio.Lock()):
                    last = self._current.get(owner)
                    if last is not None:
                        last.is_fenced = True
                        await last.drain()
            await self.pool.aclose()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
        await trio.lowlevel.checkpoint_if_cancelled()


def _descriptors() -> int:
    """How many descriptors open files may have."""
    limit = _descriptor_limit()
    return max(1, limit - max(DESCRIPTORS_RESERVE, limit // 4))


def _descriptor_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else min(limit, DESCRIPTORS_MAX)


# -- what runs in threads


def _read(handle: HostHandle, offset: int, length: int) -> bytes:
    with handle as descriptor:
        return read_fully(descriptor, offset, length)


def _size(handle: HostHandle) -> int:
    with handle as descriptor:
        return os.fstat(descriptor).st_size


def _list(executor: Executor, path: str) -> list[Entry]:
    try:
        place = executor.resolve(path)
        if path and stat.S_ISLNK(os.lstat(place).st_mode):
            raise OSError(errno.ELOOP, "a symbolic link below the root", path)
        with executor.files.with_room(os.scandir, place) as names:
            entries = [_entry(name) for name in names]
    except FileNotFoundError:
        return []
    entries.sort(key=attrgetter("name"))
    return entries


def _entry(name: os.DirEntry[str]) -> Entry:
    status = name.stat(follow_symlinks=False)
    is_directory, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
    return Entry(name.name, is_directory, status.st_size if is_file else 0, not (is_directory or is_file))


def _free_bytes(path: str) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _lock(root: str, holder: dict[str, Any]) -> tuple[HostLock, str | None]:
    make_root(root)
    return acquire(root, holder), file_system_type(root)
