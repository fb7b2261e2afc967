"""One owner's life on a memory disk: its incarnation, handles and marks.

They hold no rules of their own about content: `memory_disk.py` runs the plans, `inodes.py` remembers.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import attrs
import trio

from callboard.log.errors import PlanFailed
from callboard.log.seams.disk import Entry, Handle, Plan, Verb, Write
from callboard.log.seams.plans import (
    IncarnationBase,
    check_path,
    check_plan,
    path_of,
    storage_error,
    unstorable,
)

from .file_tree import failure
from .inodes import Inode, MemoryDirectory, Node

if TYPE_CHECKING:
    from .memory_disk import MemoryDisk


@attrs.define(eq=False, repr=False)
class MemoryHandle:
    """A file of one incarnation."""

    path: str
    """Relative to the disk's root."""
    incarnation: MemoryIncarnation
    inode: Inode | None = None

    def __repr__(self) -> str:
        return f"<MemoryHandle {self.path!r} of {self.incarnation.owner!r}>"

    def opened(self) -> Inode:
        """The file behind it. Raises OSError (EBADF) when closed."""
        if self.inode is None:
            raise OSError(errno.EBADF, "the handle is not open", self.path)
        return self.inode


@attrs.define(eq=False)
class MemoryMark:
    """A mapped file: stores go to the page cache."""

    _path: str
    _inode: Inode | None
    _length: int
    _incarnation: MemoryIncarnation

    def store(self, data: bytes) -> None:
        life = self._incarnation
        if life.is_fenced or len(data) != self._length:
            raise unstorable(self._path, self._length, data, life.owner, is_fenced=life.is_fenced)
        if self._inode is not None:
            life.look_out(self._path)
            self._inode.write(0, data)

    def load(self) -> bytes:
        return b"" if self._inode is None else self._inode.volatile.read(0, self._length)

    def close(self) -> None:
        self._inode = None


@attrs.define
class MemoryFlight:
    """A plan that was run at once."""

    failure: PlanFailed | None
    has_landed: bool


@attrs.define(eq=False, repr=False)
class MemoryIncarnation(IncarnationBase):
    """The disk as one owner's one life sees it."""

    _disk: MemoryDisk
    is_dead: bool = False
    handles: dict[MemoryHandle, None] = attrs.Factory(dict)

    def handle(self, path: str) -> MemoryHandle:
        self._check()
        check_path(path)
        return MemoryHandle(path, self)

    async def submit(self, plan: Plan) -> None:
        await self._submit(plan, self._run_plan)

    async def _run_plan(self, plan: tuple[Verb, ...]) -> None:
        await self._disk.pause(map(path_of, plan))
        await self._disk.run(self, plan)

    def _now(self) -> float:
        return self._disk.now()

    def start(self, plan: Plan) -> MemoryFlight | None:
        """Run a plan that only writes, at once, as a quick disk does; None for others, and where it would take time."""
        self._check()
        plan = tuple(plan)
        check_plan(plan, self)
        disk = self._disk
        if not disk.is_quick or any(type(verb) is not Write for verb in plan):
            return None
        failed = disk.run_at_once(self, plan)
        return MemoryFlight(failed, failed is None)

    async def landed(self, flight: MemoryFlight) -> None:
        """A checkpoint. Raises `PlanFailed`."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        if flight.failure is not None:
            raise flight.failure

    async def read(self, handle: Handle, offset: int, length: int) -> bytes:
        file: MemoryHandle = self._own(handle)
        await self._disk.visit(self, file.path, reads=True)
        return self._read(file, offset, length)

    def read_cached(self, handle: Handle, offset: int, length: int) -> bytes | None:
        """The bytes, or None while the disk is `cold`."""
        file: MemoryHandle = self._own(handle)
        return self._read(file, offset, length) if self._disk.glance(self, file.path) else None

    def _read(self, file: MemoryHandle, offset: int, length: int) -> bytes:
        try:
            inode = file.opened()
            if offset < 0 or length < 0:
                raise failure(errno.EINVAL, file.path)
            self._meet_fault("read", file.path)
        except OSError as error:
            raise storage_error("reading", self._disk.root, file.path, error) from error
        return inode.volatile.read(offset, offset + length)

    def _meet_fault(self, kind: str, path: str) -> None:
        """Fail if a fault waits for this."""
        faults = self._disk.faults
        fault = faults.take(kind, path) if faults.planted else None
        if fault is not None:
            faults.count_failure(fault, kind, fault.error.errno)
            raise fault.fresh_error(path)

    async def size(self, handle: Handle) -> int:
        file: MemoryHandle = self._own(handle)
        await self._disk.visit(self, file.path)
        try:
            return len(file.opened().volatile)
        except OSError as error:
            raise storage_error("measuring", self._disk.root, file.path, error) from error

    async def list(self, path: str) -> list[Entry]:
        self._check()
        check_path(path, root_allowed=True)
        await self._disk.visit(self, path)
        try:
            names = self._disk.tree.directory(path).volatile
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("listing", self._disk.root, path, error) from error
        return [_entry(name, names[name]) for name in sorted(names)]

    async def mark(self, path: str, length: int) -> MemoryMark:
        self._check_mark(path, length)
        await self._disk.visit(self, path)
        self.look_out(path)
        try:
            self._meet_fault("mark", path)
            inode = self._disk.map(path, length)
        except OSError as error:
            raise storage_error("mapping", self._disk.root, path, error) from error
        return MemoryMark(path, inode, length, self)

    async def free_bytes(self) -> int:
        self._check()
        await self._disk.visit(self, "")
        return self._disk.free_bytes

    def look_out(self, path: str) -> None:
        """Tell the observer of a mark, in a call that cannot wait."""
        self._disk.look_out(self, "mark", path)

    def die(self) -> None:
        """Fence, and stop the plan in flight before its next verb (M3)."""
        self.is_fenced = self.is_dead = True
        self.handles.clear()

    async def drain(self) -> None:
        """Wait for the last plan, then forget the open files."""
        await self._all_landed()
        for handle in self.handles:
            handle.inode = None
        self.handles.clear()


def _entry(name: str, node: Node) -> Entry:
    if isinstance(node, MemoryDirectory):
        return Entry(name, True, 0)
    return Entry(name, False, len(node.volatile))
