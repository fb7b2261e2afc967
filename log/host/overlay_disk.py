"""A disk that reads another one and keeps in memory what is written: an owner opens its files, and nothing changes.

It takes no lock and keeps no process from the files. What another process writes meanwhile may be seen or not.

Vocabulary. The *lower* disk is the one that is read. A *node* is a folder or file of this disk; it may stand for one of
the lower disk. A *page* is a piece of a file that was written, and so is in memory.

Invariants
----------
OD1  No verb that changes anything reaches the lower disk.
OD2  A file reads as its pages; elsewhere as the lower file, up to `lower_end`; and as zeros up to its length.
OD3  The memory taken is proportional to what is written: zeros, and what is only read, take none.
OD4  A listing shows the lower disk as it is then, but for what was changed here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import trio

from callboard.log.errors import DirectoryLocked, PlanFailed
from callboard.log.seams.disk import (
    Buffer,
    Close,
    Create,
    Disk,
    Entry,
    Handle,
    Incarnation,
    Link,
    MakeDirectory,
    Open,
    Plan,
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
from callboard.log.seams.plans import (
    IncarnationBase,
    check_path,
    plan_failed,
    storage_error,
    write_refused,
)

PAGE_BYTES: Final = 4096
ZERO_PAGE: Final = bytes(PAGE_BYTES)


@attrs.define(eq=False)
class OverlayFile:
    """A file: see OD2."""

    lower: str | None = None
    """Its path on the lower disk."""
    lower_end: int = 0
    length: int = 0
    pages: dict[int, bytearray | bytes] = attrs.Factory(dict)
    is_changed: bool = False

    def mirrors(self, path: str) -> bool:
        """Whether it is what the lower disk has there."""
        return self.lower == path and not self.is_changed

    def zero(self, start: int, stop: int) -> None:
        """Zero the bytes from `start` to `stop`. The pages at both ends must be there if the lower file has them."""
        for number in range(start // PAGE_BYTES, -(-min(stop, self._stored_end()) // PAGE_BYTES)):
            first = number * PAGE_BYTES
            if start <= first and first + PAGE_BYTES <= stop:
                self.pages[number] = ZERO_PAGE
            else:
                page = self._page(number)
                low, high = max(start, first) - first, min(stop - first, PAGE_BYTES)
                page[low:high] = bytes(high - low)
        self.length = max(self.length, stop)

    def write(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`. The pages at both ends must be there if the lower file reaches them."""
        view, at = memoryview(data).cast("B"), offset
        if not len(view):
            return
        while len(view):
            number, within = divmod(at, PAGE_BYTES)
            piece = view[: PAGE_BYTES - within]
            self._page(number)[within : within + len(piece)] = piece
            view, at = view[len(piece) :], at + len(piece)
        self.length = max(self.length, at)

    def cut(self, length: int) -> None:
        """Cut, or extend with zeros."""
        if length < self.length:
            self.lower_end = min(self.lower_end, length)
            last = -(-length // PAGE_BYTES)
            self.pages = {number: page for number, page in self.pages.items() if number < last}
            if length % PAGE_BYTES and last - 1 in self.pages:
                within = length % PAGE_BYTES
                self._page(last - 1)[within:] = bytes(PAGE_BYTES - within)
        self.length = length

    def read_pages(self, length: int) -> bytes:
        """The first `length` bytes, which are in pages."""
        count = -(-length // PAGE_BYTES)
        return b"".join([bytes(self.pages.get(number, ZERO_PAGE)) for number in range(count)])[:length]

    def lacks(self, offset: int) -> int | None:
        """The page around `offset`, if it has to be read from the lower file before a part of it is written."""
        number = offset // PAGE_BYTES
        is_lower = number not in self.pages and number * PAGE_BYTES < self.lower_end
        return number if offset % PAGE_BYTES and is_lower else None

    def _page(self, number: int) -> bytearray:
        page = self.pages.get(number, ZERO_PAGE)
        if not isinstance(page, bytearray):
            page = self.pages[number] = bytearray(page)
        return page

    def _stored_end(self) -> int:
        """Beyond this all bytes are zeros already."""
        written = (max(self.pages) + 1) * PAGE_BYTES if self.pages else 0
        return max(self.lower_end, written)


@attrs.define(eq=False)
class OverlayFolder:
    """A folder."""

    lower: str | None = None
    """Its path on the lower disk."""
    names: dict[str, OverlayFolder | OverlayFile] = attrs.Factory(dict)
    is_listed: bool = False
    """Whether the lower folder was listed already."""
    _removed: set[str] = attrs.Factory(set)
    """Names of the lower folder that are not this one's any more."""

    def follow(self, entries: Sequence[Entry]) -> None:
        """The lower folder has these names now. What was not changed here is as it is there (OD4)."""
        self.is_listed = True
        listed = {entry.name: entry for entry in entries if entry.name not in self._removed}
        for name, node in tuple(self.names.items()):
            if name not in listed and isinstance(node, OverlayFile) and node.mirrors(self._path(name)):
                del self.names[name]
        for name, entry in listed.items():
            path, size, known = self._path(name), entry.size_bytes, self.names.get(name)
            if known is None:
                self.names[name] = (
                    OverlayFolder(path) if entry.is_directory else OverlayFile(path, size, size)
                )
            elif isinstance(known, OverlayFile) and known.mirrors(path):
                known.lower_end = known.length = size

    def drop(self, name: str) -> None:
        """Take a name away."""
        del self.names[name]
        self._removed.add(name)

    def _path(self, name: str) -> str:
        return f"{self.lower}/{name}" if self.lower else name


@attrs.define(eq=False)
class OverlayHandle:
    """A file of one incarnation."""

    path: str
    incarnation: OverlayIncarnation
    file: OverlayFile | None = None
    lower: Handle | None = None

    def opened(self) -> OverlayFile:
        """What it reads and writes. Raises `OSError`."""
        if self.file is None:
            raise _failure(errno.EBADF, self.path)
        return self.file


@attrs.define(eq=False)
class OverlayMark:
    """A mark that no other process sees."""

    _path: str
    _length: int
    _file: OverlayFile | None
    """With all pages of the mark."""
    _incarnation: OverlayIncarnation

    def store(self, data: bytes) -> None:
        life = self._incarnation
        if life.is_fenced or len(data) != self._length:
            raise write_refused(self._path, self._length, data, life.owner, is_fenced=life.is_fenced)
        if self._file is not None:
            self._file.write(0, data)

    def load(self) -> bytes:
        return b"" if self._file is None else self._file.read_pages(self._length)

    def close(self) -> None:
        self._file = None


@attrs.define(eq=False)
class OverlayLock:
    """The lock of the disk, which keeps no process from the lower one."""

    _disk: OverlayDisk
    holder: dict[str, Any]

    def release(self) -> None:
        if self._disk.locked is self:
            self._disk.locked = None


@attrs.define(eq=False, repr=False)
class OverlayIncarnation(IncarnationBase):
    """One owner's access, during one life."""

    _disk: OverlayDisk
    _lower: Incarnation

    def handle(self, path: str) -> OverlayHandle:
        self._check()
        check_path(path)
        return OverlayHandle(path, self)

    async def submit(self, plan: Plan) -> None:
        await self._submit(plan, self._run_plan)

    async def _run_plan(self, plan: tuple[Verb, ...]) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()
        with trio.CancelScope(shield=True):  # DK1
            for index, verb in enumerate(plan):
                try:
                    await self._run(verb)
                except OSError as error:
                    raise plan_failed(self._disk.root, index, verb, error) from error

    def start(self, plan: Plan) -> None:
        """Nothing is started without waiting."""
        self._check()

    async def landed(self, flight: object) -> None:
        """There is nothing to wait for."""

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        owned: OverlayHandle = self._own(handle)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            file = owned.opened()
            if offset < 0 or length < 0:
                raise _failure(errno.EINVAL, owned.path)
        except OSError as error:
            raise storage_error("reading", self._disk.root, owned.path, error) from error
        return await self._read(owned, file, offset, length)

    def read_cached(self, handle: Handle, offset: int, length: int) -> bytes | None:
        owned: OverlayHandle = self._own(handle)
        try:
            file = owned.opened()
        except OSError as error:
            raise storage_error("reading", self._disk.root, owned.path, error) from error
        if offset < 0 or file.pages or owned.lower is None or offset + length > file.lower_end:
            return None
        return self._lower.read_cached(owned.lower, offset, length)

    async def size(self, handle: Handle) -> int:
        owned: OverlayHandle = self._own(handle)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return owned.opened().length
        except OSError as error:
            raise storage_error("measuring", self._disk.root, owned.path, error) from error

    async def list(self, path: str) -> list[Entry]:
        self._check()
        check_path(path, root_allowed=True)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            folder = await self._folder(path, fresh=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("listing", self._disk.root, path, error) from error
        return [
            Entry(name, False, node.length) if isinstance(node, OverlayFile) else Entry(name, True, 0)
            for name, node in sorted(folder.names.items())
        ]

    async def mark(self, path: str, length: int) -> OverlayMark:
        self._check_mark(path, length)
        await trio.lowlevel.checkpoint_if_cancelled()
        handle = OverlayHandle(path, self)
        try:
            folder, name = await self._place(path)
            if name not in folder.names:
                folder.names[name] = OverlayFile(length=length)
            file = await self._open(handle)
            file.is_changed = True
            for offset in range(0, length, PAGE_BYTES):
                await self._fetch(handle, file, offset + 1, offset + 1)
            file.length = max(file.length, length)
        except PlanFailed as failed:
            raise storage_error("mapping", self._disk.root, path, failed.error) from failed
        except OSError as error:
            raise storage_error("mapping", self._disk.root, path, error) from error
        finally:
            await self._close(handle)
        return OverlayMark(path, length, file, self)

    async def free_bytes(self) -> int:
        self._check()
        return await self._lower.free_bytes()

    async def drain(self) -> None:
        """Wait for the last plan."""
        await self._all_landed()

    # -- names

    async def _folder(self, path: str, *, fresh: bool = False) -> OverlayFolder:
        """The folder at `path`; `fresh`: as the lower disk has it now. Raises `OSError`."""
        folder = await self._listed(self._disk.top, path, fresh=fresh and not path)
        parts = path.split("/") if path else []
        for place, part in enumerate(parts, 1):
            if part not in folder.names:
                raise _failure(errno.ENOENT, path)
            folder = await self._listed(folder.names[part], path, fresh=fresh and place == len(parts))
        return folder

    async def _listed(self, node: OverlayFolder | OverlayFile, path: str, *, fresh: bool) -> OverlayFolder:
        if isinstance(node, OverlayFile):
            raise _failure(errno.ENOTDIR, path)
        if node.lower is not None and (fresh or not node.is_listed):
            node.follow(await self._lower.list(node.lower))
        return node

    async def _place(self, path: str) -> tuple[OverlayFolder, str]:
        """The folder that `path` is in, and the name there. Raises `OSError`."""
        folder, _, name = path.rpartition("/")
        return await self._folder(folder), name

    # -- verbs

    async def _run(self, verb: Verb) -> None:
        match verb:
            case Open(handle):
                await self._open(handle)  # type: ignore[arg-type]
            case Close(handle):
                await self._close(handle)  # type: ignore[arg-type]
            case Create(handle):
                await self._create(handle)  # type: ignore[arg-type]
            case Write(handle, offset, buffers):
                await self._write(handle, offset, buffers)  # type: ignore[arg-type]
            case Zero(handle, offset, length):
                await self._zero(handle, offset, length)  # type: ignore[arg-type]
            case Truncate(handle, length):
                await self._truncate(handle, length)  # type: ignore[arg-type]
            case Sync(handle):
                handle.opened()  # type: ignore[attr-defined]
            case Rename(source, target):
                await self._rename(source, target)
            case Link(source, target):
                await self._link(source, target)
            case MakeDirectory(path):
                await self._make_directory(path)
            case Unlink(path) | RemoveDirectory(path):
                await self._remove(path, is_folder=isinstance(verb, RemoveDirectory))
            case SyncDirectory(path):
                await self._folder(path)

    async def _open(self, handle: OverlayHandle) -> OverlayFile:
        if handle.file is not None:
            raise _failure(errno.EBUSY, handle.path)
        folder, name = await self._place(handle.path)
        node = folder.names.get(name)
        if not isinstance(node, OverlayFile):
            raise _failure(errno.ENOENT if node is None else errno.EISDIR, handle.path)
        if node.lower is not None:
            lower = self._lower.handle(node.lower)
            try:
                await self._lower.submit((Open(lower),))
            except PlanFailed as failed:
                if isinstance(failed.error, FileNotFoundError):
                    self._disk.on_outdated()
                raise failed.error from None
            handle.lower = lower
        handle.file = node
        return node

    async def _close(self, handle: OverlayHandle) -> None:
        lower, handle.lower, handle.file = handle.lower, None, None
        if lower is not None:
            await self._lower.submit((Close(lower),))

    async def _create(self, handle: OverlayHandle) -> None:
        if handle.file is not None:
            raise _failure(errno.EBUSY, handle.path)
        folder, name = await self._place(handle.path)
        if name in folder.names:
            raise _failure(errno.EEXIST, handle.path)
        folder.names[name] = handle.file = OverlayFile()

    async def _write(self, handle: OverlayHandle, offset: int, buffers: Sequence[Buffer]) -> None:
        file = handle.opened()
        if offset < 0:
            raise _failure(errno.EINVAL, handle.path)
        file.is_changed = True
        for data in buffers:
            size = memoryview(data).nbytes
            await self._fetch(handle, file, offset, offset + size)
            file.write(offset, data)
            offset += size

    async def _zero(self, handle: OverlayHandle, offset: int, length: int) -> None:
        file = handle.opened()
        if offset < 0 or length < 0:
            raise _failure(errno.EINVAL, handle.path)
        await self._fetch(handle, file, offset, offset + length)
        file.is_changed = True
        if length:
            file.zero(offset, offset + length)

    async def _truncate(self, handle: OverlayHandle, length: int) -> None:
        file = handle.opened()
        if length < 0:
            raise _failure(errno.EINVAL, handle.path)
        file.is_changed = True
        file.cut(length)

    async def _rename(self, source: str, target: str) -> None:
        folder, name = await self._place(source)
        other, new_name = await self._place(target)
        if name not in folder.names:
            raise _failure(errno.ENOENT, source)
        node, replaced = folder.names[name], other.names.get(new_name)
        if replaced is node:
            return
        if target.startswith(f"{source}/"):
            raise _failure(errno.EINVAL, target)
        if isinstance(replaced, OverlayFolder):
            if isinstance(node, OverlayFile):
                raise _failure(errno.EISDIR, target)
            if (await self._folder(target)).names:
                raise _failure(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(node, OverlayFolder):
            raise _failure(errno.ENOTDIR, target)
        folder.drop(name)
        other.names[new_name] = node

    async def _link(self, source: str, target: str) -> None:
        folder, name = await self._place(source)
        other, new_name = await self._place(target)
        node = folder.names.get(name)
        if not isinstance(node, OverlayFile):
            raise _failure(errno.ENOENT if node is None else errno.EPERM, source)
        if new_name in other.names:
            raise _failure(errno.EEXIST, target)
        other.names[new_name] = node

    async def _make_directory(self, path: str) -> None:
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            folder, name = await self._place("/".join(parts[:end]))
            if isinstance(folder.names.setdefault(name, OverlayFolder()), OverlayFile):
                raise _failure(errno.EEXIST if end == len(parts) else errno.ENOTDIR, path)

    async def _remove(self, path: str, *, is_folder: bool) -> None:
        folder, name = await self._place(path)
        node = folder.names.get(name)
        if node is None:
            raise _failure(errno.ENOENT, path)
        if isinstance(node, OverlayFolder) != is_folder:
            raise _failure(errno.ENOTDIR if is_folder else errno.EISDIR, path)
        if is_folder and (await self._folder(path)).names:
            raise _failure(errno.ENOTEMPTY, path)
        folder.drop(name)

    # -- bytes

    async def _fetch(self, handle: OverlayHandle, file: OverlayFile, start: int, stop: int) -> None:
        """Have the pages in memory that a change from `start` to `stop` leaves a part of."""
        for offset in (start, stop):
            number = file.lacks(offset)
            if number is not None:
                first = number * PAGE_BYTES
                data = await self._read(handle, file, first, PAGE_BYTES)
                file.pages.setdefault(number, bytearray(data.ljust(PAGE_BYTES, b"\0")))

    async def _read(self, handle: OverlayHandle, file: OverlayFile, offset: int, length: int) -> bytes:
        length = max(0, min(length, file.length - offset))
        from_lower = max(0, min(length, file.lower_end - offset))
        data = b""
        if from_lower and handle.lower is not None:
            data = await self._lower.read(handle.lower, offset, from_lower)
        if not file.pages:
            return data.ljust(length, b"\0")
        found = bytearray(data.ljust(length, b"\0"))
        for number in range(offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES)):
            if (page := file.pages.get(number)) is not None:
                at = number * PAGE_BYTES - offset
                low, high = max(0, -at), min(PAGE_BYTES, length - at)
                found[at + low : at + high] = page[low:high]
        return bytes(found)


class OverlayDisk:
    """A disk that reads the lower one and keeps writes in memory. It owns the lower disk and closes it.

    Messages name it `root`, or as they name the lower one.

    `on_outdated` is called when a file that was listed has gone before it is opened: its owner is at work.
    """

    def __init__(
        self,
        lower: Disk,
        *,
        root: str | None = None,
        on_outdated: Callable[[], object] = lambda: None,
    ) -> None:
        self._lower = lower
        self.root = root or lower.root
        self.top = OverlayFolder(lower="")
        """The folder that all others are in."""
        self.on_outdated = on_outdated
        self.locked: OverlayLock | None = None
        self._current: dict[str, OverlayIncarnation] = {}
        self._births: dict[str, trio.Lock] = {}

    def __repr__(self) -> str:
        return f"<OverlayDisk {self.root!r}>"

    async def incarnate(self, owner: str) -> OverlayIncarnation:
        async with self._births.setdefault(owner, trio.Lock()):
            await self._fence(owner)
            born = OverlayIncarnation(owner, self, await self._lower.incarnate(owner))
            self._current[owner] = born
            return born

    async def forget(self, owner: str) -> None:
        async with self._births.setdefault(owner, trio.Lock()):
            await self._fence(owner)
            self._current.pop(owner, None)
            await self._lower.forget(owner)

    async def lock(self, holder: dict[str, Any]) -> OverlayLock:
        """Keep others from this disk, not from the lower one. Raises `DirectoryLocked`."""
        await trio.lowlevel.checkpoint()
        if self.locked is not None:
            found = self.locked.holder
            raise DirectoryLocked(
                f"the directory {self.root!r} is looked at already, by {found}. Nothing was opened. Close that first.",
                directory=self.root,
                holder=found,
            )
        self.locked = OverlayLock(self, holder)
        return self.locked

    async def aclose(self) -> None:
        """Fence every incarnation, and close the lower disk."""
        with trio.CancelScope(shield=True):
            for owner in tuple(self._current):
                await self._fence(owner)
            await self._lower.aclose()
        self.locked = None
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _fence(self, owner: str) -> None:
        earlier = self._current.get(owner)
        if earlier is not None:
            earlier.is_fenced = True
            await earlier.drain()


def _failure(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
